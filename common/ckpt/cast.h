/* cast.h -- arrays of F32, BF16 and F16 into one another.
 *
 * Widening is exact.  Narrowing rounds once, to nearest even; NaN stays NaN and
 * infinities stay.  BF16 and F16 become each other by way of F32, which is one
 * rounding too. */
#ifndef CKPT_CAST_H
#define CKPT_CAST_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

_Bool cast_is_float(enum dtype t);      /* one of the three */

/* n elements of src as type `from` into dst as type `to`; the buffers do not
 * overlap and need no alignment.  Returns how many finite values became
 * infinite, which only F16 does (and BF16 within half a step of its end). */
int64_t cast_array(void *dst, enum dtype to, const void *src, enum dtype from, int64_t n);

#endif
