/* replicas.h -- what the replicas of a model say to each other about the parts
 * that each of them owns: gradients before the update, weights after it.
 *
 * Either every replica gets the sum of all gradients and makes the same update,
 * or (split_replicas) the sum goes to the one replica that steps the part, and
 * the new weights come back: the same bytes on the wire, the same bits in the
 * end, and the optimizer's work and state are shared.  What travels together (a
 * bucket) is what an owner has of one layer, of the embedding, or of the head.
 *
 * Sums and weights travel in F32; mesh.grad_dtype is about the way to the owners. */
#ifndef TRAIN_REPLICAS_H
#define TRAIN_REPLICAS_H

#include "base/arena.h"
#include "comm/comm.h"
#include "dev/dev.h"
#include "shard/layout.h"

struct replicas;

/* c: the ranks that own the same parts, NULL where there is one replica.  step_of:
 * the replica that steps each of our parts [own->n_parts], NULL: all do.  All
 * borrowed. */
struct replicas *replicas_new(struct arena *a, const struct param_table *t, const struct owned_layout *own, struct comm *c,
                              const int *step_of);

/* The parts that this rank steps, where own has them: own itself unless split. */
const struct owned_layout *replicas_stepped(const struct replicas *r);

/* Collective.  Gradients of all replicas are summed, in ascending order of the
 * replicas; split: valid only for the parts that are stepped here. */
int replicas_sum(struct replicas *r, struct dev *d, float *grads);

/* Collective.  Squares of tensors [n] of the stepped parts become those of our parts. */
int replicas_squares(struct replicas *r, double *sq, int64_t n);

/* Collective.  After the update: one gather a bucket, none unless split. */
int replicas_spread(struct replicas *r, struct dev *d, float *master);

int replicas_n_buckets(const struct replicas *r);       /* 0 unless split */

#endif
