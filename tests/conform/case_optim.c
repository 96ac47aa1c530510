/* case_optim.c -- norms and optimizer steps. */
#include <math.h>

#include "conform.h"

struct size { int64_t rows, cols; };

static const struct size sizes[] = { { 0, 5 }, { 1, 1 }, { 1, 300 }, { 5, 7 }, { 64, 64 }, { 65, 129 }, { 200, 33 } };

static void sumsq_case(struct conform *c, const void *arg)
{
    const struct size *s = arg;

    for (int exact = 0; exact < 2; exact++) {
        struct mat g = conform_in(c, DT_F32, s->rows, s->cols, 3, exact ? FILL_INT : FILL_UNIT);
        double *out = conform_alloc(c, 2, sizeof *out);
        out[0] = out[1] = 2;
        OP(c)->sumsq(conform_dev(c), &out[0], g);
        /* Row splits fall on block borders and change no bit. */
        if (s->rows > 64) {
            OP(c)->sumsq(conform_dev(c), &out[1], mat_rows(g, 0, 64));
            OP(c)->sumsq(conform_dev(c), &out[1], mat_rows(g, 64, s->rows - 64));
            conform_same(c, mat(&out[0], DT_F64, 1, 1), mat(&out[1], DT_F64, 1, 1), "sumsq in two calls");
        }
        conform_out_double(c, out, 2, 0, exact ? tol_exact() : tol_sum((double)(s->rows * s->cols), 1), "sumsq");
    }
}

static void adamw_case(struct conform *c, const void *arg)
{
    static const int64_t steps[] = { 1, 2, 1000 };
    const struct size *s = arg;

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct adamw a = {
            .w = conform_mat(c, DT_F32, s->rows, s->cols, 0, FILL_UNIT),
            .m = conform_mat(c, DT_F32, s->rows, s->cols, 0, FILL_UNIT),
            .v = conform_mat(c, DT_F32, s->rows, s->cols, 0, FILL_NAN),
            .g = conform_in(c, DT_F32, s->rows, s->cols, 3, FILL_AWAY),
            .g_scale = 0.5, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .t = steps[i],
        };
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t k = 0; k < s->cols; k++)
                conform_set(a.v, r, k, 0.1 + conform_draw(c));
        OP(c)->adamw(conform_dev(c), &a);
        /* The step is below lr * 10 * 5 = 0.5. */
        conform_out(c, a.w, tol(16, 1), "w at step %lld", (long long)steps[i]);
        conform_out(c, a.m, tol(8, 1), "m");
        conform_out(c, a.v, tol(8, 1), "v");
    }
}

/* No gradient and no history: only the decay acts, and nothing is NaN. */
static void adamw_zero_case(struct conform *c, const void *arg)
{
    struct mat g = conform_in(c, DT_F32, 3, 5, 0, FILL_UNIT), m = conform_mat(c, DT_F32, 3, 5, 0, FILL_UNIT);
    struct mat v = conform_mat(c, DT_F32, 3, 5, 0, FILL_UNIT), w = conform_mat(c, DT_F32, 3, 5, 0, FILL_UNIT);
    struct adamw a = { .w = w, .m = m, .v = v, .g = g, .g_scale = 1, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999,
                       .eps = 1e-8, .decay = 0.5, .t = 1 };

    (void)arg;
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < 5; k++) {
            conform_set(g, r, k, 0);
            conform_set(m, r, k, 0);
            conform_set(v, r, k, 0);
        }
    OP(c)->adamw(conform_dev(c), &a);
    conform_out(c, w, tol(4, 0), "w");
    conform_out(c, m, tol_exact(), "m");
}

static void muon_case(struct conform *c, const void *arg)
{
    const struct size *s = arg;

    for (int nesterov = 0; nesterov < 2; nesterov++) {
        struct mat m = conform_mat(c, DT_F32, s->rows, s->cols, 0, FILL_UNIT);
        struct mat g = conform_in(c, DT_F32, s->rows, s->cols, 3, FILL_UNIT);
        struct mat u = conform_mat(c, DT_F32, s->rows, s->cols, 1, FILL_NAN);
        struct mat w = conform_mat(c, DT_F32, s->rows, s->cols, 2, FILL_UNIT);
        struct mat m2 = conform_mat(c, DT_F32, s->rows, s->cols, 0, FILL_UNIT);
        struct mat g2 = conform_mat(c, DT_F32, s->rows, s->cols, 0, FILL_UNIT);
        OP(c)->muon_momentum(conform_dev(c), u, m, g, 0.4, 0.95, nesterov);
        OP(c)->muon_apply(conform_dev(c), w, g, 0.02, 3.2, 0.1);
        OP(c)->muon_momentum(conform_dev(c), g2, m2, g2, 1, 0.9, nesterov);
        conform_out(c, m, tol(4, 1), "momentum");
        conform_out(c, u, tol(8, 1), "update (nesterov %d)", nesterov);
        conform_out(c, w, tol(4, 1), "w");
        conform_out(c, g2, tol(8, 1), "update over the gradient (nesterov %d)", nesterov);
        conform_out(c, m2, tol(4, 1), "momentum with it");
    }
}

static const struct ns_coef jordan[] = {
    { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 },
    { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 },
};

/* Different coefficients in each step, and c = 0. */
static const struct ns_coef steps3[] = { { 4.0848, -6.8946, 2.9270 }, { 2.5, -1.5, 0 }, { 2.0, -1.5, 0.5 } };

static const struct size ns_sizes[] = {
    { 1, 1 }, { 1, 7 }, { 7, 1 }, { 5, 5 }, { 16, 40 }, { 40, 16 }, { 65, 33 }, { 31, 130 }, { 128, 128 }, { 96, 160 },
};

/* A small singular value grows by up to 3.4445^5 < 500, and the roundings of
 * products of `long side` terms grow with it. */
static double ns_limit(const struct size *s)
{
    return 500 * 4 * sqrt((double)(s->rows > s->cols ? s->rows : s->cols)) * 0x1p-24;
}

static void ns_case(struct conform *c, const void *arg)
{
    enum { N = 4 };
    const struct size *s = arg;
    struct mat x[N], alone = conform_mat(c, DT_F32, s->rows, s->cols, 5, FILL_NAN);

    for (int i = 0; i < N; i++)
        x[i] = conform_mat(c, DT_F32, s->rows, s->cols, i, FILL_UNIT);
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t k = 0; k < s->cols; k++) {
            float v = ((const float *)x[2].p)[r * x[2].ld + k];
            conform_set(alone, r, k, (double)v);
            conform_set(x[3], r, k, 0);
        }
    OP(c)->newton_schulz(conform_dev(c), x, N, jordan, 5, 1e-7);
    OP(c)->newton_schulz(conform_dev(c), &alone, 1, jordan, 5, 1e-7);
    conform_same(c, alone, x[2], "a matrix alone and in a batch");
    for (int i = 0; i < N - 1; i++)
        conform_out(c, x[i], tol_norm(ns_limit(s)), "matrix %d", i);
    conform_out(c, x[3], tol_exact(), "the zero matrix");
    alone = conform_mat(c, DT_F32, s->rows, s->cols, 0, FILL_UNIT);
    OP(c)->newton_schulz(conform_dev(c), &alone, 1, steps3, 3, 1e-7);
    conform_out(c, alone, tol_norm(ns_limit(s)), "with other coefficients");
    alone = conform_mat(c, DT_F32, s->rows, s->cols, 0, FILL_INT);
    OP(c)->newton_schulz(conform_dev(c), &alone, 1, jordan, 0, 1e3);
    conform_out(c, alone, tol_sum((double)(s->rows * s->cols), 0), "no steps, eps above the norm");
}

/* In bf16 every step rounds: as far from ref as torch's own is (below 3e-2). */
static void ns_bf16_case(struct conform *c, const void *arg)
{
    const struct size *s = arg;
    struct mat x;

    if (!conform_takes(c, DT_BF16))
        return;
    x = conform_mat(c, DT_BF16, s->rows, s->cols, 0, FILL_UNIT);
    OP(c)->newton_schulz(conform_dev(c), &x, 1, jordan, 5, 1e-7);
    conform_out(c, x, tol_norm(0.03), "x");
}

static void ns_none_case(struct conform *c, const void *arg)
{
    struct mat x = conform_mat(c, DT_F32, 0, 5, 0, FILL_UNIT);

    (void)arg;
    OP(c)->newton_schulz(conform_dev(c), NULL, 0, jordan, 5, 1e-7);
    OP(c)->newton_schulz(conform_dev(c), &x, 1, jordan, 5, 1e-7);
    conform_out(c, x, tol_exact(), "x");
}

void cases_optim(struct conform_list *l)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct size *s = &sizes[i];
        long long rows = s->rows, cols = s->cols;
        conform_add(l, sumsq_case, s, "optim sumsq %lldx%lld", rows, cols);
        conform_add(l, adamw_case, s, "optim adamw %lldx%lld", rows, cols);
        conform_add(l, muon_case, s, "optim muon %lldx%lld", rows, cols);
    }
    conform_add(l, adamw_zero_case, NULL, "optim adamw of zeros");
    for (size_t i = 0; i < sizeof ns_sizes / sizeof *ns_sizes; i++) {
        const struct size *s = &ns_sizes[i];
        conform_add(l, ns_case, s, "optim newton_schulz %lldx%lld", (long long)s->rows, (long long)s->cols);
        if (i % 3 == 1)
            conform_add(l, ns_bf16_case, s, "optim newton_schulz BF16 %lldx%lld", (long long)s->rows,
                        (long long)s->cols);
    }
    conform_add(l, ns_none_case, NULL, "optim newton_schulz of nothing");
}
