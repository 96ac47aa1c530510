/* parity.h -- is the model the same on every layout?  (moe-train verify)
 *
 * Runs some steps under each of several meshes and compares what comes out with
 * the first of them.  Three things are handed from the first layout to the
 * others, so that every step is a question of its own: the routing (a near-tie
 * of the router may fall either way when sums run in another order), the weights
 * before the step, and the optimizer's moments.  So differences never pile up,
 * and every limit follows from the arithmetic of one step; parity_limits.c
 * derives them.
 *
 * What is compared, the worst of all steps each:
 *   start      weights drawn for step 0: equal bits
 *   routing    the experts a layout would have chosen itself: where they differ
 *              from those of the first layout, the gap of the scores in ulps
 *   counts     tokens of every expert, of all ranks: equal
 *   loss       cross entropy, balance loss, z-loss
 *   norm       of the whole gradient
 *   gradient   by tensor: largest difference / largest value
 *   update     by tensor: norm of the difference of the updates / norm of the update
 *   bias       selection biases after the step: equal bits
 *   replicas   weights after the step: equal bits in all replicas
 *
 * It refuses to be cheap: rank 0 holds whole tensors, 4 (4 steps + 5) bytes per
 * parameter, and every rank the routing of all steps. */
#ifndef TRAIN_PARITY_H
#define TRAIN_PARITY_H

#include "shard/mesh.h"
#include "train/run_config.h"

struct comm;

enum parity_what {
    PARITY_START, PARITY_ROUTING, PARITY_COUNTS, PARITY_LOSS, PARITY_NORM, PARITY_GRADIENT, PARITY_UPDATE, PARITY_BIAS,
    PARITY_REPLICAS, PARITY_N
};
const char *parity_what_name(enum parity_what w);

struct parity_row {
    struct mesh mesh;
    enum parity_what what;
    const char *worst;          /* a tensor, or where; "" when nothing differs */
    int64_t step;               /* from 1; 0: before the first */
    double error, limit;
    _Bool ok;
    const char *verdict;        /* "ok", or what is wrong */
};

struct parity_options {
    struct comm *world;         /* its first ranks make each layout, the others wait */
    const char *device;
    int threads;
    const struct mesh *layouts;
    int n_layouts;              /* the first one is compared with */
    int64_t steps;
    _Bool synthetic;            /* batches of synthetic.h */
    void (*row)(void *ctx, const struct parity_row *r);         /* on rank 0, as layouts are done; strings until it returns */
    void *ctx;
};

/* Collective in the world; all ranks return the same.  ERR_NO without a sentence
 * when a limit was passed (the rows say it all).  Mesh, steps and accumulation
 * come from the options, all else from the configuration. */
int parity_run(const struct run_config *c, const struct parity_options *o);

#endif
