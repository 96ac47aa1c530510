/* cpu_gemm.c -- matrix products as tiles of the result, one BLAS call each.
 *
 * A tile spans the whole inner dimension, and the cut depends on the shape of
 * the call alone: which thread computes a tile changes no bit.  A BLAS may
 * choose another kernel for a call of a few rows, so a row's bits can depend
 * on how many rows its call has; dev.h says so. */
#include "base/err.h"
#include "dev/cpu/cpu_ops.h"
#include "dev/shape.h"

enum { TILE_MAX = 256, TILE_MIN = 64, TILES_WANTED = 16 };
#define NS_PER_FLOP 0.01

struct cut { int64_t tm, tn, nm, nn; };

/* Tiles of 256 x 256 keep OpenBLAS within a few percent of its best and
 * operands in the second-level cache; smaller results are cut finer so that
 * there is work for a team. */
static struct cut cut_of(int64_t m, int64_t n)
{
    struct cut c = { cpu_min(m, TILE_MAX), cpu_min(n, TILE_MAX), 0, 0 };

    while (cpu_ceil(m, c.tm) * cpu_ceil(n, c.tn) < TILES_WANTED) {
        int64_t *t = c.tm >= c.tn ? &c.tm : &c.tn;
        if (*t < 2 * TILE_MIN)
            break;
        *t = cpu_ceil(*t / 2, 16) * 16;
    }
    c.nm = cpu_ceil(m, c.tm);
    c.nn = cpu_ceil(n, c.tn);
    return c;
}

struct product {
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc, m, n, k;
    _Bool ta, tb;
    float beta;
    struct cut cut;
};

static void product_tile(const struct product *p, int64_t i)
{
    int64_t r = i / p->cut.nn * p->cut.tm, c = i % p->cut.nn * p->cut.tn;

    cpu_sgemm(p->ta, p->tb, cpu_min(p->cut.tm, p->m - r), cpu_min(p->cut.tn, p->n - c), p->k, 1,
              p->ta ? p->a + r : p->a + r * p->lda, p->lda, p->tb ? p->b + c * p->ldb : p->b + c, p->ldb,
              p->beta, p->c + r * p->ldc + c, p->ldc);
}

static void product_task(void *arg, int64_t first, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = first; i < end; i++)
        product_tile(arg, i);
}

void cpu_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    shape_gemm(c, a, ta, b, tb, beta);
    if (!c.rows || !c.cols)
        return;
    struct product p = {
        .a = a.p, .b = b.p, .c = c.p, .lda = a.ld, .ldb = b.ld, .ldc = c.ld,
        .m = c.rows, .n = c.cols, .k = ta ? a.rows : a.cols, .ta = ta, .tb = tb,
        .beta = (float)beta, .cut = cut_of(c.rows, c.cols),
    };
    cpu_for(d, p.cut.nm * p.cut.nn, 2.0 * (double)p.cut.tm * (double)p.cut.tn * (double)p.k * NS_PER_FLOP, product_task, &p);
}

enum side { FWD, DGRAD, WGRAD };

struct grouped {
    const struct group *g;
    struct mat out, in;         /* [rows][n_out], [rows][n_in] */
    enum side side;
    float beta;
};

static struct product product_of(const struct grouped *q, int e)
{
    const struct group *g = q->g;
    int64_t first = g->offsets[e], rows = g->offsets[e + 1] - first;
    float *out = cpu_row(q->out, first), *in = cpu_row(q->in, first), *w = g->w[e];
    struct product p;

    switch (q->side) {
    case FWD:
        p = (struct product){ .a = in, .lda = q->in.ld, .b = w, .ldb = g->n_in, .tb = 1, .c = out, .ldc = q->out.ld,
                              .m = rows, .n = g->n_out, .k = g->n_in };
        break;
    case DGRAD:
        p = (struct product){ .a = out, .lda = q->out.ld, .b = w, .ldb = g->n_in, .c = in, .ldc = q->in.ld,
                              .m = rows, .n = g->n_in, .k = g->n_out };
        break;
    default:
        p = (struct product){ .a = out, .lda = q->out.ld, .ta = 1, .b = in, .ldb = q->in.ld, .c = w, .ldc = g->n_in,
                              .m = g->n_out, .n = g->n_in, .k = rows };
        break;
    }
    p.beta = q->beta;
    /* Whole tiles: there are enough experts to fill a team. */
    p.cut = (struct cut){ TILE_MAX, TILE_MAX, cpu_ceil(p.m, TILE_MAX), cpu_ceil(p.n, TILE_MAX) };
    return p;
}

static void grouped_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct grouped *q = arg;
    int64_t at = 0;

    (void)thread;
    for (int e = 0; e < q->g->n_experts && at < end; e++) {
        struct product p = product_of(q, e);
        int64_t n = p.cut.nm * p.cut.nn;
        for (int64_t i = cpu_max(first - at, 0); i < cpu_min(n, end - at); i++)
            product_tile(&p, i);
        at += n;
    }
}

static void grouped_run(struct dev *d, const struct grouped *q)
{
    int64_t tiles = 0, rows = 0;

    for (int e = 0; e < q->g->n_experts; e++) {
        struct product p = product_of(q, e);
        BUG_ON(q->g->offsets[e] < 0 || q->g->offsets[e + 1] < q->g->offsets[e] || q->g->offsets[e + 1] > q->out.rows);
        tiles += p.cut.nm * p.cut.nn;
        rows += q->g->offsets[e + 1] - q->g->offsets[e];
    }
    double ns = 2.0 * (double)rows * (double)q->g->n_out * (double)q->g->n_in * NS_PER_FLOP;
    cpu_for(d, tiles, tiles ? ns / (double)tiles + 1 : 1, grouped_task, (void *)q);
}

void cpu_group_fwd(struct dev *d, const struct group *g, struct mat y, struct mat x)
{
    shape_group(g, y, x, 0);
    grouped_run(d, &(struct grouped){ .g = g, .out = y, .in = x, .side = FWD });
}

void cpu_group_dgrad(struct dev *d, const struct group *g, struct mat dx, struct mat dy, double beta)
{
    shape_group(g, dy, dx, beta);
    grouped_run(d, &(struct grouped){ .g = g, .out = dy, .in = dx, .side = DGRAD, .beta = (float)beta });
}

void cpu_group_wgrad(struct dev *d, const struct group *g, struct mat dy, struct mat x, double beta)
{
    shape_group(g, dy, x, beta);
    grouped_run(d, &(struct grouped){ .g = g, .out = dy, .in = x, .side = WGRAD, .beta = (float)beta });
}
