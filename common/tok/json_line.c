/* json_line.c -- one pass over a line; strings go sixteen bytes at a time.
 *
 * Text is nearly all of a line, so the only loop that matters is the one that
 * looks for the end of a string and moves it down behind its escapes.  It loads
 * before it stores and stores only below what it has loaded, so that it may run
 * over its own input. */
#include "tok/json_line.h"

#include <string.h>

#include "tok/chars.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { MAX_DEPTH = 1024 };

struct scan { uint8_t *p, *end; const uint8_t *begin; struct json_line_fault *fault; };

static _Bool fail(struct scan *c, const uint8_t *at, const char *what)
{
    c->fault->what = what;
    c->fault->at = (size_t)(at - c->begin);
    return 0;
}

static void skip_space(struct scan *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\r' || *c->p == '\n'))
        c->p++;
}

/* Moves plain bytes from p to w <= p up to the first quote, backslash or
 * control character; returns how many. */
static size_t move_plain(uint8_t *w, const uint8_t *p, const uint8_t *end)
{
    const uint8_t *from = p;
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), low = _mm_set1_epi8(0x1f);
    for (; end - p >= 16; p += 16, w += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i stop = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, slash)),
                                    _mm_cmpeq_epi8(_mm_min_epu8(x, low), x));
        int mask = _mm_movemask_epi8(stop);
        /* Bytes behind the end of the string are spoilt by this store only when they were moved from. */
        if (mask != 0) {
            size_t k = (size_t)__builtin_ctz((unsigned)mask);
            if (w != p)
                memmove(w, p, k);
            return (size_t)(p - from) + k;
        }
        if (w != p)
            _mm_storeu_si128((__m128i *)(void *)w, x);
    }
#else
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    for (; end - p >= 8; p += 8, w += 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        uint64_t q = x ^ ones * '"', s = x ^ ones * '\\';
        if ((((q - ones) & ~q) | ((s - ones) & ~s) | ((x - ones * 0x20) & ~x)) & high)
            break;
        memcpy(w, &x, 8);
    }
#endif
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20)
        *w++ = *p++;
    return (size_t)(p - from);
}

static int hex4(const uint8_t *p, const uint8_t *end)
{
    int v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int c = p[i], d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* \uXXXX at p, perhaps with the second half behind it; moves *p behind. */
static _Bool read_u(struct scan *c, uint8_t **p, uint8_t **w, int64_t *lone)
{
    int a = hex4(*p + 2, c->end), b;
    if (a < 0)
        return fail(c, *p, "\\u without four hexadecimal digits");
    uint32_t cp = (uint32_t)a;
    *p += 6;
    if (a >= 0xd800 && a <= 0xdfff) {
        cp = 0xfffd;
        if (a < 0xdc00 && c->end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' && (b = hex4(*p + 2, c->end)) >= 0xdc00 && b <= 0xdfff) {
            cp = 0x10000 + ((uint32_t)(a - 0xd800) << 10) + (uint32_t)(b - 0xdc00);
            *p += 6;
        } else {
            ++*lone;
        }
    }
    *w += tok_char_put(cp, *w);
    return 1;
}

/* The string at p, unpacked in place. */
static _Bool read_string(struct scan *c, uint8_t **s, size_t *n, int64_t *lone)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint8_t *open = c->p, *p = open + 1, *w = p;
    *s = w;
    for (;;) {
        size_t k = move_plain(w, p, c->end);
        const char *e;
        p += k;
        w += k;
        if (p == c->end)
            return fail(c, open, "a string does not end");
        if (*p == '"')
            break;
        if (*p < 0x20)
            return fail(c, p, "a control character in a string");
        if (p + 1 == c->end)
            return fail(c, open, "a string does not end");
        if (p[1] == 'u') {
            if (!read_u(c, &p, &w, lone))
                return 0;
        } else if (p[1] != '\0' && (e = strchr(from, p[1])) != NULL) {
            *w++ = (uint8_t)to[e - from];
            p += 2;
        } else {
            return fail(c, p, "an escape that JSON does not have");
        }
    }
    *n = (size_t)(w - *s);
    c->p = p + 1;
    return 1;
}

static size_t digits(struct scan *c)
{
    const uint8_t *from = c->p;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9')
        c->p++;
    return (size_t)(c->p - from);
}

static _Bool skip_number(struct scan *c)
{
    const uint8_t *at = c->p;
    if (*c->p == '-')
        c->p++;
    const uint8_t *first = c->p;
    size_t n = digits(c);
    if (n == 0 || (n > 1 && *first == '0'))
        return fail(c, at, "a number that JSON does not have");
    if (c->p < c->end && *c->p == '.') {
        c->p++;
        if (digits(c) == 0)
            return fail(c, at, "a number that JSON does not have");
    }
    if (c->p < c->end && (*c->p | 32) == 'e') {
        c->p++;
        if (c->p < c->end && (*c->p == '+' || *c->p == '-'))
            c->p++;
        if (digits(c) == 0)
            return fail(c, at, "a number that JSON does not have");
    }
    return 1;
}

static _Bool skip_word(struct scan *c, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return fail(c, c->p, "expected a value");
    c->p += n;
    return 1;
}

static enum json_line_type type_of(const struct scan *c)
{
    if (c->p == c->end)
        return JSON_LINE_ABSENT;
    switch (*c->p) {
    case '"': return JSON_LINE_STRING;
    case '{': return JSON_LINE_OBJECT;
    case '[': return JSON_LINE_ARRAY;
    case 't': case 'f': return JSON_LINE_BOOL;
    case 'n': return JSON_LINE_NULL;
    case '-': return JSON_LINE_NUMBER;
    default: return *c->p >= '0' && *c->p <= '9' ? JSON_LINE_NUMBER : JSON_LINE_ABSENT;
    }
}

static _Bool skip_scalar(struct scan *c)
{
    uint8_t *s;
    size_t n;
    int64_t lone = 0;
    switch (type_of(c)) {
    case JSON_LINE_STRING: return read_string(c, &s, &n, &lone);
    case JSON_LINE_BOOL: return skip_word(c, *c->p == 't' ? "true" : "false");
    case JSON_LINE_NULL: return skip_word(c, "null");
    case JSON_LINE_NUMBER: return skip_number(c);
    default: return fail(c, c->p, "expected a value");
    }
}

static _Bool skip_key(struct scan *c)
{
    uint8_t *s;
    size_t n;
    int64_t lone = 0;
    skip_space(c);
    if (c->p == c->end || *c->p != '"')
        return fail(c, c->p, "expected a key");
    if (!read_string(c, &s, &n, &lone))
        return 0;
    skip_space(c);
    if (c->p == c->end || *c->p != ':')
        return fail(c, c->p, "expected \":\"");
    c->p++;
    skip_space(c);
    return 1;
}

/* A value of any depth: one bit a level says whether it is an object. */
static _Bool skip_value(struct scan *c)
{
    uint64_t object[MAX_DEPTH / 64] = { 0 };
    int depth = 0;
    for (;;) {
        enum json_line_type t = type_of(c);
        if (t == JSON_LINE_OBJECT || t == JSON_LINE_ARRAY) {
            if (depth == MAX_DEPTH)
                return fail(c, c->p, "nested deeper than 1024 levels");
            uint64_t bit = (uint64_t)1 << (depth & 63);
            object[depth >> 6] = t == JSON_LINE_OBJECT ? object[depth >> 6] | bit : object[depth >> 6] & ~bit;
            depth++;
            c->p++;
            skip_space(c);
            if (c->p == c->end || *c->p != (t == JSON_LINE_OBJECT ? '}' : ']')) {
                if (t == JSON_LINE_OBJECT && !skip_key(c))
                    return 0;
                continue;
            }
            c->p++;
            depth--;
        } else if (!skip_scalar(c)) {
            return 0;
        }
        /* A value has ended: close what closes, or go on behind a comma. */
        for (;;) {
            if (depth == 0)
                return 1;
            _Bool o = object[(depth - 1) >> 6] >> ((depth - 1) & 63) & 1;
            skip_space(c);
            if (c->p < c->end && *c->p == ',') {
                c->p++;
                skip_space(c);
                if (o && !skip_key(c))
                    return 0;
                break;
            }
            if (c->p == c->end || *c->p != (o ? '}' : ']'))
                return fail(c, c->p, o ? "expected \",\" or \"}\"" : "expected \",\" or \"]\"");
            c->p++;
            depth--;
        }
    }
}

static struct json_line_value *find(const char *const *keys, int n_keys, struct json_line_value *value, const uint8_t *s, size_t n)
{
    for (int i = 0; i < n_keys; i++)
        if (strlen(keys[i]) == n && memcmp(keys[i], s, n) == 0)
            return &value[i];
    return NULL;
}

static _Bool read_member(struct scan *c, const char *const *keys, int n_keys, struct json_line_value *value)
{
    uint8_t *s, *at = c->p;
    size_t n;
    int64_t lone = 0;
    if (c->p == c->end || *c->p != '"')
        return fail(c, c->p, "expected a key");
    if (!read_string(c, &s, &n, &lone))
        return 0;
    struct json_line_value *v = find(keys, n_keys, value, s, n);
    skip_space(c);
    if (c->p == c->end || *c->p != ':')
        return fail(c, c->p, "expected \":\"");
    c->p++;
    skip_space(c);
    if (v == NULL)
        return skip_value(c);
    if (v->type != JSON_LINE_ABSENT)
        return fail(c, at, "a key comes twice");
    v->type = type_of(c);
    return v->type == JSON_LINE_STRING ? read_string(c, &v->s, &v->n, &v->lone) : skip_value(c);
}

_Bool json_line_read(uint8_t *line, size_t n, const char *const *keys, int n_keys,
                     struct json_line_value *value, struct json_line_fault *fault)
{
    struct scan c = { line, line + n, line, fault };
    memset(value, 0, (size_t)n_keys * sizeof *value);
    skip_space(&c);
    if (c.p == c.end || *c.p != '{')
        return fail(&c, c.p, "expected an object");
    c.p++;
    skip_space(&c);
    if (c.p < c.end && *c.p == '}') {
        c.p++;
    } else {
        for (;;) {
            if (!read_member(&c, keys, n_keys, value))
                return 0;
            skip_space(&c);
            if (c.p == c.end || (*c.p != ',' && *c.p != '}'))
                return fail(&c, c.p, "expected \",\" or \"}\"");
            if (*c.p++ == '}')
                break;
            skip_space(&c);
        }
    }
    skip_space(&c);
    return c.p == c.end || fail(&c, c.p, "something follows the object");
}
