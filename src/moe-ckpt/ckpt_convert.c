/* ckpt_convert.c -- moe-ckpt convert: a model in another type or another family's words. */
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/progress.h"
#include "base/units.h"
#include "base/version.h"
#include "ckpt/convert.h"

#include "ckpt_cmds.h"

struct opts { struct opt_common common; const char *family, *dtype; int64_t shard; _Bool force, json; };

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace a directory that moe-ckpt wrote", offsetof(struct opts, force), 0, 0 },
    { OPT_CHOICE, 0, "to", "same|" MODEL_TYPE_WORDS, "same", "family to write", offsetof(struct opts, family), 0, 0 },
    { OPT_CHOICE, 'd', "dtype", "keep|f32|bf16|f16", "keep", "type of the weights", offsetof(struct opts, dtype), 0, 0 },
    { OPT_INT, 0, "shard-size", "BYTES", "5G", "tensor bytes in one file at most", offsetof(struct opts, shard), 1, 9e15 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object", offsetof(struct opts, json), 0, 0 },
    OPT_END
};

static const struct table_col cols[] = {
    { "path", "path", 's', 0 }, { "model_type", "family", 's', 0 }, { "dtype", "dtype", 's', 0 }, { "current", "current", '?', 0 },
    { "tensors", "tensors", 'i', 0 }, { "files", "files", 'i', 0 }, { "bytes", "bytes", 'b', 0 }, { "seconds", "seconds", 'f', 3 },
};

static void note(void *ctx, const char *sentence)
{
    (void)ctx;
    log_info("%s", sentence);
}

static void progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress **bar = ctx;

    if (!*bar)
        *bar = progress_begin("convert", total, "B");
    progress_set(*bar, done);
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static int family_of(const char *word)
{
    for (int i = 0; i < MODEL_TYPE_N; i++)
        if (!strcmp(model_type_name(i), word))
            return i;
    return MODEL_TYPE_N;
}

static int report(const struct opts *o, const struct convert *v, double seconds)
{
    char bytes[32], rate[32], n[32];
    struct table *t;

    if (o->json) {
        t = table_begin(TABLE_JSON, "moe.ckpt-convert/1", cols, sizeof cols / sizeof *cols);
        table_str(t, v->to);
        table_str(t, v->was_current ? NULL : model_type_name(v->family_written));
        table_str(t, v->was_current ? NULL : dtype_name(v->dtype_written));
        table_int(t, v->was_current);
        table_int(t, v->n_tensors);
        table_int(t, v->n_files);
        table_int(t, (int64_t)v->bytes);
        table_num(t, seconds);
        return table_end(t);
    }
    if (v->was_current)
        log_info("%s: up to date", v->to);
    else
        log_info("%s: %s, %s: %s tensors in %d file%s, %s in %.2f s (%s/s)", v->to, model_type_name(v->family_written),
                 dtype_name(v->dtype_written), units_count(n, v->n_tensors), v->n_files, v->n_files == 1 ? "" : "s",
                 units_bytes(bytes, (double)v->bytes), seconds, units_bytes(rate, (double)v->bytes / (seconds > 1e-6 ? seconds : 1e-6)));
    return 0;
}

static int convert(void *options, int argc, char **argv)
{
    static const struct { const char *word; enum dtype t; } types[] = { { "f32", DT_F32 }, { "bf16", DT_BF16 }, { "f16", DT_F16 } };
    const struct opts *o = options;
    struct progress *bar = NULL;
    struct arena *a = arena_new();
    int n_args;
    struct convert v = {
        .to = argv[1], .replace = o->force, .family = family_of(o->family), .dtype = DT_N, .shard_bytes = (uint64_t)o->shard,
        .tool = arena_printf(a, "moe-ckpt %s", moe_version), .argv = (const char *const *)opt_argv(&n_args),
        .note = note, .progress = progress, .ctx = &bar,
    };
    struct ckpt *c = NULL;
    double start = now();
    int rc;

    (void)argc;
    v.argc = n_args;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].word, o->dtype))
            v.dtype = types[i].t;
    TRY_OUT(rc, ckpt_cmds_open(argv[0], &c));
    rc = convert_run(c, &v);
    if (bar)
        progress_end(bar);
    if (rc == 0)
        rc = report(o, &v, now() - start);
out:
    ckpt_close(c);
    arena_free(a);
    return rc;
}

const struct opt_cmd ckpt_convert_cmd = {
    "convert", "write a model in another type, layout or family", "[-f] [-d TYPE] [--to FAMILY] [--shard-size BYTES] [--json] CKPT DIR",
    "moe-ckpt convert --dtype bf16 runs/a/latest hf\n"
    "moe-ckpt convert --dtype f32 hf model\n",
    opts, sizeof(struct opts), 2, 2, convert
};
