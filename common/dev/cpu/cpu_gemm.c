/* cpu_gemm.c -- matrix products as tiles of the result.
 *
 * A tile spans the whole inner dimension and is computed by one thread.  With
 * our own kernels an element's bits depend on the inner dimension alone, so
 * tiles may follow the team; a CBLAS may take another kernel for another
 * shape, so with it tiles follow the shape of the call alone, and a row's bits
 * can depend on how many rows its call has (dev.h says so). */
#include "base/err.h"
#include "dev/cpu/cpu_ops.h"
#include "dev/shape.h"

#define NS_PER_FLOP 0.008

void cpu_product(const struct dev *d, const struct cpu_product *p, int thread)
{
    const struct cpu *c = d->self;

    if (c->blas)
        cpu_blas_product(p);
    else
        c->kern->gemm(p->c, p->ldc, p->a, p->lda, p->ta, p->b, p->ldb, p->tb, (int)p->m, (int)p->n, (int)p->k,
                      p->beta != 0, p->lower, c->pack + (int64_t)thread * CPU_GEMM_WS);
}

struct tiled {
    const struct dev *d;
    struct cpu_product p;
    int64_t tm, tn, nm, nn;     /* size of a tile, tiles down and across */
};

/* Large tiles use packed panels longest; smaller ones where a team would
 * otherwise have nothing to share. */
static void cut(struct tiled *t)
{
    const struct cpu *c = t->d->self;
    int64_t wanted = c->blas ? 16 : 8 * t->d->threads, least = c->blas || t->d->threads > 4 ? 64 : 128;

    t->tm = cpu_min(t->p.m, CPU_GEMM_M);
    t->tn = cpu_min(t->p.n, CPU_GEMM_N);
    while ((c->blas || t->d->threads > 1) && cpu_ceil(t->p.m, t->tm) * cpu_ceil(t->p.n, t->tn) < wanted) {
        int64_t *side = t->tm >= t->tn ? &t->tm : &t->tn;
        if (*side < 2 * least)
            break;
        *side = cpu_ceil(*side / 2, 32) * 32;
    }
    t->nm = cpu_ceil(t->p.m, t->tm);
    t->nn = cpu_ceil(t->p.n, t->tn);
}

static void tile(const struct tiled *t, int64_t i, int thread)
{
    struct cpu_product p = t->p;
    int64_t r = i / t->nn * t->tm, c = i % t->nn * t->tn;

    p.m = cpu_min(t->tm, p.m - r);
    p.n = cpu_min(t->tn, p.n - c);
    p.a += p.ta ? r : r * p.lda;
    p.b += p.tb ? c * p.ldb : c;
    p.c += r * p.ldc + c;
    cpu_product(t->d, &p, thread);
}

static void tile_task(void *arg, int64_t first, int64_t end, int thread)
{
    for (int64_t i = first; i < end; i++)
        tile(arg, i, thread);
}

void cpu_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    shape_gemm(c, a, ta, b, tb, beta);
    if (!c.rows || !c.cols)
        return;
    struct tiled t = { .d = d, .p = { .a = a.p, .b = b.p, .c = c.p, .lda = a.ld, .ldb = b.ld, .ldc = c.ld, .m = c.rows,
                                      .n = c.cols, .k = ta ? a.rows : a.cols, .ta = ta, .tb = tb, .beta = (float)beta } };
    cut(&t);
    cpu_for(d, t.nm * t.nn, 2.0 * (double)t.tm * (double)t.tn * (double)t.p.k * NS_PER_FLOP + 1, tile_task, &t);
}

enum side { FWD, DGRAD, WGRAD };

struct grouped {
    const struct dev *d;
    const struct group *g;
    struct mat out, in;         /* [rows][n_out], [rows][n_in] */
    enum side side;
    float beta;
};

static struct tiled product_of(const struct grouped *q, int e)
{
    const struct group *g = q->g;
    int64_t first = g->offsets[e], rows = g->offsets[e + 1] - first;
    float *out = cpu_row(q->out, first), *in = cpu_row(q->in, first), *w = g->w[e];
    struct cpu_product p;

    switch (q->side) {
    case FWD:
        p = (struct cpu_product){ .a = in, .lda = q->in.ld, .b = w, .ldb = g->n_in, .tb = 1, .c = out, .ldc = q->out.ld,
                              .m = rows, .n = g->n_out, .k = g->n_in };
        break;
    case DGRAD:
        p = (struct cpu_product){ .a = out, .lda = q->out.ld, .b = w, .ldb = g->n_in, .c = in, .ldc = q->in.ld,
                              .m = rows, .n = g->n_in, .k = g->n_out };
        break;
    default:
        p = (struct cpu_product){ .a = out, .lda = q->out.ld, .ta = 1, .b = in, .ldb = q->in.ld, .c = w, .ldc = g->n_in,
                              .m = g->n_out, .n = g->n_in, .k = rows };
        break;
    }
    p.beta = q->beta;
    /* Whole tiles: there are enough experts to fill a team. */
    return (struct tiled){ .d = q->d, .p = p, .tm = CPU_GEMM_M, .tn = CPU_GEMM_N,
                           .nm = cpu_ceil(p.m, CPU_GEMM_M), .nn = cpu_ceil(p.n, CPU_GEMM_N) };
}

static void grouped_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct grouped *q = arg;
    int64_t at = 0;

    for (int e = 0; e < q->g->n_experts && at < end; e++) {
        struct tiled t = product_of(q, e);
        int64_t n = t.nm * t.nn;
        for (int64_t i = cpu_max(first - at, 0); i < cpu_min(n, end - at); i++)
            tile(&t, i, thread);
        at += n;
    }
}

static void grouped_run(struct dev *d, const struct grouped *q)
{
    int64_t tiles = 0, rows = 0;

    for (int e = 0; e < q->g->n_experts; e++) {
        BUG_ON(q->g->offsets[e] < 0 || q->g->offsets[e + 1] < q->g->offsets[e] || q->g->offsets[e + 1] > q->out.rows);
        struct tiled t = product_of(q, e);
        tiles += t.nm * t.nn;
        rows += q->g->offsets[e + 1] - q->g->offsets[e];
    }
    double ns = 2.0 * (double)rows * (double)q->g->n_out * (double)q->g->n_in * NS_PER_FLOP;
    cpu_for(d, tiles, tiles ? ns / (double)tiles + 1 : 1, grouped_task, (void *)q);
}

void cpu_group_fwd(struct dev *d, const struct group *g, struct mat y, struct mat x)
{
    shape_group(g, y, x, 0);
    grouped_run(d, &(struct grouped){ .d = d, .g = g, .out = y, .in = x, .side = FWD });
}

void cpu_group_dgrad(struct dev *d, const struct group *g, struct mat dx, struct mat dy, double beta)
{
    shape_group(g, dy, dx, beta);
    grouped_run(d, &(struct grouped){ .d = d, .g = g, .out = dy, .in = dx, .side = DGRAD, .beta = (float)beta });
}

void cpu_group_wgrad(struct dev *d, const struct group *g, struct mat dy, struct mat x, double beta)
{
    shape_group(g, dy, x, beta);
    grouped_run(d, &(struct grouped){ .d = d, .g = g, .out = dy, .in = x, .side = WGRAD, .beta = (float)beta });
}
