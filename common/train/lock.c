/* lock.c -- a kernel lock for the truth, a line of JSON for the person. */
#include "train/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"

struct run_lock { int fd; };

struct owner { char host[256]; long pid; unsigned long long start; char job[64]; };

/* Field 22 of /proc/PID/stat: clock ticks between boot and the process's start. */
static unsigned long long start_time(long pid)
{
    char path[64], buf[1024];
    unsigned long long v = 0;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, buf, sizeof buf - 1);
    close(fd);
    if (n <= 0)
        return 0;
    buf[n] = '\0';
    char *p = strrchr(buf, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p && sscanf(p, "%llu", &v) == 1 ? v : 0;
}

static void myself(struct owner *o)
{
    const char *job = getenv("SLURM_JOB_ID");

    memset(o, 0, sizeof *o);
    if (gethostname(o->host, sizeof o->host - 1) != 0)
        snprintf(o->host, sizeof o->host, "unknown");
    for (char *c = o->host; *c; c++)
        if (*c == '"' || *c == '\\')
            *c = '_';
    o->pid = (long)getpid();
    o->start = start_time(o->pid);
    snprintf(o->job, sizeof o->job, "%s", job && strspn(job, "0123456789_") == strlen(job) ? job : "");
}

static _Bool parse(const char *text, struct owner *o)
{
    memset(o, 0, sizeof *o);
    return sscanf(text, "{\"host\":\"%255[^\"]\",\"pid\":%ld,\"start\":%llu,\"job\":\"%63[^\"]", o->host, &o->pid, &o->start, o->job) >= 3;
}

static _Bool beats(const char *run_dir)
{
    char path[4200];
    struct stat st;

    snprintf(path, sizeof path, "%s/heartbeat.json", run_dir);
    return stat(path, &st) == 0 && time(NULL) - st.st_mtime < LOCK_STALE_S;
}

/* Is the owner of a line alive, judged without the kernel lock? */
static _Bool alive(const char *run_dir, const struct owner *o)
{
    struct owner me;

    myself(&me);
    if (strcmp(me.host, o->host) == 0)
        return kill((pid_t)o->pid, 0) == 0 && o->start != 0 && start_time(o->pid) == o->start && o->pid != me.pid;
    return beats(run_dir);
}

static void name(const struct owner *o, char *buf, size_t n)
{
    if (o->job[0])
        snprintf(buf, n, "process %ld on %s (job %s)", o->pid, o->host, o->job);
    else
        snprintf(buf, n, "process %ld on %s", o->pid, o->host);
}

/* 1 locked, 0 held by another, -1 the file system keeps no locks. */
static int kernel_lock(int fd)
{
    struct flock f = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    if (fcntl(fd, F_OFD_SETLK, &f) == 0)
        return 1;
    return errno == EAGAIN || errno == EACCES ? 0 : -1;
}

/* The same question without taking it: a start must not meet a mere look. */
static int kernel_peek(int fd)
{
    struct flock f = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    if (fcntl(fd, F_OFD_GETLK, &f) != 0)
        return -1;
    return f.l_type == F_UNLCK;
}

static void read_line(int fd, char *buf, size_t n)
{
    ssize_t k = pread(fd, buf, n - 1, 0);

    buf[k > 0 ? k : 0] = '\0';
}

static int write_line(int fd, const char *path, const char *line, size_t n)
{
    if (ftruncate(fd, 0) != 0)
        return err_sys(ERR_IO, "%s", path);
    for (size_t at = 0; at < n;) {
        ssize_t k = pwrite(fd, line + at, n - at, (off_t)at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = EIO;
        if (k <= 0)
            return err_sys(ERR_IO, "%s", path);
        at += (size_t)k;
    }
    return 0;
}

int lock_take(const char *run_dir, struct run_lock **out)
{
    char path[4200], line[512], who[400] = "another run";
    struct owner was, me;
    int rc = 0;

    snprintf(path, sizeof path, "%s/lock", run_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return err_sys(ERR_CREATE, "%s", path);
    int got = kernel_lock(fd);
    read_line(fd, line, sizeof line);
    _Bool known = parse(line, &was);
    if (known)
        name(&was, who, sizeof who);
    myself(&me);
    _Bool other_host = known && strcmp(me.host, was.host) != 0;
    if (got == 0 || (known && (got < 0 || other_host) && alive(run_dir, &was))) {
        rc = err_set(ERR_LOCKED, "%s is in use by %s", run_dir, who);
        goto out;
    }
    if (known)
        log_info("taking over the lock of %s, which is gone", who);
    int n = snprintf(line, sizeof line, "{\"host\":\"%s\",\"pid\":%ld,\"start\":%llu,\"job\":\"%s\"}\n", me.host, me.pid, me.start, me.job);
    TRY_OUT(rc, write_line(fd, path, line, (size_t)n));
    struct run_lock *l = malloc(sizeof *l);
    if (!l) {
        rc = err_set(ERR_IO, "out of memory");
        goto out;
    }
    l->fd = fd;
    *out = l;
    return 0;
out:
    close(fd);
    return rc;
}

void lock_drop(struct run_lock *l)
{
    if (!l)
        return;
    /* An empty file means "left in order"; the name stays, since removing it
     * would race with a process that has just opened it. */
    if (ftruncate(l->fd, 0) != 0)
        log_warn("the lock could not be cleared");
    close(l->fd);
    free(l);
}

int lock_peek(const char *run_dir, char *owner, int n)
{
    char path[4200], line[512];
    struct owner was;
    int held = 0;

    owner[0] = '\0';
    snprintf(path, sizeof path, "%s/lock", run_dir);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    int got = kernel_peek(fd);
    read_line(fd, line, sizeof line);
    if (parse(line, &was)) {
        name(&was, owner, (size_t)n);
        held = got == 0 || (got < 0 && alive(run_dir, &was));
    }
    close(fd);
    return held;
}
