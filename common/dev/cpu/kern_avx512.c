/* kern_avx512.c -- the kernels for x86-64 with the AVX-512 of servers (F, DQ, BW, VL). */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "dev/cpu/kern.h"

#ifdef __x86_64__

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl"))), apply_to = function)
#pragma clang attribute push(__attribute__((min_vector_width(512))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#endif
#define VL 16
#define MR 12
#define NV 2            /* 32 registers: 24 sums, 2 of b; a is broadcast from memory */
#define SET "avx512"
#include "dev/cpu/kern_body.inc"
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct cpu_kern *cpu_kern_avx512(void)
{
    _Bool ok = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return ok ? &table : NULL;
}

#else

const struct cpu_kern *cpu_kern_avx512(void)
{
    return NULL;
}

#endif
