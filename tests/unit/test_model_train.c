/* test_model_train.c -- passes over a batch: what must not change the result,
 * what must be counted, and finite differences of the whole model.
 *
 * M1 to M3 of model_pass.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "unit/golden.h"
#include "unit/model_rig.h"

static size_t grads_bytes(const struct rig *r)
{
    return (size_t)r->t.n_elems * dtype_size(dev_stat(r->opts.dtype));
}

/* A copy of the gradients, in the rig's arena. */
static char *grads_copy(struct rig *r)
{
    char *p = arena_alloc(r->a, grads_bytes(r));
    memcpy(p, r->g, grads_bytes(r));
    return p;
}

static void clear_grads(struct rig *r)
{
    memset(r->g, 0, grads_bytes(r));
}

static void boundaries_do_not_change_a_bit(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct rig r;
        rig_open(&r, golden_cases[i], DT_F32, 5);
        rig_random(&r, 3, 2, 24);
        r.opts.aux_coef = 0.01;
        r.opts.z_coef = 0.001;
        char *want = NULL;
        double loss0 = 0;
        static const int every[] = { 1, 0, 2, 3, 5 };
        for (size_t j = 0; j < sizeof every / sizeof *every; j++) {
            r.opts.boundary_every = every[j];
            rig_model(&r);
            clear_grads(&r);
            double loss = rig_train(&r, 1, NULL, NULL);
            if (!want) {
                want = grads_copy(&r);
                loss0 = loss;
            } else if (loss != loss0 || memcmp(want, r.g, grads_bytes(&r))) {
                fail_msg("%s: boundary_every %d gives other bits", golden_cases[i], every[j]);
            }
        }
        rig_close(&r);
    }
}

/* Forward 2, backward 3 (x, dy, dx); with everything kept x need not go again;
 * in a longer segment all layers but the last move 2 more. */
static void rows_move_five_times_a_layer(void **state)
{
    static const struct { int every, moves; } rows[] = { { 1, 5 * 5 }, { 0, 5 * 4 }, { 5, 5 + 4 * 7 }, { 2, 5 + 2 * (5 + 7) } };
    (void)state;
    for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
        struct rig r;
        rig_open(&r, "qwen3_moe", DT_F32, 5);
        rig_random(&r, 3, 1, 24);
        r.opts.boundary_every = rows[j].every;
        rig_model(&r);
        rig_train(&r, 1, NULL, NULL);
        assert_int_equal(model_row_moves(r.m), rows[j].moves);
        rig_close(&r);
    }
}

static int down_calls, hidden_calls, combine_calls, router_calls;
static const struct dev_ops *right;
static void count_group(struct dev *d, const struct group *g, struct mat y, struct mat x)
{
    down_calls += g->n_out > g->n_in;       /* H = 20, I = 12 */
    right->group_fwd(d, g, y, x);
}
static void count_swiglu(struct dev *d, struct mat h, struct mat gate, struct mat up)
{
    hidden_calls++;
    right->swiglu_fwd(d, h, gate, up);
}
static void count_combine(struct dev *d, struct mat y, struct mat ys, struct mat w, const int32_t *row_of, int64_t first, int k, double beta)
{
    combine_calls += w.p != NULL;
    right->rows_combine(d, y, ys, w, row_of, first, k, beta);
}
static void count_router(struct dev *d, const struct router *r)
{
    router_calls++;
    right->router_fwd(d, r);
}

static void down_proj_combine_and_routing_are_not_computed_again(void **state)
{
    (void)state;
    for (int every = 0; every < 2; every++) {
        struct rig r;
        struct dev_ops kept;
        rig_open(&r, "qwen3_moe", DT_F32, 3);
        rig_random(&r, 3, 1, 24);
        r.opts.boundary_every = every;
        rig_model(&r);
        kept = r.ops;
        right = &kept;
        r.ops.group_fwd = count_group;
        r.ops.swiglu_fwd = count_swiglu;
        r.ops.rows_combine = count_combine;
        r.ops.router_fwd = count_router;
        down_calls = hidden_calls = combine_calls = router_calls = 0;
        rig_train(&r, 1, NULL, NULL);
        assert_int_equal(down_calls, 3);
        assert_int_equal(hidden_calls, 3);
        assert_int_equal(combine_calls, 3);
        assert_int_equal(router_calls, 3);
        rig_close(&r);
    }
}

static void counts_are_of_the_forward_pass_only(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "glm4_moe", DT_F32, 4);
    rig_random(&r, 5, 2, 20);
    r.opts.boundary_every = 3;
    rig_model(&r);
    rig_train(&r, 1, NULL, NULL);
    rig_train(&r, 0, NULL, NULL);
    int64_t n_e = r.cfg.num_experts, k = r.cfg.num_experts_per_tok;
    for (int l = 0; l < 4; l++) {
        int64_t sum = 0;
        for (int e = 0; e < n_e; e++)
            sum += r.counts[l * n_e + e];
        assert_int_equal(sum, model_is_moe(&r.cfg, l) ? 2 * 40 * k : 0);
    }
    double *nll = arena_array(r.a, 72, sizeof *nll);
    struct model_sums s = { 0 };
    int64_t before = r.counts[n_e];
    assert_int_equal(mem_begin(r.mem, "eval"), 0);
    assert_int_equal(model_eval(r.m, &r.b, nll, &s), 0);
    assert_int_equal(mem_end(r.mem), 0);
    assert_int_equal(r.counts[n_e], before);
    rig_close(&r);
}

static void a_second_pass_adds_to_the_gradients(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "qwen2_moe", DT_F64, 0);
    rig_random(&r, 5, 2, 20);
    rig_model(&r);
    memset(r.g, 0xff, grads_bytes(&r));         /* NaN: beta 0 does not read it */
    rig_train(&r, 1, NULL, NULL);
    char *once = grads_copy(&r);
    rig_train(&r, 0, NULL, NULL);
    for (int i = 0; i < r.t.n; i++)
        for (int64_t j = 0; j < r.t.v[i].rows * r.t.v[i].cols; j++) {
            double x = rig_get(&r, once, r.t.v[i].offset + j), y = rig_get(&r, r.g, r.t.v[i].offset + j);
            assert_true(fabs(y - 2 * x) <= 1e-14 + 1e-12 * fabs(x));
        }
    rig_close(&r);
}

static void two_halves_accumulate_to_the_whole_batch(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct rig r;
        rig_open(&r, golden_cases[i], DT_F64, 0);
        rig_random(&r, 5, 4, 18);
        r.opts.aux_coef = 0.01;         /* additive over sequences */
        r.opts.z_coef = 0.001;
        rig_model(&r);
        double loss = rig_train(&r, 1, NULL, NULL), halves = 0, inv = 1 / (double)r.b.n_valid;
        char *whole = grads_copy(&r);
        struct model_batch b = r.b;
        for (int half = 0; half < 2; half++) {
            struct model_sums s = { 0 };
            b.n_tokens = 36;
            for (int64_t t = 0; half && t < 36; t++) {
                r.ids[t] = r.ids[t + 36];
                r.targets[t] = r.targets[t + 36];
                r.valid[t] = r.valid[t + 36];
                r.doc_start[t] = r.doc_start[t + 36] - 36;
                r.positions[t] = r.positions[t + 36];
            }
            assert_int_equal(mem_begin(r.mem, "train"), 0);
            assert_int_equal(model_train(r.m, &b, inv, !half, NULL, NULL, NULL, &s), 0);
            assert_int_equal(mem_end(r.mem), 0);
            halves += inv * (s.nll + 0.01 * s.aux + 0.001 * s.z);
        }
        assert_true(fabs(halves - loss) < 1e-12);
        for (int p = 0; p < r.t.n; p++) {
            if (r.t.v[p].kind == PARAM_ROUTER_BIAS)
                continue;
            double largest = 1e-6, worst = 0;
            for (int64_t j = 0; j < r.t.v[p].rows * r.t.v[p].cols; j++) {
                double x = rig_get(&r, whole, r.t.v[p].offset + j);
                largest = fmax(largest, fabs(x));
                worst = fmax(worst, fabs(x - rig_get(&r, r.g, r.t.v[p].offset + j)));
            }
            if (!(worst < 1e-10 * largest))
                fail_msg("%s: %s differs by %.1e", golden_cases[i], r.t.v[p].name, worst / largest);
        }
        rig_close(&r);
    }
}

static void an_empty_batch_has_gradient_0_and_loss_0(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct rig r;
        rig_open(&r, golden_cases[i], DT_F32, 3);
        rig_random(&r, 5, 2, 20);
        r.b.n_tokens = r.b.n_valid = 0;
        r.opts.boundary_every = 2;
        r.opts.aux_coef = r.opts.z_coef = 1;
        rig_model(&r);
        memset(r.g, 0xff, grads_bytes(&r));
        assert_true(rig_train(&r, 1, NULL, NULL) == 0);
        for (int p = 0; p < r.t.n; p++)
            for (int64_t j = 0; r.t.v[p].kind != PARAM_ROUTER_BIAS && j < r.t.v[p].rows * r.t.v[p].cols; j++)
                assert_true(rig_get(&r, r.g, r.t.v[p].offset + j) == 0);
        rig_close(&r);
    }
}

static void the_plan_of_a_full_batch_serves_a_shorter_one_with_the_same_bits(void **state)
{
    static const int every[] = { 0, 1, 2 };
    (void)state;
    for (int i = 0; golden_cases[i]; i++)
        for (size_t j = 0; j < sizeof every / sizeof *every; j++) {
            struct rig r;
            rig_open(&r, golden_cases[i], DT_F32, 3);
            rig_random(&r, 5, 2, 20);
            r.opts.boundary_every = every[j];
            rig_model(&r);
            clear_grads(&r);
            double loss = rig_train(&r, 1, NULL, NULL);
            char *want = grads_copy(&r);
            rig_model_planned(&r);
            mem_poison(r.mem, 1);
            for (int again = 0; again < 2; again++) {
                clear_grads(&r);
                assert_true(rig_train(&r, 1, NULL, NULL) == loss);
                assert_memory_equal(r.g, want, grads_bytes(&r));
            }
            assert_true(mem_used(r.mem) == mem_planned(r.mem));
            rig_close(&r);
        }
}

static void the_loss_chunk_changes_no_loss_and_hardly_a_gradient(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "olmoe", DT_F64, 0);
    rig_random(&r, 5, 2, 30);
    char *want = NULL;
    double loss0 = 0;
    static const int64_t chunks[] = { 1000, 60, 7, 1 };
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        r.opts.loss_chunk = chunks[i];
        rig_model(&r);
        clear_grads(&r);
        double loss = rig_train(&r, 1, NULL, NULL);
        if (!i) {
            loss0 = loss;
            want = grads_copy(&r);
        }
        assert_true(loss == loss0);
        for (int64_t j = 0; j < r.t.n_elems; j++)
            assert_true(fabs(rig_get(&r, want, j) - rig_get(&r, r.g, j)) < 1e-13);
    }
    rig_close(&r);
}

static void evaluation_gives_the_losses_of_training(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "glm4_moe_groups", DT_F32, 0);
    rig_random(&r, 5, 2, 30);
    rig_model(&r);
    double loss = rig_train(&r, 1, NULL, NULL), sum = 0;
    double *nll = arena_array(r.a, 72, sizeof *nll);
    struct model_sums s = { 0 };
    assert_int_equal(mem_begin(r.mem, "eval"), 0);
    assert_int_equal(model_eval(r.m, &r.b, nll, &s), 0);
    assert_int_equal(mem_end(r.mem), 0);
    assert_true(s.nll / (double)r.b.n_valid == loss);
    for (int64_t i = 0; i < r.b.n_tokens; i++) {
        assert_true((r.targets[i] < 0) == (nll[i] == 0));
        sum += nll[i];
    }
    assert_true(fabs(sum - s.nll) < 1e-9);
    rig_close(&r);
}

/* One document of 30 tokens, fed in pieces: each piece's logits are those of
 * the full pass, bit for bit. */
static void decoding_with_the_cache_is_the_full_forward_pass(void **state)
{
    static const int64_t pieces[] = { 1, 7, 1, 1, 12, 8 };
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct rig r;
        rig_open(&r, golden_cases[i], DT_F32, 0);
        rig_random(&r, 9, 1, 30);
        for (int32_t t = 0; t < 30; t++) {
            r.doc_start[t] = 0;
            r.positions[t] = t;
        }
        r.opts.max_positions = 30;
        rig_model(&r);
        assert_int_equal(model_cache_new(r.m), 0);
        size_t v = (size_t)r.cfg.vocab_size;
        float *full = arena_array(r.a, 30 * v, sizeof *full), *got = arena_array(r.a, v, sizeof *got);
        assert_int_equal(mem_begin(r.mem, "logits"), 0);
        assert_int_equal(model_logits(r.m, &r.b, NULL, mat(full, DT_F32, 30, (int64_t)v)), 0);
        assert_int_equal(mem_end(r.mem), 0);
        for (int round = 0; round < 2; round++) {
            int64_t at = 0;
            model_cache_reset(r.m);
            for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
                assert_int_equal(mem_begin(r.mem, "decode"), 0);
                assert_int_equal(model_decode(r.m, r.ids + at, pieces[p], got), 0);
                assert_int_equal(mem_end(r.mem), 0);
                at += pieces[p];
                if (memcmp(got, full + (size_t)(at - 1) * v, v * sizeof *got))
                    fail_msg("%s: differs after %d tokens", golden_cases[i], (int)at);
            }
        }
        assert_int_equal(model_decode(r.m, r.ids, 1, got), ERR_DATA);
        rig_close(&r);
    }
}

static void forced_routing_is_followed(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "glm4_moe", DT_F64, 3);
    rig_random(&r, 5, 1, 24);
    rig_model(&r);
    int64_t k = r.cfg.num_experts_per_tok, n = r.b.n_tokens;
    uint16_t *forced = arena_array(r.a, (size_t)(3 * n * k), sizeof *forced);
    for (int64_t i = 0; i < 3 * n * k; i++)
        forced[i] = (uint16_t)((i / k + 3 * (i % k)) % r.cfg.num_experts);
    double own = rig_train(&r, 1, NULL, NULL), other = rig_train(&r, 1, NULL, forced);
    assert_true(own != other);
    assert_memory_equal(model_routing(r.m, 1), forced + n * k, (size_t)(n * k) * sizeof *forced);
    rig_close(&r);
}

/* ---- finite differences, in double with the routing held */

static void differences(const char *name, double aux, double z, enum aux_scope scope, _Bool few)
{
    struct rig r;
    rig_open(&r, name, DT_F64, 0);
    rig_random(&r, 11, 2, 12);
    r.opts.micro_tokens = 24;
    r.opts.seq_len = 12;
    r.opts.aux_coef = aux;
    r.opts.z_coef = z;
    r.opts.aux_scope = scope;
    rig_model(&r);
    int64_t n_e = r.cfg.num_experts, k = r.cfg.num_experts_per_tok, layers = r.cfg.num_hidden_layers, n = r.b.n_tokens;
    double *frac = arena_array(r.a, (size_t)(layers * n_e), sizeof *frac);
    for (int64_t i = 0; i < layers * n_e; i++)
        frac[i] = (1 + 0.1 * (double)(i % 5)) / (double)n_e;
    rig_train(&r, 1, frac, NULL);
    uint16_t *forced = arena_array(r.a, (size_t)(layers * n * k), sizeof *forced);
    for (int l = 0; l < layers; l++)
        if (model_is_moe(&r.cfg, l))
            memcpy(forced + l * n * k, model_routing(r.m, l), (size_t)(n * k) * sizeof *forced);
    rig_train(&r, 1, frac, forced);
    char *g = grads_copy(&r);
    for (int i = 0; i < r.t.n; i++) {
        const struct param *p = &r.t.v[i];
        int64_t size = p->rows * p->cols;
        if (p->kind == PARAM_ROUTER_BIAS || (few && p->kind != PARAM_ROUTER && p->kind != PARAM_EMBED))
            continue;
        double *dir = arena_array(r.a, (size_t)size, sizeof *dir), *old = arena_array(r.a, (size_t)size, sizeof *old);
        double norm = 0, slope = 0, loss[2], h = 2e-5;
        struct rng_key key = rng_key(17, p->name);
        for (int64_t j = 0; j < size; j++) {
            old[j] = rig_get(&r, r.w, p->offset + j);
            dir[j] = rng_normal(key, (uint64_t)j);
            norm += dir[j] * dir[j];
        }
        for (int64_t j = 0; j < size; j++)
            slope += dir[j] / sqrt(norm) * rig_get(&r, g, p->offset + j);
        for (int side = 0; side < 2; side++) {
            for (int64_t j = 0; j < size; j++)
                rig_set(&r, r.w, p->offset + j, old[j] + (side ? -h : h) * dir[j] / sqrt(norm));
            loss[side] = rig_train(&r, 1, frac, forced);
        }
        for (int64_t j = 0; j < size; j++)
            rig_set(&r, r.w, p->offset + j, old[j]);
        double got = (loss[0] - loss[1]) / (2 * h), scale = fmax(fabs(slope), 1e-3);
        if (!(fabs(got - slope) < 1e-6 * scale))
            fail_msg("%s: %s: slope %.12g, difference %.12g", name, p->name, slope, got);
    }
    rig_close(&r);
}

static void gradients_are_those_of_finite_differences(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++)
        differences(golden_cases[i], 0, 0, AUX_SEQUENCE, 0);
}

static void gradients_with_balance_and_z_loss_are_those_of_finite_differences(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        differences(golden_cases[i], 0.3, 0.1, AUX_SEQUENCE, 0);
        differences(golden_cases[i], 0.3, 0.1, AUX_BATCH, 1);
    }
}

static void on_cpu(void (*test)(void **state))
{
    rig_device = "cpu";
    test(NULL);
    rig_device = "ref";
}

static void on_cpu_boundaries_do_not_change_a_bit(void **state) { (void)state; on_cpu(boundaries_do_not_change_a_bit); }
static void on_cpu_the_plan_serves_a_shorter_batch_with_the_same_bits(void **state)
{
    (void)state;
    on_cpu(the_plan_of_a_full_batch_serves_a_shorter_one_with_the_same_bits);
}
static void on_cpu_an_empty_batch_has_gradient_0(void **state) { (void)state; on_cpu(an_empty_batch_has_gradient_0_and_loss_0); }
static void on_cpu_decoding_is_the_full_forward_pass(void **state)
{
    (void)state;
    on_cpu(decoding_with_the_cache_is_the_full_forward_pass);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boundaries_do_not_change_a_bit),
        cmocka_unit_test(rows_move_five_times_a_layer),
        cmocka_unit_test(down_proj_combine_and_routing_are_not_computed_again),
        cmocka_unit_test(counts_are_of_the_forward_pass_only),
        cmocka_unit_test(a_second_pass_adds_to_the_gradients),
        cmocka_unit_test(two_halves_accumulate_to_the_whole_batch),
        cmocka_unit_test(an_empty_batch_has_gradient_0_and_loss_0),
        cmocka_unit_test(the_plan_of_a_full_batch_serves_a_shorter_one_with_the_same_bits),
        cmocka_unit_test(the_loss_chunk_changes_no_loss_and_hardly_a_gradient),
        cmocka_unit_test(evaluation_gives_the_losses_of_training),
        cmocka_unit_test(decoding_with_the_cache_is_the_full_forward_pass),
        cmocka_unit_test(on_cpu_boundaries_do_not_change_a_bit),
        cmocka_unit_test(on_cpu_the_plan_serves_a_shorter_batch_with_the_same_bits),
        cmocka_unit_test(on_cpu_an_empty_batch_has_gradient_0),
        cmocka_unit_test(on_cpu_decoding_is_the_full_forward_pass),
        cmocka_unit_test(forced_routing_is_followed),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(gradients_with_balance_and_z_loss_are_those_of_finite_differences),
    };
    return cmocka_run_group_tests_name("model train", tests, NULL, NULL);
}
