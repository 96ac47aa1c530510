/* mpi_window.h -- collectives of ranks that see each other's memory.
 *
 * Every rank has one segment that all ranks of the communicator map.  Payload
 * goes through slots in it that stay in cache: the sender copies in, receivers
 * copy out, or add straight from there.  Knows no MPI: who maps the segments
 * passes their addresses.  Not for ranks on different nodes.
 *
 *   segment: | counters, one line each | shares 2 x 1 KiB | slots for all | slots for rank 0 | 1 | ...
 *
 * Invariants (tests/comm)
 *  1. A counter is written by the owner of its segment only, and only grows.
 *  2. A slot is filled again only after all its readers have counted it.
 *  3. Both ends know the length of a slot from their parts, so none travels. */
#ifndef COMM_MPI_MPI_WINDOW_H
#define COMM_MPI_MPI_WINDOW_H

#include "comm/comm_ops.h"

struct mpi_window;

/* Bytes of one rank's segment; stage_bytes is what its slots may take. */
int64_t mpi_window_bytes(int size, int64_t stage_bytes);
/* segments [size]: where this process sees each one, 64-byte aligned and
 * cleared; borrowed until free.  NULL when there is no memory. */
struct mpi_window *mpi_window_new(int rank, int size, int64_t stage_bytes, char *const *segments);
void mpi_window_free(struct mpi_window *w);     /* NULL is accepted */

/* As in struct comm_ops. */
void mpi_window_share(struct mpi_window *w, const void *mine, int64_t n, void *all);
int mpi_window_share_test(struct mpi_window *w);
void mpi_window_begin(struct mpi_window *w, const struct comm_req *r);
int mpi_window_step(struct mpi_window *w, const struct comm_req *r);

#endif
