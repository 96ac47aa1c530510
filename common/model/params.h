/* params.h -- the parameter table: every tensor of a model once, in one order.
 *
 * The table is the source of names, shapes, storage order, optimizer and
 * counts for everybody: model, optim, shard, ckpt.  Order: embedding, then the
 * layers ascending (a layer's tensors in the order of struct layer_params, its
 * experts ascending with gate, up, down), final norm, head.  Flat storage is in
 * table order, each tensor starting on a multiple of 16 elements. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "base/arena.h"
#include "model/model_config.h"

enum param_kind {
    PARAM_EMBED, PARAM_HEAD, PARAM_NORM, PARAM_ATTN, PARAM_ATTN_BIAS, PARAM_ROUTER,
    PARAM_ROUTER_BIAS,          /* selection bias: not trained by gradient, always F32 */
    PARAM_EXPERT, PARAM_SHARED, PARAM_SHARED_GATE, PARAM_DENSE, PARAM_KIND_N
};

enum param_optim { PARAM_NONE, PARAM_ADAMW, PARAM_MUON };

struct param {
    const char *name;           /* Hugging Face name under the family */
    enum param_kind kind;
    enum param_optim optim;
    _Bool decay;                /* weight decay applies: matrices only */
    int layer, expert;          /* -1: none */
    int n_dims;                 /* 1 or 2 */
    int64_t rows, cols;         /* vectors: [rows][1] */
    int64_t offset;             /* elements from the start of flat storage */
};

/* Indices into the table, -1 where the family has no such tensor. */
struct layer_params {
    int input_norm, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm, post_norm;
    int router, router_bias;
    int shared_gate, shared_up, shared_down, shared_expert_gate;
    int dense_gate, dense_up, dense_down;
    int experts;                /* gate of expert 0; expert e: experts + 3e + {0 gate, 1 up, 2 down} */
};

struct param_table {
    struct param *v;
    int n;
    int64_t n_elems;            /* flat storage, padding included */
    struct layer_params *layers;        /* [num_hidden_layers] */
    int *by_name;               /* private: indices sorted by name */
    int embed, norm, head;      /* head == embed when tied */
    const struct model_config *cfg;     /* borrowed */
};

/* In arena a; cfg is borrowed as long as the table. */
int params_build(struct arena *a, const struct model_config *cfg, struct param_table *out);

/* Index by name or -1. */
int params_find(const struct param_table *t, const char *name);

/* Elements (without padding): all, and active per token (all dense parts, both
 * embeddings, norms, router, shared experts, and top_k of E experts). */
int64_t params_total(const struct param_table *t);
int64_t params_active(const struct param_table *t);
/* Active elements that take part in matrix products: active minus the input
 * embedding look-up (a tied head counts), norms and biases. */
int64_t params_matmul(const struct param_table *t);

/* Initial values of n_rows rows of parameter i into dst (F32): normal with std
 * for matrices by rng_fill_normal(rng_key(seed, name)), 1 for norms, 0 for
 * biases (as transformers' initializer_range has it).  A row's values do not
 * depend on which rows are asked for. */
void params_init(const struct param_table *t, int i, uint64_t seed, double std, int64_t first_row, int64_t n_rows, float *dst);

const char *params_kind_name(enum param_kind k);        /* "embed" "head" "norm" "attn" ... */
const char *params_optim_name(enum param_optim o);      /* "none" "adamw" "muon" */

/* Model FLOPs of n_tokens tokens with n_pairs attended (query, key) pairs
 * summed over them, forward and backward: 6 matmul n_tokens + 12 L heads
 * head_dim n_pairs (recomputation is not counted). */
double params_flops(const struct param_table *t, int64_t n_tokens, double n_pairs);

#endif
