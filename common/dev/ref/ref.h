/* ref.h -- the reference device: what every op means, in plain loops.
 *
 * Sums run in double in ascending order, results are rounded once when they
 * are stored, statistics that a backward op could read (rstd, lse) are used as
 * stored or recomputed in double.  F32, F64 and BF16 storage anywhere; with
 * F64 the ops serve finite differences.  One thread; speed is no goal beyond
 * training tiny models in tests. */
#ifndef DEV_REF_REF_H
#define DEV_REF_REF_H

#include "dev/dev.h"

int ref_open(const struct dev_options *o, struct dev *out);

#endif
