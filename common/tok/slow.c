/* slow.c -- added tokens, normalizers, pre-tokenizers and the model, in the
 * order of the package tokenizers: tokens that are not normalized are found in
 * the raw text, each stretch between them is normalized and searched for the
 * others, what is left is cut and merged. */
#include "tok/slow.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/chars.h"
#include "tok/vocab_store.h"

struct tok_slow {
    const struct tok_vocab *v;
    struct tok_bpe *model;
    struct tok_finder *raw, *normal;
    struct tok_buf names;               /* normalized contents */
};

struct tok_slow_mem {
    struct tok_regex_mem *regex;
    struct arena *arena;                /* pieces of one stretch */
    struct tok_buf two[2];
    struct tok_pieces pieces;
    struct tok_finds raw, normal;
    struct tok_bpe_mem model;
};

static int make_finders(struct tok_slow *r, struct tok_slow_mem *w)
{
    const struct tok_vocab *v = r->v;
    size_t n = (size_t)v->n_added;
    struct tok_str *raw = arena_must(calloc(n + 1, sizeof *raw)), *normal = arena_must(calloc(n + 1, sizeof *normal));
    size_t *at = arena_must(calloc(n + 1, sizeof *at));
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct tok_added *t = &v->added[i];
        struct tok_str s = { (const uint8_t *)t->content, strlen(t->content) }, to;
        if (!t->normalized) {
            raw[i] = s;
            continue;
        }
        if ((rc = tok_steps_normal(v->norm, v->n_norm, w->regex, s, w->two, &to)) == 0) {
            if (to.n == 0)      /* it would be found between any two characters */
                rc = err_set(ERR_DATA, "%s: added token \"%s\" is empty when normalized: not supported", v->name, t->content);
            at[i] = r->names.n;
            tok_buf_put(&r->names, to.s, to.n);
            normal[i].n = to.n;
        }
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        if (normal[i].n > 0)
            normal[i].s = r->names.p + at[i];
    if (rc == 0 && ((rc = tok_finder_new(v->added, raw, v->n_added, &r->raw)) < 0 ||
                    (rc = tok_finder_new(v->added, normal, v->n_added, &r->normal)) < 0))
        err_add("%s", v->name);
    free(raw);
    free(normal);
    free(at);
    return rc;
}

int tok_slow_new(const struct tok_vocab *v, struct tok_slow **out)
{
    struct tok_slow *r = calloc(1, sizeof *r);
    struct tok_slow_mem *w = tok_slow_mem_new();
    int rc;
    *out = NULL;
    if (r == NULL || w == NULL) {
        rc = err_sys(ERR_IO, "memory for an encoder");
        goto out;
    }
    r->v = v;
    TRY_OUT(rc, tok_bpe_new(v, &r->model));
    TRY_OUT(rc, make_finders(r, w));
    *out = r;
    r = NULL;
out:
    tok_slow_mem_free(w);
    tok_slow_free(r);
    return rc;
}

void tok_slow_free(struct tok_slow *r)
{
    if (r == NULL)
        return;
    tok_bpe_free(r->model);
    tok_finder_free(r->raw);
    tok_finder_free(r->normal);
    tok_buf_free(&r->names);
    free(r);
}

const struct tok_bpe *tok_slow_model(const struct tok_slow *r)
{
    return r->model;
}

const struct tok_finder *tok_slow_finder(const struct tok_slow *r, _Bool normalized)
{
    return normalized ? r->normal : r->raw;
}

struct tok_slow_mem *tok_slow_mem_new(void)
{
    struct tok_slow_mem *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->arena = arena_new();
    if ((w->regex = tok_regex_mem_new()) == NULL) {
        tok_slow_mem_free(w);
        return NULL;
    }
    return w;
}

void tok_slow_mem_free(struct tok_slow_mem *w)
{
    if (w == NULL)
        return;
    tok_regex_mem_free(w->regex);
    arena_free(w->arena);
    tok_buf_free(&w->two[0]);
    tok_buf_free(&w->two[1]);
    free(w->pieces.v);
    free(w->raw.v);
    free(w->normal.v);
    tok_bpe_mem_free(&w->model);
    free(w);
}

static int run_pieces(const struct tok_slow *r, struct tok_slow_mem *w, struct tok_str s, _Bool first, struct tok_ids *out)
{
    const struct tok_vocab *v = r->v;
    w->pieces.n = 0;
    tok_pieces_put(&w->pieces, s.s, s.n, first);
    TRY(tok_steps_cut(v->pre, v->n_pre, w->regex, w->arena, &w->pieces));
    for (size_t i = 0; i < w->pieces.n; i++)
        TRY(tok_bpe_run(r->model, &w->model, w->pieces.v[i].s, w->pieces.v[i].n, 0, out));
    arena_reset(w->arena);
    return 0;
}

static int run_normal(const struct tok_slow *r, struct tok_slow_mem *w, struct tok_str s, _Bool first, _Bool specials, struct tok_ids *out)
{
    struct tok_str t;
    TRY(tok_steps_normal(r->v->norm, r->v->n_norm, w->regex, s, w->two, &t));
    if (!tok_finder_any(r->normal, specials))
        return run_pieces(r, w, t, first, out);
    w->normal.n = 0;
    TRY(tok_finder_run(r->normal, w->regex, t.s, t.n, specials, &w->normal));
    for (size_t i = 0; i < w->normal.n; i++) {
        struct tok_find *f = &w->normal.v[i];
        if (f->id >= 0)
            tok_ids_put(out, f->id);
        else
            TRY(run_pieces(r, w, (struct tok_str){ t.s + f->from, f->to - f->from }, first && f->from == 0, out));
    }
    return 0;
}

static int run_valid(const struct tok_slow *r, struct tok_slow_mem *w, const uint8_t *s, size_t n, _Bool first, _Bool specials, struct tok_ids *out)
{
    if (!tok_finder_any(r->raw, specials))
        return run_normal(r, w, (struct tok_str){ s, n }, first, specials, out);
    w->raw.n = 0;
    TRY(tok_finder_run(r->raw, w->regex, s, n, specials, &w->raw));
    for (size_t i = 0; i < w->raw.n; i++) {
        struct tok_find *f = &w->raw.v[i];
        if (f->id >= 0)
            tok_ids_put(out, f->id);
        else
            TRY(run_normal(r, w, (struct tok_str){ s + f->from, f->to - f->from }, first && f->from == 0, specials, out));
    }
    return 0;
}

int tok_slow_run(const struct tok_slow *r, struct tok_slow_mem *w, const uint8_t *s, size_t n, _Bool specials,
                struct tok_ids *out, uint64_t *invalid)
{
    uint32_t c;
    for (size_t i = 0, k; i < n; i += k) {
        k = tok_chars_valid(s + i, n - i);
        if (k > 0) {
            TRY(run_valid(r, w, s + i, k, i == 0, specials, out));
            continue;
        }
        for (k = 1; i + k < n && tok_utf8_char(s + i + k, n - i - k, &c) == 0; k++)
            ;
        TRY(tok_bpe_run(r->model, &w->model, s + i, k, 1, out));
        *invalid += k;
    }
    return 0;
}
