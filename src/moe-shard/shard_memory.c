/* shard_memory.c -- moe-shard memory: the planned bytes of a training process.
 *
 * The plan comes from running the step itself over the trace device, so it is
 * what moe-train reserves, to the byte.  No data and no tokenizer are opened. */
#include <string.h>

#include "base/err.h"
#include "train/memory_report.h"

#include "shard_cmds.h"

struct memory_opts {
    struct shard_input in;
    const char *device;
    int64_t threads;
    _Bool buffers, json, tsv;
};

static const struct opt opts[] = {
    SHARD_INPUT(struct memory_opts),
    { OPT_STR, 'd', "device", "NAME", "cpu", "the device that would compute: cpu or ref", offsetof(struct memory_opts, device), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads of the device; 0: all that are allowed", offsetof(struct memory_opts, threads), 0, 65536 },
    { OPT_FLAG, 0, "buffers", NULL, NULL, "every buffer instead of the classes", offsetof(struct memory_opts, buffers), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a line", offsetof(struct memory_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated values", offsetof(struct memory_opts, tsv), 0, 0 },
    OPT_END
};

static int run(void *options, int argc, char **argv)
{
    const struct memory_opts *o = options;
    struct shard_model m;
    struct trainer *t = NULL;
    enum table_form form;
    TRY(shard_form(o->json, o->tsv, &form));
    int rc = shard_open(&o->in, argc, argv, &m);
    if (rc)
        return rc < 0 ? rc : 0;
    m.cfg.tokenizer = NULL;     /* its bytes are not part of the plan */
    struct trainer_options topts = {
        .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA | TRAINER_VALID,
        .device = o->device, .threads = (int)o->threads, .plan_only = 1,
    };
    TRY_OUT(rc, trainer_open(&m.cfg, &topts, &t));
    rc = memory_report(t, form, o->buffers);
out:
    trainer_close(t);
    shard_close(&m);
    return rc;
}

const struct opt_cmd shard_memory_cmd = {
    "memory", "planned bytes of a training process by class", "-c FILE [-d NAME] [-j N] [--buffers] [--json | --tsv] [KEY=VALUE...]",
    "moe-shard memory -c etc/small.yaml\n"
    "moe-shard memory -c etc/small.yaml memory.boundary_every=0\n",
    opts, sizeof(struct memory_opts), 0, -1, run
};
