/* gc.h -- which checkpoints of a run to keep, and the end of the others.
 *
 * Kept is what any rule names: the newest ones, light ones counted apart, every
 * M-th step, the best by a metric of evaluation, and always major ones and the one
 * that `latest` names.  Before the first removal the newest that stays and that a
 * run can go on from is read whole and must verify: a run never loses its last
 * good checkpoint to tidiness.  A removal takes the MANIFEST first, so half of one
 * is no checkpoint.  Order is by step number; clocks do not count.  The caller
 * holds the lock of the run. */
#ifndef CKPT_GC_H
#define CKPT_GC_H

#include <stdint.h>

#include "base/arena.h"
#include "ckpt/manifest.h"

struct gc_rules {
    int64_t keep;               /* the newest, at least 1 */
    int64_t light;              /* the newest light ones; < 0: as many as keep */
    int64_t every;              /* steps that this divides; 0: no such rule */
    int64_t best;               /* so many with the lowest metric; 0: no such rule */
    const char *metric;         /* "loss", "ppl", "bits_per_byte": of rows moe.eval/1 */
    const char *set;            /* NULL: the mean over all sets of the step */
};

struct gc_item {
    int64_t step;
    enum manifest_kind kind;
    const char *dir;
    uint64_t bytes;             /* of its files */
    _Bool keep;
    const char *why;            /* "newest", "latest", "major", "every", "best"; NULL when it goes */
    double value;               /* the metric; NaN: no evaluation at this step */
};

/* Ascending by step; in arena a.  ERR_NOINPUT: no checkpoint; ERR_DATA: no
 * evaluation at any step that has a checkpoint, or metrics.jsonl is not sound. */
int gc_plan(struct arena *a, const char *run_dir, const struct gc_rules *rules, struct gc_item **items, int *n);

/* Removes what is not kept, oldest first, and leftovers of killed saves.
 * ERR_DATA when the newest kept one does not verify: nothing was removed. */
int gc_apply(const char *run_dir, const struct gc_item *items, int n);

#endif
