/* mpi_message.c -- pieces of parts as non-blocking sends and receives.
 *
 * Each pair of ranks has two messages under way in each direction.  They carry
 * one tag: MPI keeps the order between two ranks, and requests of a communicator
 * do not overlap.  No message is larger than 64 MiB, so that no count of MPI's
 * int interface overflows. */
#include "comm/mpi/mpi_message.h"

#include <mpi.h>
#include <string.h>

#include "base/err.h"
#include "base/pool.h"
#include "comm/comm_stream.h"

enum { DEPTH = 2, TAG = 0, MIN_CHUNK = 4096, MAX_CHUNK = 1 << 20 };

#define MAX_MESSAGE ((int64_t)64 << 20)
#define STAGE_BYTES ((int64_t)1 << 20)

struct peer {
    struct comm_stream_cursor out, in;
    int64_t left_out, left_in;          /* bytes not yet posted */
    int64_t sent, received;             /* messages posted */
};

struct mpi_message {
    MPI_Comm comm;
    int rank, size;
    int64_t most, chunk;                /* bytes of a message; of a term of a sum */
    char *stage;                        /* [size][DEPTH][chunk] */
    const void **srcs;                  /* [size] */
    MPI_Request *reqs;                  /* [size][2][DEPTH]: receives, sends */
    int *done;                          /* [size * 2 * DEPTH] */
    struct comm_stream_cursor sum;
    int64_t left_sum, summed;           /* bytes left, messages added */
    struct peer peers[];
};

int mpi_message_error(int mpi_code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;

    if (mpi_code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(mpi_code, text, &n);
    return err_set(ERR_ABSENT, "%s: %s", what, text);
}

struct mpi_message *mpi_message_new(int comm, int rank, int size, const struct comm_options *o)
{
    struct mpi_message *m = pool_calloc(1, sizeof *m + (size_t)size * sizeof *m->peers);
    int64_t stage = o->stage_bytes ? o->stage_bytes : STAGE_BYTES;
    size_t n = (size_t)size;

    if (!m)
        return NULL;
    m->comm = MPI_Comm_f2c(comm);
    m->rank = rank;
    m->size = size;
    m->most = o->stage_bytes ? o->stage_bytes : MAX_MESSAGE;
    m->chunk = stage / size / DEPTH / 64 * 64;
    m->chunk = m->chunk < MIN_CHUNK ? MIN_CHUNK : m->chunk > MAX_CHUNK ? MAX_CHUNK : m->chunk;
    m->stage = pool_calloc(n * DEPTH, (size_t)m->chunk);
    m->srcs = pool_calloc(n, sizeof *m->srcs);
    m->reqs = pool_calloc(n * 2 * DEPTH, sizeof *m->reqs);
    m->done = pool_calloc(n * 2 * DEPTH, sizeof *m->done);
    if (!m->stage || !m->srcs || !m->reqs || !m->done) {
        mpi_message_free(m);
        return NULL;
    }
    for (size_t i = 0; i < n * 2 * DEPTH; i++)
        m->reqs[i] = MPI_REQUEST_NULL;
    return m;
}

void mpi_message_free(struct mpi_message *m)
{
    if (m) {
        pool_free(m->stage);
        pool_free(m->srcs);
        pool_free(m->reqs);
        pool_free(m->done);
    }
    pool_free(m);
}

int64_t mpi_message_bytes(const struct mpi_message *m)
{
    return (int64_t)sizeof *m + m->size * ((int64_t)(sizeof *m->peers + sizeof *m->srcs) + DEPTH * m->chunk +
                                           2 * DEPTH * (int64_t)(sizeof *m->reqs + sizeof *m->done));
}

static MPI_Request *slot(struct mpi_message *m, int q, int dir, int64_t i)
{
    return &m->reqs[(q * 2 + dir) * DEPTH + i % DEPTH];
}

static char *stage(struct mpi_message *m, int q, int64_t i)
{
    return m->stage + (q * DEPTH + i % DEPTH) * m->chunk;
}

int mpi_message_begin(struct mpi_message *m, const struct comm_req *r)
{
    _Bool reduce = r->kind == COMM_REDUCE;

    m->left_sum = m->summed = 0;
    comm_stream_begin(&m->sum, r->recv, r->n_recv, m->rank);
    if (reduce)
        m->left_sum = comm_stream_bytes(r->recv, r->n_recv, m->rank);
    for (int q = 0; q < m->size; q++) {
        struct peer *p = &m->peers[q];
        int from = r->kind == COMM_GATHER ? m->rank : q;

        memset(p, 0, sizeof *p);
        if (q == m->rank)
            continue;
        comm_stream_begin(&p->out, r->send, r->n_send, from);
        p->left_out = comm_stream_bytes(r->send, r->n_send, from);
        comm_stream_begin(&p->in, r->recv, r->n_recv, reduce ? m->rank : q);
        p->left_in = reduce ? m->left_sum : comm_stream_bytes(r->recv, r->n_recv, q);
    }
    return 0;
}

/* Both ends cut alike: at the borders of parts and at most bytes. */
static int post(struct mpi_message *m, const struct comm_req *r, int q, _Bool *moved)
{
    _Bool reduce = r->kind == COMM_REDUCE;
    int64_t most = reduce && m->chunk < m->most ? m->chunk : m->most, offset, n;
    struct peer *p = &m->peers[q];
    const struct comm_part *part;
    int rc;

    while (p->left_in > 0 && *slot(m, q, 0, p->received) == MPI_REQUEST_NULL && (!reduce || p->received - m->summed < DEPTH)) {
        n = comm_stream_next(&p->in, most, &part, &offset);
        rc = MPI_Irecv(reduce ? stage(m, q, p->received) : (char *)part->p + offset, (int)n, MPI_BYTE, q, TAG, m->comm,
                       slot(m, q, 0, p->received));
        TRY(mpi_message_error(rc, "MPI_Irecv"));
        p->received++;
        p->left_in -= n;
        *moved = 1;
    }
    while (p->left_out > 0 && *slot(m, q, 1, p->sent) == MPI_REQUEST_NULL) {
        n = comm_stream_next(&p->out, most, &part, &offset);
        rc = MPI_Isend((const char *)part->p + offset, (int)n, MPI_BYTE, q, TAG, m->comm, slot(m, q, 1, p->sent));
        TRY(mpi_message_error(rc, "MPI_Isend"));
        p->sent++;
        p->left_out -= n;
        *moved = 1;
    }
    return 0;
}

/* The terms that have arrived from all ranks, in rank order. */
static _Bool add_up(struct mpi_message *m, const struct comm_req *r)
{
    const struct comm_part *part;
    _Bool moved = 0;

    while (m->left_sum > 0) {
        int64_t most = m->chunk < m->most ? m->chunk : m->most, offset, n;

        for (int q = 0; q < m->size; q++)
            if (q != m->rank && (m->peers[q].received <= m->summed || *slot(m, q, 0, m->summed) != MPI_REQUEST_NULL))
                return moved;
        n = comm_stream_next(&m->sum, most, &part, &offset);
        for (int q = 0; q < m->size; q++)
            m->srcs[q] = stage(m, q, m->summed);
        m->srcs[m->rank] = (const char *)part->p + offset;
        comm_stream_reduce(part->sum, offset, m->srcs, m->size, n, r->wire, r->op);
        m->summed++;
        m->left_sum -= n;
        moved = 1;
    }
    return moved;
}

int mpi_message_step(struct mpi_message *m, const struct comm_req *r)
{
    int n_reqs = m->size * 2 * DEPTH, n_done = 0;
    _Bool moved = 0, left;

    TRY(mpi_message_error(MPI_Testsome(n_reqs, m->reqs, &n_done, m->done, MPI_STATUSES_IGNORE), "MPI_Testsome"));
    moved = n_done != MPI_UNDEFINED && n_done > 0;
    if (r->kind == COMM_REDUCE)
        moved = add_up(m, r) || moved;
    for (int i = 1; i < m->size; i++)
        TRY(post(m, r, (m->rank + i) % m->size, &moved));
    left = m->left_sum > 0;
    for (int q = 0; q < m->size; q++)
        left = left || m->peers[q].left_out > 0 || m->peers[q].left_in > 0;
    for (int i = 0; i < n_reqs && !left; i++)
        left = m->reqs[i] != MPI_REQUEST_NULL;
    return !left ? COMM_DONE : moved ? COMM_MOVED : COMM_IDLE;
}
