/* st_parse.c -- the header parser: text to a checked table of tensors.
 *
 * A general JSON library builds a tree of the whole header first (270 ms and
 * 100 MB for 85,000 tensors) and keeps the last of two equal keys in silence.
 * This one knows the only shape a header can have, so it walks the text once,
 * never recurses, and can say what it expected at which byte.
 *
 * Positions in errors are bytes of the file, that is text position + 8. */
#include "ckpt/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/pool.h"
#include "ckpt/names.h"

#define INT_MAX_JSON (UINT64_C(1) << 53)

struct type { const char *name; int bits; enum dtype dtype; };

static const struct type types[] = {
    { "F32", 32, DT_F32 }, { "BF16", 16, DT_BF16 }, { "I64", 64, DT_I64 }, { "F16", 16, DT_F16 },
    { "F64", 64, DT_F64 }, { "I32", 32, DT_I32 }, { "I16", 16, DT_I16 }, { "I8", 8, DT_I8 },
    { "U64", 64, DT_U64 }, { "U32", 32, DT_U32 }, { "U16", 16, DT_U16 }, { "U8", 8, DT_U8 },
    { "BOOL", 8, DT_BOOL }, { "F8_E4M3", 8, DT_F8_E4M3 }, { "F8_E5M2", 8, DT_F8_E5M2 },
    { "F8_E8M0", 8, DT_N }, { "F8_E4M3FNUZ", 8, DT_N }, { "F8_E5M2FNUZ", 8, DT_N },
    { "F6_E2M3", 6, DT_N }, { "F6_E3M2", 6, DT_N }, { "F4", 4, DT_N }, { "C64", 64, DT_N },
};

static const struct type *type_find(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == n && memcmp(types[i].name, s, n) == 0)
            return &types[i];
    return NULL;
}

int st_type_bits(const char *type)
{
    const struct type *t = type_find(type, strlen(type));

    return t ? t->bits : 0;
}

const struct st_tensor *st_find(const struct st_header *h, const char *name)
{
    int64_t i = ckpt_names_find(h->names, name);

    return i < 0 ? NULL : &h->tensors[i];
}

/* ---- the text */

struct cur {
    const char *where;
    const char *text, *p, *end;
    const char *tensor;         /* the entry being read, for errors; or NULL */
    char *tmp;                  /* a string that had escapes, decoded */
    size_t tmp_size;
};

struct slice { const char *s; size_t n; };

static int fail(const struct cur *c, const char *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(const struct cur *c, const char *at, const char *fmt, ...)
{
    char what[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (c->tensor)
        return err_set(ERR_DATA, "%s: tensor \"%s\": %s at byte %zu", c->where, c->tensor, what,
                       (size_t)(at - c->text) + 8);
    return err_set(ERR_DATA, "%s: header: %s at byte %zu", c->where, what, (size_t)(at - c->text) + 8);
}

static void space(struct cur *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

/* Skips space and takes the byte ch, or fails. */
static int take(struct cur *c, char ch, const char *why)
{
    space(c);
    if (c->p == c->end)
        return fail(c, c->p, "the text ends where '%c' %s was expected", ch, why);
    if (*c->p != ch)
        return fail(c, c->p, "expected '%c' %s", ch, why);
    c->p++;
    return 0;
}

/* After an element: 1 for a comma, 0 for the closing byte. */
static int more(struct cur *c, char close)
{
    space(c);
    if (c->p < c->end && *c->p == ',') {
        c->p++;
        return 1;
    }
    if (c->p < c->end && *c->p == close) {
        c->p++;
        return 0;
    }
    return fail(c, c->p, c->p == c->end ? "the text ends where ',' or '%c' was expected"
                                        : "expected ',' or '%c'", close);
}

/* Bytes of the valid UTF-8 sequence at s, 0 when it is none (overlong forms,
 * surrogates and values over U+10FFFF included). */
static size_t utf8_len(const unsigned char *s, size_t n)
{
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

static int hex4(const struct cur *c, const char *p, unsigned *out)
{
    unsigned v = 0;

    for (int i = 0; i < 4; i++) {
        char ch = p + i < c->end ? p[i] : 0;
        unsigned d;

        if (ch >= '0' && ch <= '9') d = (unsigned)(ch - '0');
        else if (ch >= 'a' && ch <= 'f') d = (unsigned)(ch - 'a') + 10;
        else if (ch >= 'A' && ch <= 'F') d = (unsigned)(ch - 'A') + 10;
        else return fail(c, p, "expected four hex digits after \\u");
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

/* One escape at c->p (just after the backslash) into dst; its bytes. */
static int escape(struct cur *c, char *dst)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = c->p - 1, *f;
    unsigned v, w;

    if (c->p == c->end)
        return fail(c, at, "the text ends inside a string");
    if (*c->p != 'u') {
        f = *c->p ? strchr(from, *c->p) : NULL;
        if (!f)
            return fail(c, at, "unknown escape");
        *dst = to[f - from];
        c->p++;
        return 1;
    }
    TRY(hex4(c, c->p + 1, &v));
    c->p += 5;
    if (v >= 0xdc00 && v <= 0xdfff)
        return fail(c, at, "half a surrogate pair");
    if (v >= 0xd800 && v <= 0xdbff) {
        if (c->end - c->p < 6 || c->p[0] != '\\' || c->p[1] != 'u')
            return fail(c, at, "half a surrogate pair");
        TRY(hex4(c, c->p + 2, &w));
        if (w < 0xdc00 || w > 0xdfff)
            return fail(c, at, "half a surrogate pair");
        c->p += 6;
        v = 0x10000 + ((v - 0xd800) << 10) + (w - 0xdc00);
    }
    return (int)utf8_put(dst, v);
}

/* A string.  The slice is borrowed until the next call: from the text itself
 * when it has no escapes, which is nearly always. */
static int string(struct cur *c, const char *what, struct slice *out)
{
    const char *start;
    size_t n = 0, len;
    int k;

    space(c);
    if (c->p == c->end || *c->p != '"')
        return fail(c, c->p, "expected %s in quotes", what);
    start = ++c->p;
    for (; c->p < c->end && *c->p != '"' && *c->p != '\\'; c->p += len) {
        len = 1;
        if ((signed char)*c->p >= 0x20)         /* plain ASCII */
            continue;
        len = utf8_len((const unsigned char *)c->p, (size_t)(c->end - c->p));
        if (!len)
            return fail(c, c->p, "invalid UTF-8");
        if ((unsigned char)*c->p < 0x20)
            return fail(c, c->p, "a bare control character in a string");
    }
    if (c->p < c->end && *c->p == '"') {
        *out = (struct slice){ start, (size_t)(c->p++ - start) };
        return 0;
    }
    for (c->p = start; c->p < c->end && *c->p != '"';) {
        if (c->tmp_size < n + 8) {
            size_t size = c->tmp_size ? 2 * c->tmp_size : 256;
            char *bigger = pool_realloc(c->tmp, size);

            if (!bigger)
                return err_set(ERR_IO, "%s: no memory for a string of %zu bytes", c->where, size);
            c->tmp = bigger;
            c->tmp_size = size;
        }
        if (*c->p == '\\') {
            c->p++;
            TRY(k = escape(c, c->tmp + n));
            n += (size_t)k;
            continue;
        }
        len = utf8_len((const unsigned char *)c->p, (size_t)(c->end - c->p));
        if (!len)
            return fail(c, c->p, "invalid UTF-8");
        if ((unsigned char)*c->p < 0x20)
            return fail(c, c->p, "a bare control character in a string");
        memcpy(c->tmp + n, c->p, len);
        n += len;
        c->p += len;
    }
    if (c->p == c->end)
        return fail(c, start - 1, "a string without end");
    c->p++;
    *out = (struct slice){ c->tmp, n };
    return 0;
}

/* What may be a tensor's name, so that printing it and making a file name of
 * it are harmless.  NULL, or what is wrong. */
static const char *name_fault(const char *s, size_t n)
{
    if (n == 0)
        return "a tensor without a name";
    if (n > ST_NAME_MAX)
        return "a tensor name over 1024 bytes";
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)s[i];

        if (b < 0x20 || b == 0x7f || (b == 0xc2 && i + 1 < n && (unsigned char)s[i + 1] < 0xa0))
            return "a control character in a tensor name";
        if (b == '/')
            return "a '/' in a tensor name";
    }
    return NULL;
}

/* Plain digits: no sign, no fraction, no exponent, no leading zero. */
static int number(struct cur *c, const char *what, uint64_t *out)
{
    const char *start;
    uint64_t v = 0;

    space(c);
    start = c->p;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9') {
        v = v * 10 + (uint64_t)(*c->p++ - '0');
        if (v > INT_MAX_JSON)
            return fail(c, start, "%s over 2^53", what);
    }
    if (c->p == start)
        return fail(c, start, c->p < c->end && *c->p == '-' ? "%s with a sign" : "expected %s in digits", what);
    if (*start == '0' && c->p - start > 1)
        return fail(c, start, "%s with a leading zero", what);
    if (c->p < c->end && (*c->p == '.' || *c->p == 'e' || *c->p == 'E'))
        return fail(c, start, "%s that is not a plain integer", what);
    *out = v;
    return 0;
}

/* ---- the parts of a header */

struct table { struct st_tensor *v; int64_t n, room; };

static char *keep(struct arena *a, struct slice s)
{
    char *copy = arena_alloc(a, s.n + 1);

    memcpy(copy, s.s, s.n);
    return copy;
}

static int read_shape(struct cur *c, struct arena *a, struct st_tensor *t)
{
    int64_t dims[ST_MAX_DIMS], *copy;
    uint64_t v;
    int rc;

    TRY(take(c, '[', "of a shape"));
    t->n_dims = 0;
    space(c);
    if (c->p < c->end && *c->p == ']') {
        c->p++;
    } else {
        do {
            if (t->n_dims == ST_MAX_DIMS)
                return fail(c, c->p, "more than %d dimensions", ST_MAX_DIMS);
            TRY(number(c, "a dimension", &v));
            dims[t->n_dims++] = (int64_t)v;
            TRY(rc = more(c, ']'));
        } while (rc);
    }
    copy = arena_alloc(a, (size_t)(t->n_dims + !t->n_dims) * sizeof *copy);
    memcpy(copy, dims, (size_t)t->n_dims * sizeof *copy);
    t->shape = copy;
    return 0;
}

static int read_offsets(struct cur *c, struct st_tensor *t)
{
    TRY(take(c, '[', "of data_offsets"));
    TRY(number(c, "an offset", &t->begin));
    TRY(take(c, ',', "between two offsets"));
    TRY(number(c, "an offset", &t->end));
    return take(c, ']', "after two offsets");
}

/* The bytes that type and shape call for must be those that the offsets give. */
static int check_size(const struct cur *c, const char *at, const struct st_tensor *t, int bits)
{
    uint64_t n = (uint64_t)bits;

    if (t->end < t->begin)
        return fail(c, at, "offsets that run backwards (%" PRIu64 " to %" PRIu64 ")", t->begin, t->end);
    for (int i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n))
            return fail(c, at, "a shape whose size overflows");
    if (n % 8)
        return fail(c, at, "a shape that does not end on a whole byte");
    if (n / 8 != t->end - t->begin)
        return fail(c, at, "type and shape need %" PRIu64 " bytes, the offsets give %" PRIu64, n / 8, t->end - t->begin);
    return 0;
}

static int read_entry(struct cur *c, struct arena *a, struct st_tensor *t)
{
    static const char *const field[3] = { "dtype", "shape", "data_offsets" };
    const char *start;
    const struct type *type = NULL;
    struct slice s;
    unsigned seen = 0;
    int rc, k;

    TRY(take(c, '{', "of an entry"));
    start = c->p - 1;
    do {
        TRY(string(c, "a field name", &s));
        for (k = 0; k < 3; k++)
            if (strlen(field[k]) == s.n && memcmp(field[k], s.s, s.n) == 0)
                break;
        if (k == 3)
            return fail(c, c->p, "a field other than dtype, shape and data_offsets");
        if (seen & 1u << k)
            return fail(c, c->p, "field \"%s\" appears twice", field[k]);
        seen |= 1u << k;
        TRY(take(c, ':', "after a field name"));
        if (k == 0) {
            TRY(string(c, "a type", &s));
            type = type_find(s.s, s.n);
            if (!type)
                return fail(c, c->p, "unknown type");
            t->type = type->name;
            t->dtype = type->dtype;
        } else if (k == 1) {
            TRY(read_shape(c, a, t));
        } else {
            TRY(read_offsets(c, t));
        }
        TRY(rc = more(c, '}'));
    } while (rc);
    for (k = 0; k < 3; k++)
        if (!(seen & 1u << k))
            return fail(c, start, "no field \"%s\"", field[k]);
    return check_size(c, start, t, type->bits);
}

static int meta_cmp(const void *a, const void *b)
{
    return strcmp(((const struct st_meta *)a)->key, ((const struct st_meta *)b)->key);
}

static int read_meta(struct cur *c, struct arena *a, struct st_header *h)
{
    struct st_meta *sorted;
    struct slice s;
    int room = 0, rc;

    TRY(take(c, '{', "of __metadata__"));
    space(c);
    if (c->p < c->end && *c->p == '}') {
        c->p++;
        return 0;
    }
    do {
        if (h->n_meta == room) {
            struct st_meta *bigger = arena_array(a, (size_t)(room = room ? 2 * room : 8), sizeof *bigger);

            if (h->n_meta)
                memcpy(bigger, h->meta, (size_t)h->n_meta * sizeof *bigger);
            h->meta = bigger;
        }
        TRY(string(c, "a __metadata__ key", &s));
        if (memchr(s.s, 0, s.n))
            return fail(c, c->p, "a NUL in a __metadata__ key");
        h->meta[h->n_meta].key = keep(a, s);
        TRY(take(c, ':', "after a __metadata__ key"));
        TRY(string(c, "a __metadata__ value", &s));
        if (memchr(s.s, 0, s.n))
            return fail(c, c->p, "a NUL in a __metadata__ value");
        h->meta[h->n_meta++].value = keep(a, s);
        TRY(rc = more(c, '}'));
    } while (rc);
    sorted = arena_array(a, (size_t)h->n_meta, sizeof *sorted);
    memcpy(sorted, h->meta, (size_t)h->n_meta * sizeof *sorted);
    qsort(sorted, (size_t)h->n_meta, sizeof *sorted, meta_cmp);
    for (int i = 1; i < h->n_meta; i++)
        if (strcmp(sorted[i - 1].key, sorted[i].key) == 0)
            return fail(c, c->p, "a __metadata__ key that appears twice");
    return 0;
}

static int read_all(struct cur *c, struct arena *a, struct st_header *h, struct table *t)
{
    _Bool has_meta = 0;
    const char *fault;
    struct slice s;
    int rc;

    if (c->p == c->end || *c->p != '{')
        return fail(c, c->p, "expected '{' at once");
    c->p++;
    space(c);
    if (c->p < c->end && *c->p == '}') {
        c->p++;
        return 0;
    }
    do {
        TRY(string(c, "a tensor name", &s));
        if (s.n == 12 && memcmp(s.s, "__metadata__", 12) == 0) {
            if (has_meta)
                return fail(c, c->p, "__metadata__ appears twice");
            has_meta = 1;
            TRY(take(c, ':', "after __metadata__"));
            TRY(read_meta(c, a, h));
        } else {
            if ((fault = name_fault(s.s, s.n)))
                return fail(c, c->p, "%s", fault);
            if (t->n == t->room) {
                int64_t room = t->room ? 2 * t->room : 64;
                struct st_tensor *bigger = pool_realloc(t->v, (size_t)room * sizeof *bigger);

                if (!bigger)
                    return err_set(ERR_IO, "%s: no memory for %" PRId64 " tensors", c->where, room);
                t->v = bigger;
                t->room = room;
            }
            memset(&t->v[t->n], 0, sizeof t->v[0]);
            t->v[t->n].name = c->tensor = keep(a, s);
            TRY(take(c, ':', "after the name"));
            TRY(read_entry(c, a, &t->v[t->n++]));
            c->tensor = NULL;
        }
        TRY(rc = more(c, '}'));
    } while (rc);
    return 0;
}

/* ---- the whole */

static int by_bytes(const void *pa, const void *pb)
{
    const struct st_tensor *a = pa, *b = pb;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);    /* empty tensors at one place */
}

/* Writers mostly write in file order already. */
static void sort_by_bytes(struct st_header *h)
{
    for (int64_t i = 1; i < h->n_tensors; i++)
        if (by_bytes(&h->tensors[i - 1], &h->tensors[i]) > 0) {
            qsort(h->tensors, (size_t)h->n_tensors, sizeof h->tensors[0], by_bytes);
            return;
        }
}

/* Tensors tile the data: no gap (a place to hide things), no overlap (a small
 * file that becomes a large model), nothing after the last one. */
static int check_tiling(const char *where, struct st_header *h, int64_t data_bytes)
{
    uint64_t at = 0;

    for (int64_t i = 0; i < h->n_tensors; at = h->tensors[i++].end) {
        const struct st_tensor *t = &h->tensors[i];

        if (t->begin > at)
            return err_set(ERR_DATA, "%s: tensor \"%s\": %" PRIu64 " bytes before it belong to no tensor",
                           where, t->name, t->begin - at);
        if (t->begin < at)
            return err_set(ERR_DATA, "%s: tensor \"%s\" overlaps tensor \"%s\"", where, t->name, t[-1].name);
    }
    h->data_bytes = at;
    if (data_bytes >= 0 && at > (uint64_t)data_bytes)
        return err_set(ERR_DATA, "%s: short by %" PRIu64 " bytes", where, at - (uint64_t)data_bytes);
    if (data_bytes >= 0 && at < (uint64_t)data_bytes)
        return err_set(ERR_DATA, "%s: %" PRIu64 " extra bytes after the last tensor", where, (uint64_t)data_bytes - at);
    return 0;
}

int st_parse(const char *where, const char *text, size_t n, int64_t data_bytes, struct st_header **out)
{
    struct cur c = { .where = where, .text = text, .p = text, .end = text + n };
    struct arena *a = arena_new();
    struct st_header *h = arena_alloc(a, sizeof *h);
    struct table t = { 0 };
    int64_t twice;
    int rc;

    h->memory = a;
    h->data_start = 8 + (uint64_t)n;
    if (n > ST_HEADER_MAX) {
        rc = err_set(ERR_DATA, "%s: a header of %zu bytes, over the limit of %u", where, n, ST_HEADER_MAX);
        goto out;
    }
    rc = read_all(&c, a, h, &t);
    h->tensors = t.v;
    h->n_tensors = t.n;
    if (rc < 0)
        goto out;
    for (; c.p < c.end; c.p++)
        if (*c.p != ' ') {
            rc = fail(&c, c.p, "something other than spaces after the closing '}'");
            goto out;
        }
    sort_by_bytes(h);
    h->names = ckpt_names_new(h->tensors, h->n_tensors, sizeof *h->tensors, offsetof(struct st_tensor, name), &twice);
    if (twice >= 0) {
        rc = err_set(ERR_DATA, "%s: tensor \"%s\" appears twice", where, h->tensors[twice].name);
        goto out;
    }
    TRY_OUT(rc, check_tiling(where, h, data_bytes));
    *out = h;
    h = NULL;
out:
    pool_free(c.tmp);
    st_header_free(h);
    return rc;
}

void st_header_free(struct st_header *h)
{
    if (!h)
        return;
    ckpt_names_free(h->names);
    pool_free(h->tensors);
    arena_free(h->memory);
}

const char *st_meta_get(const struct st_header *h, const char *key)
{
    for (int i = 0; i < h->n_meta; i++)
        if (strcmp(h->meta[i].key, key) == 0)
            return h->meta[i].value;
    return NULL;
}

int64_t st_count(const struct st_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}
