/* text_source.c -- slabs of documents: cut where documents end, then read by anyone.
 *
 * The reader does as little as it can, since it is the one part that cannot run
 * beside itself: it fills a buffer, looks backward for a place where documents
 * end, and keeps what is behind it for the next slab. */
#include "tok/text_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/docs.h"
#include "tok/text_input.h"

/* A cut may look a little ahead: places nearer to the end of what was read are not taken. */
enum { SLAB_BYTES = 1 << 20, CUT_MARGIN = 256, CUT_TAIL = 64 << 10 };

struct text_source {
    const char *const *paths;
    int n_paths;
    struct text_how how;
    /* the reader's */
    struct text_input *in;              /* NULL: between inputs */
    int i;                              /* input being read, or next */
    _Bool first, inside, failed;        /* inside: the last slab ended within a document */
    uint8_t *rest; size_t n_rest, cap_rest;
    /* of slabs taken */
    int64_t lines, count[TEXT_N_KINDS];
    uint64_t bytes, stored, stored_before;
    /* text_source_next() */
    struct text_slab *slab;
    int64_t row, n_docs;
};

static const char *const default_key[] = { "text" };

int text_source_open(const char *const *paths, int n, const struct text_how *how, struct text_source **out)
{
    struct text_source *t = calloc(1, sizeof *t);
    *out = NULL;
    if (t == NULL)
        return err_sys(ERR_IO, "memory for a source of text");
    t->paths = paths;
    t->n_paths = n;
    t->how = *how;
    if (t->how.n_keys == 0) {
        t->how.keys = default_key;
        t->how.n_keys = 1;
    }
    if (t->how.slab_bytes == 0)
        t->how.slab_bytes = SLAB_BYTES;
    *out = t;
    return 0;
}

void text_source_close(struct text_source *t)
{
    if (t == NULL)
        return;
    text_input_close(t->in);
    text_slab_free(t->slab);
    free(t->rest);
    free(t);
}

int text_source_n_keys(const struct text_source *t)
{
    return t->how.n_keys;
}

void text_source_skip_to(struct text_source *t, int i, uint64_t stored)
{
    BUG_ON(t->in != NULL || i < t->i);
    t->i = i;
    t->stored = t->stored_before = stored;
}

/* ---- reading */

static int grow(uint8_t **p, size_t *cap, size_t n)
{
    if (n <= *cap)
        return 0;
    uint8_t *q = realloc(*p, n);
    if (q == NULL)
        return err_sys(ERR_IO, "memory for a document of more than %zu bytes", *cap);
    *p = q;
    *cap = n;
    return 0;
}

/* The end of the last line in [from, n), 0 when there is none. */
static size_t last_line(const uint8_t *s, size_t from, size_t n)
{
    const uint8_t *p = memrchr(s + from, '\n', n - from);
    return p != NULL ? (size_t)(p - s) + 1 : 0;
}

/* The end of the last blank line that is whole; lines that begin below from were seen. */
static size_t last_blank(const uint8_t *s, size_t from, size_t n)
{
    size_t end = last_line(s, from, n);
    while (end > 0) {
        const uint8_t *p = end > 1 ? memrchr(s, '\n', end - 1) : NULL;
        size_t begin = p != NULL ? (size_t)(p - s) + 1 : 0;
        if (tok_docs_is_blank(s + begin, end - 1 - begin))
            return end;
        if (begin <= from)
            break;
        end = begin;
    }
    return 0;
}

/* Where the documents in s end for sure, though more follows; 0: not yet. */
static size_t border(const struct text_source *t, enum text_docs docs, const uint8_t *s, size_t from, size_t n)
{
    size_t at;
    switch (docs) {
    case TEXT_LINE:
    case TEXT_JSONL:
        return last_line(s, from, n);
    case TEXT_BLANK:
        return last_blank(s, from, n);
    default:
        if (t->how.cut == NULL || n < 2 * CUT_MARGIN)
            return 0;
        /* Near the end when there is a place, so that slabs are full. */
        for (int near = 1; near >= 0; near--) {
            size_t first = near && n > from + CUT_TAIL ? n - CUT_TAIL : from > 0 ? from : 1;
            at = t->how.cut(t->how.cut_arg, s, n, first);
            if (at <= n - CUT_MARGIN)
                return at;
        }
        return 0;
    }
}

static int fill(struct text_source *t, struct text_slab *b, size_t want, _Bool *eof)
{
    size_t got;
    TRY(grow(&b->data, &b->cap, want + 1));
    TRY(text_input_read(t->in, b->data + b->n, want - b->n, &got));
    *eof = got < want - b->n;
    b->n += got;
    return 0;
}

static int read_slab(struct text_source *t, struct text_slab *b)
{
    size_t want = t->how.slab_bytes, end, seen = 0;
    _Bool eof;
    if (t->in == NULL) {
        TRY(text_input_open(t->paths[t->i], &t->in));
        t->first = 1;
        t->inside = 0;
    }
    b->first = t->first;
    b->begins_doc = !t->inside;
    b->docs = t->how.docs != TEXT_AUTO ? t->how.docs : tok_text_docs_of(t->paths[t->i]);
    if (want < 2 * t->n_rest)
        want = 2 * t->n_rest;
    TRY(grow(&b->data, &b->cap, want + 1));
    if (t->n_rest > 0)
        memcpy(b->data, t->rest, t->n_rest);
    b->n = t->n_rest;
    t->n_rest = 0;
    for (;;) {
        TRY(fill(t, b, want, &eof));
        end = b->n;
        if (eof || (end = border(t, b->docs, b->data, seen, b->n)) > 0)
            break;
        seen = b->n > CUT_MARGIN ? b->n - CUT_MARGIN : 0;
        want = 2 * b->n;
    }
    if (!eof && end < b->n) {
        t->n_rest = b->n - end;
        TRY(grow(&t->rest, &t->cap_rest, t->n_rest));
        memcpy(t->rest, b->data + end, t->n_rest);
        b->n = end;
    }
    t->first = 0;
    b->stored = text_input_stored(t->in);
    b->last = eof;
    b->ends_doc = eof || b->docs != TEXT_FILE;
    t->inside = !b->ends_doc;
    if (eof) {
        b->hash = text_input_hash(t->in);
        text_input_close(t->in);
        t->in = NULL;
        t->i++;
    }
    return 0;
}

int text_source_read(struct text_source *t, struct text_slab *b)
{
    text_slab_reset(b);
    if (t->failed || t->i == t->n_paths)
        return 0;
    b->input = t->i;
    if (read_slab(t, b) < 0) {
        t->failed = 1;
        b->n = 0;
        err_take(&b->read_err);
    }
    return 1;
}

int text_source_parse(const struct text_source *t, struct text_slab *b)
{
    return b->read_err.code != 0 ? 0 : text_slab_parse(b, &t->how);
}

int text_source_take(struct text_source *t, const struct text_slab *b)
{
    const char *path = t->paths[b->input];
    if (strcmp(path, "-") == 0)
        path = "standard input";
    if (b->read_err.code != 0)
        return err_put(&b->read_err);
    if (b->first) {
        t->lines = 0;
        t->bytes = 0;
    }
    if (b->fault_line > 0 && b->docs == TEXT_JSONL)
        return err_set(ERR_DATA, "%s:%lld: %s", path, (long long)(t->lines + b->fault_line), b->fault);
    if (b->fault_line > 0)
        return err_set(ERR_DATA, "%s: byte %llu: %s", path, (unsigned long long)(t->bytes + b->fault_byte), b->fault);
    t->lines += b->n_lines;
    t->bytes += b->n;
    t->stored = t->stored_before + b->stored;
    if (b->last)
        t->stored_before += b->stored;
    text_source_add_counts(t, b->count);
    return 0;
}

const int64_t *text_source_counts(const struct text_source *t)
{
    return t->count;
}

void text_source_add_counts(struct text_source *t, const int64_t *count)
{
    for (int k = 0; k < TEXT_N_KINDS; k++)
        t->count[k] += count[k];
}

uint64_t text_source_stored(const struct text_source *t)
{
    return t->stored;
}

int text_source_next(struct text_source *t, struct tok_span *doc, _Bool *part)
{
    if (t->slab == NULL && (t->slab = text_slab_new()) == NULL)
        return err_sys(ERR_IO, "memory for a slab of text");
    while (t->row == t->n_docs) {
        int rc = text_source_read(t, t->slab);
        if (rc <= 0)
            return rc;
        TRY(text_source_parse(t, t->slab));
        TRY(text_source_take(t, t->slab));
        t->row = 0;
        t->n_docs = t->slab->n_rows * (t->slab->docs == TEXT_JSONL ? t->how.n_keys : 1);
    }
    *doc = t->slab->doc[t->row++];
    *part = t->row == t->n_docs && !t->slab->ends_doc;
    return 1;
}
