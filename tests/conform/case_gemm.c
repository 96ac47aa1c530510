/* case_gemm.c -- matrix products, whole and by expert. */
#include "conform.h"

struct shape { int64_t m, n, k; };

static const struct shape shapes[] = {
    { 0, 5, 3 }, { 5, 0, 3 }, { 5, 3, 0 }, { 1, 1, 1 }, { 1, 7, 5 }, { 7, 1, 5 }, { 3, 5, 1 }, { 17, 13, 11 },
    { 64, 64, 64 }, { 65, 63, 66 }, { 1, 256, 128 }, { 130, 257, 65 }, { 257, 31, 130 }, { 48, 96, 512 },
};

struct types { const char *name; enum dtype c, a, b; };

static const struct types types[] = {
    { "F32", DT_F32, DT_F32, DT_F32 },
    { "BF16", DT_BF16, DT_BF16, DT_BF16 },
    { "BF16 to F32", DT_F32, DT_BF16, DT_BF16 },
    { "mixed", DT_F32, DT_BF16, DT_F32 },
};

struct gemm_arg { const struct shape *s; const struct types *t; int pad; enum fill fill; };

static _Bool takes(struct conform *c, const struct types *t)
{
    return conform_takes(c, t->c) && conform_takes(c, t->a) && conform_takes(c, t->b);
}

static struct mat operand(struct conform *c, enum dtype dt, _Bool t, int64_t rows, int64_t cols, int pad,
                          enum fill fill)
{
    return t ? conform_in(c, dt, cols, rows, pad, fill) : conform_in(c, dt, rows, cols, pad, fill);
}

static void gemm_case(struct conform *c, const void *arg)
{
    const struct gemm_arg *g = arg;
    const struct shape *s = g->s;
    _Bool exact = g->fill == FILL_INT;

    if (!takes(c, g->t))
        return;
    for (int i = 0; i < 8; i++) {
        _Bool ta = i & 1, tb = (i >> 1) & 1, beta = (i >> 2) & 1;
        struct mat a = operand(c, g->t->a, ta, s->m, s->k, g->pad, g->fill);
        struct mat b = operand(c, g->t->b, tb, s->k, s->n, 2 * g->pad, g->fill);
        struct mat y = conform_mat(c, g->t->c, s->m, s->n, g->pad, beta ? g->fill : FILL_NAN);
        OP(c)->gemm(conform_dev(c), y, a, ta, b, tb, beta);
        conform_out(c, y, exact ? tol_exact() : tol_sum((double)s->k, 1), "c (ta %d, tb %d, beta %d)", ta, tb, beta);
    }
}

/* Rows of a, cut anywhere, give the rows of the whole.  Not to the bit: dev.h
 * leaves a CBLAS free to take another kernel for few rows.  The same rows in
 * another call must have the same bits, though. */
static void gemm_rows_case(struct conform *c, const void *arg)
{
    enum { M = 37, N = 70, K = 129 };
    static const struct { int first, n; } cuts[] = { { 0, 1 }, { 5, 1 }, { 36, 1 }, { 0, 20 }, { 20, 17 }, { 3, 8 } };
    const struct types *t = arg;

    if (!takes(c, t))
        return;
    for (int tb = 0; tb < 2; tb++) {
        struct mat a = conform_in(c, t->a, M, K, 3, FILL_UNIT), b = operand(c, t->b, tb, K, N, 0, FILL_UNIT);
        struct mat y = conform_mat(c, t->c, M, N, 0, FILL_NAN), again;
        OP(c)->gemm(conform_dev(c), y, a, 0, b, tb, 0);
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            struct mat part = conform_mat(c, t->c, cuts[i].n, N, 0, FILL_NAN);
            OP(c)->gemm(conform_dev(c), part, mat_rows(a, cuts[i].first, cuts[i].n), 0, b, tb, 0);
            conform_out(c, part, tol_sum(K, 1), "rows %d+%d (tb %d)", cuts[i].first, cuts[i].n, tb);
        }
        again = conform_mat(c, t->c, M, N, 5, FILL_NAN);
        OP(c)->gemm(conform_dev(c), again, a, 0, b, tb, 0);
        conform_same(c, y, again, "gemm (tb %d) again", tb);
        conform_out(c, y, tol_sum(K, 1), "c (tb %d)", tb);
    }
}

/* ---- by expert */

enum { E = 7, SPARE = 3 };      /* SPARE rows behind the last expert stay as they are */

struct group_arg { const char *name; const struct types *t; int64_t n_out, n_in; int rows[E]; enum fill fill; };

static const struct group_arg groups[] = {
    { "no rows", &types[0], 5, 3, { 0 }, FILL_UNIT },
    { "one row", &types[0], 5, 3, { 0, 0, 1 }, FILL_UNIT },
    { "empty first, middle, last", &types[0], 17, 29, { 0, 5, 1, 0, 13, 70, 0 }, FILL_UNIT },
    { "narrow", &types[0], 1, 1, { 3, 0, 2, 1, 1, 0, 9 }, FILL_UNIT },
    { "all to one", &types[0], 66, 130, { 0, 0, 0, 140, 0, 0, 0 }, FILL_UNIT },
    { "even", &types[0], 64, 128, { 32, 32, 32, 32, 32, 32, 32 }, FILL_UNIT },
    { "exact", &types[0], 31, 65, { 9, 0, 33, 1, 0, 2, 64 }, FILL_INT },
    { "BF16", &types[1], 33, 66, { 0, 5, 1, 0, 13, 70, 0 }, FILL_UNIT },
    { "BF16 exact", &types[1], 31, 65, { 9, 0, 33, 1, 0, 2, 64 }, FILL_INT },
};

/* Gradients of weights are F32, or F64 with F64. */
static void group_case(struct conform *c, const void *arg)
{
    const struct group_arg *g = arg;
    enum dtype dt = g->t->a;
    _Bool exact = g->fill == FILL_INT;
    int32_t *offsets;
    int most = 0;

    if (!takes(c, g->t))
        return;
    offsets = conform_alloc(c, E + 1, sizeof *offsets);
    for (int e = 0; e < E; e++) {
        offsets[e + 1] = offsets[e] + g->rows[e];
        most = g->rows[e] > most ? g->rows[e] : most;
    }
    for (int beta = 0; beta < 2; beta++) {
        int64_t rows = offsets[E] + SPARE;
        struct mat all = conform_in(c, dt, E * g->n_out, g->n_in, 0, g->fill);
        struct mat grad = conform_mat(c, DT_F32, E * g->n_out, g->n_in, 0, beta ? g->fill : FILL_NAN);
        struct mat x = conform_in(c, dt, rows, g->n_in, 3, g->fill), dy = conform_in(c, dt, rows, g->n_out, 1, g->fill);
        struct mat y = conform_mat(c, dt, rows, g->n_out, 2, FILL_INT);
        struct mat dx = conform_mat(c, dt, rows, g->n_in, 2, FILL_INT);
        struct mat one = conform_mat(c, dt, rows, g->n_out, 0, FILL_NAN);
        void **w = conform_alloc(c, E, sizeof *w), **dw = conform_alloc(c, E, sizeof *dw);
        struct group gw = { E, offsets, g->n_out, g->n_in, w, dt }, gd = { E, offsets, g->n_out, g->n_in, dw, DT_F32 };

        for (int e = 0; e < E; e++) {
            w[e] = mat_rows(all, e * g->n_out, g->n_out).p;
            dw[e] = mat_rows(grad, e * g->n_out, g->n_out).p;
        }
        OP(c)->group_fwd(conform_dev(c), &gw, y, x);
        OP(c)->group_dgrad(conform_dev(c), &gw, dx, dy, beta);
        OP(c)->group_wgrad(conform_dev(c), &gd, dy, x, beta);
        conform_out(c, y, exact ? tol_exact() : tol_sum((double)g->n_in, 1), "y");
        conform_out(c, dx, exact ? tol_exact() : tol_sum((double)g->n_out, 4), "dx (beta %d)", beta);
        conform_out(c, grad, exact ? tol_exact() : tol_sum(most, 1), "dw (beta %d)", beta);

        /* An expert alone has the bits it has among others; then its last row. */
        for (int e = 0; e < E; e++) {
            int32_t *solo = conform_alloc(c, 2, sizeof *solo);
            struct group gs = { 1, solo, g->n_out, g->n_in, w + e, dt };
            struct mat part = mat_rows(one, offsets[e], g->rows[e]);
            solo[1] = g->rows[e];
            OP(c)->group_fwd(conform_dev(c), &gs, part, mat_rows(x, offsets[e], g->rows[e]));
            conform_same(c, mat_rows(y, offsets[e], g->rows[e]), part, "expert %d alone", e);
            if (!g->rows[e])
                continue;
            solo = conform_alloc(c, 2, sizeof *solo);
            gs.offsets = solo;
            solo[1] = 1;
            part = conform_mat(c, dt, 1, g->n_out, 0, FILL_NAN);
            OP(c)->group_fwd(conform_dev(c), &gs, part, mat_rows(x, offsets[e + 1] - 1, 1));
            conform_out(c, part, exact ? tol_exact() : tol_sum((double)g->n_in, 1), "a row of expert %d alone", e);
        }
    }
}

void cases_gemm(struct conform_list *l)
{
    enum { N_SHAPES = sizeof shapes / sizeof *shapes };
    static struct gemm_arg args[N_SHAPES * 12];
    int n = 0;

    for (int i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < 4; t++)
            for (int exact = 0; exact < 2; exact++) {
                const struct shape *s = &shapes[i];
                struct gemm_arg *a = &args[n];
                if (t == 3 && (exact || i % 3))
                    continue;
                n++;
                *a = (struct gemm_arg){ s, &types[t], i % 2 ? 3 : 0, exact ? FILL_INT : FILL_UNIT };
                conform_add(l, gemm_case, a, "gemm %s%s %lldx%lldx%lld%s", types[t].name, exact ? " exact" : "",
                            (long long)s->m, (long long)s->n, (long long)s->k, a->pad ? " strided" : "");
            }
    for (int t = 0; t < 3; t++)
        conform_add(l, gemm_rows_case, &types[t], "gemm rows by themselves %s", types[t].name);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        conform_add(l, group_case, &groups[i], "group %s", groups[i].name);
}
