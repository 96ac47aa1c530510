/* docs.c -- documents in a text, found without copying it. */
#include "tok/docs.h"

#include <string.h>

void tok_docs_begin(struct tok_docs *d, enum tok_docs_mode mode, const void *s, size_t n)
{
    *d = (struct tok_docs){ mode, s, n, 0, 0 };
}

/* The end of the line at pos: the place of its line feed, or n. */
static size_t line_end(const struct tok_docs *d, size_t pos)
{
    const uint8_t *p = memchr(d->s + pos, '\n', d->n - pos);
    return p != NULL ? (size_t)(p - d->s) : d->n;
}

_Bool tok_docs_is_blank(const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return 0;
    return 1;
}

static _Bool next_blank(struct tok_docs *d, struct tok_span *out)
{
    size_t begin = d->n, end = d->n;
    for (; d->pos < d->n; d->pos = end < d->n ? end + 1 : d->n) {
        end = line_end(d, d->pos);
        if (tok_docs_is_blank(d->s + d->pos, end - d->pos)) {
            if (begin < d->n)
                break;
        } else if (begin == d->n) {
            begin = d->pos;
        }
    }
    if (begin == d->n)
        return 0;
    /* The line feed before d->pos ends the last line, or the text ends here. */
    end = d->pos;
    if (d->s[end - 1] == '\n')
        end--;
    *out = (struct tok_span){ d->s + begin, end - begin };
    return 1;
}

_Bool tok_docs_next(struct tok_docs *d, struct tok_span *out)
{
    size_t end;
    switch (d->mode) {
    case TOK_DOCS_FILE:
        if (d->done)
            return 0;
        d->done = 1;
        *out = (struct tok_span){ d->s, d->n };
        return 1;
    case TOK_DOCS_LINE:
        if (d->pos >= d->n)
            return 0;
        end = line_end(d, d->pos);
        *out = (struct tok_span){ d->s + d->pos, end - d->pos };
        d->pos = end + 1;
        return 1;
    case TOK_DOCS_BLANK:
        return next_blank(d, out);
    }
    return 0;
}
