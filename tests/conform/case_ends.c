/* case_ends.c -- embedding, cross entropy, sums. */
#include "conform.h"

struct ends_arg { int64_t n, vocab, width; enum dtype dt; };

static const struct ends_arg cases[] = {
    { 0, 5, 3, DT_F32 }, { 1, 1, 1, DT_F32 }, { 7, 3, 5, DT_F32 }, { 65, 31, 257, DT_F32 }, { 33, 1031, 64, DT_F32 },
    { 130, 509, 33, DT_F32 }, { 300, 2, 16, DT_F32 }, { 65, 31, 64, DT_BF16 },
};

static void embed_case(struct conform *c, const void *arg)
{
    const struct ends_arg *a = arg;
    int32_t *ids;

    if (!conform_takes(c, a->dt))
        return;
    ids = conform_alloc(c, (size_t)a->n, sizeof *ids);
    for (int64_t t = 0; t < a->n; t++)
        ids[t] = conform_draw_int(c, 0, (int)a->vocab - 1);
    for (int exact = 0; exact < 2; exact++)
        for (int beta = 0; beta < 2; beta++) {
            enum fill fill = exact ? FILL_INT : FILL_UNIT;
            struct mat table = conform_in(c, a->dt, a->vocab, a->width, 0, fill);
            struct mat y = conform_mat(c, a->dt, a->n, a->width, 3, FILL_NAN);
            struct mat dy = conform_in(c, a->dt, a->n, a->width, 1, fill);
            struct mat dt = conform_mat(c, DT_F32, a->vocab, a->width, 2, beta ? fill : FILL_NAN);
            OP(c)->embed_fwd(conform_dev(c), y, table, ids);
            OP(c)->embed_bwd(conform_dev(c), dt, dy, ids, beta);
            conform_out(c, y, tol_exact(), "y");
            conform_out(c, dt, exact ? tol_exact() : tol_sum((double)a->n, 1), "dtable (beta %d)", beta);
        }
}

static void xent_case(struct conform *c, const void *arg)
{
    static const enum fill fills[] = { FILL_UNIT, FILL_WIDE };
    const struct ends_arg *a = arg;
    int32_t *targets;

    if (!conform_takes(c, a->dt))
        return;
    targets = conform_alloc(c, (size_t)a->n, sizeof *targets);
    for (int64_t t = 0; t < a->n; t++)
        targets[t] = conform_draw_int(c, -1, (int)a->vocab - 1);
    for (int wide = 0; wide < 2; wide++)
        for (int grad = 0; grad < 2; grad++) {
            struct mat logits = conform_mat(c, a->dt, a->n, a->vocab, 3, fills[wide]);
            double *nll = conform_alloc(c, (size_t)a->n, sizeof *nll);
            OP(c)->xent(conform_dev(c), nll, logits, targets, 0.7, grad);
            /* x - max of up to 200 is rounded before exp: 200 u relative. */
            conform_out_double(c, nll, a->n, 1, tol_sum((double)a->vocab + 16, wide ? 100 : 1), "nll");
            if (grad)
                conform_out(c, logits, tol_sum((double)a->vocab + (wide ? 400 : 16), 1), "dlogits");
            else
                conform_out(c, logits, tol_exact(), "logits untouched");
        }
}

static void sum_case(struct conform *c, const void *arg)
{
    static const int64_t counts[] = { 0, 1, 2, 4095, 4096, 4097, 10000 };

    (void)arg;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        double *x = conform_alloc(c, (size_t)counts[i], sizeof *x), *out = conform_alloc(c, 2, sizeof *out);
        for (int64_t k = 0; k < counts[i]; k++)
            x[k] = conform_draw(c) - 0.3;
        out[0] = out[1] = 0.1;
        OP(c)->sum(conform_dev(c), &out[0], x, counts[i]);
        /* Two calls that meet at a block border give the bits of one. */
        if (counts[i] > 4096) {
            OP(c)->sum(conform_dev(c), &out[1], x, 4096);
            OP(c)->sum(conform_dev(c), &out[1], x + 4096, counts[i] - 4096);
            conform_same(c, mat(&out[0], DT_F64, 1, 1), mat(&out[1], DT_F64, 1, 1), "sum in two calls");
        }
        conform_out_double(c, out, 2, 0, tol_sum((double)counts[i], 1), "sum");
        for (int64_t k = 0; k < counts[i]; k++)
            x[k] = conform_draw_int(c, -9, 9);
        out[0] = 1;
        OP(c)->sum(conform_dev(c), &out[0], x, counts[i]);
        conform_out_double(c, out, 1, 0, tol_exact(), "sum of integers");
    }
}

void cases_ends(struct conform_list *l)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ends_arg *a = &cases[i];
        conform_add(l, embed_case, a, "ends embed %s %lld of %lldx%lld", dtype_name(a->dt), (long long)a->n,
                    (long long)a->vocab, (long long)a->width);
        conform_add(l, xent_case, a, "ends xent %s %lldx%lld", dtype_name(a->dt), (long long)a->n, (long long)a->vocab);
    }
    conform_add(l, sum_case, NULL, "ends sum");
}
