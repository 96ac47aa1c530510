/* comm_fault.c -- ways in which one rank fails, and how fast the calls are.
 *
 * Each fault is a job of its own, since none of its processes survives it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/comm_conform.h"

static volatile sig_atomic_t stop;

static void note(int sig)
{
    stop = sig;
}

/* A step loop that stops where all agree, as trainers do. */
static int steps_until_stopped(struct comm *c)
{
    int rc;

    signal(SIGUSR1, note);
    signal(SIGUSR2, note);
    comm_barrier(c);
    if (comm_rank(c) == 0)
        fprintf(stderr, "ready\n");
    for (int step = 0; step < 3000; step++) {
        comm_set_step(c, step);
        usleep(2000);
        rc = comm_agree(c, stop ? err_set(ERR_STOPPED, "stopped at a step") : 0);
        if (rc < 0) {
            if (err_msg()[0])
                log_error("%s", err_msg());
            return err_status(rc);
        }
    }
    return 1;
}

static void spin_for_ever(void)
{
    for (volatile unsigned x = 0;; x++)
        ;
}

int comm_fault(struct comm *c, const char *name)
{
    _Bool me = comm_rank(c) == 1;
    int rc;

    if (!strcmp(name, "requeue"))
        return steps_until_stopped(c);
    comm_set_step(c, 5);
    if (!strcmp(name, "agree")) {
        rc = comm_agree(c, me ? err_set(ERR_DATA, "a bad file") : 0);
        if (err_msg()[0])
            log_error("%s", err_msg());
        return err_status(rc);
    }
    if (!strcmp(name, "stopped") || !strcmp(name, "computes"))
        comm_watchdog_start(c, 1.0, NULL, NULL);
    comm_barrier(c);
    if (me && !strcmp(name, "abort"))
        comm_abort(c, ERR_IO, "the disk is full");
    if (me && !strcmp(name, "killed"))
        raise(SIGKILL);
    if (me && !strcmp(name, "stopped"))
        raise(SIGSTOP);
    if (me && !strcmp(name, "computes"))
        spin_for_ever();
    if (me && !strcmp(name, "left")) {
        log_error("%s", "nobody gave me a file");
        err_set(ERR_NOINPUT, "nobody gave me a file");
        return 99;
    }
    comm_barrier(c);
    return 1;
}

/* ---- rates: bytes this rank receives, per second; the best of some runs */

void comm_time(struct comm *c);
void comm_time(struct comm *c)
{
    static const int64_t ns[] = { 64 << 10, 1 << 20, 16 << 20, 64 << 20 };
    int size = comm_size(c), me = comm_rank(c);
    int64_t most = ns[3];
    char *a = malloc((size_t)most * (size_t)size), *b = malloc((size_t)most * (size_t)size);
    struct comm_part *v = calloc((size_t)size, sizeof *v), *s = calloc((size_t)size, sizeof *s);

    if (!a || !b || !v || !s)
        comm_abort(c, ERR_IO, "no memory");
    memset(a, 0, (size_t)most * (size_t)size);
    memset(b, 0, (size_t)most * (size_t)size);
    if (me == 0)
        printf("%s, %d ranks: GB/s received\n%10s %8s %8s %8s %8s %10s\n", comm_backend(c), size, "bytes", "gather", "reduce", "bf16", "a2a", "8 B us");
    for (int k = 0; k < 4; k++) {
        double best[5] = { 1e9, 1e9, 1e9, 1e9, 1e9 };
        int64_t n = ns[k];

        for (int i = 0; i < size; i++) {
            v[i] = (struct comm_part){ i, n, a + i * n, b + (i == me ? i * n : 0) };
            s[i] = (struct comm_part){ i, n, b + i * n, NULL };
        }
        for (int rep = 0; rep < 8; rep++)
            for (int op = 0; op < 5; op++) {
                double x = 1, t;

                comm_barrier(c);
                t = clock_s();
                if (op == 0)
                    comm_gather(c, v, size);
                else if (op == 1)
                    comm_reduce(c, v, size, DT_F32);
                else if (op == 2) {
                    for (int i = 0; i < size; i++)
                        v[i].bytes = n / 2;
                    comm_reduce(c, v, size, DT_BF16);
                    for (int i = 0; i < size; i++)
                        v[i].bytes = n;
                } else if (op == 3)
                    comm_all_to_all(c, v, size, s, size);
                else
                    for (int i = 0; i < 100; i++)
                        comm_all_reduce(c, &x, 1, DT_F64, COMM_MAX);
                t = clock_s() - t;
                best[op] = t < best[op] ? t : best[op];
            }
        if (me == 0)
            printf("%10lld %8.2f %8.2f %8.2f %8.2f %10.2f\n", (long long)n, (double)(n * (size - 1)) / best[0] * 1e-9,
                   (double)(n * (size - 1)) / best[1] * 1e-9, (double)(n / 2 * (size - 1)) / best[2] * 1e-9,
                   (double)(n * (size - 1)) / best[3] * 1e-9, best[4] * 1e4);
    }
    free(a);
    free(b);
    free(v);
    free(s);
}
