/* sharing.h -- which replica steps a part, where replicas share the optimizer's work.
 *
 * Every part has one owner in each replica.  With mesh.split_replicas only one of
 * these makes the update and hands the new weights to the others.  The parts of an
 * owner are dealt by Newton-Schulz work, longest first, to the replica that has
 * least, then by bytes; a pure function of the plan, the same on every rank.  It
 * never moves a part to another owner number. */
#ifndef SHARD_SHARING_H
#define SHARD_SHARING_H

#include "base/arena.h"
#include "shard/plan.h"

/* replica [plan_n_parts]: 0 .. replicas - 1.  Scratch from a. */
void sharing_replica(struct arena *a, const struct plan *p, int *replica);

#endif
