/* test_ref_rows.c -- row-wise ops against finite differences. */
#include "refcheck.h"

#include <math.h>

struct ctx { struct mat x, w, y, dy, rstd, up, q; struct mat none; };

static double rmsnorm_loss(void *arg)
{
    struct ctx *k = arg;
    struct dev *d = refcheck_dev();

    d->ops->rmsnorm_fwd(d, k->y, k->rstd, k->x, k->w, 1e-3);
    return refcheck_dot(k->y, k->dy);
}

static void rmsnorm_gradients_match_differences(void **state)
{
    static const int64_t shapes[][2] = { { 0, 3 }, { 1, 1 }, { 3, 7 }, { 5, 4 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct dev *d = refcheck_dev();
        int64_t r = shapes[i][0], n = shapes[i][1];
        struct ctx k = { .x = refcheck_mat(r, n), .w = refcheck_mat(1, n), .y = refcheck_nan(r, n),
                         .dy = refcheck_mat(r, n), .rstd = refcheck_nan(r, 1) };
        struct mat dx = refcheck_nan(r, n), dw = refcheck_nan(1, n);
        rmsnorm_loss(&k);
        d->ops->rmsnorm_bwd(d, dx, 0, dw, 0, k.dy, k.x, k.w, k.rstd);
        refcheck_grad("dx", k.x, dx, rmsnorm_loss, &k);
        refcheck_grad("dw", k.w, dw, rmsnorm_loss, &k);
        /* beta 1 adds to what is there. */
        rmsnorm_loss(&k);
        d->ops->rmsnorm_bwd(d, dx, 1, dw, 1, k.dy, k.x, k.w, k.rstd);
        d->ops->scale(d, dx, 0.5);
        d->ops->scale(d, dw, 0.5);
        refcheck_grad("dx twice", k.x, dx, rmsnorm_loss, &k);
        refcheck_grad("dw twice", k.w, dw, rmsnorm_loss, &k);
        refcheck_done();
    }
}

static double bias_loss(void *arg)
{
    struct ctx *k = arg;
    struct dev *d = refcheck_dev();

    d->ops->cast(d, k->y, k->x);
    d->ops->bias_fwd(d, k->y, k->w);
    return refcheck_dot(k->y, k->dy);
}

static void bias_gradient_is_the_column_sum(void **state)
{
    struct dev *d = refcheck_dev();
    struct ctx k = { .x = refcheck_mat(5, 3), .w = refcheck_mat(1, 3), .y = refcheck_nan(5, 3), .dy = refcheck_mat(5, 3) };
    struct mat db = refcheck_nan(1, 3);

    (void)state;
    d->ops->bias_bwd(d, db, k.dy, 0);
    refcheck_grad("db", k.w, db, bias_loss, &k);
    refcheck_done();
}

static double swiglu_loss(void *arg)
{
    struct ctx *k = arg;
    struct dev *d = refcheck_dev();
    double sum = 0;

    /* sum_r w_r q_r . h_r: what w[r] (W_down h_r) gives for q = W_down^T dy */
    d->ops->swiglu_fwd(d, k->y, k->x, k->up);
    for (int64_t r = 0; r < k->x.rows; r++) {
        double dot = refcheck_dot(mat_rows(k->q, r, 1), mat_rows(k->y, r, 1));
        sum += (k->w.p ? *refcheck_at(k->w, r, 0) : 1) * dot;
    }
    return sum;
}

static void swiglu_gradients_match_differences(void **state)
{
    (void)state;
    for (int weighted = 0; weighted < 2; weighted++) {
        struct dev *d = refcheck_dev();
        struct ctx k = { .x = refcheck_mat(5, 7), .up = refcheck_mat(5, 7), .q = refcheck_mat(5, 7),
                         .y = refcheck_nan(5, 7) };
        struct mat dgate = refcheck_nan(5, 7), dup = refcheck_nan(5, 7), hw = refcheck_nan(5, 7), dw = refcheck_nan(5, 1);
        if (weighted)
            k.w = refcheck_mat(5, 1);
        d->ops->swiglu_bwd(d, dgate, dup, hw, dw, k.q, k.x, k.up, k.w);
        refcheck_grad("dgate", k.x, dgate, swiglu_loss, &k);
        refcheck_grad("dup", k.up, dup, swiglu_loss, &k);
        if (weighted)
            refcheck_grad("dw", k.w, dw, swiglu_loss, &k);
        swiglu_loss(&k);
        for (int64_t r = 0; r < 5; r++)
            for (int64_t c = 0; c < 7; c++)
                refcheck_near("hw", *refcheck_at(hw, r, c),
                              (weighted ? *refcheck_at(k.w, r, 0) : 1) * *refcheck_at(k.y, r, c), 1e-14);
        refcheck_done();
    }
}

static double sigmoid_loss(void *arg)
{
    struct ctx *k = arg;
    struct dev *d = refcheck_dev();

    d->ops->sigmoid_fwd(d, k->y, k->x);
    return refcheck_dot(k->y, k->dy);
}

static void sigmoid_gradient_matches_differences(void **state)
{
    struct dev *d = refcheck_dev();
    struct ctx k = { .x = refcheck_mat(3, 5), .y = refcheck_nan(3, 5), .dy = refcheck_mat(3, 5) };
    struct mat dx = refcheck_nan(3, 5);

    (void)state;
    sigmoid_loss(&k);
    d->ops->sigmoid_bwd(d, dx, k.dy, k.y);
    refcheck_grad("dx", k.x, dx, sigmoid_loss, &k);
    refcheck_done();
}

enum { HEADS = 2, DIM = 10, ROT = 6, TOKENS = 5, N_POS = 9 };

struct rope_ctx { struct mat x, y, dy, co, si; int32_t pos[TOKENS]; };

static void rotate(struct rope_ctx *k, struct mat x, _Bool inverse)
{
    struct dev *d = refcheck_dev();

    d->ops->rope(d, x, HEADS, DIM, ROT, k->co, k->si, k->pos, inverse);
}

static double rope_loss(void *arg)
{
    struct rope_ctx *k = arg;
    struct dev *d = refcheck_dev();

    d->ops->cast(d, k->y, k->x);
    rotate(k, k->y, 0);
    return refcheck_dot(k->y, k->dy);
}

static void rope_turns_half_split_pairs_and_back(void **state)
{
    struct dev *d = refcheck_dev();
    struct rope_ctx k = { .x = refcheck_mat(TOKENS, HEADS * DIM), .y = refcheck_nan(TOKENS, HEADS * DIM),
                          .dy = refcheck_mat(TOKENS, HEADS * DIM), .co = refcheck_zero(N_POS, ROT / 2),
                          .si = refcheck_zero(N_POS, ROT / 2), .pos = { 3, 0, 8, 1, 1 } };
    struct mat dx = refcheck_nan(TOKENS, HEADS * DIM);

    (void)state;
    for (int p = 0; p < N_POS; p++)
        for (int i = 0; i < ROT / 2; i++) {
            *refcheck_at(k.co, p, i) = cos(p * pow(10, -i));
            *refcheck_at(k.si, p, i) = sin(p * pow(10, -i));
        }
    rope_loss(&k);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < DIM; i++) {
                int at = h * DIM + i, pair = i < ROT / 2 ? at + ROT / 2 : at - ROT / 2, f = i % (ROT / 2);
                double co = *refcheck_at(k.co, k.pos[t], f), si = *refcheck_at(k.si, k.pos[t], f);
                double want = *refcheck_at(k.x, t, at);
                if (i < ROT)
                    want = want * co + (i < ROT / 2 ? -1 : 1) * *refcheck_at(k.x, t, pair) * si;
                refcheck_near("rotated", *refcheck_at(k.y, t, at), want, 1e-14);
            }
    rotate(&k, k.y, 1);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < HEADS * DIM; i++)
            refcheck_near("there and back", *refcheck_at(k.y, t, i), *refcheck_at(k.x, t, i), 1e-14);
    d->ops->cast(d, dx, k.dy);
    rotate(&k, dx, 1);
    refcheck_grad("dx", k.x, dx, rope_loss, &k);
    refcheck_done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_gradients_match_differences),
        cmocka_unit_test(bias_gradient_is_the_column_sum),
        cmocka_unit_test(swiglu_gradients_match_differences),
        cmocka_unit_test(sigmoid_gradient_matches_differences),
        cmocka_unit_test(rope_turns_half_split_pairs_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
