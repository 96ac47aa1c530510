/* stop.c -- see stop.h. */
#include "train/stop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm_launch.h"

static volatile sig_atomic_t stop_signal, int_count;
static char stop_path[4200], save_path[4200];
static double end_time = -1, lead_s;

static void on_stop(int sig)
{
    stop_signal = sig;
}

static void on_int(int sig)
{
    (void)sig;
    if (int_count++)
        _exit(130);
}

int stop_init(const char *run_dir, double stop_before_s)
{
    struct sigaction stop = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
    struct sigaction intr = { .sa_handler = on_int, .sa_flags = SA_RESTART };
    static const int stops[] = { SIGTERM, SIGUSR1, SIGUSR2, SIGHUP };

    if (stop_before_s >= 0) {
        const char *at = getenv("SLURM_JOB_END_TIME");
        char *rest;
        if (!at)
            at = getenv("MOE_STOP_AT");
        if (!at)
            return err_set(ERR_USAGE, "--stop-before needs the end of the job in SLURM_JOB_END_TIME or MOE_STOP_AT "
                           "(seconds since 1970)");
        end_time = strtod(at, &rest);
        if (rest == at || *rest || end_time <= 0)
            return err_set(ERR_USAGE, "the end of the job, \"%s\", is not a number of seconds since 1970", at);
        lead_s = stop_before_s;
    }
    snprintf(stop_path, sizeof stop_path, "%s/stop", run_dir);
    snprintf(save_path, sizeof save_path, "%s/save", run_dir);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++)
        sigaction(stops[i], &stop, NULL);
    sigaction(SIGINT, &intr, NULL);
    return 0;
}

int stop_asked(double reserve_s)
{
    if (int_count)
        return err_set(ERR_INTERRUPTED, "interrupted");
    if (stop_signal)
        return err_set(ERR_STOPPED, "stopped by SIG%s", sigabbrev_np(comm_launch_signal(stop_signal)));
    if (access(stop_path, F_OK) == 0)
        return err_set(ERR_STOPPED, "stopped by %s", stop_path);
    if (end_time > 0) {
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        double left = end_time - (double)ts.tv_sec;
        if (left <= lead_s || left <= 1.5 * reserve_s)
            return err_set(ERR_STOPPED, "stopped %.0f s before the end of the job", left > 0 ? left : 0);
    }
    return 0;
}

_Bool stop_save_asked(void)
{
    return access(save_path, F_OK) == 0 && unlink(save_path) == 0;
}

void stop_honoured(void)
{
    unlink(stop_path);
}
