/* ref_elem.c -- load and store of elements, the only code of ref that knows
 * storage types. */
#include "dev/ref/ref_elem.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

/* Rounds a double to bf16 once.  Going through float would round twice, so the
 * float is made by truncation with a sticky last bit ("round to odd"), which
 * the second rounding then sees as the exact remainder. */
static uint16_t to_bf16(double v)
{
    float f = (float)v;

    if (isfinite(v) && (double)f != v) {
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        if (fabs((double)f) > fabs(v))
            u--;
        u |= 1;
        memcpy(&f, &u, sizeof f);
    }
    return dtype_to_bf16(f);
}

void ref_load(double *dst, struct mat m, int64_t r, int64_t c, int64_t n)
{
    int64_t at = r * m.ld + c;

    switch (m.dt) {
    case DT_F32: {
        const float *p = (const float *)m.p + at;
        for (int64_t i = 0; i < n; i++)
            dst[i] = (double)p[i];
        break;
    }
    case DT_F64: {
        const double *p = (const double *)m.p + at;
        for (int64_t i = 0; i < n; i++)
            dst[i] = p[i];
        break;
    }
    case DT_BF16: {
        const uint16_t *p = (const uint16_t *)m.p + at;
        for (int64_t i = 0; i < n; i++)
            dst[i] = (double)dtype_from_bf16(p[i]);
        break;
    }
    default:
        err_bug(__FILE__, __LINE__, "ref computes with F32, F64 and BF16");
    }
}

void ref_store(struct mat m, int64_t r, int64_t c, int64_t n, const double *src)
{
    int64_t at = r * m.ld + c;

    switch (m.dt) {
    case DT_F32: {
        float *p = (float *)m.p + at;
        for (int64_t i = 0; i < n; i++)
            p[i] = (float)src[i];
        break;
    }
    case DT_F64: {
        double *p = (double *)m.p + at;
        for (int64_t i = 0; i < n; i++)
            p[i] = src[i];
        break;
    }
    case DT_BF16: {
        uint16_t *p = (uint16_t *)m.p + at;
        for (int64_t i = 0; i < n; i++)
            p[i] = to_bf16(src[i]);
        break;
    }
    default:
        err_bug(__FILE__, __LINE__, "ref computes with F32, F64 and BF16");
    }
}

double ref_get(struct mat m, int64_t r, int64_t c)
{
    double v = 0;

    ref_load(&v, m, r, c, 1);
    return v;
}

void ref_put(struct mat m, int64_t r, int64_t c, double v)
{
    ref_store(m, r, c, 1, &v);
}

double ref_round(enum dtype dt, double v)
{
    if (dt == DT_F32)
        return (double)(float)v;
    if (dt == DT_BF16)
        return (double)dtype_from_bf16(to_bf16(v));
    return v;
}
