/* cpu_blas.c -- the CBLAS, kept to one thread and not trusted.
 *
 * Our own products are the default: on AVX-512 they are 15 to 60 % faster than
 * OpenBLAS 0.3.21, and a row's bits do not depend on its neighbours.  A CBLAS
 * can be asked for (MOE_GEMM=cblas) to compare, or where it is faster.
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

void cpu_blas_product(const struct cpu_product *p)
{
    if (!p->m || !p->n)
        return;
    if (!p->k) {
        for (int64_t i = 0; p->beta == 0 && i < p->m; i++)
            memset(p->c + i * p->ldc, 0, (size_t)p->n * sizeof *p->c);
        return;
    }
    if (p->lower && p->a == p->b && p->ta != p->tb)
        cblas_ssyrk(CblasRowMajor, CblasLower, p->ta ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->k, 1, p->a, (int)p->lda,
                    p->beta, p->c, (int)p->ldc);
    else
        cblas_sgemm(CblasRowMajor, p->ta ? CblasTrans : CblasNoTrans, p->tb ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n,
                    (int)p->k, 1, p->a, (int)p->lda, p->b, (int)p->ldb, p->beta, p->c, (int)p->ldc);
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
    cpu_blas_product(&(struct cpu_product){ .a = a, .b = b, .c = c, .lda = lda, .ldb = ldb, .ldc = ldc, .m = s.m, .n = s.n,
                                            .k = s.k, .ta = ta, .tb = tb, .beta = 1 });
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
    cpu_blas_product(&(struct cpu_product){ .a = x, .b = x, .c = c, .lda = t ? s : k, .ldb = t ? s : k, .ldc = s, .m = s, .n = s,
                                            .k = k, .ta = t, .tb = !t, .lower = 1, .beta = 1 });
    for (int i = 0; i < s; i++)
        for (int j = 0; j < s; j++) {
            double sum = 0, size = 1;
            for (int p = 0; j <= i && p < k; p++) {
                double v = t ? (double)x[p * s + i] * (double)x[p * s + j] : (double)x[i * k + p] * (double)x[j * k + p];
                sum += v;
                size += fabs(v);
            }
            double want = j <= i ? 1 + sum : 1, e = fabs((double)c[i * s + j] - want) / (size * FLT_EPSILON);
            if (!(e <= worst))
                worst = isnan(e) ? INFINITY : e;
        }
    return worst / (k + 2);
}

/* The team calls at once with the same operands; every result must be that of
 * one call.  A library that was built for one thread may share its buffers
 * between callers. */
enum { SIDE = 96, ROUNDS = 64 };

struct crowd { const float *a, *want; float *c; _Bool *wrong; };

static void crowd_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct crowd *w = arg;
    float *c = w->c + (int64_t)thread * SIDE * SIDE;

    for (int64_t i = first; i < end; i++) {
        cpu_blas_product(&(struct cpu_product){ .a = w->a, .b = w->a, .c = c, .lda = SIDE, .ldb = SIDE, .ldc = SIDE,
                                                .m = SIDE, .n = SIDE, .k = SIDE, .tb = 1 });
        if (memcmp(c, w->want, sizeof *c * SIDE * SIDE) != 0)
            w->wrong[thread] = 1;
    }
}

static int crowd_check(const struct dev *d)
{
    size_t n = SIDE * SIDE, threads = (size_t)d->threads;
    float *buf = calloc(n * (2 + threads), sizeof *buf);
    _Bool *wrong = calloc(threads, sizeof *wrong), any = 0;

    if (buf && wrong) {
        fill(buf, (int64_t)n, 5);
        crowd_task(&(struct crowd){ buf, buf, buf + n, wrong }, 0, 1, 0);
        wrong[0] = 0;
        cpu_for(d, ROUNDS * (int64_t)threads, 20e3, crowd_task, &(struct crowd){ buf, buf + n, buf + 2 * n, wrong });
        for (size_t i = 0; i < threads; i++)
            any |= wrong[i];
    }
    _Bool ok = buf && wrong;
    free(wrong);
    free(buf);
    if (!ok)
        return err_set(ERR_IO, "out of memory");
    if (any)
        return err_set(ERR_ABSENT, "the CBLAS gives wrong results when several threads call it at once; "
                       "link one that is safe for threads (Debian: libopenblas0-openmp)");
    return 0;
}

int cpu_blas_check(const struct dev *d)
{
    /* Small-matrix paths, edges of every kernel, and a K that is split. */
    static const struct shape shapes[] = { { 1, 17, 5 }, { 5, 7, 64 }, { 33, 65, 129 }, { 130, 67, 40 }, { 48, 64, 900 } };
    static _Bool passed;
    double worst = 0;

    if (passed)
        return crowd_check(d);
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
    return crowd_check(d);
}
