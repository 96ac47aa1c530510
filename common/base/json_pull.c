/* json_pull.c -- the scanner.
 *
 * Most bytes of the texts it is for lie in strings of plain ASCII, so those are
 * passed eight at a time; everything else is rare and goes byte by byte. */
#include "base/json_pull.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/grow.h"
#include "base/pool.h"

#define DIGITS_MAX (UINT64_C(1) << 53)

void json_pull_start(struct json_pull *j, const char *where, const char *text, size_t n)
{
    *j = (struct json_pull){ .where = where, .text = text, .p = text, .end = text + n };
}

void json_pull_done(struct json_pull *j)
{
    pool_free(j->tmp);
    j->tmp = NULL;
    j->tmp_size = 0;
}

int json_pull_fail(const struct json_pull *j, const char *at, const char *fmt, ...)
{
    char what[512];
    int line = 1, col = 1;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (j->frame && j->name)
        return err_set(ERR_DATA, "%s: %s \"%s\": %s at byte %zu", j->where, j->frame, j->name, what, (size_t)(at - j->text) + (size_t)j->base);
    if (j->frame)
        return err_set(ERR_DATA, "%s: %s: %s at byte %zu", j->where, j->frame, what, (size_t)(at - j->text) + (size_t)j->base);
    for (const char *p = j->text; p < at; p++) {
        col = *p == '\n' ? 1 : col + ((*p & 0xc0) != 0x80);
        line += *p == '\n';
    }
    return err_set(ERR_DATA, "%s:%d:%d: %s", j->where, line, col, what);
}

static void space(struct json_pull *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
        j->p++;
}

char json_pull_peek(struct json_pull *j)
{
    space(j);
    return j->p < j->end ? *j->p : '\0';
}

const char *json_pull_at(struct json_pull *j)
{
    space(j);
    return j->p;
}

int json_pull_take(struct json_pull *j, char ch, const char *why)
{
    space(j);
    if (j->p == j->end)
        return json_pull_fail(j, j->p, "the text ends where '%c' %s was expected", ch, why);
    if (*j->p != ch)
        return json_pull_fail(j, j->p, "expected '%c' %s", ch, why);
    j->p++;
    return 0;
}

_Bool json_pull_empty(struct json_pull *j, char close)
{
    space(j);
    if (j->p == j->end || *j->p != close)
        return 0;
    j->p++;
    return 1;
}

int json_pull_more(struct json_pull *j, char close)
{
    space(j);
    if (j->p < j->end && *j->p == ',') {
        j->p++;
        return 1;
    }
    if (j->p < j->end && *j->p == close) {
        j->p++;
        return 0;
    }
    return json_pull_fail(j, j->p, j->p == j->end ? "the text ends where ',' or '%c' was expected"
                                                  : "expected ',' or '%c'", close);
}

/* ---- strings */

size_t json_utf8_len(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned lo = 0x80, hi = 0xbf;
    size_t len;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        len = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        len = 3;
        if (s[0] == 0xe0) lo = 0xa0;
        if (s[0] == 0xed) hi = 0x9f;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        len = 4;
        if (s[0] == 0xf0) lo = 0x90;
        if (s[0] == 0xf4) hi = 0x8f;
    } else {
        return 0;
    }
    if (n < len || s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return len;
}

static int hex4(const struct json_pull *j, const char *p, unsigned *out)
{
    unsigned v = 0;

    for (int i = 0; i < 4; i++) {
        char ch = p + i < j->end ? p[i] : 0;
        unsigned d;

        if (ch >= '0' && ch <= '9') d = (unsigned)(ch - '0');
        else if (ch >= 'a' && ch <= 'f') d = (unsigned)(ch - 'a') + 10;
        else if (ch >= 'A' && ch <= 'F') d = (unsigned)(ch - 'A') + 10;
        else return json_pull_fail(j, p, "expected four hex digits after \\u");
        v = v << 4 | d;
    }
    *out = v;
    return 0;
}

static size_t utf8_put(char *dst, unsigned v)
{
    if (v < 0x80) {
        dst[0] = (char)v;
        return 1;
    }
    if (v < 0x800) {
        dst[0] = (char)(0xc0 | v >> 6);
        dst[1] = (char)(0x80 | (v & 0x3f));
        return 2;
    }
    if (v < 0x10000) {
        dst[0] = (char)(0xe0 | v >> 12);
        dst[1] = (char)(0x80 | (v >> 6 & 0x3f));
        dst[2] = (char)(0x80 | (v & 0x3f));
        return 3;
    }
    dst[0] = (char)(0xf0 | v >> 18);
    dst[1] = (char)(0x80 | (v >> 12 & 0x3f));
    dst[2] = (char)(0x80 | (v >> 6 & 0x3f));
    dst[3] = (char)(0x80 | (v & 0x3f));
    return 4;
}

/* One escape at j->p (just after the backslash) into dst; its bytes. */
static int escape(struct json_pull *j, char *dst)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = j->p - 1, *f;
    unsigned v, w;

    if (j->p == j->end)
        return json_pull_fail(j, at, "the text ends inside a string");
    if (*j->p != 'u') {
        f = *j->p ? strchr(from, *j->p) : NULL;
        if (!f)
            return json_pull_fail(j, at, "unknown escape");
        *dst = to[f - from];
        j->p++;
        return 1;
    }
    TRY(hex4(j, j->p + 1, &v));
    j->p += 5;
    if (v >= 0xdc00 && v <= 0xdfff)
        return json_pull_fail(j, at, "half a surrogate pair");
    if (v >= 0xd800 && v <= 0xdbff) {
        if (j->end - j->p < 6 || j->p[0] != '\\' || j->p[1] != 'u')
            return json_pull_fail(j, at, "half a surrogate pair");
        TRY(hex4(j, j->p + 2, &w));
        if (w < 0xdc00 || w > 0xdfff)
            return json_pull_fail(j, at, "half a surrogate pair");
        j->p += 6;
        v = 0x10000 + ((v - 0xd800) << 10) + (w - 0xdc00);
    }
    if (!v && !j->nul)
        return json_pull_fail(j, at, "\\u0000 is not allowed here");
    return (int)utf8_put(dst, v);
}

/* Passes plain text: up to a quote, a backslash, or an error. */
static int plain(struct json_pull *j)
{
    const _Bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    size_t len;

    for (;;) {
        /* The lowest top bit that is set belongs to a byte that is no plain one;
         * above it a borrow may have set others for nothing. */
        while (little && j->end - j->p >= 8) {
            uint64_t w, quote, slash, odd;

            memcpy(&w, j->p, 8);
            quote = w ^ ones * '"';
            slash = w ^ ones * '\\';
            odd = (w | (w - ones * 0x20) | (quote - ones) | (slash - ones)) & tops;
            if (odd) {
                j->p += __builtin_ctzll(odd) / 8;
                break;
            }
            j->p += 8;
        }
        if (j->p == j->end || *j->p == '"' || *j->p == '\\')
            return 0;
        len = json_utf8_len(j->p, (size_t)(j->end - j->p));
        if (!len)
            return json_pull_fail(j, j->p, "invalid UTF-8");
        if ((unsigned char)*j->p < 0x20)
            return json_pull_fail(j, j->p, "a bare control character in a string");
        j->p += len;
    }
}

static int room(struct json_pull *j, size_t n)
{
    return grow_pooled(&j->tmp, &j->tmp_size, (int64_t)n, 1, "bytes of a string") < 0 ? err_add("%s", j->where) : 0;
}

int json_pull_string(struct json_pull *j, const char *what, struct json_slice *out)
{
    const char *start, *from;
    size_t n = 0;
    int k;

    space(j);
    if (j->p == j->end || *j->p != '"')
        return json_pull_fail(j, j->p, "expected %s in quotes", what);
    start = from = ++j->p;
    TRY(plain(j));
    if (j->p < j->end && *j->p == '"') {
        *out = (struct json_slice){ start, (size_t)(j->p++ - start) };
        return 0;
    }
    while (j->p < j->end) {
        TRY(room(j, n + (size_t)(j->p - from) + 8));
        memcpy(j->tmp + n, from, (size_t)(j->p - from));
        n += (size_t)(j->p - from);
        if (*j->p++ == '"') {
            *out = (struct json_slice){ j->tmp, n };
            return 0;
        }
        TRY(k = escape(j, j->tmp + n));
        n += (size_t)k;
        from = j->p;
        TRY(plain(j));
    }
    return json_pull_fail(j, start - 1, "a string without end");
}

int json_pull_key(struct json_pull *j, struct json_slice *out)
{
    TRY(json_pull_string(j, "a key", out));
    return json_pull_take(j, ':', "after a key");
}

_Bool json_slice_is(struct json_slice s, const char *text)
{
    return strlen(text) == s.n && memcmp(s.s, text, s.n) == 0;
}

/* ---- numbers */

static _Bool digit(const struct json_pull *j, const char *p)
{
    return p < j->end && *p >= '0' && *p <= '9';
}

int json_pull_digits(struct json_pull *j, const char *what, uint64_t *out)
{
    const char *start;
    uint64_t v = 0;

    space(j);
    start = j->p;
    while (digit(j, j->p)) {
        v = v * 10 + (uint64_t)(*j->p++ - '0');
        if (v > DIGITS_MAX)
            return json_pull_fail(j, start, "%s over 2^53", what);
    }
    if (j->p == start)
        return json_pull_fail(j, start, j->p < j->end && *j->p == '-' ? "%s with a sign" : "expected %s in digits", what);
    if (*start == '0' && j->p - start > 1)
        return json_pull_fail(j, start, "%s with a leading zero", what);
    if (j->p < j->end && (*j->p == '.' || *j->p == 'e' || *j->p == 'E'))
        return json_pull_fail(j, start, "%s that is not a plain integer", what);
    *out = v;
    return 0;
}

int json_pull_int(struct json_pull *j, int64_t *out)
{
    const char *p, *first;
    uint64_t v = 0, most;
    _Bool minus, wide = 0;

    space(j);
    p = j->p;
    minus = p < j->end && *p == '-';
    p += minus;
    if (!digit(j, p))
        return minus ? json_pull_fail(j, j->p, "expected a digit after '-'") : 0;
    most = (uint64_t)INT64_MAX + minus;
    for (first = p; digit(j, p); p++) {
        unsigned d = (unsigned)(*p - '0');

        wide |= v > (most - d) / 10;
        v = v * 10 + d;
    }
    if (*first == '0' && p - first > 1)
        return json_pull_fail(j, j->p, "a number with a leading zero");
    if (p < j->end && (*p == '.' || *p == 'e' || *p == 'E'))
        return 0;               /* a real, of any number of digits */
    if (wide)
        return json_pull_fail(j, j->p, "an integer of more than 64 bits");
    j->p = p;
    *out = minus ? (int64_t)(0 - v) : (int64_t)v;
    return 1;
}

/* ---- the rest */

/* The library reads one value and says where it stopped. */
int json_pull_tree(struct json_pull *j, json_t **out)
{
    const char *at;
    json_error_t e;

    space(j);
    *out = json_loadb(j->p, (size_t)(j->end - j->p),
                      JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | (j->nul ? JSON_ALLOW_NUL : 0), &e);
    at = j->p + (e.position < 0 ? 0 : e.position > j->end - j->p ? j->end - j->p : e.position);
    if (*out) {
        j->p = at;
        return 0;
    }
    for (char *p = e.text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    return json_pull_fail(j, at, "%s", e.text);
}

int json_pull_finish(struct json_pull *j)
{
    space(j);
    return j->p == j->end ? 0 : json_pull_fail(j, j->p, "something after the end of the value");
}
