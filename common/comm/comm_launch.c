/* comm_launch.c -- launcher variables, and a program that runs itself N times.
 *
 * mpirun is a child here, not a successor: it would end the ranks on an interrupt
 * that they are to answer with a checkpoint.  So it hears neither INT nor TERM
 * nor HUP; we pass on USR1, which every program takes as "stop at the next step",
 * and leave with 130 where a checkpoint was made because of INT.  Which signal it
 * was the ranks read from a file of ours that has no name but that of its number. */
#include "comm/comm_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/pool.h"
#include "comm/comm_ops.h"

/* The value of a variable as a count, or -1. */
static int number(const char *name)
{
    const char *s = getenv(name);
    char *end;
    long v;

    if (!s || !*s)
        return -1;
    v = strtol(s, &end, 10);
    return *end || v < 0 || v > INT_MAX ? -1 : (int)v;
}

int comm_launch_look(struct comm_launch *out)
{
    int tasks = number("SLURM_STEP_NUM_TASKS");

    if (tasks < 0)
        tasks = number("SLURM_NTASKS");
    *out = (struct comm_launch){ NULL, 0, 1 };
    if (number("OMPI_COMM_WORLD_SIZE") > 0)
        *out = (struct comm_launch){ "mpirun", number("OMPI_COMM_WORLD_RANK"), number("OMPI_COMM_WORLD_SIZE") };
    else if (number("PMIX_RANK") >= 0)
        *out = (struct comm_launch){ "pmix", number("PMIX_RANK"), tasks > 0 ? tasks : 0 };
    else if (number("PMI_RANK") >= 0)
        *out = (struct comm_launch){ "pmi", number("PMI_RANK"), number("PMI_SIZE") > 0 ? number("PMI_SIZE") : 0 };
    else if (tasks > 1)
        return err_set(ERR_ABSENT, "Slurm has %d tasks, but none of them can reach the others; start with"
                       " srun --mpi=pmix or mpirun, or say --ranks 1", tasks);
    return 0;
}

/* ---- running this program under mpirun */

#define SIGNAL_FILE "MOE_RANKS_SIGNAL"

static volatile sig_atomic_t child, n_int;
static int told = -1;           /* holds the last signal; -1: cannot be told */

static void pass_on(int sig)
{
    int keep = errno;

    if (sig == SIGINT)
        n_int++;
    if (told >= 0 && pwrite(told, &sig, sizeof sig, 0) < 0)
        told = -1;
    if (child > 0)
        kill((pid_t)child, n_int > 1 ? SIGKILL : sig == SIGUSR2 ? SIGUSR2 : SIGUSR1);
    errno = keep;
}

static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
enum { N_PASSED = sizeof passed / sizeof *passed };

/* mpirun clears the mask for the ranks, but takes it for itself. */
static void become_mpirun(char **args, int report) __attribute__((noreturn));
static void become_mpirun(char **args, int report)
{
    static const char *const vars[][2] = {
        { "OMPI_ALLOW_RUN_AS_ROOT", "1" }, { "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
        { "OMPI_MCA_mpi_yield_when_idle", "1" },
        { "OMPI_MCA_rmaps_base_oversubscribe", "1" }, { "PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe" },
        { "OMPI_MCA_mpi_abort_print_stack", "0" },
        /* The ranks are here, so no fabric is looked for: half the start-up. */
        { "OMPI_MCA_pml", "ob1" },
    };
    sigset_t deaf;

    for (size_t i = 0; i < sizeof vars / sizeof *vars; i++)
        setenv(vars[i][0], vars[i][1], 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&deaf);
    sigaddset(&deaf, SIGINT);
    sigaddset(&deaf, SIGTERM);
    sigaddset(&deaf, SIGHUP);
    sigprocmask(SIG_SETMASK, &deaf, NULL);
    execvp(args[0], args);
    int e = errno;
    if (write(report, &e, sizeof e) < 0)
        _exit(127);
    _exit(127);
}

static int wait_for(pid_t pid, int *status)
{
    int how;

    while (waitpid(pid, &how, 0) < 0)
        if (errno != EINTR)
            return err_sys(ERR_ABSENT, "cannot wait for mpirun");
    /* On a second interrupt it was us. */
    if (WIFSIGNALED(how) && n_int < 2)
        return err_set(ERR_ABSENT, "mpirun was killed by SIG%s, and the ranks with it", sigabbrev_np(WTERMSIG(how)));
    *status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    /* mpirun speaks for the rank that was killed, we for those that were not:
     * they have reported it and left for want of a peer. */
    if (WIFEXITED(how) && (*status == 128 + SIGKILL || *status == 128 + SIGTERM))
        *status = err_status(ERR_ABSENT);
    /* What the ranks call a clean stop was an interrupt here. */
    if (n_int && (*status == err_status(ERR_STOPPED) || n_int > 1))
        *status = err_status(ERR_INTERRUPTED);
    return 0;
}

static int run_ranks(int n, int argc, char *const *argv, int *status)
{
    char count[16], self[PATH_MAX], file[64];
    const char *const flags[] = { "mpirun", "--quiet", "--oversubscribe", "--bind-to", "none", "-n", count };
    size_t n_flags = sizeof flags / sizeof *flags, n_args = (size_t)argc;
    char **args = pool_calloc(n_flags + n_args + 1, sizeof *args);
    struct sigaction act = { .sa_handler = pass_on }, old[N_PASSED];
    int report[2] = { -1, -1 }, e = 0, rc = 0;
    ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);

    if (!args || got < 0 || pipe2(report, O_CLOEXEC) < 0) {
        rc = err_sys(ERR_ABSENT, "cannot start the ranks");
        goto out;
    }
    self[got] = 0;
    snprintf(count, sizeof count, "%d", n);
    memcpy(args, flags, sizeof flags);
    memcpy(args + n_flags, argv, n_args * sizeof *args);
    args[n_flags] = self;
    child = n_int = 0;
    /* Where it cannot be had, the ranks call it USR1, which is no harm. */
    told = memfd_create("signal", MFD_CLOEXEC);
    snprintf(file, sizeof file, "/proc/%ld/fd/%d", (long)getpid(), told);
    setenv(SIGNAL_FILE, file, 1);
    for (int i = 0; i < N_PASSED; i++)
        sigaction(passed[i], &act, &old[i]);
    pid_t pid = fork();
    if (pid == 0) {
        close(report[0]);
        become_mpirun(args, report[1]);
    }
    close(report[1]);
    report[1] = -1;
    if (pid < 0) {
        rc = err_sys(ERR_ABSENT, "cannot start the ranks");
    } else {
        child = pid;
        /* Nothing comes when mpirun runs: the pipe closes as it starts. */
        while ((got = read(report[0], &e, sizeof e)) < 0 && errno == EINTR)
            ;
        rc = wait_for(pid, status);
        errno = e;
        if (rc == 0 && got == (ssize_t)sizeof e)
            rc = err_sys(ERR_ABSENT, "cannot run mpirun (Debian: openmpi-bin)");
    }
    child = 0;
    for (int i = 0; i < N_PASSED; i++)
        sigaction(passed[i], &old[i], NULL);
    if (told >= 0)
        close(told);
    told = -1;
out:
    for (int i = 0; i < 2; i++)
        if (report[i] >= 0)
            close(report[i]);
    pool_free(args);
    return rc;
}

int comm_launch_signal(int sig)
{
    const char *path = getenv(SIGNAL_FILE);
    int fd, was = 0;

    if (sig != SIGUSR1 || !path || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return sig;
    if (pread(fd, &was, sizeof was, 0) != (ssize_t)sizeof was || was <= 0 || was >= NSIG)
        was = sig;
    close(fd);
    return was;
}

int comm_launch(int ranks, int argc, char *const *argv, const char **backend, int *status)
{
    struct comm_launch l = { 0 };
    int rc = comm_launch_look(&l);

    *backend = "self";
    if (rc < 0 && ranks == 0)
        return rc;
    if (rc == 0 && l.by) {
        if (ranks > 0 && l.size > 0 && ranks != l.size)
            return err_set(ERR_USAGE, "--ranks %d, but %s has started %d", ranks, l.by, l.size);
        if (l.size != 1)
            *backend = "mpi";
        return 0;
    }
    err_clear();
    if (ranks <= 1)
        return 0;
    if (!comm_mpi_built_in())
        return err_set(ERR_ABSENT, "built without MPI, so --ranks %d cannot be; install Open MPI and build with MPI=yes", ranks);
    TRY(run_ranks(ranks, argc, argv, status));
    return 1;
}
