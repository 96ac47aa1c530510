/* dev.h -- the operations a step is made of, as one table per device.
 *
 * train/ and model/ are written once, against this table.  `ref` is the
 * specification: plain loops, every sum in double.  Every other device passes
 * the conformance list of tests/conform against it.  `trace` runs no
 * arithmetic and records what was asked, for the memory plan.
 *
 * Conventions
 *  - Matrices are row-major struct mat; [r][c] in a comment gives the shape.
 *  - Element types: a device says which it takes().  ref takes F32,
 *    F64 and BF16 anywhere; with F64 storage it serves finite differences.
 *    "stat" below is the type of statistics, router and loss values: F64 when
 *    the activations are F64, else F32.
 *  - Ops do not fail: operands were planned and checked.  A device error is
 *    sticky and is returned by sync().  Shapes that do not agree are BUG_ON.
 *  - Any count may be 0 (no tokens, an expert without rows): such an op writes
 *    what its formula gives for an empty sum.
 *  - beta is 0 or 1.  With 0 the old content is never read (it may be NaN).
 *  - Results never depend on the thread count.  Nor do they depend on the batch
 *    an item is in, unless cpu was told to leave GEMM to a CBLAS (MOE_GEMM):
 *    a row may then differ in its last bits with the rows of the call.
 *  - Outputs never alias inputs unless the comment says so. */
#ifndef DEV_DEV_H
#define DEV_DEV_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "dev/mat.h"
#include "dev/op.h"

/* What an op may ask of its scratch memory: filled by the trainer from the
 * configuration, answered by ws_bytes() below. */
struct dev_limits {
    int64_t max_rows;           /* tokens, keys or expert rows of any matrix */
    int64_t max_cols;           /* widest matrix of a row-wise op, n_experts included (not the vocabulary) */
    int64_t n_heads, head_dim;
    int64_t ns_rows, ns_cols;   /* newton_schulz: most rows, most cols of any matrix */
};

struct dev_options { int threads; };    /* 0: all that the affinity mask allows */

struct dev {
    const struct dev_ops *ops;
    int threads;
    const char *about;          /* what was chosen at start, "kernels avx512, ..."; NULL: nothing to say */
    void *self;
    void *ws;                   /* scratch of the ops, ws_bytes() long; set by the owner of the plan */
    size_t ws_size;
};

struct dev_ops {
    const char *name;

    /* True if the device computes with this storage type. */
    _Bool (*takes)(enum dtype dt);
    size_t (*ws_bytes)(const struct dev *d, const struct dev_limits *lim);
    int (*sync)(struct dev *d);         /* all ops done; the sticky error, if any */
    void (*close)(struct dev *d);

    /* --- moving ------------------------------------------------------- */
    void (*zero)(struct dev *d, void *p, size_t bytes);
    void (*copy)(struct dev *d, void *dst, const void *src, size_t bytes);
    void (*cast)(struct dev *d, struct mat dst, struct mat src);
    void (*add)(struct dev *d, struct mat y, struct mat a, struct mat b);   /* y = a + b; y may be a */
    void (*scale)(struct dev *d, struct mat y, double s);                   /* y *= s */

    /* --- GEMM ----------------------------------------------------------
     * c = op(a) op(b) + beta c; ta, tb: transposed.  Accumulates in at least
     * F32 over the whole inner dimension, one rounding at the end. */
    void (*gemm)(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta);
    /* y[rows of e] = x[rows of e] w_e^T; x [rows][n_in], y [rows][n_out] */
    void (*group_fwd)(struct dev *d, const struct group *g, struct mat y, struct mat x);
    /* dx[rows of e] = dy[rows of e] w_e + beta dx */
    void (*group_dgrad)(struct dev *d, const struct group *g, struct mat dx, struct mat dy, double beta);
    /* g->w[e] = dy[rows of e]^T x[rows of e] + beta g->w[e] */
    void (*group_wgrad)(struct dev *d, const struct group *g, struct mat dy, struct mat x, double beta);

    /* --- rows ----------------------------------------------------------
     * rmsnorm: y = x * rstd * w, rstd[r] = 1/sqrt(mean(x_r^2) + eps), stat [rows][1].
     * w is [1][cols].  bwd: dx = formula + beta_dx dx; dw = column sums + beta_dw dw. */
    void (*rmsnorm_fwd)(struct dev *d, struct mat y, struct mat rstd, struct mat x, struct mat w, double eps);
    void (*rmsnorm_bwd)(struct dev *d, struct mat dx, double beta_dx, struct mat dw, double beta_dw,
                        struct mat dy, struct mat x, struct mat w, struct mat rstd);
    void (*bias_fwd)(struct dev *d, struct mat y, struct mat b);                /* y += b, b [1][cols] */
    void (*bias_bwd)(struct dev *d, struct mat db, struct mat dy, double beta); /* column sums */
    /* Rotates, in place, the first rot_dim dims of each head by positions[t]:
     * half-split pairs (i, i + rot_dim/2); cos, sin are [n_pos][rot_dim/2] of
     * stat type.  inverse: by the negative angle, which is the backward. */
    void (*rope)(struct dev *d, struct mat x, int n_heads, int head_dim, int rot_dim,
                 struct mat cos, struct mat sin, const int32_t *positions, _Bool inverse);
    void (*attn_fwd)(struct dev *d, const struct attn *a);
    void (*attn_bwd)(struct dev *d, const struct attn *a);
    /* h = silu(gate) * up */
    void (*swiglu_fwd)(struct dev *d, struct mat h, struct mat gate, struct mat up);
    /* Backward of w[r] * (W_down h_r) given q = W_down^T dy (dy unscaled):
     *   dw[r] = sum_j q_rj h_rj;  dh = w q;  hw = w h  (for dW_down += dy^T hw)
     *   dgate, dup from dh.   w, dw stat [rows][1]; w.p NULL: w = 1 and dw unused.
     * dgate may alias gate, dup may alias up, hw may alias q. */
    void (*swiglu_bwd)(struct dev *d, struct mat dgate, struct mat dup, struct mat hw, struct mat dw,
                       struct mat q, struct mat gate, struct mat up, struct mat w);
    void (*sigmoid_fwd)(struct dev *d, struct mat y, struct mat x);
    void (*sigmoid_bwd)(struct dev *d, struct mat dx, struct mat dy, struct mat y);   /* dx = dy y (1 - y); both may work in place */

    /* --- routing ------------------------------------------------------- */
    void (*router_fwd)(struct dev *d, const struct router *r);
    void (*router_bwd)(struct dev *d, const struct router *r);
    void (*route_sort)(struct dev *d, const struct route_map *m);
    /* xs[r] = x[token_of[r]] */
    void (*rows_gather)(struct dev *d, struct mat xs, struct mat x, const int32_t *token_of);
    /* The next three see a window of the sorted rows: ys and wr hold rows first,
     * first + 1, ...; slots whose row lies outside take no part.
     * y[t] = beta y[t] + sum over slots s of w[t][s] ys[row_of[t][s] - first],
     * added in slot order in at least F32.  w.p NULL: weights are 1.  row_of
     * NULL: k = 1 and row t itself. */
    void (*rows_combine)(struct dev *d, struct mat y, struct mat ys, struct mat w, const int32_t *row_of,
                         int64_t first, int top_k, double beta);
    /* wr[row_of[t][s] - first] = w[t][s], and back */
    void (*slots_to_rows)(struct dev *d, struct mat wr, struct mat w, const int32_t *row_of, int64_t first);
    void (*rows_to_slots)(struct dev *d, struct mat w, struct mat wr, const int32_t *row_of, int64_t first);

    /* --- ends ---------------------------------------------------------- */
    void (*embed_fwd)(struct dev *d, struct mat y, struct mat table, const int32_t *ids);
    /* dtable[ids[t]] += dy[t] in token order; beta 0 clears the table first */
    void (*embed_bwd)(struct dev *d, struct mat dtable, struct mat dy, const int32_t *ids, double beta);
    /* nll[r] = -log softmax(logits_r)[targets[r]], 0 where the target is -1.
     * want_grad: logits become scale * (softmax - onehot), 0 where -1. */
    void (*xent)(struct dev *d, double *nll, struct mat logits, const int32_t *targets, double scale, _Bool want_grad);
    /* *out += sum of x, in blocks of 4096 added in ascending order */
    void (*sum)(struct dev *d, double *out, const double *x, int64_t n);

    /* --- optimizer ------------------------------------------------------
     * *out += sum of squares in double: row blocks of 64 rows, added in order. */
    void (*sumsq)(struct dev *d, double *out, struct mat g);
    /* torch.optim.AdamW: w *= 1 - lr decay; m, v lerp; w -= lr mhat/(sqrt(vhat)+eps) */
    void (*adamw)(struct dev *d, const struct adamw *a);
    /* m = mu m + (1-mu) s g; u = nesterov ? (1-mu) s g + mu m : m; s = g_scale.
     * u may be g. */
    void (*muon_momentum)(struct dev *d, struct mat u, struct mat m, struct mat g, double g_scale, double mu, _Bool nesterov);
    /* Orthogonalises n matrices of one shape (each with its own ld) in place:
     * divided by max(Frobenius norm, eps), transposed when rows > cols (and
     * back), step i with coef[i] for i < n_steps.  A zero matrix stays zero. */
    void (*newton_schulz)(struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps, double eps);
    /* w = w (1 - lr decay) - lr ratio u */
    void (*muon_apply)(struct dev *d, struct mat w, struct mat u, double lr, double ratio, double decay);
};

/* Devices by name: "ref", "cpu".  ERR_ABSENT for one that is not built in.
 * o may be NULL for the defaults. */
int dev_open(const char *name, const struct dev_options *o, struct dev *out);
void dev_close(struct dev *d);

/* Names of the devices built in, NULL-terminated.  "ref" comes first. */
const char *const *dev_names(void);

/* Statistics type that goes with an activation type. */
static inline enum dtype dev_stat(enum dtype dt) { return dt == DT_F64 ? DT_F64 : DT_F32; }

#endif
