/* split_mask.h -- the classes of 64 bytes as bits, for the compiled splits alone.
 *
 * A bit stands for a byte; all bytes of a character are in its class.  The
 * masks are the same whatever the processor offers to find them. */
#ifndef TOK_SPLIT_MASK_H
#define TOK_SPLIT_MASK_H

#include <stddef.h>
#include <stdint.h>

struct tok_block {
    uint64_t letter, upper, number, space, brk;         /* brk: CR or LF */
    uint64_t blank, apos, slash;                        /* U+0020, "'", "/" */
    uint64_t control;                                   /* those of ASCII that are no white space */
    uint64_t high;                                      /* bytes of characters over U+007F */
    uint64_t other;                                     /* of no class above */
    uint64_t tail;                                      /* bytes of a character but its first */
};

/* Masks of n_blocks * 64 bytes that look at ASCII alone; tail is 0 and other
 * holds no high byte. */
typedef void tok_mask_ascii(const uint8_t *s, size_t n_blocks, struct tok_block *out);

tok_mask_ascii tok_mask_portable;
/* Those of this processor, best first; NULL after the last, which is the portable one. */
tok_mask_ascii *tok_mask_kernel(int i);
tok_mask_ascii *tok_mask_avx2(void), *tok_mask_avx512(void);    /* NULL: not here */

#endif
