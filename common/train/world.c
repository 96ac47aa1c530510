/* world.c -- see world.h. */
#include "train/world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "comm/comm.h"
#include "comm/comm_launch.h"

int world_enter(int ranks, struct comm **world)
{
    const char *backend;
    int n_args, rc, status = 0;
    char **args = opt_argv(&n_args);
    struct comm_launch l;

    *world = NULL;
    if (ranks > 0 && comm_launch_look(&l) == 0 && !l.by && isatty(STDOUT_FILENO))
        setenv(WORLD_TERMINAL, "1", 1);
    err_clear();
    if ((rc = comm_launch(ranks, n_args, args, &backend, &status)) < 0)
        return rc;
    if (rc > 0)
        return status ? err_set(-status, "%s", "") : 1;
    if (strcmp(backend, "self") == 0)
        return 0;
    TRY(comm_open(backend, NULL, world));
    log_set_rank(comm_rank(*world), comm_size(*world));
    return 0;
}

int world_threads(const struct comm *world, int asked)
{
    return asked || !world ? asked : comm_threads(world);
}

int world_agree(struct comm *world, int rc)
{
    return world ? comm_agree(world, rc) : rc;
}

_Bool world_leads(const struct comm *world)
{
    return !world || comm_rank(world) == 0;
}
