/* bpe_model.c -- keys in a hash table, pairs from keys, and the four ways in which
 * a character that is no token becomes ids. */
#include "tok/bpe_model.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "tok/bytelevel.h"
#include "tok/chars.h"
#include "tok/vocab_store.h"

/* Characters that occur in keys and are no tokens themselves: they can only
 * live on inside a merge, under ids beyond the vocabulary. */
struct tok_bpe {
    const struct tok_vocab *v;
    int32_t *slot; size_t mask;         /* id + 1 */
    uint64_t *seen; int seen_shift;     /* four bits for each slot: most keys that are not there are told from here */
    struct tok_str *extra; int32_t n_extra, cap_extra;
    struct tok_pairs pairs;
    struct tok_finder *frozen;
    struct tok_added *frozen_added;
    struct tok_str *frozen_text;
};

static struct tok_str key_of(const struct tok_bpe *m, int32_t id)
{
    if (id >= m->v->size)
        return m->extra[id - m->v->size];
    return (struct tok_str){ m->v->key[id], m->v->key_len[id] };
}

static int32_t *slot_of(const struct tok_bpe *m, uint64_t hash, const uint8_t *s, size_t n)
{
    size_t i = hash & m->mask;
    for (; m->slot[i] != 0; i = (i + 1) & m->mask) {
        struct tok_str k = key_of(m, m->slot[i] - 1);
        if (k.n == n && memcmp(k.s, s, n) == 0)
            break;
    }
    return &m->slot[i];
}

uint64_t tok_bpe_ask(const struct tok_bpe *m, const uint8_t *s, size_t n)
{
    const uint64_t hash = XXH3_64bits(s, n);
    __builtin_prefetch(&m->seen[hash >> m->seen_shift >> 6]);
    return hash;
}

_Bool tok_bpe_may_be_there(const struct tok_bpe *m, uint64_t asked)
{
    const uint64_t bit = asked >> m->seen_shift;
    return m->seen[bit >> 6] >> (bit & 63) & 1;
}

int32_t tok_bpe_find(const struct tok_bpe *m, const uint8_t *s, size_t n)
{
    const uint64_t hash = XXH3_64bits(s, n);
    return tok_bpe_may_be_there(m, hash) ? *slot_of(m, hash, s, n) - 1 : -1;
}

/* The id that has this key; new when none had. */
static int32_t find_or_add(struct tok_bpe *m, const uint8_t *s, size_t n, int32_t new)
{
    const uint64_t hash = XXH3_64bits(s, n), bit = hash >> m->seen_shift;
    int32_t *slot = slot_of(m, hash, s, n);
    if (*slot == 0)
        *slot = new + 1;
    m->seen[bit >> 6] |= (uint64_t)1 << (bit & 63);
    return *slot - 1;
}

const struct tok_pairs *tok_bpe_pairs(const struct tok_bpe *m)
{
    return &m->pairs;
}

static int fill_keys(struct tok_bpe *m)
{
    const struct tok_vocab *v = m->v;
    int bits = 10;
    while ((int64_t)1 << bits < 3 * (int64_t)v->size)
        bits++;
    m->mask = ((size_t)1 << bits) - 1;
    m->seen_shift = 64 - bits - 2;
    m->slot = tok_pages_new((m->mask + 1) * sizeof *m->slot);
    m->seen = tok_pages_new((m->mask + 1) / 16 * sizeof *m->seen);
    if (m->slot == NULL || m->seen == NULL)
        return err_sys(ERR_IO, "memory for %d tokens", (int)v->size);
    for (int32_t i = 0; i < v->size; i++) {
        int32_t had = v->key[i] == NULL ? i : find_or_add(m, v->key[i], v->key_len[i], i);
        if (had != i)
            return err_set(ERR_DATA, "%s: tokens %d and %d are the same", v->name, (int)had, (int)i);
    }
    return 0;
}

/* ids beyond the vocabulary for single characters inside keys; frozen tokens
 * are no part of pairs. */
static int add_extra(struct tok_bpe *m, const uint8_t *s, size_t n)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int len = tok_utf8_char(s + i, n - i, &c);
        if (len == 0)
            return err_set(ERR_DATA, "%s: a token is no valid UTF-8", m->v->name);
        if (tok_bpe_find(m, s + i, (size_t)len) < 0) {
            if (m->n_extra == m->cap_extra) {
                m->cap_extra = 2 * m->cap_extra + 64;
                m->extra = arena_must(realloc(m->extra, (size_t)m->cap_extra * sizeof *m->extra));
            }
            if (m->n_extra > m->v->size / 2 + 512)
                return err_set(ERR_DATA, "%s: too many characters without a token", m->v->name);
            m->extra[m->n_extra] = (struct tok_str){ s + i, (size_t)len };
            find_or_add(m, s + i, (size_t)len, m->v->size + m->n_extra);
            m->n_extra++;
        }
        i += (size_t)len;
    }
    return 0;
}

static int by_score(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Equal scores share a rank: then the place in the text decides. */
static int32_t *ranks(const struct tok_vocab *v)
{
    int32_t *rank = malloc(((size_t)v->size + 1) * sizeof *rank);
    float *sorted;
    if (rank == NULL)
        return NULL;
    for (int32_t i = 0; i < v->size; i++)
        rank[i] = i;
    if (v->semantics != TOK_SCORES)
        return rank;
    if ((sorted = malloc(((size_t)v->size + 1) * sizeof *sorted)) == NULL) {
        free(rank);
        return NULL;
    }
    memcpy(sorted, v->score, (size_t)v->size * sizeof *sorted);
    qsort(sorted, (size_t)v->size, sizeof *sorted, by_score);
    for (int32_t i = 0; i < v->size; i++) {
        int32_t lo = 0, hi = v->size;
        while (lo < hi) {
            int32_t mid = lo + (hi - lo) / 2;
            if (sorted[mid] > v->score[i])
                lo = mid + 1;
            else
                hi = mid;
        }
        rank[i] = lo;
    }
    free(sorted);
    return rank;
}

static int derive_pairs(struct tok_bpe *m)
{
    const struct tok_vocab *v = m->v;
    int rc = 0;
    uint8_t *frozen = calloc((size_t)v->size + 1, 1);
    int32_t *rank = ranks(v);
    if (frozen == NULL || rank == NULL) {
        free(frozen);
        free(rank);
        return err_sys(ERR_IO, "memory for %d ranks", (int)v->size);
    }
    for (int i = 0; i < v->n_frozen; i++)
        frozen[v->frozen[i]] = 1;
    for (int32_t i = 0; i < v->size && v->char_keys && rc == 0; i++)
        if (v->key[i] != NULL && !frozen[i])
            rc = add_extra(m, v->key[i], v->key_len[i]);
    for (int32_t i = 0; i < v->size && rc == 0; i++) {
        if (v->key[i] == NULL)
            continue;
        for (uint32_t k = 1; k < v->key_len[i] && rc == 0; k++) {
            if (v->char_keys && (v->key[i][k] & 0xc0) == 0x80)
                continue;
            int32_t a = tok_bpe_find(m, v->key[i], k), b = tok_bpe_find(m, v->key[i] + k, v->key_len[i] - k);
            if (a >= 0 && b >= 0 && !(a < v->size && frozen[a]) && !(b < v->size && frozen[b]))
                rc = tok_pairs_add(&m->pairs, a, b, rank[i], i, 0);
        }
    }
    free(frozen);
    free(rank);
    return rc;
}

static int list_pairs(struct tok_bpe *m)
{
    TRY(tok_pairs_reserve(&m->pairs, m->v->n_merges));
    for (int64_t r = 0; r < m->v->n_merges; r++) {
        const struct tok_merge *x = &m->v->merges[r];
        TRY(tok_pairs_add(&m->pairs, x->a, x->b, (int32_t)r, x->product, 0));
    }
    return 0;
}

static int find_frozen(struct tok_bpe *m)
{
    const struct tok_vocab *v = m->v;
    if (v->n_frozen == 0)
        return 0;
    m->frozen_added = arena_must(calloc((size_t)v->n_frozen, sizeof *m->frozen_added));
    m->frozen_text = arena_must(calloc((size_t)v->n_frozen, sizeof *m->frozen_text));
    for (int i = 0; i < v->n_frozen; i++) {
        m->frozen_added[i].id = v->frozen[i];
        m->frozen_text[i] = (struct tok_str){ v->key[v->frozen[i]], v->key_len[v->frozen[i]] };
    }
    return tok_finder_new(m->frozen_added, m->frozen_text, v->n_frozen, &m->frozen);
}

int tok_bpe_new(const struct tok_vocab *v, struct tok_bpe **out)
{
    struct tok_bpe *m = calloc(1, sizeof *m);
    int rc;
    *out = NULL;
    if (m == NULL)
        return err_sys(ERR_IO, "memory for a model");
    m->v = v;
    TRY_OUT(rc, tok_pairs_reserve(&m->pairs, 8));
    TRY_OUT(rc, fill_keys(m));
    TRY_OUT(rc, v->semantics == TOK_LIST ? list_pairs(m) : derive_pairs(m));
    TRY_OUT(rc, find_frozen(m));
    *out = m;
    return 0;
out:
    tok_bpe_free(m);
    return rc;
}

void tok_bpe_free(struct tok_bpe *m)
{
    if (m == NULL)
        return;
    tok_finder_free(m->frozen);
    free(m->frozen_added);
    free(m->frozen_text);
    tok_pairs_free(&m->pairs);
    tok_pages_free(m->slot, (m->mask + 1) * sizeof *m->slot);
    tok_pages_free(m->seen, (m->mask + 1) / 16 * sizeof *m->seen);
    free(m->extra);
    free(m);
}

void tok_ids_put(struct tok_ids *ids, int32_t id)
{
    if (ids->n == ids->cap) {
        ids->cap = 2 * ids->cap + 256;
        ids->v = arena_must(realloc(ids->v, ids->cap * sizeof *ids->v));
    }
    ids->v[ids->n++] = id;
}

int tok_ids_room(struct tok_ids *ids, size_t n)
{
    if (ids->cap - ids->n >= n)
        return 0;
    size_t cap = ids->n + n + (ids->n + n) / 4 + 256;
    int32_t *p = realloc(ids->v, cap * sizeof *p);
    if (p == NULL)
        return err_sys(ERR_IO, "memory for %zu ids", cap);
    ids->v = p;
    ids->cap = cap;
    return 0;
}

void tok_bpe_mem_free(struct tok_bpe_mem *w)
{
    tok_merge_mem_free(&w->merge);
    free(w->ids.v);
    *w = (struct tok_bpe_mem){ 0 };
}

/* Merges what is collected and appends it. */
static int flush(const struct tok_bpe *m, struct tok_bpe_mem *w, struct tok_ids *out)
{
    size_t n;
    if (w->ids.n == 0)
        return 0;
    TRY(tok_merge_heap(&m->pairs, &w->merge, w->ids.v, w->ids.n, &n));
    for (size_t i = 0; i < n; i++)
        tok_ids_put(out, w->ids.v[i]);
    w->ids.n = 0;
    return 0;
}

/* The bytes of a character as <0x..> tokens; false when one is missing. */
static _Bool fall_back(const struct tok_vocab *v, const uint8_t *s, size_t n, struct tok_ids *out)
{
    if (!v->byte_fallback)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (v->fallback[s[i]] < 0)
            return 0;
    for (size_t i = 0; i < n; i++)
        tok_ids_put(out, v->fallback[s[i]]);
    return 1;
}

/* As merge_word() of tokenizers: an unknown token waits until a known
 * character comes, and one that fell back to bytes is not known. */
static void list_symbols(const struct tok_bpe *m, const uint8_t *s, size_t n, struct tok_ids *to)
{
    const struct tok_vocab *v = m->v;
    int64_t waiting = 0;
    uint32_t c;
    for (size_t i = 0, len; i < n; i += len) {
        len = v->char_keys ? (size_t)tok_utf8_char(s + i, n - i, &c) : 1;
        int32_t id = tok_bpe_find(m, s + i, len);
        if (id >= 0) {
            for (; waiting > 0; waiting--)
                tok_ids_put(to, v->unk);
            tok_ids_put(to, id);
        } else if (!fall_back(v, s + i, len, to) && v->unk >= 0) {
            if (waiting > 0 && !v->fuse_unk)
                tok_ids_put(to, v->unk);
            waiting = 1;
        }
    }
    if (waiting > 0)
        tok_ids_put(to, v->unk);
}

/* SentencePiece: what is left of a merge and is no token becomes bytes or the
 * unknown token, one for a run of them. */
static void put_unknown(const struct tok_vocab *v, const uint8_t *s, size_t n, size_t start, struct tok_ids *out)
{
    if (!fall_back(v, s, n, out) && !(out->n > start && out->v[out->n - 1] == v->unk))
        tok_ids_put(out, v->unk);
}

static int score_stretch(const struct tok_bpe *m, struct tok_bpe_mem *w, const uint8_t *s, size_t n, size_t start, struct tok_ids *out)
{
    uint32_t c;
    for (size_t i = 0, len; i <= n; i += len) {
        len = i < n ? (size_t)tok_utf8_char(s + i, n - i, &c) : 1;
        int32_t id = i < n ? tok_bpe_find(m, s + i, len) : -1;
        if (id >= 0) {
            tok_ids_put(&w->ids, id);
            continue;
        }
        size_t k = w->ids.n;
        if (k > 0)
            TRY(tok_merge_heap(&m->pairs, &w->merge, w->ids.v, k, &k));
        w->ids.n = 0;
        for (size_t j = 0; j < k; j++) {
            struct tok_str x = key_of(m, w->ids.v[j]);
            if (w->ids.v[j] >= m->v->size)
                put_unknown(m->v, x.s, x.n, start, out);
            else
                tok_ids_put(out, w->ids.v[j]);
        }
        if (i < n)
            put_unknown(m->v, s + i, len, start, out);
    }
    return 0;
}

static int run_scores(const struct tok_bpe *m, struct tok_bpe_mem *w, const uint8_t *s, size_t n, struct tok_ids *out)
{
    struct tok_finds l = { 0 };
    size_t start = out->n;
    int rc = 0;
    if (m->frozen == NULL)
        return score_stretch(m, w, s, n, start, out);
    TRY(tok_finder_run(m->frozen, NULL, s, n, 0, &l));
    for (size_t i = 0; i < l.n && rc == 0; i++) {
        if (l.v[i].id >= 0)
            tok_ids_put(out, l.v[i].id);
        else
            rc = score_stretch(m, w, s + l.v[i].from, l.v[i].to - l.v[i].from, start, out);
    }
    free(l.v);
    return rc;
}

/* Bytes in the ByteLevel alphabet are a piece like any other; elsewhere each
 * byte stands for itself. */
static int run_raw(const struct tok_bpe *m, struct tok_bpe_mem *w, const uint8_t *s, size_t n, struct tok_ids *out)
{
    const struct tok_vocab *v = m->v;
    if (v->byte_level && v->char_keys) {
        char *shown = malloc(2 * n);
        if (shown == NULL)
            return err_sys(ERR_IO, "memory for %zu bytes", n);
        int rc = tok_bpe_run(m, w, (uint8_t *)shown, tok_bytes_show(s, n, shown), 0, out);
        free(shown);
        return rc;
    }
    if (v->byte_level)
        return tok_bpe_run(m, w, s, n, 0, out);
    size_t start = out->n;
    for (size_t i = 0; i < n; i++)
        if (!fall_back(v, s + i, 1, out) && v->unk >= 0 && !(v->fuse_unk && out->n > start && out->v[out->n - 1] == v->unk))
            tok_ids_put(out, v->unk);
    return 0;
}

int tok_bpe_run(const struct tok_bpe *m, struct tok_bpe_mem *w, const uint8_t *s, size_t n, _Bool raw, struct tok_ids *out)
{
    if (raw)
        return run_raw(m, w, s, n, out);
    if (m->v->ignore_merges) {
        int32_t id = tok_bpe_find(m, s, n);
        if (id >= 0) {
            tok_ids_put(out, id);
            return 0;
        }
    }
    if (m->v->semantics == TOK_SCORES)
        return run_scores(m, w, s, n, out);
    list_symbols(m, s, n, &w->ids);
    return flush(m, w, out);
}
