/* ref_move.c -- moving, converting, adding. */
#include <string.h>

#include "dev/ref/ref_elem.h"
#include "dev/ref/ref_ops.h"
#include "dev/shape.h"

void ref_zero(struct dev *d, void *p, size_t bytes)
{
    (void)d;
    if (bytes)
        memset(p, 0, bytes);
}

void ref_copy(struct dev *d, void *dst, const void *src, size_t bytes)
{
    (void)d;
    if (bytes)
        memcpy(dst, src, bytes);
}

void ref_cast(struct dev *d, struct mat dst, struct mat src)
{
    double v[REF_RUN];

    (void)d;
    shape_same(dst, src);
    for (int64_t r = 0; r < src.rows; r++)
        for (int64_t c = 0; c < src.cols; c += REF_RUN) {
            ref_load(v, src, r, c, ref_run(c, src.cols));
            ref_store(dst, r, c, ref_run(c, src.cols), v);
        }
}

void ref_add(struct dev *d, struct mat y, struct mat a, struct mat b)
{
    double va[REF_RUN], vb[REF_RUN];

    (void)d;
    shape_same(y, a);
    shape_same(y, b);
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t c = 0; c < y.cols; c += REF_RUN) {
            int64_t n = ref_run(c, y.cols);
            ref_load(va, a, r, c, n);
            ref_load(vb, b, r, c, n);
            for (int64_t i = 0; i < n; i++)
                va[i] += vb[i];
            ref_store(y, r, c, n, va);
        }
}

void ref_scale(struct dev *d, struct mat y, double s)
{
    double v[REF_RUN];

    (void)d;
    shape_mat(y);
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t c = 0; c < y.cols; c += REF_RUN) {
            int64_t n = ref_run(c, y.cols);
            ref_load(v, y, r, c, n);
            for (int64_t i = 0; i < n; i++)
                v[i] *= s;
            ref_store(y, r, c, n, v);
        }
}
