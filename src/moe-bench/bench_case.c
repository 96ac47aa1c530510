/* bench_case.c -- operands and calls of every op at the size of a model.
 *
 * Values are small and harmless, so that a call can be repeated in place; a
 * size is derived from the model alone.  Nothing is timed here. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "base/units.h"

#define D (j->d)
#define O (j->d->ops)
#define M (j->m)

static struct mat drawn(struct bench_job *j, int64_t rows, int64_t cols)
{
    /* A line apart and off the 4 KiB grid, as planned buffers are. */
    char *p = arena_alloc(j->arena, (size_t)(rows * cols) * sizeof(float) + 64);
    float *x = (float *)(p + (64 - (uintptr_t)p % 64) % 64);
    uint32_t s = 12345;

    for (int64_t i = 0; i < rows * cols; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)((int)(s >> 9) - (1 << 22)) / (1 << 22);
    }
    return mat(x, DT_F32, rows, cols);
}

static int32_t *drawn_ids(struct bench_job *j, int64_t n, int64_t below)
{
    int32_t *p = arena_array(j->arena, (size_t)n, sizeof *p);
    uint32_t s = 777;

    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        p[i] = (int32_t)((uint64_t)(s >> 4) * (uint64_t)below >> 28);
    }
    return p;
}

static void say(struct bench_job *j, int64_t a, int64_t b, int64_t c)
{
    if (c)
        snprintf(j->size, sizeof j->size, "%lldx%lldx%lld", (long long)a, (long long)b, (long long)c);
    else
        snprintf(j->size, sizeof j->size, "%lldx%lld", (long long)a, (long long)b);
}

/* n matrices [rows][cols] of which `touched` are read or written. */
static void plain(struct bench_job *j, int n, int64_t rows, int64_t cols, double touched)
{
    for (int i = 0; i < n; i++)
        M[i] = drawn(j, rows, cols);
    j->bytes = 4 * touched * (double)rows * (double)cols;
    say(j, rows, cols, 0);
}

/* --- GEMM: variants are the products of a layer and of the output head */
enum { NT, NN, TN, HEAD = 4 };

static void gemm_setup(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;
    _Bool head = j->variant & HEAD;
    int64_t t = head ? s->chunk : s->t, out = head ? s->v : s->heads * s->hd, in = s->h;

    M[0] = drawn(j, t, in);
    M[1] = drawn(j, out, in);
    M[2] = drawn(j, t, out);
    j->flops = 2.0 * (double)t * (double)out * (double)in;
    j->bytes = 4 * ((double)t * (double)in + (double)out * (double)in + (double)t * (double)out);
    say(j, (j->variant & 3) == TN ? out : t, (j->variant & 3) == NT ? out : in,
        (j->variant & 3) == NT ? in : (j->variant & 3) == NN ? out : t);
}

static void gemm_run(struct bench_job *j)
{
    switch (j->variant & 3) {
    case NT: O->gemm(D, M[2], M[0], 0, M[1], 1, 0); break;
    case NN: O->gemm(D, M[0], M[2], 0, M[1], 0, 0); break;
    default: O->gemm(D, M[1], M[2], 1, M[0], 0, 0); break;
    }
}

/* --- routing and experts */
static void routing(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;
    int64_t n = s->t * s->k;

    j->idx = arena_array(j->arena, (size_t)n, sizeof *j->idx);
    int32_t *first = drawn_ids(j, s->t, s->e);
    for (int64_t t = 0; t < s->t; t++)
        for (int64_t k = 0; k < s->k; k++)
            j->idx[t * s->k + k] = (uint16_t)((first[t] + k) % s->e);
    j->row_of = arena_array(j->arena, (size_t)n, sizeof *j->row_of);
    j->token_of = arena_array(j->arena, (size_t)n, sizeof *j->token_of);
    j->offsets = arena_array(j->arena, (size_t)s->e + 1, sizeof *j->offsets);
}

static struct route_map map_of(struct bench_job *j)
{
    return (struct route_map){ .n_tokens = j->dim.t, .top_k = (int)j->dim.k, .n_experts = (int)j->dim.e, .idx = j->idx,
                               .row_of = j->row_of, .token_of = j->token_of, .offsets = j->offsets };
}

static void sort_run(struct bench_job *j)
{
    struct route_map m = map_of(j);

    O->route_sort(D, &m);
}

static void sort_setup(struct bench_job *j)
{
    routing(j);
    j->bytes = 12.0 * (double)(j->dim.t * j->dim.k);
    say(j, j->dim.t, j->dim.k, j->dim.e);
}

static void group_setup(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;
    int64_t n = s->t * s->k;
    struct mat w = drawn(j, s->e * s->i, s->h);

    routing(j);
    sort_run(j);
    M[0] = drawn(j, n, s->h);
    M[1] = drawn(j, n, s->i);
    j->w = arena_array(j->arena, (size_t)s->e, sizeof *j->w);
    for (int64_t e = 0; e < s->e; e++)
        j->w[e] = (float *)w.p + e * s->i * s->h;
    j->group = (struct group){ .n_experts = (int)s->e, .offsets = j->offsets, .n_out = s->i, .n_in = s->h, .w = j->w, .w_dt = DT_F32 };
    j->flops = 2.0 * (double)n * (double)s->i * (double)s->h;
    j->bytes = 4 * ((double)n * (double)(s->i + s->h) + (double)(s->e * s->i) * (double)s->h);
    snprintf(j->size, sizeof j->size, "%lldx%lldx%lld in %lld", (long long)n, (long long)s->i, (long long)s->h, (long long)s->e);
}

static void group_run(struct bench_job *j)
{
    switch (j->variant) {
    case 0: O->group_fwd(D, &j->group, M[1], M[0]); break;
    case 1: O->group_dgrad(D, &j->group, M[0], M[1], 0); break;
    default: O->group_wgrad(D, &j->group, M[1], M[0], 0); break;
    }
}

static void router_setup(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;

    routing(j);
    M[0] = drawn(j, 1, s->e);
    j->nll = arena_array(j->arena, 2, sizeof *j->nll);
    j->router = (struct router){
        .scoring = SCORING_SIGMOID, .n_experts = (int)s->e, .top_k = (int)s->k, .n_group = 1, .topk_group = 1, .norm_topk = 1,
        .routed_scale = 1, .n_tokens = s->t, .seq_len = s->seq, .logits = drawn(j, s->t, s->e), .bias = M[0].p, .idx = j->idx,
        .w = drawn(j, s->t, s->k), .aux_sum = &j->nll[0], .dw = drawn(j, s->t, s->k), .dlogits = drawn(j, s->t, s->e),
        .aux_scale = 1e-3,
    };
    j->bytes = 4 * (double)s->t * (double)(s->e + 2 * s->k);
    say(j, s->t, s->e, s->k);
}

static void router_run(struct bench_job *j)
{
    (j->variant ? O->router_bwd : O->router_fwd)(D, &j->router);
}

static void rows_setup(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;
    int64_t n = s->t * s->k;

    routing(j);
    sort_run(j);
    M[0] = drawn(j, n, s->h);
    M[1] = drawn(j, s->t, s->h);
    M[2] = drawn(j, s->t, s->k);
    M[3] = drawn(j, n, 1);
    j->bytes = j->variant > 1 ? 12.0 * (double)n : 4 * (double)s->h * (double)(n + (j->variant == 0 ? n : 2 * s->t));
    say(j, n, j->variant > 1 ? 1 : s->h, 0);
}

static void rows_run(struct bench_job *j)
{
    switch (j->variant) {
    case 0: O->rows_gather(D, M[0], M[1], j->token_of); break;
    case 1: O->rows_combine(D, M[1], M[0], M[2], j->row_of, 0, (int)j->dim.k, 0); break;
    case 2: O->slots_to_rows(D, M[3], M[2], j->row_of, 0); break;
    default: O->rows_to_slots(D, M[2], M[3], j->row_of, 0); break;
    }
}

/* --- rows: variant 1 of the norm is per head */
static void norm_setup(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;
    int64_t rows = j->variant ? s->t * s->heads : s->t, cols = j->variant ? s->hd : s->h;

    plain(j, 3, rows, cols, 2);
    M[3] = drawn(j, 1, cols);
    M[4] = drawn(j, 1, cols);
    M[5] = drawn(j, rows, 1);
    O->rmsnorm_fwd(D, M[0], M[5], M[1], M[3], 1e-6);
}

static void norm_fwd_run(struct bench_job *j)
{
    O->rmsnorm_fwd(D, M[0], M[5], M[1], M[3], 1e-6);
}

static void norm_bwd_setup(struct bench_job *j)
{
    norm_setup(j);
    j->bytes *= 1.5;
}

static void norm_bwd_run(struct bench_job *j)
{
    O->rmsnorm_bwd(D, M[2], 0, M[4], 0, M[0], M[1], M[3], M[5]);
}

static void bias_setup(struct bench_job *j)
{
    plain(j, 1, j->dim.t, j->dim.heads * j->dim.hd, j->variant ? 1 : 2);
    M[1] = drawn(j, 1, M[0].cols);
    memset(M[1].p, 0, (size_t)M[1].cols * sizeof(float));
}

static void bias_run(struct bench_job *j)
{
    if (j->variant)
        O->bias_bwd(D, M[1], M[0], 0);
    else
        O->bias_fwd(D, M[0], M[1]);
}

static void rope_setup(struct bench_job *j)
{
    plain(j, 1, j->dim.t, j->dim.heads * j->dim.hd, 2);
    M[1] = drawn(j, j->dim.seq, j->dim.hd / 2);
    M[2] = drawn(j, j->dim.seq, j->dim.hd / 2);
    for (int64_t i = 0; i < M[1].rows * M[1].cols; i++) {
        ((float *)M[1].p)[i] = 0.6f;
        ((float *)M[2].p)[i] = 0.8f;
    }
    j->ids = arena_array(j->arena, (size_t)j->dim.t, sizeof *j->ids);
    for (int64_t t = 0; t < j->dim.t; t++)
        j->ids[t] = (int32_t)(t % j->dim.seq);
}

static void rope_run(struct bench_job *j)
{
    O->rope(D, M[0], (int)j->dim.heads, (int)j->dim.hd, (int)j->dim.hd, M[1], M[2], j->ids, 0);
}

/* One document a sequence.  Flops: half of the square, two products forward
 * and five backward. */
static void attn_setup(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;
    struct attn *a = &j->attn;
    int64_t q = s->heads * s->hd, kv = s->kv * s->hd;
    int32_t *doc = arena_array(j->arena, (size_t)s->t, sizeof *doc);

    for (int64_t t = 0; t < s->t; t++)
        doc[t] = (int32_t)(t / s->seq * s->seq);
    *a = (struct attn){ .q = drawn(j, s->t, q), .k = drawn(j, s->t, kv), .v = drawn(j, s->t, kv), .o = drawn(j, s->t, q),
                        .lse = drawn(j, s->t, s->heads), .doc_start = doc, .n_heads = (int)s->heads, .n_kv_heads = (int)s->kv,
                        .head_dim = (int)s->hd, .scale = 0.125, .do_ = drawn(j, s->t, q), .dq = drawn(j, s->t, q),
                        .dk = drawn(j, s->t, kv), .dv = drawn(j, s->t, kv) };
    O->attn_fwd(D, a);
    j->flops = (j->variant ? 5 : 2) * 2.0 * (double)s->t * (double)(s->seq + 1) / 2 * (double)q;
    snprintf(j->size, sizeof j->size, "%lldx(%lld,%lld)x%lld seq %lld", (long long)s->t, (long long)s->heads, (long long)s->kv,
             (long long)s->hd, (long long)s->seq);
}

static void attn_run(struct bench_job *j)
{
    (j->variant ? O->attn_bwd : O->attn_fwd)(D, &j->attn);
}

static void swiglu_setup(struct bench_job *j)
{
    plain(j, 7, j->dim.t * j->dim.k, j->dim.i, j->variant ? 6 : 3);
    M[7] = drawn(j, M[0].rows, 1);
    M[8] = drawn(j, M[0].rows, 1);
}

static void swiglu_run(struct bench_job *j)
{
    if (j->variant)
        O->swiglu_bwd(D, M[0], M[1], M[2], M[7], M[3], M[4], M[5], M[8]);
    else
        O->swiglu_fwd(D, M[0], M[1], M[2]);
}

/* --- element-wise, on the residual stream */
enum { ZERO, COPY, CAST, ADD, SCALE, SIGMOID, SIGMOID_BWD };

static void element_setup(struct bench_job *j)
{
    static const double touched[] = { 1, 2, 2, 3, 2, 2, 3 };

    plain(j, 3, j->dim.t, j->dim.h, touched[j->variant]);
}

static void element_run(struct bench_job *j)
{
    size_t bytes = (size_t)(M[0].rows * M[0].cols) * sizeof(float);

    switch (j->variant) {
    case ZERO: O->zero(D, M[0].p, bytes); break;
    case COPY: O->copy(D, M[0].p, M[1].p, bytes); break;
    case CAST: O->cast(D, M[0], M[1]); break;
    case ADD: O->add(D, M[0], M[1], M[2]); break;
    case SCALE: O->scale(D, M[0], 1); break;
    case SIGMOID: O->sigmoid_fwd(D, M[0], M[1]); break;
    default: O->sigmoid_bwd(D, M[0], M[1], M[2]); break;
    }
}

/* --- ends */
static void embed_setup(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;

    M[0] = drawn(j, s->t, s->h);
    M[1] = drawn(j, s->v, s->h);
    j->ids = drawn_ids(j, s->t, s->v);
    j->bytes = 4 * (double)s->h * (double)(j->variant ? 3 * s->t + s->v : 2 * s->t);
    say(j, s->t, s->h, 0);
}

static void embed_run(struct bench_job *j)
{
    if (j->variant)
        O->embed_bwd(D, M[1], M[0], j->ids, 0);
    else
        O->embed_fwd(D, M[0], M[1], j->ids);
}

static void xent_setup(struct bench_job *j)
{
    plain(j, 1, j->dim.chunk, j->dim.v, j->variant ? 2 : 1);
    j->ids = drawn_ids(j, M[0].rows, M[0].cols);
    j->nll = arena_array(j->arena, (size_t)M[0].rows, sizeof *j->nll);
}

static void xent_run(struct bench_job *j)
{
    O->xent(D, j->nll, M[0], j->ids, 1.0 / 4096, j->variant);
}

static void sum_setup(struct bench_job *j)
{
    j->nll = arena_array(j->arena, (size_t)j->dim.t + 1, sizeof *j->nll);
    j->bytes = 8 * (double)j->dim.t;
    say(j, j->dim.t, 1, 0);
}

static void sum_run(struct bench_job *j)
{
    O->sum(D, j->nll + j->dim.t, j->nll, j->dim.t);
}

/* --- optimizer */
static void optim_setup(struct bench_job *j)
{
    static const double touched[] = { 1, 7, 4, 3 };

    plain(j, 4, j->dim.v / 4, j->dim.h, touched[j->variant]);
    float *v = M[2].p;
    for (int64_t i = 0; i < M[2].rows * M[2].cols; i++)
        v[i] = v[i] * v[i];
    j->nll = arena_array(j->arena, 1, sizeof *j->nll);
    j->adamw = (struct adamw){ .w = M[0], .m = M[1], .v = M[2], .g = M[3], .g_scale = 1, .lr = 1e-4, .beta1 = 0.9,
                               .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .t = 10 };
}

static void optim_run(struct bench_job *j)
{
    switch (j->variant) {
    case 0: O->sumsq(D, j->nll, M[0]); break;
    case 1: O->adamw(D, &j->adamw); break;
    case 2: O->muon_momentum(D, M[0], M[1], M[3], 1, 0.95, 1); break;
    default: O->muon_apply(D, M[0], M[1], 1e-4, 0.2, 0); break;
    }
}

enum { NS_STEPS = 5 };

/* Variant 0: matrices of experts; 1: of attention, one only.  Flops are those
 * of the plain formula, symmetry not used. */
static void ns_setup(struct bench_job *j)
{
    const struct bench_dims *s = &j->dim;
    int64_t n = j->variant ? 1 : s->n_ns, rows = j->variant ? s->heads * s->hd : s->i, cols = s->h, small = rows < cols ? rows : cols;

    j->list = arena_array(j->arena, (size_t)n, sizeof *j->list);
    for (int64_t i = 0; i < n; i++)
        j->list[i] = drawn(j, rows, cols);
    j->ids = arena_array(j->arena, 1, sizeof *j->ids);
    *j->ids = (int32_t)n;
    j->flops = NS_STEPS * (double)n * (4.0 * (double)small * (double)rows * (double)cols + 2.0 * (double)(small * small) * (double)small);
    say(j, n, rows, cols);
}

static void ns_run(struct bench_job *j)
{
    static const struct ns_coef c[NS_STEPS] = {
        { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 },
        { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 },
    };

    O->newton_schulz(D, j->list, *j->ids, c, NS_STEPS, 1e-7);
}

const struct bench_case bench_cases[] = {
    { "gemm", NT, gemm_setup, gemm_run },
    { "gemm", NN, gemm_setup, gemm_run },
    { "gemm", TN, gemm_setup, gemm_run },
    { "gemm", HEAD + NT, gemm_setup, gemm_run },
    { "gemm", HEAD + NN, gemm_setup, gemm_run },
    { "gemm", HEAD + TN, gemm_setup, gemm_run },
    { "group_fwd", 0, group_setup, group_run },
    { "group_dgrad", 1, group_setup, group_run },
    { "group_wgrad", 2, group_setup, group_run },
    { "attn_fwd", 0, attn_setup, attn_run },
    { "attn_bwd", 1, attn_setup, attn_run },
    { "newton_schulz", 0, ns_setup, ns_run },
    { "newton_schulz", 1, ns_setup, ns_run },
    { "rmsnorm_fwd", 0, norm_setup, norm_fwd_run },
    { "rmsnorm_bwd", 0, norm_bwd_setup, norm_bwd_run },
    { "rmsnorm_fwd", 1, norm_setup, norm_fwd_run },
    { "rmsnorm_bwd", 1, norm_bwd_setup, norm_bwd_run },
    { "bias_fwd", 0, bias_setup, bias_run },
    { "bias_bwd", 1, bias_setup, bias_run },
    { "rope", 0, rope_setup, rope_run },
    { "swiglu_fwd", 0, swiglu_setup, swiglu_run },
    { "swiglu_bwd", 1, swiglu_setup, swiglu_run },
    { "sigmoid_fwd", SIGMOID, element_setup, element_run },
    { "sigmoid_bwd", SIGMOID_BWD, element_setup, element_run },
    { "router_fwd", 0, router_setup, router_run },
    { "router_bwd", 1, router_setup, router_run },
    { "route_sort", 0, sort_setup, sort_run },
    { "rows_gather", 0, rows_setup, rows_run },
    { "rows_combine", 1, rows_setup, rows_run },
    { "slots_to_rows", 2, rows_setup, rows_run },
    { "rows_to_slots", 3, rows_setup, rows_run },
    { "embed_fwd", 0, embed_setup, embed_run },
    { "embed_bwd", 1, embed_setup, embed_run },
    { "xent", 0, xent_setup, xent_run },
    { "xent", 1, xent_setup, xent_run },
    { "sum", 0, sum_setup, sum_run },
    { "sumsq", 0, optim_setup, optim_run },
    { "adamw", 1, optim_setup, optim_run },
    { "muon_momentum", 2, optim_setup, optim_run },
    { "muon_apply", 3, optim_setup, optim_run },
    { "zero", ZERO, element_setup, element_run },
    { "copy", COPY, element_setup, element_run },
    { "cast", CAST, element_setup, element_run },
    { "add", ADD, element_setup, element_run },
    { "scale", SCALE, element_setup, element_run },
};
const int bench_n_cases = sizeof bench_cases / sizeof *bench_cases;

struct dev_limits bench_limits(const struct bench_dims *s)
{
    int64_t qd = s->heads * s->hd, wide = s->h > qd ? s->h : qd, ns = s->i > qd ? s->i : qd;

    if (s->e > wide)
        wide = s->e;
    return (struct dev_limits){ .max_rows = s->t * (s->heads > s->k ? s->heads : s->k), .max_cols = wide, .n_heads = s->heads,
                                .head_dim = s->hd, .ns_rows = ns, .ns_cols = s->h };
}
