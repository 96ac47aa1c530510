/* test_optim_golden.c -- AdamW and Muon against ten steps of torch's own, on
 * every device; schedules, clipping, selection bias, head splits.
 *
 * Limits: 1e-5 of the tensor's largest value against torch's Muon in float64
 * and against AdamW (float32 storage of moments, ten steps); 3e-2 in relative
 * Frobenius distance of the move against torch's Muon in bf16 (the two golden
 * runs themselves are 1.7e-2 apart). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "golden.h"
#include "optim/optim.h"

#define N_STEPS 10

struct rig {
    struct arena *a;
    struct golden g;
    struct param_table t;
    struct model_config m;
    struct optim_config c;
    struct dev d;
    struct mem *mem;
    struct optim *o;
    struct owned_layout own;    /* everything */
    float *master, *grads;
    double lr[N_STEPS];
};

static void add(struct rig *r, const char *name, enum param_optim optim, int64_t rows, int64_t cols, _Bool decay)
{
    struct param *p = &r->t.v[r->t.n++];

    *p = (struct param){ .name = name, .kind = PARAM_DENSE, .optim = optim, .decay = decay, .layer = -1, .expert = -1,
                         .n_dims = cols > 1 ? 2 : 1, .rows = rows, .cols = cols, .offset = r->t.n_elems };
    r->t.n_elems += (rows * cols + 15) & ~(int64_t)15;
}

static void start(struct rig *r, const char *device)
{
    struct dev_options o = { .threads = 2 };
    struct dev_limits lim = { .max_rows = 32, .max_cols = 32, .n_heads = 1, .head_dim = 16, .ns_rows = 32, .ns_cols = 32 };

    memset(r, 0, sizeof *r);
    r->a = arena_new();
    r->g = golden_open(r->a, ".", "optim.safetensors");
    r->t.v = arena_array(r->a, 16, sizeof *r->t.v);
    r->t.cfg = &r->m;
    memcpy(r->lr, golden_find(&r->g, "lr")->data, sizeof r->lr);
    r->c = (struct optim_config){ .muon_lr = 1, .muon_momentum = 0.95, .muon_weight_decay = 0.1, .muon_nesterov = 1,
                                  .adamw_lr = 1, .adamw_betas = { 0.9, 0.95 }, .adamw_eps = 1e-8, .adamw_weight_decay = 0.1 };
    r->mem = mem_new();
    assert_int_equal(dev_open(device, &o, &r->d), 0);
    r->d.ws_size = r->d.ops->ws_bytes(&r->d, &lim);
    r->d.ws = arena_alloc(r->a, r->d.ws_size + 64);
    r->d.ws = (void *)(((uintptr_t)r->d.ws + 63) & ~(uintptr_t)63);
}

static void build(struct rig *r)
{
    r->master = arena_array(r->a, (size_t)r->t.n_elems, sizeof(float));
    r->grads = arena_array(r->a, (size_t)r->t.n_elems, sizeof(float));
    r->own = (struct owned_layout){ .n_parts = r->t.n, .n_elems = r->t.n_elems };
    r->own.parts = arena_array(r->a, (size_t)r->t.n, sizeof *r->own.parts);
    for (int i = 0; i < r->t.n; i++)
        r->own.parts[i] = (struct owned_part){ i, 0, r->t.v[i].rows, r->t.v[i].offset };
    assert_int_equal(optim_new(r->a, &r->t, &r->own, &r->c, &r->d, r->mem, &r->o), 0);
}

static void finish(struct rig *r)
{
    dev_close(&r->d);
    mem_free(r->mem);
    arena_free(r->a);
}

static const float *get(struct rig *r, const char *fmt, const char *a, const char *b)
{
    return golden_f32(r->a, &r->g, arena_printf(r->a, fmt, a, b));
}

#pragma GCC diagnostic ignored "-Wformat-nonliteral"

static double worst(const float *x, const float *want, int64_t n)
{
    double err = 0, max = 0;

    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)x[i] - (double)want[i]), v = fabs((double)want[i]);
        if (!(e <= err))
            err = e;
        max = v > max ? v : max;
    }
    return max > 0 ? err / max : err;
}

static double move_distance(const float *x, const float *want, const float *from, int64_t n)
{
    double num = 0, den = 0;

    for (int64_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)want[i], m = (double)want[i] - (double)from[i];
        num += e * e;
        den += m * m;
    }
    return sqrt(num / den);
}

static int64_t count(const struct param *p)
{
    return p->rows * p->cols;
}

/* All parameters of a kind ("adamw", "muon") through ten steps; check(step). */
static void run(struct rig *r, const char *kind, void (*check)(struct rig *, int, const void *), const void *ctx)
{
    for (int i = 0; i < r->t.n; i++)
        memcpy(r->master + r->t.v[i].offset, get(r, "%s.init.%s", kind, r->t.v[i].name), (size_t)count(&r->t.v[i]) * 4);
    for (int s = 0; s < N_STEPS; s++) {
        for (int i = 0; i < r->t.n; i++) {
            int64_t n = count(&r->t.v[i]);
            memcpy(r->grads + r->t.v[i].offset, get(r, "%s.grad.%s", kind, r->t.v[i].name) + s * n, (size_t)n * 4);
        }
        assert_int_equal(optim_step(r->o, r->master, r->grads, s + 1, r->lr[s], 1), 0);
        if (s == 0 || s == N_STEPS - 1)
            check(r, s + 1, ctx);
    }
}

static void check_adamw(struct rig *r, int step, const void *ctx)
{
    struct optim_state st[2];

    (void)ctx;
    for (int i = 0; i < r->t.n; i++) {
        const struct param *p = &r->t.v[i];
        assert_true(worst(r->master + p->offset, get(r, step == 1 ? "adamw.step1.%s%s" : "adamw.step10.%s%s", p->name, ""), count(p)) < 1e-5);
        if (step == 1)
            continue;
        assert_int_equal(optim_states(r->o, i, st), 2);
        assert_true(worst(st[0].data, get(r, "adamw.exp_avg.%s%s", p->name, ""), count(p)) < 1e-5);
        assert_true(worst(st[1].data, get(r, "adamw.exp_avg_sq.%s%s", p->name, ""), count(p)) < 1e-5);
    }
}

static void adamw_on(const char *device)
{
    struct rig r;

    start(&r, device);
    add(&r, "matrix", PARAM_ADAMW, 7, 5, 1);
    add(&r, "vector", PARAM_ADAMW, 11, 1, 0);
    build(&r);
    run(&r, "adamw", check_adamw, NULL);
    finish(&r);
}

static void check_muon(struct rig *r, int step, const void *ctx)
{
    const char *mode = ctx;
    struct optim_state st[2];

    for (int i = 0; i < r->t.n; i++) {
        const struct param *p = &r->t.v[i];
        const float *x = r->master + p->offset, *init = get(r, "muon.init.%s%s", p->name, "");
        const char *at = step == 1 ? "step1" : "step10";
        char *tail = arena_printf(r->a, "%s.%s", at, p->name);
        double e = worst(x, get(r, "muon.%s.f64.%s", mode, tail), count(p));
        if (!(e < 1e-5))
            fail_msg("%s %s after %s: %.2g", mode, p->name, at, e);
        if (strcmp(p->name, "idle") == 0)
            continue;           /* moves by decay only, the same in both */
        e = move_distance(x, get(r, "muon.%s.bf16.%s", mode, tail), init, count(p));
        if (!(e < 3e-2))
            fail_msg("%s %s after %s: move differs by %.2g from torch in bf16", mode, p->name, at, e);
        if (step == N_STEPS) {
            assert_int_equal(optim_states(r->o, i, st), 1);
            assert_true(worst(st[0].data, get(r, "muon.momentum.%s%s", p->name, ""), count(p)) < 1e-5);
        }
    }
}

static void muon_on(const char *device)
{
    static const char *const modes[] = { "match_rms_adamw", "original", "plain" };

    for (int i = 0; i < 3; i++) {
        struct rig r;
        start(&r, device);
        r.c.muon_scale = i == 1 ? OPTIM_SCALE_ORIGINAL : OPTIM_SCALE_MATCH_RMS;
        r.c.muon_nesterov = i != 2;
        add(&r, "tall", PARAM_MUON, 24, 10, 1);
        add(&r, "wide", PARAM_MUON, 9, 26, 1);
        add(&r, "square", PARAM_MUON, 16, 16, 1);
        add(&r, "row", PARAM_MUON, 1, 13, 1);
        add(&r, "idle", PARAM_MUON, 6, 5, 1);
        build(&r);
        run(&r, "muon", check_muon, modes[i]);
        finish(&r);
    }
}

static void adamw_equals_torch(void **s) { (void)s; adamw_on("ref"); adamw_on("cpu"); }
static void muon_equals_torch(void **s) { (void)s; muon_on("ref"); muon_on("cpu"); }

/* split: head orthogonalises each head alone: rows of q, columns of o. */
static void split_heads_equal_separate_matrices(void **state)
{
    struct rig r, h;
    struct layer_params l = { .o = 1 };
    enum { D = 8, HEADS = 3, H = 10 };

    (void)state;
    start(&r, "cpu");
    start(&h, "cpu");
    r.m = (struct model_config){ .head_dim = D };
    r.c.muon_split = OPTIM_SPLIT_HEAD;
    add(&r, "q", PARAM_MUON, HEADS * D, H, 1);
    add(&r, "o", PARAM_MUON, H, HEADS * D, 1);
    r.t.v[0].kind = r.t.v[1].kind = PARAM_ATTN;
    r.t.v[0].layer = r.t.v[1].layer = 0;
    r.t.layers = &l;
    for (int i = 0; i < HEADS; i++)
        add(&h, "q", PARAM_MUON, D, H, 1);
    for (int i = 0; i < HEADS; i++)
        add(&h, "o", PARAM_MUON, H, D, 1);
    build(&r);
    build(&h);
    for (int64_t i = 0; i < HEADS * D * H; i++) {
        float g = (float)sin(0.37 * (double)(i + 1)), w = (float)cos(0.11 * (double)i);
        int64_t row = i / H, col = i % H;
        struct param *p = &h.t.v[row / D];
        r.master[r.t.v[0].offset + i] = h.master[p->offset + (row % D) * H + col] = w;
        r.grads[r.t.v[0].offset + i] = h.grads[p->offset + (row % D) * H + col] = g;
        row = i / (HEADS * D), col = i % (HEADS * D);
        p = &h.t.v[HEADS + col / D];
        r.master[r.t.v[1].offset + i] = h.master[p->offset + row * D + col % D] = w;
        r.grads[r.t.v[1].offset + i] = h.grads[p->offset + row * D + col % D] = g;
    }
    assert_int_equal(optim_step(r.o, r.master, r.grads, 1, 0.02, 0.5), 0);
    assert_int_equal(optim_step(h.o, h.master, h.grads, 1, 0.02, 0.5), 0);
    for (int64_t i = 0; i < HEADS * D * H; i++) {
        int64_t row = i / H, col = i % H;
        float want = h.master[h.t.v[row / D].offset + (row % D) * H + col];
        assert_true(fabsf(r.master[r.t.v[0].offset + i] - want) < 1e-6f);
        row = i / (HEADS * D), col = i % (HEADS * D);
        want = h.master[h.t.v[HEADS + col / D].offset + row * D + col % D];
        assert_true(fabsf(r.master[r.t.v[1].offset + i] - want) < 1e-6f);
    }
    finish(&r);
    finish(&h);
}

/* Singular values come out near 1: the ranges of notes on each set (exact
 * arithmetic, sigma in [7e-3, 1]), seen here through a matrix whose rows are
 * orthogonal with known lengths. */
static void every_coefficient_set_orthogonalises(void **state)
{
    static const double lo[] = { 0.67, 0.97, 0.86, 0.85, 0.98, 0.75 }, hi[] = { 1.14, 1.04, 1.13, 1.15, 1.02, 1.31 };
    enum { N = 12 };

    (void)state;
    for (int set = 0; set < 6; set++) {
        const struct ns_coef *c;
        int n = optim_ns_coefs(set, &c);
        for (double s = 0.0075; s <= 1; s *= 1.05) {
            double x = s;
            for (int i = 0; i < n; i++)
                x = c[i].a * x + c[i].b * x * x * x + c[i].c * x * x * x * x * x;
            if (!(x > lo[set] && x < hi[set]))
                fail_msg("set %d: %.4f -> %.4f", set, s, x);
        }
    }
}

static void schedules_meet_their_corners(void **state)
{
    struct optim_config c = { .schedule = SCHEDULE_WSD, .warmup = 10, .decay = 20, .final = 0.1 };

    (void)state;
    assert_true(fabs(optim_schedule(&c, 100, 0) - 0.1) < 1e-12);
    assert_true(optim_schedule(&c, 100, 9) == 1 && optim_schedule(&c, 100, 10) == 1 && optim_schedule(&c, 100, 79) == 1);
    assert_true(fabs(optim_schedule(&c, 100, 80) - (1 - 0.9 / 20)) < 1e-12);
    assert_true(fabs(optim_schedule(&c, 100, 99) - 0.1) < 1e-12);
    c.schedule = SCHEDULE_COSINE;
    assert_true(fabs(optim_schedule(&c, 100, 54) - 0.55) < 1e-12);
    assert_true(fabs(optim_schedule(&c, 100, 99) - 0.1) < 1e-12);
    c.schedule = SCHEDULE_LINEAR;
    assert_true(fabs(optim_schedule(&c, 100, 54) - 0.55) < 1e-12);
    c.schedule = SCHEDULE_CONSTANT;
    assert_true(optim_schedule(&c, 100, 99) == 1);
}

static void clipping_scales_only_long_gradients(void **state)
{
    struct optim_config c = { .clip_norm = 1 };
    _Bool clipped;

    (void)state;
    assert_true(optim_clip(&c, 0.5, &clipped) == 1 && !clipped);
    assert_true(fabs(optim_clip(&c, 4, &clipped) - 0.25) < 1e-6 && clipped);
    c.clip_norm = 0;
    assert_true(optim_clip(&c, 4, &clipped) == 1 && !clipped);
}

static void selection_bias_moves_towards_balance_and_stays_centred(void **state)
{
    float b[4] = { 0 };
    const int64_t counts[4] = { 10, 30, 20, 20 };

    (void)state;
    optim_bias_update(b, counts, 4, 0.01);
    assert_true(fabsf(b[0] - 0.01f) < 1e-8f && fabsf(b[1] + 0.01f) < 1e-8f && b[2] == 0 && b[3] == 0);
    const int64_t lonely[4] = { 80, 0, 0, 0 };
    optim_bias_update(b, lonely, 4, 0.01);
    assert_true(fabsf(b[0] + b[1] + b[2] + b[3]) < 1e-8f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_equals_torch),
        cmocka_unit_test(muon_equals_torch),
        cmocka_unit_test(split_heads_equal_separate_matrices),
        cmocka_unit_test(every_coefficient_set_orthogonalises),
        cmocka_unit_test(schedules_meet_their_corners),
        cmocka_unit_test(clipping_scales_only_long_gradients),
        cmocka_unit_test(selection_bias_moves_towards_balance_and_stays_centred),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
