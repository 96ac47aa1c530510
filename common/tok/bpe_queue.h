/* bpe_queue.h -- pairs of symbols by their counts, the most frequent first.
 *
 * Made for counts that only fall: a pair is put in once, with the count it is born
 * with, and found again by the count it has by then.  Equal counts: the smallest key. */
#ifndef TOK_BPE_QUEUE_H
#define TOK_BPE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

/* key: (a << 32 | b); places: where it stands, for the learner alone. */
struct tok_pair { uint64_t key; int64_t count; uint32_t *places; uint32_t n_places; };

/* Counts of nearly the same size share a shelf; the heap holds those of the level. */
enum { TOK_SHELVES = 58 * 128 };
struct tok_shelf { uint32_t *pair; uint32_t n, cap; };
struct tok_queue {
    struct tok_shelf shelf[TOK_SHELVES];
    struct tok_queued { int64_t count; uint64_t key; uint32_t pair; } *heap;
    size_t n_heap;
    int64_t cap_heap;
    int level;                  /* shelves above it are empty */
};

/* Zeroed is empty. */
int tok_queue_put(struct tok_queue *q, const struct tok_pair *pairs, uint32_t pair);
void tok_queue_free(struct tok_queue *q);

/* The most frequent pair that is seen at least once: 1, or 0 when there is none.
 * It stays until its count has fallen. */
int tok_queue_top(struct tok_queue *q, const struct tok_pair *pairs, uint32_t *pair);

#endif
