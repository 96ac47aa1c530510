/* rng.c -- Philox and what is built on it.
 *
 * Only + - * / and sqrt of doubles decide a value, which IEEE 754 rounds the
 * same everywhere; contraction is off for the whole build.  A key serves one
 * kind of use: uniform and normal elements come from the same blocks. */
#include "base/rng.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"

#define CHUNK 8192              /* elements; fixed, though nothing depends on it */

struct rng_key rng_key(uint64_t seed, const char *name)
{
    /* The high half is the first 16 digits of the printed hash. */
    uint64_t h = XXH3_128bits_withSeed(name, strlen(name), seed).high64;

    return (struct rng_key){ { (uint32_t)h, (uint32_t)(h >> 32) } };
}

static inline void philox(struct rng_key key, uint64_t lo, uint64_t hi, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)lo, c1 = (uint32_t)(lo >> 32), c2 = (uint32_t)hi, c3 = (uint32_t)(hi >> 32);
    uint32_t k0 = key.k[0], k1 = key.k[1];

    for (int i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void rng_block(struct rng_key key, uint64_t lo, uint64_t hi, uint32_t out[4])
{
    philox(key, lo, hi, out);
}

static inline uint64_t bits53(uint32_t lo, uint32_t hi)
{
    return ((uint64_t)hi << 32 | lo) >> 11;
}

double rng_uniform(struct rng_key key, uint64_t i)
{
    uint32_t w[4];

    philox(key, i >> 1, 0, w);
    return (double)(i & 1 ? bits53(w[2], w[3]) : bits53(w[0], w[1])) * 0x1p-53;
}

/* Natural logarithm of a normal number in (0, 1], within 2 ulp: the series of
 * atanh for a mantissa in [sqrt(1/2), sqrt(2)), where 11 terms suffice. */
static inline double own_log(double x)
{
    uint64_t u;
    double m;

    memcpy(&u, &x, 8);
    int64_t e = (int64_t)((u - 0x3fe6a09e667f3bcdu) >> 52 << 52);
    u -= (uint64_t)e;
    memcpy(&m, &u, 8);
    double k = (double)(e / ((int64_t)1 << 52));
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 23;
    p = p * z + 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    /* ln 2 in two parts: the first has 32 trailing zero bits, so k times it is exact. */
    return k * 0x1.62e42feep-1 + (2.0 * s + (2.0 * s * z * p + k * 0x1.a39ef35793c76p-33));
}

/* Cosine and sine of 2 pi u for u in [0, 1): the quarter turn nearest to u is
 * taken off exactly, and the rest, at most pi/4, goes through Taylor series. */
static inline void own_cossin(double u, double *c, double *s)
{
    int q = (int)(4.0 * u + 0.5);
    double x = (4.0 * u - (double)q) * 0x1.921fb54442d18p+0, z = x * x;
    double ps = 1.0 / 355687428096000;
    double pc = 1.0 / 20922789888000;

    ps = ps * z - 1.0 / 1307674368000;
    pc = pc * z - 1.0 / 87178291200;
    ps = ps * z + 1.0 / 6227020800;
    pc = pc * z + 1.0 / 479001600;
    ps = ps * z - 1.0 / 39916800;
    pc = pc * z - 1.0 / 3628800;
    ps = ps * z + 1.0 / 362880;
    pc = pc * z + 1.0 / 40320;
    ps = ps * z - 1.0 / 5040;
    pc = pc * z - 1.0 / 720;
    ps = ps * z + 1.0 / 120;
    pc = pc * z + 1.0 / 24;
    ps = ps * z - 1.0 / 6;
    pc = pc * z - 1.0 / 2;
    ps = x + x * z * ps;
    pc = 1.0 + z * pc;

    /* Quarter turns swap the two and flip signs; selects, not branches. */
    double a = q & 1 ? ps : pc, b = q & 1 ? pc : ps;
    *c = (q + 1) & 2 ? -a : a;
    *s = q & 2 ? -b : b;
}

static inline void normal_pair(struct rng_key key, uint64_t block, double v[2])
{
    uint32_t w[4];
    double c, s;

    philox(key, block, 0, w);
    /* In (0, 1], so that the logarithm is finite; the radius ends at 8.57. */
    double u = (double)(bits53(w[0], w[1]) + 1) * 0x1p-53;
    double r = sqrt(-2.0 * own_log(u));
    own_cossin((double)bits53(w[2], w[3]) * 0x1p-53, &c, &s);
    v[0] = r * c;
    v[1] = r * s;
}

double rng_normal(struct rng_key key, uint64_t i)
{
    double v[2];

    normal_pair(key, i >> 1, v);
    return v[i & 1];
}

static void fill_chunk(float *dst, int64_t n, struct rng_key key, uint64_t first, double std)
{
    double v[2];
    int64_t j = 0;

    if (n > 0 && first & 1)
        dst[j++] = (float)(std * rng_normal(key, first));
    for (; j + 1 < n; j += 2) {
        normal_pair(key, (first + (uint64_t)j) >> 1, v);
        dst[j] = (float)(std * v[0]);
        dst[j + 1] = (float)(std * v[1]);
    }
    if (j < n)
        dst[j] = (float)(std * rng_normal(key, first + (uint64_t)j));
}

void rng_fill_normal(float *dst, int64_t n, struct rng_key key, uint64_t first, double std)
{
    int64_t chunks = (n + CHUNK - 1) / CHUNK;

#pragma omp parallel for schedule(static) if (chunks > 8)
    for (int64_t c = 0; c < chunks; c++) {
        int64_t at = c * CHUNK, len = n - at < CHUNK ? n - at : CHUNK;
        fill_chunk(dst + at, len, key, first + (uint64_t)at, std);
    }
}

uint64_t rng_permute(struct rng_key key, uint64_t n, uint64_t i)
{
    int half = 1;

    BUG_ON(n == 0 || i >= n);
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    /* The network permutes 4^half >= n numbers; walking its cycle until the
     * image is below n permutes those below n.  Fewer than 4 steps on average. */
    do {
        uint64_t l = i >> half, r = i & mask;
        for (uint64_t round = 0; round < 8; round++) {
            uint32_t w[4];
            philox(key, r | round << 32, 1, w);
            uint64_t t = l ^ (w[0] & mask);
            l = r;
            r = t;
        }
        i = l << half | r;
    } while (i >= n);
    return i;
}
