/* cpu_blas.c -- the CBLAS, kept to one thread and not trusted.
 *
 * Every call comes from inside our own team, so a BLAS with a pool of its own
 * is told to leave it alone where it has a way to be told.  Some builds choose
 * kernels for a processor they do not know and compute wrongly; a short test
 * at start compares the shapes and transposes we use with plain loops. */
#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "dev/cpu/cpu_ops.h"

/* Present in OpenBLAS only. */
extern void openblas_set_num_threads(int n) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));

const char *cpu_blas_core(void)
{
    return openblas_get_corename ? openblas_get_corename() : "";
}

void cpu_sgemm(_Bool ta, _Bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (!m || !n)
        return;
    if (!k) {
        for (int64_t i = 0; beta == 0 && i < m; i++)
            memset(c + i * ldc, 0, (size_t)n * sizeof *c);
        return;
    }
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k,
                alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

void cpu_ssyrk(_Bool t, int64_t s, int64_t k, float alpha, const float *x, int64_t ldx, float beta, float *c, int64_t ldc)
{
    cblas_ssyrk(CblasRowMajor, CblasLower, t ? CblasTrans : CblasNoTrans, (int)s, (int)k, alpha, x, (int)ldx, beta, c, (int)ldc);
}

/* Small integers over 64: sums are exact in double and far from exact in F32. */
static void fill(float *p, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (float)((int)(seed >> 24) - 128) / 64.0f;
    }
}

struct shape { int m, n, k; };

/* Largest |c - sums| over what K roundings of sums of this size allow. */
static double gemm_error(struct shape s, _Bool ta, _Bool tb, float *buf)
{
    int lda = (ta ? s.m : s.k) + 3, ldb = (tb ? s.k : s.n) + 1, ldc = s.n + 2;
    float *a = buf, *b = a + (int64_t)(ta ? s.k : s.m) * lda, *c = b + (int64_t)(tb ? s.n : s.k) * ldb;
    double worst = 0;

    fill(a, b - a, 1);
    fill(b, c - b, 2);
    fill(c, (int64_t)s.m * ldc, 3);
    cpu_sgemm(ta, tb, s.m, s.n, s.k, 1, a, lda, b, ldb, 1, c, ldc);
    float *c0 = c + (int64_t)s.m * ldc;
    fill(c0, (int64_t)s.m * ldc, 3);
    for (int i = 0; i < s.m; i++)
        for (int j = 0; j < ldc; j++) {
            double sum = (double)c0[i * ldc + j], size = fabs(sum);
            for (int k = 0; j < s.n && k < s.k; k++) {
                double v = (double)(ta ? a[k * lda + i] : a[i * lda + k]) * (double)(tb ? b[j * ldb + k] : b[k * ldb + j]);
                sum += v;
                size += fabs(v);
            }
            double e = fabs((double)c[i * ldc + j] - sum);
            /* Written so that a NaN counts as wrong. */
            if (!(e <= worst * (size * FLT_EPSILON + 1e-30)))
                worst = isnan(e) ? INFINITY : e / (size * FLT_EPSILON + 1e-30);
        }
    return worst / (s.k + 2);
}

static double syrk_error(int s, int k, _Bool t, float *buf)
{
    float *x = buf, *c = x + s * k;
    double worst = 0;

    fill(x, (int64_t)s * k, 4);
    for (int64_t i = 0; i < (int64_t)s * s; i++)
        c[i] = 1;
    cpu_ssyrk(t, s, k, 0.5f, x, t ? s : k, 2, c, s);
    for (int i = 0; i < s; i++)
        for (int j = 0; j < s; j++) {
            double sum = 0, size = 2;
            for (int p = 0; j <= i && p < k; p++) {
                double v = t ? (double)x[p * s + i] * (double)x[p * s + j] : (double)x[i * k + p] * (double)x[j * k + p];
                sum += v;
                size += fabs(v);
            }
            double want = j <= i ? 2 + 0.5 * sum : 1, e = fabs((double)c[i * s + j] - want) / (size * FLT_EPSILON);
            if (!(e <= worst))
                worst = isnan(e) ? INFINITY : e;
        }
    return worst / (k + 2);
}

int cpu_blas_check(void)
{
    /* Small-matrix paths, edges of every kernel, and a K that is split. */
    static const struct shape shapes[] = { { 1, 17, 5 }, { 5, 7, 64 }, { 33, 65, 129 }, { 130, 67, 40 }, { 48, 64, 900 } };
    static _Bool passed;
    double worst = 0;

    if (passed)
        return 0;
    if (openblas_set_num_threads)
        openblas_set_num_threads(1);
    float *buf = calloc(1 << 18, sizeof *buf);
    if (!buf)
        return err_set(ERR_IO, "out of memory");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < 4; t++)
            worst = fmax(worst, gemm_error(shapes[i], t & 1, t >> 1, buf));
    for (int t = 0; t < 2; t++)
        worst = fmax(worst, fmax(syrk_error(65, 129, t, buf), syrk_error(128, 40, t, buf)));
    free(buf);
    if (!(worst <= 1))
        return err_set(ERR_ABSENT, "the CBLAS computes wrongly%s%s (error %.3g times what rounding allows); "
                       "link another one, or name a core with OPENBLAS_CORETYPE",
                       *cpu_blas_core() ? " with the kernels it chose: " : "", cpu_blas_core(), worst);
    passed = 1;
    return 0;
}
