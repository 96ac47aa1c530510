/* conduct.c -- the loop around the step: lock, resume, metrics, evaluation,
 * checkpoints, stops.
 *
 * Order at a step border: the row is written, then evaluation, then the
 * checkpoint if one is due, then stop requests are honoured.  So a stop never
 * loses a finished step, and a row in metrics.jsonl may be ahead of the last
 * checkpoint but never behind it. */
#include "train/conduct.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/out.h"
#include "base/pool.h"
#include "base/units.h"
#include "base/version.h"
#include "ckpt/run.h"
#include "dev/peak.h"
#include "shard/plan.h"
#include "train/lock.h"
#include "train/metrics.h"
#include "train/state.h"
#include "train/stop.h"

#define MAX_SKIPS 100           /* in a row: the data or the model is broken */

struct conduct {
    const struct run_config *cfg;
    const struct conduct_options *o;
    struct arena *arena;
    struct run_lock *lock;
    struct trainer *t;
    struct metrics *m;
    struct heartbeat hb;
    struct run_identity id;
    const char *done_in;        /* the checkpoint of a finished run */
    int64_t saved_step;         /* -1: none */
    double step_s, save_s;      /* longest so far */
    double last_beat;
};

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static int beat(struct conduct *c, const char *state)
{
    snprintf(c->hb.state, sizeof c->hb.state, "%s", state);
    c->hb.step = c->t ? c->t->step : c->hb.step;
    c->hb.tokens = c->t ? c->t->tokens : c->hb.tokens;
    c->last_beat = now();
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

static int identify(struct conduct *c)
{
    struct heartbeat was;
    char text[512];

    if (metrics_heartbeat_read(c->o->run_dir, &was) == 0) {
        c->hb.run_id = was.run_id;
        c->hb.restart = was.restart + 1;
        /* A start that made no step, followed by another: see leave(). */
        c->hb.barren = was.step == was.started_at && strcmp(was.state, "stopped") == 0;
    } else {
        int n = snprintf(text, sizeof text, "%s %ld %ld %s", config_digest(c->cfg->source).hex, (long)time(NULL),
                         (long)getpid(), c->o->run_dir);
        c->hb.run_id = hash_bytes(text, (size_t)n);
        err_clear();
    }
    c->hb.steps = c->cfg->steps;
    c->hb.loss = c->hb.tok_s = NAN;
    c->id = (struct run_identity){ .argv = c->o->argv, .argc = c->o->argc, .run_id = c->hb.run_id,
                                   .restart = c->hb.restart, .plan = plan_hash(c->t->plan) };
    c->id.tool = arena_printf(c->arena, "moe-train %s", moe_version);
    return 0;
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

static int resume(struct conduct *c)
{
    struct ckpt *k = NULL;
    char buf[256], n[32];
    int64_t *steps;
    int n_steps, rc;

    TRY(ckpt_list_steps(c->arena, c->o->run_dir, &steps, &n_steps));
    c->saved_step = -1;
    if (n_steps == 0) {
        trainer_init(c->t);
        log_info("new run %s: %s parameters, %" PRId64 " steps of %" PRId64 " tokens", c->o->run_dir,
                 units_count(n, params_total(&c->t->table)), c->cfg->steps, c->cfg->tokens_per_step);
        return c->o->init ? init_from(c) : 0;
    }
    TRY(ckpt_open(c->o->run_dir, CKPT_NEED_MANIFEST, &k));
    if (ckpt_note(k))
        log_warn("%s", ckpt_note(k));
    TRY_OUT(rc, state_load(c->t, k));
    c->saved_step = c->t->step;
    log_info("going on from %s: step %" PRId64 " of %" PRId64 ", %s", ckpt_path(k), c->t->step, c->cfg->steps,
             state_exactness(c->t, k, buf, sizeof buf));
out:
    ckpt_close(k);
    return rc;
}

static int already_done(struct conduct *c, _Bool *done)
{
    struct ckpt *k = NULL;
    int64_t *steps;
    int n;

    *done = 0;
    TRY(ckpt_list_steps(c->arena, c->o->run_dir, &steps, &n));
    if (n == 0 || steps[n - 1] < c->cfg->steps)
        return 0;
    TRY(ckpt_open(c->o->run_dir, CKPT_NEED_MANIFEST, &k));
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
        .device = c->o->device, .threads = c->o->threads, .plan = c->o->plan,
    };
    char b[32];

    TRY(trainer_open(c->cfg, &o, &c->t));
    log_info("device %s, %d thread%s, %s planned", trainer_kernels(c->t), c->t->dev.threads,
             c->t->dev.threads == 1 ? "" : "s", units_bytes(b, (double)mem_planned(c->t->mem)));
    if (!c->t->vocab)
        log_warn("no tokenizer: checkpoints carry none, and there are no bits per byte");
    return 0;
}

/* ---- at step borders */

static int save(struct conduct *c, double *seconds)
{
    double t0 = now();

    if (c->saved_step == c->t->step)
        return 0;
    TRY(state_save(c->t, c->o->run_dir, &c->id, c->cfg->ckpt_keep));
    c->saved_step = c->t->step;
    double s = now() - t0;
    *seconds += s;
    c->save_s = s > c->save_s ? s : c->save_s;
    log_info("saved step %" PRId64, c->t->step);
    return 0;
}

static int evaluate(struct conduct *c, double *seconds)
{
    double t0 = now();
    char line[256];

    for (int i = 0; i < loader_n_valid_sets(c->t->loader); i++) {
        struct eval_facts e;
        const char *json;
        TRY(trainer_eval(c->t, i, c->cfg->eval_batches, &e));
        TRY(metrics_eval(c->m, c->t->step, &e, &json));
        if (!c->o->quiet)
            TRY(out_printf("%s\n", c->o->human ? metrics_human_eval(&e, line, sizeof line) : json));
    }
    TRY(out_flush());
    *seconds += now() - t0;
    return 0;
}

static int report(struct conduct *c, const struct step_facts *f, const struct metrics_extra *x)
{
    char line[256];
    const char *json;

    TRY(metrics_step(c->m, f, x, &json));
    c->hb.loss = f->loss;
    c->hb.tok_s = x->step_s > 0 ? (double)f->n_tokens / x->step_s : 0;
    if (!c->o->quiet) {
        double eta = (double)(c->cfg->steps - c->t->step) * x->step_s;
        TRY(out_printf("%s\n", c->o->human ? metrics_human(c->m, f, x, eta, line, sizeof line) : json));
        TRY(out_flush());
    }
    return now() - c->last_beat >= 1 ? beat(c, "running") : 0;
}

/* Is this step one after which something every n steps is due? */
static _Bool due(const struct conduct *c, int64_t every)
{
    return every > 0 && c->t->step % every == 0 && c->t->step > c->hb.started_at;
}

static int train(struct conduct *c)
{
    struct metrics_extra x = { 0 };
    int skips = 0;

    while (c->t->step < c->cfg->steps) {
        struct step_facts f;
        double t0 = now();

        TRY(stop_asked(c->step_s + c->save_s));
        TRY(trainer_gradients(c->t, &f));
        int rc = trainer_update(c->t, &f);
        if (rc < 0) {
            /* The row of the step that ended the run is worth having. */
            struct err_state why;
            err_take(&why);
            x.step_s = now() - t0;
            TRY(metrics_step(c->m, &f, &x, NULL));
            return err_put(&why);
        }
        x.step_s = now() - t0;
        if (f.n_tokens)
            c->step_s = x.step_s > c->step_s ? x.step_s : c->step_s;
        TRY(report(c, &f, &x));
        x = (struct metrics_extra){ 0 };
        skips = f.skipped ? skips + 1 : 0;
        if (skips >= MAX_SKIPS)
            return err_set(ERR_NO, "%d steps in a row were skipped; the last one was step %" PRId64, skips, f.step);
        if (f.skipped)
            continue;
        if (due(c, c->cfg->eval_every) && c->t->step < c->cfg->steps)
            TRY(evaluate(c, &x.eval_s));
        if ((stop_save_asked() || due(c, c->cfg->ckpt_every)) && c->t->step < c->cfg->steps)
            TRY(save(c, &x.ckpt_s));
    }
    /* The last save comes after the last row: once it is there, all is. */
    if (c->cfg->eval_every > 0)
        TRY(evaluate(c, &x.eval_s));
    return save(c, &x.ckpt_s);
}

/* Turns how train() ended into how the process ends. */
static int leave(struct conduct *c, int rc)
{
    struct err_state why;
    double s = 0;

    if (rc == 0) {
        char buf[32];
        log_info("done: %" PRId64 " steps, %s tokens, in %s", c->t->step, units_count(buf, c->t->tokens), c->o->run_dir);
        return beat(c, "done");
    }
    err_take(&why);
    if (rc == ERR_STOPPED || rc == ERR_INTERRUPTED) {
        TRY(save(c, &s));
        stop_honoured();
        TRY(beat(c, "stopped"));
        if (rc == ERR_STOPPED && c->hb.barren && c->t->step == c->hb.started_at)
            return err_set(ERR_NO, "%s; two starts in a row made no step (step %" PRId64 "), not asking for another",
                           why.msg, c->t->step);
        err_put(&why);
        return err_add("step %" PRId64 " of %" PRId64 " is saved, run the same command again to go on", c->t->step,
                       c->cfg->steps);
    }
    /* The first error is the one worth reporting. */
    if (beat(c, "failed") < 0)
        err_clear();
    return err_put(&why);
}

int conduct_run(const struct run_config *cfg, const struct conduct_options *o)
{
    struct conduct c = { .cfg = cfg, .o = o, .arena = arena_new(), .saved_step = -1 };
    _Bool done = 0, fresh = !fs_exists(o->run_dir);
    int rc;

    TRY_OUT(rc, fs_mkdirs(o->run_dir));
    TRY_OUT(rc, lock_take(o->run_dir, &c.lock));
    TRY_OUT(rc, ckpt_sweep(o->run_dir));
    TRY_OUT(rc, already_done(&c, &done));
    TRY_OUT(rc, check_config(&c));
    if (done) {
        log_info("already done: %s", c.done_in);
        goto out;
    }
    TRY_OUT(rc, stop_init(o->run_dir, o->stop_before_s));
    TRY_OUT(rc, open_trainer(&c));
    TRY_OUT(rc, identify(&c));
    TRY_OUT(rc, resume(&c));
    c.hb.started_at = c.t->step;
    TRY_OUT(rc, state_room(c.t, o->run_dir));
    double peak = o->peak_gflops > 0 ? o->peak_gflops : dev_gemm_peak(&c.t->dev);
    log_info("GEMM peak %.0f GFLOP/s (%s)", peak, o->peak_gflops > 0 ? "given" : "measured");
    TRY_OUT(rc, metrics_open(o->run_dir, c.t, c.hb.restart, peak, &c.m));
    TRY_OUT(rc, write_config(&c));
    fresh = 0;
    TRY_OUT(rc, beat(&c, "running"));
    rc = leave(&c, train(&c));
    if (pool_overflow())
        log_warn("bookkeeping outgrew what was set aside for it: %" PRId64 " requests went to malloc", pool_overflow());
out:
    metrics_close(c.m);
    trainer_close(c.t);
    if (fresh && c.lock)
        sweep(&c);
    lock_drop(c.lock);
    arena_free(c.arena);
    return rc;
}
