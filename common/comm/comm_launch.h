/* comm_launch.h -- who started this process, and how to start several.
 *
 * A world of several ranks comes from Open MPI's mpirun, from Slurm with PMIx, or
 * from --ranks, which runs the program again under mpirun.  It refuses to let N
 * tasks of Slurm each believe they are alone, and to run fewer ranks than asked. */
#ifndef COMM_COMM_LAUNCH_H
#define COMM_COMM_LAUNCH_H

struct comm_launch {
    const char *by;         /* "mpirun", "pmix" or "pmi"; NULL: started alone */
    int rank, size;         /* of the job; size 0: the launcher does not say */
};

/* Reads the variables of launchers.  ERR_ABSENT when Slurm runs several tasks
 * but gives MPI no way to meet: the sentence names the remedy. */
int comm_launch_look(struct comm_launch *out);

/* What a program with --ranks does first; ranks is 0 when it was not given.
 *   0  go on: *backend is "self" or "mpi", for comm_open()
 *   1  ranks were started here and have ended; leave with *status at once
 * ERR_USAGE when ranks contradicts the launcher, ERR_ABSENT without MPI or mpirun.
 * argv is the whole command line, argv[0] the program. */
int comm_launch(int ranks, int argc, char *const *argv, const char **backend, int *status);

/* What a rank that got sig is to call it: under --ranks INT, TERM and HUP come as
 * USR1, and the process that passed it on tells which it was. */
int comm_launch_signal(int sig);

#endif
