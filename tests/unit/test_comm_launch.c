/* test_comm_launch.c -- who started us is read from the environment, and mpirun
 * is run, heard and translated.  A script stands in for mpirun here; the real one
 * runs in tests/comm. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "comm/comm.h"
#include "comm/comm_launch.h"

static char dir[] = "/tmp/moe-launch-XXXXXX", said[4096];
static char *argv_of_test[] = { "prog", "--ranks", "3", "a b", NULL };

static int forget(void **state)
{
    static const char *const vars[] = {
        "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
    };

    (void)state;
    for (size_t i = 0; i < sizeof vars / sizeof *vars; i++)
        unsetenv(vars[i]);
    err_clear();
    return 0;
}

/* A mpirun that writes its arguments down and then does as told. */
static void pretend(const char *then)
{
    char path[128], text[600];
    int fd, n;

    snprintf(path, sizeof path, "%s/mpirun", dir);
    n = snprintf(text, sizeof text, "#!/bin/sh\nprintf '%%s\\n' \"$@\" > %s/args\n%s\n", dir, then);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    assert_true(fd >= 0 && write(fd, text, (size_t)n) == n);
    close(fd);
}

static const char *arguments(void)
{
    char path[128];
    int fd;
    ssize_t n;

    snprintf(path, sizeof path, "%s/args", dir);
    fd = open(path, O_RDONLY);
    n = fd < 0 ? -1 : read(fd, said, sizeof said - 1);
    assert_true(n >= 0);
    said[n] = 0;
    close(fd);
    return said;
}

static void alone_there_is_one_rank(void **state)
{
    struct comm_launch l;
    const char *backend;
    int status = 7;

    (void)state;
    assert_int_equal(comm_launch_look(&l), 0);
    assert_null(l.by);
    assert_int_equal(l.size, 1);
    for (int ranks = 0; ranks < 2; ranks++) {
        assert_int_equal(comm_launch(ranks, 1, argv_of_test, &backend, &status), 0);
        assert_string_equal(backend, "self");
    }
}

static void each_launcher_is_known_by_its_variables(void **state)
{
    struct comm_launch l;
    const char *backend;
    int status;

    (void)state;
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    assert_int_equal(comm_launch_look(&l), 0);
    assert_string_equal(l.by, "mpirun");
    assert_int_equal(l.rank, 2);
    assert_int_equal(l.size, 4);
    assert_int_equal(comm_launch(0, 1, argv_of_test, &backend, &status), 0);
    assert_string_equal(backend, "mpi");
    assert_int_equal(comm_launch(4, 1, argv_of_test, &backend, &status), 0);
    assert_int_equal(comm_launch(3, 1, argv_of_test, &backend, &status), ERR_USAGE);
    assert_string_equal(err_msg(), "--ranks 3, but mpirun has started 4");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_int_equal(comm_launch(0, 1, argv_of_test, &backend, &status), 0);
    assert_string_equal(backend, "self");
    forget(NULL);
    setenv("PMIX_RANK", "1", 1);
    setenv("SLURM_NTASKS", "8", 1);
    assert_int_equal(comm_launch_look(&l), 0);
    assert_string_equal(l.by, "pmix");
    assert_int_equal(l.size, 8);
    forget(NULL);
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "2", 1);
    assert_int_equal(comm_launch_look(&l), 0);
    assert_string_equal(l.by, "pmi");
    assert_int_equal(l.size, 2);
}

static void tasks_of_slurm_that_cannot_meet_are_told_the_remedy(void **state)
{
    struct comm_launch l;
    const char *backend;
    int status;

    (void)state;
    setenv("SLURM_NTASKS", "4", 1);
    assert_int_equal(comm_launch_look(&l), ERR_ABSENT);
    assert_non_null(strstr(err_msg(), "srun --mpi=pmix"));
    assert_int_equal(comm_launch(0, 1, argv_of_test, &backend, &status), ERR_ABSENT);
    assert_int_equal(comm_launch(1, 1, argv_of_test, &backend, &status), 0);
    assert_string_equal(backend, "self");
    setenv("SLURM_NTASKS", "1", 1);
    assert_int_equal(comm_launch_look(&l), 0);
    setenv("SLURM_NTASKS", "four", 1);
    assert_int_equal(comm_launch_look(&l), 0);
}

static void mpi_does_not_start_without_a_launcher(void **state)
{
    struct comm *c;

    (void)state;
    assert_int_equal(comm_open("mpi", NULL, &c), ERR_ABSENT);
    assert_null(c);
    assert_non_null(strstr(err_msg(), "MPI") ? err_msg() : strstr(err_msg(), "mpirun"));
}

static _Bool have_mpi(void)
{
    for (const char *const *n = comm_names(); *n; n++)
        if (!strcmp(*n, "mpi"))
            return 1;
    return 0;
}

static void ranks_run_this_program_under_mpirun_and_their_status_is_ours(void **state)
{
    static const struct { const char *then; int status; } ways[] = {
        { "exit 0", 0 }, { "exit 75", 75 }, { "exit 137", 69 }, { "exit 139", 139 },
        /* Deaf to what would end the job before its checkpoint. */
        { "kill -TERM $$; kill -INT $$; kill -HUP $$; exit 3", 3 },
    };
    const char *backend;
    char exe[4096], want[8192];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    int status;

    (void)state;
    exe[n > 0 ? n : 0] = 0;
    if (!have_mpi()) {
        assert_int_equal(comm_launch(3, 4, argv_of_test, &backend, &status), ERR_ABSENT);
        assert_non_null(strstr(err_msg(), "built without MPI"));
        return;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        status = -1;
        pretend(ways[i].then);
        assert_int_equal(comm_launch(3, 4, argv_of_test, &backend, &status), 1);
        assert_int_equal(status, ways[i].status);
    }
    snprintf(want, sizeof want, "-n\n3\n%s\n--ranks\n3\na b\n", exe);
    assert_non_null(strstr(arguments(), want));
    /* Its ranks can say nothing any more. */
    pretend("kill -9 $$");
    assert_int_equal(comm_launch(3, 4, argv_of_test, &backend, &status), ERR_ABSENT);
    assert_non_null(strstr(err_msg(), "mpirun was killed by SIGKILL"));
}

static void an_interrupt_reaches_the_ranks_as_a_stop_and_ends_with_130(void **state)
{
    const char *backend;
    int status = -1;

    (void)state;
    if (!have_mpi())
        return;
    /* The parent of mpirun is this process: it gets INT and passes USR1 on. */
    pretend("trap 'exit 75' USR1; kill -INT $PPID; n=0; while [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done");
    assert_int_equal(comm_launch(3, 4, argv_of_test, &backend, &status), 1);
    assert_int_equal(status, 130);
    pretend("trap 'exit 75' USR1; kill -TERM $PPID; n=0; while [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done");
    assert_int_equal(comm_launch(3, 4, argv_of_test, &backend, &status), 1);
    assert_int_equal(status, 75);
}

static void without_mpirun_ranks_are_absent(void **state)
{
    const char *backend, *old = getenv("PATH");
    char keep[4096];
    int status;

    (void)state;
    snprintf(keep, sizeof keep, "%s", old ? old : "");
    setenv("PATH", "/nonexistent", 1);
    assert_int_equal(comm_launch(2, 4, argv_of_test, &backend, &status), ERR_ABSENT);
    if (have_mpi())
        assert_non_null(strstr(err_msg(), "cannot run mpirun"));
    setenv("PATH", keep, 1);
}

static int make_dir(void **state)
{
    char path[8192];

    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s:%s", dir, getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    return setenv("PATH", path, 1);
}

static int remove_dir(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s/mpirun", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/args", dir);
    unlink(path);
    return rmdir(dir);
}

int main(void)
{
#define EACH(f) cmocka_unit_test_setup(f, forget)
    const struct CMUnitTest tests[] = {
        EACH(alone_there_is_one_rank),
        EACH(each_launcher_is_known_by_its_variables),
        EACH(tasks_of_slurm_that_cannot_meet_are_told_the_remedy),
        EACH(mpi_does_not_start_without_a_launcher),
        EACH(ranks_run_this_program_under_mpirun_and_their_status_is_ours),
        EACH(an_interrupt_reaches_the_ranks_as_a_stop_and_ends_with_130),
        EACH(without_mpirun_ranks_are_absent),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
