/* world.h -- the ranks a program runs as, from its --ranks option.
 *
 * One place for what moe-train and moe-optstep do alike before anything else:
 * start the ranks or find those that were started.  It refuses nothing that
 * comm/comm_launch.h does not. */
#ifndef TRAIN_WORLD_H
#define TRAIN_WORLD_H

struct comm;

/* Set for the ranks when a person looks at standard output: mpirun gives each
 * of them a terminal of its own, so they cannot tell. */
#define WORLD_TERMINAL "MOE_TERMINAL"
/* Set for ranks that --ranks started. */
#define WORLD_STARTED "MOE_RANKS_STARTED"

/* 0: go on, *world is the world this process belongs to, NULL when it is alone;
 * owned (comm_close).  1: ranks were started here and all ended well.  ERR_*:
 * could not be, or how the ranks ended (they have spoken, the sentence is empty). */
int world_enter(int ranks, struct comm **world);

/* True when this process is, or is to start, one of several ranks.  Standard
 * input reaches rank 0 only, so what every rank reads must be a file. */
_Bool world_is_many(int ranks);

/* ERR_USAGE when a file that every rank reads is "-" and there are several. */
int world_check_input(int ranks, const char *what, const char *path);

/* Threads for this rank: as asked, else (0) its share of the node; 0 alone. */
int world_threads(const struct comm *world, int asked);

/* Collective.  The worst code of all ranks; world NULL: rc. */
int world_agree(struct comm *world, int rc);

/* rc of work that has a collective part.  known: all ranks have this failure.
 * One that the others do not know of would leave them waiting: it ends them too,
 * and does not return. */
int world_settle(struct comm *world, int rc, _Bool known);

/* rc with its sentence on rank 0 only, so that one main speaks for all. */
int world_quiet(const struct comm *world, int rc);

_Bool world_leads(const struct comm *world);        /* rank 0, or alone */

#endif
