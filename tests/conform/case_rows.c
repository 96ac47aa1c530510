/* case_rows.c -- norms, biases, rotary positions, gates. */
#include <math.h>

#include "conform.h"

struct size { int64_t rows, cols; enum dtype dt; };

static const struct size sizes[] = {
    { 0, 5, DT_F32 }, { 1, 1, DT_F32 }, { 1, 64, DT_F32 }, { 3, 7, DT_F32 }, { 33, 64, DT_F32 }, { 65, 257, DT_F32 },
    { 130, 31, DT_F32 }, { 5, 1031, DT_F32 }, { 300, 128, DT_F32 },
    { 0, 5, DT_BF16 }, { 3, 7, DT_BF16 }, { 65, 257, DT_BF16 }, { 130, 64, DT_BF16 },
};

/* A gradient of a vector is F32 whatever the activations are. */
static void rmsnorm_case(struct conform *c, const void *arg)
{
    const struct size *s = arg;
    double k = (double)s->cols;

    if (!conform_takes(c, s->dt))
        return;
    for (int beta = 0; beta < 2; beta++) {
        struct mat x = conform_in(c, s->dt, s->rows, s->cols, 3, FILL_AWAY);
        struct mat dy = conform_in(c, s->dt, s->rows, s->cols, 1, FILL_UNIT);
        struct mat w = conform_in(c, DT_F32, 1, s->cols, 0, FILL_UNIT);
        struct mat y = conform_mat(c, s->dt, s->rows, s->cols, 2, FILL_NAN);
        struct mat rstd = conform_mat(c, DT_F32, s->rows, 1, 0, FILL_NAN);
        struct mat given = conform_in(c, DT_F32, s->rows, 1, 0, FILL_UNIT);
        struct mat dx = conform_mat(c, s->dt, s->rows, s->cols, 0, beta ? FILL_UNIT : FILL_NAN);
        struct mat dw = conform_mat(c, DT_F32, 1, s->cols, 0, beta ? FILL_UNIT : FILL_NAN);

        for (int64_t r = 0; r < s->rows; r++)
            conform_set(given, r, 0, 0.7 + 0.5 * conform_draw(c));
        OP(c)->rmsnorm_fwd(conform_dev(c), y, rstd, x, w, 1e-6);
        /* |x| < 1.5 and rstd <= 2; the terms of dx are below 2 (1 + 3 * 3). */
        OP(c)->rmsnorm_bwd(conform_dev(c), dx, beta, dw, beta, dy, x, w, given);
        conform_out(c, y, tol_sum(k, 0), "y");
        conform_out(c, rstd, tol_sum(k, 0), "rstd");
        conform_out(c, dx, tol_sum(k, 20), "dx (beta %d)", beta);
        conform_out(c, dw, tol_sum((double)s->rows, 3), "dw (beta %d)", beta);

        /* A row alone. */
        if (s->rows) {
            struct mat ya = conform_mat(c, s->dt, 1, s->cols, 0, FILL_NAN);
            struct mat ra = conform_mat(c, DT_F32, 1, 1, 0, FILL_NAN);
            OP(c)->rmsnorm_fwd(conform_dev(c), ya, ra, mat_rows(x, s->rows - 1, 1), w, 1e-6);
            conform_same(c, ya, mat_rows(y, s->rows - 1, 1), "last row alone");
        }
    }
}

/* A row of zeros: rstd is 1/sqrt(eps), y and nothing else is 0. */
static void rmsnorm_zero_case(struct conform *c, const void *arg)
{
    struct mat x = conform_in(c, DT_F32, 2, 40, 0, FILL_UNIT), w = conform_in(c, DT_F32, 1, 40, 0, FILL_UNIT);
    struct mat y = conform_mat(c, DT_F32, 2, 40, 0, FILL_NAN), rstd = conform_mat(c, DT_F32, 2, 1, 0, FILL_NAN);

    (void)arg;
    for (int i = 0; i < 40; i++)
        conform_set(x, 0, i, 0);
    OP(c)->rmsnorm_fwd(conform_dev(c), y, rstd, x, w, 1e-5);
    conform_out(c, y, tol_sum(40, 0), "y");
    conform_out(c, rstd, tol_sum(40, 0), "rstd");
}

static void bias_case(struct conform *c, const void *arg)
{
    const struct size *s = arg;

    if (!conform_takes(c, s->dt))
        return;
    for (int exact = 0; exact < 2; exact++)
        for (int beta = 0; beta < 2; beta++) {
            enum fill fill = exact ? FILL_INT : FILL_UNIT;
            struct mat b = conform_in(c, DT_F32, 1, s->cols, 0, fill);
            struct mat y = conform_mat(c, s->dt, s->rows, s->cols, 1, fill);
            struct mat dy = conform_in(c, s->dt, s->rows, s->cols, 2, fill);
            struct mat db = conform_mat(c, DT_F32, 1, s->cols, 0, beta ? fill : FILL_NAN);
            OP(c)->bias_fwd(conform_dev(c), y, b);
            OP(c)->bias_bwd(conform_dev(c), db, dy, beta);
            conform_out(c, y, exact ? tol_exact() : tol(1, 0), "y");
            conform_out(c, db, exact ? tol_exact() : tol_sum((double)s->rows, 1), "db (beta %d)", beta);
        }
}

static void gates_case(struct conform *c, const void *arg)
{
    static const enum fill fills[] = { FILL_UNIT, FILL_WIDE };
    const struct size *s = arg;

    if (!conform_takes(c, s->dt))
        return;
    for (int i = 0; i < 2; i++) {
        double big = i ? 100 : 1;
        struct mat gate = conform_in(c, s->dt, s->rows, s->cols, 3, fills[i]);
        struct mat up = conform_in(c, s->dt, s->rows, s->cols, 0, FILL_UNIT);
        struct mat q = conform_in(c, s->dt, s->rows, s->cols, 1, FILL_UNIT);
        struct mat w = conform_in(c, DT_F32, s->rows, 1, 0, FILL_UNIT), dw = conform_mat(c, DT_F32, s->rows, 1, 0, FILL_NAN);
        struct mat h = conform_mat(c, s->dt, s->rows, s->cols, 2, FILL_NAN);
        struct mat dgate = conform_mat(c, s->dt, s->rows, s->cols, 0, FILL_NAN);
        struct mat dup = conform_mat(c, s->dt, s->rows, s->cols, 1, FILL_NAN);
        struct mat hw = conform_mat(c, s->dt, s->rows, s->cols, 0, FILL_NAN);
        struct mat y = conform_mat(c, s->dt, s->rows, s->cols, 0, FILL_NAN);
        struct mat dx = conform_mat(c, s->dt, s->rows, s->cols, 0, FILL_NAN);
        struct mat none = { .p = NULL };

        OP(c)->swiglu_fwd(conform_dev(c), h, gate, up);
        conform_out(c, h, tol(16, 0x1p-100), "h");
        OP(c)->swiglu_bwd(conform_dev(c), dgate, dup, hw, dw, q, gate, up, w);
        /* dgate = dh up s (1 + g (1 - s)): the bracket is a difference when g < 0. */
        conform_out(c, dgate, tol(16, 1 + big / 50), "dgate");
        conform_out(c, dup, tol(16, 0x1p-100), "dup");
        conform_out(c, hw, tol(16, 0x1p-100), "hw");
        conform_out(c, dw, tol_sum((double)s->cols + 16, big), "dw");

        dgate = conform_mat(c, s->dt, s->rows, s->cols, 0, FILL_NAN);
        dup = conform_mat(c, s->dt, s->rows, s->cols, 1, FILL_NAN);
        hw = conform_mat(c, s->dt, s->rows, s->cols, 0, FILL_NAN);
        OP(c)->swiglu_bwd(conform_dev(c), dgate, dup, hw, none, q, gate, up, none);
        conform_out(c, dgate, tol(16, 1 + big / 50), "dgate without w");
        conform_out(c, dup, tol(16, 0x1p-100), "dup without w");
        conform_out(c, hw, tol(16, 0x1p-100), "hw without w");

        OP(c)->sigmoid_fwd(conform_dev(c), y, gate);
        OP(c)->sigmoid_bwd(conform_dev(c), dx, q, up);
        conform_out(c, y, tol(16, 0x1p-100), "sigmoid");
        conform_out(c, dx, tol(8, 1), "d sigmoid");
    }
}

/* The aliases that the contract allows give the bits of separate memory. */
static void swiglu_alias_case(struct conform *c, const void *arg)
{
    enum { R = 19, C = 131 };
    struct mat gate = conform_mat(c, DT_F32, R, C, 2, FILL_UNIT), up = conform_mat(c, DT_F32, R, C, 0, FILL_UNIT);
    struct mat q = conform_mat(c, DT_F32, R, C, 1, FILL_UNIT), w = conform_in(c, DT_F32, R, 1, 0, FILL_UNIT);
    struct mat dw = conform_mat(c, DT_F32, R, 1, 0, FILL_NAN), dw2 = conform_mat(c, DT_F32, R, 1, 0, FILL_NAN);
    struct mat dgate = conform_mat(c, DT_F32, R, C, 0, FILL_NAN), dup = conform_mat(c, DT_F32, R, C, 0, FILL_NAN);
    struct mat hw = conform_mat(c, DT_F32, R, C, 0, FILL_NAN);

    (void)arg;
    OP(c)->swiglu_bwd(conform_dev(c), dgate, dup, hw, dw, q, gate, up, w);
    OP(c)->swiglu_bwd(conform_dev(c), gate, up, q, dw2, q, gate, up, w);
    conform_same(c, gate, dgate, "dgate over gate");
    conform_same(c, up, dup, "dup over up");
    conform_same(c, q, hw, "hw over q");
    conform_same(c, dw, dw2, "dw");
}

struct rope_arg { int64_t rows; int heads, dim, rot; enum dtype dt; };

static const struct rope_arg ropes[] = {
    { 0, 2, 8, 8, DT_F32 }, { 1, 1, 2, 2, DT_F32 }, { 7, 3, 6, 6, DT_F32 }, { 33, 4, 64, 64, DT_F32 },
    { 65, 5, 64, 32, DT_F32 }, { 9, 2, 10, 0, DT_F32 }, { 9, 3, 22, 6, DT_F32 }, { 40, 2, 128, 128, DT_F32 },
    { 33, 4, 64, 32, DT_BF16 },
};

static void rope_case(struct conform *c, const void *arg)
{
    enum { N_POS = 50 };
    const struct rope_arg *a = arg;
    struct mat co, si;
    int32_t *pos;

    if (!conform_takes(c, a->dt))
        return;
    co = conform_in(c, DT_F32, N_POS, a->rot / 2, 0, FILL_UNIT);
    si = conform_in(c, DT_F32, N_POS, a->rot / 2, 0, FILL_UNIT);
    pos = conform_alloc(c, (size_t)a->rows, sizeof *pos);
    for (int64_t t = 0; t < a->rows; t++)
        pos[t] = conform_draw_int(c, 0, N_POS - 1);
    for (int t = 0; t < N_POS; t++)
        for (int i = 0; i < a->rot / 2; i++) {
            conform_set(co, t, i, cos(t * pow(100, -i / 8.0)));
            conform_set(si, t, i, sin(t * pow(100, -i / 8.0)));
        }
    for (int inverse = 0; inverse < 2; inverse++) {
        struct mat x = conform_mat(c, a->dt, a->rows, a->heads * a->dim, 3, FILL_UNIT);
        OP(c)->rope(conform_dev(c), x, a->heads, a->dim, a->rot, co, si, pos, inverse);
        conform_out(c, x, tol(3, 2), "x (inverse %d)", inverse);
    }
}

void cases_rows(struct conform_list *l)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct size *s = &sizes[i];
        long long rows = s->rows, cols = s->cols;
        conform_add(l, rmsnorm_case, s, "rmsnorm %s %lldx%lld", dtype_name(s->dt), rows, cols);
        conform_add(l, bias_case, s, "bias %s %lldx%lld", dtype_name(s->dt), rows, cols);
        conform_add(l, gates_case, s, "gates %s %lldx%lld", dtype_name(s->dt), rows, cols);
    }
    conform_add(l, rmsnorm_zero_case, NULL, "rmsnorm of zeros");
    conform_add(l, swiglu_alias_case, NULL, "gates swiglu_bwd in place");
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++)
        conform_add(l, rope_case, &ropes[i], "rope %s %lld tokens %d heads of %d, %d turn", dtype_name(ropes[i].dt),
                    (long long)ropes[i].rows, ropes[i].heads, ropes[i].dim, ropes[i].rot);
}
