/* fault.c -- fails, cuts short or kills at the N-th system call of a kind, and
 * counts allocations between two rows of metrics.
 *
 *   LD_PRELOAD=.../fault.so MOE_FAULT=write:7:EIO moe-train ...
 *
 * MOE_FAULT      KIND:N:ACTION, several separated by commas.
 *     KIND       open close read pread write pwrite fsync rename mkdir unlink
 *                symlink ftruncate fallocate malloc mmap; any: all of these but
 *                reading, opening, closing and memory, numbered together
 *     N          1, 2, ...; "3+" is the third and every later one, "3*" every third
 *     ACTION     an errno name: the call fails with it and does nothing
 *                KILL   SIGKILL before the call
 *                TORN   half of a write, then SIGKILL
 *                SHORT  half of a read or write (at least one byte), success
 *                FLIP   one bit in the middle of a write is another one, success
 * MOE_FAULT_DIR  an absolute path without links: only calls on paths at or
 *                below it count (memory always counts)
 * MOE_FAULT_LOG  file that gets "KIND COUNT" lines when the program ends
 * MOE_FAULT_TRACE  file that gets every change that counts, as fault.h has it
 * MOE_ALLOC_LOG  file that gets one line when the program starts and one per
 *                write to a path that ends in MOE_ALLOC_MARK (default
 *                metrics.jsonl): "ALLOCATIONS BYTES MAPPINGS OTHERS RESIDENT";
 *                the first three since the line before; OTHERS, allocations by
 *                libraries since then; RESIDENT, anonymous memory now, in bytes
 * MOE_ALLOC_TRACE  with any value: MOE_ALLOC_LOG also gets a line for each of
 *                them, "+BYTES at OFFSET" in the program, for addr2line(1)
 *
 * Only calls made by the program itself count, not those of libraries: the
 * return address must lie in the main executable.  It refuses (status 99) what
 * it does not understand, so that a misspelt fault is never a passed test.
 * System calls are made directly, memory comes from glibc's own entry points;
 * nothing here needs dlsym, which itself allocates. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fault.h"

enum kind {
    K_OPEN, K_CLOSE, K_READ, K_PREAD, K_WRITE, K_PWRITE, K_FSYNC, K_RENAME, K_MKDIR, K_UNLINK, K_SYMLINK,
    K_FTRUNCATE, K_FALLOCATE, K_MALLOC, K_MMAP, K_ANY, N_KINDS
};

static const char *const kind_name[N_KINDS] = {
    "open", "close", "read", "pread", "write", "pwrite", "fsync", "rename", "mkdir", "unlink", "symlink",
    "ftruncate", "fallocate", "malloc", "mmap", "any"
};

static const struct { const char *name; int value; } errnos[] = {
    { "EIO", EIO }, { "ENOSPC", ENOSPC }, { "EDQUOT", EDQUOT }, { "EINTR", EINTR }, { "EACCES", EACCES },
    { "EPERM", EPERM }, { "EROFS", EROFS }, { "EMFILE", EMFILE }, { "ENOMEM", ENOMEM }, { "ENOENT", ENOENT },
    { "EEXIST", EEXIST }, { "EINVAL", EINVAL }, { "EOPNOTSUPP", EOPNOTSUPP }, { "ESTALE", ESTALE },
    { "EAGAIN", EAGAIN }, { "EFBIG", EFBIG }, { "ENFILE", ENFILE },
};

enum { NOTHING = 0, DO_SHORT = -1, DO_KILL = -2, DO_TORN = -3, DO_FLIP = -4 };      /* positive: an errno */

#define MAX_FAULTS 8
static struct { enum kind kind; long n; char later; int action; } fault[MAX_FAULTS];      /* later: '+', '*' or 0 */
static int n_faults;
static atomic_long count[N_KINDS];
static char below[4096];        /* MOE_FAULT_DIR */
static const char *count_log, *alloc_log, *alloc_mark;
static uintptr_t exe_lo, exe_hi;
static int ready, trace_fd = -1;

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

static atomic_long n_alloc, alloc_bytes, n_map, n_other;
static int alloc_fd = -1, alloc_trace;

/* ---- set-up */

static void refuse(const char *what)
{
    static const char head[] = "fault.so: cannot understand ";

    syscall(SYS_write, 2, head, sizeof head - 1);
    syscall(SYS_write, 2, what, strlen(what));
    syscall(SYS_write, 2, "\n", 1);
    syscall(SYS_exit_group, 99);
}

static int find_exe(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    exe_lo = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;

        if (p->p_type != PT_LOAD)
            continue;
        if (at < exe_lo) exe_lo = at;
        if (at + p->p_memsz > exe_hi) exe_hi = at + p->p_memsz;
    }
    return 1;                   /* the first object is the program */
}

static int action_of(const char *s, size_t n)
{
    static const char *const words[] = { "SHORT", "KILL", "TORN", "FLIP" };

    for (int i = 0; i < 4; i++)
        if (strlen(words[i]) == n && !memcmp(words[i], s, n))
            return -1 - i;
    for (size_t i = 0; i < sizeof errnos / sizeof *errnos; i++)
        if (strlen(errnos[i].name) == n && !memcmp(errnos[i].name, s, n))
            return errnos[i].value;
    return NOTHING;
}

static void parse(const char *all)
{
    for (const char *s = all; *s;) {
        size_t n = strcspn(s, ":");
        char *end;
        int k = 0;

        while (k < N_KINDS && (strlen(kind_name[k]) != n || memcmp(kind_name[k], s, n)))
            k++;
        if (k == N_KINDS || s[n] != ':' || n_faults == MAX_FAULTS)
            refuse(all);
        fault[n_faults].kind = (enum kind)k;
        fault[n_faults].n = strtol(s + n + 1, &end, 10);
        fault[n_faults].later = 0;
        if (*end == '+' || *end == '*')
            fault[n_faults].later = *end++;
        if (*end != ':' || fault[n_faults].n < 1)
            refuse(all);
        s = end + 1;
        n = strcspn(s, ",");
        fault[n_faults].action = action_of(s, n);
        if (!fault[n_faults++].action)
            refuse(all);
        s += n;
        s += *s == ',';
    }
}

/* RssAnon of this process: what was mapped without a file and touched. */
static long resident(void)
{
    char text[4096], *at;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = syscall(SYS_read, fd, text, sizeof text - 1);

    syscall(SYS_close, fd);
    text[n < 0 ? 0 : n] = '\0';
    at = strstr(text, "RssAnon:");
    return at ? strtol(at + 8, NULL, 10) * 1024 : -1;
}

static void log_memory(void)
{
    char line[160];
    int n = snprintf(line, sizeof line, "%ld %ld %ld %ld %ld\n", atomic_exchange(&n_alloc, 0),
                     atomic_exchange(&alloc_bytes, 0), atomic_exchange(&n_map, 0), atomic_exchange(&n_other, 0), resident());

    syscall(SYS_write, alloc_fd, line, (size_t)n);
}

void fault_plan(const char *spec, const char *dir)
{
    n_faults = 0;
    for (int k = 0; k < N_KINDS; k++)
        atomic_store(&count[k], 0);
    below[0] = '\0';
    if (dir && (*dir != '/' || strlen(dir) >= sizeof below))
        refuse(dir);
    if (dir)
        memcpy(below, dir, strlen(dir) + 1);
    if (spec)
        parse(spec);
}

long fault_count(const char *kind)
{
    for (int k = 0; k < N_KINDS; k++)
        if (!strcmp(kind_name[k], kind))
            return atomic_load(&count[k]);
    return -1;
}

void fault_trace(int fd) { trace_fd = fd; }

__attribute__((constructor)) static void start(void)
{
    const char *s;

    dl_iterate_phdr(find_exe, NULL);
    fault_plan(getenv("MOE_FAULT"), getenv("MOE_FAULT_DIR"));
    if ((s = getenv("MOE_FAULT_TRACE"))) {
        trace_fd = (int)syscall(SYS_openat, AT_FDCWD, s, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
        if (trace_fd < 0)
            refuse(s);
    }
    count_log = getenv("MOE_FAULT_LOG");
    alloc_mark = getenv("MOE_ALLOC_MARK");
    if (!alloc_mark)
        alloc_mark = "metrics.jsonl";
    if ((alloc_log = getenv("MOE_ALLOC_LOG"))) {
        alloc_fd = (int)syscall(SYS_openat, AT_FDCWD, alloc_log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (alloc_fd < 0)
            refuse(alloc_log);
        alloc_trace = getenv("MOE_ALLOC_TRACE") != NULL;
        log_memory();
    }
    ready = 1;
}

__attribute__((destructor)) static void finish(void)
{
    char line[64];
    int fd;

    if (!count_log)
        return;
    fd = (int)syscall(SYS_openat, AT_FDCWD, count_log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    for (int k = 0; k < N_KINDS; k++) {
        int n = snprintf(line, sizeof line, "%s %ld\n", kind_name[k], atomic_load(&count[k]));

        syscall(SYS_write, fd, line, (size_t)n);
    }
    syscall(SYS_close, fd);
}

/* ---- does this call count, and what happens to it */

static int ours(const void *caller)
{
    return ready && (uintptr_t)caller >= exe_lo && (uintptr_t)caller < exe_hi;
}

static int is_below(const char *path)
{
    size_t n = strlen(below);

    return !strncmp(path, below, n) && (path[n] == '/' || !path[n]);
}

/* The path behind a descriptor, "" when it has none. */
static void fd_path(int fd, char *buf, size_t size)
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = syscall(SYS_readlinkat, AT_FDCWD, link, buf, size - 1);
    buf[n < 0 ? 0 : n] = '\0';
}

/* The whole path of a name in a directory; "" when there is none. */
#define FULL 8192
static const char *full_path(int dir, const char *path, char full[FULL])
{
    *full = '\0';
    if (*path == '/')
        return path;
    if (dir != AT_FDCWD)
        fd_path(dir, full, 4096);
    else if (syscall(SYS_getcwd, full, 4096) < 0)
        return "";
    snprintf(full + strlen(full), FULL - strlen(full), "/%s", path);
    return full;
}

static int path_counts(int dir, const char *path)
{
    char full[FULL];

    return !*below || is_below(full_path(dir, path, full));
}

static int fd_counts(int fd)
{
    char path[4096];

    if (!*below)
        return 1;
    fd_path(fd, path, sizeof path);
    return is_below(path);
}

static int strike(enum kind k)
{
    long n = atomic_fetch_add(&count[k], 1) + 1;
    int action = NOTHING;

    for (int i = 0; i < n_faults; i++)
        if (fault[i].kind == k &&
            (n == fault[i].n || (fault[i].later == '+' && n > fault[i].n) || (fault[i].later == '*' && n % fault[i].n == 0)))
            action = fault[i].action;
    return action;
}

/* The action for one call that counts.  Kills here. */
static int next(enum kind k)
{
    int action = strike(k);

    if (k >= K_WRITE && k <= K_FALLOCATE && !action)
        action = strike(K_ANY);
    if (action == DO_KILL || (action == DO_TORN && k != K_WRITE && k != K_PWRITE))
        kill(getpid(), SIGKILL);
    return action;
}

/* ---- what was changed, for who replays it */

static void record(enum fault_op op, const char *name, const char *other, const void *data, size_t n, uint64_t at)
{
    struct fault_record r = { .op = op, .name = (uint32_t)strlen(name) + 1, .other = (uint32_t)strlen(other) + 1,
                              .n = (uint32_t)n, .at = at };
    struct iovec v[4] = { { &r, sizeof r }, { (void *)(uintptr_t)name, r.name }, { (void *)(uintptr_t)other, r.other },
                          { (void *)(uintptr_t)data, data ? n : 0 } };
    size_t all = sizeof r + r.name + r.other + (data ? n : 0);

    /* A record that is cut would make a passed test of nothing. */
    if (syscall(SYS_writev, trace_fd, v, data ? 4 : 3) != (long)all)
        refuse("the file for the trace: it is full");
}

static void record_fd(enum fault_op op, int fd, const void *data, size_t n, uint64_t at)
{
    char path[4096];

    fd_path(fd, path, sizeof path);
    record(op, path, "", data, n, at);
}

static int traced(const void *caller, int counts) { return trace_fd >= 0 && ours(caller) && counts; }

static int record_at(const void *caller, int rc, enum fault_op op, int dir, const char *path)
{
    char full[FULL];

    if (rc == 0 && traced(caller, path_counts(dir, path)))
        record(op, full_path(dir, path, full), "", NULL, 0, 0);
    return rc;
}

static int record_two(const void *caller, int rc, enum fault_op op, int from_dir, const char *from, int to_dir, const char *to)
{
    char full[2][FULL];

    if (rc == 0 && traced(caller, path_counts(to_dir, to)))
        record(op, full_path(from_dir, from, full[0]), full_path(to_dir, to, full[1]), NULL, 0, 0);
    return rc;
}

#define CALLER __builtin_return_address(0)
#define FAIL_IF(counts, k) \
    do { \
        int act_ = ours(CALLER) && (counts) ? next(k) : NOTHING; \
        if (act_ > 0) { errno = act_; return -1; } \
    } while (0)

/* ---- files */

static int open_at(const void *caller, int dir, const char *path, int flags, va_list ap)
{
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    int act = ours(caller) && path_counts(dir, path) ? next(K_OPEN) : NOTHING;

    int fd;

    if (act > 0) {
        errno = act;
        return -1;
    }
    fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0 && flags & (O_CREAT | O_TRUNC) && traced(caller, path_counts(dir, path)))
        record_fd(FAULT_CREATE, fd, NULL, flags & O_TRUNC ? 1 : 0, 0);
    return fd;
}

#define OPEN(dir, path, flags) \
    { va_list ap; int fd; va_start(ap, flags); fd = open_at(CALLER, dir, path, flags, ap); va_end(ap); return fd; }

int open(const char *path, int flags, ...) OPEN(AT_FDCWD, path, flags)
int open64(const char *path, int flags, ...) OPEN(AT_FDCWD, path, flags)
int openat(int dir, const char *path, int flags, ...) OPEN(dir, path, flags)
int openat64(int dir, const char *path, int flags, ...) OPEN(dir, path, flags)

static void note_mark(int fd)
{
    char path[4096];
    size_t n = strlen(alloc_mark), len;

    if (alloc_fd < 0)
        return;
    fd_path(fd, path, sizeof path);
    len = strlen(path);
    if (len < n || strcmp(path + len - n, alloc_mark))
        return;
    log_memory();
}

/* The descriptor goes whatever close(2) says, as on Linux. */
int close(int fd)
{
    int act = ours(CALLER) && fd_counts(fd) ? next(K_CLOSE) : NOTHING, rc = (int)syscall(SYS_close, fd);

    if (act <= 0)
        return rc;
    errno = act;
    return -1;
}

/* n, or what a cut call moves; TORN moves half and dies. */
static size_t cut(int act, size_t n) { return act == NOTHING || act == DO_FLIP || n < 2 ? n : n / 2; }

/* What a broken memory or bus hands to the disk; at least a byte is written. */
static const void *flipped(int act, const void *p, size_t n)
{
    char *copy;

    if (act != DO_FLIP)
        return p;
    copy = __libc_malloc(n);
    memcpy(copy, p, n);
    copy[n / 2] ^= 4;
    return copy;        /* never freed: a fault strikes once */
}

ssize_t write(int fd, const void *p, size_t n)
{
    int act = ours(CALLER) && fd_counts(fd) ? next(K_WRITE) : NOTHING;
    ssize_t rc;

    if (act > 0) {
        errno = act;
        return -1;
    }
    if (ours(CALLER))
        note_mark(fd);
    rc = syscall(SYS_write, fd, flipped(act, p, n), cut(act, n));
    if (rc > 0 && traced(CALLER, fd_counts(fd)))
        record_fd(FAULT_WRITE, fd, p, (size_t)rc, (uint64_t)(syscall(SYS_lseek, fd, 0, SEEK_CUR) - rc));
    if (act == DO_TORN)
        kill(getpid(), SIGKILL);
    return rc;
}

static ssize_t pwrite_(const void *caller, int fd, const void *p, size_t n, off_t at)
{
    int act = ours(caller) && fd_counts(fd) ? next(K_PWRITE) : NOTHING;
    ssize_t rc;

    if (act > 0) {
        errno = act;
        return -1;
    }
    rc = syscall(SYS_pwrite64, fd, flipped(act, p, n), cut(act, n), at);
    if (rc > 0 && traced(caller, fd_counts(fd)))
        record_fd(FAULT_WRITE, fd, p, (size_t)rc, (uint64_t)at);
    if (act == DO_TORN)
        kill(getpid(), SIGKILL);
    return rc;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return pwrite_(CALLER, fd, p, n, at); }
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at) { return pwrite_(CALLER, fd, p, n, at); }

ssize_t read(int fd, void *p, size_t n)
{
    int act = ours(CALLER) && fd_counts(fd) ? next(K_READ) : NOTHING;

    if (act > 0) {
        errno = act;
        return -1;
    }
    return syscall(SYS_read, fd, p, cut(act, n));
}

static ssize_t pread_(const void *caller, int fd, void *p, size_t n, off_t at)
{
    int act = ours(caller) && fd_counts(fd) ? next(K_PREAD) : NOTHING;

    if (act > 0) {
        errno = act;
        return -1;
    }
    return syscall(SYS_pread64, fd, p, cut(act, n), at);
}

ssize_t pread(int fd, void *p, size_t n, off_t at) { return pread_(CALLER, fd, p, n, at); }
ssize_t pread64(int fd, void *p, size_t n, off64_t at) { return pread_(CALLER, fd, p, n, at); }

static int record_done(const void *caller, int rc, enum fault_op op, int fd, uint64_t at)
{
    if (rc == 0 && traced(caller, fd_counts(fd)))
        record_fd(op, fd, NULL, 0, at);
    return rc;
}

int fsync(int fd)
{
    FAIL_IF(fd_counts(fd), K_FSYNC);
    return record_done(CALLER, (int)syscall(SYS_fsync, fd), FAULT_SYNC, fd, 0);
}

int fdatasync(int fd)
{
    FAIL_IF(fd_counts(fd), K_FSYNC);
    return record_done(CALLER, (int)syscall(SYS_fdatasync, fd), FAULT_SYNC, fd, 0);
}

int ftruncate(int fd, off_t n)
{
    FAIL_IF(fd_counts(fd), K_FTRUNCATE);
    return record_done(CALLER, (int)syscall(SYS_ftruncate, fd, n), FAULT_CUT, fd, (uint64_t)n);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    FAIL_IF(fd_counts(fd), K_FALLOCATE);
    return (int)syscall(SYS_fallocate, fd, mode, at, n);
}

/* ---- names */

int rename(const char *from, const char *to)
{
    FAIL_IF(path_counts(AT_FDCWD, to), K_RENAME);
    return record_two(CALLER, (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), FAULT_RENAME, AT_FDCWD, from, AT_FDCWD, to);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    FAIL_IF(path_counts(to_dir, to), K_RENAME);
    return record_two(CALLER, (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0), FAULT_RENAME, from_dir, from, to_dir, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    FAIL_IF(path_counts(to_dir, to), K_RENAME);
    return record_two(CALLER, (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags),
                      flags & RENAME_EXCHANGE ? FAULT_EXCHANGE : FAULT_RENAME, from_dir, from, to_dir, to);
}

int mkdir(const char *path, mode_t mode)
{
    FAIL_IF(path_counts(AT_FDCWD, path), K_MKDIR);
    return record_at(CALLER, (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode), FAULT_MKDIR, AT_FDCWD, path);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
    FAIL_IF(path_counts(dir, path), K_MKDIR);
    return record_at(CALLER, (int)syscall(SYS_mkdirat, dir, path, mode), FAULT_MKDIR, dir, path);
}

int unlink(const char *path)
{
    FAIL_IF(path_counts(AT_FDCWD, path), K_UNLINK);
    return record_at(CALLER, (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0), FAULT_REMOVE, AT_FDCWD, path);
}

int unlinkat(int dir, const char *path, int flags)
{
    FAIL_IF(path_counts(dir, path), K_UNLINK);
    return record_at(CALLER, (int)syscall(SYS_unlinkat, dir, path, flags), FAULT_REMOVE, dir, path);
}

int rmdir(const char *path)
{
    FAIL_IF(path_counts(AT_FDCWD, path), K_UNLINK);
    return record_at(CALLER, (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR), FAULT_REMOVE, AT_FDCWD, path);
}

static int record_link(const void *caller, int rc, const char *target, int dir, const char *path)
{
    char full[FULL];

    if (rc == 0 && traced(caller, path_counts(dir, path)))
        record(FAULT_SYMLINK, full_path(dir, path, full), target, NULL, 0, 0);
    return rc;
}

int symlink(const char *target, const char *path)
{
    FAIL_IF(path_counts(AT_FDCWD, path), K_SYMLINK);
    return record_link(CALLER, (int)syscall(SYS_symlinkat, target, AT_FDCWD, path), target, AT_FDCWD, path);
}

int symlinkat(const char *target, int dir, const char *path)
{
    FAIL_IF(path_counts(dir, path), K_SYMLINK);
    return record_link(CALLER, (int)syscall(SYS_symlinkat, target, dir, path), target, dir, path);
}

/* ---- memory */

static void trace(const void *caller, size_t bytes)
{
    char line[96];
    int n;

    if (!alloc_trace)
        return;
    n = snprintf(line, sizeof line, "+%zu at 0x%lx\n", bytes, (unsigned long)((uintptr_t)caller - exe_lo));
    syscall(SYS_write, alloc_fd, line, (size_t)n);
}

static int denied(const void *caller, size_t bytes)
{
    if (!ours(caller)) {
        atomic_fetch_add(&n_other, 1);
        return 0;
    }
    atomic_fetch_add(&n_alloc, 1);
    atomic_fetch_add(&alloc_bytes, (long)bytes);
    trace(caller, bytes);
    if (next(K_MALLOC) <= 0)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return denied(CALLER, n) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return denied(CALLER, n * size) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return denied(CALLER, n) ? NULL : __libc_realloc(p, n); }
void *memalign(size_t align, size_t n) { return denied(CALLER, n) ? NULL : __libc_memalign(align, n); }
void *aligned_alloc(size_t align, size_t n) { return denied(CALLER, n) ? NULL : __libc_memalign(align, n); }

int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = denied(CALLER, n) ? NULL : __libc_memalign(align, n);

    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

static void *map(const void *caller, void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    if (ours(caller)) {
        int act = next(K_MMAP);

        atomic_fetch_add(&n_map, 1);
        trace(caller, n);
        if (act > 0) {
            errno = act;
            return MAP_FAILED;
        }
    }
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return map(CALLER, at, n, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset)
{
    return map(CALLER, at, n, prot, flags, fd, offset);
}
