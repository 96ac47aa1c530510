/* refcheck.c -- finite differences for the ops of ref. */
#include "refcheck.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 512 };

static void *blocks[MAX_BLOCKS];
static int n_blocks;
static struct dev dev;
static uint64_t state = 1;

void *refcheck_alloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);

    assert_non_null(p);
    assert_true(n_blocks < MAX_BLOCKS);
    blocks[n_blocks++] = p;
    return p;
}

struct dev *refcheck_dev(void)
{
    static const struct dev_limits lim = {
        .max_rows = 64, .max_cols = 64, .n_heads = 8, .head_dim = 16, .ns_rows = 64, .ns_cols = 64,
    };

    if (dev.ops)
        return &dev;
    assert_int_equal(dev_open("ref", NULL, &dev), 0);
    dev.ws_size = dev.ops->ws_bytes(&dev, &lim);
    dev.ws = refcheck_alloc(dev.ws_size, 1);
    memset(dev.ws, 0xff, dev.ws_size);
    return &dev;
}

void refcheck_done(void)
{
    while (n_blocks)
        free(blocks[--n_blocks]);
    dev_close(&dev);
    state = 1;
}

double refcheck_draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-52 - 1;
}

static struct mat new_mat(int64_t rows, int64_t cols)
{
    struct mat m = mat(NULL, DT_F64, rows, cols);

    m.ld = cols + 2;
    m.p = refcheck_alloc((size_t)(rows * m.ld), sizeof(double));
    return m;
}

double *refcheck_at(struct mat m, int64_t r, int64_t c)
{
    return (double *)m.p + r * m.ld + c;
}

struct mat refcheck_mat(int64_t rows, int64_t cols)
{
    struct mat m = new_mat(rows, cols);

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            *refcheck_at(m, r, c) = refcheck_draw();
    return m;
}

struct mat refcheck_zero(int64_t rows, int64_t cols)
{
    return new_mat(rows, cols);
}

struct mat refcheck_nan(int64_t rows, int64_t cols)
{
    struct mat m = new_mat(rows, cols);

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            *refcheck_at(m, r, c) = NAN;
    return m;
}

double refcheck_dot(struct mat a, struct mat b)
{
    double sum = 0;

    assert_true(a.rows == b.rows && a.cols == b.cols);
    for (int64_t r = 0; r < a.rows; r++)
        for (int64_t c = 0; c < a.cols; c++)
            sum += *refcheck_at(a, r, c) * *refcheck_at(b, r, c);
    return sum;
}

void refcheck_near(const char *what, double got, double want, double limit)
{
    if (!(fabs(got - want) <= limit))
        fail_msg("%s: got %.12g, expected %.12g", what, got, want);
}

void refcheck_grad(const char *what, struct mat x, struct mat dx, double (*loss)(void *ctx), void *ctx)
{
    double most = 1;

    assert_true(x.rows == dx.rows && x.cols == dx.cols);
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0; c < x.cols; c++)
            most = fmax(most, fabs(*refcheck_at(dx, r, c)));
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0; c < x.cols; c++) {
            double *at = refcheck_at(x, r, c), old = *at, h = 1e-5, up, down;
            *at = old + h;
            up = loss(ctx);
            *at = old - h;
            down = loss(ctx);
            *at = old;
            if (!(fabs((up - down) / (2 * h) - *refcheck_at(dx, r, c)) <= 1e-6 * most))
                fail_msg("%s[%d][%d]: gradient %.10g, differences %.10g", what, (int)r, (int)c,
                         *refcheck_at(dx, r, c), (up - down) / (2 * h));
        }
}
