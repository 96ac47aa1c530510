/* op.h -- the operands of those ops that take more than a few matrices, with
 * what the ops mean.  Conventions (stat, beta, aliasing): dev/dev.h. */
#ifndef DEV_OP_H
#define DEV_OP_H

#include <stdint.h>

#include "base/dtype.h"
#include "dev/mat.h"

/* Attention inside documents.  Query i (row i of q) stands at key position
 * j0 + i where j0 = n_keys - n_queries, and sees keys doc_start[i] .. j0 + i.
 * Head h reads key/value head h / (n_heads / n_kv_heads).
 *   s = scale * q k^T, p = softmax(s), o = p v, lse = log sum exp(s)
 * Backward is given o and lse as forward wrote them and may read them.
 * Never stores anything of size queries x keys. */
struct attn {
    struct mat q, k, v, o;      /* [nq][n_heads*head_dim], [nk][n_kv_heads*head_dim] x2, [nq][n_heads*head_dim] */
    struct mat lse;             /* stat [nq][n_heads] */
    const int32_t *doc_start;   /* [nq], key index; non-decreasing within a document run */
    int n_heads, n_kv_heads, head_dim;
    double scale;
    struct mat do_, dq, dk, dv; /* backward only; dq dk dv are written, not accumulated */
};

enum scoring { SCORING_SOFTMAX, SCORING_SIGMOID };

/* Router of one layer for n tokens.  Scores are softmax over all experts or
 * sigmoid, in stat precision.  Selection: by score + bias; with n_group > 1
 * the group score is the sum of the two best biased scores (the best one for a
 * group of a single expert), the topk_group best groups stay, the others
 * count as 0.0 (as transformers has it).  Ties go to the lower index; idx is
 * in descending order of selection score, ties by index.
 * Weights: the unbiased scores of the chosen; with norm_topk divided by their
 * sum (+ 1e-20 for sigmoid); times routed_scale.  topk_softmax (mixtral) is
 * the same as SCORING_SOFTMAX with norm_topk.
 * forced: idx is an input (replayed routing) and only weights are computed.
 * bwd: d loss / d logits from d loss / d w, through the chosen only, plus the
 * balance and z losses:
 *   aux: per sequence s of seq_len tokens with T_s valid ones, c_i chosen
 *        slots of expert i among its valid tokens, p = scores (sigmoid scores
 *        are divided by their sum over experts):
 *        aux_sum += E/(k T_s) sum_i c_i sum_{t valid} p_ti
 *        With frac != NULL (scope batch) c_i/(k T_s) is replaced by frac[i].
 *        seq_len is read only when aux is wanted; the last sequence may be shorter.
 *   z:   z_sum += sum_{t valid} logsumexp(logits_t)^2
 * Both sums are added to (double); gradients are aux_scale and z_scale times
 * those of the sums.  Formulas: moe-formats(5); Switch Transformers
 * (arXiv 2101.03961), ST-MoE (2202.08906), DeepSeek-V3 (2412.19437). */
struct router {
    enum scoring scoring;
    int n_experts, top_k, n_group, topk_group;
    _Bool norm_topk, forced;
    double routed_scale;
    int64_t n_tokens, seq_len;
    struct mat logits;          /* stat [n][E] */
    const void *bias;           /* F32 [E] or NULL */
    uint16_t *idx;              /* [n][k] */
    struct mat w;               /* stat [n][k] */
    int64_t *counts;            /* [E], chosen slots of all tokens are added; NULL: not counted */
    const uint8_t *valid;       /* [n]; NULL: all tokens count in aux and z */
    const double *frac;         /* [E] or NULL */
    double *aux_sum, *z_sum;    /* NULL: not wanted */
    struct mat dw, dlogits;     /* backward: stat [n][k], stat [n][E] (written) */
    double aux_scale, z_scale;
};

/* Rows sorted by (expert, token, slot), and the way back. */
struct route_map {
    int64_t n_tokens;
    int top_k, n_experts;
    const uint16_t *idx;        /* [n][k] */
    int32_t *row_of;            /* [n][k]: the row of a slot */
    int32_t *token_of;          /* [n*k]: the token of a row */
    int32_t *offsets;           /* [E+1]: rows of expert e are offsets[e] .. offsets[e+1]-1 */
};

/* Grouped GEMM over expert-sorted rows; w[e] is the matrix of expert e, all of
 * one shape [n_out][n_in] and type, contiguous.  Rows from offsets[E] on are
 * neither read nor written. */
struct group {
    int n_experts;
    const int32_t *offsets;     /* [E+1] */
    int64_t n_out, n_in;
    void *const *w;             /* [E] weights, or gradients for group_wgrad */
    enum dtype w_dt;
};

/* One Newton-Schulz step: x <- a x + (b (x x^T) + c (x x^T)^2) x. */
struct ns_coef { double a, b, c; };

struct adamw {
    struct mat w, m, v;         /* F32 (F64): parameter, exp_avg, exp_avg_sq */
    struct mat g;               /* gradient */
    double g_scale;             /* the clip factor; 1 when not clipped */
    double lr, beta1, beta2, eps, decay;
    int64_t t;                  /* step number from 1, for bias correction */
};

#endif
