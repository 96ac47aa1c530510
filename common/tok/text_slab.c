/* text_slab.c -- rows of documents in a slab, and what is decided about them.
 *
 * Nearly all documents are spans of the slab itself.  Only one in which bytes
 * are replaced or left out is written anew. */
#include "tok/text_slab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/grow.h"
#include "tok/chars.h"
#include "tok/docs.h"
#include "tok/json_line.h"

#define A(x) (1u << TEXT_##x)
static const struct { const char *name, *counter; enum text_action def; unsigned may; } kinds[TEXT_N_KINDS] = {
    [TEXT_UTF8] = { "utf8", "invalid_utf8", TEXT_KEEP, A(KEEP) | A(REPLACE) | A(DROP) | A(STOP) },
    [TEXT_SURROGATE] = { "surrogate", "lone_surrogates", TEXT_REPLACE, A(REPLACE) | A(SKIP) | A(STOP) },
    [TEXT_NUL] = { "nul", "nul", TEXT_KEEP, A(KEEP) | A(REPLACE) | A(DROP) | A(STOP) },
    [TEXT_JSON] = { "json", "bad_json", TEXT_STOP, A(SKIP) | A(STOP) },
    [TEXT_KEY] = { "key", "no_key", TEXT_STOP, A(SKIP) | A(AS_EMPTY) | A(STOP) },
    [TEXT_TYPE] = { "type", "no_string", TEXT_STOP, A(SKIP) | A(AS_EMPTY) | A(STOP) },
    [TEXT_BLANK_LINE] = { "blank", "blank_lines", TEXT_SKIP, A(SKIP) | A(STOP) },
    [TEXT_EMPTY] = { "empty", "empty", TEXT_KEEP, A(KEEP) | A(SKIP) | A(STOP) },
};
static const char *const actions[TEXT_N_ACTIONS] = { "keep", "replace", "drop", "skip", "empty", "stop" };

void tok_text_how_default(struct text_how *h)
{
    *h = (struct text_how){ .docs = TEXT_AUTO };
    for (int k = 0; k < TEXT_N_KINDS; k++)
        h->on[k] = kinds[k].def;
}

const char *tok_text_kind_name(enum text_kind k)
{
    return kinds[k].counter;
}

/* The words of a set of actions, for a sentence. */
static const char *list(unsigned may, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int a = 0; a < TEXT_N_ACTIONS; a++)
        if (may >> a & 1 && n < size)
            n += (size_t)snprintf(buf + n, size - n, "%s%s", n > 0 ? ", " : "", actions[a]);
    return buf;
}

int tok_text_how_set(struct text_how *h, const char *spec)
{
    char buf[128];
    const char *eq = strchr(spec, '=');
    size_t n = eq != NULL ? (size_t)(eq - spec) : strlen(spec);
    for (int k = 0; k < TEXT_N_KINDS; k++) {
        if (strlen(kinds[k].name) != n || memcmp(kinds[k].name, spec, n) != 0)
            continue;
        for (int a = 0; a < TEXT_N_ACTIONS && eq != NULL; a++)
            if (kinds[k].may >> a & 1 && strcmp(actions[a], eq + 1) == 0) {
                h->on[k] = (enum text_action)a;
                return 0;
            }
        return err_set(ERR_USAGE, "--on %s: expected %s= and one of %s", spec, kinds[k].name, list(kinds[k].may, buf, sizeof buf));
    }
    return err_set(ERR_USAGE, "--on %s: expected KIND=ACTION with a KIND of utf8, surrogate, nul, json, key, type, blank, empty", spec);
}

const char *tok_text_how_text(const struct text_how *h, char *buf)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int k = 0; k < TEXT_N_KINDS; k++)
        if (h->on[k] != kinds[k].def)
            n += (size_t)snprintf(buf + n, 256 - n, " --on %s=%s", kinds[k].name, actions[h->on[k]]);
    return buf;
}

static void forget(struct text_slab *b)
{
    for (int i = 0; i < b->n_mended; i++)
        free(b->mended[i]);
    b->n_mended = 0;
}

struct text_slab *text_slab_new(void)
{
    return calloc(1, sizeof(struct text_slab));
}

void text_slab_free(struct text_slab *b)
{
    if (b == NULL)
        return;
    forget(b);
    free(b->mended);
    free(b->data);
    free(b->doc);
    free(b);
}

enum text_docs tok_text_docs_of(const char *path)
{
    static const char *const packed[] = { "", ".gz", ".zst" }, *const lines[] = { ".jsonl", ".ndjson" };
    size_t n = strlen(path);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++) {
            size_t a = strlen(lines[j]), b = strlen(packed[i]);
            if (n >= a + b && memcmp(path + n - b, packed[i], b) == 0 && memcmp(path + n - b - a, lines[j], a) == 0)
                return TEXT_JSONL;
        }
    return TEXT_FILE;
}

void text_slab_trim(struct text_slab *b, size_t keep)
{
    forget(b);
    if (b->cap > keep) {
        free(b->data);
        b->data = NULL;
        b->cap = b->n = 0;
        b->n_rows = 0;
    }
}

void text_slab_reset(struct text_slab *b)
{
    forget(b);
    b->n = 0;
    b->n_rows = b->n_lines = b->fault_line = 0;
    b->first = b->last = 0;
    b->read_err.code = 0;
    memset(b->count, 0, sizeof b->count);
}

static void fault(struct text_slab *b, size_t byte, const char *fmt, const char *what)
{
    if (b->fault_line > 0)
        return;
    b->fault_line = b->n_lines > 0 ? b->n_lines : 1;
    b->fault_byte = byte;
    snprintf(b->fault, sizeof b->fault, fmt, what);
}

/* Room for a document that grows to at most n bytes; lives with the slab's rows. */
static uint8_t *mend(struct text_slab *b, size_t n)
{
    if (grow_plain(&b->mended, &b->cap_mended, b->n_mended + 1, sizeof *b->mended, "documents") < 0)
        return NULL;
    uint8_t *s = malloc(n > 0 ? n : 1);
    if (s != NULL)
        b->mended[b->n_mended++] = s;
    return s;
}

static size_t replace(uint8_t *w)
{
    memcpy(w, "\xef\xbf\xbd", 3);
    return 3;
}

/* The longest beginning of s that could be one of a character, at least one byte:
 * one U+FFFD stands for it, as in Unicode's section 3.9. */
static size_t ill_formed(const uint8_t *s, size_t n)
{
    uint8_t a = s[0], lo = 0x80, hi = 0xbf;
    size_t len = a >= 0xc2 && a <= 0xdf ? 2 : a >= 0xe0 && a <= 0xef ? 3 : a >= 0xf0 && a <= 0xf4 ? 4 : 1, k = 1;
    if (a == 0xe0)
        lo = 0xa0;
    else if (a == 0xed)
        hi = 0x9f;
    else if (a == 0xf0)
        lo = 0x90;
    else if (a == 0xf4)
        hi = 0x8f;
    for (; k < len && k < n && s[k] >= lo && s[k] <= hi; k++) {
        lo = 0x80;
        hi = 0xbf;
    }
    return k;
}

/* A document anew, without (or with U+FFFD for) what is not wanted in it. */
static int rewrite(const struct text_how *how, struct text_slab *b, struct tok_span *d)
{
    enum text_action utf8 = how->on[TEXT_UTF8], nul = how->on[TEXT_NUL];
    uint8_t *to = mend(b, 3 * d->n), *w = to;
    if (to == NULL)
        return err_sys(ERR_IO, "memory for a document of %zu bytes", d->n);
    for (size_t i = 0, k; i < d->n; i += k) {
        const uint8_t *s = d->s + i;
        size_t n = d->n - i, valid = tok_chars_valid(s, n);
        const uint8_t *zero = nul == TEXT_KEEP ? NULL : memchr(s, 0, valid);
        k = zero != NULL ? (size_t)(zero - s) : valid;
        if (k > 0) {
            memcpy(w, s, k);
            w += k;
            continue;
        }
        k = zero != NULL ? 1 : ill_formed(s, n);
        enum text_action a = zero != NULL ? nul : utf8;
        if (zero == NULL && utf8 != TEXT_KEEP)
            b->count[TEXT_UTF8] += (int64_t)k;
        if (a == TEXT_REPLACE) {
            w += replace(w);
        } else if (a == TEXT_KEEP) {
            memcpy(w, s, k);
            w += k;
        }
    }
    *d = (struct tok_span){ to, (size_t)(w - to) };
    return 0;
}

static int64_t count_nul(const uint8_t *s, size_t n)
{
    int64_t k = 0;
    for (const uint8_t *p = s, *end = s + n; (p = memchr(p, 0, (size_t)(end - p))) != NULL; p++)
        k++;
    return k;
}

/* at: of the document in the slab, for the sentence. */
static int decide(const struct text_how *how, struct text_slab *b, struct tok_span *d, size_t at)
{
    enum text_action utf8 = how->on[TEXT_UTF8], nul = how->on[TEXT_NUL];
    if (d->n == 0)
        return 0;
    int64_t zeros = count_nul(d->s, d->n);
    b->count[TEXT_NUL] += zeros;
    if (zeros > 0 && nul == TEXT_STOP)
        fault(b, at + strlen((const char *)d->s), "U+0000 in a document%s", "");
    size_t valid = utf8 == TEXT_KEEP ? d->n : tok_chars_valid(d->s, d->n);
    if (valid < d->n && utf8 == TEXT_STOP)
        fault(b, at + valid, "no valid UTF-8%s", "");
    if ((valid < d->n && utf8 != TEXT_STOP) || (zeros > 0 && (nul == TEXT_REPLACE || nul == TEXT_DROP)))
        return rewrite(how, b, d);
    return 0;
}

static int add_row(struct text_slab *b, const struct tok_span *row, int n_keys)
{
    TRY(grow_plain(&b->doc, &b->cap_rows, (b->n_rows + 1) * n_keys, sizeof *b->doc, "documents"));
    memcpy(b->doc + b->n_rows++ * n_keys, row, (size_t)n_keys * sizeof *row);
    return 0;
}

/* What is decided about a row as a whole: one without any text. */
static int end_row(const struct text_how *how, struct text_slab *b, const struct tok_span *row, int n_keys, size_t at)
{
    _Bool empty = 1;
    for (int k = 0; k < n_keys; k++)
        empty &= row[k].n == 0;
    /* The first and last part of a document may be empty when it is not. */
    if (empty && b->begins_doc && b->ends_doc) {
        b->count[TEXT_EMPTY]++;
        if (how->on[TEXT_EMPTY] == TEXT_STOP)
            fault(b, at, "a document without text%s", "");
        if (how->on[TEXT_EMPTY] != TEXT_KEEP)
            return 0;
    }
    return add_row(b, row, n_keys);
}

static int parse_text(const struct text_how *how, struct text_slab *b)
{
    struct tok_docs d;
    struct tok_span doc;
    enum tok_docs_mode mode = b->docs == TEXT_LINE ? TOK_DOCS_LINE : b->docs == TEXT_BLANK ? TOK_DOCS_BLANK : TOK_DOCS_FILE;
    tok_docs_begin(&d, mode, b->data, b->n);
    while (b->fault_line == 0 && tok_docs_next(&d, &doc)) {
        size_t at = doc.n > 0 ? (size_t)(doc.s - b->data) : 0;
        TRY(decide(how, b, &doc, at));
        TRY(end_row(how, b, &doc, 1, at));
    }
    return 0;
}

/* ---- lines of JSON */

static const char *type_name(enum json_line_type t)
{
    static const char *const names[] = { "absent", "a string", "null", "a boolean", "a number", "an array", "an object" };
    return names[t];
}

/* The values of a line as a row; *skip: the row is left out. */
static int take_values(const struct text_how *how, struct text_slab *b, struct json_line_value *v, struct tok_span *row, _Bool *skip)
{
    char what[160];
    for (int k = 0; k < how->n_keys; k++) {
        _Bool absent = v[k].type == JSON_LINE_ABSENT || v[k].type == JSON_LINE_NULL;
        row[k] = (struct tok_span){ b->data, 0 };
        if (v[k].type != JSON_LINE_STRING) {
            enum text_kind kind = absent ? TEXT_KEY : TEXT_TYPE;
            snprintf(what, sizeof what, "\"%.100s\" is %s", how->keys[k], type_name(v[k].type));
            b->count[kind]++;
            if (how->on[kind] == TEXT_STOP)
                fault(b, 0, absent ? "%s" : "%s, not a string", what);
            *skip |= how->on[kind] == TEXT_SKIP;
            continue;
        }
        row[k] = (struct tok_span){ v[k].s, v[k].n };
        b->count[TEXT_SURROGATE] += v[k].lone;
        if (v[k].lone > 0 && how->on[TEXT_SURROGATE] == TEXT_STOP)
            fault(b, 0, "\"%s\" has half of a surrogate pair", how->keys[k]);
        *skip |= v[k].lone > 0 && how->on[TEXT_SURROGATE] == TEXT_SKIP;
    }
    for (int k = 0; k < how->n_keys && !*skip; k++)
        TRY(decide(how, b, &row[k], 0));
    return 0;
}

static int parse_line(const struct text_how *how, struct text_slab *b, uint8_t *s, size_t n, struct json_line_value *v, struct tok_span *row)
{
    struct json_line_fault f;
    _Bool skip = 0;
    if (tok_docs_is_blank(s, n)) {
        b->count[TEXT_BLANK_LINE]++;
        if (how->on[TEXT_BLANK_LINE] == TEXT_STOP)
            fault(b, 0, "a blank line%s", "");
        return 0;
    }
    if (!json_line_read(s, n, how->keys, how->n_keys, v, &f)) {
        char what[120];
        snprintf(what, sizeof what, "column %zu: %s", f.at + 1, f.what);
        b->count[TEXT_JSON]++;
        if (how->on[TEXT_JSON] == TEXT_STOP)
            fault(b, 0, "%s", what);
        return 0;
    }
    TRY(take_values(how, b, v, row, &skip));
    return skip || b->fault_line > 0 ? 0 : end_row(how, b, row, how->n_keys, 0);
}

static int parse_lines(const struct text_how *how, struct text_slab *b)
{
    struct json_line_value *v = malloc((size_t)how->n_keys * sizeof *v);
    struct tok_span *row = malloc((size_t)how->n_keys * sizeof *row);
    int rc = v == NULL || row == NULL ? err_sys(ERR_IO, "memory for a line") : 0;
    size_t pos = b->first && b->n >= 3 && memcmp(b->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (rc == 0 && b->fault_line == 0 && pos < b->n) {
        const uint8_t *lf = memchr(b->data + pos, '\n', b->n - pos);
        size_t end = lf != NULL ? (size_t)(lf - b->data) : b->n;
        b->n_lines++;
        rc = parse_line(how, b, b->data + pos, end - pos, v, row);
        pos = end + 1;
    }
    free(v);
    free(row);
    return rc;
}

int text_slab_parse(struct text_slab *b, const struct text_how *how)
{
    /* A text without an end of its own has no document behind its last line feed,
     * and the last slab of a long document may bring nothing but its end. */
    return b->docs == TEXT_JSONL ? parse_lines(how, b) : parse_text(how, b);
}
