/* slow_disk.c -- a disk that takes its time: every fsync(2) of the program waits.
 *
 *   LD_PRELOAD=.../slow_disk.so MOE_SLOW_FSYNC=3 moe-train ...       seconds each */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int fd)
{
    const char *s = getenv("MOE_SLOW_FSYNC");

    if (s)
        sleep((unsigned)atoi(s));
    return (int)syscall(SYS_fsync, fd);
}
