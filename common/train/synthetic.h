/* synthetic.h -- batches without files, for timing a step.
 *
 * Every sample is a pure function of (data.seed, its number).  It refuses to
 * resemble a language: only what decides the work of a step is like text --
 * ids are rare and frequent, and documents end within windows. */
#ifndef TRAIN_SYNTHETIC_H
#define TRAIN_SYNTHETIC_H

#include "data/loader.h"
#include "train/run_config.h"

/* As loader_samples() and loader_valid_targets(). */
void synthetic_samples(const struct run_config *c, int64_t first, int64_t n, struct batch *b);
int64_t synthetic_valid_targets(const struct run_config *c, int64_t first, int64_t n);

#endif
