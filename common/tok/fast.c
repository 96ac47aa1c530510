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
#include "tok/chars.h"
#include "tok/split_kin.h"
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
    const struct tok_split *split;
    const struct tok_finder *finder[2]; /* in the raw and in the normalized text; NULL: nothing to find */
    _Bool specials, cuts, nfc;
};

struct tok_fast_mem {
    struct cached *cache;       /* [CACHE_LINES] */
    struct tok_merge_mem merge;
    struct tok_buf shown, two[2], normal;
    struct tok_finds found[2];
};

/* The form of steps that is known here: nothing or NFC before, a split that is
 * compiled, then bytes.  (GPT-2's is inside ByteLevel.) */
static const struct tok_split *find_split(const struct tok_vocab *v)
{
    const struct tok_pre *last = v->n_pre > 0 ? &v->pre[v->n_pre - 1] : NULL;
    if (!v->byte_level || last == NULL || v->semantics == TOK_SCORES || v->n_norm > 1 || (v->n_norm == 1 && v->norm[0].kind != TOK_NFC))
        return NULL;
    if (v->semantics == TOK_RANKS)
        return tok_split_find(v->pre, v->n_pre, TOK_RUST);
    if (last->kind != TOK_BYTELEVEL || last->prefix != TOK_NEVER)
        return NULL;
    if (last->re == NULL)
        return tok_split_find(v->pre, v->n_pre - 1, TOK_ONIG);
    struct tok_pre only = { .kind = TOK_SPLIT, .behavior = TOK_ISOLATED, .expression = last->expression };
    return v->n_pre == 1 ? tok_split_find(&only, 1, TOK_ONIG) : NULL;
}

/* Added tokens that a cut of the text could part, or that see beyond it. */
static _Bool may_cut(const struct tok_vocab *v, _Bool specials)
{
    for (int i = 0; i < v->n_added; i++) {
        const struct tok_added *t = &v->added[i];
        if ((specials || !t->special) && (t->lstrip || t->rstrip || t->single_word || strpbrk(t->content, " \n") != NULL))
            return 0;
    }
    return 1;
}

int tok_fast_new(const struct tok_vocab *v, const struct tok_slow *ref, _Bool specials, struct tok_fast **out)
{
    const struct tok_split *split = find_split(v);
    *out = NULL;
    if (split == NULL)
        return 0;
    for (int b = 0; b < 256; b++)
        if (v->byte_id[b] < 0)
            return 0;
    for (int i = 0; i < v->n_added; i++)
        if (v->added[i].single_word)
            return 0;
    struct tok_fast *f = calloc(1, sizeof *f);
    if (f == NULL)
        return err_sys(ERR_IO, "memory for an encoder");
    *f = (struct tok_fast){ .v = v, .model = tok_slow_model(ref), .split = split, .specials = specials, .cuts = may_cut(v, specials), .nfc = v->n_norm == 1 };
    f->pairs = tok_bpe_pairs(f->model);
    for (int k = 0; k < 2; k++)
        if (tok_finder_any(tok_slow_finder(ref, k), specials))
            f->finder[k] = tok_slow_finder(ref, k);
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
    tok_buf_free(&w->two[0]);
    tok_buf_free(&w->two[1]);
    tok_buf_free(&w->normal);
    free(w->found[0].v);
    free(w->found[1].v);
    free(w);
}

size_t tok_fast_cut(const struct tok_fast *f, const uint8_t *s, size_t n, size_t from)
{
    return f->cuts ? tok_split_kin_cut(f->split, s, n, from) : n;
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
static int run_pieces(const struct tok_fast *f, struct tok_fast_mem *w, struct tok_str s, struct tok_ids *out, uint64_t *invalid)
{
    size_t got;
    TRY(tok_ids_room(out, s.n));
    for (size_t pos = 0; pos < s.n;) {
        size_t end = f->split->next(f->split, s.s, s.n, pos, invalid);
        TRY(encode_piece(f, w, s.s + pos, end - pos, s.n - pos, out->v + out->n, &got));
        out->n += got;
        pos = end;
    }
    return 0;
}

/* NFC of each stretch of valid UTF-8; most texts are found to be in it. */
static int normalize(const struct tok_fast *f, struct tok_fast_mem *w, struct tok_str *s)
{
    if (!f->nfc || tok_steps_plain(s->s, s->n) == s->n)
        return 0;
    w->normal.n = 0;
    for (size_t i = 0, k; i < s->n; i += k) {
        struct tok_str t;
        k = tok_chars_valid(s->s + i, s->n - i);
        if (k > 0) {
            TRY(tok_steps_normal(f->v->norm, f->v->n_norm, NULL, (struct tok_str){ s->s + i, k }, w->two, &t));
            tok_buf_put(&w->normal, t.s, t.n);
        } else {
            tok_buf_put(&w->normal, s->s + i, k = 1);
        }
    }
    *s = (struct tok_str){ w->normal.p, w->normal.n };
    return 0;
}

/* Level 0 looks for tokens in the raw text, level 1 in what is normalized. */
static int run_level(const struct tok_fast *f, struct tok_fast_mem *w, int level, struct tok_str s, struct tok_ids *out, uint64_t *invalid)
{
    struct tok_finds *l = &w->found[level & 1];
    if (level == 1)
        TRY(normalize(f, w, &s));
    if (level == 2 || f->finder[level] == NULL)
        return level < 1 ? run_level(f, w, level + 1, s, out, invalid) : run_pieces(f, w, s, out, invalid);
    l->n = 0;
    TRY(tok_finder_run(f->finder[level], NULL, s.s, s.n, f->specials, l));
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].id >= 0)
            tok_ids_put(out, l->v[i].id);
        else
            TRY(run_level(f, w, level + 1, (struct tok_str){ s.s + l->v[i].from, l->v[i].to - l->v[i].from }, out, invalid));
    }
    return 0;
}

int tok_fast_run(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n, struct tok_ids *out, uint64_t *invalid)
{
    return run_level(f, w, 0, (struct tok_str){ s, n }, out, invalid);
}
