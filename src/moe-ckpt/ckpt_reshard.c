/* ckpt_reshard.c -- moe-ckpt reshard: the same checkpoint in other files. */
#include "base/clock.h"
#include "base/err.h"
#include "ckpt/rewrite.h"

#include "ckpt_cmds.h"

struct reshard { struct opt_common common; int64_t files, shard; _Bool force, json; };

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace a directory that moe-ckpt wrote", offsetof(struct reshard, force), 0, 0 },
    { OPT_INT, 'n', "files", "N", NULL, "cut the model into so many files of about the same size", offsetof(struct reshard, files), 1, 99999 },
    { OPT_INT, 0, "shard-size", "BYTES", "5G", "tensor bytes in one file at most", offsetof(struct reshard, shard), 1, 9e15 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object", offsetof(struct reshard, json), 0, 0 },
    OPT_END
};

static int reshard(void *options, int argc, char **argv)
{
    const struct reshard *o = options;
    struct ckpt_cmds_bar bar = { "reshard", NULL };
    struct arena *a = arena_new();
    struct rewrite r = {
        .to = argv[1], .replace = o->force, .shard_bytes = (uint64_t)o->shard, .n_files = (int)o->files,
        .by = ckpt_cmds_maker(a, "reshard"), .progress = ckpt_cmds_progress, .ctx = &bar,
    };
    struct ckpt *c = NULL;
    double start = clock_s();
    int rc;

    (void)argc;
    TRY_OUT(rc, ckpt_cmds_open(argv[0], &c));
    rc = rewrite_reshard(c, &r);
    ckpt_cmds_progress_end(&bar);
    if (rc == 0)
        rc = ckpt_cmds_written(&(struct ckpt_cmds_written){ r.to, "reshard", r.was_current, r.n_tensors, r.n_made, r.bytes,
                                                            clock_s() - start }, o->json);
out:
    ckpt_close(c);
    arena_free(a);
    return rc;
}

const struct opt_cmd ckpt_reshard_cmd = {
    "reshard", "write the same checkpoint in other files", "[-f] [-n N | --shard-size BYTES] [--json] CKPT DIR",
    "moe-ckpt reshard --files 8 runs/a/latest eight\n"
    "moe-ckpt reshard --shard-size 2G hf hf-small\n",
    opts, sizeof(struct reshard), 2, 2, reshard
};
