/* conduct.h -- a run from its directory to its end, as moe(7) tells it.
 *
 * The same command starts a run, goes on after a stop, a crash or a kill -9,
 * and says "already done" when there is nothing left to do. */
#ifndef TRAIN_CONDUCT_H
#define TRAIN_CONDUCT_H

#include "train/run_config.h"

struct comm;

struct conduct_options {
    struct comm *world;         /* the ranks of the run; NULL: this process alone */
    const char *run_dir;
    const char *device;
    int threads;
    double stop_before_s;       /* < 0: none */
    double hang_s;              /* a rank that waits longer for another in a step ends the run; 0: never */
    const char *init;           /* a model whose weights a new run begins with, or NULL */
    const char *plan;           /* a plan file to obey, "-" stdin, or NULL */
    double peak_gflops;         /* 0: measured at start */
    _Bool quiet;
    int argc;
    char **argv;                /* for provenance */
    _Bool human;                /* rows for a person on stdout, else JSON */
};

/* Collective in the world; all ranks return the same, the sentence of a failure
 * stands on rank 0.  0 done (also: already done); ERR_STOPPED, ERR_INTERRUPTED
 * after a save; ERR_LOCKED; others as in moe(7). */
int conduct_run(const struct run_config *c, const struct conduct_options *o);

#endif
