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
    if (ranks > 1 && comm_launch_look(&l) == 0 && !l.by) {
        setenv(WORLD_STARTED, "1", 1);
        if (isatty(STDOUT_FILENO))
            setenv(WORLD_TERMINAL, "1", 1);
    }
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

_Bool world_is_many(int ranks)
{
    struct comm_launch l;

    if (comm_launch_look(&l) < 0)
        err_clear();
    else if (l.by)
        return l.size != 1;
    return ranks > 1;
}

int world_check_input(int ranks, const char *what, const char *path)
{
    if (!path || strcmp(path, "-") != 0 || !world_is_many(ranks))
        return 0;
    return err_set(ERR_USAGE, "%s -: every rank reads it, but only one has standard input; give a file", what);
}

int world_settle(struct comm *world, int rc, _Bool known)
{
    if (rc < 0 && world && !known)
        comm_abort(world, rc, "%s", err_msg());
    return rc;
}

int world_threads(const struct comm *world, int asked)
{
    return asked || !world ? asked : comm_threads(world);
}

int world_agree(struct comm *world, int rc)
{
    return world ? comm_agree(world, rc) : rc;
}

int world_quiet(const struct comm *world, int rc)
{
    return rc < 0 && !world_leads(world) ? err_set(rc, "%s", "") : rc;
}

_Bool world_leads(const struct comm *world)
{
    return !world || comm_rank(world) == 0;
}
