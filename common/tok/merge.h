/* merge.h -- the merging of one piece: a table of pairs, and two ways to the
 * same result.
 *
 * The result is defined as: merge the pair of lowest rank, leftmost first,
 * until no pair has a rank.  Several pairs may share a rank (a vocabulary of
 * ranks, where the pair's text decides) and several may give one product. */
#ifndef TOK_MERGE_H
#define TOK_MERGE_H

#include <stddef.h>
#include <stdint.h>

struct tok_pair { uint64_t key; int32_t rank, product; };

/* Zeroed memory for a table that is read all over: in large pages where the system gives
 * them, which must be asked for before the first touch.  NULL: there is none. */
void *tok_pages_new(size_t bytes);
void tok_pages_free(void *p, size_t bytes);     /* as many as were asked for; NULL is accepted */

/* Open addressing, at most 5/8 full.  Most questions are about pairs that are not there;
 * sixteen bits for each slot answer nearly all of these from a table that stays near. */
struct tok_pairs { struct tok_pair *slot; uint64_t *seen; uint64_t mask; int shift; int64_t n; };

#define TOK_NO_PAIR UINT64_MAX

/* Zeroed is empty.  ERR_IO when memory runs out. */
int tok_pairs_reserve(struct tok_pairs *t, int64_t n);
/* A pair that is there already keeps what it has when keep, else is replaced. */
int tok_pairs_add(struct tok_pairs *t, int32_t a, int32_t b, int32_t rank, int32_t product, _Bool keep);
void tok_pairs_free(struct tok_pairs *t);

static inline const struct tok_pair *tok_pairs_find(const struct tok_pairs *t, int32_t a, int32_t b)
{
    uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b, h = key * 0x9e3779b97f4a7c15u, i = h >> (t->shift - 4);
    if (!(t->seen[i >> 6] >> (i & 63) & 1))
        return NULL;
    for (i >>= 4; t->slot[i].key != TOK_NO_PAIR; i = (i + 1) & t->mask)
        if (t->slot[i].key == key)
            return &t->slot[i];
    return NULL;
}

enum { TOK_SCAN_MAX = 96 };      /* symbols for which scans beat the heap */

/* Merges ids[n] (n <= TOK_SCAN_MAX) in place by repeated scans; returns how many remain. */
size_t tok_merge_scan(const struct tok_pairs *t, int32_t *ids, size_t n);

/* Scratch of the heap, grown to the longest piece seen; zeroed is empty. */
struct tok_merge_mem { int32_t *prev, *next; uint64_t *heap; size_t cap; };
void tok_merge_mem_free(struct tok_merge_mem *w);

/* The same by a heap, n log n whatever the text is.  ids are changed in place. */
int tok_merge_heap(const struct tok_pairs *t, struct tok_merge_mem *w, int32_t *ids, size_t n, size_t *n_out);

#endif
