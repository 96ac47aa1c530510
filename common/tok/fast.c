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
#include "tok/fast_cache.h"
#include "tok/fast_merge.h"
#include "tok/fast_space.h"
#include "tok/split_window.h"
#include "tok/vocab_store.h"

enum {
    WINDOW = 4096,              /* bytes from which a window may end */
    GROUP = 64,                 /* pieces on their way from memory */
    NEW_MAX = 256,              /* pieces to be merged together */
    FAR = 60000,                /* what an end of 16 bits can reach */
};

#define SPACE_SHOWN "\xe2\x96\x81"

struct tok_fast {
    const struct tok_vocab *v;
    const struct tok_bpe *model;
    const struct tok_pairs *pairs;
    struct tok_near near;       /* perhaps empty */
    const struct tok_split *split;
    tok_mask_ascii *kernel;
    const struct tok_finder *finder[2]; /* in the raw and in the normalized text; NULL: nothing to find */
    _Bool specials, cuts, nfc, spaces;
    struct tok_space space;     /* when spaces: split is the one in it */
    int32_t symbol[0x800];      /* ids of characters below U+0800; -1: no token */
};

/* A piece that no table held: where it is, and before which id its own ones belong. */
struct new_piece { const uint8_t *s; int32_t *ids; size_t n, n_ids, at; uint64_t asked; };

struct tok_fast_mem {
    struct tok_cache cache;
    struct new_piece new[NEW_MAX];
    struct tok_near_job job[NEW_MAX];
    size_t n_new;
    struct tok_ids merged;
    uint16_t end[TOK_WINDOW_MAX];
    uint8_t last[TOK_WINDOW_MAX + TOK_LONG + 1];
    struct tok_merge_mem merge;
    struct tok_bpe_mem slow;
    struct tok_ids ids;
    struct tok_buf shown, two[2], normal;
    struct tok_finds found[2];
};

/* The form of steps that is known here: nothing or NFC before, a split that is
 * compiled, then bytes.  (GPT-2's is inside ByteLevel.) */
const struct tok_split *tok_fast_split(const struct tok_vocab *v)
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
        if ((specials || !t->special) && (t->lstrip || t->rstrip || t->single_word || strpbrk(t->content, " \n") != NULL || strstr(t->content, "\xe3\x80") != NULL ||
                                         strstr(t->content, "\xef\xbc") != NULL))
            return 0;
    }
    return 1;
}

int tok_fast_new(const struct tok_vocab *v, const struct tok_slow *ref, _Bool specials, struct tok_fast **out)
{
    const struct tok_split *split = tok_fast_split(v);
    struct tok_space space;
    *out = NULL;
    if (split == NULL && (!tok_space_find(v, tok_slow_model(ref), &space) || tok_finder_any(tok_slow_finder(ref, 1), specials)))
        return 0;
    for (int b = 0; split != NULL && b < 256; b++)
        if (v->byte_id[b] < 0)
            return 0;
    for (int i = 0; i < v->n_added; i++)
        if (v->added[i].single_word)
            return 0;
    struct tok_fast *f = calloc(1, sizeof *f);
    if (f == NULL)
        return err_sys(ERR_IO, "memory for an encoder");
    *f = (struct tok_fast){ .v = v, .model = tok_slow_model(ref), .split = split, .kernel = tok_mask_kernel(0), .specials = specials, .cuts = may_cut(v, specials), .nfc = v->n_norm == 1 };
    if (split == NULL) {
        f->space = space;
        f->split = &f->space.split;
        for (uint32_t c = 0; c < 0x800; c++) {
            uint8_t s[4];
            f->symbol[c] = tok_bpe_find(f->model, s, tok_char_put(c, s));
        }
        f->spaces = 1;
        f->nfc = 0;
        /* Behind a token that is found the prefix comes anew, and a part does not see it. */
        f->cuts &= space.prefix == TOK_SPACE_NEVER || !tok_finder_any(tok_slow_finder(ref, 0), specials);
    }
    f->pairs = tok_bpe_pairs(f->model);
    if (!f->spaces) {
        int rc = tok_near_new(f->pairs, v->byte_id, &f->near);
        if (rc < 0) {
            free(f);
            return rc;
        }
    }
    for (int k = 0; k < 2; k++)
        if (tok_finder_any(tok_slow_finder(ref, k), specials))
            f->finder[k] = tok_slow_finder(ref, k);
    *out = f;
    return 0;
}

void tok_fast_free(struct tok_fast *f)
{
    if (f != NULL)
        tok_near_free(&f->near);
    free(f);
}

struct tok_fast_mem *tok_fast_mem_new(void)
{
    struct tok_fast_mem *w = calloc(1, sizeof *w);
    if (w != NULL && tok_cache_new(&w->cache) < 0) {
        tok_fast_mem_free(w);
        return NULL;
    }
    return w;
}

void tok_fast_mem_free(struct tok_fast_mem *w)
{
    if (w == NULL)
        return;
    tok_cache_free(&w->cache);
    tok_merge_mem_free(&w->merge);
    tok_bpe_mem_free(&w->slow);
    free(w->ids.v);
    free(w->merged.v);
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

/* A piece as the vocabulary has it in its keys; until the next call. */
static struct tok_str as_key(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n)
{
    if (!f->v->char_keys)
        return (struct tok_str){ s, n };
    w->shown.n = 0;
    tok_buf_put(&w->shown, s, n);
    tok_buf_put(&w->shown, s, n);
    return (struct tok_str){ w->shown.p, tok_bytes_show(s, n, (char *)w->shown.p) };
}

/* The symbols of a short word whose characters are all tokens, merged to tokens; 0: it is not so. */
static size_t merge_symbols(const struct tok_fast *f, const uint8_t *s, size_t n, int32_t *ids)
{
    size_t k = 0;
    uint32_t c;
    if (f->v->ignore_merges || f->v->n_frozen > 0)
        return 0;
    for (size_t i = 0, len; i < n; i += len) {
        len = (size_t)tok_utf8_char(s + i, n - i, &c);
        int32_t id = c < 0x800 ? f->symbol[c] : tok_bpe_find(f->model, s + i, len);
        if (id < 0 || id >= f->v->size || k == TOK_SCAN_MAX)
            return 0;
        ids[k++] = id;
    }
    k = tok_merge_scan(f->pairs, ids, k);
    for (size_t i = 0; i < k; i++)
        if (ids[i] >= f->v->size)
            return 0;
    return k;
}

/* A word of a vocabulary without a split, with its spaces as they are shown; with a
 * prefix or without.  There are at most n ids, and one for the prefix. */
static int merge_word(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n, _Bool prefix, struct tok_ids *out)
{
    w->shown.n = 0;
    if (prefix)
        tok_buf_put(&w->shown, SPACE_SHOWN, 3);
    for (size_t i = 0, k; i < n; i += k + 1) {
        const uint8_t *p = memchr(s + i, ' ', n - i);
        k = p != NULL ? (size_t)(p - s) - i : n - i;
        tok_buf_put(&w->shown, s + i, k);
        if (p != NULL)
            tok_buf_put(&w->shown, SPACE_SHOWN, 3);
    }
    int32_t ids[TOK_SCAN_MAX];
    size_t got = merge_symbols(f, w->shown.p, w->shown.n, ids);
    if (got == 0)
        return tok_bpe_run(f->model, &w->slow, w->shown.p, w->shown.n, 0, out);
    for (size_t i = 0; i < got; i++)
        tok_ids_put(out, ids[i]);
    return 0;
}

static int merge_piece(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n, int32_t *out, size_t *n_out)
{
    if (f->spaces) {
        w->ids.n = 0;
        TRY(merge_word(f, w, s, n, 0, &w->ids));
        if (w->ids.n > 0)
            memcpy(out, w->ids.v, w->ids.n * sizeof *out);
        *n_out = w->ids.n;
        return 0;
    }
    if (f->v->ignore_merges) {
        struct tok_str key = as_key(f, w, s, n);
        *n_out = 1;
        if ((out[0] = tok_bpe_find(f->model, key.s, key.n)) >= 0)
            return 0;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = f->v->byte_id[s[i]];
    if (n > TOK_SCAN_MAX)
        return tok_merge_heap(f->pairs, &w->merge, out, n, n_out);
    *n_out = tok_merge_scan(f->pairs, out, n);
    return 0;
}

/* What is too long for the first table, or stands in it without its ids; false: it is new. */
static _Bool look_further(struct tok_fast_mem *w, const uint8_t *s, size_t n, int32_t *out, size_t *n_out)
{
    uint64_t key[6];
    const int32_t *ids;
    if (n > TOK_WIDE)
        return 0;
    if (n > TOK_LONG) {
        ids = tok_wide_find(&w->cache, s, n, n_out);
    } else {
        tok_long_key(s, n, key);
        ids = tok_long_find(&w->cache, tok_long_place(&w->cache, key), key, n_out);
    }
    if (ids != NULL)
        memcpy(out, ids, *n_out * sizeof *ids);
    return ids != NULL;
}

/* The whole piece is a token that needs no merging. */
static _Bool is_token(const struct tok_fast *f, struct tok_fast_mem *w, const struct new_piece *x)
{
    if (!f->v->ignore_merges || !tok_bpe_may_be_there(f->model, x->asked))
        return 0;
    struct tok_str key = as_key(f, w, x->s, x->n);
    return (*x->ids = tok_bpe_find(f->model, key.s, key.n)) >= 0;
}

/* The new pieces: merged, put in the tables, and their ids moved to between those of the
 * others, which stand in out without a gap. */
static int run_new(const struct tok_fast *f, struct tok_fast_mem *w, struct tok_ids *out)
{
    size_t n_jobs = 0, bytes = 0, end = out->n;
    int32_t *to;
    for (size_t i = 0; i < w->n_new; i++) {
        struct new_piece *x = &w->new[i];
        bytes += x->n;
        if (!f->v->ignore_merges)
            continue;
        struct tok_str key = as_key(f, w, x->s, x->n);
        x->asked = tok_bpe_ask(f->model, key.s, key.n);
    }
    w->merged.n = 0;
    TRY(tok_ids_room(&w->merged, bytes));
    to = w->merged.v;
    for (size_t i = 0; i < w->n_new; to += w->new[i++].n) {
        struct new_piece *x = &w->new[i];
        x->ids = to;
        if (f->near.bucket == NULL || x->n > TOK_NEAR_MAX)
            TRY(merge_piece(f, w, x->s, x->n, x->ids, &x->n_ids));
        else if (is_token(f, w, x))
            x->n_ids = 1;
        else
            w->job[n_jobs++] = (struct tok_near_job){ x->s, to, (uint32_t)x->n, 0 };
    }
    tok_near_merge(&f->near, w->job, n_jobs);
    for (size_t i = 0, j = 0; i < w->n_new; i++) {
        struct new_piece *x = &w->new[i];
        if (j < n_jobs && w->job[j].ids == x->ids)
            x->n_ids = w->job[j++].n_ids;
        tok_cache_put(&w->cache, x->s, x->n, x->ids, x->n_ids);
        out->n += x->n_ids;
    }
    to = out->v + out->n;
    for (size_t i = w->n_new; i-- > 0; end = w->new[i].at) {
        const struct new_piece *x = &w->new[i];
        to -= end - x->at;
        memmove(to, out->v + x->at, (end - x->at) * sizeof *to);
        to -= x->n_ids;
        memcpy(to, x->ids, x->n_ids * sizeof *to);
    }
    w->n_new = 0;
    return 0;
}

/* The pieces of s that end at end[0..m).  s is readable for 48 bytes more than they are.
 * Ids are copied by the first table's width, so there must be room for some more. */
static int run_ends(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, const uint16_t *end, size_t m, struct tok_ids *out)
{
    uint64_t key[GROUP][2], longer[6];
    size_t place[GROUP], begin = 0;
    w->n_new = 0;               /* a failure may have left some */
    TRY(tok_ids_room(out, end[m - 1] + TOK_PACKED_IDS));
    for (size_t i = 0; i < m; i += GROUP) {
        size_t k = m - i < GROUP ? m - i : GROUP, from = begin, n;
        tok_cache_grow(&w->cache);
        for (size_t j = 0; j < k; from = end[i + j++]) {
            n = end[i + j] - from;
            if (n > TOK_SHORT) {
                if (n <= TOK_LONG) {
                    tok_long_key(s + from, n, longer);
                    tok_long_fetch(&w->cache, tok_long_place(&w->cache, longer));
                }
                continue;
            }
            tok_short_key(s + from, n, key[j]);
            place[j] = tok_short_place(&w->cache, key[j]);
            tok_short_fetch(&w->cache, place[j]);
        }
        int32_t *to = out->v + out->n;
        for (size_t j = 0; j < k; begin = end[i + j++], to += n) {
            const size_t len = end[i + j] - begin;
            const struct tok_short *x = len <= TOK_SHORT ? tok_short_find(&w->cache, place[j], key[j], &n) : NULL;
            if (x != NULL && n <= TOK_PACKED_IDS) {
                tok_short_ids(x, n, to);
            } else if ((x == NULL && len <= TOK_SHORT) || !look_further(w, s + begin, len, to, &n)) {
                w->new[w->n_new++] = (struct new_piece){ .s = s + begin, .n = len, .at = (size_t)(to - out->v) };
                n = 0;
            }
        }
        out->n = (size_t)(to - out->v);
        if (w->n_new > NEW_MAX - GROUP)
            TRY(run_new(f, w, out));
    }
    return w->n_new > 0 ? run_new(f, w, out) : 0;
}

/* The pieces of s one by one, until one ends at stop or later: *done. */
static int run_singly(const struct tok_fast *f, struct tok_fast_mem *w, struct tok_str s, size_t readable, size_t stop, struct tok_ids *out, uint64_t *invalid,
                      size_t *done)
{
    size_t base = 0, pos = 0, m = 0, got;
    while (pos < stop) {
        size_t end = f->split->next(f->split, s.s, s.n, pos, invalid);
        if (end - base > FAR || m == TOK_WINDOW_MAX || readable - end < TOK_LONG + 1) {
            if (m > 0)
                TRY(run_ends(f, w, s.s + base, w->end, m, out));
            m = 0;
            base = pos;
        }
        if (end - base > FAR || readable - end < TOK_LONG + 1) {
            TRY(tok_ids_room(out, end - pos));
            TRY(merge_piece(f, w, s.s + pos, end - pos, out->v + out->n, &got));
            out->n += got;
            base = end;
        } else {
            w->end[m++] = (uint16_t)(end - base);
        }
        pos = end;
    }
    if (m > 0)
        TRY(run_ends(f, w, s.s + base, w->end, m, out));
    *done = pos;
    return 0;
}

/* The character before i, which follows valid UTF-8. */
static size_t char_before(const uint8_t *s, size_t i)
{
    do
        i--;
    while (i > 0 && (s[i] & 0xc0) == 0x80);
    return i;
}

/* NFC where it is needed: from the last character that is surely in it to the next one
 * such.  Nothing joins over the beginning of such a character. */
static int normalize(const struct tok_fast *f, struct tok_fast_mem *w, struct tok_str *s)
{
    size_t i, k;
    uint32_t c;
    if ((k = tok_steps_plain(s->s, s->n)) == s->n)
        return 0;
    w->normal.n = 0;
    for (i = 0; i < s->n; k = tok_steps_plain(s->s + i, s->n - i)) {
        struct tok_str t = { s->s + i, s->n - i };
        size_t keep = k > 0 && k < t.n ? char_before(t.s, k) : k, end = k;
        tok_buf_put(&w->normal, t.s, keep);
        for (int len; end < t.n && (len = tok_utf8_char(t.s + end, t.n - end, &c)) > 0 && tok_steps_plain(t.s + end, (size_t)len) == 0;)
            end += (size_t)len;
        if (end > keep) {
            struct tok_str u;
            TRY(tok_steps_normal(f->v->norm, f->v->n_norm, NULL, (struct tok_str){ t.s + keep, end - keep }, w->two, &u));
            tok_buf_put(&w->normal, u.s, u.n);
        }
        for (; end < t.n && tok_utf8_char(t.s + end, t.n - end, &c) == 0; end++)
            tok_buf_put(&w->normal, t.s + end, 1);
        i += end;
    }
    *s = (struct tok_str){ w->normal.p, w->normal.n };
    return 0;
}

/* Windows end where a text may be cut; the last one is copied to where more can be read.
 * Windows begin and end with ASCII that stays what it is in NFC, so that each is normalized
 * for itself, if at all. */
static int run_pieces(const struct tok_fast *f, struct tok_fast_mem *w, struct tok_str s, _Bool nfc, struct tok_ids *out, uint64_t *invalid)
{
    size_t done;
    for (size_t pos = 0; pos < s.n; pos += done) {
        size_t left = s.n - pos, m = 0;
        struct tok_str t = { s.s + pos, left };
        _Bool plain = 1;
        if (left > TOK_WINDOW_MAX)
            t.n = tok_split_kin_cut(f->split, t.s, TOK_WINDOW_MAX, WINDOW);
        const _Bool cut = left <= TOK_WINDOW_MAX || t.n < TOK_WINDOW_MAX;
        if (!cut)
            t.n = left;
        done = t.n;
        if (cut && left - t.n < TOK_LONG + 1) {
            memcpy(w->last, t.s, t.n);
            t.s = w->last;
        }
        if (cut)
            m = tok_split_window(f->split, f->kernel, t.s, t.n, w->end, &plain);
        if (nfc && m == 0)
            plain = tok_steps_plain(t.s, t.n) == t.n;
        if (nfc && !plain) {
            TRY(normalize(f, w, &t));
            TRY(run_pieces(f, w, t, 0, out, invalid));
        } else if (m > 0) {
            TRY(run_ends(f, w, t.s, w->end, m, out));
        } else if (cut) {
            TRY(run_singly(f, w, t, t.n + TOK_LONG + 1, t.n, out, invalid, &done));
        } else {
            TRY(run_singly(f, w, t, left, TOK_WINDOW_MAX, out, invalid, &done));
        }
    }
    return 0;
}

/* A stretch without a split; begins: it stands where the text begins, goes_on: something
 * that is not seen here stands before it.  What is no UTF-8 has ids of its own, and the
 * text behind it gets a prefix like any other. */
static int run_spaces(const struct tok_fast *f, struct tok_fast_mem *w, struct tok_str s, _Bool begins, _Bool goes_on, struct tok_ids *out, uint64_t *invalid)
{
    const enum tok_space_prefix p = f->space.prefix;
    uint32_t c;
    for (size_t i = 0, k, e; i < s.n; i += k, begins = goes_on = 0) {
        struct tok_str t = { s.s + i, s.n - i };
        if ((k = tok_chars_valid(t.s, t.n)) == 0) {
            for (k = 1; k < t.n && tok_utf8_char(t.s + k, t.n - k, &c) == 0; k++)
                ;
            TRY(tok_bpe_run(f->model, &w->slow, t.s, k, 1, out));
            *invalid += k;
            continue;
        }
        t.n = k;
        _Bool shown = t.s[0] == ' ' || (t.n >= 3 && memcmp(t.s, SPACE_SHOWN, 3) == 0);
        if (!goes_on && (p == TOK_SPACE_ALWAYS || (!shown && (p == TOK_SPACE_UNLESS || (p == TOK_SPACE_FIRST && begins))))) {
            e = f->split->next(f->split, t.s, t.n, 0, invalid);
            TRY(merge_word(f, w, t.s, e, 1, out));
            t = (struct tok_str){ t.s + e, t.n - e };
        }
        TRY(run_pieces(f, w, t, 0, out, invalid));
    }
    return 0;
}

/* Level 0 looks for tokens in the raw text, level 1 in what is normalized. */
static int run_level(const struct tok_fast *f, struct tok_fast_mem *w, int level, struct tok_str s, _Bool begins, _Bool goes_on, struct tok_ids *out,
                     uint64_t *invalid)
{
    struct tok_finds *l = &w->found[level & 1];
    if (level == 1 && f->nfc && f->finder[1] != NULL)
        TRY(normalize(f, w, &s));
    if (level == 2 || f->finder[level] == NULL) {
        if (level < 1)
            return run_level(f, w, level + 1, s, begins, goes_on, out, invalid);
        return f->spaces ? run_spaces(f, w, s, begins, goes_on, out, invalid) : run_pieces(f, w, s, f->nfc && f->finder[1] == NULL, out, invalid);
    }
    l->n = 0;
    TRY(tok_finder_run(f->finder[level], NULL, s.s, s.n, f->specials, l));
    for (size_t i = 0; i < l->n; i++) {
        size_t from = l->v[i].from;
        if (l->v[i].id >= 0)
            tok_ids_put(out, l->v[i].id);
        else
            TRY(run_level(f, w, level + 1, (struct tok_str){ s.s + from, l->v[i].to - from }, begins && from == 0, goes_on && from == 0, out, invalid));
    }
    return 0;
}

int tok_fast_run(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n, _Bool begins, struct tok_ids *out, uint64_t *invalid)
{
    return run_level(f, w, 0, (struct tok_str){ s, n }, begins, !begins, out, invalid);
}
