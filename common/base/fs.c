/* fs.c -- reading, directories and names.  Output is in fs_out.c.
 *
 * Nothing here follows a symbolic link on the way to removing something, and
 * nothing here reads less than it says. */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mapguard.h"

int fs_no_input(const char *path)
{
    return err_sys(errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG ? ERR_NOINPUT :
                   errno == ELOOP || errno == ENXIO ? ERR_DATA : ERR_IO, "%s", path);
}

static int open_read(const char *path, struct stat *st)
{
    int fd;

    do
        fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return fs_no_input(path);
    if (fstat(fd, st) < 0) {
        err_sys(ERR_IO, "%s", path);
        close(fd);
        return ERR_IO;
    }
    if (S_ISDIR(st->st_mode)) {
        close(fd);
        return err_set(ERR_DATA, "%s: is a directory", path);
    }
    return fd;
}

/* Reads to the end whatever kind of file it is; the size of a regular file is
 * only a first guess, since it may grow, and files in /proc say 0. */
static int read_all(int fd, const char *name, size_t guess, struct fs_blob *out)
{
    size_t cap = guess + 1, n = 0;
    char *data = malloc(cap);

    if (!data)
        return err_set(ERR_IO, "%s: no memory for %zu bytes", name, cap);
    for (;;) {
        if (n + 1 == cap) {
            size_t more = cap + cap / 2 + 65536;
            char *grown = realloc(data, more);
            if (!grown) {
                free(data);
                return err_set(ERR_IO, "%s: no memory for %zu bytes", name, more);
            }
            data = grown;
            cap = more;
        }
        ssize_t got = read(fd, data + n, cap - n - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            err_sys(ERR_IO, "%s", name);
            free(data);
            return ERR_IO;
        }
        if (got == 0)
            break;
        n += (size_t)got;
    }
    data[n] = '\0';
    *out = (struct fs_blob){ data, n, 0 };
    return 0;
}

int fs_read(const char *path, struct fs_blob *out)
{
    struct stat st;

    if (!strcmp(path, "-"))
        return read_all(STDIN_FILENO, "standard input", 65536, out);
    int fd = open_read(path, &st);
    TRY(fd);
    int rc = read_all(fd, path, S_ISREG(st.st_mode) ? (size_t)st.st_size + 1 : 65536, out);
    close(fd);
    return rc;
}

int fs_map(const char *path, struct fs_blob *out)
{
    struct stat st;
    int rc = 0;

    int fd = open_read(path, &st);
    TRY(fd);
    *out = (struct fs_blob){ NULL, 0, 1 };
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(ERR_DATA, "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            rc = err_sys(ERR_IO, "%s: cannot map", path);
        } else {
            *out = (struct fs_blob){ p, (size_t)st.st_size, 1 };
            mapguard_add(p, (size_t)st.st_size, path);
        }
    }
    close(fd);
    return rc;
}

void fs_blob_free(struct fs_blob *b)
{
    if (!b->data)
        return;
    if (b->mapped) {
        mapguard_remove(b->data);
        munmap(b->data, b->size);
    } else {
        free(b->data);
    }
    *b = (struct fs_blob){ 0 };
}

/* Advice: that it cannot be taken changes nothing but the memory in use. */
void fs_blob_forget(const struct fs_blob *b)
{
    if (b->mapped && b->data)
        (void)madvise(b->data, b->size, MADV_DONTNEED);
}

void fs_blob_forget_part(const struct fs_blob *b, size_t at, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), end = (at + n) / page * page;
    at = (at + page - 1) / page * page;
    if (b->mapped && b->data && at < end)
        (void)madvise(b->data + at, end - at, MADV_DONTNEED);
}

int fs_pread(int fd, const char *path, void *buf, size_t n, uint64_t offset)
{
    char *to = buf;
    size_t left = n;

    while (left) {
        /* Linux moves at most 2 GiB - 4 KiB a call anyway. */
        size_t ask = left < ((size_t)1 << 30) ? left : (size_t)1 << 30;
        ssize_t got = pread(fd, to, ask, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(ERR_IO, "%s", path);
        if (got == 0)
            return err_set(ERR_DATA, "%s: short by %zu bytes", path, left);
        to += got;
        left -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int fs_mkdir(const char *path)
{
    struct stat st;
    int why;

    if (mkdir(path, 0777) == 0)
        return 0;
    /* Some file systems look at rights first, and say EROFS or EACCES of a
     * directory that is there. */
    why = errno;
    if ((why == EEXIST || why == EROFS || why == EACCES || why == EPERM) && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    errno = why;
    return err_sys(ERR_CREATE, "%s: cannot create the directory", path);
}

int fs_mkdirs(const char *path)
{
    struct arena *a = arena_new();
    char *p = arena_strdup(a, path);
    int rc = 0;

    for (char *s = p + 1; *p && *s && rc == 0; s++) {
        if (*s != '/' || s[-1] == '/')
            continue;
        *s = '\0';
        rc = fs_mkdir(p);
        *s = '/';
    }
    if (rc == 0)
        rc = fs_mkdir(path);
    arena_free(a);
    return rc;
}

int fs_sync_dir(const char *path)
{
    int rc = 0;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(ERR_IO, "%s", path);
    /* Some file systems cannot sync a directory at all and say EINVAL: there
     * is nothing better to do there. */
    if (fsync(fd) < 0 && errno != EINVAL)
        rc = err_sys(ERR_IO, "%s: cannot sync the directory", path);
    close(fd);
    return rc;
}

static int sync_parent(const char *path)
{
    struct arena *a = arena_new();
    int rc = fs_sync_dir(fs_parent(a, path));

    arena_free(a);
    return rc;
}

int fs_rename(const char *from, const char *to)
{
    if (rename(from, to) < 0)
        return err_sys(ERR_IO, "%s: cannot rename to %s", from, to);
    return sync_parent(to);
}

int fs_exchange(const char *a, const char *b)
{
    if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) < 0) {
        if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
            return err_sys(ERR_ABSENT, "%s: cannot exchange with %s", a, b);
        return err_sys(ERR_IO, "%s: cannot exchange with %s", a, b);
    }
    return sync_parent(b);
}

/* Empties and removes a directory through its descriptor, so that a name that
 * is swapped for a link meanwhile leads nowhere. */
static int remove_at(int parent, const char *name, const char *path)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_sys(ERR_IO, "%s: cannot remove", path);

    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        err_sys(ERR_IO, "%s: cannot remove", path);
        if (fd >= 0)
            close(fd);
        return ERR_IO;
    }
    struct arena *a = arena_new();
    int rc = 0;
    for (struct dirent *e; rc == 0 && (errno = 0, e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        arena_reset(a);
        rc = remove_at(dirfd(d), e->d_name, fs_join(a, path, e->d_name));
    }
    closedir(d);
    arena_free(a);
    if (rc == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        rc = err_sys(ERR_IO, "%s: cannot remove", path);
    return rc;
}

int fs_remove_tree(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(ERR_IO, "%s: cannot remove", path);
    return remove_at(AT_FDCWD, path, path);
}

int fs_free_bytes(const char *path, uint64_t *out)
{
    struct statvfs v;

    if (statvfs(path, &v) < 0)
        return err_sys(ERR_IO, "%s: cannot tell the free space", path);
    *out = (uint64_t)v.f_bavail * (uint64_t)v.f_frsize;
    return 0;
}

_Bool fs_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

_Bool fs_is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int fs_file_size(const char *path, uint64_t *out)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return fs_no_input(path);
    if (S_ISDIR(st.st_mode))
        return err_set(ERR_DATA, "%s: is a directory", path);
    if (!S_ISREG(st.st_mode))
        return err_set(ERR_DATA, "%s: not a regular file", path);
    *out = (uint64_t)st.st_size;
    return 0;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

int fs_list(struct arena *a, const char *path, char ***names, int *n)
{
    DIR *d = opendir(path);
    int cap = 64, count = 0, rc = 0;

    if (!d)
        return fs_no_input(path);
    char **v = arena_array(a, (size_t)cap, sizeof *v);
    for (struct dirent *e; (errno = 0, e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (count == cap) {
            char **more = arena_array(a, (size_t)cap * 2, sizeof *v);
            memcpy(more, v, (size_t)cap * sizeof *v);
            v = more;
            cap *= 2;
        }
        v[count++] = arena_strdup(a, e->d_name);
    }
    if (errno)
        rc = err_sys(ERR_IO, "%s", path);
    closedir(d);
    qsort(v, (size_t)count, sizeof *v, by_name);
    *names = v;
    *n = count;
    return rc;
}

char *fs_join(struct arena *a, const char *dir, const char *name)
{
    size_t n = strlen(dir);

    if (!n || name[0] == '/')
        return arena_strdup(a, name);
    return arena_printf(a, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

char *fs_parent(struct arena *a, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n ? arena_printf(a, "%.*s", (int)n, path) : arena_strdup(a, ".");
}

const char *fs_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}
