/* peak.h -- what the machine reaches by our own ops: the divisor of mfu, the
 * yardsticks of moe-bench. */
#ifndef DEV_PEAK_H
#define DEV_PEAK_H

#include "dev/dev.h"

/* GFLOP/s of the device's gemm on 1024 x 1024 x 1024 in its first storage type,
 * best of a few runs after a warm-up, about 100 ms.  0 on a device that does no
 * arithmetic or without memory for it.  Not a claim about the hardware: the
 * best that this build reaches here and now. */
double dev_gemm_peak(struct dev *d);

/* GB/s, read and written bytes together, of the device's copy of 64 MiB: best
 * of a few.  0 without memory for it. */
double dev_copy_peak(struct dev *d);

#endif
