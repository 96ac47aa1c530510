/* fast_merge.c -- ranks with their places in one number each, and the least of them merged.
 *
 * Symbols do not move: bits say which are left, and the neighbours of one are
 * found by counting zeros.  A piece has a symbol before it and one behind it
 * that are in no pair, so that no end needs a question.
 *
 * A step of a piece is made in three parts, and each part for all pieces under
 * way before the next part: find the least rank; replace the two symbols and ask
 * for the pairs with their neighbours; read the answers.  So the memory of one
 * piece answers while the others are worked on. */
#include "tok/fast_merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum {
    NONE = (1 << TOK_NEAR_BITS) - 1,            /* an id, and a rank, that nothing has */
    PLACE_BITS = 6, PLACES = 1 << PLACE_BITS,
    GONE = INT32_MAX,                           /* in place of a rank with a place */
    LANES = 16,
    FEWEST_BITS = 8,
};

/* In slots; no rank is as high as what these have in its place. */
#define EMPTY UINT64_MAX
#define RAN_OVER (UINT64_MAX - 1)       /* in the first slot */

/* The hash in the upper bits; one to one, since the factor is odd. */
static inline uint64_t hash_of(int32_t a, int32_t b)
{
    return ((uint64_t)(uint32_t)a << (64 - TOK_NEAR_BITS) | (uint64_t)(uint32_t)b << (64 - 2 * TOK_NEAR_BITS)) * 0x9e3779b97f4a7c15u;
}

/* What a slot holds above the rank. */
static inline uint64_t rest_of(const struct tok_near *t, uint64_t hash)
{
    return hash << t->bits >> (t->bits + 64 - 3 * TOK_NEAR_BITS);
}

static int32_t rank_elsewhere(const struct tok_near *t, int32_t a, int32_t b)
{
    const struct tok_pair *p = tok_pairs_find(t->pairs, a, b);
    return p != NULL ? p->rank : NONE;
}

/* A slot of this pair leaves its rank, any other one more than any rank. */
static inline int32_t rank_in(const uint64_t *slot, uint64_t rest)
{
    const uint64_t x = slot[0] ^ rest, y = slot[1] ^ rest, less = x < y ? x : y;
    return (int32_t)(less < NONE ? less : NONE);
}

static void put(struct tok_near *t, const struct tok_pair *p)
{
    const uint64_t h = hash_of((int32_t)(p->key >> 32), (int32_t)p->key);
    uint64_t *slot = t->bucket[h >> (64 - t->bits)];
    if (slot[0] == EMPTY || (slot[0] != RAN_OVER && slot[1] == EMPTY)) {
        slot[slot[0] != EMPTY] = rest_of(t, h) | (uint32_t)p->rank;
    } else {
        slot[0] = RAN_OVER;
        slot[1] = EMPTY;
    }
}

/* What the tables can hold; *ids and *ranks: one more than the highest. */
static _Bool fits(const struct tok_pairs *pairs, const int32_t byte_id[256], int32_t *ids, int32_t *ranks)
{
    *ids = *ranks = 0;
    for (int b = 0; b < 256; b++) {
        if (byte_id[b] < 0)
            return 0;
        *ids = byte_id[b] >= *ids ? byte_id[b] + 1 : *ids;
    }
    for (uint64_t i = 0; i <= pairs->mask; i++) {
        const struct tok_pair *p = &pairs->slot[i];
        if (p->key == TOK_NO_PAIR)
            continue;
        const int32_t a = (int32_t)(p->key >> 32), b = (int32_t)p->key, high = a > b ? a : b;
        if (a < 0 || b < 0 || p->rank < 0 || p->product < 0)
            return 0;
        *ids = high >= *ids ? high + 1 : *ids;
        *ids = p->product >= *ids ? p->product + 1 : *ids;
        *ranks = p->rank >= *ranks ? p->rank + 1 : *ranks;
    }
    return *ids < NONE && *ranks < NONE;
}

static size_t n_buckets(const struct tok_near *t) { return (size_t)1 << t->bits; }

static int allocate(struct tok_near *t, int32_t ranks)
{
    t->bits = FEWEST_BITS;
    while ((int64_t)4 << t->bits < 5 * t->pairs->n)
        t->bits++;
    t->bucket = tok_pages_new(n_buckets(t) * sizeof *t->bucket);
    t->product = malloc(((size_t)ranks + 1) * sizeof *t->product);
    t->first = malloc(256 * sizeof *t->first);
    if (t->bucket == NULL || t->product == NULL || t->first == NULL)
        return err_sys(ERR_IO, "memory for %d ranks", (int)ranks);
    memset(t->bucket, 255, n_buckets(t) * sizeof *t->bucket);
    memset(t->product, 255, ((size_t)ranks + 1) * sizeof *t->product);
    for (int i = 0; i < 256 * 256; i++)
        t->first[i >> 8][i & 255] = NONE;
    return 0;
}

/* False when a rank gives two tokens.  byte_of: of an id, 0 for none. */
static _Bool fill(struct tok_near *t, uint16_t *byte_of)
{
    for (int b = 0; b < 256; b++)
        byte_of[t->byte_id[b]] = (uint16_t)(b + 1);
    for (uint64_t i = 0; i <= t->pairs->mask; i++) {
        const struct tok_pair *p = &t->pairs->slot[i];
        if (p->key == TOK_NO_PAIR)
            continue;
        if (t->product[p->rank] >= 0 && t->product[p->rank] != p->product)
            return 0;
        t->product[p->rank] = p->product;
        put(t, p);
        const uint16_t a = byte_of[p->key >> 32], b = byte_of[(uint32_t)p->key];
        if (a != 0 && b != 0)
            t->first[a - 1][b - 1] = p->rank;
    }
    return 1;
}

int tok_near_new(const struct tok_pairs *pairs, const int32_t byte_id[256], struct tok_near *near)
{
    int32_t ids, ranks;
    *near = (struct tok_near){ .pairs = pairs };
    if (!fits(pairs, byte_id, &ids, &ranks))
        return 0;
    memcpy(near->byte_id, byte_id, sizeof near->byte_id);
    uint16_t *byte_of = calloc((size_t)ids, sizeof *byte_of);
    int rc = byte_of == NULL ? err_sys(ERR_IO, "memory for %d ids", (int)ids) : allocate(near, ranks);
    if (rc < 0 || !fill(near, byte_of))
        tok_near_free(near);
    free(byte_of);
    return rc;
}

void tok_near_free(struct tok_near *near)
{
    tok_pages_free(near->bucket, n_buckets(near) * sizeof *near->bucket);
    free(near->product);
    free(near->first);
    *near = (struct tok_near){ 0 };
}

/* ---- a piece under way */

struct lane {
    int32_t at[PLACES];                 /* the rank with the symbol behind, then the place; GONE behind the last */
    int32_t id[PLACES];
    uint64_t left;                      /* places of symbols */
    int32_t best;
    int before, behind;                 /* the neighbours */
    const uint64_t *slot[2];            /* of the pair with the one behind, and with the one before */
    uint64_t rest[2];
    struct tok_near_job *job;
};

static inline void begin(const struct tok_near *t, struct lane *x, struct tok_near_job *job, size_t all)
{
    const uint8_t *s = job->s;
    const size_t n = job->n;
    x->job = job;
    x->left = ((uint64_t)2 << n << 1) - 1;
    x->id[0] = x->id[n + 1] = NONE;
    x->at[0] = GONE;
    for (size_t i = 1; i < n; i++) {
        x->id[i] = t->byte_id[s[i - 1]];
        x->at[i] = t->first[s[i - 1]][s[i]] << PLACE_BITS | (int32_t)i;
    }
    x->id[n] = t->byte_id[s[n - 1]];
    for (size_t i = n; i < all; i++)
        x->at[i] = GONE;
}

static inline void end(struct lane *x)
{
    uint64_t left = x->left & (x->left - 1);
    uint32_t k = 0;
    for (; (left & (left - 1)) != 0; left &= left - 1)
        x->job->ids[k++] = x->id[__builtin_ctzll(left)];
    x->job->n_ids = k;
}

typedef int32_t four __attribute__((vector_size(16), may_alias, aligned(4)));

static inline four lesser(four a, four b)
{
    four less = a < b;
    return (a & less) | (b & ~less);
}

static inline int32_t least(const int32_t *v, size_t all)
{
    four m = *(const four *)v;
    for (size_t i = 4; i < all; i += 4)
        m = lesser(m, *(const four *)(v + i));
    const int32_t a = m[0] < m[1] ? m[0] : m[1], b = m[2] < m[3] ? m[2] : m[3];
    return a < b ? a : b;
}

static inline void ask(const struct tok_near *t, struct lane *x, int k, int32_t a, int32_t b)
{
    const uint64_t h = hash_of(a, b);
    x->slot[k] = t->bucket[h >> (64 - t->bits)];
    x->rest[k] = rest_of(t, h);
    __builtin_prefetch(x->slot[k]);
}

/* Merges at the least rank and asks for what comes of it. */
static inline void step(const struct tok_near *t, struct lane *x)
{
    const int i = x->best & (PLACES - 1);
    const uint64_t behind = x->left & (UINT64_MAX << 1 << i), merged = behind & -behind;
    x->left ^= merged;
    x->at[__builtin_ctzll(merged)] = GONE;
    x->behind = __builtin_ctzll(behind ^ merged);
    x->before = 63 - __builtin_clzll(x->left & (((uint64_t)1 << i) - 1));
    x->id[i] = t->product[x->best >> PLACE_BITS];
    ask(t, x, 0, x->id[i], x->id[x->behind]);
    ask(t, x, 1, x->id[x->before], x->id[i]);
}

static inline int32_t heard(const struct tok_near *t, const struct lane *x, int k, int32_t a, int32_t b)
{
    if (__builtin_expect(*x->slot[k] == RAN_OVER, 0))
        return rank_elsewhere(t, a, b);
    return rank_in(x->slot[k], x->rest[k]);
}

static inline void answer(const struct tok_near *t, struct lane *x)
{
    const int i = x->best & (PLACES - 1), l = x->before;
    x->at[i] = heard(t, x, 0, x->id[i], x->id[x->behind]) << PLACE_BITS | i;
    x->at[l] = heard(t, x, 1, x->id[l], x->id[i]) << PLACE_BITS | l;
}

static inline struct tok_near_job *next(struct tok_near_job *job, const struct tok_near_job *stop, uint32_t from, uint32_t to)
{
    while (job < stop && !(job->n > from && job->n <= to))
        job++;
    return job;
}

/* The pieces of from < n <= to bytes; all: places that are looked at, which is known to the compiler. */
__attribute__((always_inline)) static inline void merge_some(const struct tok_near *t, struct tok_near_job *job, const struct tok_near_job *stop, uint32_t from,
                                                             uint32_t to, size_t all)
{
    struct lane lane[LANES], *x[LANES];         /* x[0..n) are under way */
    size_t n = 0;
    for (job = next(job, stop, from, to); n < LANES && job < stop; job = next(job + 1, stop, from, to), n++)
        begin(t, x[n] = &lane[n], job, all);
    while (n > 0) {
        for (size_t k = 0; k < n;) {
            x[k]->best = least(x[k]->at, all);
            if (x[k]->best < NONE << PLACE_BITS) {
                __builtin_prefetch(&t->product[x[k++]->best >> PLACE_BITS]);
                continue;
            }
            end(x[k]);
            if (job < stop) {
                begin(t, x[k], job, all);
                job = next(job + 1, stop, from, to);
            } else {
                struct lane *idle = x[k];
                x[k] = x[--n];
                x[n] = idle;
            }
        }
        for (size_t k = 0; k < n; k++)
            step(t, x[k]);
        for (size_t k = 0; k < n; k++)
            answer(t, x[k]);
    }
}

/* By length, so that no step asks how long its piece is. */
void tok_near_merge(const struct tok_near *t, struct tok_near_job *job, size_t n_jobs)
{
    merge_some(t, job, job + n_jobs, 0, 12, 12);
    merge_some(t, job, job + n_jobs, 12, 20, 20);
    merge_some(t, job, job + n_jobs, 20, TOK_NEAR_MAX, PLACES);
}
