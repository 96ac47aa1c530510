/* comm_fail.c -- how ranks fail together: agreement, abort, watchdog.
 *
 * Ranks of one node see each other through the board: who waits where, whose
 * process is gone, and the status everyone is to leave with.  Between nodes the
 * launcher carries the end, and each node reports for itself.  Nothing here
 * retries or repairs: what it starts always ends the job. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/pool.h"
#include "comm/comm_ops.h"

/* ---- the board */

static struct comm_row *own_row(struct comm_world *w)
{
    return &w->board->rows[w->node_rank];
}

/* Who we are; the pid comes last, for it says that the row is there. */
void comm_row_begin(struct comm *c)
{
    struct comm_world *w = c->w;
    struct comm_row *r = own_row(w);
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        CPU_SET(0, &set);
    for (int i = 0; i < CPU_SETSIZE && i < COMM_CPU_WORDS * 64; i++)
        if (CPU_ISSET(i, &set))
            atomic_fetch_or(&r->cpus[i / 64], (uint64_t)1 << i % 64);
    comm_row_set(c, COMM_N_KINDS, 0, 0);
    atomic_store(&r->rank, w->rank);
    atomic_store(&r->pid, (int32_t)getpid());
}

/* A CPU that k ranks may use counts 1/k for each of them. */
int comm_threads(const struct comm *c)
{
    const struct comm_world *w = c->w;
    double share = 0;

    for (int i = 0; i < COMM_CPU_WORDS * 64; i++) {
        int k = 0;

        if (!(atomic_load(&w->board->rows[w->node_rank].cpus[i / 64]) >> i % 64 & 1))
            continue;
        for (int r = 0; r < w->node_size; r++)
            k += (int)(atomic_load(&w->board->rows[r].cpus[i / 64]) >> i % 64 & 1);
        share += 1.0 / k;
    }
    /* Thirds do not add up to a whole. */
    return share < 1 ? 1 : (int)(share + 1e-6);
}

void comm_row_set(struct comm *c, enum comm_kind kind, int64_t seq, _Bool waiting)
{
    struct comm_world *w = c->w;
    struct comm_row *r = own_row(w);
    uint64_t in[2];

    memcpy(in, c->name, sizeof in);
    atomic_fetch_add(&r->version, 1);
    atomic_store_explicit(&r->kind, (int32_t)kind, memory_order_relaxed);
    atomic_store_explicit(&r->waiting, waiting, memory_order_relaxed);
    atomic_store_explicit(&r->seq, seq, memory_order_relaxed);
    atomic_store_explicit(&r->step, w->step, memory_order_relaxed);
    atomic_store_explicit(&r->at_ns, comm_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&r->in[0], in[0], memory_order_relaxed);
    atomic_store_explicit(&r->in[1], in[1], memory_order_relaxed);
    atomic_fetch_add(&r->version, 1);
}

/* A rank that was killed while it wrote leaves an odd version for ever, so
 * reading gives up and takes what stands there. */
static void read_row(struct comm_row *r, struct comm_status *out)
{
    for (int i = 0; i < 1000; i++) {
        int64_t v = atomic_load(&r->version);
        uint64_t in[2] = { atomic_load(&r->in[0]), atomic_load(&r->in[1]) };

        out->what = comm_kind_name((enum comm_kind)atomic_load(&r->kind));
        out->waiting = atomic_load(&r->waiting) != 0;
        out->seq = atomic_load(&r->seq);
        out->step = atomic_load(&r->step);
        out->since_s = (double)(comm_now_ns() - atomic_load(&r->at_ns)) * 1e-9;
        memcpy(out->in, in, sizeof in);
        out->in[sizeof out->in - 1] = 0;
        if (v % 2 == 0 && atomic_load(&r->version) == v)
            return;
    }
}

void comm_status(struct comm *c, struct comm_status *out)
{
    read_row(own_row(c->w), out);
}

void comm_set_step(struct comm *c, int64_t step)
{
    c->w->step = step;
    atomic_store(&own_row(c->w)->step, step);
}

/* "all_gather of world #12 (step 3)" */
static const char *place(const struct comm_status *s, char *text, size_t n)
{
    int at = snprintf(text, n, "%s of %s #%lld", s->what, s->in, (long long)s->seq);

    if (s->step >= 0 && at > 0 && (size_t)at < n)
        snprintf(text + at, n - (size_t)at, " (step %lld)", (long long)s->step);
    return text;
}

/* ---- ending */

/* True for the first of a node, which speaks for all. */
static _Bool first_to_end(struct comm_world *w)
{
    int32_t none = 0;

    return atomic_compare_exchange_strong(&w->board->claimed, &none, 1);
}

/* The speaker has spoken.  The launcher ends those that compute or live on
 * another node; those that wait on this one see the board.  Not earlier: the
 * first to leave may make the launcher end the speaker. */
static void leave(struct comm_world *w, int status) __attribute__((noreturn));
static void leave(struct comm_world *w, int status)
{
    atomic_store(&w->board->status, status);
    w->world->ops->abort(w, status);
    _exit(status);
}

/* Another rank speaks, if it lives to. */
static void follow(struct comm_world *w, int status) __attribute__((noreturn));
static void follow(struct comm_world *w, int status)
{
    for (int i = 0; i < 300 && !atomic_load(&w->board->status); i++)
        usleep(10000);
    _exit(atomic_load(&w->board->status) ? atomic_load(&w->board->status) : status);
}

void comm_end(struct comm_world *w, int status)
{
    if (!first_to_end(w))
        follow(w, status);
    leave(w, status);
}

void comm_abort(struct comm *c, int code, const char *fmt, ...)
{
    struct comm_world *w = c->w;
    char text[ERR_MSG_MAX], at[128];
    struct comm_status s;
    va_list ap;

    if (!first_to_end(w))
        follow(w, err_status(code));
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    read_row(own_row(w), &s);
    log_error("rank %d on %s: %s (in %s)", w->rank, w->host, text, place(&s, at, sizeof at));
    leave(w, err_status(code));
}

/* A rank that ended in good order has taken its pid off the board before. */
void comm_check_peers(struct comm_world *w)
{
    int32_t status = atomic_load(&w->board->status);
    struct comm_status s, own;
    char there[128], here[128];

    if (status)
        _exit(status);
    for (int i = 0; i < w->node_size && w->watch_pids; i++) {
        struct comm_row *r = &w->board->rows[i];
        int32_t pid = atomic_load(&r->pid);

        if (pid == 0 || kill(pid, 0) == 0 || errno != ESRCH || atomic_load(&r->pid) == 0)
            continue;
        if (!first_to_end(w))
            follow(w, err_status(ERR_ABSENT));
        read_row(r, &s);
        read_row(own_row(w), &own);
        log_error("rank %d on %s (process %d) is gone, %s %s; rank %d waits in %s", (int)atomic_load(&r->rank), w->host, (int)pid,
                  s.waiting ? "in" : "after", place(&s, there, sizeof there), w->rank, place(&own, here, sizeof here));
        leave(w, err_status(ERR_ABSENT));
    }
}

/* ---- agreement */

struct verdict { int32_t code; char host[COMM_HOST_MAX]; };

static int weight(int code)
{
    return code >= 0 ? 0 : code == ERR_STOPPED || code == ERR_INTERRUPTED ? 1 : 2;
}

static int agree(struct comm *c, int code)
{
    struct verdict mine = { .code = code }, *v = (struct verdict *)(void *)c->share;
    char text[ERR_MSG_MAX] = "";
    int worst = 0, rc;

    _Static_assert(sizeof(struct verdict) <= COMM_SHARE_MAX, "a verdict fits a share");
    if (code < 0)
        snprintf(text, sizeof text, "%s", err_msg());
    memcpy(mine.host, c->w->host, sizeof mine.host);
    TRY(comm_share(c, &mine, sizeof mine, v));
    for (int i = 1; i < c->size; i++)
        if (weight(v[i].code) > weight(v[worst].code))
            worst = i;
    code = v[worst].code;
    if (code >= 0)
        return 0;
    mine = v[worst];
    for (int64_t at = 0; at < ERR_MSG_MAX && c->size > 1; at += COMM_SHARE_MAX) {
        TRY(rc = comm_share(c, text + at, COMM_SHARE_MAX, c->share));
        memcpy(text + at, c->share + (int64_t)worst * COMM_SHARE_MAX, COMM_SHARE_MAX);
    }
    if (c->rank != 0)
        return err_set(code, "%s", "");
    /* A sentence that is agreed again on the way out has its rank already. */
    struct hash h = hash_bytes(text, strlen(text));
    if (c->size == 1 || !text[0] || hash_eq(&h, &c->w->told))
        return err_set(code, "%s", text);
    err_set(code, "rank %d on %s: %s", worst, mine.host, text);
    c->w->told = hash_bytes(err_msg(), strlen(err_msg()));
    return code;
}

int comm_agree(struct comm *c, int code)
{
    comm_enter(c, COMM_AGREE);
    return comm_leave(c, COMM_AGREE, agree(c, code < 0 ? code : 0));
}

/* ---- watchdog */

struct watchdog {
    struct comm *c;
    double limit_s;
    void (*report)(void *ctx, const char *line);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Bool stop;
};

static void say(struct watchdog *d, const char *line)
{
    if (d->report)
        d->report(d->ctx, line);
    else
        log_error("%s", line);
}

static void report_all(struct watchdog *d)
{
    struct comm_world *w = d->c->w;
    struct comm_status s;
    char line[256], at[128];

    for (int i = 0; i < w->node_size; i++) {
        struct comm_row *r = &w->board->rows[i];

        read_row(r, &s);
        snprintf(line, sizeof line, "rank %d on %s %s %.0f s %s %s", (int)atomic_load(&r->rank), w->host,
                 s.waiting ? "waits" : "has not called for", s.since_s, s.waiting ? "in" : "after", place(&s, at, sizeof at));
        say(d, line);
    }
}

/* The lowest waiting rank of the node would be the tidiest speaker, but it may
 * be the one that hangs: the first to notice speaks. */
static void look(struct watchdog *d)
{
    struct comm_world *w = d->c->w;
    int32_t status = atomic_load(&w->board->status);
    struct comm_status s;

    if (status)
        _exit(status);
    comm_status(d->c, &s);
    if (!s.waiting || s.since_s <= d->limit_s || !first_to_end(w))
        return;
    report_all(d);
    /* The other nodes are about to report too. */
    if (w->node_size < w->size)
        sleep(1);
    /* A stopped process must go on to see that it is to end. */
    for (int i = 0; i < w->node_size && w->watch_pids; i++)
        if (i != w->node_rank && atomic_load(&w->board->rows[i].pid))
            kill(atomic_load(&w->board->rows[i].pid), SIGCONT);
    leave(w, err_status(ERR_ABSENT));
}

static void *watch(void *arg)
{
    struct watchdog *d = arg;

    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        struct timespec t;

        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 250000000;
        if (t.tv_nsec >= 1000000000) {
            t.tv_sec++;
            t.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&d->wake, &d->lock, &t);
        if (!d->stop)
            look(d);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Signals are for the thread that works. */
int comm_watchdog_start(struct comm *c, double limit_s, void (*report)(void *ctx, const char *line), void *ctx)
{
    struct watchdog *d = pool_calloc(1, sizeof *d);
    sigset_t all, old;
    int rc;

    if (!d)
        return err_sys(ERR_IO, "no memory for the watchdog");
    comm_watchdog_stop(c);
    *d = (struct watchdog){ .c = c->w->world, .limit_s = limit_s, .report = report, .ctx = ctx };
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&d->thread, NULL, watch, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        errno = rc;
        pool_free(d);
        return err_sys(ERR_ABSENT, "cannot start the watchdog");
    }
    c->w->watchdog = d;
    return 0;
}

void comm_watchdog_stop(struct comm *c)
{
    struct watchdog *d = c->w->watchdog;

    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = 1;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pool_free(d);
    c->w->watchdog = NULL;
}
