/* fsdp.h -- a layer's weights from their owners, its gradients to their owners.
 *
 * What a rank owns lies in flat storage (shard/layout.h).  Before a layer is
 * used its weights come into one of two fixed slots, the next layer of the
 * program while this one computes; after its backward its gradients leave one
 * of two gradient slots and are summed at their owners, in ascending rank
 * order.  Embedding and head have slots of their own and are gathered once a
 * step.  Which layer is next is not guessed: each program (a micro-batch, an
 * evaluation batch, a decoding step) is recorded with the memory plan, and its
 * order of gathers is played back.
 *
 * A shard group of one rank has no slots: weights are read and gradients are
 * written where they live, by the same calls.
 *
 * Invariants: F1 a slot is gathered into only when the model has released it.
 * F2 a gradient slot is written only when its reduction is done.  F3 between
 * fsdp_finish() and the next gather nothing here talks. */
#ifndef TRAIN_FSDP_H
#define TRAIN_FSDP_H

#include "base/arena.h"
#include "comm/comm.h"
#include "dev/dev.h"
#include "dev/mem.h"
#include "model/model.h"
#include "shard/layout.h"

struct fsdp;
struct fsdp_tapes;

/* The groups of this rank; NULL where the group has one member. */
struct fsdp_comms { struct comm *shard, *efsdp; };

/* The recorded orders; they outlive the build that recorded them. */
struct fsdp_tapes *fsdp_tapes_new(struct arena *a);

/* master and grads are owned storage [own->n_elems]; grads NULL: forward only.
 * wire: F32, or BF16 for what gradients travel in; each contribution is rounded
 * once, sums and slots stay F32.  Slots are kept through mem.  Everything is borrowed. */
int fsdp_new(struct arena *a, const struct plan *p, const struct owned_layout *own, int i_ep, const struct fsdp_comms *comms,
             struct fsdp_tapes *tapes, struct dev *dev, struct mem *mem, enum dtype wire, float *master, float *grads,
             struct fsdp **out);

/* For model_new(). */
struct model_io fsdp_io(struct fsdp *f);

/* Before each mem_begin() of the same name.  While memory records, the gathers
 * of the program are written down; afterwards they must come in that order. */
int fsdp_begin(struct fsdp *f, const char *program);

/* The first micro-batch of a step writes the owned gradients, later ones add.
 * True for the `first` argument of model_train(): slots are always fresh. */
_Bool fsdp_first(struct fsdp *f, _Bool first_of_step);

/* Collective in shard: all reductions are done. */
int fsdp_finish(struct fsdp *f);

/* The master weights changed: every slot is stale. */
void fsdp_stale(struct fsdp *f);

#endif
