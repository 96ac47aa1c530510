/* kern_base.c -- the kernels for what every processor of this architecture
 * has: SSE2 on x86-64, NEON on aarch64. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "dev/cpu/kern.h"

#define VL 4
#ifdef __aarch64__
#define MR 5
#define NV 4            /* 32 registers: 20 sums, 4 of b, 5 of a */
#define SET "neon"
#else
#define MR 6
#define NV 2            /* 16 registers: 12 sums, 2 of b, 1 of a */
#define SET "base"
#endif
#include "dev/cpu/kern_body.inc"

const struct cpu_kern *cpu_kern_base(void)
{
    return &table;
}
