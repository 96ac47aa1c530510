/* comm_mpi_absent.c -- stands in for comm/mpi/ where MPI is not built in.
 *
 * The Makefile takes either this file or that folder, so that no other source
 * has a condition.  It never runs one rank where several were asked for. */
#include "base/err.h"
#include "comm/comm_ops.h"

int comm_mpi_open(struct comm_world *w, struct comm *world)
{
    (void)w;
    (void)world;
    return err_set(ERR_ABSENT, "built without MPI, so there is one rank only; install Open MPI and build with MPI=yes");
}

_Bool comm_mpi_built_in(void) { return 0; }
