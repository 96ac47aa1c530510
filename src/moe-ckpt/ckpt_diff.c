/* ckpt_diff.c -- moe-ckpt diff: are two checkpoints the same, and if not, where and by how much?
 *
 * Tensors are matched by name.  Equal means equal bytes: two NaN of the same
 * bits are the same, 0 and -0 are not.  Values of different types are compared
 * as numbers, but another type is a difference even when every value survived.
 * Memory is two pieces, however large the tensors are.
 *
 * Lost distinct values are what rounding does to a router bias: 238 values of
 * float32 become 8 of bfloat16, and routing changes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/progress.h"
#include "base/units.h"

#include "ckpt_cmds.h"

#define PIECE_HASHED ((int64_t)16 << 20)        /* elements: 64 MiB of F32, as parts are */
#define PIECE_PLAIN ((int64_t)1 << 20)
#define DISTINCT_MAX ((int64_t)1 << 20)         /* elements of a tensor whose distinct values are counted */
#define BLOCK 2048

struct diff { struct opt_common common; _Bool all, model, json, tsv; };

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'a', "all", NULL, NULL, "list equal tensors too", offsetof(struct diff, all), 0, 0 },
    { OPT_FLAG, 'm', "model", NULL, NULL, "leave out optimizer tensors", offsetof(struct diff, model), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object per tensor", offsetof(struct diff, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated columns", offsetof(struct diff, tsv), 0, 0 },
    OPT_END
};

/* For people the two numbers are text of three digits: they span many magnitudes. */
#define COLS(number) \
    { "name", "tensor", 's', 0 }, \
    { "status", "status", 's', 0 },             /* same differs type shape only-a only-b */ \
    { "type_a", "type a", 's', 0 }, { "type_b", "type b", 's', 0 }, \
    { "elements", "elements", 'i', 0 }, \
    { "changed", "changed", 'i', 0 },           /* elements */ \
    { "max_abs", "max |a-b|", number, 0 }, \
    { "max_rel", "relative", number, 0 }, \
    { "changed_bits", "changed bits", 'i', 0 }, \
    { "distinct_a", "distinct a", 'i', 0 }, { "distinct_b", "distinct b", 'i', 0 }, \
    { "lost", "lost", 'i', 0 }

static const struct table_col cols[] = { COLS('f') }, cols_human[] = { COLS('s') };
struct result {
    const char *status;
    int64_t changed, bits, distinct[2];
    double max_abs, max_rel;
    _Bool has_values, has_bits, has_distinct;
};

struct work {
    const struct ckpt *c[2];
    char *buf[2];               /* a piece of each, room for 8 bytes an element */
    int64_t room;               /* elements */
    struct progress *bar;
    uint64_t done;
};

/* ---- values as numbers */

static _Bool is_number(enum dtype t) { return t < DT_N && t != DT_F8_E4M3 && t != DT_F8_E5M2; }

static double value(const char *p, enum dtype t)
{
    union { uint64_t u64; int64_t i64; double f64; uint32_t u32; int32_t i32; float f32; uint16_t u16; int16_t i16;
            uint8_t u8; int8_t i8; } v;

    memcpy(&v, p, dtype_size(t));
    switch (t) {
    case DT_F32: return (double)v.f32;
    case DT_BF16: return (double)dtype_from_bf16(v.u16);
    case DT_F16: return (double)dtype_from_f16(v.u16);
    case DT_F64: return v.f64;
    case DT_I64: return (double)v.i64;
    case DT_U64: return (double)v.u64;
    case DT_I32: return v.i32;
    case DT_U32: return v.u32;
    case DT_I16: return v.i16;
    case DT_U16: return v.u16;
    case DT_I8: return v.i8;
    default: return v.u8;
    }
}

static void note_values(struct result *r, double a, double b)
{
    double d = fabs(a - b), scale = fmax(fabs(a), fabs(b)), rel = d / scale;

    if (a == b)
        return;                 /* 0 and -0, or the same number in two types */
    if (!(d <= r->max_abs))
        r->max_abs = isnan(r->max_abs) ? r->max_abs : d;
    if (!(rel <= r->max_rel))
        r->max_rel = isnan(r->max_rel) ? r->max_rel : rel;
}

static _Bool differ(double a, double b) { return !(a == b) && !(isnan(a) && isnan(b)); }

static void compare_bytes(struct result *r, const char *a, const char *b, int64_t n, size_t size, enum dtype t)
{
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = n - at < BLOCK ? n : at + BLOCK;

        if (memcmp(a + (size_t)at * size, b + (size_t)at * size, (size_t)(end - at) * size) == 0)
            continue;
        for (int64_t i = at; i < end; i++) {
            const char *pa = a + (size_t)i * size, *pb = b + (size_t)i * size;

            if (memcmp(pa, pb, size) == 0)
                continue;
            r->changed++;
            for (size_t k = 0; k < size; k++)
                r->bits += __builtin_popcount((unsigned char)(pa[k] ^ pb[k]));
            if (is_number(t))
                note_values(r, value(pa, t), value(pb, t));
        }
    }
}

static void compare_numbers(struct result *r, const char *a, enum dtype ta, const char *b, enum dtype tb, int64_t n)
{
    size_t sa = dtype_size(ta), sb = dtype_size(tb);

    for (int64_t i = 0; i < n; i++) {
        double x = value(a + (size_t)i * sa, ta), y = value(b + (size_t)i * sb, tb);

        if (differ(x, y)) {
            r->changed++;
            note_values(r, x, y);
        }
    }
}

static int by_value(const void *pa, const void *pb)
{
    uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

    return (a > b) - (a < b);
}

/* Distinct values; -1 when there is no memory to count them. */
static int64_t distinct(const char *p, enum dtype t, int64_t n)
{
    uint64_t *v = malloc((size_t)n * sizeof *v);
    int64_t count = 0;

    if (!v)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        double x = value(p + (size_t)i * dtype_size(t), t);

        memcpy(&v[i], &x, sizeof x);
    }
    qsort(v, (size_t)n, sizeof *v, by_value);
    for (int64_t i = 0; i < n; i++)
        count += i == 0 || v[i] != v[i - 1];
    free(v);
    return count;
}

/* ---- tensors */

static int read_piece(struct work *w, int side, const struct ckpt_tensor *t, uint64_t first, uint64_t n)
{
    w->done += n;
    if (w->bar)
        progress_set(w->bar, w->done);
    return ckpt_read(w->c[side], t, first, (size_t)n, w->buf[side]);
}

/* Types whose elements are no whole bytes, or that are not known here. */
static int compare_opaque(struct work *w, const struct ckpt_tensor *a, const struct ckpt_tensor *b, struct result *r)
{
    uint64_t most = 8 * (uint64_t)w->room;

    r->status = strcmp(a->type, b->type) ? "type" : "same";
    if (strcmp(a->type, b->type))
        return 0;
    r->has_bits = 1;
    for (uint64_t at = 0, n; at < a->bytes; at += n) {
        n = a->bytes - at < most ? a->bytes - at : most;
        TRY(read_piece(w, 0, a, at, n));
        TRY(read_piece(w, 1, b, at, n));
        compare_bytes(r, w->buf[0], w->buf[1], (int64_t)n, 1, DT_N);
    }
    if (r->changed)
        r->status = "differs";
    return 0;
}

static int compare(struct work *w, const struct ckpt_tensor *a, const struct ckpt_tensor *b, struct result *r)
{
    _Bool same_type = !strcmp(a->type, b->type), same_shape = a->n_dims == b->n_dims;
    int64_t count = ckpt_cmds_count(a);
    size_t sa, sb;

    *r = (struct result){ .status = "same" };
    for (int i = 0; same_shape && i < a->n_dims; i++)
        same_shape = a->shape[i] == b->shape[i];
    if (!same_shape) {
        r->status = "shape";
        return 0;
    }
    if (a->dtype == DT_N || b->dtype == DT_N || (!same_type && !(is_number(a->dtype) && is_number(b->dtype))))
        return compare_opaque(w, a, b, r);
    sa = dtype_size(a->dtype);
    sb = dtype_size(b->dtype);
    r->has_values = is_number(a->dtype);
    r->has_bits = same_type;
    for (int64_t at = 0, n; at < count; at += n) {
        n = count - at < w->room ? count - at : w->room;
        TRY(read_piece(w, 0, a, (uint64_t)at * sa, (uint64_t)n * sa));
        TRY(read_piece(w, 1, b, (uint64_t)at * sb, (uint64_t)n * sb));
        if (same_type)
            compare_bytes(r, w->buf[0], w->buf[1], n, sa, a->dtype);
        else
            compare_numbers(r, w->buf[0], a->dtype, w->buf[1], b->dtype, n);
    }
    if ((r->changed || !same_type) && r->has_values && count <= DISTINCT_MAX && count <= w->room) {
        r->distinct[0] = distinct(w->buf[0], a->dtype, count);
        r->distinct[1] = distinct(w->buf[1], b->dtype, count);
        r->has_distinct = r->distinct[0] >= 0 && r->distinct[1] >= 0;
    }
    r->status = r->changed ? "differs" : same_type ? "same" : "type";
    return 0;
}

static void put_int(struct table *t, _Bool has, int64_t v)
{
    if (has)
        table_int(t, v);
    else
        table_none(t);
}

static void put_num(struct table *t, _Bool human, double v)
{
    char text[32];

    if (human) {
        snprintf(text, sizeof text, "%.3g", v);
        table_str(t, text);
    } else {
        table_num(t, v);
    }
}

static void row(struct table *t, _Bool human, const char *name, const struct ckpt_tensor *a, const struct ckpt_tensor *b, const struct result *r)
{
    table_str(t, name);
    table_str(t, r->status);
    if (a) table_str(t, a->type); else table_none(t);
    if (b) table_str(t, b->type); else table_none(t);
    table_int(t, ckpt_cmds_count(a ? a : b));
    put_int(t, r->has_values || r->has_bits, r->changed);
    if (r->has_values) {
        put_num(t, human, r->max_abs);
        put_num(t, human, r->max_rel);
    } else {
        table_none(t);
        table_none(t);
    }
    put_int(t, r->has_bits, r->bits);
    put_int(t, r->has_distinct, r->distinct[0]);
    put_int(t, r->has_distinct, r->distinct[1]);
    put_int(t, r->has_distinct, r->distinct[0] > r->distinct[1] ? r->distinct[0] - r->distinct[1] : 0);
}

struct counts { int64_t same, others, shown; _Bool optim, human; };

static int compare_all(const struct diff *o, struct work *w, struct table *t, struct counts *n)
{
    static const struct result only_a = { .status = "only-a" }, only_b = { .status = "only-b" };

    for (int64_t i = 0; i < ckpt_n_tensors(w->c[0]); i++) {
        const struct ckpt_tensor *a = ckpt_tensor(w->c[0], i), *b = ckpt_find(w->c[1], a->name);
        struct result r = only_a;

        if (a->is_optim && !n->optim)
            continue;
        if (b)
            TRY(compare(w, a, b, &r));
        if (!strcmp(r.status, "same"))
            n->same++;
        else
            n->others++;
        if (o->all || strcmp(r.status, "same")) {
            row(t, n->human, a->name, a, b, &r);
            n->shown++;
        }
    }
    for (int64_t i = 0; i < ckpt_n_tensors(w->c[1]); i++) {
        const struct ckpt_tensor *b = ckpt_tensor(w->c[1], i);

        if ((b->is_optim && !n->optim) || ckpt_find(w->c[0], b->name))
            continue;
        row(t, n->human, b->name, NULL, b, &only_b);
        n->others++;
        n->shown++;
    }
    return 0;
}

static _Bool has_optim(const struct ckpt *c)
{
    int64_t n = ckpt_n_tensors(c);

    return n && ckpt_tensor(c, n - 1)->is_optim;        /* they come last */
}

static uint64_t all_bytes(const struct ckpt *c, _Bool optim)
{
    uint64_t n = 0;

    for (int64_t i = 0; i < ckpt_n_tensors(c); i++)
        n += ckpt_tensor(c, i)->is_optim && !optim ? 0 : ckpt_tensor(c, i)->bytes;
    return n;
}

static int diff(void *options, int argc, char **argv)
{
    const struct diff *o = options;
    struct counts n = { 0 };
    struct ckpt *c[2] = { NULL, NULL };
    struct work w = { 0 };
    struct table *t = NULL;
    enum table_form form;
    char same[32], others[32];
    int rc, table_rc;

    (void)argc;
    TRY(ckpt_cmds_form(o->json, o->tsv, &form));
    TRY_OUT(rc, ckpt_cmds_open(argv[0], &c[0]));
    TRY_OUT(rc, ckpt_cmds_open(argv[1], &c[1]));
    n.optim = !o->model && has_optim(c[0]) && has_optim(c[1]);
    if (!o->model && has_optim(c[0]) != has_optim(c[1]))
        log_info("%s has no optimizer state: only the model is compared", ckpt_path(c[has_optim(c[0])]));
    w.c[0] = c[0];
    w.c[1] = c[1];
    w.room = ckpt_manifest(c[0]) || ckpt_manifest(c[1]) ? PIECE_HASHED : PIECE_PLAIN;
    for (int i = 0; i < 2; i++)
        if (!(w.buf[i] = malloc(8 * (size_t)w.room))) {
            rc = err_set(ERR_IO, "no memory for %" PRId64 " values", w.room);
            goto out;
        }
    w.bar = progress_begin("diff", all_bytes(c[0], n.optim) + all_bytes(c[1], n.optim), "B");
    n.human = form == TABLE_HUMAN;
    t = table_begin(form, "moe.ckpt-diff/1", n.human ? cols_human : cols, sizeof cols / sizeof *cols);
    rc = compare_all(o, &w, t, &n);
    progress_end(w.bar);
    if (form == TABLE_HUMAN && rc == 0 && !n.shown && n.same)
        rc = out_printf("identical: %s tensor%s\n", units_count(same, n.same), n.same == 1 ? "" : "s");
    table_rc = n.shown || form != TABLE_HUMAN || rc < 0 ? table_end(t) : 0;
    if (rc == 0)
        rc = table_rc;
    if (rc == 0 && n.others)
        rc = err_set(ERR_NO, "%s and %s differ: %s of %s tensors", ckpt_path(c[0]), ckpt_path(c[1]),
                     units_count(others, n.others), units_count(same, n.others + n.same));
out:
    free(w.buf[0]);
    free(w.buf[1]);
    ckpt_close(c[0]);
    ckpt_close(c[1]);
    return rc;
}

const struct opt_cmd ckpt_diff_cmd = {
    "diff", "compare the tensors of two checkpoints", "[-am] [--json | --tsv] CKPT CKPT",
    "moe-ckpt diff runs/a runs/b\n"
    "moe-ckpt diff --tsv runs/a/ckpt/step-00000100 runs/a/ckpt/step-00000200 | sort -t '\t' -gk7\n",
    opts, sizeof(struct diff), 2, 2, diff
};
