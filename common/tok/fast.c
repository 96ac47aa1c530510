/* fast.c -- pieces by compiled split, through a cache, to scan or heap.
 *
 * A piece goes through three doors, cheapest first: the cache of short pieces
 * seen before (nearly all), repeated scans for the lowest rank (a few dozen
 * symbols), a heap (anything longer; n log n, whatever the text is). */
#include "tok/fast.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/bytelevel.h"
#include "tok/split.h"
#include "tok/vocab_store.h"

enum {
    KEY_BYTES = 24,             /* 23 bytes of a piece and its length */
    KEY_IDS = 9,
    CACHE_LINES = 1 << 16,      /* of 64 bytes: 4 MiB a thread */
};

struct cached { uint64_t key[3]; int32_t n, ids[KEY_IDS]; };

struct tok_fast {
    const struct tok_vocab *v;
    const struct tok_bpe *model;
    const struct tok_pairs *pairs;
};

struct tok_fast_mem {
    struct cached *cache;       /* [CACHE_LINES] */
    struct tok_merge_mem merge;
    struct tok_buf shown;
};

/* The one form of steps that is known here: the expression, then ByteLevel. */
static _Bool knows(const struct tok_vocab *v)
{
    if (v->n_norm > 0 || !v->byte_level || v->semantics != TOK_LIST || v->n_pre != 2 || v->pre[0].kind != TOK_SPLIT)
        return 0;
    const struct tok_pre *split = &v->pre[0], *bytes = &v->pre[1];
    return split->behavior == TOK_ISOLATED && !split->invert && split->expression != NULL &&
           strcmp(split->expression, tok_split_o200k) == 0 && bytes->re == NULL && bytes->prefix == TOK_NEVER;
}

int tok_fast_new(const struct tok_vocab *v, const struct tok_slow *ref, _Bool specials, struct tok_fast **out)
{
    *out = NULL;
    if (!knows(v))
        return 0;
    for (int b = 0; b < 256; b++)
        if (v->byte_id[b] < 0)
            return 0;
    for (int i = 0; i < v->n_added; i++)
        if (specials || !v->added[i].special)
            return 0;
    struct tok_fast *f = calloc(1, sizeof *f);
    if (f == NULL)
        return err_sys(ERR_IO, "memory for an encoder");
    f->v = v;
    f->model = tok_slow_model(ref);
    f->pairs = tok_bpe_pairs(f->model);
    *out = f;
    return 0;
}

void tok_fast_free(struct tok_fast *f)
{
    free(f);
}

struct tok_fast_mem *tok_fast_mem_new(void)
{
    struct tok_fast_mem *w = calloc(1, sizeof *w);
    if (w != NULL && (w->cache = calloc(CACHE_LINES, sizeof *w->cache)) == NULL) {
        free(w);
        return NULL;
    }
    return w;
}

void tok_fast_mem_free(struct tok_fast_mem *w)
{
    if (w == NULL)
        return;
    free(w->cache);
    tok_merge_mem_free(&w->merge);
    tok_buf_free(&w->shown);
    free(w);
}

size_t tok_fast_cut(const struct tok_fast *f, const uint8_t *s, size_t n, size_t from)
{
    (void)f;
    return tok_split_cut(s, n, from);
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

/* The token that the whole piece is, before any merging; -1: none. */
static int32_t whole(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n)
{
    if (!f->v->char_keys)
        return tok_bpe_find(f->model, s, n);
    w->shown.n = 0;
    tok_buf_put(&w->shown, s, n);
    tok_buf_put(&w->shown, s, n);
    return tok_bpe_find(f->model, w->shown.p, tok_bytes_show(s, n, (char *)w->shown.p));
}

static int merge_piece(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n, int32_t *out, size_t *n_out)
{
    int32_t id;
    if (f->v->ignore_merges && (id = whole(f, w, s, n)) >= 0) {
        out[0] = id;
        *n_out = 1;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = f->v->byte_id[s[i]];
    if (n > TOK_SCAN_MAX)
        return tok_merge_heap(f->pairs, &w->merge, out, n, n_out);
    *n_out = tok_merge_scan(f->pairs, out, n);
    return 0;
}

static int encode_piece(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n, size_t readable,
                        int32_t *out, size_t *n_out)
{
    struct cached *c;
    uint64_t key[3];
    if (n == 1) {
        out[0] = f->v->byte_id[s[0]];
        *n_out = 1;
        return 0;
    }
    if (n >= KEY_BYTES)
        return merge_piece(f, w, s, n, out, n_out);
    make_key(s, n, readable, key);
    uint64_t h = (key[0] * 0x9e3779b97f4a7c15u ^ key[1]) * 0xc2b2ae3d27d4eb4fu ^ key[2] * 0x165667b19e3779f9u;
    c = &w->cache[(h ^ h >> 32) & (CACHE_LINES - 1)];
    if (c->key[0] == key[0] && c->key[1] == key[1] && c->key[2] == key[2]) {
        for (int i = 0; i < c->n; i++)
            out[i] = c->ids[i];
        *n_out = (size_t)c->n;
        return 0;
    }
    TRY(merge_piece(f, w, s, n, out, n_out));
    if (*n_out <= KEY_IDS) {
        memcpy(c->key, key, sizeof key);
        c->n = (int32_t)*n_out;
        memcpy(c->ids, out, *n_out * sizeof *out);
    }
    return 0;
}

/* A text of n bytes gives at most n ids, so there is room before the loop. */
int tok_fast_run(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n, struct tok_ids *out, uint64_t *invalid)
{
    size_t got;
    TRY(tok_ids_room(out, n));
    for (size_t pos = 0; pos < n;) {
        size_t end = tok_split_next(s, n, pos, invalid);
        TRY(encode_piece(f, w, s + pos, end - pos, n - pos, out->v + out->n, &got));
        out->n += got;
        pos = end;
    }
    return 0;
}
