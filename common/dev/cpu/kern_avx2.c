/* kern_avx2.c -- the kernels for x86-64 with AVX2 and FMA. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "dev/cpu/kern.h"

#ifdef __x86_64__

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define VL 8
#define MR 6
#define NV 2            /* 16 registers: 12 sums, 2 of b, 1 of a */
#define SET "avx2"
#include "dev/cpu/kern_body.inc"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct cpu_kern *cpu_kern_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &table : NULL;
}

#else

const struct cpu_kern *cpu_kern_avx2(void)
{
    return NULL;
}

#endif
