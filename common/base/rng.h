/* rng.h -- counter-based random numbers: a pure function of (key, index).
 *
 * Philox 4x32-10 (Salmon et al., SC 2011).  No state anywhere, so the same
 * values come on any mesh, device, thread count and order. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng_key { uint32_t k[2]; };

/* A key from a seed and a name: the first 64 bits of xxh3-128 of the name,
 * seeded.  Different names give independent streams. */
struct rng_key rng_key(uint64_t seed, const char *name);

/* The four 32-bit words of block `counter` (128-bit counter: lo, hi). */
void rng_block(struct rng_key key, uint64_t lo, uint64_t hi, uint32_t out[4]);

/* Element i of the stream: uniform in [0, 1) with 53 bits; standard normal by
 * Box-Muller over our own log, sqrt and sin/cos polynomials in double, so that
 * no libm decides a bit.  Elements 2j and 2j+1 share one block. */
double rng_uniform(struct rng_key key, uint64_t i);
double rng_normal(struct rng_key key, uint64_t i);

/* dst[j] = (float)(std * normal(key, first + j)), rounded once. */
void rng_fill_normal(float *dst, int64_t n, struct rng_key key, uint64_t first, double std);

/* Keyed permutation of [0, n) without memory: the image of i (cycle-walking
 * Feistel).  rng_permute(key, n, .) is a bijection for every n >= 1. */
uint64_t rng_permute(struct rng_key key, uint64_t n, uint64_t i);

#endif
