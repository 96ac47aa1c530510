/* bpe_learn.c -- pairs counted once, then kept.
 *
 * All pairs of neighbours are counted once. The best pair is taken from a heap
 * whose entries may be out of date (a count that fell is put back with its true
 * value) and merged in the pieces that hold it, which changes only counts of
 * pairs beside it. The work is that of the pieces touched, not of the text.
 *
 * Invariants: pair.count is the number of neighbours (a, b) over all pieces,
 * overlapping ones included ("aaa" has two), times the pieces' counts; a piece
 * that holds a pair is in the pair's list (which may hold others too). */
#include "tok/bpe_learn.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/bytelevel.h"

struct pair { uint64_t key; int64_t count; uint32_t *in; uint32_t n, cap; };

struct entry { int64_t count; uint64_t key; uint32_t pair; };

struct tok_learner {
    const struct tok_counts *c;
    int32_t *sym;               /* symbols of all pieces; piece i begins at its c->piece[i].at */
    uint32_t *len;              /* symbols left in piece i */
    struct pair *pair; size_t n_pairs, cap_pairs;
    uint32_t *slot; size_t mask;        /* index + 1 */
    struct entry *heap; size_t n_heap, cap_heap;
    uint32_t *rose; size_t n_rose, cap_rose;    /* pairs that gained during one merge */
    int64_t tokens;
};

void tok_learner_free(struct tok_learner *l)
{
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->n_pairs; i++)
        free(l->pair[i].in);
    free(l->sym);
    free(l->len);
    free(l->pair);
    free(l->slot);
    free(l->heap);
    free(l->rose);
    free(l);
}

static int more(void *array, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return 0;
    size_t want = 2 * *cap + 256;
    void *p = realloc(*(void **)array, want * size);
    if (p == NULL)
        return err_sys(ERR_IO, "memory for %zu pairs", want);
    *(void **)array = p;
    *cap = want;
    return 0;
}

static inline size_t slot_of(const struct tok_learner *l, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    return (h ^ h >> 32) & l->mask;
}

static int grow_slots(struct tok_learner *l)
{
    size_t size = l->slot == NULL ? 1 << 14 : 2 * (l->mask + 1);
    uint32_t *slot = calloc(size, sizeof *slot);
    if (slot == NULL)
        return err_sys(ERR_IO, "memory for %zu pairs", size);
    free(l->slot);
    l->slot = slot;
    l->mask = size - 1;
    for (size_t k = 0; k < l->n_pairs; k++) {
        size_t i = slot_of(l, l->pair[k].key);
        while (slot[i] != 0)
            i = (i + 1) & l->mask;
        slot[i] = (uint32_t)k + 1;
    }
    return 0;
}

static int pair_at(struct tok_learner *l, int32_t a, int32_t b, uint32_t *index)
{
    uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    if (2 * (l->n_pairs + 1) > l->mask)
        TRY(grow_slots(l));
    size_t i = slot_of(l, key);
    for (; l->slot[i] != 0; i = (i + 1) & l->mask)
        if (l->pair[l->slot[i] - 1].key == key) {
            *index = l->slot[i] - 1;
            return 0;
        }
    TRY(more(&l->pair, &l->cap_pairs, l->n_pairs, sizeof *l->pair));
    l->pair[l->n_pairs] = (struct pair){ key, 0, NULL, 0, 0 };
    *index = (uint32_t)l->n_pairs++;
    l->slot[i] = *index + 1;
    return 0;
}

static int pair_gains(struct tok_learner *l, int32_t a, int32_t b, uint32_t piece)
{
    uint32_t k;
    TRY(pair_at(l, a, b, &k));
    struct pair *p = &l->pair[k];
    p->count += l->c->piece[piece].count;
    if (p->n > 0 && p->in[p->n - 1] == piece)
        return 0;
    if (p->n == p->cap) {
        uint32_t cap = p->cap * 2 + 4;
        uint32_t *in = realloc(p->in, cap * sizeof *in);
        if (in == NULL)
            return err_sys(ERR_IO, "memory for the places of a pair");
        p->in = in;
        p->cap = cap;
    }
    p->in[p->n++] = piece;
    return 0;
}

static int pair_rises(struct tok_learner *l, int32_t a, int32_t b, uint32_t piece)
{
    uint32_t k;
    TRY(pair_gains(l, a, b, piece));
    TRY(pair_at(l, a, b, &k));
    TRY(more(&l->rose, &l->cap_rose, l->n_rose, sizeof *l->rose));
    l->rose[l->n_rose++] = k;
    return 0;
}

static int pair_loses(struct tok_learner *l, int32_t a, int32_t b, uint32_t piece)
{
    uint32_t k;
    TRY(pair_at(l, a, b, &k));
    l->pair[k].count -= l->c->piece[piece].count;
    return 0;
}

/* ---- the heap: most frequent first, then smallest (a, b) */

static inline _Bool before(const struct entry *x, const struct entry *y)
{
    return x->count != y->count ? x->count > y->count : x->key < y->key;
}

static int heap_push(struct tok_learner *l, uint32_t pair)
{
    TRY(more(&l->heap, &l->cap_heap, l->n_heap, sizeof *l->heap));
    struct entry x = { l->pair[pair].count, l->pair[pair].key, pair };
    size_t i = l->n_heap++;
    for (; i > 0 && before(&x, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = x;
    return 0;
}

static struct entry heap_pop(struct tok_learner *l)
{
    struct entry top = l->heap[0], x = l->heap[--l->n_heap];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < l->n_heap; i = c) {
        if (c + 1 < l->n_heap && before(&l->heap[c + 1], &l->heap[c]))
            c++;
        if (!before(&l->heap[c], &x))
            break;
        l->heap[i] = l->heap[c];
    }
    l->heap[i] = x;
    return top;
}

static int learner_init(struct tok_learner *l, const struct tok_counts *c)
{
    int32_t id[256];
    l->c = c;
    for (int i = 0; i < 256; i++)
        id[tok_byte_of_order(i)] = i;
    l->sym = malloc(c->n_bytes * sizeof *l->sym + 1);
    l->len = malloc(c->n * sizeof *l->len + 1);
    if (l->sym == NULL || l->len == NULL)
        return err_sys(ERR_IO, "memory for %zu bytes of pieces", c->n_bytes);
    for (size_t i = 0; i < c->n_bytes; i++)
        l->sym[i] = id[c->bytes[i]];
    for (size_t k = 0; k < c->n; k++) {
        const int32_t *s = l->sym + c->piece[k].at;
        l->len[k] = c->piece[k].n;
        l->tokens += c->piece[k].n * c->piece[k].count;
        for (uint32_t i = 0; i + 1 < l->len[k]; i++)
            TRY(pair_gains(l, s[i], s[i + 1], (uint32_t)k));
    }
    for (size_t k = 0; k < l->n_pairs; k++)
        TRY(heap_push(l, (uint32_t)k));
    return 0;
}

/* Replaces (a, b) by p in one piece, from left to right, keeping all counts. */
static int merge_piece(struct tok_learner *l, uint32_t k, int32_t a, int32_t b, int32_t p)
{
    int32_t *s = l->sym + l->c->piece[k].at;
    uint32_t n = l->len[k], w = 0;
    for (uint32_t i = 0; i < n; w++) {
        if (s[i] != a || i + 1 == n || s[i + 1] != b) {
            s[w] = s[i++];
            continue;
        }
        /* The left neighbour is s[w-1], which may be a p of this merge. */
        if (w > 0) {
            TRY(pair_loses(l, s[w - 1], a, k));
            TRY(pair_rises(l, s[w - 1], p, k));
        }
        if (i + 2 < n) {
            TRY(pair_loses(l, b, s[i + 2], k));
            TRY(pair_rises(l, p, s[i + 2], k));
        }
        s[w] = p;
        l->tokens -= l->c->piece[k].count;
        i += 2;
    }
    l->len[k] = w;
    return 0;
}

static int merge_pair(struct tok_learner *l, uint32_t pair, int32_t product)
{
    uint64_t key = l->pair[pair].key;
    uint32_t *in = l->pair[pair].in, n = l->pair[pair].n;
    int rc = 0;
    /* The list is taken away first: the table may move while it is read. */
    l->pair[pair].in = NULL;
    l->pair[pair].n = l->pair[pair].cap = 0;
    l->n_rose = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = merge_piece(l, in[i], (int32_t)(key >> 32), (int32_t)(uint32_t)key, product);
    free(in);
    TRY(rc);
    l->pair[pair].count = 0;
    for (size_t i = 0; i < l->n_rose; i++) {
        struct pair *p = &l->pair[l->rose[i]];
        if (p->count > 0 && p->cap > 0)
            TRY(heap_push(l, l->rose[i]));
        while (i + 1 < l->n_rose && l->rose[i + 1] == l->rose[i])
            i++;
    }
    return 0;
}

int tok_learner_new(const struct tok_counts *c, struct tok_learner **out)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return err_sys(ERR_IO, "memory for pairs");
    int rc = learner_init(*out, c);
    if (rc < 0) {
        tok_learner_free(*out);
        *out = NULL;
    }
    return rc;
}

int tok_learner_best(struct tok_learner *l, int64_t min_count, int32_t *a, int32_t *b)
{
    while (l->n_heap > 0) {
        const struct entry *top = &l->heap[0];
        const struct pair *p = &l->pair[top->pair];
        if (top->count == p->count) {
            *a = (int32_t)(top->key >> 32);
            *b = (int32_t)(uint32_t)top->key;
            return top->count > 0 && top->count >= min_count;
        }
        uint32_t pair = heap_pop(l).pair;
        if (l->pair[pair].count > 0)
            TRY(heap_push(l, pair));
    }
    return 0;
}

int tok_learner_merge(struct tok_learner *l, int32_t a, int32_t b, int32_t product)
{
    uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    if (l->slot == NULL)
        return 0;
    for (size_t i = slot_of(l, key); l->slot[i] != 0; i = (i + 1) & l->mask)
        if (l->pair[l->slot[i] - 1].key == key)
            return merge_pair(l, l->slot[i] - 1, product);
    return 0;
}

int64_t tok_learner_tokens(const struct tok_learner *l)
{
    return l->tokens;
}
