/* saver.c -- see saver.h. */
#include "train/saver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/units.h"

struct saver {
    struct trainer *t;
    const char *run_dir;
    const struct run_identity *id;
    struct ckpt_writer *writer;         /* NULL: everybody waits */
    struct ckpt_save *pending;
    int64_t pending_step, saved_step;   /* -1: none */
    double begun, stall_s;              /* of the one in hand */
    double longest_s;
};

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

int saver_open(struct trainer *t, const char *run_dir, const struct run_identity *id, struct saver **out)
{
    struct saver *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(ERR_IO, "out of memory");
    *s = (struct saver){ .t = t, .run_dir = run_dir, .id = id, .saved_step = -1, .pending_step = -1 };
    int rc = t->stage ? ckpt_writer_new(t->stage, t->stage_bytes, &s->writer) : 0;
    if (rc < 0)
        free(s);
    else
        *out = s;
    return rc;
}

void saver_close(struct saver *s)
{
    if (!s)
        return;
    ckpt_save_abort(s->pending);
    ckpt_writer_free(s->writer);
    free(s);
}

void saver_has(struct saver *s, int64_t step)
{
    s->saved_step = step;
}

void saver_settle(struct saver *s)
{
    if (s->writer && !s->pending)
        ckpt_writer_wait(s->writer);
}

static void note_time(struct saver *s)
{
    double took = now() - s->begun;

    s->longest_s = took > s->longest_s ? took : s->longest_s;
}

/* Bytes a second mean more than seconds alone. */
static void say_saved(struct saver *s, const struct ckpt_save_facts *f)
{
    char b[32];
    double took = f->write_s + f->commit_s;

    log_info("saved step %" PRId64 ": %s in %.2f s (%.2f GB/s) beside training, which stood still for %.3f s", s->saved_step,
             units_bytes(b, (double)f->bytes), took, took > 0 ? (double)f->bytes / took / 1e9 : 0.0, s->stall_s);
}

int saver_advance(struct saver *s)
{
    struct ckpt_save_facts f;
    double t0 = now();
    int rc = ckpt_save_next(s->pending, &f);

    s->stall_s += now() - t0;
    if (rc > 0)
        return 0;
    s->pending = NULL;
    TRY(rc);
    s->saved_step = s->pending_step;
    note_time(s);
    say_saved(s, &f);
    return 0;
}

int saver_finish(struct saver *s)
{
    while (s->pending)
        TRY(saver_advance(s));
    return 0;
}

static int save_and_wait(struct saver *s)
{
    s->begun = now();
    TRY(state_save(s->t, s->run_dir, s->id, s->t->cfg->ckpt_keep));
    s->saved_step = s->t->step;
    note_time(s);
    log_info("saved step %" PRId64, s->t->step);
    return 0;
}

int saver_save(struct saver *s)
{
    if (s->pending && s->pending_step != s->t->step)
        log_info("the save of step %" PRId64 " is still being written: waiting for it before step %" PRId64 " is saved",
                 s->pending_step, s->t->step);
    TRY(saver_finish(s));
    if (s->saved_step == s->t->step)
        return 0;
    if (!s->writer)
        return save_and_wait(s);
    s->begun = now();
    TRY(state_save_beside(s->t, s->run_dir, s->id, s->t->cfg->ckpt_keep, s->writer, &s->pending));
    s->pending_step = s->t->step;
    s->stall_s = now() - s->begun;
    return 0;
}

double saver_copied(struct saver *s)
{
    double t0;

    if (!s->pending)
        return 0;
    t0 = now();
    ckpt_save_copied(s->pending);
    t0 = now() - t0;
    s->stall_s += t0;
    return t0;
}

_Bool saver_pending(const struct saver *s) { return s->pending != NULL; }

_Bool saver_busy(const struct saver *s) { return s->pending && ckpt_save_busy(s->pending); }

double saver_reserve_s(const struct saver *s)
{
    return s->pending ? 2 * s->longest_s : s->longest_s;
}
