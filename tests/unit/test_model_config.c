/* test_model_config.c -- what a model's shape may and may not say, from YAML
 * and from config.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/pool.h"
#include "model/model_config.h"
#include "unit/golden.h"

static char dir[] = "/tmp/test-model-config-XXXXXX";
static struct arena *arena;

static char *in_dir(const char *name) { return arena_printf(arena, "%s/%s", dir, name); }

static int set_up(void **state)
{
    (void)state;
    arena = arena_new();
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fs_remove_tree(dir);
    arena_free(arena);
    return 0;
}

/* ---- config.json */

/* The golden config of the family with one key set to the JSON text (NULL: removed). */
static int read_with(struct model_config *m, const char *name, const char *key, const char *value, int64_t seq_len)
{
    json_t *top = json_load_file(arena_printf(arena, "tests/golden/%s/config.json", name), 0, NULL);
    assert_non_null(top);
    if (value)
        json_object_set_new(top, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(top, key);
    char *path = in_dir("config.json");
    assert_int_equal(json_dump_file(top, path, 0), 0);
    json_decref(top);
    return model_config_read(m, path, seq_len);
}

static void what_a_family_cannot_express_is_refused_by_name(void **state)
{
    static const struct { const char *family, *key, *value, *says; } bad[] = {
        { "olmoe", "clip_qkv", "8.0", "clip_qkv: must be null" },
        { "olmoe", "use_qk_norm", "true", "unknown to olmoe" },
        { "mixtral", "sliding_window", "32", "sliding_window: 32 is shorter than seq_len 64" },
        { "mixtral", "router_jitter_noise", "0.1", "router_jitter_noise: must be null" },
        { "qwen3_moe", "mlp_only_layers", "[1]", "mlp_only_layers: expected leading layers" },
        { "qwen3_moe", "mlp_only_layers", "[0, 1]", "no layer with experts is left" },
        { "qwen3_moe", "decoder_sparse_step", "2", "decoder_sparse_step: must be 1" },
        { "qwen3_moe", "hidden_act", "\"gelu\"", "hidden_act: must be silu" },
        { "qwen3_moe", "attention_dropout", "0.1", "attention_dropout: must be null" },
        { "qwen3_moe", "quantization_config", "{\"bits\": 4}", "quantization_config" },
        { "qwen3_moe", "num_experts", "7", "num_experts" },           /* num_local_experts says 6 */
        { "qwen3_moe", "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4}", "rope_scaling.rope_type: \"yarn\"" },
        { "qwen3_moe", "rope_parameters", "{\"rope_type\": \"default\", \"beta_fast\": 32}", "rope_parameters.beta_fast: unknown" },
        { "qwen3_moe", "rope_theta", "5.0", "differs from rope_theta" },
        { "qwen3_moe", "shiny_new_thing", "1", "shiny_new_thing: unknown to qwen3_moe" },
        { "qwen3_moe", "architectures", "[\"Qwen3MoeForSequenceClassification\"]", "architectures" },
        { "qwen3_moe", "num_key_value_heads", "3", "num_key_value_heads: 8 query heads are no multiple of 3" },
        { "qwen3_moe", "num_experts_per_tok", "9", "num_experts_per_tok: 9 of only 6" },
        { "qwen3_moe", "hidden_size", "\"wide\"", "hidden_size: expected an integer" },
        { "qwen3_moe", "hidden_size", "-4", "hidden_size: expected 0 to" },
        { "qwen3_moe", "rms_norm_eps", "0", "rms_norm_eps" },
        { "qwen3_moe", "norm_topk_prob", "3", "norm_topk_prob: expected true or false" },
        { "qwen3_moe", "model_type", "\"llama\"", "model_type: \"llama\" is not one of" },
        { "qwen3_moe", "model_type", NULL, "model_type: expected one of" },
        { "qwen2_moe", "head_dim", "8", "head_dim: in qwen2_moe it is" },
        { "qwen2_moe", "layer_types", "[\"full_attention\", \"sliding_attention\"]", "layer_types: layer 1" },
        { "glm4_moe", "n_shared_experts", "0", "n_shared_experts" },
        { "glm4_moe", "scoring_func", "\"softmax\"", "scoring_func: must be sigmoid" },
        { "glm4_moe", "n_group", "3", "n_group: 8 experts are no multiple of 3" },
        { "glm4_moe_groups", "topk_group", "0", "topk_group: expected 1 to" },
        { "glm4_moe_groups", "n_group", "12", "topk_group: 2 of 12 groups do not hold 3" },
        { "glm4_moe", "head_dim", "10", "partial_rotary_factor: head_dim x partial_rotary_factor must be" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config m;
        int rc = read_with(&m, bad[i].family, bad[i].key, bad[i].value, 64);
        if (rc != ERR_USAGE || !strstr(err_msg(), bad[i].says))
            fail_msg("%s, %s = %s: status %d, \"%s\"", bad[i].family, bad[i].key, bad[i].value ? bad[i].value : "absent", rc,
                     rc < 0 ? err_msg() : "accepted");
    }
}

static void what_changes_nothing_is_accepted(void **state)
{
    static const struct { const char *family, *key, *value; } good[] = {
        { "mixtral", "sliding_window", "64" }, { "mixtral", "sliding_window", "0" }, { "mixtral", "head_dim", "6" },
        { "qwen3_moe", "sliding_window", "32" },
        { "qwen3_moe", "use_sliding_window", "true" },          /* of no length: the file says null */
        { "qwen3_moe", "mlp_only_layers", "null" }, { "qwen3_moe", "num_experts", "6" },
        { "qwen3_moe", "rope_scaling", "null" }, { "qwen3_moe", "rope_scaling", "{\"type\": \"default\"}" },
        { "qwen3_moe", "rope_theta", "1000000" }, { "qwen3_moe", "pretraining_tp", "1" }, { "qwen3_moe", "architectures", NULL },
        { "qwen2_moe", "qkv_bias", NULL }, { "glm4_moe", "num_nextn_predict_layers", "1" }, { "glm4_moe", "attention_dropout", "0.0" },
        { "glm4_moe", "scoring_func", "\"sigmoid\"" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct model_config m;
        if (read_with(&m, good[i].family, good[i].key, good[i].value, 64) < 0)
            fail_msg("%s, %s = %s: %s", good[i].family, good[i].key, good[i].value ? good[i].value : "absent", err_msg());
        model_config_fini(&m);
    }
}

static void absent_keys_take_the_default_of_the_family(void **state)
{
    struct model_config m;
    (void)state;
    assert_int_equal(read_with(&m, "glm4_moe", "rope_parameters", NULL, 64), 0);
    assert_true(m.partial_rotary_factor == 0.5 && m.rope_theta == 10000);
    model_config_fini(&m);
    assert_int_equal(read_with(&m, "qwen3_moe", "norm_topk_prob", NULL, 64), 0);
    assert_false(m.norm_topk_prob);
    model_config_fini(&m);
    assert_int_equal(read_with(&m, "mixtral", "rope_parameters", NULL, 64), 0);
    assert_true(m.rope_theta == 1000000 && m.norm_topk_prob);
    model_config_fini(&m);
    assert_int_equal(read_with(&m, "qwen2_moe", "qkv_bias", NULL, 64), 0);
    assert_true(m.attention_bias && !m.attention_bias_o);
    model_config_fini(&m);
    assert_int_equal(read_with(&m, "qwen3_moe", "attention_bias", "true", 64), 0);
    assert_true(m.attention_bias && m.attention_bias_o);
    model_config_fini(&m);
    assert_int_equal(read_with(&m, "olmoe", "num_key_value_heads", "null", 64), 0);
    assert_int_equal(m.num_key_value_heads, m.num_attention_heads);
    assert_int_equal(m.use_qk_norm, QK_NORM_WHOLE);
    model_config_fini(&m);
}

static void what_is_written_reads_back_as_the_same_model(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct model_config m, back;
        const char *key;
        assert_int_equal(read_with(&m, golden_cases[i], "pad_token_id", "5", 64), 0);
        char *text = model_config_json(&m, 7, 4096), *path = in_dir("again.json");
        assert_non_null(strstr(text, "\"torch_dtype\": \"float32\""));
        assert_non_null(strstr(text, "\"eos_token_id\": 7"));
        assert_non_null(strstr(text, "\"pad_token_id\": 5"));
        assert_non_null(strstr(text, "\"max_position_embeddings\": 4096"));
        /* transformers refuses an integer where it expects a real. */
        assert_non_null(strstr(text, "\"attention_dropout\": 0.0"));
        assert_int_equal(fs_write_file(path, text, strlen(text)), 0);
        if (model_config_read(&back, path, 64) < 0)
            fail_msg("%s", err_msg());
        if (!model_config_same(&m, &back, &key))
            fail_msg("%s: %s differs", golden_cases[i], key);
        pool_free(text);
        model_config_fini(&m);
        model_config_fini(&back);
    }
}

static void two_shapes_differ_by_a_named_key(void **state)
{
    struct model_config m, other;
    const char *key;
    (void)state;
    assert_int_equal(read_with(&m, "glm4_moe", "use_cache", "false", 64), 0);
    other = m;
    assert_true(model_config_same(&m, &other, &key));
    other.head_dim = 6;
    assert_false(model_config_same(&m, &other, &key));
    assert_string_equal(key, "head_dim");
    model_config_fini(&m);
}

/* ---- YAML */

#define BASE "model_type: glm4_moe\n  hidden_size: 64\n  num_hidden_layers: 2\n  num_attention_heads: 4\n" \
    "  vocab_size: 100\n  num_experts: 8\n  num_experts_per_tok: 2\n"
#define SIZES "  moe_intermediate_size: 16\n  first_k_dense_replace: 0\n"

static int load(const char *text, struct model_config *m, struct config **c)
{
    const char *model_path = NULL, *path = in_dir("run.yaml");
    memset(m, 0, sizeof *m);
    assert_int_equal(fs_write_file(path, text, strlen(text)), 0);
    TRY(config_load(path, NULL, 0, model_config_keys, m, &model_path, c));
    int rc = model_config_finish(m, *c);
    if (rc < 0)
        config_free(*c);
    return rc;
}

static void yaml_faults_name_their_place_all_at_once(void **state)
{
    static const struct { const char *text, *says[3]; } bad[] = {
        { "model:\n  " BASE SIZES "  head_dim: 7\n", { "default: model.partial_rotary_factor", NULL, NULL } },
        { "model:\n  " BASE "  first_k_dense_replace: 0\n", { "model.moe_intermediate_size: must be given", NULL, NULL } },
        { "model:\n  " BASE "  moe_intermediate_size: 16\n", { "model.intermediate_size: the leading dense layers need a width", NULL, NULL } },
        { "model:\n  " BASE SIZES "  use_qk_norm: whole\n  scoring_func: softmax\n  num_key_value_heads: 3\n",
          { "run.yaml:11:", "run.yaml:12:", "run.yaml:13:" } },
        { "model:\n  " BASE SIZES "  rope_scaling: yarn\n", { "model.rope_scaling", NULL, NULL } },
        { "model:\n  " BASE SIZES "  hiden_size: 3\n", { "did you mean", "hidden_size", NULL } },
        { "model:\n  " BASE SIZES "  n_group: 3\n", { "model.n_group", NULL, NULL } },
        { "model:\n  " BASE SIZES "  shared_expert_intermediate_size: 3\n", { "model.shared_expert_intermediate_size: glm4_moe has none", NULL, NULL } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config m;
        struct config *c = NULL;
        int rc = load(bad[i].text, &m, &c);
        assert_int_equal(rc, ERR_USAGE);
        for (int j = 0; j < 3 && bad[i].says[j]; j++)
            if (!strstr(err_msg(), bad[i].says[j]))
                fail_msg("case %zu: \"%s\" is not in \"%s\"", i, bad[i].says[j], err_msg());
    }
}

static void yaml_words_of_qk_norm_mean_what_the_family_has(void **state)
{
    static const struct { const char *family, *word; int want; } words[] = {
        { "glm4_moe", "true", QK_NORM_HEAD }, { "glm4_moe", "false", QK_NORM_NONE }, { "glm4_moe", "auto", QK_NORM_NONE },
        { "qwen3_moe", "auto", QK_NORM_HEAD }, { "qwen3_moe", "head", QK_NORM_HEAD }, { "olmoe", "true", QK_NORM_WHOLE },
        { "olmoe", "whole", QK_NORM_WHOLE }, { "mixtral", "none", QK_NORM_NONE },
        { "mixtral", "true", -1 }, { "qwen3_moe", "false", -1 }, { "olmoe", "head", -1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct model_config m;
        struct config *c = NULL;
        const char *text = arena_printf(arena, "model:\n  " BASE "  moe_intermediate_size: 16\n  use_qk_norm: %s\n%s",
                                        words[i].word, strcmp(words[i].family, "glm4_moe") ? "" : "  first_k_dense_replace: 0\n");
        char *at = strstr(text, "glm4_moe");
        text = arena_printf(arena, "%.*s%s%s", (int)(at - text), text, words[i].family, at + strlen("glm4_moe"));
        int rc = load(text, &m, &c);
        if (words[i].want < 0 ? rc != ERR_USAGE || !strstr(err_msg(), "use_qk_norm") : rc < 0 || m.use_qk_norm != words[i].want)
            fail_msg("%s: %s gives %d, %d: %s", words[i].family, words[i].word, rc, m.use_qk_norm, rc < 0 ? err_msg() : "");
        if (rc == 0)
            config_free(c);
    }
}

static void the_printed_configuration_is_the_same_model_and_digest(void **state)
{
    struct model_config m, back;
    struct config *c, *again;
    const char *key;
    (void)state;
    assert_int_equal(load("model:\n  " BASE SIZES, &m, &c), 0);
    assert_true(m.head_dim == 16 && m.num_key_value_heads == 4 && m.partial_rotary_factor == 0.5 && m.n_shared_experts == 1);
    char *text = config_print(c, 1);
    assert_non_null(strstr(text, "default of glm4_moe"));
    assert_int_equal(load(text, &back, &again), 0);
    assert_true(model_config_same(&m, &back, &key));
    struct hash x = config_digest(c), y = config_digest(again);
    assert_true(hash_eq(&x, &y));
    free(text);
    config_free(c);
    config_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_family_cannot_express_is_refused_by_name),
        cmocka_unit_test(what_changes_nothing_is_accepted),
        cmocka_unit_test(absent_keys_take_the_default_of_the_family),
        cmocka_unit_test(what_is_written_reads_back_as_the_same_model),
        cmocka_unit_test(two_shapes_differ_by_a_named_key),
        cmocka_unit_test(yaml_faults_name_their_place_all_at_once),
        cmocka_unit_test(yaml_words_of_qk_norm_mean_what_the_family_has),
        cmocka_unit_test(the_printed_configuration_is_the_same_model_and_digest),
    };
    return cmocka_run_group_tests_name("model config", tests, set_up, tear_down);
}
