/* slow_disk.c -- a disk that takes its time: every fsync(2) or pwrite(2) of the
 * program waits.
 *
 *   LD_PRELOAD=.../slow_disk.so MOE_SLOW_FSYNC=3 MOE_SLOW_PWRITE=0.01 moe-train ...
 *
 * Seconds each. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_for(const char *name)
{
    const char *text = getenv(name);
    double s = text ? atof(text) : 0;
    struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    if (s > 0)
        nanosleep(&t, NULL);
}

int fsync(int fd)
{
    wait_for("MOE_SLOW_FSYNC");
    return (int)syscall(SYS_fsync, fd);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    wait_for("MOE_SLOW_PWRITE");
    return (ssize_t)syscall(SYS_pwrite64, fd, p, n, at);
}
