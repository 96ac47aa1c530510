/* encode.c -- text to ids, by cache, by scan and by heap.
 *
 * A piece goes through three doors, cheapest first: the cache of short pieces
 * seen before (nearly all), repeated scans for the lowest rank (a few dozen
 * symbols), a heap (anything longer; n log n, whatever the text is).  All give
 * the ids that the definition gives: merge the pair of lowest rank, leftmost
 * first, until no pair has a rank.
 *
 * Threads share a text by cutting it where pieces end in any case
 * (tok_split_cut).  A part of n bytes gives at most n ids, so every part writes
 * at its own place in one array, and the gaps are closed afterwards in order:
 * the result cannot depend on who worked when. */
#include "tok/encode.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/split.h"

enum {
    PART_BYTES = 64 << 10,      /* what a thread takes at a time */
    SCAN_MAX = 96,              /* symbols merged by scans; longer pieces take the heap */
    KEY_BYTES = 24,             /* 23 bytes of a piece and its length */
    KEY_IDS = 9,
    CACHE_LINES = 1 << 16,      /* of 64 bytes: 4 MiB a thread */
};

/* rank and product of a pair of ids, open addressing. */
struct pair { uint64_t key; int32_t rank, product; };
#define NO_PAIR UINT64_MAX

struct cached { uint64_t key[3]; int32_t n, ids[KEY_IDS]; };

/* Scratch of the heap path, grown to the longest piece seen. */
struct worker {
    struct cached *cache;       /* [CACHE_LINES] */
    int32_t *ids, *prev, *next; /* [cap] */
    uint64_t *heap;             /* [3 cap] */
    size_t cap;
    uint64_t invalid;
    struct err_state err;
};

struct part { const uint8_t *s; size_t n, at; int64_t doc, n_ids; _Bool ends_doc; };

struct tok_encoder {
    const struct tok_vocab *v;
    int threads;
    struct pair *pairs;
    uint64_t mask;
    int shift;
    int32_t byte_id[256];
    struct worker *workers;
    struct part *parts; size_t n_parts, cap_parts;
    int32_t *ids; size_t cap_ids;
    int64_t *ends; size_t cap_ends;
};

static inline uint64_t slot_of(const struct tok_encoder *e, uint64_t key)
{
    return key * 0x9e3779b97f4a7c15u >> e->shift;
}

static inline const struct pair *find_pair(const struct tok_encoder *e, int32_t a, int32_t b)
{
    uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b, i = slot_of(e, key);
    for (; e->pairs[i].key != NO_PAIR; i = (i + 1) & e->mask)
        if (e->pairs[i].key == key)
            return &e->pairs[i];
    return NULL;
}

struct tok_encoder *tok_encoder_new(const struct tok_vocab *v, int threads)
{
    struct tok_encoder *e = calloc(1, sizeof *e);
    const struct tok_merge *m = tok_vocab_merges(v);
    int64_t n = tok_vocab_n_merges(v);
    int bits = 4;
    BUG_ON(e == NULL);
    e->v = v;
    e->threads = threads > 0 ? threads : omp_get_max_threads();
    while ((int64_t)1 << bits < 2 * n)
        bits++;
    e->mask = ((uint64_t)1 << bits) - 1;
    e->shift = 64 - bits;
    e->pairs = malloc((e->mask + 1) * sizeof *e->pairs);
    e->workers = calloc((size_t)e->threads, sizeof *e->workers);
    BUG_ON(e->pairs == NULL || e->workers == NULL);
    for (uint64_t i = 0; i <= e->mask; i++)
        e->pairs[i].key = NO_PAIR;
    for (int64_t r = 0; r < n; r++) {
        uint64_t key = (uint64_t)(uint32_t)m[r].a << 32 | (uint32_t)m[r].b, i = slot_of(e, key);
        while (e->pairs[i].key != NO_PAIR)
            i = (i + 1) & e->mask;
        e->pairs[i] = (struct pair){ key, (int32_t)r, m[r].product };
    }
    for (int b = 0; b < 256; b++)
        e->byte_id[b] = tok_vocab_byte_id(v, (uint8_t)b);
    return e;
}

void tok_encoder_free(struct tok_encoder *e)
{
    if (e == NULL)
        return;
    for (int i = 0; i < e->threads; i++) {
        struct worker *w = &e->workers[i];
        free(w->cache);
        free(w->ids);
        free(w->prev);
        free(w->next);
        free(w->heap);
    }
    free(e->workers);
    free(e->pairs);
    free(e->parts);
    free(e->ids);
    free(e->ends);
    free(e);
}

/* ---- one piece */

/* The pair's rank and product travel with the left symbol, so a merge asks for
 * two pairs anew and a scan reads one array. */
static size_t merge_by_scan(const struct tok_encoder *e, const uint8_t *s, size_t n, int32_t *out)
{
    int32_t rank[SCAN_MAX], product[SCAN_MAX];
    for (size_t i = 0; i < n; i++)
        out[i] = e->byte_id[s[i]];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct pair *p = find_pair(e, out[i], out[i + 1]);
        rank[i] = p != NULL ? p->rank : INT32_MAX;
        product[i] = p != NULL ? p->product : 0;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == INT32_MAX)
            break;
        out[best] = product[best];
        size_t tail = n - best - 2;
        memmove(out + best + 1, out + best + 2, tail * sizeof *out);
        if (tail > 0) {
            memmove(rank + best + 1, rank + best + 2, (tail - 1) * sizeof *rank);
            memmove(product + best + 1, product + best + 2, (tail - 1) * sizeof *product);
        }
        n--;
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct pair *p = find_pair(e, out[i], out[i + 1]);
            rank[i] = p != NULL ? p->rank : INT32_MAX;
            product[i] = p != NULL ? p->product : 0;
        }
    }
    return n;
}

/* A binary heap of rank << 32 | position: its order is the order of merging. */
static void sift_up(uint64_t *h, size_t i)
{
    uint64_t x = h[i];
    for (; i > 0 && h[(i - 1) / 2] > x; i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = x;
}

static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && h[c + 1] < h[c])
            c++;
        if (h[c] >= x)
            break;
        h[i] = h[c];
    }
    h[i] = x;
}

static int grow_worker(struct worker *w, size_t n)
{
    if (n <= w->cap)
        return 0;
    if (n > INT32_MAX)
        return err_set(ERR_DATA, "a piece of %zu bytes without a place to cut it is too long", n);
    size_t cap = n < 4096 ? 4096 : n + n / 2;
    void *a = realloc(w->ids, cap * sizeof *w->ids);
    if (a != NULL)
        w->ids = a;
    void *b = realloc(w->prev, cap * sizeof *w->prev);
    if (b != NULL)
        w->prev = b;
    void *c = realloc(w->next, cap * sizeof *w->next);
    if (c != NULL)
        w->next = c;
    void *d = realloc(w->heap, 3 * cap * sizeof *w->heap);
    if (d != NULL)
        w->heap = d;
    if (a == NULL || b == NULL || c == NULL || d == NULL)
        return err_sys(ERR_IO, "memory for a piece of %zu bytes", n);
    w->cap = cap;
    return 0;
}

/* A merge removes one pair entry and adds at most two, so 3 n entries suffice.
 * An entry is stale when the pair at its position has another rank now. */
static int merge_by_heap(const struct tok_encoder *e, struct worker *w, const uint8_t *s, size_t n, int32_t *out, size_t *n_out)
{
    TRY(grow_worker(w, n));
    int32_t *ids = w->ids, *prev = w->prev, *next = w->next, last = (int32_t)n;
    uint64_t *h = w->heap;
    size_t n_heap = 0, k = 0;
    for (int32_t i = 0; i < last; i++) {
        ids[i] = e->byte_id[s[i]];
        prev[i] = i - 1;
        next[i] = i + 1;
    }
    for (int32_t i = 0; i + 1 < last; i++) {
        const struct pair *p = find_pair(e, ids[i], ids[i + 1]);
        if (p != NULL)
            h[n_heap++] = (uint64_t)(uint32_t)p->rank << 32 | (uint32_t)i;
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        sift_down(h, n_heap, i);
    while (n_heap > 0) {
        uint64_t top = h[0];
        int32_t i = (int32_t)(uint32_t)top, j;
        h[0] = h[--n_heap];
        if (n_heap > 0)
            sift_down(h, n_heap, 0);
        if (ids[i] < 0 || (j = next[i]) == last)
            continue;
        const struct pair *p = find_pair(e, ids[i], ids[j]);
        if (p == NULL || (uint32_t)p->rank != top >> 32)
            continue;
        ids[i] = p->product;
        ids[j] = -1;
        next[i] = next[j];
        if (next[i] != last)
            prev[next[i]] = i;
        for (int side = 0; side < 2; side++) {
            int32_t a = side == 0 ? prev[i] : i;
            if (a < 0 || next[a] == last || (p = find_pair(e, ids[a], ids[next[a]])) == NULL)
                continue;
            h[n_heap] = (uint64_t)(uint32_t)p->rank << 32 | (uint32_t)a;
            sift_up(h, n_heap++);
        }
    }
    for (int32_t i = 0; i != last; i = next[i])
        out[k++] = ids[i];
    *n_out = k;
    return 0;
}

/* The piece's bytes and its length as three words.  A byte order does not
 * matter, the key never leaves the process. */
static inline void make_key(const uint8_t *s, size_t n, size_t readable, uint64_t key[3])
{
    uint8_t buf[KEY_BYTES] = { 0 };
    if (readable >= KEY_BYTES) {
        memcpy(buf, s, KEY_BYTES);
        memset(buf + n, 0, KEY_BYTES - n);
    } else {
        memcpy(buf, s, n);
    }
    buf[KEY_BYTES - 1] = (uint8_t)n;
    memcpy(key, buf, KEY_BYTES);
}

static int encode_piece(const struct tok_encoder *e, struct worker *w, const uint8_t *s, size_t n, size_t readable,
                        int32_t *out, size_t *n_out)
{
    struct cached *c = NULL;
    uint64_t key[3];
    if (n == 1) {
        out[0] = e->byte_id[s[0]];
        *n_out = 1;
        return 0;
    }
    if (n < KEY_BYTES) {
        make_key(s, n, readable, key);
        uint64_t h = (key[0] * 0x9e3779b97f4a7c15u ^ key[1]) * 0xc2b2ae3d27d4eb4fu ^ key[2] * 0x165667b19e3779f9u;
        c = &w->cache[(h ^ h >> 32) & (CACHE_LINES - 1)];
        if (c->key[0] == key[0] && c->key[1] == key[1] && c->key[2] == key[2]) {
            for (int i = 0; i < c->n; i++)
                out[i] = c->ids[i];
            *n_out = (size_t)c->n;
            return 0;
        }
    }
    if (n > SCAN_MAX)
        return merge_by_heap(e, w, s, n, out, n_out);
    *n_out = merge_by_scan(e, s, n, out);
    if (c != NULL && *n_out <= KEY_IDS) {
        memcpy(c->key, key, sizeof key);
        c->n = (int32_t)*n_out;
        memcpy(c->ids, out, *n_out * sizeof *out);
    }
    return 0;
}

static int encode_part(const struct tok_encoder *e, struct worker *w, struct part *p, int32_t *out)
{
    size_t k = 0, got;
    for (size_t pos = 0; pos < p->n;) {
        size_t end = tok_split_next(p->s, p->n, pos, &w->invalid);
        TRY(encode_piece(e, w, p->s + pos, end - pos, p->n - pos, out + k, &got));
        k += got;
        pos = end;
    }
    p->n_ids = (int64_t)k;
    return 0;
}

/* ---- many texts */

static int add_part(struct tok_encoder *e, struct part p)
{
    if (e->n_parts == e->cap_parts) {
        size_t cap = e->cap_parts * 2 + 64;
        struct part *q = realloc(e->parts, cap * sizeof *q);
        if (q == NULL)
            return err_sys(ERR_IO, "memory for %zu parts of a text", cap);
        e->parts = q;
        e->cap_parts = cap;
    }
    e->parts[e->n_parts++] = p;
    return 0;
}

static int plan_parts(struct tok_encoder *e, const struct tok_span *docs, int64_t n_docs, size_t *total)
{
    e->n_parts = 0;
    *total = 0;
    for (int64_t d = 0; d < n_docs; d++) {
        size_t pos = 0, n = docs[d].n;
        do {
            size_t end = n - pos <= PART_BYTES + PART_BYTES / 2 ? n : tok_split_cut(docs[d].s, n, pos + PART_BYTES);
            TRY(add_part(e, (struct part){ docs[d].s + pos, end - pos, *total, d, 0, end == n }));
            *total += end - pos;
            pos = end;
        } while (pos < n);
    }
    return 0;
}

/* Room for n items, rounded up; the old content is not kept. */
static void *fresh(void *old, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap && old != NULL)
        return old;
    free(old);
    *cap = n + n / 4 + 64;
    return malloc(*cap * size);
}

/* A run of parts that together are worth a thread's turn. */
static size_t run_end(const struct tok_encoder *e, size_t i)
{
    size_t n = 0;
    while (i < e->n_parts && n < PART_BYTES)
        n += e->parts[i++].n + 64;
    return i;
}

static int encode_parts(struct tok_encoder *e)
{
    size_t next = 0;
    int failed = 0;             /* under the same lock as next */
    #pragma omp parallel num_threads(e->threads)
    {
        struct worker *w = &e->workers[omp_get_thread_num()];
        size_t i, end;
        w->err.code = 0;
        w->invalid = 0;
        if (w->cache == NULL && (w->cache = calloc(CACHE_LINES, sizeof *w->cache)) == NULL) {
            err_sys(ERR_IO, "memory for a cache of pieces");
            err_take(&w->err);
        }
        while (w->err.code == 0) {
            #pragma omp critical(tok_encode_turn)
            {
                i = next;
                next = end = failed ? i : run_end(e, i);
            }
            if (i == end)
                break;
            for (; i < end && w->err.code == 0; i++)
                if (encode_part(e, w, &e->parts[i], e->ids + e->parts[i].at) < 0)
                    err_take(&w->err);
        }
        if (w->err.code != 0) {
            #pragma omp critical(tok_encode_turn)
            failed = 1;
        }
    }
    for (int i = 0; i < e->threads; i++)
        if (e->workers[i].err.code != 0)
            return err_put(&e->workers[i].err);
    return 0;
}

int tok_encode(struct tok_encoder *e, const struct tok_span *docs, int64_t n_docs,
               const int32_t **ids, const int64_t **ends, uint64_t *invalid)
{
    size_t total;
    int64_t k = 0;
    TRY(plan_parts(e, docs, n_docs, &total));
    e->ids = fresh(e->ids, &e->cap_ids, total, sizeof *e->ids);
    e->ends = fresh(e->ends, &e->cap_ends, (size_t)n_docs, sizeof *e->ends);
    if (e->ids == NULL || e->ends == NULL) {
        e->cap_ids = e->ids == NULL ? 0 : e->cap_ids;
        e->cap_ends = e->ends == NULL ? 0 : e->cap_ends;
        return err_sys(ERR_IO, "memory for the ids of %zu bytes", total);
    }
    TRY(encode_parts(e));
    for (int i = 0; i < e->threads; i++)
        *invalid += e->workers[i].invalid;
    for (size_t i = 0; i < e->n_parts; i++) {
        struct part *p = &e->parts[i];
        if ((size_t)k != p->at)
            memmove(e->ids + k, e->ids + p->at, (size_t)p->n_ids * sizeof *e->ids);
        k += p->n_ids;
        if (p->ends_doc)
            e->ends[p->doc] = k;
    }
    *ids = e->ids;
    *ends = e->ends;
    return 0;
}
