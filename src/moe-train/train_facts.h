/* train_facts.h -- what the files of a run say about its state: status and top. */
#ifndef TRAIN_FACTS_H
#define TRAIN_FACTS_H

#include "base/arena.h"
#include "train/metrics.h"

struct train_facts {
    struct heartbeat h;
    _Bool live;                 /* somebody holds the lock: owner */
    char owner[256];
    int64_t *steps, *light;     /* of the checkpoints, and of those without state, ascending; in the arena */
    int n_steps, n_light;
    const char *state;          /* running, stopped, done, failed, killed */
};

/* ERR_NOINPUT when run is no run. */
int train_facts_read(struct arena *a, const char *run, struct train_facts *f);

/* Seconds left, NaN when that is not known. */
double train_facts_eta(const struct train_facts *f);

#endif
