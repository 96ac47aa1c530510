/* mat.h -- a matrix as the operations of a device see it.
 *
 * A view: it owns nothing, and copying it copies no elements.  Row-major, one
 * element type, rows ld elements apart. */
#ifndef DEV_MAT_H
#define DEV_MAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

struct mat {
    void *p;
    enum dtype dt;
    int64_t rows, cols, ld;     /* ld: elements between rows */
};

static inline struct mat mat(void *p, enum dtype dt, int64_t rows, int64_t cols)
{
    return (struct mat){ p, dt, rows, cols, cols };
}

/* Rows [first, first + n) of m. */
static inline struct mat mat_rows(struct mat m, int64_t first, int64_t n)
{
    m.p = (char *)m.p + (size_t)(first * m.ld) * dtype_size(m.dt);
    m.rows = n;
    return m;
}

#endif
