/* train_run.c -- moe-train run: starts a run, or goes on with it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/units.h"
#include "comm/comm.h"
#include "train_cmds.h"
#include "train/conduct.h"
#include "train/lock.h"
#include "train/memory_report.h"
#include "train/metrics.h"
#include "train/state.h"
#include "train/world.h"

struct run_opts {
    struct opt_common common;
    const char *config, *output, *device, *init, *plan, *stop_before;
    int64_t threads, ranks;
    double peak, hang;
    _Bool dry_run, print_config, json, tsv, each;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_STR, 'c', "config", "FILE", NULL, "configuration; - is standard input", offsetof(struct run_opts, config), 0, 0 },
    { OPT_STR, 'o', "output", "RUN", NULL, "directory of the run, new or to go on with", offsetof(struct run_opts, output), 0, 0 },
    TRAIN_DEVICE_OPTS(struct run_opts),
    { OPT_INT, 0, "ranks", "N", "0", "run as N processes under mpirun; 0: as started", offsetof(struct run_opts, ranks), 0, 65536 },
    { OPT_FLOAT, 0, "hang-timeout", "S", "0", "end all ranks when one waits longer; 0: never", offsetof(struct run_opts, hang), 0, 1e9 },
    { OPT_STR, 0, "init", "PATH", NULL, "begin a new run with the weights of this model", offsetof(struct run_opts, init), 0, 0 },
    { OPT_FLAG, 0, "dry-run", NULL, NULL, "print the memory plan and do nothing", offsetof(struct run_opts, dry_run), 0, 0 },
    { OPT_FLAG, 0, "buffers", NULL, NULL, "with --dry-run: every buffer instead of classes", offsetof(struct run_opts, each), 0, 0 },
    { OPT_FLAG, 0, "print-config", NULL, NULL, "print the configuration with origins and do nothing", offsetof(struct run_opts, print_config), 0, 0 },
    { OPT_STR, 0, "plan", "FILE", NULL, "obey this plan of moe-shard; - is standard input", offsetof(struct run_opts, plan), 0, 0 },
    { OPT_STR, 0, "stop-before", "TIME", NULL, "save and leave with 75 this long before the job ends", offsetof(struct run_opts, stop_before), 0, 0 },
    { OPT_FLOAT, 0, "peak", "GFLOPS", "0", "peak for mfu; 0: measured at start", offsetof(struct run_opts, peak), 0, 1e12 },
    { OPT_FLAG, 0, "json", NULL, NULL, "JSON rows also on a terminal", offsetof(struct run_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "with --dry-run: tab-separated", offsetof(struct run_opts, tsv), 0, 0 },
    OPT_END
};

static int print_config(const struct run_config *c)
{
    char *text = config_print(c->source, 1);
    int rc = out_write(text, strlen(text));

    free(text);
    return rc;
}

static int dry_run(const struct run_config *c, const struct run_opts *o)
{
    struct trainer_options to = {
        .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA | TRAINER_VALID,
        .device = o->device, .threads = (int)o->threads, .plan_only = 1, .stage_bytes = state_stage_bytes,
    };
    enum table_form form;
    struct trainer *t = NULL;

    TRY(train_form(o->json, o->tsv, &form));
    TRY(trainer_open(c, &to, &t));
    int rc = memory_report(t, form, o->each);
    trainer_close(t);
    return rc;
}

/* Ranks that we started have ended without a last word, so its heartbeat still says
 * that the run is going on. */
static void note_failed(const char *run)
{
    struct heartbeat h;
    struct err_state why;
    char owner[256];

    err_take(&why);
    if (metrics_heartbeat_read(run, &h) == 0 && strcmp(h.state, "running") == 0 && !lock_peek(run, owner, sizeof owner)) {
        memcpy(h.state, "failed", sizeof "failed");
        if (metrics_heartbeat_write(run, &h) < 0)
            log_warn("%s", err_msg());
    }
    err_put(&why);
}

static int run(void *p, int argc, char **argv)
{
    struct run_opts *o = p;
    struct arena *a = arena_new();
    struct run_config c = { 0 };
    double stop = -1;
    struct comm *world = NULL;
    int n_over, rc;

    char **over = train_overrides(a, argc, argv, &n_over, NULL);
    if (!o->dry_run && (o->each || o->tsv)) {
        rc = err_set(ERR_USAGE, "%s goes with --dry-run", o->each ? "--buffers" : "--tsv");
        goto out;
    }
    if (!o->config) {
        rc = err_set(ERR_USAGE, "no configuration: -c FILE");
        goto out;
    }
    if (o->stop_before)
        TRY_OUT(rc, units_duration(o->stop_before, &stop));
    if (!o->print_config && !o->dry_run) {
        TRY_OUT(rc, world_check_input((int)o->ranks, "-c", o->config));
        TRY_OUT(rc, world_check_input((int)o->ranks, "--plan", o->plan));
    }
    TRY_OUT(rc, run_config_load(o->config, over, n_over, &c));
    if (o->print_config) {
        rc = print_config(&c);
        goto out;
    }
    TRY_OUT(rc, run_config_check_built(&c));
    if (o->dry_run) {
        rc = dry_run(&c, o);
        goto out;
    }
    if (!o->output) {
        rc = err_set(ERR_USAGE, "no directory for the run: -o RUN");
        goto out;
    }
    if ((rc = world_enter((int)o->ranks, &world)) != 0) {
        if (rc < 0)
            note_failed(o->output);
        rc = rc > 0 ? 0 : rc;
        goto out;
    }
    struct conduct_options co = {
        .world = world, .run_dir = o->output, .device = o->device, .threads = world_threads(world, (int)o->threads),
        .stop_before_s = stop, .hang_s = o->hang, .init = o->init, .plan = o->plan,
        .peak_gflops = o->peak, .quiet = o->common.quiet,
        .human = isatty(STDOUT_FILENO) && !o->json && (!world || getenv(WORLD_TERMINAL)),
    };
    co.argv = opt_argv(&co.argc);
    rc = conduct_run(&c, &co);
out:
    comm_close(world);
    run_config_fini(&c);
    arena_free(a);
    return rc;
}

const struct opt_cmd train_run_cmd = {
    .name = "run", .summary = "train, or go on with a run",
    .synopsis = "-c CONFIG -o RUN [options] [key.path=value ...] [DATA ...]",
    .examples = "moe-train -c etc/small.yaml -o runs/a data/train\n"
                "moe-train -c etc/small.yaml --dry-run data.seq_len=1024 train.micro_tokens=4096",
    .opts = opts, .opts_size = sizeof(struct run_opts), .min_operands = 0, .max_operands = -1, .run = run,
};
