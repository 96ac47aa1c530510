/* ckpt_cat.c -- moe-ckpt cat: the values of one tensor, or of a slice, on stdout.
 *
 * As .npy, which carries type and shape, or as the bare bytes of the file.  A
 * slice reads only the parts of the tensor that it touches, piece by piece, so
 * memory stays small however large the tensor is; with a MANIFEST what is read
 * has been hashed.  It converts nothing but BF16 for .npy, which has no such
 * type: widened to float32, exactly. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/out.h"

#include "ckpt_cmds.h"

struct cat { struct opt_common common; const char *slice; _Bool raw, force; };

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'f', "force", NULL, NULL, "write to a terminal too", offsetof(struct cat, force), 0, 0 },
    { OPT_FLAG, 'r', "raw", NULL, NULL, "bare bytes instead of .npy", offsetof(struct cat, raw), 0, 0 },
    { OPT_STR, 's', "slice", "SLICE", NULL, "only these: one of A:B, : or I per dimension, as in 0:10,3", offsetof(struct cat, slice), 0, 0 },
    OPT_END
};

/* What is chosen of each dimension. */
struct view {
    int n_dims;
    int64_t first[ST_MAX_DIMS], n[ST_MAX_DIMS], stride[ST_MAX_DIMS];    /* stride in elements */
    _Bool single[ST_MAX_DIMS];  /* chosen by a number: not a dimension of the result */
    int64_t run;                /* elements that lie together; 0: nothing is chosen */
    int outer;                  /* dimensions that the runs are counted by */
};

static int index_of(const char **s, int64_t dim, int64_t *out)
{
    char *end;

    if (**s < '0' || **s > '9')
        return -1;
    *out = strtoll(*s, &end, 10);
    if (*out > dim || end - *s > 18)
        return -1;
    *s = end;
    return 0;
}

static int slice_fault(const char *slice, int i, int64_t dim)
{
    return err_set(ERR_USAGE, "--slice %s: dimension %d: expected A:B or I within 0 to %" PRId64, slice, i + 1, dim);
}

/* One of "A:B", "A:", ":B", ":" and "I". */
static int parse_dim(const char *slice, const char **s, int i, int64_t dim, struct view *v)
{
    int64_t a = 0, b = dim;
    _Bool any = **s != ':' && index_of(s, dim, &a) == 0;

    if (any && **s != ':') {
        v->single[i] = 1;
        if (a == dim)
            return slice_fault(slice, i, dim);
        b = a + 1;
    } else if (**s == ':') {
        ++*s;
        if (**s && **s != ',' && index_of(s, dim, &b) < 0)
            return slice_fault(slice, i, dim);
    } else {
        return slice_fault(slice, i, dim);
    }
    if (b < a || (**s && **s != ','))
        return slice_fault(slice, i, dim);
    v->first[i] = a;
    v->n[i] = b - a;
    return 0;
}

static int parse_slice(const char *slice, const struct ckpt_tensor *t, struct view *v)
{
    const char *s = slice;
    int64_t stride = 1;

    *v = (struct view){ .n_dims = t->n_dims };
    for (int i = t->n_dims - 1; i >= 0; i--) {
        v->n[i] = t->shape[i];
        v->stride[i] = stride;
        stride *= t->shape[i];
    }
    for (int i = 0; s && *s; i++) {
        if (i == t->n_dims)
            return err_set(ERR_USAGE, "--slice %s: the tensor has %d dimension%s", slice, t->n_dims, t->n_dims == 1 ? "" : "s");
        TRY(parse_dim(slice, &s, i, t->shape[i], v));
        if (*s == ',')
            s++;
    }
    /* Inner dimensions that are whole lie together with the one before them. */
    v->run = 1;
    v->outer = t->n_dims;
    while (v->outer > 0) {
        int i = --v->outer;

        v->run *= v->n[i];
        if (v->n[i] != t->shape[i])
            break;
    }
    for (int i = 0; i < v->outer; i++)
        if (v->n[i] == 0)
            v->run = 0;
    return 0;
}

/* The next run in order: its first element; false after the last. */
static _Bool next_run(const struct view *v, int64_t *at, int64_t *first)
{
    int i = v->outer - 1;

    for (; i >= 0; i--) {
        *first += v->stride[i];
        if (++at[i] < v->n[i])
            return 1;
        *first -= v->n[i] * v->stride[i];
        at[i] = 0;
    }
    return 0;
}

/* ---- .npy */

static const char *npy_type(const struct ckpt_tensor *t)
{
    static const struct { enum dtype dtype; const char *npy; } types[] = {
        { DT_F32, "<f4" }, { DT_F64, "<f8" }, { DT_F16, "<f2" }, { DT_BF16, "<f4" }, { DT_I64, "<i8" }, { DT_I32, "<i4" },
        { DT_I16, "<i2" }, { DT_I8, "|i1" }, { DT_U64, "<u8" }, { DT_U32, "<u4" }, { DT_U16, "<u2" }, { DT_U8, "|u1" },
        { DT_BOOL, "|b1" },
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == t->dtype)
            return types[i].npy;
    return NULL;
}

static int npy_head(struct arena *a, const struct ckpt_tensor *t, const struct view *v)
{
    const char *shape = "", *text;
    size_t n, padded;
    int dims = 0;
    char head[10] = "\x93NUMPY\x01";

    for (int i = 0; i < v->n_dims; i++)
        if (!v->single[i])
            shape = arena_printf(a, dims++ ? "%s, %" PRId64 : "%s%" PRId64, shape, v->n[i]);
    text = arena_printf(a, "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }", npy_type(t), shape, dims == 1 ? "," : "");
    n = strlen(text);
    padded = (10 + n + 1 + 63) / 64 * 64 - 10;          /* the data starts on a multiple of 64 */
    head[8] = (char)(padded & 0xff);
    head[9] = (char)(padded >> 8);
    TRY(out_write(head, 10));
    TRY(out_write(text, n));
    for (; n + 1 < padded; n++)
        TRY(out_write(" ", 1));
    return out_write("\n", 1);
}

/* ---- values */

struct reader { const struct ckpt *c; const struct ckpt_tensor *t; char *buf; uint64_t begin, end; _Bool widen; };

#define PIECE_BYTES ST_PART_BYTES

/* Bytes [first, first + n) of the tensor to stdout, by way of pieces that keep
 * to the borders of what is hashed as one. */
static int emit(struct reader *r, uint64_t first, uint64_t n, _Bool may_skip_ahead)
{
    while (n) {
        uint64_t take;

        if (first < r->begin || first >= r->end) {
            r->begin = r->t->parts ? first / PIECE_BYTES * PIECE_BYTES : first;
            r->end = r->t->parts ? r->begin + PIECE_BYTES : first + (may_skip_ahead && n < 65536 ? 65536 : n < 1 << 20 ? n : 1 << 20);
            if (r->end > r->t->bytes)
                r->end = r->t->bytes;
            TRY(ckpt_read(r->c, r->t, r->begin, (size_t)(r->end - r->begin), r->buf));
        }
        take = r->end - first < n ? r->end - first : n;
        if (r->widen) {
            for (uint64_t i = 0; i < take; i += 2) {
                uint16_t v;
                float f;

                memcpy(&v, r->buf + (first - r->begin) + i, 2);
                f = dtype_from_bf16(v);
                TRY(out_write(&f, 4));
            }
        } else {
            TRY(out_write(r->buf + (first - r->begin), (size_t)take));
        }
        first += take;
        n -= take;
    }
    return 0;
}

static int put_values(const struct ckpt *c, const struct ckpt_tensor *t, const struct view *v, uint64_t size, _Bool widen)
{
    struct reader r = { .c = c, .t = t, .widen = widen };
    int64_t at[ST_MAX_DIMS] = { 0 }, first = 0;
    uint64_t room = t->bytes < PIECE_BYTES ? t->bytes : PIECE_BYTES;
    int rc = 0;

    if (!v->run || !t->bytes)
        return 0;
    r.buf = malloc((size_t)room);
    if (!r.buf)
        return err_set(ERR_IO, "no memory for %" PRIu64 " bytes", room);
    for (int i = 0; i < v->n_dims; i++)
        first += v->first[i] * v->stride[i];
    do
        rc = emit(&r, (uint64_t)first * size, (uint64_t)v->run * size, v->outer > 0);
    while (rc == 0 && next_run(v, at, &first));
    free(r.buf);
    return rc;
}

static int put_tensor(const struct cat *o, struct arena *a, const struct ckpt *c, const char *name)
{
    const struct ckpt_tensor *t = ckpt_find(c, name);
    struct view v;
    int bits;

    if (!t)
        return err_set(ERR_NO, "%s: no tensor \"%s\"", ckpt_path(c), name);
    bits = st_type_bits(t->type);
    TRY(parse_slice(o->slice, t, &v));
    if (bits % 8)
        return err_set(ERR_DATA, "%s: tensor \"%s\" is %s, whose elements are no whole bytes", ckpt_path(c), name, t->type);
    if (!o->raw && !npy_type(t))
        return err_set(ERR_DATA, "%s: tensor \"%s\" is %s, which .npy does not have; --raw writes its bytes", ckpt_path(c), name, t->type);
    TRY(out_binary(o->force));
    if (!o->raw)
        TRY(npy_head(a, t, &v));
    return put_values(c, t, &v, (uint64_t)bits / 8, !o->raw && t->dtype == DT_BF16);
}

static int cat(void *options, int argc, char **argv)
{
    struct arena *a;
    struct ckpt *c;
    int rc;

    (void)argc;
    TRY(ckpt_cmds_open(argv[0], &c));
    a = arena_new();
    rc = put_tensor(options, a, c, argv[1]);
    arena_free(a);
    ckpt_close(c);
    return rc;
}

const struct opt_cmd ckpt_cat_cmd = {
    "cat", "write the values of a tensor to standard output", "[-fr] [-s SLICE] CKPT TENSOR",
    "moe-ckpt cat runs/a model.norm.weight > norm.npy\n"
    "moe-ckpt cat --raw -s 0:10 runs/a model.embed_tokens.weight | od -t fF\n",
    opts, sizeof(struct cat), 2, 2, cat
};
