/* cpu_ns.c -- Newton-Schulz on many matrices or on large ones.
 *
 * With s the shorter side: g = x x^T is symmetric, so is g g^T, and only their
 * lower triangles are computed; a x + (b g + c g^2) x is one product, with a
 * added to the diagonal.  A tall matrix uses x^T x and multiplies from the
 * right, so nothing is transposed.
 *
 * Every product is cut into fixed tiles.  Small matrices go one to a thread,
 * large or few ones are shared by the team, tile by tile; since the tiles are
 * the same, so are the bits. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "dev/cpu/cpu_ops.h"
#include "dev/shape.h"

enum { TILE = 256, ALONE_MAX = 1 << 20 };       /* elements of a matrix that one thread takes whole */

struct ns {
    const struct dev *d;
    _Bool shared;               /* tiles go to the team; else this thread does all */
    int thread;
    const struct cpu_kern *k;
    _Bool tall;
    int64_t rows, cols, s, l;
    float *x, *y;               /* [rows][cols] */
    float *g, *p;               /* [s][s]: x x^T, the polynomial */
    struct ns_coef coef;
};

static size_t ns_floats(int64_t rows, int64_t cols)
{
    int64_t s = cpu_min(rows, cols);

    return (size_t)(cpu_ceil(2 * rows * cols + 2 * s * s, 16) * 16);
}

size_t cpu_ns_ws(const struct dev *d, const struct dev_limits *lim)
{
    size_t one = ns_floats(lim->ns_rows, lim->ns_cols), alone = one;

    /* What a matrix of ALONE_MAX elements within these limits needs at most. */
    if (alone > 4 * (size_t)ALONE_MAX)
        alone = 4 * (size_t)ALONE_MAX;
    alone *= (size_t)d->threads;
    return (one > alone ? one : alone) * sizeof(float);
}

static void run(const struct ns *n, int64_t tiles, double flops, cpu_task fn)
{
    if (n->shared)
        cpu_for(n->d, tiles, flops / (double)tiles * 0.01 + 1, fn, (void *)n);
    else
        fn((void *)n, 0, tiles, n->thread);
}

/* The i-th tile of a lower triangle: row i of tiles has i + 1. */
static void triangle(int64_t i, int64_t *r, int64_t *c)
{
    *r = 0;
    while (i > *r) {
        i -= *r + 1;
        ++*r;
    }
    *c = i;
}

/* A tile of x x^T (x^T x when trans); its mirror image, too, once it was
 * turned into b g + c g^2 where poly says so. */
static void symmetric_tile(const struct ns *n, int64_t i, const float *x, int64_t ldx, int64_t k, _Bool trans, _Bool poly,
                           float *out, int thread)
{
    int64_t r, c, s = n->s;

    triangle(i, &r, &c);
    r *= TILE;
    c *= TILE;
    int64_t nr = cpu_min(TILE, s - r), nc = cpu_min(TILE, s - c);
    float *o = out + r * s + c;
    cpu_product(n->d, &(struct cpu_product){
        .a = trans ? x + r : x + r * ldx, .lda = ldx, .ta = trans, .b = trans ? x + c : x + c * ldx, .ldb = ldx, .tb = !trans,
        .c = o, .ldc = s, .m = nr, .n = nc, .k = k, .lower = r == c }, thread);
    for (int64_t j = 0; poly && j < nr; j++) {
        n->k->axpby(o + j * s, (float)n->coef.b, n->g + (r + j) * s + c, (float)n->coef.c, r == c ? j + 1 : nc);
        if (r == c)
            o[j * s + j] += (float)n->coef.a;
    }
    if (r == c)
        n->k->mirror(o, s, nr);
    else
        n->k->transpose(out + c * s + r, s, o, s, (int)nr, (int)nc, 1);
}

static void gram_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct ns *n = arg;

    for (int64_t i = first; i < end; i++)
        symmetric_tile(n, i, n->x, n->cols, n->l, n->tall, 0, n->g, thread);
}

static void polynomial_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct ns *n = arg;

    for (int64_t i = first; i < end; i++)
        symmetric_tile(n, i, n->g, n->s, n->s, 0, 1, n->p, thread);
}

static void apply_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct ns *n = arg;
    int64_t across = cpu_ceil(n->cols, TILE), rows = n->rows, cols = n->cols, s = n->s;

    for (int64_t i = first; i < end; i++) {
        int64_t r = i / across * TILE, c = i % across * TILE;
        cpu_product(n->d, &(struct cpu_product){
            .a = n->tall ? n->x + r * cols : n->p + r * s, .lda = n->tall ? cols : s,
            .b = n->tall ? n->p + c : n->x + c, .ldb = n->tall ? s : cols,
            .c = n->y + r * cols + c, .ldc = cols, .m = cpu_min(TILE, rows - r), .n = cpu_min(TILE, cols - c), .k = s }, thread);
    }
}

static void orthogonalise(struct ns *n, struct mat m, const struct ns_coef *coef, int n_steps, double eps)
{
    int64_t st = cpu_ceil(n->s, TILE), triangle_tiles = st * (st + 1) / 2;
    int64_t tiles = cpu_ceil(n->rows, TILE) * cpu_ceil(n->cols, TILE);
    double norm = 0, s = (double)n->s, l = (double)n->l;

    for (int64_t r = 0; r < n->rows; r++)
        norm += n->k->sumsq(cpu_row(m, r), n->cols);
    norm = sqrt(norm);
    if (norm < eps)
        norm = eps;
    /* Dividing by a tiny norm in F32 could overflow where the quotient does
     * not: a matrix of subnormals is scaled up first. */
    double up = norm > 0 && norm < 1e-30 ? 0x1p80 : 1;
    float inv = norm > 0 ? (float)(1 / (norm * up)) : 1;
    for (int64_t r = 0; r < n->rows; r++) {
        float *x = n->x + r * n->cols;
        n->k->scale_to(x, (float)up, cpu_row(m, r), n->cols);
        n->k->scale(x, inv, n->cols);
    }
    for (int i = 0; i < n_steps; i++) {
        float *x = n->x;
        n->coef = coef[i];
        run(n, triangle_tiles, s * s * l, gram_task);
        run(n, triangle_tiles, s * s * s, polynomial_task);
        run(n, tiles, 2 * s * s * l, apply_task);
        n->x = n->y;
        n->y = x;
    }
    for (int64_t r = 0; r < n->rows; r++)
        memcpy(cpu_row(m, r), n->x + r * n->cols, (size_t)n->cols * sizeof(float));
}

struct batch {
    struct dev *d;
    const struct mat *x;
    const struct ns_coef *coef;
    int n_steps;
    double eps;
    _Bool shared;               /* the team works on one matrix at a time */
};

static void batch_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct batch *b = arg;
    int64_t rows = b->x[0].rows, cols = b->x[0].cols, s = cpu_min(rows, cols);
    float *at = (float *)b->d->ws + (int64_t)ns_floats(rows, cols) * thread;

    for (int64_t i = first; i < end; i++) {
        struct ns n = { .d = b->d, .shared = b->shared, .thread = thread, .k = cpu_kern(b->d), .tall = rows > cols,
                        .rows = rows, .cols = cols, .s = s, .l = rows + cols - s,
                        .x = at, .y = at + rows * cols, .g = at + 2 * rows * cols, .p = at + 2 * rows * cols + s * s };
        orthogonalise(&n, b->x[i], b->coef, b->n_steps, b->eps);
    }
}

void cpu_newton_schulz(struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps, double eps)
{
    shape_newton_schulz(x, n, coef, n_steps);
    if (!n || !x[0].rows || !x[0].cols)
        return;
    double rows = (double)x[0].rows, cols = (double)x[0].cols, s = fmin(rows, cols);
    struct batch b = { .d = d, .x = x, .coef = coef, .n_steps = n_steps, .eps = eps,
                       .shared = n < d->threads || rows * cols > ALONE_MAX };

    BUG_ON(d->ws_size < ns_floats(x[0].rows, x[0].cols) * sizeof(float) * (size_t)(b.shared ? 1 : d->threads));
    if (b.shared)
        batch_task(&b, 0, n, 0);
    else
        cpu_for(d, n, 0.01 * n_steps * (3 * s * rows * cols + s * s * s) + 100, batch_task, &b);
}
