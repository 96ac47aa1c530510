/* mpi_window.c -- slots in shared memory, filled and emptied in order.
 *
 * A message path copies through the same kind of memory, but leaves the caches
 * with large messages and adds what it has received in a second pass; here a
 * slot is read while it is still in cache.  One step moves at most one slot per
 * peer and direction, so that progress between ops stays short. */
#include "comm/mpi/mpi_window.h"

#include <string.h>

#include "base/err.h"
#include "base/pool.h"
#include "comm/comm_stream.h"

enum { LINE = 64, N_SLOTS = 4, MIN_SLOT = 4096 };

struct counter { _Atomic uint64_t n; char pad[LINE - sizeof(uint64_t)]; };

/* What this rank knows of one peer. */
struct peer {
    struct counter *shared;             /* theirs: shares published */
    struct counter *to_all, *to_me;     /* theirs: slots filled */
    struct counter *read_all, *read_mine;       /* theirs: slots of mine they have emptied */
    struct counter *i_read_all, *i_read;        /* mine: slots of theirs I have emptied */
    struct counter *to_them;            /* mine: slots filled for them */
    const char *shares, *slots_all, *slots_me;  /* theirs */
    char *slots_them;                   /* mine, for them */
    struct comm_stream_cursor out, in;
    int64_t left_out, left_in;
};

struct mpi_window {
    int rank, size;
    int64_t slot, pair_slot;            /* bytes */
    struct counter *shared, *to_all;
    char *shares, *slots_all;
    struct comm_stream_cursor out;      /* gather: what goes to all */
    int64_t left_out;
    void *all;
    int64_t n_share;
    uint64_t n_shared;
    int share_next;                     /* the peer whose share is waited for */
    const void **srcs;                  /* [size] */
    struct peer peers[];
};

static int64_t slot_bytes(int64_t stage, int n)
{
    int64_t b = stage / 2 / N_SLOTS / (n > 0 ? n : 1) / LINE * LINE;

    return b < MIN_SLOT ? MIN_SLOT : b;
}

/* Counters of a segment: shared, to_all, then per rank q: filled for q, emptied
 * of q's slots for all, emptied of q's slots for me. */
static int64_t head_bytes(int size)
{
    return (2 + 3 * (int64_t)size) * LINE;
}

int64_t mpi_window_bytes(int size, int64_t stage_bytes)
{
    return head_bytes(size) + 2 * COMM_SHARE_MAX + N_SLOTS * (slot_bytes(stage_bytes, 1) + size * slot_bytes(stage_bytes, size - 1));
}

static struct counter *per_rank(char *segment, int what, int q)
{
    return (struct counter *)(void *)segment + 2 + 3 * q + what;
}

struct mpi_window *mpi_window_new(int rank, int size, int64_t stage_bytes, char *const *segments)
{
    struct mpi_window *w = pool_calloc(1, sizeof *w + (size_t)size * sizeof *w->peers);
    char *own = segments[rank];
    int64_t pairs;

    if (!w || !(w->srcs = pool_calloc((size_t)size, sizeof *w->srcs))) {
        pool_free(w);
        return NULL;
    }
    w->rank = rank;
    w->size = size;
    w->slot = slot_bytes(stage_bytes, 1);
    w->pair_slot = slot_bytes(stage_bytes, size - 1);
    w->shared = (struct counter *)(void *)own;
    w->to_all = w->shared + 1;
    w->shares = own + head_bytes(size);
    w->slots_all = w->shares + 2 * COMM_SHARE_MAX;
    pairs = head_bytes(size) + 2 * COMM_SHARE_MAX + N_SLOTS * w->slot;
    for (int q = 0; q < size; q++) {
        char *s = segments[q];
        struct peer *p = &w->peers[q];

        p->shared = (struct counter *)(void *)s;
        p->to_all = p->shared + 1;
        p->to_me = per_rank(s, 0, rank);
        p->read_all = per_rank(s, 1, rank);
        p->read_mine = per_rank(s, 2, rank);
        p->to_them = per_rank(own, 0, q);
        p->i_read_all = per_rank(own, 1, q);
        p->i_read = per_rank(own, 2, q);
        p->shares = s + head_bytes(size);
        p->slots_all = p->shares + 2 * COMM_SHARE_MAX;
        p->slots_me = s + pairs + rank * N_SLOTS * w->pair_slot;
        p->slots_them = own + pairs + q * N_SLOTS * w->pair_slot;
    }
    return w;
}

void mpi_window_free(struct mpi_window *w)
{
    if (w)
        pool_free(w->srcs);
    pool_free(w);
}

/* Of others: what they wrote before is seen after. */
static uint64_t theirs(const struct counter *c)
{
    return atomic_load_explicit(&((struct counter *)(uintptr_t)c)->n, memory_order_acquire);
}

static uint64_t ours(const struct counter *c)
{
    return atomic_load_explicit(&((struct counter *)(uintptr_t)c)->n, memory_order_relaxed);
}

static void count(struct counter *c)
{
    atomic_store_explicit(&c->n, ours(c) + 1, memory_order_release);
}

/* ---- shares
 *
 * Two places in turn: whoever publishes share n has seen all shares n - 1, so
 * all have read its share n - 2. */
void mpi_window_share(struct mpi_window *w, const void *mine, int64_t n, void *all)
{
    if (n)
        memcpy(w->shares + w->n_shared % 2 * COMM_SHARE_MAX, mine, (size_t)n);
    w->n_share = n;
    w->all = all;
    w->share_next = 0;
    w->n_shared++;
    count(w->shared);
}

int mpi_window_share_test(struct mpi_window *w)
{
    for (; w->share_next < w->size; w->share_next++) {
        const struct peer *p = &w->peers[w->share_next];

        if (theirs(p->shared) < w->n_shared)
            return COMM_IDLE;
        if (w->n_share)
            memcpy((char *)w->all + w->share_next * w->n_share,
                   p->shares + (w->n_shared - 1) % 2 * COMM_SHARE_MAX, (size_t)w->n_share);
    }
    return COMM_DONE;
}

/* ---- requests */

void mpi_window_begin(struct mpi_window *w, const struct comm_req *r)
{
    _Bool gather = r->kind == COMM_GATHER, reduce = r->kind == COMM_REDUCE;

    w->left_out = 0;
    if (gather) {
        comm_stream_begin(&w->out, r->send, r->n_send, w->rank);
        w->left_out = w->size > 1 ? comm_stream_bytes(r->send, r->n_send, w->rank) : 0;
    }
    for (int q = 0; q < w->size; q++) {
        struct peer *p = &w->peers[q];

        p->left_out = p->left_in = 0;
        /* The owner walks its own parts once per sum: as those of peer "rank". */
        comm_stream_begin(&p->out, r->send, r->n_send, q);
        comm_stream_begin(&p->in, r->recv, r->n_recv, reduce ? w->rank : q);
        if (q == w->rank)
            continue;
        p->left_out = gather ? 0 : comm_stream_bytes(r->send, r->n_send, q);
        p->left_in = reduce ? 0 : comm_stream_bytes(r->recv, r->n_recv, q);
    }
    if (reduce)
        w->peers[w->rank].left_in = comm_stream_bytes(r->recv, r->n_recv, w->rank);
}

static int64_t at_most(int64_t n, int64_t max)
{
    return n < max ? n : max;
}

static void fill(char *slot, int64_t n, struct comm_stream_cursor *s)
{
    const struct comm_part *part;
    int64_t offset, k;

    for (; n > 0; n -= k, slot += k) {
        k = comm_stream_next(s, n, &part, &offset);
        BUG_ON(k == 0);
        memcpy(slot, (const char *)part->p + offset, (size_t)k);
    }
}

static void empty(const char *slot, int64_t n, struct comm_stream_cursor *s)
{
    const struct comm_part *part;
    int64_t offset, k;

    for (; n > 0; n -= k, slot += k) {
        k = comm_stream_next(s, n, &part, &offset);
        BUG_ON(k == 0);
        memcpy((char *)part->p + offset, slot, (size_t)k);
    }
}

static _Bool fill_for_all(struct mpi_window *w)
{
    uint64_t filled = ours(w->to_all);
    int64_t n = at_most(w->left_out, w->slot);

    if (n == 0)
        return 0;
    for (int q = 0; q < w->size; q++)
        if (q != w->rank && filled - theirs(w->peers[q].read_all) >= N_SLOTS)
            return 0;
    fill(w->slots_all + (int64_t)(filled % N_SLOTS) * w->slot, n, &w->out);
    count(w->to_all);
    w->left_out -= n;
    return 1;
}

static _Bool empty_of_all(struct mpi_window *w, struct peer *p)
{
    uint64_t emptied = ours(p->i_read_all);
    int64_t n = at_most(p->left_in, w->slot);

    if (n == 0 || theirs(p->to_all) == emptied)
        return 0;
    empty(p->slots_all + (int64_t)(emptied % N_SLOTS) * w->slot, n, &p->in);
    count(p->i_read_all);
    p->left_in -= n;
    return 1;
}

static _Bool fill_for_one(struct mpi_window *w, struct peer *p)
{
    uint64_t filled = ours(p->to_them);
    int64_t n = at_most(p->left_out, w->pair_slot);

    if (n == 0 || filled - theirs(p->read_mine) >= N_SLOTS)
        return 0;
    fill(p->slots_them + (int64_t)(filled % N_SLOTS) * w->pair_slot, n, &p->out);
    count(p->to_them);
    p->left_out -= n;
    return 1;
}

static _Bool empty_of_one(struct mpi_window *w, struct peer *p)
{
    uint64_t emptied = ours(p->i_read);
    int64_t n = at_most(p->left_in, w->pair_slot);

    if (n == 0 || theirs(p->to_me) == emptied)
        return 0;
    empty(p->slots_me + (int64_t)(emptied % N_SLOTS) * w->pair_slot, n, &p->in);
    count(p->i_read);
    p->left_in -= n;
    return 1;
}

/* Adds the same slot of all ranks at once; the own term lies in the parts. */
static _Bool add_up(struct mpi_window *w, const struct comm_req *r)
{
    struct peer *own = &w->peers[w->rank];
    int64_t n = at_most(own->left_in, w->pair_slot), k;

    if (n == 0)
        return 0;
    for (int q = 0; q < w->size; q++)
        if (q != w->rank && theirs(w->peers[q].to_me) == ours(w->peers[q].i_read))
            return 0;
    for (int64_t at = 0; at < n; at += k) {
        const struct comm_part *part;
        int64_t offset;

        k = comm_stream_next(&own->in, n - at, &part, &offset);
        BUG_ON(k == 0);
        for (int q = 0; q < w->size; q++)
            w->srcs[q] = w->peers[q].slots_me + (int64_t)(ours(w->peers[q].i_read) % N_SLOTS) * w->pair_slot + at;
        w->srcs[w->rank] = (const char *)part->p + offset;
        comm_stream_reduce(part->sum, offset, w->srcs, w->size, k, r->wire, r->op);
    }
    for (int q = 0; q < w->size; q++)
        if (q != w->rank)
            count(w->peers[q].i_read);
    own->left_in -= n;
    return 1;
}

int mpi_window_step(struct mpi_window *w, const struct comm_req *r)
{
    _Bool moved = 0, left;

    if (r->kind == COMM_GATHER)
        moved = fill_for_all(w);
    for (int i = 1; i < w->size; i++) {
        /* Each rank begins with another peer, so that not all read one segment. */
        struct peer *p = &w->peers[(w->rank + i) % w->size];

        moved = fill_for_one(w, p) || moved;
        moved = (r->kind == COMM_GATHER ? empty_of_all(w, p) : empty_of_one(w, p)) || moved;
    }
    if (r->kind == COMM_REDUCE)
        moved = add_up(w, r) || moved;
    left = w->left_out > 0;
    for (int q = 0; q < w->size; q++)
        left = left || w->peers[q].left_out > 0 || w->peers[q].left_in > 0;
    return !left ? COMM_DONE : moved ? COMM_MOVED : COMM_IDLE;
}
