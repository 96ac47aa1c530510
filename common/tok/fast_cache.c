/* fast_cache.c -- two tables that grow by doubling up to a bound.
 *
 * A piece lies in one of the places from that of its hash on.  Nothing is
 * ever taken out alone, so a piece that was put is found until another one
 * replaces it, which costs time and never an id. */
#include "tok/fast_cache.h"

#include <stdlib.h>

#include "base/err.h"
#include "tok/merge.h"

enum { FEW_BITS = 12, FEW_MOST = 20, MANY_BITS = 8, MANY_MOST = 18 };     /* at most 32 MiB each */

#define EIGHT 255, 255, 255, 255, 255, 255, 255, 255
const uint8_t tok_cache_keep[2 * TOK_LONG + 2] = { EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT };

static void *empty_table(int bits, size_t size)
{
    return tok_pages_new((((size_t)1 << bits) + TOK_WAYS) * size);
}

int tok_cache_new(struct tok_cache *c)
{
    *c = (struct tok_cache){ .few_shift = 64 - FEW_BITS, .many_shift = 64 - MANY_BITS };
    c->few = empty_table(FEW_BITS, sizeof *c->few);
    c->many = empty_table(MANY_BITS, sizeof *c->many);
    return c->few == NULL || c->many == NULL ? err_sys(ERR_IO, "memory for a cache of pieces") : 0;
}

void tok_cache_free(struct tok_cache *c)
{
    free(c->few);
    free(c->many);
    *c = (struct tok_cache){ 0 };
}

/* An empty place, or one that its piece loses; which one depends on the new piece alone. */
static void put_short(struct tok_cache *c, const struct tok_short *x)
{
    uint64_t key[2] = { x->key[0], x->key[1] & ~TOK_KEY_LAST(0xf0) };
    struct tok_short *e = c->few + tok_short_place(c, key);
    int way = 0;
    while (way < TOK_WAYS && e[way].key[1] != 0)
        way++;
    c->n_few += way < TOK_WAYS;
    e[way < TOK_WAYS ? way : (int)(key[0] ^ key[0] >> 8 ^ key[1]) & (TOK_WAYS - 1)] = *x;
}

static void put_long(struct tok_cache *c, const struct tok_long *x)
{
    struct tok_long *e = c->many + tok_long_place(c, x->key);
    int way = 0;
    while (way < TOK_WAYS && e[way].key[5] != 0)
        way++;
    c->n_many += way < TOK_WAYS;
    e[way < TOK_WAYS ? way : (int)(x->key[0] ^ x->key[0] >> 8 ^ x->key[1]) & (TOK_WAYS - 1)] = *x;
}

/* Without memory for a larger table the one that is there stays. */
void tok_cache_grow(struct tok_cache *c)
{
    int bits = 64 - c->few_shift;
    if (c->n_few > (size_t)1 << (bits - 1) && bits < FEW_MOST) {
        struct tok_short *old = c->few, *p = empty_table(bits + 1, sizeof *p);
        if (p != NULL) {
            c->few = p;
            c->few_shift--;
            c->n_few = 0;
            for (size_t i = 0; i < ((size_t)1 << bits) + TOK_WAYS; i++)
                if (old[i].key[1] != 0)
                    put_short(c, &old[i]);
            free(old);
        }
    }
    bits = 64 - c->many_shift;
    if (c->n_many > (size_t)1 << (bits - 1) && bits < MANY_MOST) {
        struct tok_long *old = c->many, *p = empty_table(bits + 1, sizeof *p);
        if (p != NULL) {
            c->many = p;
            c->many_shift--;
            c->n_many = 0;
            for (size_t i = 0; i < ((size_t)1 << bits) + TOK_WAYS; i++)
                if (old[i].key[5] != 0)
                    put_long(c, &old[i]);
            free(old);
        }
    }
}

void tok_cache_put(struct tok_cache *c, const uint8_t *s, size_t n, const int32_t *ids, size_t n_ids)
{
    if (n <= TOK_SHORT && n_ids > 0 && n_ids <= TOK_SHORT_IDS) {
        struct tok_short x = { 0 };
        tok_short_key(s, n, x.key);
        x.key[1] |= TOK_KEY_LAST(n_ids << 4);
        memcpy(x.ids, ids, n_ids * sizeof *ids);
        put_short(c, &x);
    } else if (n <= TOK_LONG && n_ids > 0 && n_ids <= TOK_LONG_IDS) {
        struct tok_long x = { 0 };
        tok_long_key(s, n, x.key);
        x.n = (int32_t)n_ids;
        memcpy(x.ids, ids, n_ids * sizeof *ids);
        put_long(c, &x);
    }
}
