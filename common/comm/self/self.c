/* self.c -- the world of one rank.
 *
 * Everything a rank gives to itself is copied by comm.c, so what is left here
 * is the sum over one rank.  It starts no process and knows no peer. */
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/pool.h"
#include "comm/comm_ops.h"
#include "comm/comm_stream.h"

static int split(struct comm *c, int color, int key, _Bool by_node, struct comm *out)
{
    (void)c;
    (void)key;
    out->size = by_node || color >= 0;
    return 0;
}

static void nothing_to_close(struct comm *c) { (void)c; }

static void close_world(struct comm_world *w)
{
    pool_free(w->board);
}

static int share_start(struct comm *c, const void *mine, int64_t n, void *all)
{
    (void)c;
    if (mine != all && n)
        memmove(all, mine, (size_t)n);
    return 0;
}

static int share_test(struct comm *c)
{
    (void)c;
    return COMM_DONE;
}

static int begin(struct comm *c, struct comm_req *r)
{
    (void)c;
    (void)r;
    return 0;
}

static int step(struct comm *c, struct comm_req *r)
{
    (void)c;
    for (int i = 0; r->kind == COMM_REDUCE && i < r->n_recv; i++) {
        const void *src = r->recv[i].p;
        comm_stream_reduce(r->recv[i].sum, 0, &src, 1, r->recv[i].bytes, r->wire, r->op);
    }
    return COMM_DONE;
}

static void leave(struct comm_world *w, int status)
{
    (void)w;
    (void)status;
}

static const struct comm_ops ops = {
    .name = "self", .split = split, .close = nothing_to_close, .close_world = close_world,
    .share_start = share_start, .share_test = share_test, .begin = begin, .step = step, .abort = leave,
};

int comm_self_open(struct comm_world *w, struct comm *world)
{
    w->board = pool_calloc(1, sizeof *w->board + sizeof *w->board->rows);
    if (!w->board)
        return err_sys(ERR_IO, "no memory for the communicator");
    w->size = w->node_size = 1;
    if (gethostname(w->host, sizeof w->host) < 0)
        w->host[0] = 0;
    world->ops = &ops;
    world->size = 1;
    return 0;
}
