/* fast_cache.c -- tables that grow by four up to a bound.
 *
 * An entry begins with its key and lies in one of the places from that of its
 * hash on.  Nothing is ever taken out alone, so a piece that was put is found
 * until another one replaces it, which costs time and never an id. */
#include "tok/fast_cache.h"

#include <stdlib.h>

#include "base/err.h"
#include "tok/merge.h"

/* 32 MiB at most for each of the first two tables, 4 MiB for the last. */
static const struct form { size_t width; int words, first_bits, most_bits; } few_form = { sizeof(struct tok_short), 2, 12, 20 },
                                                                             many_form = { sizeof(struct tok_long), 6, 8, 18 },
                                                                             wide_form = { sizeof(struct tok_wide), 16, 6, 14 };

#define EIGHT 255, 255, 255, 255, 255, 255, 255, 255
const uint8_t tok_cache_keep[2 * TOK_LONG + 2] = { EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT };

static size_t places(int bits) { return ((size_t)1 << bits) + TOK_WAYS; }

static int table_new(struct tok_table *t, const struct form *f, int bits)
{
    *t = (struct tok_table){ .p = tok_pages_new(places(bits) * f->width), .shift = 64 - bits };
    return t->p == NULL ? err_sys(ERR_IO, "memory for a cache of pieces") : 0;
}

static void table_free(struct tok_table *t, const struct form *f)
{
    if (t->p != NULL)
        tok_pages_free(t->p, places(64 - t->shift) * f->width);
    *t = (struct tok_table){ 0 };
}

int tok_cache_new(struct tok_cache *c)
{
    *c = (struct tok_cache){ 0 };
    TRY(table_new(&c->few, &few_form, few_form.first_bits));
    TRY(table_new(&c->many, &many_form, many_form.first_bits));
    return table_new(&c->wide, &wide_form, wide_form.first_bits);
}

void tok_cache_free(struct tok_cache *c)
{
    table_free(&c->few, &few_form);
    table_free(&c->many, &many_form);
    table_free(&c->wide, &wide_form);
}

static inline uint64_t *entry(const struct tok_table *t, const struct form *f, size_t i)
{
    return (uint64_t *)(void *)(t->p + i * f->width);
}

static size_t wide_place(const struct tok_table *t, const uint64_t *key)
{
    uint64_t h = key[0];
    for (int i = 1; i < wide_form.words; i++)
        h = ((h ^ h >> 29) * 0x9e3779b97f4a7c15u) ^ key[i];
    return (size_t)((h ^ h >> 29) * 0x165667b19e3779f9u >> t->shift);
}

/* The key of an entry as it is looked up. */
static size_t place_of(const struct tok_cache *c, const struct form *f, const uint64_t *key)
{
    if (f == &few_form)
        return tok_short_place(c, (const uint64_t[2]){ key[0], key[1] & ~TOK_KEY_LAST(0xf0) });
    return f == &many_form ? tok_long_place(c, key) : wide_place(&c->wide, key);
}

/* What is there stays.  Else an empty place, or one that its piece loses; which one depends
 * on the new piece alone. */
static inline void put(struct tok_cache *c, struct tok_table *t, const struct form *f, const void *x)
{
    const uint64_t *key = x;
    size_t place = place_of(c, f, key), way = 0;
    const uint64_t *e;
    for (; way < TOK_WAYS && (e = entry(t, f, place + way))[f->words - 1] != 0; way++)
        if (memcmp(e, key, (size_t)f->words * sizeof *e) == 0)
            return;
    t->n += way < TOK_WAYS;
    if (way == TOK_WAYS)
        way = (key[0] ^ key[0] >> 8 ^ key[1]) & (TOK_WAYS - 1);
    memcpy(entry(t, f, place + way), x, f->width);
}

/* Without memory for a larger table the one that is there stays. */
static inline void grow(struct tok_cache *c, struct tok_table *t, const struct form *f)
{
    const int bits = 64 - t->shift, more = f->most_bits - bits < 2 ? f->most_bits - bits : 2;
    struct tok_table old = *t;
    if (t->n <= (size_t)1 << (bits - 1) || more == 0)
        return;
    if (table_new(t, f, bits + more) < 0) {
        *t = old;
        return;
    }
    for (size_t i = 0; i < places(bits); i++)
        if (entry(&old, f, i)[f->words - 1] != 0)
            put(c, t, f, entry(&old, f, i));
    table_free(&old, f);
}

void tok_cache_grow(struct tok_cache *c)
{
    grow(c, &c->few, &few_form);
    grow(c, &c->many, &many_form);
    grow(c, &c->wide, &wide_form);
}

/* Ids that are many or high go to the second table, and the first one says so. */
static void put_short(struct tok_cache *c, const uint8_t *s, size_t n, const int32_t *ids, size_t n_ids)
{
    struct tok_short x = { 0 };
    size_t say = n_ids <= TOK_PACKED_IDS ? n_ids : TOK_ELSEWHERE;
    tok_short_key(s, n, x.key);
    if (n_ids <= TOK_SHORT_IDS)
        memcpy(x.ids, ids, n_ids * sizeof *ids);
    for (size_t i = 0; n_ids > TOK_SHORT_IDS && i < n_ids && say != TOK_ELSEWHERE; i++) {
        x.packed[i / 3] |= (uint64_t)(uint32_t)ids[i] << i % 3 * TOK_PACKED_BITS;
        if (ids[i] >> TOK_PACKED_BITS != 0)
            say = TOK_ELSEWHERE;
    }
    x.key[1] |= TOK_KEY_LAST(say << 4);
    put(c, &c->few, &few_form, &x);
    if (say != TOK_ELSEWHERE)
        return;
    struct tok_long y = { .n = (int32_t)n_ids };
    tok_long_key(s, n, y.key);
    memcpy(y.ids, ids, n_ids * sizeof *ids);
    put(c, &c->many, &many_form, &y);
}

static void wide_key(const uint8_t *s, size_t n, uint64_t key[16])
{
    memset(key, 0, 16 * sizeof *key);
    memcpy(key, s, n);
    key[15] |= TOK_KEY_LAST(n);
}

void tok_cache_put(struct tok_cache *c, const uint8_t *s, size_t n, const int32_t *ids, size_t n_ids)
{
    if (n <= TOK_SHORT && n_ids > 0 && n_ids <= TOK_LONG_IDS) {
        put_short(c, s, n, ids, n_ids);
    } else if (n > TOK_SHORT && n <= TOK_LONG && n_ids <= TOK_LONG_IDS) {
        struct tok_long x = { .n = (int32_t)n_ids };
        tok_long_key(s, n, x.key);
        memcpy(x.ids, ids, n_ids * sizeof *ids);
        put(c, &c->many, &many_form, &x);
    } else if (n > TOK_LONG && n <= TOK_WIDE && n_ids <= TOK_WIDE_IDS) {
        struct tok_wide x = { .n = (int32_t)n_ids };
        wide_key(s, n, x.key);
        memcpy(x.ids, ids, n_ids * sizeof *ids);
        put(c, &c->wide, &wide_form, &x);
    }
}

const int32_t *tok_wide_find(const struct tok_cache *c, const uint8_t *s, size_t n, size_t *n_ids)
{
    uint64_t key[16];
    wide_key(s, n, key);
    const struct tok_wide *e = (const struct tok_wide *)(const void *)c->wide.p + wide_place(&c->wide, key);
    for (int way = 0; way < TOK_WAYS && e->key[15] != 0; way++, e++)
        if (memcmp(e->key, key, sizeof key) == 0) {
            *n_ids = (size_t)e->n;
            return e->ids;
        }
    return NULL;
}
