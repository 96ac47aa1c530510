/* test_ref_gemm.c -- products against the textbook loop, gradients against
 * finite differences, storage against its rounding rules. */
#include "refcheck.h"

#include <math.h>
#include <string.h>

static double entry(struct mat m, _Bool t, int64_t r, int64_t c)
{
    return t ? *refcheck_at(m, c, r) : *refcheck_at(m, r, c);
}

static void gemm_equals_the_triple_loop(void **state)
{
    static const int64_t shapes[][3] = { { 0, 3, 2 }, { 3, 0, 2 }, { 3, 2, 0 }, { 1, 1, 1 }, { 5, 7, 3 }, { 66, 65, 67 } };
    struct dev *d = refcheck_dev();

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 8; kind++) {
            int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
            _Bool ta = kind & 1, tb = kind & 2, beta = kind & 4;
            struct mat a = ta ? refcheck_mat(k, m) : refcheck_mat(m, k), b = tb ? refcheck_mat(n, k) : refcheck_mat(k, n);
            struct mat c = beta ? refcheck_mat(m, n) : refcheck_nan(m, n), old = refcheck_zero(m, n);
            d->ops->cast(d, old, c);
            d->ops->gemm(d, c, a, ta, b, tb, beta);
            for (int64_t r = 0; r < m; r++)
                for (int64_t j = 0; j < n; j++) {
                    double want = beta ? *refcheck_at(old, r, j) : 0;
                    for (int64_t l = 0; l < k; l++)
                        want += entry(a, ta, r, l) * entry(b, tb, l, j);
                    refcheck_near("gemm", *refcheck_at(c, r, j), want, 1e-12);
                }
        }
    refcheck_done();
}

enum { E = 4, OUT = 3, IN = 5 };

struct group_ctx { struct group g; struct mat x, y, dy; };

static double group_loss(void *arg)
{
    struct group_ctx *k = arg;
    struct dev *d = refcheck_dev();

    d->ops->group_fwd(d, &k->g, k->y, k->x);
    return refcheck_dot(k->y, k->dy);
}

/* Weights of an expert are contiguous, so they get matrices of their own. */
static struct mat tight(int64_t rows, int64_t cols)
{
    struct mat m = mat(refcheck_alloc((size_t)(rows * cols), sizeof(double)), DT_F64, rows, cols);

    for (int64_t i = 0; i < rows * cols; i++)
        ((double *)m.p)[i] = refcheck_draw();
    return m;
}

static void grouped_gradients_match_differences(void **state)
{
    static const int32_t offsets[E + 1] = { 0, 3, 3, 4, 9 };    /* expert 1 is empty */
    struct dev *d = refcheck_dev();
    struct mat w[E], dw[E], dx = refcheck_mat(9, IN), before = refcheck_zero(9, IN);
    void *wp[E], *dwp[E];
    struct group_ctx k = { .x = refcheck_mat(9, IN), .y = refcheck_nan(9, OUT), .dy = refcheck_mat(9, OUT) };
    struct group gd;

    (void)state;
    for (int e = 0; e < E; e++) {
        w[e] = tight(OUT, IN);
        dw[e] = tight(OUT, IN);
        wp[e] = w[e].p;
        dwp[e] = dw[e].p;
    }
    k.g = (struct group){ E, offsets, OUT, IN, wp, DT_F64 };
    gd = k.g;
    gd.w = dwp;
    d->ops->group_wgrad(d, &gd, k.dy, k.x, 0);
    for (int e = 0; e < E; e++)
        refcheck_grad("dw", w[e], dw[e], group_loss, &k);
    for (int i = 0; i < OUT * IN; i++)
        assert_true(((double *)dw[1].p)[i] == 0);       /* exactly */
    d->ops->cast(d, before, dx);
    d->ops->group_dgrad(d, &k.g, dx, k.dy, 1);
    d->ops->scale(d, before, -1);
    d->ops->add(d, dx, dx, before);
    refcheck_grad("dx", k.x, dx, group_loss, &k);
    refcheck_done();
}

static void rows_behind_the_last_expert_stay(void **state)
{
    static const int32_t offsets[2] = { 0, 2 };
    struct dev *d = refcheck_dev();
    struct mat w = tight(OUT, IN), x = refcheck_mat(4, IN), y = refcheck_nan(4, OUT);
    void *wp[1] = { w.p };
    struct group g = { 1, offsets, OUT, IN, wp, DT_F64 };

    (void)state;
    d->ops->group_fwd(d, &g, y, x);
    assert_true(isfinite(*refcheck_at(y, 1, OUT - 1)));
    assert_true(isnan(*refcheck_at(y, 2, 0)));
    refcheck_done();
}

static void storage_rounds_once_to_nearest_even(void **state)
{
    /* Just above half way between two bf16 values, by less than a float can
     * show: going through float would see a tie and round down. */
    static const double v[] = { 1.00390625 + 1e-12, 1.00390625, 1.01171875, -1.00390625 - 1e-12, 3.4e38, 1e-50 };
    static const float want[] = { 1.0078125f, 1.0f, 1.015625f, -1.0078125f, INFINITY, 0 };
    enum { N = sizeof v / sizeof *v };
    struct dev *d = refcheck_dev();
    double in[N];
    uint16_t out[N];

    (void)state;
    memcpy(in, v, sizeof in);
    d->ops->cast(d, mat(out, DT_BF16, 1, N), mat(in, DT_F64, 1, N));
    for (int i = 0; i < N; i++)
        assert_true(dtype_from_bf16(out[i]) == want[i]);
    refcheck_done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_equals_the_triple_loop),
        cmocka_unit_test(grouped_gradients_match_differences),
        cmocka_unit_test(rows_behind_the_last_expert_stay),
        cmocka_unit_test(storage_rounds_once_to_nearest_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
