/* fast_cache.h -- the ids of pieces that were seen before; of one thread.
 *
 * Three tables of bounded size: pieces of at most 15 bytes share a cache line by
 * two, those of at most 47 bytes have two lines each, those of at most 127 four.
 * All begin small and grow with what is put in; at their bound new pieces
 * replace old ones.  A piece of the first two is looked up in two steps with
 * other work between them, so that memory has answered when it is asked. */
#ifndef TOK_FAST_CACHE_H
#define TOK_FAST_CACHE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    TOK_SHORT = 15, TOK_SHORT_IDS = 4,          /* bytes and ids as they are of the first table */
    TOK_LONG = 47, TOK_LONG_IDS = 19,           /* of the second */
    TOK_WIDE = 127, TOK_WIDE_IDS = 31,          /* of the third */
    TOK_WAYS = 8,                               /* places of a piece, from that of its hash on */
    TOK_PACKED_IDS = 6, TOK_PACKED_BITS = 21,   /* ids of a short piece when they are more than four */
    TOK_ELSEWHERE = 15,                         /* for a number of ids: the piece is short, its ids are in the second table */
};

/* The last byte of a key is the length and, in a short one that is stored, the number of
 * ids in its upper half.  No length: an empty place. */
struct tok_short { uint64_t key[2]; union { int32_t ids[TOK_SHORT_IDS]; uint64_t packed[2]; }; };
struct tok_long { uint64_t key[6]; int32_t n, ids[TOK_LONG_IDS]; };
struct tok_wide { uint64_t key[16]; int32_t n, ids[TOK_WIDE_IDS]; };

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define TOK_KEY_LAST(x) ((uint64_t)(x))
#define TOK_KEY_GET(w) ((unsigned)((w) & 255))
#else
#define TOK_KEY_LAST(x) ((uint64_t)(x) << 56)
#define TOK_KEY_GET(w) ((unsigned)((w) >> 56))
#endif

struct tok_table { uint8_t *p; size_t n; int shift; };      /* shift: of a hash, to the first place */

struct tok_cache { struct tok_table few, many, wide; };

/* ERR_IO when memory runs out. */
int tok_cache_new(struct tok_cache *c);
void tok_cache_free(struct tok_cache *c);

/* Between look-ups: makes a table larger that is half full.  Places found before are void. */
void tok_cache_grow(struct tok_cache *c);

/* Puts the ids of a piece of n > 0 bytes, when they fit; s is readable for 48. */
void tok_cache_put(struct tok_cache *c, const uint8_t *s, size_t n, const int32_t *ids, size_t n_ids);

extern const uint8_t tok_cache_keep[2 * TOK_LONG + 2];  /* ones, then zeros */

/* The key of n <= TOK_SHORT bytes; s is readable for 16. */
static inline void tok_short_key(const uint8_t *s, size_t n, uint64_t key[2])
{
    uint64_t keep[2];
    memcpy(key, s, 16);
    memcpy(keep, tok_cache_keep + TOK_LONG + 1 - n, 16);
    key[0] &= keep[0];
    key[1] = (key[1] & keep[1]) | TOK_KEY_LAST(n);
}

static inline size_t tok_short_place(const struct tok_cache *c, const uint64_t key[2])
{
    uint64_t h = key[0] * 0x9e3779b97f4a7c15u ^ (key[1] ^ key[1] >> 31) * 0xc2b2ae3d27d4eb4fu;
    return (size_t)((h ^ h >> 29) * 0x165667b19e3779f9u >> c->few.shift) & ~(size_t)1;
}

static inline void tok_short_fetch(const struct tok_cache *c, size_t place)
{
    __builtin_prefetch(c->few.p + place * sizeof(struct tok_short));
}

/* The piece at its place, and how many ids it has; NULL when it is not there. */
static inline const struct tok_short *tok_short_find(const struct tok_cache *c, size_t place, const uint64_t key[2], size_t *n)
{
    const struct tok_short *e = (const struct tok_short *)(const void *)c->few.p + place;
    const uint64_t bare = ~TOK_KEY_LAST(0xf0);
    for (int way = 0; way < TOK_WAYS; way += 2, e += 2) {
        _Bool first = e[0].key[0] == key[0] && (e[0].key[1] & bare) == key[1];
        const struct tok_short *x = e + !first;
        if (x->key[0] == key[0] && (x->key[1] & bare) == key[1]) {
            *n = TOK_KEY_GET(x->key[1]) >> 4;
            return x;
        }
        if (e[1].key[1] == 0)   /* they are filled in order */
            break;
    }
    return NULL;
}

/* The ids of a short piece that has n <= TOK_PACKED_IDS; room for as many. */
static inline void tok_short_ids(const struct tok_short *x, size_t n, int32_t *ids)
{
    const uint64_t id = ((uint64_t)1 << TOK_PACKED_BITS) - 1;
    if (n <= TOK_SHORT_IDS)
        memcpy(ids, x->ids, sizeof x->ids);
    else
        for (int i = 0; i < TOK_PACKED_IDS; i++)
            ids[i] = (int32_t)(x->packed[i / 3] >> i % 3 * TOK_PACKED_BITS & id);
}

/* The same for n <= TOK_LONG bytes; s is readable for 48. */
static inline void tok_long_key(const uint8_t *s, size_t n, uint64_t key[6])
{
    uint64_t keep[6];
    memcpy(key, s, 48);
    memcpy(keep, tok_cache_keep + TOK_LONG + 1 - n, 48);
    for (int i = 0; i < 6; i++)
        key[i] &= keep[i];
    key[5] |= TOK_KEY_LAST(n);
}

static inline size_t tok_long_place(const struct tok_cache *c, const uint64_t key[6])
{
    uint64_t h = key[0];
    for (int i = 1; i < 6; i++)
        h = ((h ^ h >> 29) * 0x9e3779b97f4a7c15u) ^ key[i] ^ key[i] >> 31;
    return (size_t)((h ^ h >> 29) * 0x165667b19e3779f9u >> c->many.shift);
}

static inline void tok_long_fetch(const struct tok_cache *c, size_t place)
{
    __builtin_prefetch(c->many.p + place * sizeof(struct tok_long));
    __builtin_prefetch(c->many.p + place * sizeof(struct tok_long) + 64);
}

static inline const int32_t *tok_long_find(const struct tok_cache *c, size_t place, const uint64_t key[6], size_t *n)
{
    const struct tok_long *e = (const struct tok_long *)(const void *)c->many.p + place;
    for (int way = 0; way < TOK_WAYS && e->key[5] != 0; way++, e++)
        if (memcmp(e->key, key, sizeof e->key) == 0) {
            *n = (size_t)e->n;
            return e->ids;
        }
    return NULL;
}

/* A piece of TOK_LONG < n <= TOK_WIDE bytes, in one step. */
const int32_t *tok_wide_find(const struct tok_cache *c, const uint8_t *s, size_t n, size_t *n_ids);

#endif
