/* ckpt_convert.c -- moe-ckpt convert: a model in another type or another family's words. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
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

static void note(void *ctx, const char *sentence)
{
    (void)ctx;
    log_info("%s", sentence);
}

static int family_of(const char *word)
{
    for (int i = 0; i < MODEL_TYPE_N; i++)
        if (!strcmp(model_type_name(i), word))
            return i;
    return MODEL_TYPE_N;
}

static int convert(void *options, int argc, char **argv)
{
    static const struct { const char *word; enum dtype t; } types[] = { { "f32", DT_F32 }, { "bf16", DT_BF16 }, { "f16", DT_F16 } };
    const struct opts *o = options;
    struct ckpt_cmds_bar bar = { "convert", NULL };
    struct arena *a = arena_new();
    struct convert v = {
        .to = argv[1], .replace = o->force, .family = family_of(o->family), .dtype = DT_N, .shard_bytes = (uint64_t)o->shard,
        .by = ckpt_cmds_maker(a, "convert"),
        .note = note, .progress = ckpt_cmds_progress, .ctx = &bar,
    };
    struct ckpt *c = NULL;
    double start = clock_s();
    int rc;

    (void)argc;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].word, o->dtype))
            v.dtype = types[i].t;
    TRY_OUT(rc, ckpt_cmds_open(argv[0], &c));
    rc = convert_run(c, &v);
    ckpt_cmds_progress_end(&bar);
    if (rc == 0)
        rc = ckpt_cmds_written(&(struct ckpt_cmds_written){
            v.to, v.was_current ? NULL : arena_printf(a, "%s %s", model_type_name((int)v.family_written), dtype_name(v.dtype_written)),
            v.was_current, v.n_tensors, v.n_files, v.bytes, clock_s() - start }, o->json);
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
