/* fast_merge.h -- the merging of short pieces of bytes, several at a time.
 *
 * The result is that of merge.h.  What is different is how memory is asked: a
 * pair of bytes is looked up by the bytes themselves, any other pair in a bucket
 * of two, what a merge gives is read once it is made, and while
 * one piece waits for an answer the others go on. */
#ifndef TOK_FAST_MERGE_H
#define TOK_FAST_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "tok/merge.h"

enum {
    TOK_NEAR_MAX = 62,                  /* bytes of a piece */
    TOK_NEAR_BITS = 24,                 /* of an id and of a rank; the highest value stands for nothing */
    TOK_NEAR_WAYS = 2,
};

/* The hash of a pair has 48 bits and tells the pair.  Its upper bits are the number of a bucket; a slot holds the
 * others, and below them the rank.  A bucket that ran over says so, and its pairs stand in pairs alone. */
struct tok_near {
    const struct tok_pairs *pairs;
    uint64_t (*bucket)[TOK_NEAR_WAYS];
    int32_t *product;                   /* by rank */
    int32_t (*first)[256];              /* rank of two bytes, by the bytes */
    int bits;
    int32_t byte_id[256];
};

/* Tables of the pairs (borrowed), where all bytes are tokens; *near is left empty (bucket NULL, 0 returned) when
 * ids or ranks are too high, or pairs of one rank give different tokens.  ERR_IO when memory runs out. */
int tok_near_new(const struct tok_pairs *pairs, const int32_t byte_id[256], struct tok_near *near);
void tok_near_free(struct tok_near *near);

/* A piece of 0 < n <= TOK_NEAR_MAX bytes, and room for n ids, of which there will be n_ids. */
struct tok_near_job { const uint8_t *s; int32_t *ids; uint32_t n, n_ids; };

void tok_near_merge(const struct tok_near *near, struct tok_near_job *job, size_t n_jobs);

#endif
