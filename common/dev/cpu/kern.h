/* kern.h -- the table of single-threaded kernels of the cpu device.
 *
 * The same C text (kern_*.inc) is compiled once per instruction set into one
 * table each; cpu_open() takes the widest that the processor runs.  A kernel
 * works on the rows it is handed, starts no thread and keeps no state, so a
 * row's bits depend only on the kernel set, never on how rows were dealt out.
 *
 * Storage is F32.  Matrices of a call have the same number of rows unless
 * stated; operands may alias as dev.h allows. */
#ifndef DEV_CPU_KERN_H
#define DEV_CPU_KERN_H

#include "dev/dev.h"

enum {
    CPU_GEMM_M = 512, CPU_GEMM_N = 256,         /* most rows and columns of one call of gemm */
    CPU_GEMM_K = 256,                           /* part of the inner dimension that is packed at once */
    CPU_GEMM_WS = CPU_GEMM_K * (CPU_GEMM_M + 16 + 64) + 16 * (CPU_GEMM_M / 4 + 1),     /* floats of scratch */
};

struct cpu_kern {
    const char *name;

    /* c[m][n] = sum_k a[i*ras + k*cas] b[k][j] + beta c, any sizes; each sum
     * runs over k in ascending order whatever m and n are. */
    void (*mm)(float *c, int64_t ldc, const float *a, int64_t ras, int64_t cas, const float *b, int64_t ldb,
               int m, int n, int k, int beta);

    /* c[m][n] = op(a) op(b) + beta c, m and n within the limits above; lower:
     * c is square and only its lower triangle is wanted (more is written).
     * The bits of an element depend on k alone. */
    void (*gemm)(float *c, int64_t ldc, const float *a, int64_t lda, _Bool ta, const float *b, int64_t ldb, _Bool tb,
                 int m, int n, int k, int beta, _Bool lower, float *ws);

    /* Flat: n elements. */
    void (*add)(float *y, const float *a, const float *b, int64_t n);
    void (*scale)(float *y, float s, int64_t n);
    void (*axpy)(float *y, float a, const float *x, int64_t n);        /* y += a x */
    void (*axpby)(float *y, float a, const float *x, float b, int64_t n);       /* y = a x + b y */
    void (*scale_to)(float *y, float a, const float *x, int64_t n);    /* y = a x */
    double (*sumsq)(const float *x, int64_t n);
    float (*dot)(const float *x, const float *y, int64_t n);
    void (*swiglu_fwd)(float *h, const float *g, const float *u, int64_t n);
    void (*sigmoid_fwd)(float *y, const float *x, int64_t n);
    void (*sigmoid_bwd)(float *dx, const float *dy, const float *y, int64_t n);
    void (*adamw)(float *w, float *m, float *v, const float *g, int64_t n, const struct adamw *a);
    void (*muon_momentum)(float *u, float *m, const float *g, int64_t n, double g_scale, double mu, _Bool nesterov);
    void (*muon_apply)(float *w, const float *u, int64_t n, double keep, double step);

    /* Row by row. */
    void (*rmsnorm_fwd)(struct mat y, struct mat rstd, struct mat x, struct mat w, double eps);
    /* dw_sum [cols] is added to. */
    void (*rmsnorm_bwd)(struct mat dx, _Bool add_dx, float *dw_sum, struct mat dy, struct mat x, struct mat w, struct mat rstd);
    /* One row: returns sum q h. */
    float (*swiglu_bwd)(float *dgate, float *dup, float *hw, const float *q, const float *gate, const float *up, float w, int64_t n);
    void (*rope)(float *x, int n_heads, int head_dim, int half, const float *cos, const float *sin, float sign);
    /* One row: replaced by e^(x - max) when exp_out, which may be x itself. */
    double (*log_sum_exp)(const float *x, float *exp_out, float *max, double *sum, int64_t n);

    /* Attention, on transposed scores st[n_keys][ldq], n_q of ldq used; lanes
     * are queries.  mask: -inf where a key is below lo or above hi of its query.
     * softmax: running maximum m and sum l [ldq], corr is what
     * the old output is multiplied by; st becomes probabilities. */
    void (*attn_mask)(float *st, int n_keys, int ldq, int32_t first_key, const int32_t *lo, const int32_t *hi);
    void (*attn_softmax)(float *st, int n_keys, int ldq, float *m, float *l, float *corr);
    /* st -> e^(st - lse) in p; ds = p (dp - delta) scale in dp. */
    void (*attn_dscore)(float *p, float *dp, int n_keys, int ldq, const float *lse, const float *delta, float scale);
    /* Upper triangle of a [s][s] from its lower. */
    void (*mirror)(float *a, int64_t lda, int64_t s);
    /* t[cols][rows] = a * x[rows][cols]^T */
    void (*transpose)(float *t, int64_t ldt, const float *x, int64_t ldx, int rows, int cols, float a);
};

/* NULL where this build or processor does not have it. */
const struct cpu_kern *cpu_kern_avx512(void);
const struct cpu_kern *cpu_kern_avx2(void);
const struct cpu_kern *cpu_kern_base(void);

#endif
