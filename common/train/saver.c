/* saver.c -- see saver.h. */
#include "train/saver.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/units.h"
#include "ckpt/run.h"
#include "comm/comm.h"
#include "train/world.h"

struct saver {
    struct trainer *t;
    const char *run_dir;
    const struct run_identity *id;
    struct ckpt_writer *writer;         /* NULL: everybody waits */
    struct ckpt_save *pending;
    enum manifest_kind kind;            /* of the one in hand, or the last */
    int64_t pending_step, saved_step;   /* -1: none; light ones are not state that is saved */
    double begun, stall_s;              /* of the one in hand */
    double longest_s;
};

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

static const char *kind_note(const struct saver *s)
{
    return s->kind == MANIFEST_LIGHT ? ", light" : s->kind == MANIFEST_MAJOR ? ", major" : "";
}

static void note_saved(struct saver *s, int64_t step)
{
    double took = clock_s() - s->begun;

    s->longest_s = took > s->longest_s ? took : s->longest_s;
    if (s->kind != MANIFEST_LIGHT)
        s->saved_step = step;
}

/* Bytes a second mean more than seconds alone. */
static void say_saved(struct saver *s, const struct ckpt_save_facts *f)
{
    char b[32];
    double took = f->write_s + f->commit_s;

    log_info("saved step %" PRId64 "%s: %s in %.2f s (%.2f GB/s) beside training, which stood still for %.3f s", s->pending_step,
             kind_note(s), units_bytes(b, (double)f->bytes), took, took > 0 ? (double)f->bytes / took / 1e9 : 0.0, s->stall_s);
}

int saver_advance(struct saver *s)
{
    struct ckpt_save_facts f;
    double t0 = clock_s();
    int rc = ckpt_save_next(s->pending, &f);

    s->stall_s += clock_s() - t0;
    if (rc > 0)
        return 0;
    s->pending = NULL;
    TRY(rc);
    note_saved(s, s->pending_step);
    say_saved(s, &f);
    return 0;
}

int saver_finish(struct saver *s)
{
    while (s->pending)
        TRY(saver_advance(s));
    return 0;
}

static int save(struct saver *s)
{
    const struct run_config *c = s->t->cfg;
    struct state_policy p = { s->kind, c->ckpt_keep, c->ckpt_light_keep };

    s->begun = clock_s();
    s->stall_s = 0;
    if (s->writer) {
        TRY(state_save_beside(s->t, s->run_dir, s->id, &p, s->writer, &s->pending));
        s->pending_step = s->t->step;
        s->stall_s = clock_s() - s->begun;
        return 0;
    }
    TRY(state_save(s->t, s->run_dir, s->id, &p));
    note_saved(s, s->t->step);
    log_info("saved step %" PRId64 "%s", s->t->step, kind_note(s));
    return 0;
}

/* The one in hand first; that of another step is worth a word. */
static int wait_for_it(struct saver *s)
{
    int64_t busy = saver_busy(s) && s->pending_step != s->t->step;

    if (s->pending && s->t->opts.world)
        TRY(comm_all_reduce(s->t->opts.world, &busy, 1, DT_I64, COMM_MAX));
    if (busy)
        log_info("the save of step %" PRId64 " is still being written: waiting for it before step %" PRId64 " is saved",
                 s->pending_step, s->t->step);
    return saver_finish(s);
}

int saver_save(struct saver *s)
{
    int64_t major = s->t->cfg->ckpt_major_every;

    TRY(wait_for_it(s));
    if (s->saved_step == s->t->step)
        return 0;
    s->kind = major > 0 && s->t->step % major == 0 ? MANIFEST_MAJOR : MANIFEST_FULL;
    return save(s);
}

/* A run that went back may come by a step that has more than the model. */
static int is_more_there(struct saver *s, _Bool *more)
{
    struct comm *world = s->t->opts.world;
    struct arena *a = arena_new();
    enum manifest_kind kind;
    char name[32];
    const char *dir = fs_join(a, fs_join(a, s->run_dir, "ckpt"), ckpt_step_name(name, s->t->step));
    int rc = 0;

    *more = 0;
    if (world_leads(world) && fs_exists(fs_join(a, dir, MANIFEST_NAME))) {
        rc = manifest_kind_of(dir, &kind);
        *more = rc == 0 && kind != MANIFEST_LIGHT;
    }
    arena_free(a);
    TRY(world_agree(world, rc));
    return world ? comm_broadcast(world, 0, more, sizeof *more) : 0;
}

int saver_save_light(struct saver *s)
{
    _Bool more;

    TRY(wait_for_it(s));
    TRY(is_more_there(s, &more));
    if (more)
        return saver_save(s);
    s->kind = MANIFEST_LIGHT;
    return save(s);
}

double saver_copied(struct saver *s)
{
    double t0;

    if (!s->pending)
        return 0;
    t0 = clock_s();
    ckpt_save_copied(s->pending);
    t0 = clock_s() - t0;
    s->stall_s += t0;
    return t0;
}

_Bool saver_pending(const struct saver *s) { return s->pending != NULL; }

_Bool saver_busy(const struct saver *s) { return s->pending && ckpt_save_busy(s->pending); }

double saver_reserve_s(const struct saver *s)
{
    return s->pending ? 2 * s->longest_s : s->longest_s;
}
