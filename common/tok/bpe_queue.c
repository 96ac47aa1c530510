/* bpe_queue.c -- shelves that are opened from the top, and a heap over the open one.
 *
 * One heap over everything spends most of its time on pairs that are far from
 * their turn, each time through cold memory.  Here a pair whose count fell moves
 * to a lower shelf when its old one is opened, and is sorted only on the last.
 * Shelves of counts below 256 hold one count each. */
#include "tok/bpe_queue.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/grow.h"

/* The seven bits behind the first, and where the first stands: grows with count. */
static inline int shelf_of(int64_t count)
{
    uint64_t c = (uint64_t)count;
    if (c < 256)
        return (int)c;
    int e = 63 - __builtin_clzll(c) - 7;
    return e * 128 + (int)(c >> e);
}

static int lay(struct tok_queue *q, int i, uint32_t pair)
{
    struct tok_shelf *s = &q->shelf[i];
    if (s->n == s->cap) {
        int64_t cap = s->cap;
        TRY(grow_plain(&s->pair, &cap, cap + 1, sizeof *s->pair, "pairs"));
        s->cap = (uint32_t)cap;
    }
    s->pair[s->n++] = pair;
    return 0;
}

static inline _Bool before(const struct tok_queued *x, const struct tok_queued *y)
{
    return x->count != y->count ? x->count > y->count : x->key < y->key;
}

static int heap_push(struct tok_queue *q, const struct tok_pair *p, uint32_t pair)
{
    TRY(grow_plain(&q->heap, &q->cap_heap, (int64_t)q->n_heap + 1, sizeof *q->heap, "pairs"));
    struct tok_queued x = { p->count, p->key, pair };
    size_t i = q->n_heap++;
    for (; i > 0 && before(&x, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = x;
    return 0;
}

static void heap_pop(struct tok_queue *q)
{
    struct tok_queued x = q->heap[--q->n_heap];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < q->n_heap; i = c) {
        if (c + 1 < q->n_heap && before(&q->heap[c + 1], &q->heap[c]))
            c++;
        if (!before(&q->heap[c], &x))
            break;
        q->heap[i] = q->heap[c];
    }
    q->heap[i] = x;
}

/* A count above the level goes to the heap too, which keeps any order. */
int tok_queue_put(struct tok_queue *q, const struct tok_pair *pairs, uint32_t pair)
{
    int64_t count = pairs[pair].count;
    if (count < 1)
        return 0;
    int i = shelf_of(count);
    if (q->n_heap == 0 && i > q->level)
        q->level = i;           /* nothing is sorted yet that this could overtake */
    return q->n_heap > 0 && i >= q->level ? heap_push(q, &pairs[pair], pair) : lay(q, i, pair);
}

static int open_shelf(struct tok_queue *q, const struct tok_pair *pairs)
{
    struct tok_shelf *s = &q->shelf[q->level];
    for (uint32_t k = 0; k < s->n; k++) {
        const struct tok_pair *p = &pairs[s->pair[k]];
        if (p->count < 1)
            continue;
        int i = shelf_of(p->count);
        TRY(i == q->level ? heap_push(q, p, s->pair[k]) : lay(q, i, s->pair[k]));
    }
    free(s->pair);
    *s = (struct tok_shelf){ NULL, 0, 0 };
    return 0;
}

int tok_queue_top(struct tok_queue *q, const struct tok_pair *pairs, uint32_t *pair)
{
    for (;;) {
        while (q->n_heap > 0) {
            *pair = q->heap[0].pair;
            if (pairs[*pair].count == q->heap[0].count)
                return 1;
            heap_pop(q);
            TRY(tok_queue_put(q, pairs, *pair));
        }
        while (q->level > 0 && q->shelf[q->level].n == 0)
            q->level--;
        if (q->level == 0)
            return 0;
        TRY(open_shelf(q, pairs));
    }
}

void tok_queue_free(struct tok_queue *q)
{
    for (int i = 0; i < TOK_SHELVES; i++)
        free(q->shelf[i].pair);
    free(q->heap);
    *q = (struct tok_queue){ .level = 0 };
}
