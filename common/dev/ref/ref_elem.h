/* ref_elem.h -- elements of any storage type as double; private to dev/ref. */
#ifndef DEV_REF_REF_ELEM_H
#define DEV_REF_REF_ELEM_H

#include "dev/dev.h"

/* Row-wise ops work on runs of this many columns in buffers on the stack, so
 * that the type is looked up once per run and no width needs scratch memory. */
#define REF_RUN 256

/* dst[i] = m[r][c + i], and back with one rounding to nearest even. */
void ref_load(double *dst, struct mat m, int64_t r, int64_t c, int64_t n);
void ref_store(struct mat m, int64_t r, int64_t c, int64_t n, const double *src);

double ref_get(struct mat m, int64_t r, int64_t c);
void ref_put(struct mat m, int64_t r, int64_t c, double v);

/* v as the type dt would hold it. */
double ref_round(enum dtype dt, double v);

static inline int64_t ref_run(int64_t c, int64_t cols)
{
    return cols - c < REF_RUN ? cols - c : REF_RUN;
}

#endif
