/* dispatch.h -- which rows travel in which round.  Private to model/.
 *
 * The chosen (token, slot) pairs of a layer are sorted by (expert, token, slot);
 * expert e lives on rank e / (E / ep) of the expert-parallel group, so the rows
 * for one rank are together.  All ranks know how many rows each of them has for
 * each expert (counts are all-gathered in the forward pass and replayed in
 * backward).  In round r every rank sends every other at most per_pair rows, the
 * next ones of its list; rounds go on until the longest list of any pair is
 * empty, so all ranks agree on their number and imbalance costs rounds, never
 * memory.  The receiver puts the rows of a round in expert order.
 *
 * Alone and with room for every row there is one round, nothing is exchanged
 * and no count comes to the host: then the dispatch is `resident`. */
#ifndef MODEL_DISPATCH_H
#define MODEL_DISPATCH_H

#include <stdint.h>

#include "base/arena.h"
#include "model/model_config.h"

struct dispatch {
    int n_ranks, rank;
    _Bool resident;
    int64_t n_experts, n_local; /* all; of this rank: [rank * n_local, (rank + 1) * n_local) */
    int64_t cap, per_pair;      /* rows in a buffer; of one pair of ranks in a round */
    int32_t *counts;            /* [layers][n_ranks][n_experts] */
    /* The layer at hand, made by dispatch_layer(). */
    int64_t *start;             /* [n_ranks][n_local + 1]: where my experts begin in each rank's list for me */
    int32_t *first_round;       /* [n_local]: the first round that brings a row; 0 when none does */
    /* The round at hand, made by dispatch_round(). */
    int64_t *send_first, *send_n;       /* [n_ranks]: window of my sorted rows for each rank */
    int64_t *recv_n;            /* [n_ranks] */
    int64_t n_send, n_recv;
    int32_t *offsets;           /* [n_local + 1]: received rows in expert order */
    int32_t *order, *back;      /* [cap]: expert order -> received row, and the inverse */
};

/* cap: rows a rank receives in a round (0: room for all of n_rows rows, alone);
 * rounded down to a multiple of n_ranks, at least one row of each. */
void dispatch_init(struct arena *a, const struct model_config *c, int n_ranks, int rank, int64_t n_rows, int64_t cap,
                   struct dispatch *d);

int32_t *dispatch_counts(const struct dispatch *d, int layer, int rank);        /* [n_experts] of a rank */
int64_t dispatch_rounds(const struct dispatch *d, int layer);   /* at least 1 */
void dispatch_layer(struct dispatch *d, int layer);
void dispatch_round(struct dispatch *d, int layer, int64_t round);

#endif
