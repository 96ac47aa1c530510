/* fs_out.c -- files that appear whole, lines that are appended whole, links
 * that are replaced whole.
 *
 * Invariants: (1) the final name is touched only by rename, after fsync;
 * (2) after the first failed write nothing more is written and commit fails;
 * (3) an object that is gone leaves no temporary behind.  tests/unit/test_fs.c
 * and test_fault_product.c check them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/pool.h"

#define BUF_BYTES ((size_t)256 * 1024)
#define ASK_BYTES ((uint64_t)16 << 20)
#define TEMP_TAIL ".moe-tmp"

enum how { REPLACE, IN_PLACE, NEW, RESUME };

struct fs_out {
    struct arena *arena;
    const char *path;           /* as the caller named it, for sentences */
    char *target;               /* path with symbolic links resolved */
    char *temp;                 /* being written; equals target unless REPLACE */
    enum how how;
    int fd;
    int failed;                 /* code of the first failure */
    struct err_state why;
    uint64_t pos;               /* where the buffer goes */
    uint64_t size;              /* end of what was written, buffer not counted */
    uint64_t unasked;           /* bytes written that the disk was not yet asked to take */
    size_t fill;
    char *buf;
};

/* Names carry the process id, so that two writers never share a temporary, and
 * a counter for two files of one process.  A long name is cut to leave room. */
static char *temp_name(struct arena *a, const char *target)
{
    static atomic_uint counter;
    const char *base = fs_base(target);

    return arena_printf(a, "%.*s.%.200s.%ld-%u" TEMP_TAIL, (int)(base - target), target, base,
                        (long)getpid(), atomic_fetch_add(&counter, 1u));
}

_Bool fs_is_temp(const char *name)
{
    size_t n = strlen(name), t = strlen(TEMP_TAIL);

    return name[0] == '.' && n > t && !strcmp(name + n - t, TEMP_TAIL);
}

static int fail(struct fs_out *f, int code)
{
    if (!f->failed) {
        f->failed = code;
        f->why.code = code;
        memcpy(f->why.msg, err_msg(), sizeof f->why.msg);
    }
    return code;
}

static struct fs_out *new_out(const char *path)
{
    struct arena *a = arena_new();
    struct fs_out *f = arena_alloc(a, sizeof *f);

    f->arena = a;
    f->path = arena_strdup(a, path);
    f->target = f->temp = arena_strdup(a, path);
    f->fd = -1;
    f->buf = arena_must(pool_alloc(BUF_BYTES));
    return f;
}

static void free_out(struct fs_out *f)
{
    if (f->fd >= 0)
        close(f->fd);
    pool_free(f->buf);
    arena_free(f->arena);
}

int fs_out_open(const char *path, struct fs_out **out)
{
    struct stat st;
    struct fs_out *f = new_out(path);
    mode_t mode = 0;

    if (lstat(path, &st) == 0) {
        if (S_ISLNK(st.st_mode)) {
            char *real = realpath(path, NULL);
            if (!real || stat(real, &st) < 0) {
                /* Pipes behind /dev/stdout have no path of their own. */
                if (stat(path, &st) < 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
                    err_sys(ERR_CREATE, "%s: the link leads nowhere", path);
                    free(real);
                    goto bad;
                }
            } else {
                f->target = f->temp = arena_strdup(f->arena, real);
            }
            free(real);
        }
        if (S_ISDIR(st.st_mode)) {
            err_set(ERR_CREATE, "%s: is a directory", path);
            goto bad;
        }
        if (S_ISREG(st.st_mode))
            mode = st.st_mode & 0777;
        else
            f->how = IN_PLACE;
    }
    if (f->how == REPLACE) {
        f->temp = temp_name(f->arena, f->target);
        f->fd = open(f->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    } else {
        f->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    }
    if (f->fd < 0) {
        err_sys(ERR_CREATE, "%s: cannot create", path);
        goto bad;
    }
    /* The file that takes another's place takes its permissions too. */
    if (mode && fchmod(f->fd, mode) < 0) {
        err_sys(ERR_CREATE, "%s: cannot create", path);
        unlink(f->temp);
        goto bad;
    }
    *out = f;
    return 0;
bad:
    free_out(f);
    return ERR_CREATE;
}

int fs_out_create(const char *path, struct fs_out **out)
{
    struct fs_out *f = new_out(path);

    f->how = NEW;
    f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (f->fd < 0) {
        err_sys(ERR_CREATE, "%s: cannot create", path);
        free_out(f);
        return ERR_CREATE;
    }
    *out = f;
    return 0;
}

int fs_out_resume(const char *path, uint64_t size, struct fs_out **out)
{
    struct fs_out *f = new_out(path);
    struct stat st;
    int rc = 0;

    f->how = RESUME;
    f->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (f->fd < 0)
        rc = err_sys(ERR_CREATE, "%s: cannot create", path);
    else if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode))
        rc = err_set(ERR_DATA, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size < size)
        rc = err_set(ERR_DATA, "%s: %lld bytes, fewer than the %llu that were written", path, (long long)st.st_size, (unsigned long long)size);
    else if ((uint64_t)st.st_size > size && ftruncate(f->fd, (off_t)size) < 0)
        rc = err_sys(ERR_IO, "%s", path);
    if (rc < 0) {
        free_out(f);
        return rc;
    }
    f->pos = f->size = size;
    *out = f;
    return 0;
}

/* The disk begins while the next bytes are made, instead of waiting for the
 * fsync at the end.  Advice: what goes wrong is found by that fsync. */
static void ask_disk(struct fs_out *f, uint64_t n)
{
    f->unasked += n;
    if (f->how == IN_PLACE || f->unasked < ASK_BYTES)
        return;
    f->unasked = 0;
    (void)sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

/* A write that takes nothing and reports nothing would spin for ever. */
static int put(struct fs_out *f, const char *from, size_t n, uint64_t at)
{
    while (n) {
        size_t ask = n < ((size_t)1 << 30) ? n : (size_t)1 << 30;
        ssize_t w = f->how == IN_PLACE ? write(f->fd, from, ask)
                                       : pwrite(f->fd, from, ask, (off_t)at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w == 0)
            errno = EIO;
        if (w <= 0)
            return fail(f, err_sys(ERR_IO, "%s", f->path));
        from += w;
        n -= (size_t)w;
        at += (uint64_t)w;
        if (at > f->size)
            f->size = at;
        ask_disk(f, (uint64_t)w);
    }
    return 0;
}

static int flush(struct fs_out *f)
{
    size_t n = f->fill;

    if (f->failed)
        return err_put(&f->why);
    f->fill = 0;
    TRY(put(f, f->buf, n, f->pos));
    f->pos += n;
    return 0;
}

int fs_out_write(struct fs_out *f, const void *data, size_t n)
{
    if (f->failed)
        return err_put(&f->why);
    if (n > BUF_BYTES - f->fill)
        TRY(flush(f));
    if (n >= BUF_BYTES) {
        TRY(put(f, data, n, f->pos));
        f->pos += n;
    } else if (n) {
        memcpy(f->buf + f->fill, data, n);
        f->fill += n;
    }
    return 0;
}

int fs_out_at(struct fs_out *f, uint64_t offset, const void *data, size_t n)
{
    TRY(flush(f));
    if (f->how == IN_PLACE)
        return fail(f, err_set(ERR_CREATE, "%s: a pipe or device cannot be written out of order", f->path));
    return put(f, data, n, offset);
}

int fs_out_reserve(struct fs_out *f, uint64_t bytes)
{
    int rc;

    if (f->failed)
        return err_put(&f->why);
    if (f->how == IN_PLACE || !bytes)
        return 0;
    /* The size stays what was written, so that a file cut short is seen. */
    do
        rc = fallocate(f->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
    while (rc < 0 && errno == EINTR);
    if (rc < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return fail(f, err_sys(ERR_IO, "%s: no room for %llu bytes", f->path, (unsigned long long)bytes));
    return 0;
}

int fs_out_sync(struct fs_out *f)
{
    TRY(flush(f));
    if (f->how != IN_PLACE && fdatasync(f->fd) < 0)
        return fail(f, err_sys(ERR_IO, "%s: cannot sync", f->path));
    return 0;
}

int fs_out_read(struct fs_out *f, uint64_t offset, void *buf, size_t n)
{
    TRY(flush(f));
    BUG_ON(f->how == IN_PLACE);
    return fs_pread(f->fd, f->path, buf, n, offset);
}

uint64_t fs_out_size(const struct fs_out *f)
{
    return f->pos + f->fill > f->size ? f->pos + f->fill : f->size;
}

const char *fs_out_path(const struct fs_out *f)
{
    return f->path;
}

void fs_out_abort(struct fs_out *f)
{
    if (!f)
        return;
    /* Cleaning up must not disturb the sentence that says why. */
    if (f->how != IN_PLACE && f->how != RESUME)
        unlink(f->temp);
    free_out(f);
}

int fs_out_commit(struct fs_out *f)
{
    int rc = flush(f);

    if (rc == 0 && f->how != IN_PLACE && fsync(f->fd) < 0)
        rc = err_sys(ERR_IO, "%s: cannot sync", f->path);
    if (rc == 0) {
        /* Linux frees the descriptor even when close() says EINTR. */
        if (close(f->fd) < 0 && errno != EINTR)
            rc = err_sys(ERR_IO, "%s", f->path);
        f->fd = -1;
    }
    if (rc == 0 && f->how == REPLACE) {
        if (rename(f->temp, f->target) < 0) {
            rc = err_sys(ERR_CREATE, "%s: cannot create", f->path);
        } else {
            rc = fs_sync_dir(fs_parent(f->arena, f->target));
            free_out(f);
            return rc;
        }
    }
    if (rc < 0)
        fs_out_abort(f);
    else
        free_out(f);
    return rc;
}

int fs_write_file(const char *path, const void *data, size_t n)
{
    struct fs_out *f;

    TRY(fs_out_open(path, &f));
    /* A failure is remembered in f, and commit returns it. */
    (void)fs_out_write(f, data, n);
    return fs_out_commit(f);
}

int fs_append_line(const char *path, const char *line, size_t n, _Bool sync)
{
    struct stat st;
    size_t done = 0;
    int rc = 0;

    BUG_ON(!n || line[n - 1] != '\n');
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ELOOP)
        return err_set(ERR_CREATE, "%s: is a symbolic link", path);
    if (fd < 0)
        return err_sys(ERR_CREATE, "%s: cannot create", path);
    if (fstat(fd, &st) < 0)
        rc = err_sys(ERR_IO, "%s", path);
    while (rc == 0 && done < n) {
        ssize_t w = write(fd, line + done, n - done);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            rc = err_sys(ERR_IO, "%s", path);
        else
            done += (size_t)w;
    }
    /* Half a line would spoil the file for every later reader. */
    if (rc < 0 && done && S_ISREG(st.st_mode)) {
        struct stat now;
        if (fstat(fd, &now) == 0 && now.st_size == st.st_size + (off_t)done && ftruncate(fd, st.st_size) < 0)
            err_add("half a line is left");
    }
    if (rc == 0 && sync && S_ISREG(st.st_mode) && fsync(fd) < 0)
        rc = err_sys(ERR_IO, "%s: cannot sync", path);
    if (close(fd) < 0 && errno != EINTR && rc == 0)
        rc = err_sys(ERR_IO, "%s", path);
    return rc;
}

int fs_symlink_replace(const char *target, const char *link)
{
    struct arena *a = arena_new();
    char *temp = temp_name(a, link);
    int rc = 0;

    if (symlink(target, temp) < 0) {
        rc = err_sys(ERR_CREATE, "%s: cannot create the link", link);
    } else if (rename(temp, link) < 0) {
        rc = err_sys(ERR_CREATE, "%s: cannot create the link", link);
        unlink(temp);
    } else {
        rc = fs_sync_dir(fs_parent(a, link));
    }
    arena_free(a);
    return rc;
}
