/* owners.h -- the owner map: which rank of the shard group owns what.
 *
 * A pure function of the parameter table, the costs and the mesh, and equal in
 * every replica; so no rank ever has to ask another who owns a tensor.
 *
 *  - Expert e lives in EP rank e / (E/ep).  The experts of that EP rank are dealt
 *    to its efsdp ranks one after another, and the dealing goes on from layer to
 *    layer: with as many experts as ranks each rank has the same one of every
 *    layer; with more ranks than experts, or a number that does not divide, the
 *    owner rotates and the load over all layers differs by one expert at most.
 *    The three matrices of an expert have one owner.
 *  - Embedding and head are split by rows, in blocks of PLAN_ROW_BLOCK rows (the
 *    blocks the norm is summed in), in ascending order of rank.
 *  - Every other matrix of Muon has one owner: longest Newton-Schulz first, then
 *    most bytes, then table order, to the rank with the least Newton-Schulz work
 *    so far (its experts included), then fewest bytes, then lowest number.
 *  - What is left of a layer (vectors, router, selection bias, the gate of a
 *    shared expert: AdamW or no optimizer, small) rides together with one owner,
 *    the rank with the fewest bytes so far.
 *  - The final norm rides with the first rows of the head, so that norm and head
 *    are gathered in one piece. */
#ifndef SHARD_OWNERS_H
#define SHARD_OWNERS_H

#include "base/arena.h"
#include "shard/mesh.h"
#include "shard/plan_costs.h"

/* owner [t->n]; -1 marks what is split by rows.  Scratch from a. */
void owners_map(struct arena *a, const struct param_table *t, const struct plan_costs *costs, struct mesh m, int *owner);

/* The rows of a split parameter that a rank of n_ranks owns; *n may be 0. */
void owners_rows(int64_t rows, int n_ranks, int rank, int64_t *first, int64_t *n);

#endif
