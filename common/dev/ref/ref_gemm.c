/* ref_gemm.c -- matrix products, whole and by expert.
 *
 * Tiles are converted to double once and summed in ascending inner index, so
 * an element's bits depend on its row of a and its column of b only. */
#include <string.h>

#include "base/err.h"
#include "dev/ref/ref_elem.h"
#include "dev/ref/ref_ops.h"
#include "dev/shape.h"

enum { TILE = 64, STRIP = 8 };

static int64_t tile(int64_t at, int64_t n)
{
    return n - at < TILE ? n - at : TILE;
}

/* dst[r][c] = op(m)[r0 + r][c0 + c] */
static void load_tile(double dst[TILE][TILE], struct mat m, _Bool t, int64_t r0, int64_t nr, int64_t c0, int64_t nc)
{
    double run[TILE];

    if (!t) {
        for (int64_t r = 0; r < nr; r++)
            ref_load(dst[r], m, r0 + r, c0, nc);
        return;
    }
    for (int64_t c = 0; c < nc; c++) {
        ref_load(run, m, c0 + c, r0, nr);
        for (int64_t r = 0; r < nr; r++)
            dst[r][c] = run[r];
    }
}

void ref_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    static const double zeros[TILE][TILE];
    double acc[TILE][TILE], at[TILE][TILE], bt[TILE][TILE], old[TILE];
    int64_t k = ta ? a.rows : a.cols;

    (void)d;
    shape_gemm(c, a, ta, b, tb, beta);
    memcpy(bt, zeros, sizeof bt);       /* strips read past a narrow tile */
    for (int64_t i0 = 0; i0 < c.rows; i0 += TILE)
        for (int64_t j0 = 0; j0 < c.cols; j0 += TILE) {
            int64_t ni = tile(i0, c.rows), nj = tile(j0, c.cols);
            memcpy(acc, zeros, sizeof acc);
            for (int64_t k0 = 0; k0 < k; k0 += TILE) {
                int64_t nk = tile(k0, k);
                load_tile(at, a, ta, i0, ni, k0, nk);
                load_tile(bt, b, tb, k0, nk, j0, nj);
                for (int64_t i = 0; i < ni; i++)
                    for (int64_t l = 0; l < nk; l++)
                        for (int64_t j = 0; j < nj; j += STRIP)
                            for (int u = 0; u < STRIP; u++)
                                acc[i][j + u] += at[i][l] * bt[l][j + u];
            }
            for (int64_t i = 0; i < ni; i++) {
                if (beta != 0) {
                    ref_load(old, c, i0 + i, j0, nj);
                    for (int64_t j = 0; j < nj; j++)
                        acc[i][j] += old[j];
                }
                ref_store(c, i0 + i, j0, nj, acc[i]);
            }
        }
}

static struct mat expert_rows(const struct group *g, struct mat m, int e)
{
    int64_t first = g->offsets[e], end = g->offsets[e + 1];

    BUG_ON(first < 0 || end < first || end > m.rows);
    return mat_rows(m, first, end - first);
}

static struct mat expert_weight(const struct group *g, int e)
{
    return mat(g->w[e], g->w_dt, g->n_out, g->n_in);
}

void ref_group_fwd(struct dev *d, const struct group *g, struct mat y, struct mat x)
{
    shape_group(g, y, x, 0);
    for (int e = 0; e < g->n_experts; e++)
        ref_gemm(d, expert_rows(g, y, e), expert_rows(g, x, e), 0, expert_weight(g, e), 1, 0);
}

void ref_group_dgrad(struct dev *d, const struct group *g, struct mat dx, struct mat dy, double beta)
{
    shape_group(g, dy, dx, beta);
    for (int e = 0; e < g->n_experts; e++)
        ref_gemm(d, expert_rows(g, dx, e), expert_rows(g, dy, e), 0, expert_weight(g, e), 0, beta);
}

void ref_group_wgrad(struct dev *d, const struct group *g, struct mat dy, struct mat x, double beta)
{
    shape_group(g, dy, x, beta);
    for (int e = 0; e < g->n_experts; e++)
        ref_gemm(d, expert_weight(g, e), expert_rows(g, dy, e), 1, expert_rows(g, x, e), 0, beta);
}
