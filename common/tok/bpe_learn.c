/* bpe_learn.c -- pairs counted once, then kept.
 *
 * A merge makes a new symbol, so the pairs that gain by it are new ones and all
 * others lose: a pair's count is highest when it is born, and its places are
 * then complete.  Hence places are laid out once, in a pool, and a pair that is
 * born too rare to be merged is never kept.  What one merge changes is summed up
 * by neighbour first, in a table that stays in near memory.
 *
 * Invariants: pair.count is the number of neighbours (a, b) over all pieces,
 * overlapping ones included ("aaa" has two), times the pieces' counts; a piece
 * that holds a kept pair is among its places (which may hold others too). */
#include "tok/bpe_learn.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/grow.h"
#include "tok/bpe_queue.h"
#include "tok/bytelevel.h"

/* A piece in the store: its count in two words, how many symbols are left, these. */
enum { HEAD = 3, POOL_CHUNK = 1 << 20 };

/* What a merge of (a, b) to p does to the pairs (x, a) and (b, x), which lose, and
 * (x, p) and (p, x), which gain. */
enum kind { LOSES_LEFT, LOSES_RIGHT, GAINS_LEFT, GAINS_RIGHT };
struct change { uint64_t key; int64_t count; uint32_t last, n_places, pair; };

struct tok_learner {
    int64_t least, tokens;
    int32_t *store; size_t n_store;     /* pieces of two symbols or more, when they came */
    struct tok_pair *pair; size_t n_pairs; int64_t cap_pairs;
    uint32_t *slot; size_t mask;        /* index + 1 */
    struct tok_queue queue;
    uint32_t **pool; size_t n_pool, pool_left; int64_t cap_pool;
    uint32_t *pool_at;
    /* of the merge under way */
    struct change *change; size_t n_changes; int64_t cap_changes;
    uint32_t *change_slot; size_t change_mask;
    struct place { uint32_t change, piece; } *place; size_t n_places; int64_t cap_places;
};

void tok_learner_free(struct tok_learner *l)
{
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->n_pool; i++)
        free(l->pool[i]);
    free(l->pool);
    tok_queue_free(&l->queue);
    free(l->store);
    free(l->pair);
    free(l->slot);
    free(l->change);
    free(l->change_slot);
    free(l->place);
    free(l);
}

static inline size_t hash(uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 32);
}

static inline uint64_t key_of(int32_t a, int32_t b)
{
    return (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
}

static inline int64_t count_of(const int32_t *piece)
{
    int64_t n;
    memcpy(&n, piece, sizeof n);
    return n;
}

/* ---- pairs that are kept */

static int grow_slots(struct tok_learner *l)
{
    size_t size = l->slot == NULL ? 1 << 12 : 2 * (l->mask + 1);
    uint32_t *slot = calloc(size, sizeof *slot);
    if (slot == NULL)
        return err_sys(ERR_IO, "memory for %zu pairs", size);
    free(l->slot);
    l->slot = slot;
    l->mask = size - 1;
    for (size_t k = 0; k < l->n_pairs; k++) {
        size_t i = hash(l->pair[k].key) & l->mask;
        while (slot[i] != 0)
            i = (i + 1) & l->mask;
        slot[i] = (uint32_t)k + 1;
    }
    return 0;
}

/* NULL: not kept. */
static struct tok_pair *find(const struct tok_learner *l, uint64_t key)
{
    if (l->slot == NULL)
        return NULL;
    for (size_t i = hash(key) & l->mask; l->slot[i] != 0; i = (i + 1) & l->mask)
        if (l->pair[l->slot[i] - 1].key == key)
            return &l->pair[l->slot[i] - 1];
    return NULL;
}

static int take_pool(struct tok_learner *l, size_t n, uint32_t **out)
{
    if (n > l->pool_left) {
        size_t size = n > POOL_CHUNK ? n : POOL_CHUNK;
        TRY(grow_plain(&l->pool, &l->cap_pool, (int64_t)l->n_pool + 1, sizeof *l->pool, "pairs"));
        uint32_t *p = malloc(size * sizeof *p);
        if (p == NULL)
            return err_sys(ERR_IO, "memory for the places of pairs");
        l->pool[l->n_pool++] = l->pool_at = p;
        l->pool_left = size;
    }
    *out = l->pool_at;
    l->pool_at += n;
    l->pool_left -= n;
    return 0;
}

/* A pair that is new, with room for its places. */
static int keep(struct tok_learner *l, uint64_t key, int64_t count, uint32_t n_places, uint32_t *index)
{
    if (l->n_pairs >= UINT32_MAX - 1)
        return err_set(ERR_DATA, "more than 4 billion pairs of symbols");
    if (l->slot == NULL || 2 * (l->n_pairs + 1) > l->mask)
        TRY(grow_slots(l));
    TRY(grow_plain(&l->pair, &l->cap_pairs, (int64_t)l->n_pairs + 1, sizeof *l->pair, "pairs"));
    size_t i = hash(key) & l->mask;
    while (l->slot[i] != 0)
        i = (i + 1) & l->mask;
    struct tok_pair *p = &l->pair[l->n_pairs];
    *p = (struct tok_pair){ key, count, NULL, 0 };
    TRY(take_pool(l, n_places, &p->places));
    *index = (uint32_t)l->n_pairs++;
    l->slot[i] = *index + 1;
    return tok_queue_put(&l->queue, l->pair, *index);
}

/* ---- the beginning */

static int fill_store(struct tok_learner *l, const struct tok_counts *c)
{
    int32_t id[256];
    size_t n = 0;
    for (int i = 0; i < 256; i++)
        id[tok_byte_of_order(i)] = i;
    for (size_t k = 0; k < c->n; k++) {
        n += c->piece[k].n > 1 ? HEAD + c->piece[k].n : 0;
        l->tokens += c->piece[k].n * c->piece[k].count;
    }
    /* A place is a word of the store in 32 bits. */
    if (n > UINT32_MAX)
        return err_set(ERR_DATA, "%zu bytes of distinct pieces are too many to learn from; --memory, --max-word and --sample-bytes bound them", c->n_bytes);
    l->store = malloc(n * sizeof *l->store + 1);
    if (l->store == NULL)
        return err_sys(ERR_IO, "memory for %zu bytes of pieces", c->n_bytes);
    for (size_t k = 0; k < c->n; k++) {
        const struct tok_piece *p = &c->piece[k];
        int32_t *to = l->store + l->n_store;
        if (p->n < 2)
            continue;
        memcpy(to, &p->count, sizeof p->count);
        to[HEAD - 1] = (int32_t)p->n;
        for (uint32_t i = 0; i < p->n; i++)
            to[HEAD + i] = id[c->bytes[p->at + i]];
        l->n_store += HEAD + p->n;
    }
    return 0;
}

/* The place of the next piece; its symbols may have become fewer only later. */
static inline size_t after(const struct tok_learner *l, size_t at)
{
    return at + HEAD + (size_t)l->store[at + HEAD - 1];
}

/* Pairs of bytes are few: a square of counts. */
static int first_pairs(struct tok_learner *l)
{
    struct square { int64_t count; uint32_t n_places, last, pair; } *sq = calloc(65536, sizeof *sq);
    int rc = 0;
    if (sq == NULL)
        return err_sys(ERR_IO, "memory for pairs of bytes");
    for (int pass = 0; pass < 2 && rc == 0; pass++) {
        for (int i = 0; i < 65536 && rc == 0; i++) {
            sq[i].last = UINT32_MAX;
            if (pass == 1 && (sq[i].count < l->least || sq[i].count < 1 || (rc = keep(l, key_of(i >> 8, i & 255), sq[i].count, sq[i].n_places, &sq[i].pair)) < 0))
                sq[i].pair = UINT32_MAX;
        }
        for (size_t at = 0; at < l->n_store && rc == 0; at = after(l, at)) {
            const int32_t *s = l->store + at + HEAD;
            int64_t count = count_of(l->store + at);
            for (int32_t i = 0; i + 1 < l->store[at + HEAD - 1]; i++) {
                struct square *x = &sq[s[i] << 8 | s[i + 1]];
                x->count += pass == 0 ? count : 0;
                if (x->last == (uint32_t)at)
                    continue;
                x->last = (uint32_t)at;
                if (pass == 0) {
                    x->n_places++;
                } else if (x->pair != UINT32_MAX) {
                    struct tok_pair *p = &l->pair[x->pair];
                    p->places[p->n_places++] = (uint32_t)at;
                }
            }
        }
    }
    free(sq);
    return rc;
}

int tok_learner_new(const struct tok_counts *c, int64_t least, struct tok_learner **out)
{
    struct tok_learner *l = calloc(1, sizeof *l);
    int rc;
    *out = NULL;
    if (l == NULL)
        return err_sys(ERR_IO, "memory for pairs");
    l->least = least;
    TRY_OUT(rc, fill_store(l, c));
    TRY_OUT(rc, first_pairs(l));
    *out = l;
    return 0;
out:
    tok_learner_free(l);
    return rc;
}

/* ---- merging */

/* Room for what a piece of n symbols may add. */
static int room(struct tok_learner *l, size_t n)
{
    TRY(grow_plain(&l->change, &l->cap_changes, (int64_t)(l->n_changes + 2 * n), sizeof *l->change, "pairs"));
    TRY(grow_plain(&l->place, &l->cap_places, (int64_t)(l->n_places + 2 * n), sizeof *l->place, "places of pairs"));
    if (l->change_slot != NULL && 2 * (l->n_changes + 2 * n) <= l->change_mask)
        return 0;
    size_t size = l->change_slot == NULL ? 1024 : 2 * (l->change_mask + 1);
    while (2 * (l->n_changes + 2 * n) > size - 1)
        size *= 2;
    uint32_t *slot = calloc(size, sizeof *slot);
    if (slot == NULL)
        return err_sys(ERR_IO, "memory for %zu changes", size);
    free(l->change_slot);
    l->change_slot = slot;
    l->change_mask = size - 1;
    for (size_t k = 0; k < l->n_changes; k++) {
        size_t i = hash(l->change[k].key) & l->change_mask;
        while (slot[i] != 0)
            i = (i + 1) & l->change_mask;
        slot[i] = (uint32_t)k + 1;
    }
    return 0;
}

static inline void note(struct tok_learner *l, enum kind kind, int32_t x, int64_t count, uint32_t piece)
{
    uint64_t key = (uint64_t)(uint32_t)x << 2 | kind;
    size_t i = hash(key) & l->change_mask;
    while (l->change_slot[i] != 0 && l->change[l->change_slot[i] - 1].key != key)
        i = (i + 1) & l->change_mask;
    if (l->change_slot[i] == 0) {
        l->change[l->n_changes++] = (struct change){ key, 0, UINT32_MAX, 0, 0 };
        l->change_slot[i] = (uint32_t)l->n_changes;
    }
    struct change *c = &l->change[l->change_slot[i] - 1];
    c->count += count;
    if (kind < GAINS_LEFT || c->last == piece)
        return;
    c->last = piece;
    c->n_places++;
    l->place[l->n_places++] = (struct place){ l->change_slot[i] - 1, piece };
}

/* Replaces (a, b) by p in one piece, from left to right. */
static void merge_piece(struct tok_learner *l, uint32_t at, int32_t a, int32_t b, int32_t p)
{
    int32_t *s = l->store + at + HEAD, n = s[-1], w = 0;
    int64_t count = count_of(l->store + at);
    for (int32_t i = 0; i < n; w++) {
        if (s[i] != a || i + 1 == n || s[i + 1] != b) {
            s[w] = s[i++];
            continue;
        }
        /* Between two that are merged side by side stands (b, a), seen from the left one. */
        if (w > 0 && s[w - 1] == p) {
            note(l, GAINS_LEFT, p, count, at);
        } else if (w > 0) {
            note(l, LOSES_LEFT, s[w - 1], count, at);
            note(l, GAINS_LEFT, s[w - 1], count, at);
        }
        if (i + 2 < n) {
            note(l, LOSES_RIGHT, s[i + 2], count, at);
            if (s[i + 2] != a || i + 3 == n || s[i + 3] != b)
                note(l, GAINS_RIGHT, s[i + 2], count, at);
        }
        s[w] = p;
        l->tokens -= count;
        i += 2;
    }
    s[-1] = w;
}

/* Sums of the merge to the pairs they belong to. */
static int apply(struct tok_learner *l, int32_t a, int32_t b, int32_t p)
{
    for (size_t k = 0; k < l->n_changes; k++) {
        struct change *c = &l->change[k];
        int32_t x = (int32_t)(c->key >> 2);
        enum kind kind = (enum kind)(c->key & 3);
        c->pair = UINT32_MAX;
        if (kind < GAINS_LEFT) {
            struct tok_pair *pair = find(l, kind == LOSES_LEFT ? key_of(x, a) : key_of(b, x));
            if (pair != NULL)
                pair->count -= c->count;
        } else if (c->count >= l->least && c->count > 0) {
            TRY(keep(l, kind == GAINS_LEFT ? key_of(x, p) : key_of(p, x), c->count, c->n_places, &c->pair));
        }
    }
    for (size_t k = 0; k < l->n_places; k++) {
        uint32_t i = l->change[l->place[k].change].pair;
        if (i != UINT32_MAX)
            l->pair[i].places[l->pair[i].n_places++] = l->place[k].piece;
    }
    return 0;
}

static void forget_changes(struct tok_learner *l)
{
    if (4 * l->n_changes > l->change_mask) {
        memset(l->change_slot, 0, (l->change_mask + 1) * sizeof *l->change_slot);
    } else {
        /* Backwards, so that what a later one probed past is still there. */
        for (size_t k = l->n_changes; k-- > 0;) {
            size_t i = hash(l->change[k].key) & l->change_mask;
            while (l->change_slot[i] != k + 1)
                i = (i + 1) & l->change_mask;
            l->change_slot[i] = 0;
        }
    }
    l->n_changes = l->n_places = 0;
}

int tok_learner_merge(struct tok_learner *l, int32_t a, int32_t b, int32_t product)
{
    struct tok_pair *pair = find(l, key_of(a, b));
    if (pair == NULL)
        return 0;
    const uint32_t *places = pair->places, n = pair->n_places;
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (i + 8 < n)
            __builtin_prefetch(l->store + places[i + 8]);
        if ((rc = room(l, (size_t)l->store[places[i] + HEAD - 1])) == 0)
            merge_piece(l, places[i], a, b, product);
    }
    if (rc == 0)
        rc = apply(l, a, b, product);
    if (l->change_slot != NULL)
        forget_changes(l);
    if ((pair = find(l, key_of(a, b))) != NULL)
        pair->count = 0;
    return rc;
}

int tok_learner_best(struct tok_learner *l, int64_t min_count, int32_t *a, int32_t *b)
{
    uint32_t k;
    int found = tok_queue_top(&l->queue, l->pair, &k);
    if (found <= 0 || l->pair[k].count < min_count)
        return found < 0 ? found : 0;
    *a = (int32_t)(l->pair[k].key >> 32);
    *b = (int32_t)(uint32_t)l->pair[k].key;
    return 1;
}

int64_t tok_learner_tokens(const struct tok_learner *l)
{
    return l->tokens;
}
