/* case_attn.c -- attention inside documents. */
#include <math.h>

#include "conform.h"

struct attn_arg {
    const char *name;
    int64_t nq, nk;
    int heads, kv_heads, dim;
    int docs[5];                /* first key of each document; 0 ends the list after the first */
    enum dtype dt;
    double sharp;               /* factor on the usual scale */
};

static const struct attn_arg cases[] = {
    { "nothing", 0, 0, 2, 1, 8, { 0 }, DT_F32, 1 },
    { "one token", 1, 1, 2, 2, 8, { 0 }, DT_F32, 1 },
    { "two tokens, width 1", 2, 2, 1, 1, 1, { 0 }, DT_F32, 1 },
    { "odd sizes", 7, 7, 3, 1, 5, { 0 }, DT_F32, 1 },
    { "two documents", 33, 33, 4, 2, 16, { 0, 20 }, DT_F32, 1 },
    { "documents of one token", 9, 9, 2, 2, 8, { 0, 1, 2, 8 }, DT_F32, 1 },
    { "kv ratio 8", 65, 65, 8, 1, 24, { 0, 64 }, DT_F32, 1 },
    { "longer than a tile", 193, 193, 2, 1, 64, { 0, 3, 130 }, DT_F32, 1 },
    { "wide heads", 70, 70, 2, 2, 128, { 0 }, DT_F32, 1 },
    { "sharp", 65, 65, 2, 1, 32, { 0, 31 }, DT_F32, 40 },
    { "decode one", 1, 77, 4, 2, 16, { 0 }, DT_F32, 1 },
    { "decode a block", 13, 150, 4, 1, 16, { 0 }, DT_F32, 1 },
    { "BF16", 70, 70, 4, 2, 32, { 0, 40 }, DT_BF16, 1 },
};

static const int32_t *starts(struct conform *c, const struct attn_arg *a)
{
    int32_t *s = conform_alloc(c, (size_t)a->nq, sizeof *s);

    for (int64_t i = 0; i < a->nq; i++)
        for (int d = 1; d < 5 && a->docs[d] && a->docs[d] <= a->nk - a->nq + i; d++)
            s[i] = a->docs[d];
    return s;
}

static void attn_case(struct conform *c, const void *arg)
{
    const struct attn_arg *k = arg;
    int64_t qc = (int64_t)k->heads * k->dim, kc = (int64_t)k->kv_heads * k->dim;
    double root = sqrt((double)k->dim), nk = (double)k->nk, keys, sizes, grads;
    struct attn a, b;

    if (!conform_takes(c, k->dt))
        return;
    a = (struct attn){
        .q = conform_in(c, k->dt, k->nq, qc, 3, FILL_UNIT), .k = conform_in(c, k->dt, k->nk, kc, 1, FILL_UNIT),
        .v = conform_in(c, k->dt, k->nk, kc, 0, FILL_UNIT), .o = conform_mat(c, k->dt, k->nq, qc, 2, FILL_NAN),
        .lse = conform_mat(c, DT_F32, k->nq, k->heads, 0, FILL_NAN), .doc_start = starts(c, k),
        .n_heads = k->heads, .n_kv_heads = k->kv_heads, .head_dim = k->dim, .scale = k->sharp / root,
        .do_ = conform_in(c, k->dt, k->nq, qc, 0, FILL_UNIT), .dq = conform_mat(c, k->dt, k->nq, qc, 1, FILL_NAN),
        .dk = conform_mat(c, k->dt, k->nk, kc, 0, FILL_NAN), .dv = conform_mat(c, k->dt, k->nk, kc, 3, FILL_NAN),
    };
    OP(c)->attn_fwd(conform_dev(c), &a);
    OP(c)->attn_bwd(conform_dev(c), &a);
    /* A score is a sum of dim products scaled down by sqrt(dim), so it is off by
     * up to about (dim + 8) u scale; twice that is the relative error of p, to
     * which come the sums over keys.  Of p dp - p D each term is below
     * sqrt(dim); keys collect from all queries: 1 + 1/2 + 1/3 ... < 7. */
    sizes = 2 * (k->dim + 8) * a.scale + nk + 24;
    keys = 7.0 * k->heads / k->kv_heads;
    grads = 2 * a.scale * root;
    conform_out(c, a.o, tol(sizes, 1), "o");
    conform_out(c, a.lse, tol(sizes, 1), "lse");
    /* With bf16, o is rounded before D = sum do o may be formed from it. */
    if (k->dt == DT_BF16) {
        conform_out(c, a.dq, tol_norm(0.02), "dq");
        conform_out(c, a.dk, tol_norm(0.02), "dk");
    } else {
        conform_out(c, a.dq, tol(2 * sizes, grads), "dq");
        conform_out(c, a.dk, tol(2 * sizes, grads * keys), "dk");
    }
    conform_out(c, a.dv, tol(sizes, keys), "dv");
    if (k->nq < 2)
        return;

    /* The last query alone: its bits do not depend on the others. */
    b = a;
    b.q = mat_rows(a.q, k->nq - 1, 1);
    b.o = conform_mat(c, k->dt, 1, qc, 0, FILL_NAN);
    b.lse = conform_mat(c, DT_F32, 1, k->heads, 0, FILL_NAN);
    b.doc_start = a.doc_start + k->nq - 1;
    OP(c)->attn_fwd(conform_dev(c), &b);
    conform_same(c, b.o, mat_rows(a.o, k->nq - 1, 1), "last query alone");
}

/* Two documents in one call have the bits of two calls. */
static void documents_case(struct conform *c, const void *arg)
{
    enum { N = 90, CUT = 37, H = 4, KV = 2, D = 20 };
    static const struct { int first, n; } docs[] = { { 0, CUT }, { CUT, N - CUT } };
    int32_t *start = conform_alloc(c, N, sizeof *start), *zero = conform_alloc(c, N, sizeof *zero);
    struct attn a = {
        .q = conform_in(c, DT_F32, N, H * D, 0, FILL_UNIT), .k = conform_in(c, DT_F32, N, KV * D, 0, FILL_UNIT),
        .v = conform_in(c, DT_F32, N, KV * D, 0, FILL_UNIT), .o = conform_mat(c, DT_F32, N, H * D, 0, FILL_NAN),
        .lse = conform_mat(c, DT_F32, N, H, 0, FILL_NAN), .doc_start = start,
        .n_heads = H, .n_kv_heads = KV, .head_dim = D, .scale = 0.3,
        .do_ = conform_in(c, DT_F32, N, H * D, 0, FILL_UNIT), .dq = conform_mat(c, DT_F32, N, H * D, 0, FILL_NAN),
        .dk = conform_mat(c, DT_F32, N, KV * D, 0, FILL_NAN), .dv = conform_mat(c, DT_F32, N, KV * D, 0, FILL_NAN),
    };

    (void)arg;
    for (int i = CUT; i < N; i++)
        start[i] = CUT;
    OP(c)->attn_fwd(conform_dev(c), &a);
    OP(c)->attn_bwd(conform_dev(c), &a);
    for (int d = 0; d < 2; d++) {
        int64_t f = docs[d].first, n = docs[d].n;
        struct attn b = a;
        b.q = mat_rows(a.q, f, n);
        b.k = mat_rows(a.k, f, n);
        b.v = mat_rows(a.v, f, n);
        b.do_ = mat_rows(a.do_, f, n);
        b.o = conform_mat(c, DT_F32, n, H * D, 0, FILL_NAN);
        b.lse = conform_mat(c, DT_F32, n, H, 0, FILL_NAN);
        b.dq = conform_mat(c, DT_F32, n, H * D, 0, FILL_NAN);
        b.dk = conform_mat(c, DT_F32, n, KV * D, 0, FILL_NAN);
        b.dv = conform_mat(c, DT_F32, n, KV * D, 0, FILL_NAN);
        b.doc_start = zero;
        OP(c)->attn_fwd(conform_dev(c), &b);
        OP(c)->attn_bwd(conform_dev(c), &b);
        conform_out(c, b.o, tol_sum(N + 2 * D, 1), "o of document %d", d);
        conform_out(c, mat_rows(a.o, f, n), tol_sum(N + 2 * D, 1), "o of document %d in the batch", d);
        conform_same(c, b.o, mat_rows(a.o, f, n), "o of document %d", d);
        conform_same(c, b.lse, mat_rows(a.lse, f, n), "lse of document %d", d);
        conform_same(c, b.dq, mat_rows(a.dq, f, n), "dq of document %d", d);
        conform_same(c, b.dk, mat_rows(a.dk, f, n), "dk of document %d", d);
        conform_same(c, b.dv, mat_rows(a.dv, f, n), "dv of document %d", d);
    }
}

void cases_attn(struct conform_list *l)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        conform_add(l, attn_case, &cases[i], "attn %s", cases[i].name);
    conform_add(l, documents_case, NULL, "attn documents alone");
}
