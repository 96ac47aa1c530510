/* json_pull.h -- JSON taken from its text piece by piece, without a tree.
 *
 * For texts that are large and of a known shape: headers, MANIFEST.json, the
 * index of shards, the tokens of a vocabulary.  The caller asks for what must
 * come next; what else is there is refused with its place.  Strict: UTF-8 as in
 * RFC 3629, no bare control characters, whole surrogate pairs, no commas too
 * many.  Nothing here recurses.  It does not look for keys that appear twice,
 * which is up to the caller, who knows what he has had. */
#ifndef BASE_JSON_PULL_H
#define BASE_JSON_PULL_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

/* Bytes that are not NUL-terminated. */
struct json_slice { const char *s; size_t n; };

struct json_pull {
    const char *where;          /* names the text in errors */
    const char *text, *p, *end; /* p: what comes next */
    _Bool nul;                  /* strings may hold U+0000 */
    /* Errors are "where:line:col: what"; with a frame "where: FRAME: what at byte N",
     * N counted from base. */
    const char *frame, *name;   /* FRAME is frame, or frame "name" when there is a name */
    uint64_t base;
    char *tmp;                  /* a string that had escapes, decoded */
    int64_t tmp_size;
};

/* where and text are borrowed until json_pull_done(), which only frees. */
void json_pull_start(struct json_pull *j, const char *where, const char *text, size_t n);
void json_pull_done(struct json_pull *j);

/* Records ERR_DATA with the place of at, and returns it. */
int json_pull_fail(const struct json_pull *j, const char *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The first byte of what comes next, after space; 0 at the end of the text. */
char json_pull_peek(struct json_pull *j);

/* Where it stands, for json_pull_fail(). */
const char *json_pull_at(struct json_pull *j);

/* The byte ch, or an error "expected '{' WHY". */
int json_pull_take(struct json_pull *j, char ch, const char *why);

/* Right after an opening byte: whether the closing one comes at once; it is taken. */
_Bool json_pull_empty(struct json_pull *j, char close);

/* After an element: 1 for a comma, 0 for the closing byte; both are taken. */
int json_pull_more(struct json_pull *j, char close);

/* A string, or an error "expected WHAT in quotes".  Borrowed until the next string. */
int json_pull_string(struct json_pull *j, const char *what, struct json_slice *out);

/* A string and the ':' behind it. */
int json_pull_key(struct json_pull *j, struct json_slice *out);

/* Plain digits up to 2^53: no sign, fraction, exponent or leading zero. */
int json_pull_digits(struct json_pull *j, const char *what, uint64_t *out);

/* An integer of 64 bits: 1; 0, and nothing is taken, when something else comes
 * next (also 1.0 and 1e3, which are no integers). */
int json_pull_int(struct json_pull *j, int64_t *out);

/* Any value, as a tree (with duplicate keys refused): owned, json_decref. */
int json_pull_tree(struct json_pull *j, json_t **out);

/* Nothing but space may be left. */
int json_pull_finish(struct json_pull *j);

_Bool json_slice_is(struct json_slice s, const char *text);

/* Bytes of the valid UTF-8 sequence at s, 0 when it is none (overlong forms,
 * surrogates and values over U+10FFFF included); n >= 1. */
size_t json_utf8_len(const char *s, size_t n);

#endif
