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

/* 0: go on, *world is the world this process belongs to, NULL when it is alone;
 * owned (comm_close).  1: ranks were started here and all ended well.  ERR_*:
 * could not be, or how the ranks ended (they have spoken, the sentence is empty). */
int world_enter(int ranks, struct comm **world);

/* Threads for this rank: as asked, else (0) its share of the node; 0 alone. */
int world_threads(const struct comm *world, int asked);

/* Collective.  The worst code of all ranks; world NULL: rc.  The same wherever
 * ranks leave together, so that one main speaks for all: on ranks other than 0
 * the sentence is empty. */
int world_agree(struct comm *world, int rc);

_Bool world_leads(const struct comm *world);        /* rank 0, or alone */

#endif
