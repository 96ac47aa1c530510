/* mixture.h -- which set gives sample n, so that after any number of samples
 * every set's count is within 1 of its share.
 *
 * The rule is the one for chairmen of a union of states: among the sets that
 * are far enough behind, the one whose turn is most urgent.  It is a pure
 * function of n and the weights; it is computed by walking from 0 or from a
 * place that was visited before, which costs a few ns per sample and set. */
#ifndef DATA_MIXTURE_H
#define DATA_MIXTURE_H

#include <stdint.h>

#include "base/arena.h"

struct mixture;

/* weights: >= 0, not all 0. */
struct mixture *mixture_new(struct arena *a, const double *weights, int n_sets);

/* The set of sample n (n >= 0), and how many samples it gave before. */
int mixture_set(struct mixture *m, int64_t n, int64_t *before);

/* Samples of set i among the first n. */
int64_t mixture_count(struct mixture *m, int i, int64_t n);

#endif
