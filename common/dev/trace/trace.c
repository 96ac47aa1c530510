/* trace.c -- every op as a shape check and a count.
 *
 * No operand is touched: while a plan is recorded their addresses are not
 * memory.  What an op needs to know about contents (rows of an expert, where a
 * document begins) it takes at its largest. */
#include "dev/trace.h"

#include <stdlib.h>

#include "base/err.h"
#include "dev/shape.h"

/* The ops in the order of the table. */
#define OPS(X) \
    X(zero) X(copy) X(cast) X(add) X(scale) \
    X(gemm) X(group_fwd) X(group_dgrad) X(group_wgrad) \
    X(rmsnorm_fwd) X(rmsnorm_bwd) X(bias_fwd) X(bias_bwd) X(rope) X(attn_fwd) X(attn_bwd) \
    X(swiglu_fwd) X(swiglu_bwd) X(sigmoid_fwd) X(sigmoid_bwd) \
    X(router_fwd) X(router_bwd) X(route_sort) X(rows_gather) X(rows_combine) \
    X(slots_to_rows) X(rows_to_slots) \
    X(embed_fwd) X(embed_bwd) X(xent) X(sum) \
    X(sumsq) X(adamw) X(muon_momentum) X(newton_schulz) X(muon_apply)

enum op {
#define X(name) OP_##name,
    OPS(X)
#undef X
    N_OPS
};

static const char *const op_names[N_OPS] = {
#define X(name) #name,
    OPS(X)
#undef X
};

struct trace {
    struct dev_ops ops;         /* the table below, with takes() of `like` */
    const struct dev *like;
    int64_t n_ops;
    struct trace_count all[N_OPS], shown[N_OPS];
};

static void count(struct dev *d, enum op op, double flops, double bytes)
{
    struct trace *t = d->self;

    t->n_ops++;
    t->all[op].calls++;
    t->all[op].flops += flops;
    t->all[op].bytes += bytes;
}

static double bytes_of(struct mat m)
{
    return (double)m.rows * (double)m.cols * (double)dtype_size(m.dt);
}

/* Written with beta: read as well when beta is 1. */
static double bytes_out(struct mat m, double beta)
{
    return (1 + beta) * bytes_of(m);
}

/* ---- moving */

static void trace_zero(struct dev *d, void *p, size_t bytes)
{
    (void)p;
    count(d, OP_zero, 0, (double)bytes);
}

static void trace_copy(struct dev *d, void *dst, const void *src, size_t bytes)
{
    (void)dst;
    (void)src;
    count(d, OP_copy, 0, 2 * (double)bytes);
}

static void trace_cast(struct dev *d, struct mat dst, struct mat src)
{
    shape_same(dst, src);
    count(d, OP_cast, 0, bytes_of(dst) + bytes_of(src));
}

static void trace_add(struct dev *d, struct mat y, struct mat a, struct mat b)
{
    shape_same(y, a);
    shape_same(y, b);
    count(d, OP_add, 0, bytes_of(y) + bytes_of(a) + bytes_of(b));
}

static void trace_scale(struct dev *d, struct mat y, double s)
{
    (void)s;
    shape_mat(y);
    count(d, OP_scale, 0, 2 * bytes_of(y));
}

/* ---- products */

static void trace_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    double k = (double)(ta ? a.rows : a.cols);

    shape_gemm(c, a, ta, b, tb, beta);
    count(d, OP_gemm, 2 * (double)c.rows * (double)c.cols * k, bytes_of(a) + bytes_of(b) + bytes_out(c, beta));
}

static double group_flops(const struct group *g, struct mat x)
{
    return 2 * (double)x.rows * (double)g->n_in * (double)g->n_out;
}

static double weight_bytes(const struct group *g)
{
    return (double)g->n_experts * (double)g->n_in * (double)g->n_out * (double)dtype_size(g->w_dt);
}

static void trace_group_fwd(struct dev *d, const struct group *g, struct mat y, struct mat x)
{
    shape_group(g, y, x, 0);
    count(d, OP_group_fwd, group_flops(g, x), bytes_of(x) + bytes_of(y) + weight_bytes(g));
}

static void trace_group_dgrad(struct dev *d, const struct group *g, struct mat dx, struct mat dy, double beta)
{
    shape_group(g, dy, dx, beta);
    count(d, OP_group_dgrad, group_flops(g, dx), bytes_out(dx, beta) + bytes_of(dy) + weight_bytes(g));
}

static void trace_group_wgrad(struct dev *d, const struct group *g, struct mat dy, struct mat x, double beta)
{
    shape_group(g, dy, x, beta);
    count(d, OP_group_wgrad, group_flops(g, x), bytes_of(x) + bytes_of(dy) + (1 + beta) * weight_bytes(g));
}

/* ---- rows */

static void trace_rmsnorm_fwd(struct dev *d, struct mat y, struct mat rstd, struct mat x, struct mat w, double eps)
{
    (void)eps;
    shape_rmsnorm_fwd(y, rstd, x, w);
    count(d, OP_rmsnorm_fwd, 0, bytes_of(y) + bytes_of(rstd) + bytes_of(x) + bytes_of(w));
}

static void trace_rmsnorm_bwd(struct dev *d, struct mat dx, double beta_dx, struct mat dw, double beta_dw,
                              struct mat dy, struct mat x, struct mat w, struct mat rstd)
{
    shape_rmsnorm_bwd(dx, beta_dx, dw, beta_dw, dy, x, w, rstd);
    count(d, OP_rmsnorm_bwd, 0, bytes_out(dx, beta_dx) + bytes_out(dw, beta_dw) + bytes_of(dy) + bytes_of(x) +
          bytes_of(w) + bytes_of(rstd));
}

static void trace_bias_fwd(struct dev *d, struct mat y, struct mat b)
{
    shape_bias(y, b, 0);
    count(d, OP_bias_fwd, 0, 2 * bytes_of(y) + bytes_of(b));
}

static void trace_bias_bwd(struct dev *d, struct mat db, struct mat dy, double beta)
{
    shape_bias(dy, db, beta);
    count(d, OP_bias_bwd, 0, bytes_of(dy) + bytes_out(db, beta));
}

static void trace_rope(struct dev *d, struct mat x, int n_heads, int head_dim, int rot_dim,
                       struct mat cos, struct mat sin, const int32_t *positions, _Bool inverse)
{
    double rotated = (double)x.rows * n_heads * rot_dim * (double)dtype_size(x.dt);

    (void)positions;
    (void)inverse;
    shape_rope(x, n_heads, head_dim, rot_dim, cos, sin);
    count(d, OP_rope, 0, 2 * rotated + (double)x.rows * rot_dim * (double)dtype_size(cos.dt));
}

static double attn_pairs(const struct attn *a)
{
    double nq = (double)a->q.rows, before = (double)(a->k.rows - a->q.rows);

    return nq * before + nq * (nq + 1) / 2;
}

static void trace_attn_fwd(struct dev *d, const struct attn *a)
{
    shape_attn(a, 0);
    count(d, OP_attn_fwd, 4 * attn_pairs(a) * a->n_heads * a->head_dim,
          2 * bytes_of(a->q) + 2 * bytes_of(a->k) + bytes_of(a->lse));
}

static void trace_attn_bwd(struct dev *d, const struct attn *a)
{
    shape_attn(a, 1);
    count(d, OP_attn_bwd, 10 * attn_pairs(a) * a->n_heads * a->head_dim,
          4 * bytes_of(a->q) + 4 * bytes_of(a->k) + bytes_of(a->lse));
}

static void trace_swiglu_fwd(struct dev *d, struct mat h, struct mat gate, struct mat up)
{
    shape_same(h, gate);
    shape_same(h, up);
    count(d, OP_swiglu_fwd, 0, bytes_of(h) + bytes_of(gate) + bytes_of(up));
}

static void trace_swiglu_bwd(struct dev *d, struct mat dgate, struct mat dup, struct mat hw, struct mat dw,
                             struct mat q, struct mat gate, struct mat up, struct mat w)
{
    double stats = w.p ? bytes_of(w) + bytes_of(dw) : 0;

    shape_swiglu_bwd(dgate, dup, hw, dw, q, gate, up, w);
    count(d, OP_swiglu_bwd, 0, stats + bytes_of(dgate) + bytes_of(dup) + bytes_of(hw) + bytes_of(q) +
          bytes_of(gate) + bytes_of(up));
}

static void trace_sigmoid_fwd(struct dev *d, struct mat y, struct mat x)
{
    shape_same(y, x);
    count(d, OP_sigmoid_fwd, 0, bytes_of(y) + bytes_of(x));
}

static void trace_sigmoid_bwd(struct dev *d, struct mat dx, struct mat dy, struct mat y)
{
    shape_same(dx, dy);
    shape_same(dx, y);
    count(d, OP_sigmoid_bwd, 0, bytes_of(dx) + bytes_of(dy) + bytes_of(y));
}

/* ---- routing */

static double slots(const struct router *r)
{
    return (double)r->n_tokens * r->top_k;
}

static void trace_router_fwd(struct dev *d, const struct router *r)
{
    shape_router(r, 0);
    count(d, OP_router_fwd, 0, bytes_of(r->logits) + bytes_of(r->w) + slots(r) * sizeof *r->idx);
}

static void trace_router_bwd(struct dev *d, const struct router *r)
{
    shape_router(r, 1);
    count(d, OP_router_bwd, 0, bytes_of(r->logits) + bytes_of(r->dlogits) + bytes_of(r->dw) +
          slots(r) * sizeof *r->idx);
}

static void trace_route_sort(struct dev *d, const struct route_map *m)
{
    double n = (double)m->n_tokens * m->top_k;

    shape_route_sort(m);
    count(d, OP_route_sort, 0, n * (sizeof *m->idx + sizeof *m->row_of + sizeof *m->token_of) +
          (m->n_experts + 1.0) * sizeof *m->offsets);
}

static void trace_rows_gather(struct dev *d, struct mat xs, struct mat x, const int32_t *token_of)
{
    (void)token_of;
    shape_gather(xs, x);
    count(d, OP_rows_gather, 0, 2 * bytes_of(xs) + (double)xs.rows * sizeof *token_of);
}

static void trace_rows_combine(struct dev *d, struct mat y, struct mat ys, struct mat w, const int32_t *row_of,
                               int64_t first, int top_k, double beta)
{
    double row = (double)ys.cols * (double)dtype_size(ys.dt);

    (void)first;
    shape_combine(y, ys, w, row_of, top_k, beta);
    count(d, OP_rows_combine, 0, bytes_out(y, beta) + (double)y.rows * top_k * row + (w.p ? bytes_of(w) : 0));
}

static void trace_slots_to_rows(struct dev *d, struct mat wr, struct mat w, const int32_t *row_of, int64_t first)
{
    (void)row_of;
    (void)first;
    shape_slots(w, wr);
    count(d, OP_slots_to_rows, 0, 2 * bytes_of(w));
}

static void trace_rows_to_slots(struct dev *d, struct mat w, struct mat wr, const int32_t *row_of, int64_t first)
{
    (void)row_of;
    (void)first;
    shape_slots(w, wr);
    count(d, OP_rows_to_slots, 0, 2 * bytes_of(w));
}

/* ---- ends */

static void trace_embed_fwd(struct dev *d, struct mat y, struct mat table, const int32_t *ids)
{
    (void)ids;
    shape_embed(y, table, 0);
    count(d, OP_embed_fwd, 0, 2 * bytes_of(y));
}

static void trace_embed_bwd(struct dev *d, struct mat dtable, struct mat dy, const int32_t *ids, double beta)
{
    (void)ids;
    shape_embed(dy, dtable, beta);
    count(d, OP_embed_bwd, 0, 3 * bytes_of(dy) + (1 - beta) * bytes_of(dtable));
}

static void trace_xent(struct dev *d, double *nll, struct mat logits, const int32_t *targets, double scale,
                       _Bool want_grad)
{
    (void)targets;
    (void)scale;
    shape_mat(logits);
    count(d, OP_xent, 0, (want_grad ? 2 : 1) * bytes_of(logits) + (double)logits.rows * sizeof *nll);
}

static void trace_sum(struct dev *d, double *out, const double *x, int64_t n)
{
    (void)out;
    BUG_ON(n < 0);
    count(d, OP_sum, 0, (double)n * sizeof *x);
}

/* ---- optimizer */

static void trace_sumsq(struct dev *d, double *out, struct mat g)
{
    (void)out;
    shape_mat(g);
    count(d, OP_sumsq, 0, bytes_of(g));
}

static void trace_adamw(struct dev *d, const struct adamw *a)
{
    shape_adamw(a);
    count(d, OP_adamw, 0, 2 * (bytes_of(a->w) + bytes_of(a->m) + bytes_of(a->v)) + bytes_of(a->g));
}

static void trace_muon_momentum(struct dev *d, struct mat u, struct mat m, struct mat g, double g_scale, double mu,
                                _Bool nesterov)
{
    (void)g_scale;
    (void)mu;
    (void)nesterov;
    shape_momentum(u, m, g);
    count(d, OP_muon_momentum, 0, bytes_of(u) + 2 * bytes_of(m) + bytes_of(g));
}

/* The plain form, 4 s^2 l + 2 s^3 a step, whatever a device makes of it. */
static void trace_newton_schulz(struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps,
                                double eps)
{
    double s, l;

    (void)eps;
    shape_newton_schulz(x, n, coef, n_steps);
    if (!n) {
        count(d, OP_newton_schulz, 0, 0);
        return;
    }
    s = (double)(x[0].rows < x[0].cols ? x[0].rows : x[0].cols);
    l = (double)(x[0].rows < x[0].cols ? x[0].cols : x[0].rows);
    count(d, OP_newton_schulz, n * n_steps * (4 * s * s * l + 2 * s * s * s), n * 2 * bytes_of(x[0]));
}

static void trace_muon_apply(struct dev *d, struct mat w, struct mat u, double lr, double ratio, double decay)
{
    (void)lr;
    (void)ratio;
    (void)decay;
    shape_same(w, u);
    count(d, OP_muon_apply, 0, 2 * bytes_of(w) + bytes_of(u));
}

/* ---- the device */

static const struct trace *self_of(const struct dev *d);

static size_t trace_ws_bytes(const struct dev *d, const struct dev_limits *lim)
{
    const struct dev *like = self_of(d)->like;

    return like->ops->ws_bytes(like, lim);
}

static int trace_sync(struct dev *d)
{
    (void)d;
    return 0;
}

static void trace_close(struct dev *d)
{
    free(d->self);
    d->self = NULL;
}

static const struct dev_ops trace_table = {
    .name = "trace",
    .ws_bytes = trace_ws_bytes,
    .sync = trace_sync,
    .close = trace_close,
#define X(name) .name = trace_##name,
    OPS(X)
#undef X
};

static const struct trace *self_of(const struct dev *d)
{
    BUG_ON(d->ops->close != trace_close);
    return d->self;
}

int trace_open(const struct dev *like, struct dev *out)
{
    struct trace *t = calloc(1, sizeof *t);

    if (!t)
        return err_sys(ERR_IO, "trace: no memory");
    t->like = like;
    t->ops = trace_table;
    t->ops.takes = like->ops->takes;
    *out = (struct dev){ .ops = &t->ops, .threads = like->threads, .self = t };
    trace_reset(out);
    return 0;
}

void trace_reset(struct dev *d)
{
    struct trace *t = d->self;

    BUG_ON(d->ops->close != trace_close);
    t->n_ops = 0;
    for (int i = 0; i < N_OPS; i++)
        t->all[i] = (struct trace_count){ .op = op_names[i] };
}

int64_t trace_ops(const struct dev *d)
{
    return self_of(d)->n_ops;
}

int trace_counts(const struct dev *d, const struct trace_count **out)
{
    struct trace *t = d->self;
    int n = 0;

    BUG_ON(d->ops->close != trace_close);
    for (int i = 0; i < N_OPS; i++)
        if (t->all[i].calls)
            t->shown[n++] = t->all[i];
    *out = t->shown;
    return n;
}
