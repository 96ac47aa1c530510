/* shard_plan.c -- moe-shard plan: the owner of every parameter as a table for awk. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/out.h"
#include "shard/plan.h"

#include "shard_cmds.h"

struct plan_opts {
    struct shard_input in;
    const char *output;
    int64_t ranks;
    _Bool force;
};

static const struct opt opts[] = {
    SHARD_INPUT(struct plan_opts),
    SHARD_RANKS(struct plan_opts),
    { OPT_STR, 'o', "output", "FILE", "-", "write the plan here; - is standard output", offsetof(struct plan_opts, output), 0, 0 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace a different file", offsetof(struct plan_opts, force), 0, 0 },
    OPT_END
};

/* A plan is a pure function of its inputs, so equal text is "made from the same". */
static int put(const struct plan_opts *o, const char *text, size_t n)
{
    struct fs_blob old = { 0 };
    if (!strcmp(o->output, "-"))
        return out_write(text, n);
    if (fs_exists(o->output)) {
        TRY(fs_read(o->output, &old));
        _Bool same = old.size == n && !memcmp(old.data, text, n);
        fs_blob_free(&old);
        if (same) {
            log_info("%s: up to date", o->output);
            return 0;
        }
        if (!o->force)
            return err_set(ERR_CREATE, "%s: exists and differs; -f replaces it", o->output);
    }
    return fs_write_file(o->output, text, n);
}

static int run(void *options, int argc, char **argv)
{
    const struct plan_opts *o = options;
    struct shard_model m;
    struct plan *p = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc = shard_open(&o->in, argc, argv, &m);
    if (rc)
        return rc < 0 ? rc : 0;
    TRY_OUT(rc, shard_plan_of(&m, o->ranks, &p));
    text = plan_text(p, &n);
    rc = text ? put(o, text, n) : err_set(ERR_IO, "out of memory for the text of a plan");
out:
    free(text);
    plan_free(p);
    shard_close(&m);
    return rc;
}

const struct opt_cmd shard_plan_cmd = {
    "plan", "owner, bytes and optimizer work of every parameter, as TSV", "-c FILE [-f] [-o FILE] [--ranks N] [KEY=VALUE...]",
    "moe-shard plan -c etc/small.yaml --ranks 4 mesh.ep=2 > plan.tsv\n"
    "moe-shard plan -c etc/small.yaml | awk -F'\\t' '!/^#/ { b[$2] += $11 } END { for (k in b) print b[k], k }'\n",
    opts, sizeof(struct plan_opts), 0, -1, run
};
