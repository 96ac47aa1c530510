/* moe-optstep.c -- moe-optstep: one optimizer step on files.
 *
 * Parameters, state and gradients in, parameters and state out.  It runs the
 * trainer's own update on the trainer's own buffers, so the result equals that
 * of moe-train run bit for bit. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/version.h"
#include "comm/comm.h"
#include "train/lock.h"
#include "train/state.h"
#include "train/world.h"

struct step_opts {
    struct opt_common common;
    const char *config, *from, *grads, *output, *device, *plan;
    int64_t threads, keep, ranks;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_STR, 0, "from", "PATH", NULL, "run or checkpoint with parameters and state", offsetof(struct step_opts, from), 0, 0 },
    { OPT_STR, 'g', "grads", "FILE", "-", "gradients from moe-train grad; - is standard input", offsetof(struct step_opts, grads), 0, 0 },
    { OPT_STR, 'o', "output", "RUN", NULL, "run that gets the new checkpoint", offsetof(struct step_opts, output), 0, 0 },
    { OPT_STR, 'c', "config", "FILE", NULL, "configuration instead of the one of the run", offsetof(struct step_opts, config), 0, 0 },
    { OPT_INT, 0, "ranks", "N", "0", "run as N processes under mpirun; 0: as started", offsetof(struct step_opts, ranks), 0, 65536 },
    { OPT_STR, 0, "plan", "FILE", NULL, "obey this plan of moe-shard; - is standard input", offsetof(struct step_opts, plan), 0, 0 },
    { OPT_INT, 'k', "keep", "N", "0", "newest checkpoints to keep in RUN; 0: all", offsetof(struct step_opts, keep), 0, 1e9 },
    { OPT_STR, 0, "device", "NAME", "cpu", "cpu, or ref (slow, the specification)", offsetof(struct step_opts, device), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads; 0: all the process may use", offsetof(struct step_opts, threads), 0, 4096 },
    OPT_END
};

/* The output is a run like any other: it has a configuration, and what is there
 * must be the same run. */
static int check_run(const char *run_dir, const struct run_config *c, struct arena *a)
{
    char *path = fs_join(a, run_dir, "config.yaml"), *notes;
    struct run_config was;

    if (!fs_exists(path))
        return 0;
    TRY(run_config_load(path, NULL, 0, &was));
    int rc = run_config_compare(c, &was, a, &notes);
    run_config_fini(&was);
    return rc;
}

static int write_config(const char *run_dir, const struct run_config *c, struct arena *a)
{
    char *path = fs_join(a, run_dir, "config.yaml");

    if (fs_exists(path))
        return 0;
    char *text = config_print(c->source, 0);
    int rc = fs_write_file(path, text, strlen(text));
    free(text);
    return rc;
}

/* A step that was not made leaves no new directory behind. */
static void sweep(const char *run_dir, struct arena *a)
{
    if (unlink(fs_join(a, run_dir, "lock")) == 0 && rmdir(run_dir) == 0)
        log_debug("%s removed: no step was made", run_dir);
}

/* Collective. */
static int step(struct trainer *t, const struct ckpt *k, const struct step_opts *o, struct arena *a)
{
    const struct manifest *m = ckpt_manifest(k);
    struct run_identity id = { .run_id = m->info.run_id, .plan = plan_hash(t->plan),
                               .restart = m->info.restart, .inherit = &m->info };
    struct comm *world = t->opts.world;
    struct step_facts f;

    id.argv = opt_argv(&id.argc);
    id.tool = arena_printf(a, "moe-optstep %s", moe_version);
    TRY(world_agree(world, state_load(t, k)));
    TRY(state_read_grads(t, &f, o->grads));
    TRY(world_settle(world, trainer_update(t, &f), t->agreed));
    if (f.skipped)
        return err_set(ERR_NO, "step %lld was skipped: %s", (long long)f.step,
                       f.n_valid ? "the gradient is not finite" : "it has no valid target");
    TRY(world_agree(world, world_leads(world) ? write_config(o->output, t->cfg, a) : 0));
    struct state_policy policy = { MANIFEST_FULL, o->keep, 0 };
    TRY(state_save(t, o->output, &id, &policy));
    log_info("step %lld: norm %.4f%s, saved in %s", (long long)f.step, f.norm, f.clipped ? " (clipped)" : "", o->output);
    return 0;
}

/* The output is rank 0's business. */
static int enter(const struct step_opts *o, const struct run_config *c, struct arena *a, _Bool *fresh, struct run_lock **lock)
{
    *fresh = !fs_exists(o->output);
    TRY(fs_mkdirs(o->output));
    TRY(lock_take(o->output, lock));
    return check_run(o->output, c, a);
}

static int check_options(const struct step_opts *o)
{
    if (!o->from || !o->output)
        return err_set(ERR_USAGE, o->from ? "no run to write: -o RUN" : "no checkpoint: --from PATH");
    if (o->plan && strcmp(o->plan, "-") == 0 && strcmp(o->grads, "-") == 0)
        return err_set(ERR_USAGE, "--plan - and --grads - are both standard input");
    TRY(world_check_input((int)o->ranks, "-c", o->config));
    return world_check_input((int)o->ranks, "--plan", o->plan);
}

/* Collective. */
static int open_both(const struct step_opts *o, const struct run_config *c, struct comm *world, struct ckpt **k, struct trainer **t)
{
    struct trainer_options to = { .what = TRAINER_OPTIM, .device = o->device, .threads = world_threads(world, (int)o->threads),
                                  .plan = o->plan, .world = world };
    struct fs_blob tok = { 0 };
    int rc = ckpt_open(o->from, CKPT_NEED_MANIFEST | CKPT_NEED_STATE, k);

    if (rc == 0 && ckpt_note(*k) && world_leads(world))
        log_warn("%s", ckpt_note(*k));
    if (rc == 0)
        rc = ckpt_read_file(*k, "tokenizer.json", &tok);
    TRY(world_agree(world, rc == ERR_NOINPUT && *k ? 0 : rc));
    if (tok.data) {
        to.tokenizer_name = "tokenizer.json";
        to.tokenizer_text = tok.data;
        to.tokenizer_bytes = tok.size;
    }
    err_clear();
    rc = world_agree(world, trainer_open(c, &to, t));
    fs_blob_free(&tok);
    return rc;
}

static int run(void *p, int argc, char **argv)
{
    struct step_opts *o = p;
    struct arena *a = arena_new();
    struct run_config c = { 0 };
    struct run_lock *lock = NULL;
    struct trainer *t = NULL;
    struct ckpt *k = NULL;
    struct comm *world = NULL;
    _Bool fresh = 0;
    int rc;

    TRY_OUT(rc, check_options(o));
    TRY_OUT(rc, run_config_from(o->from, o->config, argv, argc, &c));
    if ((rc = world_enter((int)o->ranks, &world)) != 0) {
        rc = rc > 0 ? 0 : rc;
        goto out;
    }
    TRY_OUT(rc, world_agree(world, world_leads(world) ? enter(o, &c, a, &fresh, &lock) : 0));
    TRY_OUT(rc, open_both(o, &c, world, &k, &t));
    rc = step(t, k, o, a);
out:
    rc = world_quiet(world, rc);
    trainer_close(t);
    ckpt_close(k);
    if (fresh && lock && rc < 0)
        sweep(o->output, a);
    lock_drop(lock);
    comm_close(world);
    run_config_fini(&c);
    arena_free(a);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct opt_cmd cmds[] = {
        { .name = "step", .summary = "apply one optimizer step: state and gradients in, the next state out",
          .synopsis = "--from PATH -o RUN [options] [key.path=value ...]",
          .examples = "moe-train grad --from runs/a -o - | moe-optstep --from runs/a --grads - -o runs/b",
          .opts = opts, .opts_size = sizeof(struct step_opts), .min_operands = 0, .max_operands = -1, .run = run },
    };

    return opt_main("moe-optstep", "optimizer steps on files", cmds, 1, argc, argv);
}
