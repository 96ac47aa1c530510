/* block.h -- one decoder layer: its buffers, and its two halves forward and
 * backward.  Private to model/.
 *
 * A half (attention, or the experts) is written as:
 *   *_take/_give   the buffers that backward needs, whether they are kept from
 *                  the forward pass or made again
 *   *_inner        fills them from the half's input
 *   *_outer        from them to the half's output; never run again in backward
 *   *_bwd          from the gradient of the output to that of the input
 * All buffers have room for micro_tokens tokens, whatever the batch holds. */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "model/dispatch.h"
#include "model/model.h"

/* What one pass over a batch knows. */
struct block_pass {
    int64_t n, seq_len;
    const int32_t *doc_start, *positions;
    const uint8_t *valid;       /* NULL: all */
    const uint16_t *forced;     /* [layers][n][k] or NULL */
    const double *frac;         /* [layers][E] or NULL */
    int64_t *counts;            /* [layers][E] or NULL */
    _Bool want_losses;          /* aux and z are added to the sums */
    double inv_valid;
    double beta;                /* of gradients: 0 writes, 1 adds */
};

/* Buffers of a layer.  x_in is the residual stream before it. */
struct block {
    struct mat x_in, x_mid;     /* [n][H] */
    struct mat a, rstd_a;       /* input norm */
    struct mat q, k, v;         /* as attention reads them */
    struct mat q_raw, k_raw, rstd_q, rstd_k;    /* before qk-norm; p NULL without */
    struct mat o, lse;
    struct mat m, rstd_m;       /* post-attention norm */
    struct mat gate, up;        /* dense layer: [n][intermediate] */
    struct mat logits;          /* stat [n][E] */
    struct mat logits_in;       /* m in stat type; m itself when that is its type */
    int32_t *row_of, *token_of, *offsets;
    struct mat xs, xgate, xup;  /* rows of the experts kept from forward, see experts.c; p NULL: not kept */
    struct mat sgate, sup;      /* shared expert: [n][S] x2 */
    struct mat s;               /* its sigmoid gate: stat [n][1] */
};

/* Routing saved by forward for one layer. */
struct block_routing {
    uint16_t *idx;              /* [micro_tokens][k], kept for the run */
    struct mat w;               /* stat [n][k], taken for a pass */
};

struct model {
    const struct param_table *t;
    const struct model_config *c;
    struct model_opts o;
    struct dev *dev;
    const struct dev_ops *ops;
    struct mem *mem;
    struct model_io io;
    enum dtype dt, st;          /* activations, statistics */
    int rot;
    struct mat cos, sin;        /* stat [max_positions][rot/2] */
    double *sums;               /* device: nll, aux, z */
    struct block_routing *routing;      /* [layers] */
    struct block *blocks;       /* [layers] at boundary_every 0, else [1] */
    struct mat *x;              /* [layers + 1] residual stream before each layer; p NULL: not there */
    void **expert_w, **expert_g;        /* [3][E] gate, up, down of the layer at hand */
    struct dispatch dispatch;
    struct comm_part *send, *recv;      /* [ep ranks] */
    int32_t *host_offsets;      /* [E + 1] */
    int64_t row_moves;
    struct mat *cache_k, *cache_v;      /* [layers], NULL without a cache */
    int64_t n_cached;
    int32_t *host_positions;    /* [micro_tokens] */
};

/* ---- buffers and parameters */
struct mat block_take(struct model *m, enum mem_class c, const char *name, enum dtype dt, int64_t rows, int64_t cols, int64_t n);
void block_give(struct model *m, struct mat *x);        /* p NULL is accepted; x is cleared */
struct mat block_weight(const struct model *m, int i_param);    /* vectors as [1][n] */
struct mat block_grad(const struct model *m, int i_param);
/* dw = dy^T x + beta dw; dx += dy w, or dx = dy w when beta_dx is 0. */
void block_linear_bwd(struct model *m, int i_param, struct mat dy, struct mat x, struct mat dx, double beta_dx, double beta);
int block_gather(struct model *m, int layer, int pass);
int block_release(struct model *m, int layer, int pass);
int block_reduce(struct model *m, int layer);

/* Rows to and from the ranks of the expert-parallel group: send_n[i] rows of
 * out, then the next, to rank i; recv_n[i] rows of in from it. */
int block_exchange(struct model *m, struct mat out, const int64_t *send_n, struct mat in, const int64_t *recv_n);
/* Every rank's expert counts of a layer, from its own. */
int block_share_counts(struct model *m, int layer);

/* ---- attention half */
void attention_take(struct model *m, struct block *b, int64_t n);
void attention_give(struct model *m, struct block *b);
/* keys/values come from (and go to) the cache when k0 >= 0: rows [0, k0 + n). */
void attention_fwd(struct model *m, int layer, struct block *b, const struct block_pass *p, int64_t k0);
/* dx: gradient of x_mid, becomes that of x_in. */
void attention_bwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat dx);

/* ---- expert half (or the dense MLP) */
void moe_take(struct model *m, int layer, struct block *b, int64_t n);
void moe_give(struct model *m, struct block *b);
int moe_inner(struct model *m, int layer, struct block *b, const struct block_pass *p, _Bool replay);
int moe_outer(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat x_out);
/* dx: gradient of x_out, becomes that of x_mid. */
int moe_bwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat dx);

/* ---- the routed experts */
void experts_take(struct model *m, struct block *b);
void experts_give(struct model *m, struct block *b);
int experts_plan(struct model *m, int layer, struct block *b);
/* x_out += sum over chosen experts of w_e E_e(b->m). */
int experts_fwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat x_out);
/* dm = gradient of b->m through the experts, dw [n][k] that of their weights; dx: gradient of x_out. */
int experts_bwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat dx, struct mat dm, struct mat dw);

/* ---- ends */
/* Cross entropy in chunks: nll [n] (device).  dx NULL: forward only; else the
 * gradients of head and final norm, and dx [n][H]. */
int loss_run(struct model *m, const struct model_batch *b, struct mat x, double inv_valid, double beta,
             double *nll, struct mat *dx);
/* Logits of rows of x into logits, chunk by chunk. */
int loss_logits(struct model *m, struct mat x, struct mat logits);

/* The residual stream through every layer, forward only; x [n][H] is replaced. */
int model_forward(struct model *m, const struct block_pass *p, struct mat *x, int64_t k0);

#endif
