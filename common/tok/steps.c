/* steps.c -- pre-tokenizers: pieces cut into pieces. */
#include "tok/steps.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/bytelevel.h"
#include "tok/chars.h"

void tok_pieces_put(struct tok_pieces *p, const uint8_t *s, size_t n, _Bool first)
{
    if (n == 0)
        return;
    if (p->n == p->cap) {
        p->cap = 2 * p->cap + 64;
        p->v = arena_must(realloc(p->v, p->cap * sizeof *p->v));
    }
    p->v[p->n++] = (struct tok_piece_ref){ s, n, first };
}

/* Stretches of one text in order, each a match of the pattern or not. */
struct stretch { size_t from, to; _Bool hit, gone; };
struct stretches { struct stretch *v; size_t n, cap; };

static void add(struct stretches *l, size_t from, size_t to, _Bool hit)
{
    if (l->n == l->cap) {
        l->cap = 2 * l->cap + 64;
        l->v = arena_must(realloc(l->v, l->cap * sizeof *l->v));
    }
    l->v[l->n++] = (struct stretch){ from, to, hit, 0 };
}

static int by_regex(struct stretches *l, const struct tok_regex *re, struct tok_regex_mem *mem, struct tok_str s)
{
    struct tok_regex_walk w;
    size_t from, to, at = 0;
    int rc;
    tok_regex_begin(&w, re, s.s, s.n);
    while ((rc = tok_regex_next(&w, mem, &from, &to)) > 0) {
        if (from > at)
            add(l, at, from, 0);
        add(l, from, to, 1);
        at = to;
    }
    if (at < s.n)
        add(l, at, s.n, 0);
    return rc;
}

static void by_text(struct stretches *l, struct tok_str text, struct tok_str s)
{
    size_t at = 0;
    const uint8_t *p;
    while (text.n > 0 && (p = memmem(s.s + at, s.n - at, text.s, text.n)) != NULL) {
        size_t from = (size_t)(p - s.s);
        if (from > at)
            add(l, at, from, 0);
        add(l, from, from + text.n, 1);
        at = from + text.n;
    }
    if (at < s.n)
        add(l, at, s.n, 0);
}

static void by_digit(struct stretches *l, struct tok_str s)
{
    size_t at = 0, i = 0;
    uint32_t c;
    for (int len; i < s.n; i += (size_t)len) {
        len = tok_utf8_char(s.s + i, s.n - i, &c);
        if (!tok_char_number(c))
            continue;
        if (i > at)
            add(l, at, i, 0);
        add(l, i, i + (size_t)len, 1);
        at = i + (size_t)len;
    }
    if (at < s.n)
        add(l, at, s.n, 0);
}

/* What becomes of the matches; the list is rewritten in place.  The folds with
 * the previous or next stretch look at the stretch before as it was. */
static void behave(struct stretches *l, enum tok_behavior b)
{
    struct stretch *v = l->v;
    size_t k = 0;
    _Bool before = 0, joins;
    if (b == TOK_REMOVED)
        for (size_t i = 0; i < l->n; i++)
            v[i].gone = v[i].hit;
    if (b == TOK_REMOVED || b == TOK_ISOLATED)
        return;
    if (b == TOK_WITH_NEXT) {
        size_t n = l->n;
        k = n;
        for (size_t i = n; i-- > 0;) {
            struct stretch x = v[i];
            joins = x.hit && !before && k < n;
            before = x.hit;
            if (joins)
                v[k].from = x.from;
            else
                v[--k] = x;
        }
        memmove(v, v + k, (n - k) * sizeof *v);
        l->n = n - k;
        return;
    }
    for (size_t i = 0; i < l->n; i++) {
        struct stretch x = v[i];
        joins = k > 0 && (b == TOK_CONTIGUOUS ? x.hit == before : x.hit && !before);
        before = x.hit;
        if (joins)
            v[k - 1].to = x.to;
        else
            v[k++] = x;
    }
    l->n = k;
}

static void give(const struct stretches *l, struct tok_piece_ref p, struct tok_pieces *out)
{
    for (size_t i = 0; i < l->n; i++)
        if (!l->v[i].gone)
            tok_pieces_put(out, p.s + l->v[i].from, l->v[i].to - l->v[i].from, p.first && l->v[i].from == 0);
}

static int split(const struct tok_pre *t, struct tok_regex_mem *mem, struct stretches *l, struct tok_piece_ref p, struct tok_pieces *out)
{
    l->n = 0;
    if (t->re != NULL)
        TRY(by_regex(l, t->re, mem, (struct tok_str){ p.s, p.n }));
    else
        by_text(l, t->text, (struct tok_str){ p.s, p.n });
    for (size_t i = 0; t->invert && i < l->n; i++)
        l->v[i].hit = !l->v[i].hit;
    behave(l, t->behavior);
    give(l, p, out);
    return 0;
}

static struct tok_piece_ref prefixed(struct arena *a, struct tok_str prefix, struct tok_piece_ref p)
{
    uint8_t *q = arena_alloc(a, p.n + prefix.n);
    memcpy(q, prefix.s, prefix.n);
    memcpy(q + prefix.n, p.s, p.n);
    return (struct tok_piece_ref){ q, p.n + prefix.n, p.first };
}

static int bytelevel(const struct tok_pre *t, struct tok_regex_mem *mem, struct arena *a, struct stretches *l,
                     struct tok_piece_ref p, struct tok_pieces *out)
{
    if (t->prefix == TOK_ALWAYS && p.s[0] != ' ')
        p = prefixed(a, (struct tok_str){ (const uint8_t *)" ", 1 }, p);
    l->n = 0;
    if (t->re != NULL)
        TRY(by_regex(l, t->re, mem, (struct tok_str){ p.s, p.n }));
    else
        add(l, 0, p.n, 0);
    for (size_t i = 0; i < l->n; i++) {
        size_t n = l->v[i].to - l->v[i].from;
        char *shown = arena_alloc(a, 2 * n);
        n = tok_bytes_show(p.s + l->v[i].from, n, shown);
        tok_pieces_put(out, (uint8_t *)shown, n, p.first && l->v[i].from == 0);
    }
    return 0;
}

static void metaspace(const struct tok_pre *t, struct arena *a, struct stretches *l, struct tok_piece_ref p, struct tok_pieces *out)
{
    struct tok_buf b = { 0 };
    for (size_t i = 0; i < p.n; i++)
        tok_buf_put(&b, p.s[i] == ' ' ? t->text.s : p.s + i, p.s[i] == ' ' ? t->text.n : 1);
    struct tok_piece_ref q = { arena_alloc(a, b.n), b.n, p.first };
    memcpy((uint8_t *)q.s, b.p, b.n);
    tok_buf_free(&b);
    if ((t->prefix == TOK_ALWAYS || (t->prefix == TOK_FIRST && p.first)) &&
        !(q.n >= t->text.n && memcmp(q.s, t->text.s, t->text.n) == 0))
        q = prefixed(a, t->text, q);
    if (!t->split) {
        tok_pieces_put(out, q.s, q.n, q.first);
        return;
    }
    l->n = 0;
    by_text(l, t->text, (struct tok_str){ q.s, q.n });
    behave(l, TOK_WITH_NEXT);
    give(l, q, out);
}

int tok_steps_cut(const struct tok_pre *step, int n_steps, struct tok_regex_mem *mem, struct arena *a, struct tok_pieces *io)
{
    struct tok_pieces next = { 0 };
    struct stretches l = { 0 };
    int rc = 0;
    for (int k = 0; k < n_steps && rc == 0; k++) {
        const struct tok_pre *t = &step[k];
        next.n = 0;
        for (size_t i = 0; i < io->n && rc == 0; i++) {
            struct tok_piece_ref p = io->v[i];
            switch (t->kind) {
            case TOK_SPLIT:
                rc = split(t, mem, &l, p, &next);
                break;
            case TOK_DIGITS:
                l.n = 0;
                by_digit(&l, (struct tok_str){ p.s, p.n });
                behave(&l, t->split ? TOK_ISOLATED : TOK_CONTIGUOUS);
                give(&l, p, &next);
                break;
            case TOK_BYTELEVEL:
                rc = bytelevel(t, mem, a, &l, p, &next);
                break;
            case TOK_METASPACE:
                metaspace(t, a, &l, p, &next);
                break;
            }
        }
        struct tok_pieces swap = *io;
        *io = next;
        next = swap;
    }
    free(next.v);
    free(l.v);
    return rc;
}
