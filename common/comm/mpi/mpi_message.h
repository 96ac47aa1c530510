/* mpi_message.h -- requests as messages between pairs of ranks.
 *
 * For communicators that span nodes.  Payload travels straight between the
 * buffers of the callers; only the terms of a sum pass through staging memory of
 * fixed size, which the owner adds up in rank order.  Names no MPI type, so that
 * it compiles where MPI is absent. */
#ifndef COMM_MPI_MPI_MESSAGE_H
#define COMM_MPI_MPI_MESSAGE_H

#include "comm/comm_ops.h"

struct mpi_message;

/* comm is the Fortran handle of the communicator.  NULL: no memory. */
struct mpi_message *mpi_message_new(int comm, int rank, int size, const struct comm_options *o);
void mpi_message_free(struct mpi_message *m);   /* NULL is accepted */
int64_t mpi_message_bytes(const struct mpi_message *m);

/* As in struct comm_ops. */
int mpi_message_begin(struct mpi_message *m, const struct comm_req *r);
int mpi_message_step(struct mpi_message *m, const struct comm_req *r);

/* 0, or ERR_ABSENT with the text of an MPI error code. */
int mpi_message_error(int mpi_code, const char *what);

#endif
