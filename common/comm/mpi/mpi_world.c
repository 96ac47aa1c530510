/* mpi_world.c -- ranks started by a launcher, through MPI.
 *
 * Payload goes through windows of shared memory where all ranks of a communicator
 * live on one node, and as messages elsewhere; both give the same bits.
 * MPI starts only where a launcher has set its variables: alone it would fork a
 * daemon for nothing.  Errors of MPI come back as ERR_ABSENT.
 *
 * Finalizing is put off to the end of the process: some launchers end all ranks
 * as soon as one leaves with an error, and rank 0 may still have to say why. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/pool.h"
#include "comm/comm_launch.h"
#include "comm/comm_ops.h"
#include "comm/mpi/mpi_message.h"
#include "comm/mpi/mpi_window.h"

#define STAGE_BYTES ((int64_t)1 << 20)

struct mpi_comm {
    MPI_Comm comm;
    MPI_Win win;
    struct mpi_window *window;          /* one of these two */
    struct mpi_message *message;
    MPI_Request share;
};

struct mpi_world {
    MPI_Comm node;
    MPI_Win board;
};

/* For the end of the process. */
static struct comm_world *open_world;
static pid_t started_in;

_Bool comm_mpi_built_in(void) { return 1; }

static int check(int mpi_code, const char *what)
{
    return mpi_message_error(mpi_code, what);
}

/* A rank that leaves without closing its world takes the others along, since
 * they would wait for it for ever. */
static void at_end(void)
{
    int over = 0;

    if (getpid() != started_in || MPI_Finalized(&over) != MPI_SUCCESS || over)
        return;
    if (open_world && open_world->size > 1)
        comm_end(open_world, err_last() < 0 ? err_status(err_last()) : err_status(ERR_BUG));
    MPI_Finalize();
}

/* ---- communicators */

static int map_window(struct mpi_comm *m, int rank, int size, int64_t stage, struct comm_world *w)
{
    MPI_Aint bytes = (MPI_Aint)mpi_window_bytes(size, stage);
    char **at = pool_calloc((size_t)size, sizeof *at);
    MPI_Info info = MPI_INFO_NULL;
    void *own = NULL;
    int rc = 0, unit;

    if (!at)
        return err_sys(ERR_IO, "no memory for the communicator");
    /* Each rank's pages lie where that rank runs. */
    TRY_OUT(rc, check(MPI_Info_create(&info), "MPI_Info_create"));
    TRY_OUT(rc, check(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set"));
    TRY_OUT(rc, check(MPI_Win_allocate_shared(bytes, 1, info, m->comm, &own, &m->win), "MPI_Win_allocate_shared"));
    memset(own, 0, (size_t)bytes);
    for (int q = 0; q < size; q++) {
        MPI_Aint n;
        TRY_OUT(rc, check(MPI_Win_shared_query(m->win, q, &n, &unit, &at[q]), "MPI_Win_shared_query"));
    }
    TRY_OUT(rc, check(MPI_Barrier(m->comm), "MPI_Barrier"));
    m->window = mpi_window_new(rank, size, stage, at);
    if (!m->window)
        rc = err_sys(ERR_IO, "no memory for the communicator");
    w->bytes += bytes;
out:
    if (info != MPI_INFO_NULL)
        MPI_Info_free(&info);
    pool_free(at);
    return rc;
}

static const struct comm_ops window_ops, message_ops;

/* Takes comm.  Everything here is collective in it. */
static int make(struct comm_world *w, MPI_Comm comm, struct comm *out)
{
    struct mpi_comm *m = pool_calloc(1, sizeof *m);
    int64_t stage = w->options.stage_bytes ? w->options.stage_bytes : STAGE_BYTES;
    MPI_Comm node;
    int on_node = 0;

    if (!m)
        return err_sys(ERR_IO, "no memory for the communicator");
    *m = (struct mpi_comm){ .comm = comm, .win = MPI_WIN_NULL, .share = MPI_REQUEST_NULL };
    out->self = m;
    TRY(check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    TRY(check(MPI_Comm_rank(comm, &out->rank), "MPI_Comm_rank"));
    TRY(check(MPI_Comm_size(comm, &out->size), "MPI_Comm_size"));
    TRY(check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, out->rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type"));
    MPI_Comm_size(node, &on_node);
    MPI_Comm_free(&node);
    if (on_node == out->size && !w->options.no_windows) {
        out->ops = &window_ops;
        return map_window(m, out->rank, out->size, stage, w);
    }
    out->ops = &message_ops;
    m->message = mpi_message_new((int)MPI_Comm_c2f(comm), out->rank, out->size, &w->options);
    if (!m->message)
        return err_sys(ERR_IO, "no memory for the communicator");
    w->bytes += mpi_message_bytes(m->message);
    return 0;
}

static int split(struct comm *c, int color, int key, _Bool by_node, struct comm *out)
{
    struct mpi_comm *m = c->self;
    MPI_Comm comm;

    if (by_node)
        TRY(check(MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &comm), "MPI_Comm_split_type"));
    else
        TRY(check(MPI_Comm_split(m->comm, color < 0 ? MPI_UNDEFINED : color, key, &comm), "MPI_Comm_split"));
    if (comm == MPI_COMM_NULL)
        return 0;
    return make(c->w, comm, out);
}

static void close_comm(struct comm *c)
{
    struct mpi_comm *m = c->self;

    if (!m)
        return;
    if (m->window)
        c->w->bytes -= mpi_window_bytes(c->size, c->w->options.stage_bytes ? c->w->options.stage_bytes : STAGE_BYTES);
    if (m->message)
        c->w->bytes -= mpi_message_bytes(m->message);
    mpi_window_free(m->window);
    mpi_message_free(m->message);
    if (m->win != MPI_WIN_NULL)
        MPI_Win_free(&m->win);
    MPI_Comm_free(&m->comm);
    pool_free(m);
    c->self = NULL;
}

/* ---- moving */

static int window_share_start(struct comm *c, const void *mine, int64_t n, void *all)
{
    mpi_window_share(((struct mpi_comm *)c->self)->window, mine, n, all);
    return 0;
}

static int window_share_test(struct comm *c)
{
    return mpi_window_share_test(((struct mpi_comm *)c->self)->window);
}

static int window_begin(struct comm *c, struct comm_req *r)
{
    mpi_window_begin(((struct mpi_comm *)c->self)->window, r);
    return 0;
}

static int window_step(struct comm *c, struct comm_req *r)
{
    return mpi_window_step(((struct mpi_comm *)c->self)->window, r);
}

static int message_share_start(struct comm *c, const void *mine, int64_t n, void *all)
{
    struct mpi_comm *m = c->self;

    if (n == 0)
        return check(MPI_Ibarrier(m->comm, &m->share), "MPI_Ibarrier");
    if ((const char *)mine != (char *)all + c->rank * n)
        memcpy((char *)all + c->rank * n, mine, (size_t)n);
    return check(MPI_Iallgather(MPI_IN_PLACE, (int)n, MPI_BYTE, all, (int)n, MPI_BYTE, m->comm, &m->share), "MPI_Iallgather");
}

static int message_share_test(struct comm *c)
{
    struct mpi_comm *m = c->self;
    int done = 0;

    TRY(check(MPI_Test(&m->share, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    return done ? COMM_DONE : COMM_IDLE;
}

static int message_begin(struct comm *c, struct comm_req *r)
{
    return mpi_message_begin(((struct mpi_comm *)c->self)->message, r);
}

static int message_step(struct comm *c, struct comm_req *r)
{
    return mpi_message_step(((struct mpi_comm *)c->self)->message, r);
}

/* ---- the world */

static void leave(struct comm_world *w, int status)
{
    (void)w;
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void close_world(struct comm_world *w)
{
    struct mpi_world *m = w->self;

    open_world = NULL;
    if (!m)
        return;
    if (m->board != MPI_WIN_NULL) {
        atomic_store(&w->board->rows[w->node_rank].pid, 0);
        MPI_Win_free(&m->board);
    }
    MPI_Comm_free(&m->node);
    pool_free(m);
}

static const struct comm_ops window_ops = {
    .name = "mpi windows", .split = split, .close = close_comm, .close_world = close_world,
    .share_start = window_share_start, .share_test = window_share_test, .begin = window_begin, .step = window_step,
    .abort = leave,
};

static const struct comm_ops message_ops = {
    .name = "mpi messages", .split = split, .close = close_comm, .close_world = close_world,
    .share_start = message_share_start, .share_test = message_share_test, .begin = message_begin, .step = message_step,
    .abort = leave,
};

/* Containers may hide the processes of one node from each other. */
static int see_pids(struct comm_world *w, MPI_Comm node)
{
    int pid = (int)getpid(), see = 1, all;
    int *pids = pool_calloc((size_t)w->node_size, sizeof *pids), rc;

    if (!pids)
        return err_sys(ERR_IO, "no memory for the communicator");
    rc = check(MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, node), "MPI_Allgather");
    for (int i = 0; rc == 0 && i < w->node_size; i++) {
        see = see && kill(pids[i], 0) == 0;
        for (int j = 0; j < i; j++)
            see = see && pids[i] != pids[j];
    }
    if (rc == 0)
        rc = check(MPI_Allreduce(&see, &all, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce");
    w->watch_pids = rc == 0 && all;
    pool_free(pids);
    return rc;
}

static int make_board(struct comm_world *w, struct mpi_world *m)
{
    size_t bytes;
    MPI_Aint n;
    int unit;

    TRY(check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &m->node), "MPI_Comm_split_type"));
    TRY(check(MPI_Comm_rank(m->node, &w->node_rank), "MPI_Comm_rank"));
    TRY(check(MPI_Comm_size(m->node, &w->node_size), "MPI_Comm_size"));
    bytes = sizeof *w->board + (size_t)w->node_size * sizeof *w->board->rows;
    TRY(check(MPI_Win_allocate_shared(w->node_rank == 0 ? (MPI_Aint)bytes : 0, 1, MPI_INFO_NULL, m->node, &w->board, &m->board),
              "MPI_Win_allocate_shared"));
    TRY(check(MPI_Win_shared_query(m->board, 0, &n, &unit, &w->board), "MPI_Win_shared_query"));
    if (w->node_rank == 0)
        memset(w->board, 0, bytes);
    TRY(check(MPI_Barrier(m->node), "MPI_Barrier"));
    return see_pids(w, m->node);
}

int comm_mpi_open(struct comm_world *w, struct comm *world)
{
    struct mpi_world *m;
    struct comm_launch l;
    MPI_Comm comm;
    int got, on = 0;

    TRY(comm_launch_look(&l));
    if (!l.by)
        return err_set(ERR_ABSENT, "no launcher has started this program; use --ranks, mpirun or srun --mpi=pmix");
    MPI_Initialized(&on);
    if (on)
        return err_set(ERR_ABSENT, "MPI starts once in a process");
    TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &got), "MPI_Init_thread"));
    started_in = getpid();
    atexit(at_end);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!(m = pool_calloc(1, sizeof *m)))
        return err_sys(ERR_IO, "no memory for the communicator");
    w->self = m;
    m->board = MPI_WIN_NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    if (gethostname(w->host, sizeof w->host - 1) < 0)
        w->host[0] = 0;
    TRY(make_board(w, m));
    TRY(check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup"));
    TRY(make(w, comm, world));
    open_world = w;
    return 0;
}
