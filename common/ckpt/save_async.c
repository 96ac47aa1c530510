/* save_async.c -- a save that is written while its data goes on changing.
 *
 * What this rank is to write is copied, and the files are made of the copy, by a
 * thread of the writer.  That thread never talks to other ranks, since
 * communicators have one caller: rows that lie on several ranks are exchanged by
 * the caller, and where the ranks must agree, the thread stops, and the caller
 * takes the save one phase further between two steps.
 *
 *   start      rows of other ranks     the caller
 *   copying    what lies here          the thread of every rank
 *   writing    files, fsync            the same
 *   next       errors, records         the caller, when all threads are done
 *   committing MANIFEST to removal     the thread of rank 0
 *   next       errors                  the caller: now it is a checkpoint
 *
 * Both ways to save go through the same functions for every byte, so that the
 * files are the same.  It refuses a second save while one is in hand. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "ckpt/save_impl.h"
#include "comm/comm.h"

struct ckpt_writer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*job)(void *ctx);     /* NULL: none */
    void *ctx;
    _Bool quit;
    atomic_bool busy;           /* a job is there; what it wrote is visible when this is false */
    char *stage;
    size_t bytes;
};

/* At no lower priority than the steps: measured, they then take as long all in
 * all, and now and then have to wait for the copy. */
static void *work(void *arg)
{
    struct ckpt_writer *w = arg;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->job && !w->quit)
            pthread_cond_wait(&w->changed, &w->lock);
        if (!w->job)
            break;
        pthread_mutex_unlock(&w->lock);
        w->job(w->ctx);
        pthread_mutex_lock(&w->lock);
        w->job = NULL;
        atomic_store(&w->busy, 0);
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void give(struct ckpt_writer *w, void (*job)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&w->lock);
    BUG_ON(w->job);
    w->ctx = ctx;
    w->job = job;
    atomic_store(&w->busy, 1);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void ckpt_writer_wait(struct ckpt_writer *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->job)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* Pages that are there already make the first copy as quick as the later ones. */
static void touch(void *ctx)
{
    struct ckpt_writer *w = ctx;

    memset(w->stage, 0, w->bytes);
}

int ckpt_writer_new(void *stage, size_t bytes, struct ckpt_writer **out)
{
    struct ckpt_writer *w = pool_calloc(1, sizeof *w);
    sigset_t all, was;
    int rc;

    if (!w)
        return err_set(ERR_IO, "no memory for the writer of checkpoints");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->stage = stage;
    w->bytes = bytes;
    /* Signals are for the thread that looks for them between steps. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    rc = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (rc) {
        errno = rc;
        rc = err_sys(ERR_IO, "no thread to write checkpoints");
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        pool_free(w);
        return rc;
    }
    if (bytes)
        give(w, touch, w);
    *out = w;
    return 0;
}

void ckpt_writer_free(struct ckpt_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quit = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    pool_free(w);
}

/* ---- how much memory */

struct ckpt_save *ckpt_save_rehearse(int rank, int size)
{
    struct arena *a = arena_new();
    struct ckpt_save *s = arena_alloc(a, sizeof *s);

    s->arena = a;
    s->rank = rank;
    s->size = size;
    s->shard_bytes = CKPT_SHARD_BYTES;
    s->declared = hash_begin();
    return s;
}

size_t ckpt_save_stage_bytes(struct ckpt_save *s)
{
    BUG_ON(s->comm || s->temp);
    save_plan(s->arena, s->t, s->n, s->size, s->shard_bytes, &s->plan);
    return (size_t)save_plan_stage(&s->plan, s->t, s->n, s->rank);
}

/* ---- a save in hand */

void ckpt_save_beside(struct ckpt_save *s, struct ckpt_writer *w)
{
    BUG_ON(s->settled || s->later);
    s->writer = w;
    s->later_end = &s->later;
}

/* What the thread failed with waits for the next phase. */
static void keep(struct ckpt_save *s, int rc, double since)
{
    if (rc < 0) {
        err_take(&s->kept);
        s->kept.code = rc;
    }
    s->busy_s = clock_s() - since;
}

static void write_part(void *ctx)
{
    struct ckpt_save *s = ctx;
    double t0;
    int rc;

    save_write_copy(s);
    pthread_mutex_lock(&s->writer->lock);
    s->copied = 1;
    pthread_cond_broadcast(&s->writer->changed);
    pthread_mutex_unlock(&s->writer->lock);
    t0 = clock_s();
    rc = save_put_later(s);
    if (rc == 0)
        rc = save_write_local(s);
    keep(s, rc, t0);
}

static void commit_part(void *ctx)
{
    struct ckpt_save *s = ctx;
    double t0 = clock_s();
    int rc = save_list_all(s);

    if (rc == 0)
        rc = save_commit_here(s);
    keep(s, rc, t0);
}

int ckpt_save_start(struct ckpt_save *s, int keep_n)
{
    uint64_t need;
    int rc = 0;

    BUG_ON(s->written || !s->writer);
    s->written = 1;
    s->keep = keep_n;
    TRY(save_settle(s));
    ckpt_writer_wait(s->writer);        /* the pages may still be coming */
    need = save_plan_stage(&s->plan, s->t, s->n, s->rank);
    if (need > s->writer->bytes)
        rc = err_set(ERR_BUG, "%s: %llu bytes to copy, %zu were planned", s->temp, (unsigned long long)need, s->writer->bytes);
    TRY(save_agree(s, rc));
    s->copy = s->writer->stage;
    save_write_rows(s);
    for (int64_t i = 0; i < s->n; i++)
        s->facts.bytes += s->t[i].bytes;
    s->phase = SAVE_WRITING;
    give(s->writer, write_part, s);
    return 0;
}

void ckpt_save_copied(struct ckpt_save *s)
{
    struct ckpt_writer *w = s->writer;

    BUG_ON(s->phase == SAVE_DECLARED);
    pthread_mutex_lock(&w->lock);
    while (!s->copied)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

_Bool ckpt_save_busy(const struct ckpt_save *s)
{
    return atomic_load(&s->writer->busy);
}

/* Collective.  Rank 0 learns what all ranks wrote, and how long the slowest took. */
static void collect(struct ckpt_save *s)
{
    save_collect(s, s->record, s->n_record, &s->all, &s->ends);
    if (s->comm)
        save_must(s, comm_all_reduce(s->comm, &s->busy_s, 1, DT_F64, COMM_MAX));
    s->facts.write_s = s->busy_s;
}

int ckpt_save_next(struct ckpt_save *s, struct ckpt_save_facts *facts)
{
    int rc;

    BUG_ON(s->phase == SAVE_DECLARED);
    ckpt_writer_wait(s->writer);
    rc = save_agree(s, s->kept.code ? err_put(&s->kept) : 0);
    if (rc == 0 && s->phase == SAVE_WRITING) {
        collect(s);
        s->phase = SAVE_COMMITTING;
        if (s->rank == 0)
            give(s->writer, commit_part, s);
        return 1;
    }
    s->facts.commit_s = s->busy_s;
    if (facts)
        *facts = s->facts;
    ckpt_save_abort(s);
    return rc;
}
