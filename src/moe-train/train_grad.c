/* train_grad.c -- moe-train grad: the gradients of the next step as a stream. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "comm/comm.h"
#include "train_cmds.h"
#include "train/state.h"
#include "train/world.h"

struct grad_opts {
    struct opt_common common;
    const char *config, *from, *output, *device;
    int64_t threads, ranks;
    _Bool force;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_STR, 'c', "config", "FILE", NULL, "configuration instead of the one of the run", offsetof(struct grad_opts, config), 0, 0 },
    { OPT_STR, 0, "from", "PATH", NULL, "run or checkpoint whose next step is computed", offsetof(struct grad_opts, from), 0, 0 },
    { OPT_STR, 'o', "output", "FILE", "-", "gradients as safetensors; - is standard output", offsetof(struct grad_opts, output), 0, 0 },
    TRAIN_DEVICE_OPTS(struct grad_opts),
    { OPT_INT, 0, "ranks", "N", "0", "run as N processes under mpirun; 0: as started", offsetof(struct grad_opts, ranks), 0, 65536 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "write over a file, or to a terminal", offsetof(struct grad_opts, force), 0, 0 },
    OPT_END
};

static int run(void *p, int argc, char **argv)
{
    struct grad_opts *o = p;
    struct arena *a = arena_new();
    struct run_config c = { 0 };
    struct trainer *t = NULL;
    struct comm *world = NULL;
    struct step_facts f;
    int n_over, rc;

    char **over = train_overrides(a, argc, argv, &n_over, NULL);
    if (!o->from) {
        rc = err_set(ERR_USAGE, "no checkpoint: --from PATH");
        goto out;
    }
    if (strcmp(o->output, "-") == 0) {
        /* A rank cannot know what mpirun does with what it writes; the process
         * that starts the ranks can. */
        TRY_OUT(rc, out_binary(o->force || (o->ranks == 0 && world_is_many(0)) || getenv(WORLD_STARTED)));
    } else if (!o->force && access(o->output, F_OK) == 0) {
        rc = err_set(ERR_CREATE, "%s exists; -f writes over it", o->output);
        goto out;
    }
    TRY_OUT(rc, world_check_input((int)o->ranks, "-c", o->config));
    TRY_OUT(rc, run_config_from(o->from, o->config, over, n_over, &c));
    if ((rc = world_enter((int)o->ranks, &world)) != 0) {
        rc = rc > 0 ? 0 : rc;
        goto out;
    }
    struct trainer_options to = { .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA, .device = o->device,
                                  .threads = world_threads(world, (int)o->threads), .world = world };
    TRY_OUT(rc, train_open_from(o->from, &c, &to, CKPT_NEED_MANIFEST | CKPT_NEED_STATE, &t));
    TRY_OUT(rc, world_settle(world, trainer_gradients(t, &f), t->agreed));
    if (f.n_valid == 0 && world_leads(world))
        log_warn("step %lld has no valid target; its gradients are 0", (long long)f.step);
    rc = state_write_grads(t, &f, o->output);
    if (rc >= 0)
        log_info("gradients of step %lld: loss %.4f over %lld targets", (long long)f.step, f.loss, (long long)f.n_valid);
out:
    rc = world_quiet(world, rc);
    trainer_close(t);
    comm_close(world);
    run_config_fini(&c);
    arena_free(a);
    return rc;
}

const struct opt_cmd train_grad_cmd = {
    .name = "grad", .summary = "gradients of the next step, for moe-optstep",
    .synopsis = "--from PATH [options] [key.path=value ...] [DATA ...]",
    .examples = "moe-train grad --from runs/a -o - | moe-optstep --from runs/a --grads - -o runs/b",
    .opts = opts, .opts_size = sizeof(struct grad_opts), .min_operands = 0, .max_operands = -1, .run = run,
};
