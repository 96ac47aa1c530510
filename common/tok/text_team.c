/* text_team.c -- a ring of slabs under one lock.
 *
 * Invariants, under the lock: slabs taken <= next to take <= slabs read; at most
 * one thread reads and at most one takes; a slot is its slab's number modulo
 * the ring, so it is free when the slab before it in the slot was taken.  With
 * much text under way (documents that are held whole) reading waits, unless
 * nothing else is there to do. */
#include "tok/text_team.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"

enum { BYTES_A_THREAD = 8 << 20, KEEP_BYTES = 4 << 20 };

struct slot { struct text_slab *slab; size_t bytes; _Bool done; struct err_state err; };

struct team {
    struct text_source *source;
    const struct text_team_ops *ops;
    void *arg;
    int threads, n_slots;
    struct slot *slot;
    pthread_mutex_t lock;
    pthread_cond_t change;
    int64_t read, taken;                /* slabs */
    size_t bytes;                       /* of slabs read and not taken */
    _Bool reading, taking, end, failed;
    struct err_state err;
};

struct member { struct team *team; int thread; pthread_t id; };

static struct slot *slot_of(struct team *t, int64_t i) { return &t->slot[i % t->n_slots]; }

static void fail(struct team *t)
{
    if (!t->failed)
        err_take(&t->err);
    t->failed = 1;
}

/* ---- called with the lock, which is let go meanwhile */

static void take(struct team *t)
{
    struct slot *s = slot_of(t, t->taken);
    t->taking = 1;
    pthread_mutex_unlock(&t->lock);
    int rc = text_source_take(t->source, s->slab);
    if (rc == 0 && s->err.code != 0)
        rc = err_put(&s->err);
    if (rc == 0)
        rc = t->ops->take(t->arg, (int)(s - t->slot), s->slab);
    text_slab_trim(s->slab, KEEP_BYTES);
    pthread_mutex_lock(&t->lock);
    if (rc < 0)
        fail(t);
    t->taking = 0;
    t->taken++;
    t->bytes -= s->bytes;
    s->done = 0;
    pthread_cond_broadcast(&t->change);
}

static void read_and_work(struct team *t, int thread)
{
    struct slot *s = slot_of(t, t->read);
    t->reading = 1;
    pthread_mutex_unlock(&t->lock);
    if (s->slab == NULL)
        s->slab = text_slab_new();
    int rc = s->slab == NULL ? err_sys(ERR_IO, "memory for a slab of text") : text_source_read(t->source, s->slab);
    pthread_mutex_lock(&t->lock);
    t->reading = 0;
    if (rc <= 0) {
        if (rc < 0)
            fail(t);
        t->end = 1;
        pthread_cond_broadcast(&t->change);
        return;
    }
    s->bytes = s->slab->n;
    t->bytes += s->bytes;
    t->read++;
    pthread_cond_broadcast(&t->change);
    pthread_mutex_unlock(&t->lock);
    s->err.code = 0;
    rc = text_source_parse(t->source, s->slab);
    if (rc == 0)
        rc = t->ops->work(t->arg, thread, (int)(s - t->slot), s->slab);
    if (rc < 0)
        err_take(&s->err);
    pthread_mutex_lock(&t->lock);
    s->done = 1;
    pthread_cond_broadcast(&t->change);
}

static void *work(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    pthread_mutex_lock(&t->lock);
    while (!t->failed && !(t->end && t->taken == t->read)) {
        _Bool room = t->read - t->taken < t->n_slots && (t->bytes < (size_t)t->threads * BYTES_A_THREAD || t->read == t->taken);
        if (!t->taking && t->taken < t->read && slot_of(t, t->taken)->done)
            take(t);
        else if (!t->reading && !t->end && room)
            read_and_work(t, m->thread);
        else
            pthread_cond_wait(&t->change, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int text_team_run(struct text_source *source, int threads, const struct text_team_ops *ops, void *arg)
{
    struct team t = { .source = source, .ops = ops, .arg = arg, .threads = threads, .n_slots = text_team_slots(threads) };
    struct member *m = calloc((size_t)threads, sizeof *m);
    int started = 0;
    t.slot = calloc((size_t)t.n_slots, sizeof *t.slot);
    if (m == NULL || t.slot == NULL) {
        free(m);
        free(t.slot);
        return err_sys(ERR_IO, "memory for %d threads", threads);
    }
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.change, NULL);
    /* Fewer threads than asked for are no failure: the result is the same. */
    for (int i = 0; i < threads; i++)
        m[i] = (struct member){ .team = &t, .thread = i };
    while (started + 1 < threads && pthread_create(&m[started + 1].id, NULL, work, &m[started + 1]) == 0)
        started++;
    work(&m[0]);
    for (int i = 1; i <= started; i++)
        pthread_join(m[i].id, NULL);
    for (int i = 0; i < t.n_slots; i++)
        text_slab_free(t.slot[i].slab);
    pthread_cond_destroy(&t.change);
    pthread_mutex_destroy(&t.lock);
    free(t.slot);
    free(m);
    return t.failed ? err_put(&t.err) : 0;
}
