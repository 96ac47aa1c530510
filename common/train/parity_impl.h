/* parity_impl.h -- what the files of parity share; nobody else includes it. */
#ifndef TRAIN_PARITY_IMPL_H
#define TRAIN_PARITY_IMPL_H

#include "train/trainer.h"
#include "train/parity.h"

/* Storage of a trainer that is moved whole. */
enum parity_store { PARITY_MASTER, PARITY_GRADS, PARITY_FIRST, PARITY_SECOND };

/* The worst so far of one kind. */
struct parity_worst { double error, limit; int64_t step; char where[200]; _Bool seen; };

/* What the first layout did in a step.  Arrays are flat storage in table order. */
struct parity_step {
    float *w, *first, *second;  /* before it */
    float *g;
    struct step_facts f;
};

/* The largest gap that a layout's own choice of experts showed. */
struct parity_gap { double ulps; int64_t n_tokens, step, micro, token; int layer; };

struct parity {
    const struct run_config *cfg;       /* of the first layout's model; the mesh varies */
    const struct parity_options *o;
    struct arena *arena;
    int64_t n_micro, micro_slots;       /* micro-batches of a step; indices of one: [layers][micro_tokens][k] */
    uint16_t *tape;             /* [steps][n_micro][micro_slots], on all ranks */
    int64_t *counts;            /* [steps][layers][E] of the first layout, on all ranks */
    struct parity_step *steps;  /* [steps + 1], arrays on rank 0 only; the last has no gradients */
    float *g, *w;               /* of the layout at hand, rank 0 */
    const struct param_table *table;    /* of the trainer at hand */
    /* The layout at hand. */
    struct mesh mesh;
    _Bool is_first;
    int64_t step;               /* from 0 */
    struct comm *comm;
    struct trainer *t;
    struct trainer_routing routing;
    struct parity_worst worst[PARITY_N];
    struct parity_gap gap;
    _Bool agreed;               /* the last failure is one that all ranks of the layout know of */
    _Bool failed;               /* rank 0: a limit was passed */
};

/* ---- parity_move.c.  Collective in the layout. */
/* Whole tensors to rank 0, and from it to all who hold them. */
int parity_gather(struct parity *v, enum parity_store s, float *flat);
int parity_scatter(struct parity *v, enum parity_store s, float *flat);

/* ---- parity_limits.c */
/* Relative limits of one step under the layout at hand. */
double parity_loss_limit(const struct parity *v);
double parity_gradient_limit(const struct parity *v);
/* On the norm of the difference of two updates of parameter i; s is the step
 * before it, g and w what this layout made.  *error is the norm that was found;
 * both relative to the update of the first layout. */
double parity_update_limit(const struct parity *v, int i_param, const struct parity_step *s, const float *w_after,
                           double scale_error, double *error);
/* Gap between the choice `own` and the one that was followed, for one token. */
double parity_gap_ulps(const struct router *r, const float *logits, const float *bias, const uint16_t *own,
                       const uint16_t *followed);

#endif
