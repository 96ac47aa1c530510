/* fast_merge.h -- the merging of a short piece of bytes, from tables that stay near.
 *
 * The result is that of merge.h.  What is different is where memory is touched:
 * a pair of bytes is looked up by the bytes themselves, any other pair in slots
 * of eight bytes, and what a merge gives is read once it is made. */
#ifndef TOK_FAST_MERGE_H
#define TOK_FAST_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "tok/merge.h"

enum {
    TOK_NEAR_MAX = 62,                  /* bytes of a piece */
    TOK_NEAR_BITS = 24,                 /* of an id and of a rank; the highest value stands for nothing */
};

/* A slot holds, from above: the part of the pair's hash that its place does not tell (32 bits), one more than
 * the steps from there to here (8), the rank (24).  The hash of 48 bits tells the pair.  Zero: empty. */
struct tok_near {
    uint64_t *slot, *seen;              /* seen: sixteen bits for each slot, as in merge.h */
    int32_t *product;                   /* by rank */
    uint32_t (*first)[256];             /* rank of two bytes, by the bytes */
    uint64_t mask;
    int bits;
    int32_t byte_id[256];
};

/* Tables of the pairs, where all bytes are tokens; *near is left empty (slot NULL, 0 returned) when ids or ranks
 * are too high, or pairs of one rank give different tokens.  ERR_IO when memory runs out. */
int tok_near_new(const struct tok_pairs *pairs, const int32_t byte_id[256], struct tok_near *near);
void tok_near_free(struct tok_near *near);

/* The ids of s[0..n), n <= TOK_NEAR_MAX; there is room for n.  Returns how many there are. */
size_t tok_near_merge(const struct tok_near *near, const uint8_t *s, size_t n, int32_t *ids);

#endif
