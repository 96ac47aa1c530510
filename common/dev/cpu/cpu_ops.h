/* cpu_ops.h -- the inside of the cpu device: state, the team, the entries of
 * its op table.  Private to dev/cpu; contracts of the ops are in dev/dev.h. */
#ifndef DEV_CPU_CPU_OPS_H
#define DEV_CPU_CPU_OPS_H

#include "dev/cpu/kern.h"
#include "dev/dev.h"

enum {
    CPU_PARTS = 64,             /* parts of a column sum over rows */
    CPU_SUMS = 1024,            /* block sums kept at once */
};

struct cpu_team;

struct cpu {
    const struct cpu_kern *kern;
    struct cpu_team *team;
    _Bool blas;                 /* products go to the CBLAS */
    float *pack;                /* [threads][CPU_GEMM_WS], for our own */
    double sums[CPU_SUMS];      /* of sumsq */
    char about[96];
};

static inline const struct cpu_kern *cpu_kern(const struct dev *d)
{
    return ((const struct cpu *)d->self)->kern;
}

static inline int64_t cpu_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t cpu_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t cpu_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline float *cpu_row(struct mat m, int64_t r) { return (float *)m.p + r * m.ld; }

/* Runs fn over [0, n) in pieces on the team, or at once in the caller when the
 * whole is not worth a fork.  ns: rough nanoseconds of one item.  How [0, n) is
 * cut up depends on the team, so fn's results must not depend on first and end. */
typedef void (*cpu_task)(void *arg, int64_t first, int64_t end, int thread);
void cpu_for(const struct dev *d, int64_t n, double ns, cpu_task fn, void *arg);

/* The team itself: fn over [0, n) in about so many pieces; returns when all are done. */
int cpu_team_open(int threads, struct cpu_team **out);
void cpu_team_close(struct cpu_team *t);        /* NULL is accepted */
void cpu_team_run(struct cpu_team *t, int64_t n, int64_t pieces, cpu_task fn, void *arg);

/* c[m][n] = op(a) op(b) + beta c on one thread, within the limits of kern.h.
 * lower: a square of which only the lower triangle is wanted. */
struct cpu_product {
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc, m, n, k;
    _Bool ta, tb, lower;
    float beta;
};
void cpu_product(const struct dev *d, const struct cpu_product *p, int thread);

/* The same with the CBLAS. */
void cpu_blas_product(const struct cpu_product *p);
/* ERR_ABSENT when the CBLAS is wrong, alone or called by the team at once. */
int cpu_blas_check(const struct dev *d);
const char *cpu_blas_core(void);        /* "" when the library does not tell */

size_t cpu_attn_ws(const struct dev *d, const struct dev_limits *lim);
size_t cpu_router_ws(const struct dev *d, const struct dev_limits *lim);
size_t cpu_ns_ws(const struct dev *d, const struct dev_limits *lim);

void cpu_zero(struct dev *d, void *p, size_t bytes);
void cpu_copy(struct dev *d, void *dst, const void *src, size_t bytes);
void cpu_cast(struct dev *d, struct mat dst, struct mat src);
void cpu_add(struct dev *d, struct mat y, struct mat a, struct mat b);
void cpu_scale(struct dev *d, struct mat y, double s);

void cpu_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta);
void cpu_group_fwd(struct dev *d, const struct group *g, struct mat y, struct mat x);
void cpu_group_dgrad(struct dev *d, const struct group *g, struct mat dx, struct mat dy, double beta);
void cpu_group_wgrad(struct dev *d, const struct group *g, struct mat dy, struct mat x, double beta);

void cpu_rmsnorm_fwd(struct dev *d, struct mat y, struct mat rstd, struct mat x, struct mat w, double eps);
void cpu_rmsnorm_bwd(struct dev *d, struct mat dx, double beta_dx, struct mat dw, double beta_dw,
                     struct mat dy, struct mat x, struct mat w, struct mat rstd);
void cpu_bias_fwd(struct dev *d, struct mat y, struct mat b);
void cpu_bias_bwd(struct dev *d, struct mat db, struct mat dy, double beta);
void cpu_rope(struct dev *d, struct mat x, int n_heads, int head_dim, int rot_dim,
              struct mat cos, struct mat sin, const int32_t *positions, _Bool inverse);
void cpu_attn_fwd(struct dev *d, const struct attn *a);
void cpu_attn_bwd(struct dev *d, const struct attn *a);
void cpu_swiglu_fwd(struct dev *d, struct mat h, struct mat gate, struct mat up);
void cpu_swiglu_bwd(struct dev *d, struct mat dgate, struct mat dup, struct mat hw, struct mat dw,
                    struct mat q, struct mat gate, struct mat up, struct mat w);
void cpu_sigmoid_fwd(struct dev *d, struct mat y, struct mat x);
void cpu_sigmoid_bwd(struct dev *d, struct mat dx, struct mat dy, struct mat y);

void cpu_router_fwd(struct dev *d, const struct router *r);
void cpu_router_bwd(struct dev *d, const struct router *r);
void cpu_route_sort(struct dev *d, const struct route_map *m);
void cpu_rows_gather(struct dev *d, struct mat xs, struct mat x, const int32_t *token_of);
void cpu_rows_combine(struct dev *d, struct mat y, struct mat ys, struct mat w, const int32_t *row_of, int64_t first, int top_k, double beta);
void cpu_slots_to_rows(struct dev *d, struct mat wr, struct mat w, const int32_t *row_of, int64_t first);
void cpu_rows_to_slots(struct dev *d, struct mat w, struct mat wr, const int32_t *row_of, int64_t first);

void cpu_embed_fwd(struct dev *d, struct mat y, struct mat table, const int32_t *ids);
void cpu_embed_bwd(struct dev *d, struct mat dtable, struct mat dy, const int32_t *ids, double beta);
void cpu_xent(struct dev *d, double *nll, struct mat logits, const int32_t *targets, double scale, _Bool want_grad);
void cpu_sum(struct dev *d, double *out, const double *x, int64_t n);

void cpu_sumsq(struct dev *d, double *out, struct mat g);
void cpu_adamw(struct dev *d, const struct adamw *a);
void cpu_muon_momentum(struct dev *d, struct mat u, struct mat m, struct mat g, double g_scale, double mu, _Bool nesterov);
void cpu_newton_schulz(struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps, double eps);
void cpu_muon_apply(struct dev *d, struct mat w, struct mat u, double lr, double ratio, double decay);

#endif
