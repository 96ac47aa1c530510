/* mem_pack.h -- offsets for buffers with lifetimes.
 *
 * Buffers whose lifetimes meet get disjoint bytes.  Deterministic: the same
 * items give the same offsets.  Not optimal (that is NP-hard), but the best of
 * a few greedy orders. */
#ifndef DEV_MEM_PACK_H
#define DEV_MEM_PACK_H

#include <stddef.h>
#include <stdint.h>

struct mem_item {
    size_t bytes, align;        /* align: a power of two */
    int64_t first, last;        /* alive in [first, last] */
    size_t offset;              /* result */
};

/* Returns the bytes of the whole region; *peak (may be NULL) is the largest
 * sum of bytes alive at once, which no packing can beat. */
size_t mem_pack(struct mem_item *items, int n, size_t *peak);

#endif
