/* comm_conform.c -- runs the list on every back end under 1, 2, 3 and 4 ranks.
 *
 * usage: comm [FILTER]                     all worlds, each a job of its own
 *        comm --world N [--messages] [--stage BYTES] [FILTER]      one world
 *        comm --fault NAME N               one way to fail
 *        comm --time N [--messages]        rates of the heavy calls
 * Ranks are started the way programs start them, by comm_launch().  One line per
 * failure, then "N passed, N failed, N skipped"; status 1 when something failed
 * or nothing passed. */
#include "comm/comm_conform.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "comm/comm_launch.h"

void comm_time(struct comm *c);

void comm_failed(struct comm_conform *t, const char *fmt, ...)
{
    va_list ap;

    if (t->failure[0])
        return;
    va_start(ap, fmt);
    vsnprintf(t->failure, sizeof t->failure, fmt, ap);
    va_end(ap);
}

/* ---- inside a world */

static int run_cases(struct comm *c, const char *title, const char *filter)
{
    struct comm_conform t = { .c = c, .a = arena_new(), .rank = comm_rank(c), .size = comm_size(c) };
    int n_pass = 0, n_fail = 0;

    for (const struct comm_case *k = comm_cases; k->name; k++) {
        int64_t ends[64];
        char *all;

        if (filter && !strstr(k->name, filter))
            continue;
        t.failure[0] = 0;
        arena_reset(t.a);
        k->run(&t);
        arena_reset(t.a);
        if (comm_gather_bytes(t.a, c, t.failure, (int64_t)strlen(t.failure), &all, ends) < 0)
            comm_abort(c, ERR_BUG, "%s", err_msg());
        if (t.rank != 0)
            continue;
        if (ends[t.size - 1] == 0) {
            n_pass++;
            continue;
        }
        n_fail++;
        for (int r = 0; r < t.size; r++) {
            int64_t from = r ? ends[r - 1] : 0;
            if (ends[r] > from)
                printf("FAIL %s, %s: rank %d: %.*s\n", title, k->name, r, (int)(ends[r] - from), all + from);
        }
    }
    if (t.rank == 0)
        printf("%d passed, %d failed, 0 skipped\n", n_pass, n_fail);
    arena_free(t.a);
    return n_fail > 0;
}

static int main_of_world(int argc, char **argv)
{
    struct comm_options o = { 0 };
    const char *filter = NULL, *backend, *fault = NULL;
    struct comm *c;
    char title[64];
    int n = 1, status = 0, rc;
    _Bool timing = 0;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--world") && i + 1 < argc)
            n = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--fault") && i + 2 < argc) {
            fault = argv[++i];
            n = (int)strtol(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--time") && i + 1 < argc) {
            timing = 1;
            n = (int)strtol(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--stage") && i + 1 < argc)
            o.stage_bytes = strtoll(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--messages"))
            o.no_windows = 1;
        else
            filter = argv[i];
    }
    log_init("comm", LOG_INFO);
    rc = comm_launch(n, argc, argv, &backend, &status);
    if (rc > 0)
        return status;
    if (rc < 0 || (rc = comm_open(backend, &o, &c)) < 0) {
        log_error("%s", err_msg());
        return err_status(rc);
    }
    log_set_rank(comm_rank(c), comm_size(c));
    snprintf(title, sizeof title, "%d ranks, %s", comm_size(c), comm_backend(c));
    if (fault)
        status = comm_fault(c, fault);
    else if (timing)
        comm_time(c);
    else
        status = run_cases(c, title, filter);
    fflush(stdout);
    /* A fault may leave without closing. */
    if (status != 99)
        comm_close(c);
    return status == 99 ? 1 : status;
}

/* ---- one job per world */

struct job { char text[65536]; size_t n; int status; };

/* Runs this program with args, and sends it sig, if not 0, when its ranks say
 * "ready".  What MPI itself forgets to free is not ours to report. */
static void run_job(struct job *j, char *const *args, int ranks, int sig)
{
    const char *asan = getenv("ASAN_OPTIONS");
    char options[1024];
    int out[2];
    pid_t pid;
    ssize_t got;

    j->n = 0;
    j->status = -1;
    if (pipe(out) < 0 || (pid = fork()) < 0)
        return;
    if (pid == 0) {
        dup2(out[1], 1);
        dup2(out[1], 2);
        close(out[0]);
        close(out[1]);
        snprintf(options, sizeof options, "%s%sdetect_leaks=0", asan ? asan : "", asan ? ":" : "");
        if (ranks > 1)
            setenv("ASAN_OPTIONS", options, 1);
        execv("/proc/self/exe", args);
        _exit(127);
    }
    close(out[1]);
    while (j->n < sizeof j->text - 1 && (got = read(out[0], j->text + j->n, sizeof j->text - 1 - j->n)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        j->n += (size_t)got;
        j->text[j->n] = 0;
        if (sig && strstr(j->text, "ready\n")) {
            kill(pid, sig);
            sig = 0;
        }
    }
    j->text[j->n] = 0;
    close(out[0]);
    while (waitpid(pid, &j->status, 0) < 0 && errno == EINTR)
        ;
    j->status = WIFEXITED(j->status) ? WEXITSTATUS(j->status) : 128 + WTERMSIG(j->status);
}

static int n_pass, n_fail, n_skip;

static void run_world(struct job *j, int ranks, _Bool messages, const char *stage, const char *filter)
{
    char count[16];
    char *args[10] = { "comm", "--world", count };
    int n = 3, p, f, s;
    char *tally;

    snprintf(count, sizeof count, "%d", ranks);
    if (messages)
        args[n++] = "--messages";
    if (stage) {
        args[n++] = "--stage";
        args[n++] = (char *)(uintptr_t)stage;
    }
    if (filter)
        args[n++] = (char *)(uintptr_t)filter;
    run_job(j, args, ranks, 0);
    tally = strstr(j->text, " passed, ");
    while (tally && tally > j->text && tally[-1] != '\n')
        tally--;
    if (j->status > 1 || !tally || sscanf(tally, "%d passed, %d failed, %d skipped", &p, &f, &s) != 3) {
        printf("FAIL world of %d ranks%s%s%s: ended with status %d: %s\n", ranks, messages ? ", messages" : "", stage ? ", stage " : "",
               stage ? stage : "", j->status, j->text);
        n_fail++;
        return;
    }
    n_pass += p;
    n_fail += f;
    printf("%.*s", (int)(tally - j->text), j->text);
}

static int count_of(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

/* A job that fails has one status and says why exactly once. */
static void run_fault(struct job *j, const char *name, int ranks, int sig, int want, const char *says, int lines)
{
    char count[16];
    char *args[] = { "comm", "--fault", (char *)(uintptr_t)name, count, NULL };
    int n;

    snprintf(count, sizeof count, "%d", ranks);
    run_job(j, args, ranks, sig);
    n = count_of(j->text, "\n") - count_of(j->text, "ready\n");
    if (j->status == want && count_of(j->text, says) == 1 && n == lines) {
        n_pass++;
        return;
    }
    n_fail++;
    printf("FAIL %s: status %d, not %d, %d lines, not %d, \"%s\" %d times:\n%s", name, j->status, want, n, lines, says,
           count_of(j->text, says), j->text);
}

static int main_of_all(const char *filter)
{
    static struct job j;
    const char *const *name = comm_names();
    _Bool mpi = 0;

    for (; *name; name++)
        mpi = mpi || !strcmp(*name, "mpi");
    run_world(&j, 1, 0, NULL, filter);
    if (!mpi || system("mpirun --version > /dev/null 2>&1") != 0) {
        printf("SKIP worlds of several ranks: %s\n", mpi ? "no mpirun on PATH, so no mpi" : "built without mpi");
        n_skip++;
    } else {
        for (int n = 2; n <= 4; n++)
            run_world(&j, n, 0, NULL, filter);
        run_world(&j, 2, 1, NULL, filter);
        run_world(&j, 4, 1, NULL, filter);
        /* So small that every loop of chunks turns often. */
        run_world(&j, 3, 0, "1", filter);
        run_world(&j, 3, 1, "4160", filter);
        if (!filter || !strcmp(filter, "fault")) {
            run_fault(&j, "abort", 3, 0, 74, "rank 1 on ", 1);
            run_fault(&j, "agree", 3, 0, 65, "rank 1 on ", 1);
            run_fault(&j, "killed", 3, 0, 69, "rank 1 on ", 1);
            run_fault(&j, "left", 3, 0, 66, "nobody gave me a file", 1);
            run_fault(&j, "stopped", 3, 0, 69, "rank 1 on ", 3);
            run_fault(&j, "computes", 3, 0, 69, "rank 1 on ", 3);
            run_fault(&j, "requeue", 2, SIGTERM, 75, "stopped at a step", 1);
            run_fault(&j, "requeue", 2, SIGUSR1, 75, "stopped at a step", 1);
            run_fault(&j, "requeue", 2, SIGINT, 130, "stopped at a step", 1);
        }
    }
    printf("%d passed, %d failed, %d skipped\n", n_pass, n_fail, n_skip);
    return n_fail > 0 || n_pass == 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strncmp(argv[1], "--", 2))
        return main_of_world(argc, argv);
    return main_of_all(argc > 1 ? argv[1] : NULL);
}
