/* cutter.c -- windows of the compiled split, or the steps one after another. */
#include "tok/cutter.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "tok/chars.h"
#include "tok/fast.h"
#include "tok/split_window.h"
#include "tok/vocab_store.h"

struct tok_cutter {
    const struct tok_vocab *v;
    const struct tok_split *split;      /* NULL: not compiled */
    tok_mask_ascii *kernel;
};

struct tok_cutter_mem {
    struct tok_buf two[2];
    struct tok_pieces pieces;
    struct tok_regex_mem *regex;
    uint16_t end[TOK_WINDOW_MAX];
};

struct tok_cutter *tok_cutter_new(const struct tok_vocab *v)
{
    struct tok_cutter *c = calloc(1, sizeof *c);
    arena_must(c);
    *c = (struct tok_cutter){ v, tok_fast_split(v), tok_mask_kernel(0) };
    return c;
}

void tok_cutter_free(struct tok_cutter *c)
{
    free(c);
}

struct tok_cutter_mem *tok_cutter_mem_new(void)
{
    struct tok_cutter_mem *w = calloc(1, sizeof *w);
    arena_must(w);
    w->regex = tok_regex_mem_new();
    arena_must(w->regex);
    return w;
}

void tok_cutter_mem_free(struct tok_cutter_mem *w)
{
    if (w == NULL)
        return;
    tok_buf_free(&w->two[0]);
    tok_buf_free(&w->two[1]);
    free(w->pieces.v);
    tok_regex_mem_free(w->regex);
    free(w);
}

/* Windows end where a text may be cut; what the bits do not know goes piece by piece. */
static int run_compiled(const struct tok_cutter *c, struct tok_cutter_mem *w, const uint8_t *s, size_t n, tok_piece_fn *piece, void *arg, uint64_t *invalid)
{
    size_t pos = 0, stop, m;
    _Bool plain;
    while (pos < n) {
        size_t len = n - pos;
        if (len > TOK_WINDOW_MAX)
            len = tok_split_kin_cut(c->split, s + pos, TOK_WINDOW_MAX, TOK_WINDOW_MAX / 2);
        if ((len < TOK_WINDOW_MAX || len == n - pos) && (m = tok_split_window(c->split, c->kernel, s + pos, len, w->end, &plain)) > 0) {
            for (size_t i = 0, begin = 0; i < m; begin = w->end[i++])
                TRY(piece(arg, s + pos + begin, w->end[i] - begin));
            pos += len;
            continue;
        }
        for (stop = pos + len; pos < stop;) {
            size_t end = c->split->next(c->split, s, n, pos, invalid);
            TRY(piece(arg, s + pos, end - pos));
            pos = end;
        }
    }
    return 0;
}

static int run_valid(const struct tok_cutter *c, struct tok_cutter_mem *w, const uint8_t *s, size_t n, tok_piece_fn *piece, void *arg, uint64_t *invalid)
{
    struct tok_str t = { s, n };
    if (c->v->n_norm > 0 && tok_steps_plain(s, n) < n)
        TRY(tok_steps_normal(c->v->norm, c->v->n_norm, w->regex, t, w->two, &t));
    if (c->split != NULL)
        return run_compiled(c, w, t.s, t.n, piece, arg, invalid);
    struct arena *a = arena_new();
    w->pieces.n = 0;
    tok_pieces_put(&w->pieces, t.s, t.n, 1);
    int rc = tok_steps_cut(c->v->pre, c->v->n_pre - 1, w->regex, a, &w->pieces);
    for (size_t i = 0; i < w->pieces.n && rc == 0; i++)
        if (w->pieces.v[i].n > 0)
            rc = piece(arg, w->pieces.v[i].s, w->pieces.v[i].n);
    arena_free(a);
    return rc;
}

int tok_cutter_run(const struct tok_cutter *c, struct tok_cutter_mem *w, const uint8_t *s, size_t n, tok_piece_fn *piece, void *arg, uint64_t *invalid)
{
    uint32_t cp;
    if (c->split != NULL && c->v->n_norm == 0)
        return run_compiled(c, w, s, n, piece, arg, invalid);
    for (size_t pos = 0, k; pos < n; pos += k) {
        k = tok_chars_valid(s + pos, n - pos);
        if (k > 0) {
            TRY(run_valid(c, w, s + pos, k, piece, arg, invalid));
            continue;
        }
        while (pos + k < n && tok_utf8_char(s + pos + k, n - pos - k, &cp) == 0)
            k++;
        TRY(piece(arg, s + pos, k));
        *invalid += k;
    }
    return 0;
}

/* NFC joins nothing over a cut: what begins a piece there is ASCII. */
size_t tok_cutter_cut(const struct tok_cutter *c, const uint8_t *s, size_t n, size_t from)
{
    return c->split != NULL ? tok_split_kin_cut(c->split, s, n, from) : n;
}
