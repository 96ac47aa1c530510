/* state_impl.h -- the tensors of a trainer as files know them: by global name,
 * with the rows of each that are here.  Private to state*.c. */
#ifndef TRAIN_STATE_IMPL_H
#define TRAIN_STATE_IMPL_H

#include "train/trainer.h"

enum { STATE_NAME_MAX = 512 };

/* One tensor: a parameter, its gradient, a part of its optimizer state, or the
 * counts of a router.  data holds rows [first_row, first_row + n_rows) of it: all
 * on one rank, what we own on several. */
struct state_item {
    int i_param;                /* -1: counts */
    char name[STATE_NAME_MAX];
    enum ckpt_group group;
    enum dtype dtype;
    int n_dims;
    int64_t shape[2];
    int64_t first_row, n_rows;
    void *data;                 /* NULL when n_rows is 0 */
    _Bool everywhere;           /* the same on every rank */
};

typedef int state_item_fn(void *ctx, const struct state_item *it);

/* Shape of parameter i, and which of its rows are here; returns the part of
 * t->own, -1 when there is none.  Name, group and data are the caller's. */
int state_describe(const struct trainer *t, int i, struct state_item *it);

/* The counts of router l in counts [layers][E]. */
void state_describe_counts(const struct trainer *t, int64_t l, int64_t *counts, struct state_item *it);

uint64_t state_item_bytes(const struct state_item *it);

#endif
