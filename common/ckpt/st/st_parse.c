/* st_parse.c -- the header parser: text to a checked table of tensors.
 *
 * A general JSON library builds a tree of the whole header first (270 ms and
 * 100 MB for 85,000 tensors) and keeps the last of two equal keys in silence.
 * A header can have one shape only, so it is pulled from the text in one walk,
 * which can say what was expected at which byte.
 *
 * Positions in errors are bytes of the file, that is text position + 8. */
#include "ckpt/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/json_pull.h"
#include "base/pool.h"
#include "ckpt/names.h"

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

const char *st_type_name(const char *s, size_t n)
{
    const struct type *t = type_find(s, n);

    return t ? t->name : NULL;
}

const struct st_tensor *st_find(const struct st_header *h, const char *name)
{
    int64_t i = ckpt_names_find(h->names, name);

    return i < 0 ? NULL : &h->tensors[i];
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

/* ---- the parts of a header */

struct table { struct st_tensor *v; int64_t n, room; };

static char *keep(struct arena *a, struct json_slice s)
{
    char *copy = arena_alloc(a, s.n + 1);

    memcpy(copy, s.s, s.n);
    return copy;
}

static int read_shape(struct json_pull *c, struct arena *a, struct st_tensor *t)
{
    int64_t dims[ST_MAX_DIMS], *copy;
    uint64_t v;
    int rc;

    TRY(json_pull_take(c, '[', "of a shape"));
    t->n_dims = 0;
    if (!json_pull_empty(c, ']')) {
        do {
            if (t->n_dims == ST_MAX_DIMS)
                return json_pull_fail(c, c->p, "more than %d dimensions", ST_MAX_DIMS);
            TRY(json_pull_digits(c, "a dimension", &v));
            dims[t->n_dims++] = (int64_t)v;
            TRY(rc = json_pull_more(c, ']'));
        } while (rc);
    }
    copy = arena_alloc(a, (size_t)(t->n_dims + !t->n_dims) * sizeof *copy);
    memcpy(copy, dims, (size_t)t->n_dims * sizeof *copy);
    t->shape = copy;
    return 0;
}

static int read_offsets(struct json_pull *c, struct st_tensor *t)
{
    TRY(json_pull_take(c, '[', "of data_offsets"));
    TRY(json_pull_digits(c, "an offset", &t->begin));
    TRY(json_pull_take(c, ',', "between two offsets"));
    TRY(json_pull_digits(c, "an offset", &t->end));
    return json_pull_take(c, ']', "after two offsets");
}

/* The bytes that type and shape call for must be those that the offsets give. */
static int check_size(const struct json_pull *c, const char *at, const struct st_tensor *t, int bits)
{
    uint64_t n = (uint64_t)bits;

    if (t->end < t->begin)
        return json_pull_fail(c, at, "offsets that run backwards (%" PRIu64 " to %" PRIu64 ")", t->begin, t->end);
    for (int i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n))
            return json_pull_fail(c, at, "a shape whose size overflows");
    if (n % 8)
        return json_pull_fail(c, at, "a shape that does not end on a whole byte");
    if (n / 8 != t->end - t->begin)
        return json_pull_fail(c, at, "type and shape need %" PRIu64 " bytes, the offsets give %" PRIu64, n / 8, t->end - t->begin);
    return 0;
}

static int read_entry(struct json_pull *c, struct arena *a, struct st_tensor *t)
{
    static const char *const field[3] = { "dtype", "shape", "data_offsets" };
    const char *start;
    const struct type *type = NULL;
    struct json_slice s;
    unsigned seen = 0;
    int rc, k;

    TRY(json_pull_take(c, '{', "of an entry"));
    start = c->p - 1;
    do {
        TRY(json_pull_string(c, "a field name", &s));
        for (k = 0; k < 3; k++)
            if (json_slice_is(s, field[k]))
                break;
        if (k == 3)
            return json_pull_fail(c, c->p, "a field other than dtype, shape and data_offsets");
        if (seen & 1u << k)
            return json_pull_fail(c, c->p, "field \"%s\" appears twice", field[k]);
        seen |= 1u << k;
        TRY(json_pull_take(c, ':', "after a field name"));
        if (k == 0) {
            TRY(json_pull_string(c, "a type", &s));
            type = type_find(s.s, s.n);
            if (!type)
                return json_pull_fail(c, c->p, "unknown type");
            t->type = type->name;
            t->dtype = type->dtype;
        } else if (k == 1) {
            TRY(read_shape(c, a, t));
        } else {
            TRY(read_offsets(c, t));
        }
        TRY(rc = json_pull_more(c, '}'));
    } while (rc);
    for (k = 0; k < 3; k++)
        if (!(seen & 1u << k))
            return json_pull_fail(c, start, "no field \"%s\"", field[k]);
    return check_size(c, start, t, type->bits);
}

static int meta_cmp(const void *a, const void *b)
{
    return strcmp(((const struct st_meta *)a)->key, ((const struct st_meta *)b)->key);
}

static int read_meta(struct json_pull *c, struct arena *a, struct st_header *h)
{
    struct st_meta *sorted;
    struct json_slice s;
    int64_t room = 0;
    int rc;

    TRY(json_pull_take(c, '{', "of __metadata__"));
    if (json_pull_empty(c, '}'))
        return 0;
    do {
        h->meta = grow_arena(a, h->meta, &room, h->n_meta + 1, sizeof *h->meta);
        TRY(json_pull_string(c, "a __metadata__ key", &s));
        if (memchr(s.s, 0, s.n))
            return json_pull_fail(c, c->p, "a NUL in a __metadata__ key");
        h->meta[h->n_meta].key = keep(a, s);
        TRY(json_pull_take(c, ':', "after a __metadata__ key"));
        TRY(json_pull_string(c, "a __metadata__ value", &s));
        if (memchr(s.s, 0, s.n))
            return json_pull_fail(c, c->p, "a NUL in a __metadata__ value");
        h->meta[h->n_meta++].value = keep(a, s);
        TRY(rc = json_pull_more(c, '}'));
    } while (rc);
    sorted = arena_array(a, (size_t)h->n_meta, sizeof *sorted);
    memcpy(sorted, h->meta, (size_t)h->n_meta * sizeof *sorted);
    qsort(sorted, (size_t)h->n_meta, sizeof *sorted, meta_cmp);
    for (int i = 1; i < h->n_meta; i++)
        if (strcmp(sorted[i - 1].key, sorted[i].key) == 0)
            return json_pull_fail(c, c->p, "a __metadata__ key that appears twice");
    return 0;
}

static int read_all(struct json_pull *c, struct arena *a, struct st_header *h, struct table *t)
{
    _Bool has_meta = 0;
    const char *fault;
    struct json_slice s;
    int rc;

    if (c->p == c->end || *c->p != '{')
        return json_pull_fail(c, c->p, "expected '{' at once");
    c->p++;
    if (json_pull_empty(c, '}'))
        return 0;
    do {
        TRY(json_pull_string(c, "a tensor name", &s));
        if (json_slice_is(s, "__metadata__")) {
            if (has_meta)
                return json_pull_fail(c, c->p, "__metadata__ appears twice");
            has_meta = 1;
            TRY(json_pull_take(c, ':', "after __metadata__"));
            TRY(read_meta(c, a, h));
        } else {
            if ((fault = name_fault(s.s, s.n)))
                return json_pull_fail(c, c->p, "%s", fault);
            if (grow_pooled(&t->v, &t->room, t->n + 1, sizeof *t->v, "tensors") < 0)
                return err_add("%s", c->where);
            memset(&t->v[t->n], 0, sizeof t->v[0]);
            t->v[t->n].name = c->name = keep(a, s);
            c->frame = "tensor";
            TRY(json_pull_take(c, ':', "after the name"));
            TRY(read_entry(c, a, &t->v[t->n++]));
            c->frame = "header";
            c->name = NULL;
        }
        TRY(rc = json_pull_more(c, '}'));
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
    struct json_pull c;
    struct arena *a = arena_new();
    struct st_header *h = arena_alloc(a, sizeof *h);
    struct table t = { 0 };
    int64_t twice;
    int rc;

    json_pull_start(&c, where, text, n);
    c.nul = 1;                  /* told of where it stands */
    c.frame = "header";
    c.base = 8;
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
            rc = json_pull_fail(&c, c.p, "something other than spaces after the closing '}'");
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
    json_pull_done(&c);
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
