/* comm.c -- collectives from two primitives, in order, counted and timed.
 *
 * The one place that knows which back ends are built in.  It moves no byte
 * between ranks itself and never puts one back end in the place of another.
 *
 * Invariants (tests/comm)
 *  1. Requests of a communicator run one at a time in the order of their start;
 *     so a back end needs buffers for one, and equal orders cannot deadlock.
 *  2. Whoever waits for anything moves everything: a rank inside a barrier
 *     still serves the requests its peers wait for. */
#include "comm/comm.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/pool.h"
#include "comm/comm_ops.h"
#include "comm/comm_stream.h"

static const struct {
    const char *name;
    int (*open)(struct comm_world *w, struct comm *world);
} backends[] = {
    { "self", comm_self_open },
    { "mpi", comm_mpi_open },
};

#define N_BACKENDS (sizeof backends / sizeof *backends)

/* A sum or gather no larger than this goes through shares, which wait for
 * nothing that was started before. */
enum { SMALL = 8 * COMM_SHARE_MAX };

int64_t comm_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- opening */

static int set_up(struct comm *c, struct comm_world *w, const char *name)
{
    size_t n = (size_t)c->size;

    c->w = w;
    c->tail = &c->head;
    strncpy(c->name, name, sizeof c->name - 1);
    c->share = pool_calloc(n, COMM_SHARE_MAX);
    c->parts = pool_calloc(n, sizeof *c->parts);
    c->srcs = pool_calloc(n, sizeof *c->srcs);
    if (!c->share || !c->parts || !c->srcs)
        return err_sys(ERR_IO, "no memory for the communicator %s", name);
    w->bytes += (int64_t)(sizeof *c + n * (COMM_SHARE_MAX + sizeof *c->parts + sizeof *c->srcs));
    return 0;
}

static void let_go(struct comm *c)
{
    pool_free(c->share);
    pool_free(c->parts);
    pool_free(c->srcs);
    pool_free(c);
}

int comm_open(const char *name, const struct comm_options *o, struct comm **out)
{
    struct comm_world *w = pool_calloc(1, sizeof *w);
    struct comm *c = pool_calloc(1, sizeof *c);
    int rc = ERR_ABSENT;
    size_t i;

    *out = NULL;
    if (!w || !c) {
        rc = err_sys(ERR_IO, "no memory for the communicator");
        goto fail;
    }
    if (o)
        w->options = *o;
    w->world = c;
    w->step = -1;
    for (i = 0; i < N_BACKENDS && strcmp(backends[i].name, name) != 0; i++)
        ;
    if (i == N_BACKENDS) {
        err_set(rc, "communication back end \"%s\" is not built in", name);
        goto fail;
    }
    if ((rc = backends[i].open(w, c)) < 0)
        goto fail;
    if ((rc = set_up(c, w, "world")) < 0) {
        c->ops->close(c);
        c->ops->close_world(w);
        goto fail;
    }
    comm_row_begin(c);
    /* From here on every rank finds all rows filled in. */
    if ((rc = comm_share(c, NULL, 0, NULL)) < 0) {
        comm_close(c);
        return rc;
    }
    *out = c;
    return 0;
fail:
    if (c)
        let_go(c);
    pool_free(w);
    return rc;
}

void comm_close(struct comm *c)
{
    struct comm_world *w;

    if (!c)
        return;
    w = c->w;
    BUG_ON(c->head);
    if (c != w->world) {
        struct comm *p = w->world;
        while (p->next != c)
            p = p->next;
        p->next = c->next;
        c->ops->close(c);
        w->bytes -= (int64_t)(sizeof *c + (size_t)c->size * (COMM_SHARE_MAX + sizeof *c->parts + sizeof *c->srcs));
        let_go(c);
        return;
    }
    BUG_ON(c->next);
    comm_watchdog_stop(c);
    c->ops->close(c);
    c->ops->close_world(w);
    let_go(c);
    pool_free(w);
}

const char *const *comm_names(void)
{
    static const char *names[N_BACKENDS + 1];
    int n = 0;

    for (size_t i = 0; i < N_BACKENDS; i++)
        if (strcmp(backends[i].name, "mpi") != 0 || comm_mpi_built_in())
            names[n++] = backends[i].name;
    names[n] = NULL;
    return names;
}

static int split(struct comm *c, int color, int key, _Bool by_node, const char *name, struct comm **out)
{
    struct comm *n = pool_calloc(1, sizeof *n), **end = &c->next;
    int rc;

    *out = NULL;
    if (!n)
        return err_sys(ERR_IO, "no memory for the communicator %s", name);
    for (struct comm *k = c->w->world; k; k = k->next)
        if (k->head) {
            let_go(n);
            return err_set(ERR_BUG, "split of %s: a request of %s is open", c->name, k->name);
        }
    comm_enter(c, COMM_SPLIT);
    n->ops = c->ops;
    n->w = c->w;
    rc = c->ops->split(c, color, key, by_node, n);
    if (rc == 0 && n->size > 0 && (rc = set_up(n, c->w, name)) < 0)
        c->ops->close(n);
    if (rc < 0 || n->size == 0) {
        let_go(n);
        return comm_leave(c, COMM_SPLIT, rc);
    }
    while (*end)
        end = &(*end)->next;
    *end = n;
    *out = n;
    return comm_leave(c, COMM_SPLIT, rc);
}

int comm_split(struct comm *c, int color, int key, const char *name, struct comm **out)
{
    return split(c, color, key, 0, name, out);
}

int comm_split_node(struct comm *c, const char *name, struct comm **out)
{
    return split(c, 0, c->rank, 1, name, out);
}

int comm_rank(const struct comm *c) { return c->rank; }
int comm_size(const struct comm *c) { return c->size; }
const char *comm_name(const struct comm *c) { return c->name; }
const char *comm_backend(const struct comm *c) { return c->ops->name; }
int comm_world_rank(const struct comm *c) { return c->w->rank; }
int comm_world_size(const struct comm *c) { return c->w->size; }
const char *comm_host(const struct comm *c) { return c->w->host; }
int comm_node_rank(const struct comm *c) { return c->w->node_rank; }
int comm_node_size(const struct comm *c) { return c->w->node_size; }
int64_t comm_bytes(const struct comm *c) { return c->w->bytes; }

/* ---- moving and waiting */

/* Runs the oldest requests of c as far as they go; true if anything moved. */
static _Bool advance(struct comm *c)
{
    _Bool moved = 0;

    while (c->head) {
        struct comm_req *r = c->head;
        int rc = 0;

        if (!r->begun) {
            r->begun = 1;
            rc = c->ops->begin(c, r);
        }
        if (rc >= 0)
            rc = c->ops->step(c, r);
        moved = moved || rc != COMM_IDLE;
        if (rc == COMM_IDLE || rc == COMM_MOVED)
            break;
        /* After an error the peers are out of step; what was started later
         * must not run into their leftovers. */
        for (;;) {
            r->rc = rc < 0 ? rc : 0;
            r->done = 1;
            c->head = r->next;
            if (rc >= 0 || !c->head)
                break;
            r = c->head;
        }
        if (!c->head)
            c->tail = &c->head;
    }
    return moved;
}

static _Bool advance_all(struct comm_world *w)
{
    _Bool moved = 0;

    for (struct comm *c = w->world; c; c = c->next)
        if (c->head)
            moved = advance(c) || moved;
    return moved;
}

/* One round of waiting.  Ranks may outnumber the cores, so a waiter gives its
 * core away soon; the peers are looked at every 20 ms. */
static void wait_round(struct comm_world *w, int *idle)
{
    if (advance_all(w)) {
        *idle = 0;
        return;
    }
    if (++*idle < 50)
        return;
    sched_yield();
    if (*idle % 16 == 0 && comm_now_ns() - w->checked_ns > 20000000) {
        w->checked_ns = comm_now_ns();
        comm_check_peers(w);
    }
}

void comm_enter(struct comm *c, enum comm_kind kind)
{
    struct comm_world *w = c->w;

    w->counts.calls[kind]++;
    comm_row_set(c, kind, ++w->seq, 1);
    w->entered_ns = comm_now_ns();
}

int comm_leave(struct comm *c, enum comm_kind kind, int rc)
{
    struct comm_world *w = c->w;

    w->counts.wait_s += (double)(comm_now_ns() - w->entered_ns) * 1e-9;
    comm_row_set(c, kind, w->seq, 0);
    return rc;
}

int comm_share(struct comm *c, const void *mine, int64_t n, void *all)
{
    int idle = 0, rc;

    TRY(c->ops->share_start(c, mine, n, all));
    while ((rc = c->ops->share_test(c)) != COMM_DONE) {
        TRY(rc);
        wait_round(c->w, &idle);
    }
    return 0;
}

static void count(struct comm *c, enum comm_kind kind, int64_t sent, int64_t received)
{
    c->w->counts.sent[kind] += sent;
    c->w->counts.received[kind] += received;
}

/* ---- requests */

static int check(struct comm *c, const struct comm_part *v, int n, enum comm_kind kind)
{
    for (int i = 0; i < n; i++)
        if (v[i].rank < 0 || v[i].rank >= c->size || v[i].bytes < 0)
            return err_set(ERR_BUG, "%s of %s: part %d names rank %d and %lld bytes", comm_kind_name(kind), c->name, i,
                           v[i].rank, (long long)v[i].bytes);
    return 0;
}

static void count_request(struct comm_req *r)
{
    struct comm *c = r->c;
    int64_t own_out = comm_stream_bytes(r->send, r->n_send, c->rank), own_in = comm_stream_bytes(r->recv, r->n_recv, c->rank);
    int64_t all_out = 0, all_in = 0, others = c->size - 1;

    for (int i = 0; i < r->n_send; i++)
        all_out += r->send[i].bytes;
    for (int i = 0; i < r->n_recv; i++)
        all_in += r->recv[i].bytes;
    if (r->kind == COMM_GATHER)
        count(c, r->label, own_out * others, all_in - own_in);
    else if (r->kind == COMM_REDUCE)
        count(c, r->label, all_out - own_out, own_in * others);
    else
        count(c, r->label, all_out - own_out, all_in - own_in);
}

/* What a rank sends to itself: copied, or only compared. */
static int own_parts(struct comm *c, const struct comm_req *r, _Bool copy)
{
    const struct comm_part *from, *to;
    struct comm_stream_cursor out, in;
    int64_t n, m;

    comm_stream_begin(&out, r->send, r->n_send, c->rank);
    comm_stream_begin(&in, r->recv, r->n_recv, c->rank);
    do {
        n = comm_stream_next(&out, INT64_MAX, &from, NULL);
        m = comm_stream_next(&in, INT64_MAX, &to, NULL);
        if (n != m)
            return err_set(ERR_BUG, "all_to_all of %s: a rank sends itself %lld bytes, but takes %lld", c->name, (long long)n,
                           (long long)m);
        if (n && copy)
            memcpy(to->p, from->p, (size_t)n);
    } while (n);
    return 0;
}

/* Puts a request in line; the call it belongs to has been counted. */
static int submit(struct comm *c, const struct comm_req *what, struct comm_req **out)
{
    struct comm_req *r = NULL;

    *out = NULL;
    TRY(check(c, what->send, what->n_send, what->label));
    TRY(check(c, what->recv, what->n_recv, what->label));
    if (what->kind == COMM_ALL_TO_ALL)
        TRY(own_parts(c, what, 0));
    if (what->kind == COMM_REDUCE && !comm_stream_sum_size(what->wire))
        return err_set(ERR_BUG, "reduce of %s: %s is not summed", c->name, dtype_name(what->wire));
    for (int i = 0; i < COMM_MAX_REQS && !r; i++)
        if (!c->reqs[i].used)
            r = &c->reqs[i];
    if (!r)
        return err_set(ERR_BUG, "%s of %s: more than %d requests are open", comm_kind_name(what->label), c->name, COMM_MAX_REQS);
    *r = *what;
    r->c = c;
    r->used = 1;
    r->seq = c->w->seq;
    count_request(r);
    if (r->kind == COMM_ALL_TO_ALL)
        own_parts(c, r, 1);
    *c->tail = r;
    c->tail = &r->next;
    advance(c);
    *out = r;
    return 0;
}

static int start(struct comm *c, const struct comm_req *what, struct comm_req **out)
{
    int64_t t = comm_now_ns();
    int rc;

    c->w->counts.calls[what->label]++;
    c->w->seq++;
    rc = submit(c, what, out);
    c->w->counts.wait_s += (double)(comm_now_ns() - t) * 1e-9;
    return rc;
}

static int finish(struct comm_req *r)
{
    int idle = 0, rc;

    while (!r->done)
        wait_round(r->c->w, &idle);
    rc = r->rc;
    r->used = 0;
    return rc;
}

/* Runs a request to its end inside a call that has been entered. */
static int run(struct comm *c, const struct comm_req *what)
{
    struct comm_req *r;

    TRY(submit(c, what, &r));
    return finish(r);
}

static int run_alone(struct comm *c, const struct comm_req *what)
{
    comm_enter(c, what->label);
    return comm_leave(c, what->label, run(c, what));
}

int comm_wait(struct comm_req **r)
{
    struct comm_req *q = *r;
    struct comm_world *w;
    int64_t t;
    int rc;

    *r = NULL;
    if (!q)
        return 0;
    w = q->c->w;
    t = comm_now_ns();
    comm_row_set(q->c, q->label, q->seq, 1);
    rc = finish(q);
    comm_row_set(q->c, q->label, q->seq, 0);
    w->counts.wait_s += (double)(comm_now_ns() - t) * 1e-9;
    return rc;
}

int comm_test(struct comm_req **r)
{
    if (!*r)
        return 1;
    if (!(*r)->done)
        comm_progress((*r)->c);
    if (!(*r)->done)
        return 0;
    TRY(comm_wait(r));
    return 1;
}

void comm_progress(struct comm *c)
{
    struct comm_world *w = c->w;
    _Bool open = 0;

    for (struct comm *k = w->world; k; k = k->next)
        open = open || k->head;
    if (!open)
        return;
    int64_t t = comm_now_ns();
    advance_all(w);
    w->counts.wait_s += (double)(comm_now_ns() - t) * 1e-9;
}

/* ---- the heavy calls */

static struct comm_req of_parts(enum comm_kind kind, enum comm_kind label, const struct comm_part *v, int n)
{
    return (struct comm_req){ .kind = kind, .label = label, .send = v, .recv = v, .n_send = n, .n_recv = n };
}

static struct comm_req of_reduce(enum comm_kind label, const struct comm_part *v, int n, enum dtype wire, enum comm_op op)
{
    struct comm_req r = of_parts(COMM_REDUCE, label, v, n);

    r.wire = wire;
    r.op = op;
    return r;
}

static struct comm_req of_all_to_all(enum comm_kind label, const struct comm_part *send, int n_send,
                                     const struct comm_part *recv, int n_recv)
{
    return (struct comm_req){ .kind = COMM_ALL_TO_ALL, .label = label, .send = send, .recv = recv,
                              .n_send = n_send, .n_recv = n_recv };
}

int comm_gather(struct comm *c, const struct comm_part *parts, int n_parts)
{
    struct comm_req r = of_parts(COMM_GATHER, COMM_GATHER, parts, n_parts);

    return run_alone(c, &r);
}

int comm_start_gather(struct comm *c, const struct comm_part *parts, int n_parts, struct comm_req **out)
{
    struct comm_req r = of_parts(COMM_GATHER, COMM_GATHER, parts, n_parts);

    return start(c, &r, out);
}

int comm_reduce(struct comm *c, const struct comm_part *parts, int n_parts, enum dtype wire)
{
    struct comm_req r = of_reduce(COMM_REDUCE, parts, n_parts, wire, COMM_SUM);

    return run_alone(c, &r);
}

int comm_start_reduce(struct comm *c, const struct comm_part *parts, int n_parts, enum dtype wire, struct comm_req **out)
{
    struct comm_req r = of_reduce(COMM_REDUCE, parts, n_parts, wire, COMM_SUM);

    return start(c, &r, out);
}

int comm_all_to_all(struct comm *c, const struct comm_part *send, int n_send, const struct comm_part *recv, int n_recv)
{
    struct comm_req r = of_all_to_all(COMM_ALL_TO_ALL, send, n_send, recv, n_recv);

    return run_alone(c, &r);
}

int comm_start_all_to_all(struct comm *c, const struct comm_part *send, int n_send,
                          const struct comm_part *recv, int n_recv, struct comm_req **out)
{
    struct comm_req r = of_all_to_all(COMM_ALL_TO_ALL, send, n_send, recv, n_recv);

    return start(c, &r, out);
}

/* ---- the small calls */

int comm_barrier(struct comm *c)
{
    comm_enter(c, COMM_BARRIER);
    return comm_leave(c, COMM_BARRIER, comm_share(c, NULL, 0, NULL));
}

/* All terms reach all ranks, and each adds them in the same order. */
static int reduce_small(struct comm *c, char *v, int64_t bytes, enum dtype dt, enum comm_op op)
{
    for (int64_t at = 0; at < bytes; at += COMM_SHARE_MAX) {
        int64_t n = bytes - at < COMM_SHARE_MAX ? bytes - at : COMM_SHARE_MAX;

        TRY(comm_share(c, v + at, n, c->share));
        for (int i = 0; i < c->size; i++)
            c->srcs[i] = c->share + i * n;
        comm_stream_reduce(v + at, 0, c->srcs, c->size, n, dt, op);
    }
    count(c, COMM_ALL_REDUCE, bytes * (c->size - 1), bytes * (c->size - 1));
    return 0;
}

/* Each rank adds one slice, then the slices are gathered: 2 x the bytes,
 * however many ranks there are, and the same bits as above. */
static int reduce_large(struct comm *c, char *v, int64_t bytes, int64_t size, enum dtype dt, enum comm_op op)
{
    int64_t n = bytes / size, each = n / c->size, more = n % c->size, at = 0;
    struct comm_req r;

    for (int i = 0; i < c->size; i++) {
        int64_t k = (each + (i < more)) * size;

        c->parts[i] = (struct comm_part){ i, k, v + at, v + at };
        at += k;
    }
    r = of_reduce(COMM_ALL_REDUCE, c->parts, c->size, dt, op);
    TRY(run(c, &r));
    r = of_parts(COMM_GATHER, COMM_ALL_REDUCE, c->parts, c->size);
    return run(c, &r);
}

int comm_all_reduce(struct comm *c, void *v, int64_t n, enum dtype dt, enum comm_op op)
{
    int64_t size = comm_stream_sum_size(dt);
    int rc = 0;

    comm_enter(c, COMM_ALL_REDUCE);
    if (size == 0 || dt == DT_BF16)
        rc = err_set(ERR_BUG, "all_reduce of %s: not for %s", c->name, dtype_name(dt));
    else if (n * size <= SMALL)
        rc = reduce_small(c, v, n * size, dt, op);
    else
        rc = reduce_large(c, v, n * size, size, dt, op);
    return comm_leave(c, COMM_ALL_REDUCE, rc);
}

/* Parts that lie behind one another in rank order. */
static void pack(struct comm *c, char *all, const int64_t *bytes, int64_t each)
{
    for (int i = 0; i < c->size; i++) {
        int64_t n = bytes ? bytes[i] : each;

        c->parts[i] = (struct comm_part){ i, n, all, NULL };
        if (n)
            all += n;
    }
}

static int gather_packed(struct comm *c, const void *mine, const int64_t *bytes, int64_t each, void *all)
{
    struct comm_part *own = &c->parts[c->rank];

    pack(c, all, bytes, each);
    if (own->bytes && own->p != mine)
        memcpy(own->p, mine, (size_t)own->bytes);
    struct comm_req r = of_parts(COMM_GATHER, COMM_ALL_GATHER, c->parts, c->size);
    return run(c, &r);
}

int comm_all_gather(struct comm *c, const void *mine, int64_t bytes, void *all)
{
    int rc;

    comm_enter(c, COMM_ALL_GATHER);
    if (bytes <= COMM_SHARE_MAX) {
        rc = comm_share(c, mine, bytes, all);
        count(c, COMM_ALL_GATHER, bytes * (c->size - 1), bytes * (c->size - 1));
    } else {
        rc = gather_packed(c, mine, NULL, bytes, all);
    }
    return comm_leave(c, COMM_ALL_GATHER, rc);
}

int comm_all_gatherv(struct comm *c, const void *mine, const int64_t *bytes, void *all)
{
    comm_enter(c, COMM_ALL_GATHER);
    return comm_leave(c, COMM_ALL_GATHER, gather_packed(c, mine, bytes, 0, all));
}

int comm_broadcast(struct comm *c, int owner, void *p, int64_t bytes)
{
    struct comm_part part = { owner, bytes, p, NULL };
    struct comm_req r = of_parts(COMM_GATHER, COMM_BROADCAST, &part, 1);

    return run_alone(c, &r);
}

static int gather_bytes(struct arena *a, struct comm *c, const void *p, int64_t n, char **all, int64_t *ends)
{
    int64_t *sizes = (int64_t *)(void *)c->share, total = 0;
    struct comm_part mine = { 0, n, NULL, NULL };
    struct comm_req r;

    TRY(comm_share(c, &n, sizeof n, sizes));
    for (int i = 0; i < c->size && c->rank == 0; i++) {
        total += sizes[i];
        c->parts[i] = (struct comm_part){ i, sizes[i], NULL, NULL };
        ends[i] = total;
    }
    if (c->rank == 0) {
        *all = arena_alloc(a, (size_t)total + 1);
        (*all)[total] = 0;
        for (int i = 0; i < c->size; i++)
            c->parts[i].p = *all + (ends[i] - c->parts[i].bytes);
    }
    /* A send part is only read. */
    memcpy(&mine.p, &p, sizeof p);
    r = of_all_to_all(COMM_GATHER_BYTES, &mine, 1, c->parts, c->rank == 0 ? c->size : 0);
    return run(c, &r);
}

int comm_gather_bytes(struct arena *a, struct comm *c, const void *p, int64_t n, char **all, int64_t *ends)
{
    *all = NULL;
    comm_enter(c, COMM_GATHER_BYTES);
    return comm_leave(c, COMM_GATHER_BYTES, gather_bytes(a, c, p, n, all, ends));
}

/* ---- facts */

const char *comm_kind_name(enum comm_kind k)
{
    static const char *const names[COMM_N_KINDS] = {
        "barrier", "all_reduce", "all_gather", "broadcast", "gather_bytes", "gather", "reduce", "all_to_all", "agree", "split",
    };

    return k < COMM_N_KINDS ? names[k] : "none";
}

void comm_counts(const struct comm *c, struct comm_counts *out)
{
    *out = c->w->counts;
}
