/* cast.c -- loops without branches, so that the compiler makes vectors of them.
 *
 * BF16 and F16 pass through a block of F32 that stays in the first cache. */
#include "ckpt/cast.h"

#include <string.h>

#include "base/err.h"

#define BLOCK 1024

_Bool cast_is_float(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }

/* Elements are copied through memcpy of whole blocks: buffers may be unaligned. */
static void widen_bf16(uint32_t *dst, const uint16_t *src, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        dst[i] = (uint32_t)src[i] << 16;
}

static void widen_f16(uint32_t *dst, const uint16_t *src, int n)
{
    for (int i = 0; i < n; i++) {
        float f = dtype_from_f16(src[i]);

        memcpy(&dst[i], &f, 4);
    }
}

/* Returns how many finite values became infinite. */
static int64_t narrow_bf16(uint16_t *dst, const uint32_t *src, int n)
{
    uint32_t over = 0;

#pragma omp simd reduction(+ : over)
    for (int i = 0; i < n; i++) {
        uint32_t u = src[i], mag = u & 0x7fffffffu;
        uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16, nan = (u >> 16) | 0x40u;
        uint32_t is_nan = mag > 0x7f800000u ? 0xffffffffu : 0;

        dst[i] = (uint16_t)((rounded & ~is_nan) | (nan & is_nan));
        over += mag < 0x7f800000u && mag >= 0x7f7f8000u;
    }
    return over;
}

/* The exponent of a half goes down to -14; below, the unit in the last place is
 * 2^-24, and adding 0.5 in float makes the hardware round to exactly that. */
static int64_t narrow_f16(uint16_t *dst, const uint32_t *src, int n)
{
    uint32_t over = 0;

#pragma omp simd reduction(+ : over)
    for (int i = 0; i < n; i++) {
        uint32_t u = src[i], sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu, small, normal, h;
        union { uint32_t u; float f; } tiny;

        tiny.u = mag < 0x38800000u ? mag : 0;
        tiny.f += 0.5f;
        small = tiny.u - 0x3f000000u;
        normal = (mag - 0x38000000u + 0xfffu + (mag >> 13 & 1u)) >> 13;
        h = mag < 0x38800000u ? small : normal;
        h = mag >= 0x477ff000u ? 0x7c00u : h;   /* rounds to 65536 or more */
        h = mag > 0x7f800000u ? 0x7e00u | (mag >> 13 & 0x3ffu) : h;
        over += mag < 0x7f800000u && mag >= 0x477ff000u;
        dst[i] = (uint16_t)(sign | h);
    }
    return over;
}

int64_t cast_array(void *dst, enum dtype to, const void *src, enum dtype from, int64_t n)
{
    uint32_t wide[BLOCK];
    uint16_t half[BLOCK];
    int64_t over = 0;

    BUG_ON(!cast_is_float(to) || !cast_is_float(from));
    if (to == from) {
        memcpy(dst, src, (size_t)n * dtype_size(to));
        return 0;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        int k = n - at < BLOCK ? (int)(n - at) : BLOCK;

        if (from == DT_F32) {
            memcpy(wide, (const char *)src + 4 * at, 4 * (size_t)k);
        } else {
            memcpy(half, (const char *)src + 2 * at, 2 * (size_t)k);
            if (from == DT_BF16)
                widen_bf16(wide, half, k);
            else
                widen_f16(wide, half, k);
        }
        if (to == DT_F32) {
            memcpy((char *)dst + 4 * at, wide, 4 * (size_t)k);
        } else {
            over += to == DT_BF16 ? narrow_bf16(half, wide, k) : narrow_f16(half, wide, k);
            memcpy((char *)dst + 2 * at, half, 2 * (size_t)k);
        }
    }
    return over;
}
