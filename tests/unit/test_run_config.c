/* test_run_config.c -- the table of a run's configuration: fit to be printed, and
 * printed for the test that compares moe-formats(5) with it.
 *
 *   test_run_config keys       one line a key: path, type and limits, sentence
 *   test_run_config families   one line a key of a config.json: family, class, key */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/units.h"
#include "model/families.h"
#include "train/run_config.h"

/* ---- as the page writes it */

/* Keys of the model whose default is the family's: model_config_finish(). */
static _Bool of_family(const char *path)
{
    static const char *const keys[] = {
        "first_k_dense_replace", "n_shared_experts", "norm_topk_prob", "attention_bias", "tie_word_embeddings",
        "routed_scaling_factor", "partial_rotary_factor", "rope_theta", "rms_norm_eps", "n_group", "topk_group",
        "scoring_func", "use_qk_norm",
    };

    if (strncmp(path, "model.", 6) != 0)
        return 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(path + 6, keys[i]) == 0)
            return 1;
    return 0;
}

static const char *number(char *buf, double v)
{
    if (v == 9007199254740992.0)
        return "2^53";
    if (v == 2147483647.0)
        return "2^31 - 1";
    units_shortest(buf, v);
    size_t zeros = strlen(buf) - 1;
    if (v >= 1e6 && buf[0] == '1' && strspn(buf + 1, "0") == zeros)
        snprintf(buf, 32, "1e%zu", zeros);
    return buf;
}

static const char *type_text(struct arena *a, const struct config_key *k)
{
    switch (k->kind) {
    case CONFIG_INT:        return "integer";
    case CONFIG_FLOAT:      return "number";
    case CONFIG_BOOL:       return "true or false";
    case CONFIG_STR:        return "text";
    case CONFIG_CHOICE:     return k->choices;
    case CONFIG_INT_AUTO:   return "integer or auto";
    case CONFIG_FLOATS:     return arena_printf(a, "list of %zu numbers", k->item_size);
    default:                return "list";
    }
}

static const char *facts(struct arena *a, const struct config_key *k)
{
    char lo[32], hi[32];
    const char *s = type_text(a, k);

    if (k->min < k->max)
        s = arena_printf(a, "%s, %s to %s", s, number(lo, k->min), number(hi, k->max));
    if (!k->def)
        return arena_printf(a, "(%s; required)", s);
    if (of_family(k->path))
        return arena_printf(a, "(%s; default of the family)", s);
    return arena_printf(a, "(%s; default %s)", s, k->def[0] ? k->def : "none");
}

static void print_key(struct arena *a, const char *prefix, const struct config_key *k)
{
    printf("%s%s\t%s\t%s\n", prefix, k->path, facts(a, k), k->doc);
    for (const struct config_key *i = k->items; k->kind == CONFIG_ITEMS && i->path; i++)
        print_key(a, arena_printf(a, "%s%s[].", prefix, k->path), i);
}

static int print_keys(void)
{
    struct arena *a = arena_new();

    for (const struct config_key *k = run_config_keys(); k->path; k++)
        print_key(a, "", k);
    arena_free(a);
    return 0;
}

static void print_family(const char *name, const struct family_key *k)
{
    for (; k->key; k++) {
        const char *class = k->kind == FAMILY_BOOK ? "bookkeeping" : k->kind == FAMILY_DROP ? "dropped"
                          : k->kind == FAMILY_NEUTRAL || k->kind == FAMILY_ONLY ? "neutral" : "used";
        printf("%s\t%s\t%s%s%s\n", name, class, k->key, k->kind == FAMILY_ONLY ? "=" : "",
               k->kind == FAMILY_ONLY ? k->only : "");
    }
}

static int print_families(void)
{
    print_family("all", families_common);
    for (int i = 0; i < MODEL_TYPE_N; i++)
        print_family(families[i].name, families[i].keys);
    return 0;
}

/* ---- tests */

static void every_key_has_a_sentence_of_its_own(void **state)
{
    (void)state;
    for (const struct config_key *k = run_config_keys(); k->path; k++) {
        if (!k->doc || !k->doc[0] || k->doc[strlen(k->doc) - 1] == '.' || strpbrk(k->doc, "\\\n\t"))
            fail_msg("%s: \"%s\"", k->path, k->doc ? k->doc : "");
        for (const struct config_key *o = run_config_keys(); o != k; o++) {
            assert_string_not_equal(o->path, k->path);
            assert_string_not_equal(o->doc, k->doc);
        }
    }
}

static void every_default_is_within_its_limits(void **state)
{
    (void)state;
    for (const struct config_key *k = run_config_keys(); k->path; k++) {
        double v;
        if (!k->def || k->min >= k->max || units_float(k->def, &v) < 0)
            continue;
        if (units_range(k->def, v, k->min, k->max) < 0)
            fail_msg("%s: default %s", k->path, k->def);
    }
}

static void a_missing_seq_len_is_named(void **state)
{
    struct run_config c = { 0 };

    (void)state;
    assert_int_equal(run_config_load(NULL, NULL, 0, &c), ERR_USAGE);
    assert_non_null(strstr(err_msg(), "data.seq_len"));
    assert_non_null(strstr(err_msg(), "model.hidden_size"));
}

static void thousands_that_were_meant_as_1024s_get_a_hint(void **state)
{
    char *over[] = { "model.model_type=mixtral", "model.hidden_size=8", "model.num_hidden_layers=1", "model.num_attention_heads=2",
                     "model.vocab_size=300", "model.num_experts=2", "model.num_experts_per_tok=1",
                     "model.moe_intermediate_size=4", "data.seq_len=64k", "train.micro_tokens=64Ki", "train.tokens_per_step=64Ki" };
    struct run_config c = { 0 };

    (void)state;
    assert_int_equal(run_config_load(NULL, over, sizeof over / sizeof over[0], &c), ERR_USAGE);
    assert_non_null(strstr(err_msg(), "data.seq_len 64000 (did you mean 64Ki = 65536?)"));
    over[8] = "data.seq_len=64Ki";
    assert_int_equal(run_config_load(NULL, over, sizeof over / sizeof over[0], &c), 0);
    assert_int_equal(c.data.seq_len, 65536);
    run_config_fini(&c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_has_a_sentence_of_its_own),
        cmocka_unit_test(every_default_is_within_its_limits),
        cmocka_unit_test(a_missing_seq_len_is_named),
        cmocka_unit_test(thousands_that_were_meant_as_1024s_get_a_hint),
    };

    if (argc > 1 && strcmp(argv[1], "keys") == 0)
        return print_keys();
    if (argc > 1 && strcmp(argv[1], "families") == 0)
        return print_families();
    return cmocka_run_group_tests_name("run_config", tests, NULL, NULL);
}
