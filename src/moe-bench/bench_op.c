/* bench_op.c -- moe-bench op: every op of a device at the sizes of two models, beside
 * the device's own peak and the reference device.
 *
 * Times are of this process on this machine while others may run: the median
 * and the best of several calls are both printed, and the yardsticks are
 * measured in the same run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/table.h"
#include "dev/peak.h"

enum { RUNS_MIN = 5, RUNS_MAX = 1000 };
#define SPAN_S 0.1

struct op_opts {
    struct opt_common common;
    const char *device, *dtype, *size;
    int64_t threads, runs;
    _Bool no_ref, tsv, json;
};

#define AT(field) offsetof(struct op_opts, field)
static const struct opt op_table[] = {
    OPT_COMMON,
    { OPT_STR, 'd', "device", "NAME", "cpu", "device to time", AT(device), 0, 0 },
    { OPT_CHOICE, 0, "dtype", "f32", "f32", "storage type of the operands", AT(dtype), 0, 0 },
    { OPT_CHOICE, 0, "size", "demo|large|all", "demo", "model that sizes the operands", AT(size), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads of the device; 0: all cores it may use", AT(threads), 0, 1024 },
    { OPT_INT, 'n', "runs", "N", "0", "calls timed for each row; 0: 0.1 s worth, at least 5", AT(runs), 0, 1e6 },
    { OPT_FLAG, 0, "no-ref", NULL, NULL, "leave the reference device out", AT(no_ref), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "print tab-separated values", AT(tsv), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "print one JSON object a line", AT(json), 0, 0 },
    OPT_END
};

static const struct bench_dims sizes[] = {
    { "demo", 4096, 256, 256, 4, 2, 64, 16, 2, 128, 8192, 512, 48 },
    { "large", 4096, 1024, 1024, 16, 4, 64, 32, 4, 512, 32768, 256, 8 },
};
/* The reference runs at about 1 GFLOP/s and on one thread, so it is given a
 * demo of 256 tokens; the ratio is that of both devices on this size. */
static const struct bench_dims ref_size = { "ref", 256, 256, 256, 4, 2, 64, 16, 2, 128, 8192, 32, 1 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double once(const struct bench_case *op, struct bench_job *j)
{
    double t = clock_s();

    op->run(j);
    j->d->ops->sync(j->d);
    return clock_s() - t;
}

struct timing { double median, min; };

/* A call of a microsecond is timed in a group, so that the clock does not
 * count; the first call warms up and tells how long one takes. */
static struct timing timed(const struct bench_case *op, struct bench_job *j, int64_t runs)
{
    static double t[RUNS_MAX];
    double first = once(op, j), start = clock_s();
    int group = first < 2e-5 ? 50 : 1, n = 0;

    while (n < RUNS_MAX && (runs ? n < runs : n < RUNS_MIN || clock_s() - start < SPAN_S)) {
        double sum = 0;
        for (int i = 0; i < group; i++)
            sum += once(op, j);
        t[n++] = sum / group;
        if (!runs && n >= RUNS_MIN && clock_s() - start > 10 * SPAN_S)
            break;
    }
    qsort(t, (size_t)n, sizeof *t, ascending);
    return (struct timing){ t[n / 2], t[0] };
}

static int prepare(struct bench_job *j, struct dev *d, const struct bench_case *op, const struct bench_dims *dim, struct arena *a)
{
    struct dev_limits lim = bench_limits(dim);

    *j = (struct bench_job){ .d = d, .dim = *dim, .arena = a, .variant = op->variant };
    d->ws_size = d->ops->ws_bytes(d, &lim);
    char *ws = arena_alloc(a, d->ws_size + 64);
    d->ws = ws + (64 - (uintptr_t)ws % 64) % 64;
    op->setup(j);
    return d->ops->sync(d);
}

/* The same op on both devices at ref_size: the reference's seconds and the ratio. */
static int versus(struct dev *d, struct dev *ref, const struct bench_case *op, char *size, size_t len, double *ref_s, double *ratio)
{
    struct arena *a = arena_new();
    struct bench_job j;
    int rc;

    TRY_OUT(rc, prepare(&j, ref, op, &ref_size, a));
    once(op, &j);
    *ref_s = once(op, &j);
    snprintf(size, len, "%s", j.size);
    TRY_OUT(rc, prepare(&j, d, op, &ref_size, a));
    *ratio = *ref_s / timed(op, &j, 9).median;
out:
    arena_free(a);
    return rc;
}

static const struct table_col columns[] = {
    { "model", "model", 's', 0 },
    { "op", "op", 's', 0 },
    { "size", "size", 's', 0 },
    { "ms", "ms", 'f', 3 },
    { "min_ms", "min ms", 'f', 3 },
    { "gflops", "GFLOP/s", 'f', 1 },
    { "gbs", "GB/s", 'f', 1 },
    { "peak_share", "% of peak", 'f', 0 },
    { "ref_size", "ref size", 's', 0 },
    { "ref_ms", "ref ms", 'f', 3 },
    { "ref_ratio", "ref/this", 'f', 0 },
};

static void number(struct table *t, _Bool there, double v)
{
    if (there)
        table_num(t, v);
    else
        table_none(t);
}

static int row(struct table *t, struct dev *d, struct dev *ref, const struct bench_case *op, const struct bench_dims *dim,
               const struct op_opts *o, double gemm_peak, double copy_peak)
{
    struct arena *a = arena_new();
    struct bench_job j;
    char size[64] = "";
    double ref_s = 0, ratio = 0;
    int rc;

    TRY_OUT(rc, prepare(&j, d, op, dim, a));
    struct timing s = timed(op, &j, o->runs);
    TRY_OUT(rc, d->ops->sync(d));
    if (ref)
        TRY_OUT(rc, versus(d, ref, op, size, sizeof size, &ref_s, &ratio));
    double gflops = 1e-9 * j.flops / s.median, gbs = 1e-9 * j.bytes / s.median;
    double share = 100 * (j.flops > 0 ? gflops / gemm_peak : gbs / copy_peak);
    table_str(t, dim->name);
    table_str(t, op->name);
    table_str(t, j.size);
    table_num(t, 1e3 * s.median);
    table_num(t, 1e3 * s.min);
    number(t, j.flops > 0, gflops);
    number(t, j.flops == 0, gbs);
    number(t, gemm_peak > 0 && copy_peak > 0, share);
    if (ref)
        table_str(t, size);
    else
        table_none(t);
    number(t, ref != NULL, 1e3 * ref_s);
    number(t, ref != NULL, ratio);
out:
    arena_free(a);
    return rc;
}

static _Bool wanted(const char *name, int n, char **names)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(name, names[i]))
            return 1;
    return n == 0;
}

static int check_names(int n, char **names)
{
    for (int i = 0; i < n; i++) {
        int found = 0;
        for (int k = 0; k < bench_n_cases; k++)
            found |= !strcmp(bench_cases[k].name, names[i]);
        if (!found)
            return err_set(ERR_USAGE, "no op is called \"%s\"; moe-bench(1) lists them", names[i]);
    }
    return 0;
}

static int run_op(void *opts, int argc, char **argv)
{
    const struct op_opts *o = opts;
    struct dev_options dev_opts = { .threads = (int)o->threads };
    struct dev d = { 0 }, ref = { 0 };
    struct table *t = NULL;
    int rc;

    TRY(check_names(argc, argv));
    if (o->tsv && o->json)
        return err_set(ERR_USAGE, "--tsv and --json exclude each other");
    TRY(dev_open(o->device, &dev_opts, &d));
    _Bool with_ref = !o->no_ref && strcmp(o->device, "ref") != 0;
    if (with_ref)
        TRY_OUT(rc, dev_open("ref", NULL, &ref));
    double gemm = dev_gemm_peak(&d), copy = dev_copy_peak(&d);
    log_info("device %s: %s%s%d thread%s; own gemm %.0f GFLOP/s, copy %.1f GB/s", o->device, d.about ? d.about : "",
             d.about ? ", " : "", d.threads, d.threads == 1 ? "" : "s", gemm, copy);
    t = table_begin(o->json ? TABLE_JSON : o->tsv ? TABLE_TSV : TABLE_HUMAN, "moe.bench-op/1", columns,
                    sizeof columns / sizeof *columns);
    rc = 0;
    for (size_t s = 0; rc == 0 && s < sizeof sizes / sizeof *sizes; s++) {
        if (strcmp(o->size, "all") != 0 && strcmp(o->size, sizes[s].name) != 0)
            continue;
        /* The reference size is that of the demo's model. */
        struct dev *beside = with_ref && s == 0 ? &ref : NULL;
        for (int i = 0; rc == 0 && i < bench_n_cases; i++)
            if (wanted(bench_cases[i].name, argc, argv))
                rc = row(t, &d, beside, &bench_cases[i], &sizes[s], o, gemm, copy);
    }
out:
    if (t) {
        int end = table_end(t);
        rc = rc < 0 ? rc : end;
    }
    dev_close(&ref);
    dev_close(&d);
    return rc;
}

const struct opt_cmd bench_op_cmd = {
    .name = "op",
    .summary = "time every op of a device",
    .synopsis = "[options] [OP...]",
    .examples = "moe-bench op\n"
                "moe-bench op -n 20 gemm group_fwd group_wgrad\n"
                "moe-bench op --no-ref --tsv adamw xent > ops.tsv",
    .opts = op_table,
    .opts_size = sizeof(struct op_opts),
    .min_operands = 0,
    .max_operands = -1,
    .run = run_op,
};
