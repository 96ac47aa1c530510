/* model.h -- forward and backward of the decoder, written once over dev.h.
 *
 * Pre-norm decoder.  Activations: only the residual stream at every
 * boundary_every-th layer and the routing (indices, weights, counts) survive
 * the forward pass; the rest of a segment is computed again in backward.
 * boundary_every 0 keeps everything and computes nothing twice.  Both give the
 * same bits.
 *
 * Rows move 2 + 3 times: dispatch and combine forward; x, dy (with w) and dx
 * (with dw) backward.  down_proj and combine are not computed again at
 * boundary_every 1.
 *
 * Weights and gradients are reached through struct model_io, so that a sharded
 * trainer can gather a layer into a slot and reduce a gradient when it is done;
 * the model never knows where they live.
 *
 * Everything a pointer of struct model_batch, weights, gradients, counts, frac
 * and forced points to is device memory: the model hands it to ops and never
 * reads it itself; what it needs on the host comes through the copy op.  So the
 * same code runs over the trace device, where no address may be touched. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "dev/dev.h"
#include "dev/mem.h"
#include "model/params.h"

enum { MODEL_LAYER_EMBED = -1, MODEL_LAYER_HEAD = -2 };         /* "layers" of model_io; the head is final norm and lm_head */

struct comm;

enum aux_scope { AUX_SEQUENCE, AUX_BATCH };

/* Told of the routing of a layer in the forward pass: r is as the router op left
 * it, all of it device memory.  fn NULL: nobody is. */
struct model_watch { void *ctx; int (*fn)(void *ctx, int layer, const struct router *r); };

struct model_opts {
    enum dtype dtype;           /* activations and weights: DT_F32; DT_F64 for tests */
    int64_t micro_tokens, seq_len;      /* micro_tokens is a multiple of seq_len */
    int64_t loss_chunk;         /* tokens per logits chunk */
    int boundary_every;
    double aux_coef, z_coef;
    enum aux_scope aux_scope;
    int64_t max_positions;      /* of the RoPE table: seq_len or the decoding length */
    struct comm *ep;            /* the ranks that share the experts, in order of experts; NULL: alone */
    int64_t rows_cap;           /* expert rows taken in one round; 0: all, alone */
    struct model_watch watch;
};

/* pass: 0 forward, 1 backward.  gather(): the weights of the layer are readable
 * until the next gather of another layer has been answered by release().
 * grad(): where the gradient of a parameter is accumulated; reduce(): the
 * layer's gradients of this micro-batch are complete.  All may be NULL but
 * weight and grad. */
struct model_io {
    void *ctx;
    int (*gather)(void *ctx, int layer, int pass);
    int (*release)(void *ctx, int layer, int pass);
    int (*reduce)(void *ctx, int layer);
    const void *(*weight)(void *ctx, int i_param);      /* device memory, opts.dtype; router and its bias: stat type, F32 */
    void *(*grad)(void *ctx, int i_param);              /* stat type [rows][cols] */
};

struct model_batch {
    int64_t n_tokens, seq_len;  /* whole sequences: n_tokens a multiple of seq_len */
    const int32_t *ids;         /* [n] */
    const int32_t *targets;     /* [n], -1: none */
    const uint8_t *valid;       /* [n], 1 where there is a target */
    int64_t n_valid;
    const int32_t *doc_start;   /* [n], index in this batch of the first token of the document in its window */
    const int32_t *positions;   /* [n] */
};

/* Sums over one micro-batch. */
struct model_sums {
    double nll;                 /* sum over valid targets */
    double aux, z;              /* raw sums over layers (dev.h struct router, before coefficients) */
    double fwd_s;               /* seconds of the forward part, added to */
};

struct model;

/* Everything for the run is kept through mem; per-pass buffers are taken inside
 * the caller's mem_begin/end program, in a fixed order and with sizes that
 * follow from the options alone (micro_tokens, never a smaller batch's tokens).
 * dev, mem, table and io are borrowed. */
int model_new(struct arena *a, const struct param_table *t, const struct model_opts *o,
              struct dev *dev, struct mem *mem, const struct model_io *io, struct model **out);

/* With opts.ep set every call below that runs layers is Collective in it: all
 * its ranks make the same calls, each with its own batch (perhaps an empty one).
 *
 * One micro-batch forward and backward.  inv_valid = 1 / valid targets of the
 * global batch: gradients are those of (sum nll)/valid + aux_coef aux/valid +
 * z_coef z/valid.  first: gradients are written, else added to.
 * counts [num_hidden_layers][E] gets += of the forward routing (dense layers untouched).
 * frac [layers][E] for AUX_BATCH or NULL.
 * forced: NULL, or idx [layers][n_tokens][k] to be followed (dense layers' parts unused). */
int model_train(struct model *m, const struct model_batch *b, double inv_valid, _Bool first,
                const double *frac, const uint16_t *forced, int64_t *counts, struct model_sums *sums);

/* Forward only: nll [n_tokens] (device; 0 where no target), counts nothing. */
int model_eval(struct model *m, const struct model_batch *b, double *nll, struct model_sums *sums);

/* Forward only, logits of all tokens: [n_tokens][vocab] of opts.dtype. For
 * tests and small batches.  forced as above. */
int model_logits(struct model *m, const struct model_batch *b, const uint16_t *forced, struct mat logits);

/* The routing of the last forward pass: idx [n_tokens][k] of a MoE layer; borrowed until give-back. */
const uint16_t *model_routing(const struct model *m, int layer);

/* Decoding with a key/value cache of max_positions; equal to the full forward
 * pass.  model_cache_reset() starts a new document. */
int model_cache_new(struct model *m);
void model_cache_reset(struct model *m);
/* Feeds n tokens (n <= micro_tokens) at the next positions; logits [vocab] of
 * the last one, opts.dtype.  ERR_DATA when max_positions is reached. */
int model_decode(struct model *m, const int32_t *ids, int64_t n, void *logits);

/* Rounds in which a MoE layer's rows went to the experts in the last forward
 * pass; the same on all ranks of opts.ep. */
int64_t model_rounds(const struct model *m, int layer);

/* For a caller's own record: row movements so far (tests count 2 + 3). */
int64_t model_row_moves(const struct model *m);

#endif
