/* test_ref_optim.c -- optimizer ops against their formulas, written out. */
#include "refcheck.h"

#include <math.h>
#include <string.h>

static void adamw_follows_the_formula(void **state)
{
    struct dev *d = refcheck_dev();
    struct mat w = refcheck_mat(3, 5), m = refcheck_zero(3, 5), v = refcheck_zero(3, 5);
    double w0 = *refcheck_at(w, 1, 2), m0 = 0, v0 = 0;

    (void)state;
    for (int t = 1; t <= 10; t++) {
        struct mat g = refcheck_mat(3, 5);
        struct adamw a = { .w = w, .m = m, .v = v, .g = g, .g_scale = 0.6, .lr = 0.02, .beta1 = 0.9, .beta2 = 0.95,
                           .eps = 1e-8, .decay = 0.1, .t = t };
        double g0 = 0.6 * *refcheck_at(g, 1, 2);
        d->ops->adamw(d, &a);
        m0 = 0.9 * m0 + 0.1 * g0;
        v0 = 0.95 * v0 + 0.05 * g0 * g0;
        w0 = w0 - 0.02 * 0.1 * w0 - 0.02 * (m0 / (1 - pow(0.9, t))) / (sqrt(v0 / (1 - pow(0.95, t))) + 1e-8);
        refcheck_near("w", *refcheck_at(w, 1, 2), w0, 1e-12);
        refcheck_near("m", *refcheck_at(m, 1, 2), m0, 1e-14);
        refcheck_near("v", *refcheck_at(v, 1, 2), v0, 1e-14);
    }
    refcheck_done();
}

static void momentum_is_an_average_with_nesterov_on_top(void **state)
{
    (void)state;
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        struct dev *d = refcheck_dev();
        struct mat u = refcheck_nan(4, 3), m = refcheck_mat(4, 3), g = refcheck_mat(4, 3), w = refcheck_mat(4, 3);
        double m0 = *refcheck_at(m, 2, 1), g0 = 0.5 * *refcheck_at(g, 2, 1), w0 = *refcheck_at(w, 2, 1), u0;
        d->ops->muon_momentum(d, u, m, g, 0.5, 0.95, nesterov);
        m0 = 0.95 * m0 + 0.05 * g0;
        u0 = nesterov ? 0.05 * g0 + 0.95 * m0 : m0;
        refcheck_near("m", *refcheck_at(m, 2, 1), m0, 1e-15);
        refcheck_near("u", *refcheck_at(u, 2, 1), u0, 1e-15);
        d->ops->muon_apply(d, w, u, 0.01, 3, 0.1);
        refcheck_near("w", *refcheck_at(w, 2, 1), w0 * (1 - 0.01 * 0.1) - 0.01 * 3 * u0, 1e-15);
        refcheck_done();
    }
}

enum { MAX = 24 };

/* x <- a x + (b g + c g^2) x with g = x x^T, from plain triple loops, on the
 * matrix as it stands when it is wide and on its transpose when it is tall. */
static void plain_newton_schulz(double *x, int s, int l, const struct ns_coef *coef, int n, double eps)
{
    static double g[MAX][MAX], p[MAX][MAX], y[MAX * MAX];
    double norm = 0;

    for (int i = 0; i < s * l; i++)
        norm += x[i] * x[i];
    norm = fmax(sqrt(norm), eps);
    for (int i = 0; i < s * l; i++)
        x[i] /= norm;
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < s; i++)
            for (int j = 0; j < s; j++) {
                g[i][j] = 0;
                for (int c = 0; c < l; c++)
                    g[i][j] += x[i * l + c] * x[j * l + c];
            }
        for (int i = 0; i < s; i++)
            for (int j = 0; j < s; j++) {
                double sq = 0;
                for (int c = 0; c < s; c++)
                    sq += g[i][c] * g[c][j];
                p[i][j] = coef[k].b * g[i][j] + coef[k].c * sq;
            }
        for (int i = 0; i < s; i++)
            for (int c = 0; c < l; c++) {
                y[i * l + c] = coef[k].a * x[i * l + c];
                for (int j = 0; j < s; j++)
                    y[i * l + c] += p[i][j] * x[j * l + c];
            }
        memcpy(x, y, (size_t)(s * l) * sizeof *x);
    }
}

static const struct ns_coef coef[] = {
    { 4.0848, -6.8946, 2.9270 }, { 3.9505, -6.3029, 2.6377 }, { 3.7418, -5.5913, 2.3037 },
    { 2.8769, -3.1427, 1.2046 }, { 2.8366, -3.0525, 1.2012 },
};

static void newton_schulz_equals_the_plain_formula(void **state)
{
    static const int shapes[][2] = { { 1, 1 }, { 1, 6 }, { 6, 1 }, { 5, 5 }, { 7, 19 }, { 24, 11 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct dev *d = refcheck_dev();
        int rows = shapes[i][0], cols = shapes[i][1], s = rows < cols ? rows : cols, l = rows < cols ? cols : rows;
        struct mat x[2] = { refcheck_mat(rows, cols), refcheck_zero(rows, cols) };
        double want[MAX * MAX];
        for (int r = 0; r < s; r++)
            for (int c = 0; c < l; c++)
                want[r * l + c] = rows > cols ? *refcheck_at(x[0], c, r) : *refcheck_at(x[0], r, c);
        plain_newton_schulz(want, s, l, coef, 5, 1e-7);
        d->ops->newton_schulz(d, x, 2, coef, 5, 1e-7);
        for (int r = 0; r < s; r++)
            for (int c = 0; c < l; c++) {
                refcheck_near("x", rows > cols ? *refcheck_at(x[0], c, r) : *refcheck_at(x[0], r, c),
                              want[r * l + c], 1e-10);
                assert_true((rows > cols ? *refcheck_at(x[1], c, r) : *refcheck_at(x[1], r, c)) == 0);
            }
        refcheck_done();
    }
}

/* What it is for: all singular values near 1, so x x^T is near the identity. */
static void newton_schulz_orthogonalises(void **state)
{
    struct dev *d = refcheck_dev();
    struct mat x = refcheck_mat(6, 20), g = refcheck_nan(6, 6);

    (void)state;
    d->ops->newton_schulz(d, &x, 1, coef, 5, 1e-7);
    d->ops->gemm(d, g, x, 0, x, 1, 0);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            refcheck_near("x x^T", *refcheck_at(g, i, j), i == j, 0.07);
    refcheck_done();
}

static void sums_add_up_in_blocks(void **state)
{
    struct dev *d = refcheck_dev();
    struct mat g = refcheck_mat(150, 3);
    double whole = 0, parts = 0, want = 0, x[3] = { 1, 2, 3 }, total = 4;

    (void)state;
    for (int64_t r = 0; r < 150; r++)
        for (int64_t c = 0; c < 3; c++)
            want += *refcheck_at(g, r, c) * *refcheck_at(g, r, c);
    d->ops->sumsq(d, &whole, g);
    d->ops->sumsq(d, &parts, mat_rows(g, 0, 64));
    d->ops->sumsq(d, &parts, mat_rows(g, 64, 64));
    d->ops->sumsq(d, &parts, mat_rows(g, 128, 22));
    refcheck_near("sum of squares", whole, want, 1e-11);
    assert_true(whole == parts);        /* bit for bit: splits fall on block borders */
    d->ops->sum(d, &total, x, 3);
    assert_true(total == 10);
    refcheck_done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_follows_the_formula),
        cmocka_unit_test(momentum_is_an_average_with_nesterov_on_top),
        cmocka_unit_test(newton_schulz_equals_the_plain_formula),
        cmocka_unit_test(newton_schulz_orthogonalises),
        cmocka_unit_test(sums_add_up_in_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
