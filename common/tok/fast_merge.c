/* fast_merge.c -- ranks with their places in one number each, and the least of them merged.
 *
 * Symbols do not move: bits say which are left, and the neighbours of one are
 * found by counting zeros.  A piece has a symbol before it and one behind it
 * that are in no pair, so that no end needs a question. */
#include "tok/fast_merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define NONE (((uint32_t)1 << TOK_NEAR_BITS) - 1)       /* an id, and a rank, that nothing has */

enum { PLACE_BITS = 6, FEWEST_BITS = 2 * TOK_NEAR_BITS - 32, MOST_STEPS = 255 };

/* One to one, since the factor is odd. */
static inline uint64_t hash_of(uint32_t a, uint32_t b)
{
    const uint64_t pair = (uint64_t)a << TOK_NEAR_BITS | b;
    return (pair * 0x9e3779b97f4a7c15u) << (64 - 2 * TOK_NEAR_BITS) >> (64 - 2 * TOK_NEAR_BITS);
}

static inline uint32_t rank_of(const struct tok_near *t, uint32_t a, uint32_t b)
{
    const int rest = 2 * TOK_NEAR_BITS - t->bits;
    const uint64_t h = hash_of(a, b), bit = h >> (rest - 4);
    if (!(t->seen[bit >> 6] >> (bit & 63) & 1))
        return NONE;
    uint64_t want = (h & (((uint64_t)1 << rest) - 1)) << 8 | 1;
    for (uint64_t i = h >> rest, e; (e = t->slot[i]) != 0; i = (i + 1) & t->mask, want++)
        if (e >> TOK_NEAR_BITS == want)
            return (uint32_t)e & NONE;
    return NONE;
}

/* False when the pair would lie too far from its place. */
static _Bool put(struct tok_near *t, const struct tok_pair *p)
{
    const int rest = 2 * TOK_NEAR_BITS - t->bits;
    const uint64_t h = hash_of((uint32_t)(p->key >> 32), (uint32_t)p->key), bit = h >> (rest - 4);
    uint64_t i = h >> rest, steps = 1;
    for (; t->slot[i] != 0; i = (i + 1) & t->mask)
        steps++;
    if (steps > MOST_STEPS)
        return 0;
    t->slot[i] = ((h & (((uint64_t)1 << rest) - 1)) << 8 | steps) << TOK_NEAR_BITS | (uint32_t)p->rank;
    t->seen[bit >> 6] |= (uint64_t)1 << (bit & 63);
    return 1;
}

static void tables_free(struct tok_near *t)
{
    tok_pages_free(t->slot, (t->mask + 1) * sizeof *t->slot);
    tok_pages_free(t->seen, (t->mask + 1) / 4 * sizeof *t->seen);
}

static int fill(struct tok_near *t, const struct tok_pairs *pairs, int bits)
{
    const size_t n = (size_t)1 << bits;
    tables_free(t);
    t->bits = bits;
    t->mask = n - 1;
    t->slot = tok_pages_new(n * sizeof *t->slot);
    t->seen = tok_pages_new(n / 4 * sizeof *t->seen);
    if (t->slot == NULL || t->seen == NULL)
        return err_sys(ERR_IO, "memory for %zu pairs", n);
    for (uint64_t i = 0; i <= pairs->mask; i++)
        if (pairs->slot[i].key != TOK_NO_PAIR && !put(t, &pairs->slot[i]))
            return fill(t, pairs, bits + 1);
    return 0;
}

/* Ids, ranks and products that the tables can hold; *ranks: how many ranks there are at most. */
static _Bool fits(const struct tok_pairs *pairs, int32_t *ranks)
{
    *ranks = 0;
    for (uint64_t i = 0; i <= pairs->mask; i++) {
        const struct tok_pair *p = &pairs->slot[i];
        if (p->key == TOK_NO_PAIR)
            continue;
        if (p->key >> 32 >= NONE || (uint32_t)p->key >= NONE || (uint32_t)p->rank >= NONE || (uint32_t)p->product >= NONE)
            return 0;
        if (p->rank >= *ranks)
            *ranks = p->rank + 1;
    }
    return 1;
}

static int build(struct tok_near *t, const struct tok_pairs *pairs, int32_t ranks, _Bool *same)
{
    int bits = FEWEST_BITS;
    while ((int64_t)3 << bits < 4 * pairs->n)
        bits++;
    TRY(fill(t, pairs, bits));
    t->product = malloc(((size_t)ranks + 1) * sizeof *t->product);
    t->first = malloc(256 * sizeof *t->first);
    if (t->product == NULL || t->first == NULL)
        return err_sys(ERR_IO, "memory for %d ranks", (int)ranks);
    memset(t->product, 255, ((size_t)ranks + 1) * sizeof *t->product);
    for (uint64_t i = 0; i <= pairs->mask; i++) {
        const struct tok_pair *p = &pairs->slot[i];
        if (p->key == TOK_NO_PAIR)
            continue;
        *same &= t->product[p->rank] < 0 || t->product[p->rank] == p->product;
        t->product[p->rank] = p->product;
    }
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++)
            t->first[a][b] = rank_of(t, (uint32_t)t->byte_id[a], (uint32_t)t->byte_id[b]);
    return 0;
}

int tok_near_new(const struct tok_pairs *pairs, const int32_t byte_id[256], struct tok_near *near)
{
    int32_t ranks;
    _Bool same = 1;
    *near = (struct tok_near){ 0 };
    for (int b = 0; b < 256; b++)
        if (byte_id[b] < 0 || (uint32_t)byte_id[b] >= NONE)
            return 0;
    if (!fits(pairs, &ranks))
        return 0;
    memcpy(near->byte_id, byte_id, sizeof near->byte_id);
    int rc = build(near, pairs, ranks, &same);
    if (rc < 0 || !same)
        tok_near_free(near);
    return rc;
}

void tok_near_free(struct tok_near *near)
{
    tables_free(near);
    free(near->product);
    free(near->first);
    *near = (struct tok_near){ 0 };
}

/* The least of a multiple of four. */
static inline uint32_t least(const uint32_t *v, size_t n)
{
    uint32_t a = v[0], b = v[1], c = v[2], d = v[3];
    for (size_t i = 4; i < n; i += 4) {
        a = v[i] < a ? v[i] : a;
        b = v[i + 1] < b ? v[i + 1] : b;
        c = v[i + 2] < c ? v[i + 2] : c;
        d = v[i + 3] < d ? v[i + 3] : d;
    }
    a = b < a ? b : a;
    c = d < c ? d : c;
    return c < a ? c : a;
}

size_t tok_near_merge(const struct tok_near *t, const uint8_t *s, size_t n, int32_t *ids)
{
    uint32_t id[TOK_NEAR_MAX + 2], at[TOK_NEAR_MAX + 2 + 3];    /* at: the rank with the symbol behind, then the place */
    const size_t all = (n + 2 + 3) & ~(size_t)3;
    uint64_t left = ((uint64_t)2 << n << 1) - 1;
    size_t k = 0;
    if (n == TOK_NEAR_MAX)
        left = UINT64_MAX;
    id[0] = id[n + 1] = NONE;
    at[0] = UINT32_MAX;
    for (size_t i = 1; i < n; i++) {
        id[i] = (uint32_t)t->byte_id[s[i - 1]];
        at[i] = t->first[s[i - 1]][s[i]] << PLACE_BITS | (uint32_t)i;
    }
    id[n] = (uint32_t)t->byte_id[s[n - 1]];
    for (size_t i = n; i < all; i++)
        at[i] = UINT32_MAX;
    for (uint32_t best; (best = least(at, all)) < NONE << PLACE_BITS;) {
        const uint32_t i = best & 63;
        const uint64_t behind = left & ((uint64_t)-2 << i), merged = behind & -behind;
        left ^= merged;
        at[__builtin_ctzll(merged)] = UINT32_MAX;
        const int r = __builtin_ctzll(behind ^ merged), l = 63 - __builtin_clzll(left & (((uint64_t)1 << i) - 1));
        id[i] = (uint32_t)t->product[best >> PLACE_BITS];
        at[i] = rank_of(t, id[i], id[r]) << PLACE_BITS | i;
        at[l] = rank_of(t, id[l], id[i]) << PLACE_BITS | (uint32_t)l;
    }
    left &= left - 1;
    for (; (left & (left - 1)) != 0; left &= left - 1)
        ids[k++] = (int32_t)id[__builtin_ctzll(left)];
    return k;
}
