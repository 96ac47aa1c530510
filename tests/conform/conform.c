/* conform.c -- runs the list on a device and compares with ref.
 *
 * usage: conform [--device NAME] [--seed N] [--list] [FILTER]
 * Without --device every device that is built in is run.  One line per
 * failure, then "N passed, N failed, N skipped"; status 1 when something
 * failed or nothing passed. */
#include "conform.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/rng.h"
#include "dev/trace.h"
#include "plant.h"

enum { GUARD = 64, MAX_THREADS = 3 };

static const unsigned char canary = 0xa5;

struct slab { char *base; size_t bytes; struct mat m; _Bool is_input; char *copy; };

struct out {
    struct mat m;
    struct tol t;
    double u;
    char name[96];
};

struct conform_case { char name[96]; conform_fn *run; const void *arg; };

struct conform_list { struct conform_case *v; int n, cap; };

/* One run of one case on one device. */
struct conform {
    struct dev *dev;
    struct arena *arena;
    struct rng_key key;
    uint64_t n_drawn;
    struct slab *slabs;
    struct out *outs;
    int n_slabs, cap_slabs, n_outs, cap_outs;
    _Bool tracing, skipped;
    char failure[512];
};

/* ---- the list */

void conform_add(struct conform_list *l, conform_fn *run, const void *arg, const char *name, ...)
{
    struct conform_case *k;
    va_list ap;

    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->v = realloc(l->v, (size_t)l->cap * sizeof *l->v);
        BUG_ON(!l->v);
    }
    k = &l->v[l->n++];
    k->run = run;
    k->arg = arg;
    va_start(ap, name);
    vsnprintf(k->name, sizeof k->name, name, ap);
    va_end(ap);
}

/* ---- inputs */

/* Asked for right before an op, so this is where inputs have their final
 * content and are remembered. */
struct dev *conform_dev(struct conform *c)
{
    for (int i = 0; i < c->n_slabs; i++) {
        struct slab *s = &c->slabs[i];
        if (!s->is_input || s->copy)
            continue;
        s->copy = arena_alloc(c->arena, s->bytes);
        memcpy(s->copy, s->base, s->bytes);
    }
    return c->dev;
}

_Bool conform_takes(struct conform *c, enum dtype dt)
{
    if (!c->dev->ops->takes(dt))
        c->skipped = 1;
    return !c->skipped;
}

double conform_draw(struct conform *c)
{
    return rng_uniform(c->key, c->n_drawn++);
}

int conform_draw_int(struct conform *c, int lo, int hi)
{
    return lo + (int)(conform_draw(c) * (hi - lo + 1));
}

static void *grow(struct conform *c, void *items, int n, int *cap, size_t size)
{
    void *grown;

    if (n < *cap)
        return items;
    *cap = *cap ? 2 * *cap : 16;
    grown = arena_array(c->arena, (size_t)*cap, size);
    if (n)
        memcpy(grown, items, (size_t)n * size);
    return grown;
}

static double get(struct mat m, int64_t r, int64_t col)
{
    int64_t at = r * m.ld + col;

    switch (m.dt) {
    case DT_F32:
        return (double)((const float *)m.p)[at];
    case DT_F64:
        return ((const double *)m.p)[at];
    case DT_BF16:
        return (double)dtype_from_bf16(((const uint16_t *)m.p)[at]);
    default:
        BUG_ON(m.dt != DT_F32);
        return 0;
    }
}

void conform_set(struct mat m, int64_t r, int64_t col, double v)
{
    int64_t at = r * m.ld + col;

    if (m.dt == DT_F64)
        ((double *)m.p)[at] = v;
    else if (m.dt == DT_F32)
        ((float *)m.p)[at] = (float)v;
    else
        ((uint16_t *)m.p)[at] = dtype_to_bf16((float)v);
}

static double draw_fill(struct conform *c, enum fill fill)
{
    double d = conform_draw(c);

    switch (fill) {
    case FILL_UNIT:
        return 2 * d - 1;
    case FILL_AWAY:
        return d < 0.5 ? d * 2 - 1.5 : d * 2 - 0.5;
    case FILL_INT:
        return floor(d * 9) - 4;
    case FILL_WIDE:
        return 200 * d - 100;
    case FILL_NAN:
        break;
    }
    return NAN;
}

static struct slab *new_slab(struct conform *c, size_t bytes)
{
    struct slab *s;

    c->slabs = grow(c, c->slabs, c->n_slabs, &c->cap_slabs, sizeof *c->slabs);
    s = &c->slabs[c->n_slabs++];
    s->bytes = bytes + 2 * GUARD;
    s->base = arena_alloc(c->arena, s->bytes + GUARD);
    s->base += GUARD - (uintptr_t)s->base % GUARD;      /* 64-byte alignment */
    memset(s->base, canary, s->bytes);
    return s;
}

struct mat conform_mat(struct conform *c, enum dtype dt, int64_t rows, int64_t cols, int64_t pad, enum fill fill)
{
    int64_t ld = cols + pad;
    struct slab *s = new_slab(c, (size_t)(rows * ld) * dtype_size(dt));

    s->m = (struct mat){ s->base + GUARD, dt, rows, cols, ld };
    for (int64_t r = 0; r < rows; r++)
        for (int64_t col = 0; col < cols; col++)
            conform_set(s->m, r, col, draw_fill(c, fill));
    return s->m;
}

struct mat conform_in(struct conform *c, enum dtype dt, int64_t rows, int64_t cols, int64_t pad, enum fill fill)
{
    struct mat m = conform_mat(c, dt, rows, cols, pad, fill);
    struct slab *s = &c->slabs[c->n_slabs - 1];

    s->is_input = 1;
    return m;
}

void *conform_alloc(struct conform *c, size_t count, size_t size)
{
    struct slab *s = new_slab(c, count * size);

    s->m = mat(s->base + GUARD, DT_U8, 1, (int64_t)(count * size));
    memset(s->m.p, 0, count * size);
    return s->m.p;
}

/* ---- outputs */

static struct out *new_out(struct conform *c, struct mat m, struct tol t)
{
    struct out *o;

    c->outs = grow(c, c->outs, c->n_outs, &c->cap_outs, sizeof *c->outs);
    o = &c->outs[c->n_outs++];
    o->m = m;
    o->t = t;
    o->u = m.dt == DT_F64 ? 0x1p-53 : 0x1p-24;
    return o;
}

void conform_out(struct conform *c, struct mat m, struct tol t, const char *name, ...)
{
    struct out *o = new_out(c, m, t);
    va_list ap;

    va_start(ap, name);
    vsnprintf(o->name, sizeof o->name, name, ap);
    va_end(ap);
}

void conform_out_double(struct conform *c, const double *v, int64_t n, _Bool single, struct tol t, const char *name)
{
    struct out *o = new_out(c, mat((void *)(uintptr_t)v, DT_F64, 1, n), t);

    if (single)
        o->u = 0x1p-24;
    snprintf(o->name, sizeof o->name, "%s", name);
}

void conform_out_bits(struct conform *c, const void *p, size_t bytes, const char *name)
{
    struct out *o = new_out(c, mat((void *)(uintptr_t)p, DT_U8, 1, (int64_t)bytes), tol_exact());

    snprintf(o->name, sizeof o->name, "%s", name);
}

static void fail(struct conform *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The first failure of a run is kept. */
static void fail(struct conform *c, const char *fmt, ...)
{
    va_list ap;

    if (c->failure[0])
        return;
    va_start(ap, fmt);
    vsnprintf(c->failure, sizeof c->failure, fmt, ap);
    va_end(ap);
}

static const char *row_at(struct mat m, int64_t r)
{
    return (const char *)m.p + (size_t)(r * m.ld) * dtype_size(m.dt);
}

/* The first row whose bits differ, or -1. */
static int64_t first_difference(struct mat a, struct mat b)
{
    for (int64_t r = 0; r < a.rows; r++)
        if (memcmp(row_at(a, r), row_at(b, r), (size_t)a.cols * dtype_size(a.dt)) != 0)
            return r;
    return -1;
}

void conform_same(struct conform *c, struct mat a, struct mat b, const char *what, ...)
{
    char text[96];
    int64_t r;
    va_list ap;

    BUG_ON(a.rows != b.rows || a.cols != b.cols || a.dt != b.dt);
    if (c->tracing || (r = first_difference(a, b)) < 0)
        return;
    va_start(ap, what);
    vsnprintf(text, sizeof text, what, ap);
    va_end(ap);
    fail(c, "%s: bits of row %lld differ", text, (long long)r);
}

/* How far a value may be from that of ref. */
static double allowed(const struct out *o, double ref)
{
    double err = o->t.terms * o->u * fmax(fabs(ref), o->t.mag);

    if (o->t.terms == 0)
        return 0;
    /* An error below half a step can still push a bf16 over to the next one. */
    return o->m.dt == DT_BF16 ? err + 0x1p-7 * (fabs(ref) + err) : err;
}

static void compare_norm(struct conform *c, const struct out *got, const struct out *ref)
{
    double diff = 0, size = 0;

    for (int64_t r = 0; r < ref->m.rows; r++)
        for (int64_t k = 0; k < ref->m.cols; k++) {
            double a = get(got->m, r, k), b = get(ref->m, r, k);
            diff += (a - b) * (a - b);
            size += b * b;
        }
    if (!(sqrt(diff) <= ref->t.terms * sqrt(size)))
        fail(c, "%s: relative norm of the difference %.3g, allowed %.3g", ref->name, sqrt(diff / size), ref->t.terms);
}

static void compare_out(struct conform *c, const struct out *got, const struct out *ref)
{
    if (ref->m.dt == DT_U8) {
        if (memcmp(got->m.p, ref->m.p, (size_t)ref->m.cols) != 0)
            fail(c, "%s: bytes differ", ref->name);
        return;
    }
    if (ref->t.norm) {
        compare_norm(c, got, ref);
        return;
    }
    for (int64_t r = 0; r < ref->m.rows; r++)
        for (int64_t k = 0; k < ref->m.cols; k++) {
            double a = get(got->m, r, k), b = get(ref->m, r, k), lim = allowed(ref, b);
            if (isnan(b)) {
                fail(c, "%s[%lld][%lld]: ref itself gives NaN", ref->name, (long long)r, (long long)k);
                return;
            }
            if (!(fabs(a - b) <= lim) && a != b) {
                fail(c, "%s[%lld][%lld]: %.9g, ref %.9g, difference %.3g, allowed %.3g", ref->name,
                     (long long)r, (long long)k, a, b, fabs(a - b), lim);
                return;
            }
        }
}

/* ---- one run */

struct bench {                  /* a device with its scratch memory */
    struct dev dev;
    char *ws;                   /* with guards */
    size_t ws_bytes;
};

static const struct dev_limits limits = {
    .max_rows = 600, .max_cols = 1200, .n_heads = 8, .head_dim = 128, .ns_rows = 160, .ns_cols = 160,
};

static int open_bench(struct bench *b, const char *name, int threads)
{
    struct dev_options o = { .threads = threads };

    TRY(dev_open(name, &o, &b->dev));
    b->ws_bytes = b->dev.ops->ws_bytes(&b->dev, &limits);
    b->ws = aligned_alloc(GUARD, (b->ws_bytes + 2 * GUARD + GUARD - 1) / GUARD * GUARD);
    BUG_ON(!b->ws);
    b->dev.ws = b->ws + GUARD;
    b->dev.ws_size = b->ws_bytes;
    return 0;
}

static void close_bench(struct bench *b)
{
    dev_close(&b->dev);
    free(b->ws);
    b->ws = NULL;
}

static _Bool is_canary(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] != canary)
            return 0;
    return 1;
}

static void check_slab(struct conform *c, const struct slab *s)
{
    struct mat m = s->m;
    size_t size = dtype_size(m.dt);

    if (s->copy && memcmp(s->copy, s->base, s->bytes) != 0)
        fail(c, "an input [%lld][%lld] was changed", (long long)m.rows, (long long)m.cols);
    if (!is_canary(s->base, GUARD) || !is_canary(s->base + s->bytes - GUARD, GUARD))
        fail(c, "written outside a matrix [%lld][%lld]", (long long)m.rows, (long long)m.cols);
    for (int64_t r = 0; r < m.rows; r++)
        if (!is_canary(row_at(m, r) + (size_t)m.cols * size, (size_t)(m.ld - m.cols) * size))
            fail(c, "written between the rows of a matrix [%lld][%lld]", (long long)m.rows, (long long)m.cols);
}

static struct conform *run_case(const struct conform_case *k, struct bench *b, uint64_t seed, _Bool tracing)
{
    struct arena *a = arena_new();
    struct conform *c = arena_alloc(a, sizeof *c);

    c->arena = a;
    c->dev = &b->dev;
    c->key = rng_key(seed, k->name);
    c->tracing = tracing;
    if (b->ws) {
        memset(b->ws, canary, b->ws_bytes + 2 * GUARD);
        memset(b->ws + GUARD, 0xff, b->ws_bytes);       /* NaN */
    }
    k->run(c, k->arg);
    if (b->dev.ops->sync(&b->dev) < 0)
        fail(c, "%s", err_msg());
    for (int i = 0; i < c->n_slabs; i++)
        check_slab(c, &c->slabs[i]);
    if (b->ws && (!is_canary(b->ws, GUARD) || !is_canary(b->ws + GUARD + b->ws_bytes, GUARD)))
        fail(c, "written outside the scratch memory");
    return c;
}

static void free_run(struct conform *c)
{
    if (c)
        arena_free(c->arena);
}

static void compare_runs(struct conform *got, const struct conform *ref)
{
    BUG_ON(got->n_outs != ref->n_outs);
    for (int i = 0; i < ref->n_outs; i++)
        compare_out(got, &got->outs[i], &ref->outs[i]);
}

static void compare_threads(struct conform *got, const struct conform *one, int threads)
{
    for (int i = 0; i < one->n_outs; i++)
        if (first_difference(got->outs[i].m, one->outs[i].m) >= 0)
            fail(got, "%s: %d threads give other bits than 1", one->outs[i].name, threads);
}

struct tally { int passed, failed, skipped; _Bool quiet; };

static void report(struct tally *n, const char *device, const char *name, const char *failure)
{
    if (!failure[0]) {
        n->passed++;
        return;
    }
    n->failed++;
    if (!n->quiet)
        printf("FAIL %s: %s: %s\n", device, name, failure);
}

static void check_case(const struct conform_case *k, const char *device, struct bench *ref, struct bench *dev,
                       uint64_t seed, struct tally *n)
{
    struct conform *r = run_case(k, ref, seed, 0), *one = run_case(k, &dev[0], seed, 0);

    if (r->failure[0])
        fail(one, "ref: %s", r->failure);
    if (one->skipped) {
        n->skipped++;
    } else {
        compare_runs(one, r);
        for (int t = 2; t <= MAX_THREADS && !one->failure[0]; t++) {
            struct conform *more = run_case(k, &dev[t - 1], seed, 0);
            compare_threads(more, one, t);
            if (more->failure[0])
                fail(one, "%s", more->failure);
            free_run(more);
        }
        report(n, device, k->name, one->failure);
    }
    free_run(r);
    free_run(one);
}

/* ---- what no single case can see */

/* Entries of the table, by position: all have the size of a function pointer. */
struct entry { const char *name; size_t at; };

#define ENTRY(op) { #op, offsetof(struct dev_ops, op) }
static const struct entry entries[] = {
    ENTRY(takes), ENTRY(ws_bytes), ENTRY(sync), ENTRY(close),
    ENTRY(zero), ENTRY(copy), ENTRY(cast), ENTRY(add), ENTRY(scale),
    ENTRY(gemm), ENTRY(group_fwd), ENTRY(group_dgrad), ENTRY(group_wgrad),
    ENTRY(rmsnorm_fwd), ENTRY(rmsnorm_bwd), ENTRY(bias_fwd), ENTRY(bias_bwd), ENTRY(rope),
    ENTRY(attn_fwd), ENTRY(attn_bwd), ENTRY(swiglu_fwd), ENTRY(swiglu_bwd), ENTRY(sigmoid_fwd), ENTRY(sigmoid_bwd),
    ENTRY(router_fwd), ENTRY(router_bwd), ENTRY(route_sort), ENTRY(rows_gather), ENTRY(rows_combine),
    ENTRY(slots_to_rows), ENTRY(rows_to_slots),
    ENTRY(embed_fwd), ENTRY(embed_bwd), ENTRY(xent), ENTRY(sum),
    ENTRY(sumsq), ENTRY(adamw), ENTRY(muon_momentum), ENTRY(newton_schulz), ENTRY(muon_apply),
};
#undef ENTRY

enum { N_ENTRIES = sizeof entries / sizeof *entries };

typedef void entry_fn(void);

_Static_assert(sizeof(struct dev_ops) == sizeof(char *) + N_ENTRIES * sizeof(entry_fn *),
               "every entry of struct dev_ops stands in the list above");

static entry_fn *entry_of(const struct dev_ops *ops, size_t at)
{
    entry_fn *f;

    memcpy(&f, (const char *)ops + at, sizeof f);
    return f;
}

/* A device that borrows an op of ref would pass every comparison. */
static void check_own(const char *device, const struct dev_ops *ops, const struct dev_ops *ref, const char *filter,
                      struct tally *n)
{
    for (int i = 0; i < N_ENTRIES; i++) {
        char name[64];
        entry_fn *f = entry_of(ops, entries[i].at);
        snprintf(name, sizeof name, "own %s", entries[i].name);
        if (filter && !strstr(name, filter))
            continue;
        report(n, device, name, !f ? "the entry is empty" :
               ops != ref && f == entry_of(ref, entries[i].at) ? "the entry is ref's own" : "");
    }
}

/* Runs the list on trace: fails when an op has no case. */
static void check_coverage(const struct conform_list *l, struct bench *ref, struct tally *n)
{
    struct bench b = { 0 };
    const struct trace_count *rows;
    int n_rows, n_ops = N_ENTRIES - 4;

    BUG_ON(trace_open(&ref->dev, &b.dev) < 0);
    for (int i = 0; i < l->n; i++)
        free_run(run_case(&l->v[i], &b, 1, 1));
    n_rows = trace_counts(&b.dev, &rows);
    report(n, "list", "every op has a case", n_rows == n_ops ? "" : "an op of the table is never called");
    dev_close(&b.dev);
}

/* Runs the list on ref with one entry broken: it must fail. */
static void check_plants(const struct conform_list *l, struct bench *ref, uint64_t seed, struct tally *n)
{
    plant_over(ref->dev.ops);
    for (const struct plant *p = plants; p->name; p++) {
        struct tally found = { .quiet = 1 };
        struct dev_ops broken = *ref->dev.ops;
        struct bench dev[MAX_THREADS];
        char name[128];

        p->apply(&broken);
        for (int t = 0; t < MAX_THREADS; t++) {
            dev[t] = *ref;              /* one after another, so they can share the scratch */
            dev[t].dev.ops = &broken;
            dev[t].dev.threads = t + 1;
        }
        for (int i = 0; i < l->n; i++)
            if (strstr(l->v[i].name, p->filter))
                check_case(&l->v[i], "planted", ref, dev, seed, &found);
        snprintf(name, sizeof name, "the list notices when %s", p->name);
        report(n, "list", name, found.failed ? "" : "nothing failed");
    }
}

/* ---- the program */

static int run_device(const char *device, const struct conform_list *l, uint64_t seed, const char *filter,
                      struct tally *n)
{
    struct bench ref = { 0 }, dev[MAX_THREADS] = { 0 };
    int rc, skipped = n->skipped;

    TRY_OUT(rc, open_bench(&ref, "ref", 1));
    for (int t = 0; t < MAX_THREADS; t++)
        TRY_OUT(rc, open_bench(&dev[t], device, t + 1));
    check_own(device, dev[0].dev.ops, ref.dev.ops, filter, n);
    if (!filter && !strcmp(device, "ref")) {
        check_coverage(l, &ref, n);
        check_plants(l, &ref, seed, n);
    }
    for (int i = 0; i < l->n; i++)
        if (!filter || strstr(l->v[i].name, filter))
            check_case(&l->v[i], device, &ref, dev, seed, n);
    if (n->skipped > skipped)
        printf("SKIP %s: %d cases: the device takes no%s%s%s\n", device, n->skipped - skipped,
               dev[0].dev.ops->takes(DT_F32) ? "" : " F32", dev[0].dev.ops->takes(DT_F64) ? "" : " F64",
               dev[0].dev.ops->takes(DT_BF16) ? "" : " BF16");
    rc = 0;
out:
    close_bench(&ref);
    for (int t = 0; t < MAX_THREADS; t++)
        close_bench(&dev[t]);
    return rc;
}

/* Name, flops and bytes of each case. */
static int list_cases(const struct conform_list *l, const char *filter)
{
    struct bench ref = { 0 }, b = { 0 };

    TRY(open_bench(&ref, "ref", 1));
    BUG_ON(trace_open(&ref.dev, &b.dev) < 0);
    for (int i = 0; i < l->n; i++) {
        const struct trace_count *rows;
        double flops = 0, bytes = 0;
        if (filter && !strstr(l->v[i].name, filter))
            continue;
        trace_reset(&b.dev);
        free_run(run_case(&l->v[i], &b, 1, 1));
        for (int k = trace_counts(&b.dev, &rows); k-- > 0;) {
            flops += rows[k].flops;
            bytes += rows[k].bytes;
        }
        printf("%s\t%.0f\t%.0f\n", l->v[i].name, flops, bytes);
    }
    dev_close(&b.dev);
    close_bench(&ref);
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: conform [--device NAME] [--seed N] [--list] [FILTER]\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *device = NULL, *filter = NULL;
    struct conform_list l = { 0 };
    struct tally n = { 0 };
    uint64_t seed = 1;
    _Bool list = 0;
    int rc = 0;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--list"))
            list = 1;
        else if (!strcmp(argv[i], "--device") && i + 1 < argc)
            device = argv[++i];
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (argv[i][0] != '-' && !filter)
            filter = argv[i];
        else
            return usage();
    }
    cases_move(&l);
    cases_gemm(&l);
    cases_rows(&l);
    cases_attn(&l);
    cases_router(&l);
    cases_route(&l);
    cases_ends(&l);
    cases_optim(&l);
    if (list) {
        rc = list_cases(&l, filter);
    } else if (device) {
        rc = run_device(device, &l, seed, filter, &n);
    } else {
        for (const char *const *d = dev_names(); *d && rc >= 0; d++)
            rc = run_device(*d, &l, seed, filter, &n);
    }
    free(l.v);
    if (rc < 0) {
        fprintf(stderr, "conform: %s\n", err_msg());
        return err_status(rc);
    }
    if (list)
        return 0;
    printf("%d passed, %d failed, %d skipped\n", n.passed, n.failed, n.skipped);
    return n.failed || !n.passed;
}
