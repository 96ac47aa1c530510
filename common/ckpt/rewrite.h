/* rewrite.h -- checkpoints of any model, cut into other files or averaged.
 *
 * Nothing here knows families: tensors are bytes under names.  Memory is a piece
 * or two per input, and the output is whole or not there (ckpt/modeldir.h). */
#ifndef CKPT_REWRITE_H
#define CKPT_REWRITE_H

#include <stdint.h>

#include "ckpt/derive.h"
#include "ckpt/load.h"

struct rewrite {
    const char *to;
    _Bool replace;
    uint64_t shard_bytes;       /* 0: CKPT_SHARD_BYTES */
    int n_files;                /* over 0: so many model files instead */
    struct derive_maker by;
    void (*progress)(void *ctx, uint64_t done, uint64_t total);         /* bytes written; may be NULL */
    void *ctx;

    /* Results. */
    _Bool was_current;
    int64_t n_tensors;
    int n_made;                 /* files of tensors */
    uint64_t bytes;
};

/* The same tensors, optimizer included, in other files; bit for bit, and with
 * the same small files.  What the MANIFEST says of the state of training stays,
 * so a checkpoint that was resharded is one that training can go on from. */
int rewrite_reshard(const struct ckpt *c, struct rewrite *r);

/* The weighted mean of the models of c [n >= 1]: sum of weight_i x value_i,
 * added in double in the order of the inputs, and rounded once to F32 and then
 * to the type that the first has.  The inputs must have the same tensors and the
 * same config.json but for types and versions (ERR_DATA).  Optimizer state is
 * not averaged.  Weights are used as they are: make them sum to 1. */
int rewrite_average(struct ckpt *const *c, const double *weights, int n, struct rewrite *r);

#endif
