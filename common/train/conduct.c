/* conduct.c -- the loop around the step: lock, resume, metrics, evaluation,
 * checkpoints, stops.
 *
 * Order at a step border: the row is written, then evaluation, then a save that
 * is in hand goes on, then the checkpoint if one is due, then stop requests are
 * honoured.  So a stop never loses a finished step, and a row in metrics.jsonl
 * may be ahead of the last checkpoint but never behind it.  The copy to save from
 * is made while the next gradients are computed, and waited for before the
 * update.  However a run ends, unless ranks are lost, a save that is in hand is
 * ended first. */
#include "train/conduct.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/units.h"
#include "base/version.h"
#include "ckpt/run.h"
#include "comm/comm.h"
#include "dev/peak.h"
#include "shard/plan.h"
#include "train/lock.h"
#include "train/metrics.h"
#include "train/saver.h"
#include "train/screen.h"
#include "train/state.h"
#include "train/stop.h"
#include "train/world.h"

#define MAX_SKIPS 100           /* in a row: the data or the model is broken */

struct conduct {
    const struct run_config *cfg;
    const struct conduct_options *o;
    struct arena *arena;
    struct run_lock *lock;
    struct trainer *t;
    struct metrics *m;
    struct screen screen;
    struct heartbeat hb;
    struct run_identity id;
    const char *done_in;        /* the checkpoint of a finished run */
    struct saver *saver;
    double step_s;              /* longest so far */
    double last_beat;
    _Bool agreed;               /* the last failure is one that all ranks know of */
};

/* Rank 0 alone touches the directory and talks; what it finds is shared. */
static _Bool leads(const struct conduct *c)
{
    return world_leads(c->o->world);
}

/* Collective.  All ranks leave with the worst of their codes. */
static int agree(struct conduct *c, int rc)
{
    rc = world_agree(c->o->world, rc);
    c->agreed = rc < 0;
    return rc;
}

/* While a rank reads or writes files the others wait for it, and a slow disk is
 * no hang: there they wait an hour longer. */
#define FILES_S 3600

static int watch(struct conduct *c, double more_s)
{
    if (!c->o->world || c->o->hang_s <= 0)
        return 0;
    return comm_watchdog_start(c->o->world, c->o->hang_s + more_s, NULL, NULL);
}

/* Collective.  What rank 0 has becomes everybody's. */
static int share(const struct conduct *c, void *p, size_t n)
{
    return c->o->world ? comm_broadcast(c->o->world, 0, p, (int64_t)n) : 0;
}

static int beat(struct conduct *c, const char *state)
{
    if (!leads(c))
        return 0;

    snprintf(c->hb.state, sizeof c->hb.state, "%s", state);
    c->hb.step = c->t ? c->t->step : c->hb.step;
    c->hb.tokens = c->t ? c->t->tokens : c->hb.tokens;
    c->last_beat = clock_s();
    return metrics_heartbeat_write(c->o->run_dir, &c->hb);
}

/* ---- before the first step */

/* RUN/config.yaml is what the run was begun with; today's configuration may
 * differ in what does not change the model or the data. */
static int check_config(struct conduct *c)
{
    char *path = fs_join(c->arena, c->o->run_dir, "config.yaml"), *notes;
    struct run_config was;
    int rc;

    if (!fs_exists(path))
        return 0;
    TRY(run_config_load(path, NULL, 0, &was));
    rc = run_config_compare(c->cfg, &was, c->arena, &notes);
    run_config_fini(&was);
    TRY(rc);
    for (char *line = notes, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = '\0';
        log_info("changed since the run began: %s", line);
    }
    return 0;
}

/* Written when nothing but the training itself can fail any more. */
static int write_config(struct conduct *c)
{
    char *path = fs_join(c->arena, c->o->run_dir, "config.yaml");

    if (fs_exists(path))
        return 0;
    char *text = config_print(c->cfg->source, 0);
    int rc = fs_write_file(path, text, strlen(text));
    free(text);
    return rc;
}

/* A start that failed before it wrote anything leaves no directory behind. */
static void sweep(const struct conduct *c)
{
    char *lock = fs_join(c->arena, c->o->run_dir, "lock");

    if (unlink(lock) == 0 && rmdir(c->o->run_dir) == 0)
        log_debug("%s removed: nothing was begun", c->o->run_dir);
}

static void find_identity(struct conduct *c)
{
    struct heartbeat was;
    char text[512];

    if (metrics_heartbeat_read(c->o->run_dir, &was) == 0) {
        c->hb.run_id = was.run_id;
        c->hb.restart = was.restart + 1;
        /* A start that made no step, followed by another: see leave(). */
        c->hb.barren = was.step == was.started_at && strcmp(was.state, "stopped") == 0;
        return;
    }
    err_clear();
    int n = snprintf(text, sizeof text, "%s %ld %ld %s", config_digest(c->cfg->source).hex, (long)time(NULL),
                     (long)getpid(), c->o->run_dir);
    c->hb.run_id = hash_bytes(text, (size_t)n);
}

static int identify(struct conduct *c)
{
    if (leads(c))
        find_identity(c);
    TRY(share(c, &c->hb, sizeof c->hb));
    c->hb.steps = c->cfg->steps;
    c->hb.loss = c->hb.tok_s = NAN;
    c->id = (struct run_identity){ .argv = c->o->argv, .argc = c->o->argc, .run_id = c->hb.run_id,
                                   .restart = c->hb.restart, .plan = plan_hash(c->t->plan) };
    c->id.tool = arena_printf(c->arena, "moe-train %s", moe_version);
    return 0;
}

/* Two builds, configurations or plans in one world would train two models in
 * one: every rank shows what it has before it is used. */
static int same_everywhere(struct conduct *c, const char *what, struct hash mine)
{
    int n = c->o->world ? comm_size(c->o->world) : 1, bad = 0;
    struct hash *all;

    if (n == 1)
        return 0;
    all = arena_array(c->arena, (size_t)n, sizeof *all);
    TRY(comm_all_gather(c->o->world, &mine, sizeof mine, all));
    for (int r = n - 1; r > 0; r--)
        bad = hash_eq(&all[r], &all[0]) ? bad : r;
    return agree(c, bad && leads(c) ? err_set(ERR_USAGE, "rank %d has another %s than rank 0 (%s, %s)", bad, what, all[bad].hex,
                                              all[0].hex) : 0);
}

static int same_program(struct conduct *c)
{
    struct hash program = { { 0 } };

    if (!c->o->world)
        return 0;
    TRY(agree(c, hash_file("/proc/self/exe", &program, NULL)));
    TRY(same_everywhere(c, "program", program));
    return same_everywhere(c, "configuration", config_digest(c->cfg->source));
}

/* The weights of another model, under today's configuration. */
static int init_from(struct conduct *c)
{
    struct fs_blob tok = { 0 };
    struct ckpt *k = NULL;
    int rc;

    TRY(ckpt_open(c->o->init, 0, &k));
    if (ckpt_note(k))
        log_warn("%s", ckpt_note(k));
    TRY_OUT(rc, state_load_weights(c->t, k));
    log_info("weights from %s", ckpt_path(k));
    rc = ckpt_read_file(k, "tokenizer.json", &tok);
    if (rc == 0 && c->t->vocab_text && (tok.size != c->t->vocab_bytes || memcmp(tok.data, c->t->vocab_text, tok.size) != 0))
        log_warn("%s has another tokenizer.json than this run: are its ids the same?", ckpt_path(k));
    if (rc == ERR_NOINPUT) {
        err_clear();
        rc = 0;
    }
out:
    fs_blob_free(&tok);
    ckpt_close(k);
    return rc;
}

/* Loads the checkpoint all ranks found; a file system on which they see
 * different ones is refused. */
static int load_latest(struct conduct *c, int64_t newest_light)
{
    struct ckpt *k = NULL;
    char buf[256];
    int64_t step[2] = { 0 };
    int rc = ckpt_open(c->o->run_dir, CKPT_NEED_MANIFEST | CKPT_NEED_STATE, &k);

    TRY_OUT(rc, agree(c, rc));
    if (ckpt_note(k) && leads(c))
        log_warn("%s", ckpt_note(k));
    step[0] = ckpt_manifest(k)->info.step;
    step[1] = -step[0];
    if (c->o->world)
        TRY_OUT(rc, comm_all_reduce(c->o->world, step, 2, DT_I64, COMM_MAX));
    if (step[0] != -step[1]) {
        rc = agree(c, leads(c) ? err_set(ERR_DATA, "%s: some ranks see step %" PRId64 ", others step %" PRId64,
                                         c->o->run_dir, -step[1], step[0]) : 0);
        goto out;
    }
    if (newest_light > step[0])
        log_info("step %" PRId64 " is a light checkpoint, which holds no optimizer state: a run cannot go on from it", newest_light);
    TRY_OUT(rc, agree(c, state_load(c->t, k)));
    saver_has(c->saver, c->t->step);
    log_info("going on from %s: step %" PRId64 " of %" PRId64 ", %s", ckpt_path(k), c->t->step, c->cfg->steps,
             state_exactness(c->t, k, buf, sizeof buf));
out:
    ckpt_close(k);
    return rc;
}

static int resume(struct conduct *c)
{
    struct ckpt_step *steps;
    char n[32];
    int64_t newest[2] = { -1, -1 };     /* with state, light */
    int n_steps = 0;

    TRY(agree(c, ckpt_list_kinds(c->arena, c->o->run_dir, &steps, &n_steps)));
    for (int i = 0; i < n_steps; i++)
        newest[steps[i].kind == MANIFEST_LIGHT] = steps[i].step;
    TRY(share(c, newest, sizeof newest));
    if (newest[0] >= 0)
        return load_latest(c, newest[1]);
    if (newest[1] >= 0)
        log_warn("%s has light checkpoints alone, which hold no optimizer state: the run begins again", c->o->run_dir);
    trainer_init(c->t);
    log_info("new run %s: %s parameters, %" PRId64 " steps of %" PRId64 " tokens", c->o->run_dir,
             units_count(n, params_total(&c->t->table)), c->cfg->steps, c->cfg->tokens_per_step);
    return agree(c, c->o->init ? init_from(c) : 0);
}

static int already_done(struct conduct *c, _Bool *done)
{
    struct ckpt *k = NULL;
    struct ckpt_step *steps;
    int n;

    *done = 0;
    TRY(ckpt_list_kinds(c->arena, c->o->run_dir, &steps, &n));
    while (n > 0 && steps[n - 1].kind == MANIFEST_LIGHT)
        n--;
    if (n == 0 || steps[n - 1].step < c->cfg->steps)
        return 0;
    TRY(ckpt_open(c->o->run_dir, CKPT_NEED_MANIFEST | CKPT_NEED_STATE, &k));
    *done = ckpt_manifest(k)->info.step >= c->cfg->steps;
    if (*done)
        c->done_in = arena_strdup(c->arena, ckpt_path(k));
    ckpt_close(k);
    if (!*done)
        return 0;
    /* Killed between the last save and the last word? */
    if (metrics_heartbeat_read(c->o->run_dir, &c->hb) < 0) {
        err_clear();
        return 0;
    }
    c->hb.step = c->cfg->steps;
    return strcmp(c->hb.state, "done") == 0 ? 0 : beat(c, "done");
}

static int open_trainer(struct conduct *c)
{
    struct trainer_options o = {
        .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA | TRAINER_VALID,
        .device = c->o->device, .threads = c->o->threads, .plan = c->o->plan, .world = c->o->world,
        .stage_bytes = state_stage_bytes,
    };
    char b[32];

    TRY(agree(c, trainer_open(c->cfg, &o, &c->t)));
    log_info("device %s, %d thread%s, %s planned", trainer_kernels(c->t), c->t->dev.threads,
             c->t->dev.threads == 1 ? "" : "s", units_bytes(b, (double)mem_planned(c->t->mem)));
    if (!c->t->vocab)
        log_warn("no tokenizer: checkpoints carry none, and there are no bits per byte");
    return 0;
}

/* ---- at step borders */

/* Collective.  The ranks know of a failure of fn. */
static int saving(struct conduct *c, int (*fn)(struct saver *), double *seconds)
{
    double t0 = clock_s();

    TRY(watch(c, FILES_S));
    int rc = fn(c->saver);
    c->agreed = rc < 0;
    TRY(rc);
    TRY(watch(c, 0));
    *seconds += clock_s() - t0;
    return 0;
}

static int evaluate(struct conduct *c, double *seconds)
{
    double t0 = clock_s();
    char line[256];

    for (int i = 0; i < loader_n_valid_sets(c->t->loader); i++) {
        struct eval_facts e;
        const char *json;
        TRY(trainer_eval(c->t, i, c->cfg->eval_batches, &e));
        if (!leads(c))
            continue;
        TRY(metrics_eval(c->m, c->t->step, &e, &json));
        if (!c->o->quiet)
            TRY(screen_add(&c->screen, c->o->human ? metrics_human_eval(&e, line, sizeof line) : json));
    }
    *seconds += clock_s() - t0;
    return 0;
}

static int report(struct conduct *c, const struct step_facts *f, const struct metrics_extra *x)
{
    char line[256];
    const char *json;

    if (!leads(c))
        return 0;
    TRY(metrics_step(c->m, f, x, &json));
    c->hb.loss = f->loss;
    c->hb.tok_s = x->step_s > 0 ? (double)f->n_tokens / x->step_s : 0;
    if (!c->o->quiet) {
        double eta = (double)(c->cfg->steps - c->t->step) * x->step_s;
        TRY(screen_step(&c->screen, c->o->human ? metrics_human(c->m, f, x, eta, line, sizeof line) : json, c->t->step == c->cfg->steps));
    }
    return clock_s() - c->last_beat >= 1 ? beat(c, "running") : 0;
}

/* Is this step one after which something every n steps is due? */
static _Bool due(const struct conduct *c, int64_t every)
{
    return every > 0 && c->t->step % every == 0 && c->t->step > c->hb.started_at;
}

/* Collective.  Of the last step: nothing follows that could go on beside it. */
static int save_now(struct conduct *c)
{
    double s = 0;

    TRY(saving(c, saver_save, &s));
    return saver_pending(c->saver) ? saving(c, saver_finish, &s) : 0;
}

static int train(struct conduct *c)
{
    struct metrics_extra x = { 0 };
    int skips = 0;

    TRY(agree(c, watch(c, 0)));
    while (c->t->step < c->cfg->steps) {
        struct step_facts f;
        double t0 = clock_s();

        TRY(agree(c, stop_asked(c->step_s + saver_reserve_s(c->saver))));
        if (c->o->world)
            comm_set_step(c->o->world, c->t->step + 1);
        TRY(trainer_gradients(c->t, &f));
        double waited = saver_copied(c->saver);
        int rc = trainer_update(c->t, &f);
        x.ckpt_s += waited;
        x.step_s = clock_s() - t0 - waited;
        if (rc < 0) {
            /* The row of the step that ended the run is worth having. */
            struct err_state why;
            err_take(&why);
            if (leads(c))
                TRY(metrics_step(c->m, &f, &x, NULL));
            return err_put(&why);
        }
        TRY(trainer_layer_facts(c->t));
        if (f.n_tokens)
            c->step_s = x.step_s > c->step_s ? x.step_s : c->step_s;
        TRY(agree(c, report(c, &f, &x)));
        x = (struct metrics_extra){ 0 };
        skips = f.skipped ? skips + 1 : 0;
        c->agreed = skips >= MAX_SKIPS;
        if (c->agreed)
            return err_set(ERR_NO, "%d steps in a row were skipped; the last one was step %" PRId64, skips, f.step);
        if (f.skipped)
            continue;
        if (due(c, c->cfg->eval_every) && c->t->step < c->cfg->steps)
            TRY(agree(c, evaluate(c, &x.eval_s)));
        /* One exchange for both questions. */
        int64_t is[2] = { leads(c) && stop_save_asked(), saver_busy(c->saver) };
        if (c->o->world)
            TRY(comm_all_reduce(c->o->world, is, 2, DT_I64, COMM_MAX));
        if (saver_pending(c->saver) && !is[1])
            TRY(saving(c, saver_advance, &x.ckpt_s));
        if (c->t->step == c->cfg->steps)
            break;
        if (is[0] || due(c, c->cfg->ckpt_every) || due(c, c->cfg->ckpt_major_every))
            TRY(saving(c, saver_save, &x.ckpt_s));
        else if (due(c, c->cfg->ckpt_light_every))
            TRY(saving(c, saver_save_light, &x.ckpt_s));
    }
    /* The last save comes after the last row: once it is there, all is. */
    if (c->cfg->eval_every > 0)
        TRY(agree(c, evaluate(c, &x.eval_s)));
    return save_now(c);
}

/* All is saved. */
static int stopped(struct conduct *c, const struct err_state *why)
{
    if (leads(c))
        stop_honoured();
    TRY(beat(c, "stopped"));
    if (why->code == ERR_STOPPED && c->hb.barren && c->t->step == c->hb.started_at)
        return err_set(ERR_NO, "%s; two starts in a row made no step (step %" PRId64 "), not asking for another",
                       why->msg, c->t->step);
    err_put(why);
    return err_add("step %" PRId64 " of %" PRId64 " is saved, run the same command again to go on", c->t->step,
                   c->cfg->steps);
}

/* The first error is the one worth reporting. */
static int end_screen(struct conduct *c, int rc)
{
    struct err_state why;

    if (rc == 0)
        return screen_end(&c->screen);
    err_take(&why);
    if (screen_end(&c->screen) < 0)
        err_clear();
    return err_put(&why);
}

/* Turns how train() ended into how the process ends.  A failure that the other
 * ranks do not know of would leave them waiting: it ends them too. */
static int leave(struct conduct *c, int rc)
{
    struct err_state why;
    double s = 0;

    rc = end_screen(c, rc);
    rc = world_settle(c->o->world, rc, c->agreed || c->t->agreed);
    if (rc == 0) {
        char buf[32];
        log_info("done: %" PRId64 " steps, %s tokens, in %s", c->t->step, units_count(buf, c->t->tokens), c->o->run_dir);
        return beat(c, "done");
    }
    err_take(&why);
    if (rc == ERR_STOPPED || rc == ERR_INTERRUPTED) {
        if (save_now(c) == 0)
            return stopped(c, &why);
        err_take(&why);
    }
    /* The first error is the one worth reporting; what was good before it is kept. */
    if (saver_pending(c->saver) && saving(c, saver_finish, &s) < 0) {
        log_warn("%s", err_msg());
        err_clear();
    }
    if (beat(c, "failed") < 0)
        err_clear();
    return err_put(&why);
}

/* What only rank 0 does before anybody opens anything. */
static int enter(struct conduct *c, _Bool *done)
{
    TRY(fs_mkdirs(c->o->run_dir));
    TRY(lock_take(c->o->run_dir, &c->lock));
    TRY(ckpt_sweep(c->o->run_dir));
    TRY(already_done(c, done));
    return check_config(c);
}

static int get_ready(struct conduct *c)
{
    double peak = c->o->peak_gflops;

    TRY(agree(c, stop_init(c->o->run_dir, c->o->stop_before_s)));
    TRY(agree(c, watch(c, FILES_S)));
    TRY(open_trainer(c));
    TRY(identify(c));
    TRY(same_everywhere(c, "plan", plan_hash(c->t->plan)));
    TRY(agree(c, saver_open(c->t, c->o->run_dir, &c->id, &c->saver)));
    TRY(resume(c));
    saver_settle(c->saver);
    c->hb.started_at = c->t->step;
    TRY(agree(c, state_room(c->t, c->o->run_dir)));
    /* All ranks measure at once, as they will compute at once. */
    if (peak <= 0)
        peak = dev_gemm_peak(&c->t->dev);
    if (c->o->world)
        TRY(comm_all_reduce(c->o->world, &peak, 1, DT_F64, COMM_SUM));
    log_info("GEMM peak %.0f GFLOP/s (%s)", peak, c->o->peak_gflops > 0 ? "given" : "measured");
    if (!leads(c))
        return agree(c, 0);
    int rc = metrics_open(c->o->run_dir, c->t, c->hb.restart, peak, &c->m);
    if (rc >= 0)
        rc = write_config(c);
    return agree(c, rc);
}

int conduct_run(const struct run_config *cfg, const struct conduct_options *o)
{
    struct conduct c = { .cfg = cfg, .o = o, .arena = arena_new() };
    _Bool done = 0, fresh = leads(&c) && !fs_exists(o->run_dir);
    int rc;

    TRY_OUT(rc, same_program(&c));
    TRY_OUT(rc, agree(&c, leads(&c) ? enter(&c, &done) : 0));
    TRY_OUT(rc, share(&c, &done, sizeof done));
    if (done) {
        log_info("already done: %s", c.done_in ? c.done_in : o->run_dir);
        goto out;
    }
    TRY_OUT(rc, get_ready(&c));
    fresh = 0;
    TRY_OUT(rc, agree(&c, beat(&c, "running")));
    screen_open(&c.screen, o->human, !o->world);
    rc = leave(&c, train(&c));
    if (pool_overflow())
        log_warn("bookkeeping outgrew what was set aside for it: %" PRId64 " requests went to malloc", pool_overflow());
out:
    rc = world_quiet(o->world, rc);
    metrics_close(c.m);
    saver_close(c.saver);
    trainer_close(c.t);
    if (fresh && c.lock)
        sweep(&c);
    lock_drop(c.lock);
    arena_free(c.arena);
    return rc;
}
