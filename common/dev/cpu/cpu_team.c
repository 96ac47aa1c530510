/* cpu_team.c -- the threads of a cpu device.
 *
 * A job is a number of pieces that the caller and the workers take one by one.
 * It is over when all pieces are done, not when all threads have come: a
 * worker whose core is busy elsewhere delays nothing, which a barrier of
 * OpenMP cannot offer (on a shared machine that cost 5 to 20 ms an op).
 * Workers spin for a moment after a job, because the next op follows at once,
 * and then sleep.
 *
 * T1  Everything about a claim is in one word, ticket: generation, number of
 *     pieces, next piece.  Who takes a piece below the number holds the job
 *     open; only then are the other fields of the job read.
 * T2  The fields are written only after all pieces of the last job are done.
 * T3  Who is about to sleep says so before looking a last time, and who makes
 *     work looks for sleepers after that; both in sequential consistency.
 *
 * One job at a time, from one thread. */
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "dev/cpu/cpu_ops.h"

#define BITS 24                 /* of pieces, and of the next piece */
#define MASK ((1ull << BITS) - 1)
#define PIECES_MAX (1 << 20)

/* Longer than the gap between two ops, far shorter than a slice of the scheduler. */
#define SPIN_NS 100e3

struct cpu_team {
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic int64_t done;
    _Alignas(64) cpu_task fn;
    void *arg;
    int64_t n, piece;
    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t work, finished;
    _Atomic int sleepers;
    _Atomic _Bool waiting, stop;
    int n_workers;
    struct worker { struct cpu_team *team; pthread_t thread; int index; } *workers;
};

static void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static _Bool has_work(uint64_t ticket)
{
    return (ticket & MASK) < (ticket >> BITS & MASK);
}

/* Takes pieces until there are none. */
static void take_pieces(struct cpu_team *t, int thread)
{
    while (has_work(atomic_load_explicit(&t->ticket, memory_order_relaxed))) {
        uint64_t ticket = atomic_fetch_add_explicit(&t->ticket, 1, memory_order_acq_rel);
        if (!has_work(ticket))
            return;
        int64_t pieces = (int64_t)(ticket >> BITS & MASK), first = (int64_t)(ticket & MASK) * t->piece;
        t->fn(t->arg, first, cpu_min(t->n, first + t->piece), thread);
        if (atomic_fetch_add(&t->done, 1) + 1 == pieces && atomic_load(&t->waiting)) {
            pthread_mutex_lock(&t->lock);
            pthread_cond_signal(&t->finished);
            pthread_mutex_unlock(&t->lock);
        }
    }
}

/* True when there is something to do within the time worth spinning. */
static _Bool spin_for_work(struct cpu_team *t)
{
    double end = now_ns() + SPIN_NS;

    do
        for (int i = 0; i < 64; i++) {
            if (has_work(atomic_load_explicit(&t->ticket, memory_order_relaxed)) || atomic_load(&t->stop))
                return 1;
            relax();
        }
    while (now_ns() < end);
    return 0;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct cpu_team *t = w->team;

    /* A BLAS built on OpenMP would start a team of its own in every worker,
     * and its internals do not bear that. */
    omp_set_num_threads(1);
    while (!atomic_load(&t->stop)) {
        take_pieces(t, w->index);
        if (spin_for_work(t))
            continue;
        pthread_mutex_lock(&t->lock);
        atomic_fetch_add(&t->sleepers, 1);
        while (!has_work(atomic_load(&t->ticket)) && !atomic_load(&t->stop))
            pthread_cond_wait(&t->work, &t->lock);
        atomic_fetch_sub(&t->sleepers, 1);
        pthread_mutex_unlock(&t->lock);
    }
    return NULL;
}

static void wait_done(struct cpu_team *t, int64_t pieces)
{
    double end = now_ns() + SPIN_NS;

    do
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&t->done, memory_order_acquire) == pieces)
                return;
            relax();
        }
    while (now_ns() < end);
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->waiting, 1);
    while (atomic_load(&t->done) != pieces)
        pthread_cond_wait(&t->finished, &t->lock);
    atomic_store(&t->waiting, 0);
    pthread_mutex_unlock(&t->lock);
}

void cpu_team_run(struct cpu_team *t, int64_t n, int64_t pieces, cpu_task fn, void *arg)
{
    uint64_t generation = (atomic_load(&t->ticket) >> 2 * BITS) + 1;

    pieces = cpu_min(pieces, PIECES_MAX);
    t->fn = fn;
    t->arg = arg;
    t->n = n;
    t->piece = cpu_ceil(n, pieces);
    pieces = cpu_ceil(n, t->piece);
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store(&t->ticket, generation << 2 * BITS | (uint64_t)pieces << BITS);
    if (atomic_load(&t->sleepers)) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_broadcast(&t->work);
        pthread_mutex_unlock(&t->lock);
    }
    take_pieces(t, 0);
    wait_done(t, pieces);
}

void cpu_team_close(struct cpu_team *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stop, 1);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n_workers; i++)
        pthread_join(t->workers[i].thread, NULL);
    pthread_cond_destroy(&t->finished);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t->workers);
    free(t);
}

int cpu_team_open(int threads, struct cpu_team **out)
{
    struct cpu_team *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);

    *out = NULL;
    if (!t)
        return err_set(ERR_IO, "out of memory");
    *t = (struct cpu_team){ .piece = 1 };
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->finished, NULL);
    t->workers = calloc((size_t)threads, sizeof *t->workers);
    for (int i = 0; t->workers && i < threads - 1; i++) {
        t->workers[i] = (struct worker){ .team = t, .index = i + 1 };
        if (pthread_create(&t->workers[i].thread, NULL, work, &t->workers[i]) != 0)
            break;
        t->n_workers++;
    }
    if (!t->workers || t->n_workers < threads - 1) {
        cpu_team_close(t);
        return err_set(ERR_IO, "cannot start %d threads", threads);
    }
    *out = t;
    return 0;
}
