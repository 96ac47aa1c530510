/* test_params.c -- the parameter table beside what transformers saved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "model/params.h"
#include "unit/golden.h"

static void build(struct arena *a, const char *name, struct model_config *m, struct param_table *t)
{
    char *path = arena_printf(a, "tests/golden/%s/config.json", name);
    if (model_config_read(m, path, 72) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(params_build(a, m, t), 0);
}

static void names_and_shapes_are_those_of_save_pretrained(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct arena *a = arena_new();
        struct model_config m;
        struct param_table t;
        build(a, golden_cases[i], &m, &t);
        struct golden g = golden_open(a, golden_cases[i], "model.safetensors");
        assert_int_equal(g.n, t.n);
        for (int j = 0; j < t.n; j++) {
            const struct golden_tensor *w = golden_find(&g, t.v[j].name);
            if (!w)
                fail_msg("%s: no %s in the file", golden_cases[i], t.v[j].name);
            assert_int_equal(w->n_dims, t.v[j].n_dims);
            assert_int_equal(w->shape[0], t.v[j].rows);
            assert_int_equal(w->n_dims == 2 ? w->shape[1] : 1, t.v[j].cols);
        }
        model_config_fini(&m);
        arena_free(a);
    }
}

static void every_tensor_is_found_by_its_name_and_no_other(void **state)
{
    struct arena *a = arena_new();
    struct model_config m;
    struct param_table t;
    (void)state;
    build(a, "glm4_moe", &m, &t);
    for (int i = 0; i < t.n; i++)
        assert_int_equal(params_find(&t, t.v[i].name), i);
    assert_int_equal(params_find(&t, "model.layers.1.mlp.experts.8.up_proj.weight"), -1);
    assert_int_equal(params_find(&t, ""), -1);
    model_config_fini(&m);
    arena_free(a);
}

static void storage_is_in_table_order_aligned_and_without_overlap(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct arena *a = arena_new();
        struct model_config m;
        struct param_table t;
        build(a, golden_cases[i], &m, &t);
        int64_t end = 0;
        for (int j = 0; j < t.n; j++) {
            assert_true(t.v[j].offset % 16 == 0 && t.v[j].offset >= end && t.v[j].offset < end + 16);
            end = t.v[j].offset + t.v[j].rows * t.v[j].cols;
            if (t.v[j].kind == PARAM_EXPERT && t.v[j].expert == 0 && t.v[j].cols == m.hidden_size &&
                t.v[j - 1].kind != PARAM_EXPERT)
                assert_int_equal(t.layers[t.v[j].layer].experts, j);
        }
        assert_true(t.n_elems >= end && t.n_elems < end + 16);
        assert_string_equal(t.v[t.embed].name, "model.embed_tokens.weight");
        assert_true(m.tie_word_embeddings ? t.head == t.embed : !strcmp(t.v[t.head].name, "lm_head.weight"));
        model_config_fini(&m);
        arena_free(a);
    }
}

/* Counted by hand for this case: hidden 28, 48 words, layer 0 dense. */
static void counts_are_those_made_by_hand(void **state)
{
    struct arena *a = arena_new();
    struct model_config m;
    struct param_table t;
    (void)state;
    build(a, "glm4_moe", &m, &t);
    int64_t attn = 28 * 48 + 2 * (28 * 24) + 48 * 28, bias = 48 + 24 + 24, norms = 28 + 28 + 12 + 12;
    int64_t dense = 3 * 28 * 36, shared = 3 * 28 * 10, router = 8 * 28, expert = 3 * 28 * 10;
    int64_t rest = 2 * (attn + bias + norms) + dense + shared + router + 8 + 2 * 48 * 28 + 28;
    assert_int_equal(params_total(&t), rest + 8 * expert);
    assert_int_equal(params_active(&t), rest + 2 * expert);
    int64_t matmul = 2 * attn + dense + shared + router + 48 * 28 + 2 * expert;
    assert_int_equal(params_matmul(&t), matmul);
    assert_true(params_flops(&t, 10, 55) == 6.0 * (double)matmul * 10 + 12.0 * 2 * 48 * 55);
    model_config_fini(&m);
    arena_free(a);
}

static void muon_gets_matrices_inside_layers_and_adamw_the_rest(void **state)
{
    struct arena *a = arena_new();
    struct model_config m;
    struct param_table t;
    (void)state;
    build(a, "qwen2_moe", &m, &t);
    for (int i = 0; i < t.n; i++) {
        const struct param *p = &t.v[i];
        _Bool proj = strstr(p->name, "_proj.weight") != NULL;
        assert_int_equal(p->optim, proj ? PARAM_MUON : PARAM_ADAMW);
        assert_int_equal(p->decay, p->n_dims == 2);
    }
    model_config_fini(&m);
    build(a, "glm4_moe", &m, &t);
    const struct param *bias = &t.v[params_find(&t, "model.layers.1.mlp.gate.e_score_correction_bias")];
    assert_int_equal(bias->optim, PARAM_NONE);
    assert_false(bias->decay);
    model_config_fini(&m);
    arena_free(a);
}

static void initial_values_depend_on_seed_and_name_only(void **state)
{
    struct arena *a = arena_new();
    struct model_config m;
    struct param_table t;
    (void)state;
    build(a, "qwen3_moe_dense", &m, &t);
    int q = t.layers[1].q, bias = t.layers[1].q_bias, norm = t.layers[1].q_norm;
    int64_t n = t.v[q].rows * t.v[q].cols;
    float *x = arena_array(a, (size_t)n, sizeof *x), *y = arena_array(a, (size_t)n, sizeof *y);
    params_init(&t, q, 7, 0.02, 0, t.v[q].rows, x);
    rng_fill_normal(y, n, rng_key(7, "model.layers.1.self_attn.q_proj.weight"), 0, 0.02);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    params_init(&t, q, 8, 0.02, 0, t.v[q].rows, y);
    assert_memory_not_equal(x, y, (size_t)n * sizeof *x);
    params_init(&t, norm, 7, 0.02, 0, t.v[norm].rows, x);
    assert_true(x[0] == 1 && x[t.v[norm].rows - 1] == 1);
    params_init(&t, bias, 7, 0.02, 0, t.v[bias].rows, x);
    assert_true(x[0] == 0 && x[t.v[bias].rows - 1] == 0);
    model_config_fini(&m);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_shapes_are_those_of_save_pretrained),
        cmocka_unit_test(every_tensor_is_found_by_its_name_and_no_other),
        cmocka_unit_test(storage_is_in_table_order_aligned_and_without_overlap),
        cmocka_unit_test(counts_are_those_made_by_hand),
        cmocka_unit_test(muon_gets_matrices_inside_layers_and_adamw_the_rest),
        cmocka_unit_test(initial_values_depend_on_seed_and_name_only),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
