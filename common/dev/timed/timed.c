/* timed.c -- every op as: look at the clock, call, look at the clock.
 *
 * Scratch memory is handed on at each call, because the plan's owner gives it
 * to the outer device after both were opened.  An op whose device works on
 * after the call returned is timed until then only; the devices built in
 * return when they are done. */
#include "dev/timed.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "dev/trace.h"

#define MAX_OPS 64

struct timed {
    struct dev_ops ops;
    struct dev inner, trace;
    int n;
    struct timed_count all[MAX_OPS], shown[MAX_OPS];
};

/* The literal of an op is one object, so its address is its name. */
static void add(struct timed *t, const char *op, double seconds)
{
    int i = 0;

    while (i < t->n && t->all[i].op != op)
        i++;
    BUG_ON(i == MAX_OPS);
    if (i == t->n)
        t->all[t->n++] = (struct timed_count){ .op = op };
    t->all[i].calls++;
    t->all[i].seconds += seconds;
}

#define OP(name, params, ...)                                                  \
    static void timed_##name params                                            \
    {                                                                          \
        static const char op[] = #name;                                        \
        struct timed *t = d->self;                                             \
        t->inner.ws = d->ws;                                                   \
        t->inner.ws_size = d->ws_size;                                         \
        t->trace.ops->name(&t->trace, __VA_ARGS__);                            \
        double t0 = clock_s();                                                     \
        t->inner.ops->name(&t->inner, __VA_ARGS__);                            \
        add(t, op, clock_s() - t0);                                                \
    }

OP(zero, (struct dev *d, void *p, size_t bytes), p, bytes)
OP(copy, (struct dev *d, void *dst, const void *src, size_t bytes), dst, src, bytes)
OP(cast, (struct dev *d, struct mat dst, struct mat src), dst, src)
OP(add, (struct dev *d, struct mat y, struct mat a, struct mat b), y, a, b)
OP(scale, (struct dev *d, struct mat y, double s), y, s)
OP(gemm, (struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta), c, a, ta, b, tb, beta)
OP(group_fwd, (struct dev *d, const struct group *g, struct mat y, struct mat x), g, y, x)
OP(group_dgrad, (struct dev *d, const struct group *g, struct mat dx, struct mat dy, double beta), g, dx, dy, beta)
OP(group_wgrad, (struct dev *d, const struct group *g, struct mat dy, struct mat x, double beta), g, dy, x, beta)
OP(rmsnorm_fwd, (struct dev *d, struct mat y, struct mat rstd, struct mat x, struct mat w, double eps), y, rstd, x, w, eps)
OP(rmsnorm_bwd, (struct dev *d, struct mat dx, double beta_dx, struct mat dw, double beta_dw, struct mat dy, struct mat x,
                 struct mat w, struct mat rstd), dx, beta_dx, dw, beta_dw, dy, x, w, rstd)
OP(bias_fwd, (struct dev *d, struct mat y, struct mat b), y, b)
OP(bias_bwd, (struct dev *d, struct mat db, struct mat dy, double beta), db, dy, beta)
OP(rope, (struct dev *d, struct mat x, int n_heads, int head_dim, int rot_dim, struct mat cos, struct mat sin,
          const int32_t *positions, _Bool inverse), x, n_heads, head_dim, rot_dim, cos, sin, positions, inverse)
OP(attn_fwd, (struct dev *d, const struct attn *a), a)
OP(attn_bwd, (struct dev *d, const struct attn *a), a)
OP(swiglu_fwd, (struct dev *d, struct mat h, struct mat gate, struct mat up), h, gate, up)
OP(swiglu_bwd, (struct dev *d, struct mat dgate, struct mat dup, struct mat hw, struct mat dw, struct mat q,
                struct mat gate, struct mat up, struct mat w), dgate, dup, hw, dw, q, gate, up, w)
OP(sigmoid_fwd, (struct dev *d, struct mat y, struct mat x), y, x)
OP(sigmoid_bwd, (struct dev *d, struct mat dx, struct mat dy, struct mat y), dx, dy, y)
OP(router_fwd, (struct dev *d, const struct router *r), r)
OP(router_bwd, (struct dev *d, const struct router *r), r)
OP(route_sort, (struct dev *d, const struct route_map *m), m)
OP(rows_gather, (struct dev *d, struct mat xs, struct mat x, const int32_t *token_of), xs, x, token_of)
OP(rows_combine, (struct dev *d, struct mat y, struct mat ys, struct mat w, const int32_t *row_of,
                  int64_t first, int top_k, double beta),
   y, ys, w, row_of, first, top_k, beta)
OP(slots_to_rows, (struct dev *d, struct mat wr, struct mat w, const int32_t *row_of, int64_t first), wr, w, row_of, first)
OP(rows_to_slots, (struct dev *d, struct mat w, struct mat wr, const int32_t *row_of, int64_t first), w, wr, row_of, first)
OP(embed_fwd, (struct dev *d, struct mat y, struct mat table, const int32_t *ids), y, table, ids)
OP(embed_bwd, (struct dev *d, struct mat dtable, struct mat dy, const int32_t *ids, double beta), dtable, dy, ids, beta)
OP(xent, (struct dev *d, double *nll, struct mat logits, const int32_t *targets, double scale, _Bool want_grad),
   nll, logits, targets, scale, want_grad)
OP(sum, (struct dev *d, double *out, const double *x, int64_t n), out, x, n)
OP(sumsq, (struct dev *d, double *out, struct mat g), out, g)
OP(adamw, (struct dev *d, const struct adamw *a), a)
OP(muon_momentum, (struct dev *d, struct mat u, struct mat m, struct mat g, double g_scale, double mu, _Bool nesterov),
   u, m, g, g_scale, mu, nesterov)
OP(newton_schulz, (struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps, double eps),
   x, n, coef, n_steps, eps)
OP(muon_apply, (struct dev *d, struct mat w, struct mat u, double lr, double ratio, double decay), w, u, lr, ratio, decay)

static size_t timed_ws_bytes(const struct dev *d, const struct dev_limits *lim)
{
    const struct timed *t = d->self;

    return t->inner.ops->ws_bytes(&t->inner, lim);
}

static int timed_sync(struct dev *d)
{
    struct timed *t = d->self;

    return t->inner.ops->sync(&t->inner);
}

static void timed_close(struct dev *d)
{
    struct timed *t = d->self;

    dev_close(&t->trace);
    dev_close(&t->inner);
    free(t);
    d->self = NULL;
}

static const struct dev_ops timed_table = {
    .ws_bytes = timed_ws_bytes,
    .sync = timed_sync,
    .close = timed_close,
#define X(op) .op = timed_##op
    X(zero), X(copy), X(cast), X(add), X(scale),
    X(gemm), X(group_fwd), X(group_dgrad), X(group_wgrad),
    X(rmsnorm_fwd), X(rmsnorm_bwd), X(bias_fwd), X(bias_bwd), X(rope), X(attn_fwd), X(attn_bwd),
    X(swiglu_fwd), X(swiglu_bwd), X(sigmoid_fwd), X(sigmoid_bwd),
    X(router_fwd), X(router_bwd), X(route_sort), X(rows_gather), X(rows_combine), X(slots_to_rows), X(rows_to_slots),
    X(embed_fwd), X(embed_bwd), X(xent), X(sum),
    X(sumsq), X(adamw), X(muon_momentum), X(newton_schulz), X(muon_apply),
#undef X
};

int timed_open(struct dev *inner, struct dev *out)
{
    struct timed *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return err_set(ERR_IO, "out of memory");
    t->inner = *inner;
    rc = trace_open(&t->inner, &t->trace);
    if (rc < 0) {
        free(t);
        return rc;
    }
    t->ops = timed_table;
    t->ops.name = inner->ops->name;
    t->ops.takes = inner->ops->takes;
    *out = (struct dev){ .ops = &t->ops, .threads = inner->threads, .about = inner->about, .self = t };
    if (inner != out)
        *inner = (struct dev){ 0 };
    return 0;
}

void timed_reset(struct dev *d)
{
    struct timed *t = d->self;

    BUG_ON(d->ops->close != timed_close);
    t->n = 0;
    trace_reset(&t->trace);
}

int timed_counts(struct dev *d, const struct timed_count **out)
{
    struct timed *t = d->self;
    const struct trace_count *c;

    BUG_ON(d->ops->close != timed_close);
    int n = trace_counts(&t->trace, &c);
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < t->n && strcmp(t->all[k].op, c[i].op) != 0)
            k++;
        BUG_ON(k == t->n || t->all[k].calls != c[i].calls);
        t->shown[i] = t->all[k];
        t->shown[i].flops = c[i].flops;
        t->shown[i].bytes = c[i].bytes;
    }
    *out = t->shown;
    return n;
}
