/* optim.h -- one optimizer step over the parameters this process owns.
 *
 * Muon for the matrices the parameter table says, AdamW for the rest of the
 * trained ones.  The same functions serve moe-train and moe-optstep
 * on the same data in the same order, so both give the same bits.
 *
 * The gradient is consumed: Muon forms its direction and orthogonalises it in
 * place.  Nothing here talks to other ranks. */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include "dev/dev.h"
#include "dev/mem.h"
#include "model/params.h"
#include "optim/optim_config.h"
#include "shard/layout.h"

struct optim;

/* State is kept through mem (MEM_STATE) and starts at zero after the carve.  own
 * says which parts are ours and where they lie in master and gradients; a matrix
 * of Muon is one part, whole.  All borrowed. */
int optim_new(struct arena *a, const struct param_table *t, const struct owned_layout *own, const struct optim_config *cfg,
              struct dev *dev, struct mem *mem, struct optim **out);

/* State tensors of part i: "momentum", or "exp_avg" and "exp_avg_sq".
 * Returns how many (0, 1, 2); data is F32 [n_rows*cols]. */
struct optim_state { const char *suffix; float *data; };
int optim_states(const struct optim *o, int i_part, struct optim_state out[2]);

/* Bytes of state of a parameter, and FLOPs of its Newton-Schulz iteration. */
int64_t optim_state_bytes(const struct param *p);
double optim_ns_flops(const struct param *p, const struct optim_config *cfg);

/* Sums of squares of our parts (see dev.h sumsq) by parameter, into *sq
 * [params of the table], 0 for others; borrowed until the next call.  With
 * several ranks they are summed over the shard group; optim_norm() then adds
 * all tensors in table order: the root is the norm, the same on every rank.
 * A gradient that is not finite gives a norm that is not finite. */
int optim_squares(struct optim *o, const float *grads, double **sq);
double optim_norm(const struct optim *o, const double *sq);

/* Factor for the gradient: 1, or clip_norm / norm when the norm is larger
 * (torch's clip_grad_norm_: clip_norm / (norm + 1e-6)). */
double optim_clip(const struct optim_config *cfg, double norm, _Bool *clipped);

/* The update number t (from 1) with both learning rates times lr_factor; g_scale from optim_clip(). */
int optim_step(struct optim *o, float *master, float *grads, int64_t t, double lr_factor, double g_scale);

/* Coefficients by index into OPTIM_NS_WORDS; returns the number of steps. */
int optim_ns_coefs(int ns, const struct ns_coef **out);

/* Selection bias, once a step, from the global counts of that step's forward
 * passes: delta = rate sign(mean - count), minus its own mean (DeepSeek-V3's
 * rule as TorchTitan keeps it centred).  bias: F32 [n]. */
void optim_bias_update(float *bias, const int64_t *counts, int n, double rate);

#endif
