/* load.c -- which directory, and bytes that were hashed on their way out. */
#include "ckpt/load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "ckpt/names.h"
#include "ckpt/run.h"
#include "ckpt/verify.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define MAX_OPEN 1024           /* descriptors kept at most; more files are opened per read */
#define FILE_MAX ((uint64_t)1 << 30)

struct ckpt {
    struct ckpt_dir *d;
    struct arena *arena;
    char *note;
    atomic_int *fd;             /* [d->n_files], -1: not open */
};

/* ---- which directory */

/* `latest` is trusted only in the one form that a commit writes: a link to
 * ckpt/step-N below the run.  NULL, with the reason recorded, otherwise. */
static char *latest_dir(struct arena *a, const char *run)
{
    const char *link = fs_join(a, run, "latest");
    char target[64];
    ssize_t n = readlink(link, target, sizeof target - 1);
    struct stat sb;
    char *dir;

    if (n < 0) {
        if (errno == EINVAL)
            err_set(ERR_DATA, "%s: not a symbolic link", link);
        else
            err_sys(ERR_DATA, "%s", link);
        return NULL;
    }
    target[n] = '\0';
    if (strncmp(target, "ckpt/", 5) || ckpt_step_of(target + 5) < 0) {
        err_set(ERR_DATA, "%s: does not point to a step of this run", link);
        return NULL;
    }
    dir = fs_join(a, run, target);
    if (lstat(dir, &sb) < 0 || !S_ISDIR(sb.st_mode)) {
        err_set(ERR_DATA, "%s: points to ckpt/%s, which is not there", link, target + 5);
        return NULL;
    }
    return dir;
}

static int newest_whole(struct arena *a, const char *run, unsigned flags, char **dir)
{
    struct ckpt_step *steps;
    char name[32];
    int n;

    TRY(ckpt_list_kinds(a, run, &steps, &n));
    for (int i = n - 1; i >= 0; i--) {
        struct ckpt_verify v = { 0 };
        int rc;

        if (flags & CKPT_NEED_STATE && steps[i].kind == MANIFEST_LIGHT)
            continue;
        *dir = fs_join(a, fs_join(a, run, "ckpt"), ckpt_step_name(name, steps[i].step));
        rc = ckpt_verify(*dir, &v);
        if (rc == 0 && v.n_problems == 0)
            return 0;
        /* One that cannot be read may be whole: going further back is no answer. */
        if (rc < 0 && rc != ERR_DATA && rc != ERR_NOINPUT)
            return rc;
    }
    *dir = NULL;
    return 0;
}

/* Also a link that leads nowhere. */
static _Bool is_there(const char *path)
{
    struct stat sb;

    return lstat(path, &sb) == 0;
}

/* A run before its first save is no damage; one that lost its link is, but its
 * checkpoints have names. */
static int explain_no_latest(struct arena *a, const char *run, unsigned flags)
{
    int64_t *steps;
    char name[32];
    int n;

    TRY(ckpt_list_steps(a, run, &steps, &n));
    if (n == 0)
        return err_set(ERR_NOINPUT, "%s: a run without a complete checkpoint", run);
    if (flags & CKPT_NO_FALLBACK)
        return err_set(ERR_DATA, "%s/latest: No such file or directory; the newest checkpoint of the run is %s/ckpt/%s", run, run,
                       ckpt_step_name(name, steps[n - 1]));
    return 0;
}

/* *scanned: the tables of *dir, when they were read on the way; else NULL. */
static int resolve_run(struct arena *a, const char *run, unsigned flags, char **dir, char **note,
                       struct ckpt_dir **scanned)
{
    char *why;

    *dir = latest_dir(a, run);
    if (*dir) {
        int rc;

        if (!fs_exists(fs_join(a, *dir, MANIFEST_NAME)))
            rc = err_set(ERR_DATA, "%s: no MANIFEST.json: not a complete checkpoint", *dir);
        else
            rc = ckpt_dir_scan(*dir, NULL, NULL, scanned);
        if (rc == 0)
            return 0;
        if (rc != ERR_DATA && rc != ERR_NOINPUT)
            return rc;
    }
    if (!is_there(fs_join(a, run, "latest")))
        TRY(explain_no_latest(a, run, flags));
    if (flags & CKPT_NO_FALLBACK)
        return ERR_DATA;
    why = arena_strdup(a, err_msg());
    TRY(newest_whole(a, run, flags, dir));
    if (!*dir)
        return err_set(fs_exists(fs_join(a, run, "ckpt")) ? ERR_DATA : ERR_NOINPUT,
                       "%s: no checkpoint that verifies (%s)", run, why);
    *note = arena_printf(a, "%s; using %s, the newest checkpoint that verifies", why, *dir);
    return 0;
}

/* Does the directory hold anything that we could read as a model? */
static int has_model(struct arena *a, const char *dir)
{
    char **names;
    int n;

    TRY(fs_list(a, dir, &names, &n));
    for (int i = 0; i < n; i++) {
        size_t len = strlen(names[i]);

        if (!strcmp(names[i], CKPT_INDEX_NAME) || (len > 12 && !strcmp(names[i] + len - 12, ".safetensors")))
            return 1;
    }
    return 0;
}

static int resolve(struct arena *a, const char *path, unsigned flags, char **dir, char **note,
                   struct ckpt_dir **scanned)
{
    struct stat sb;
    int rc;

    *note = NULL;
    *scanned = NULL;
    *dir = arena_strdup(a, path);
    if (stat(path, &sb) < 0)
        return fs_no_input(path);
    if (!fs_is_dir(path)) {
        if (flags & CKPT_NEED_MANIFEST)
            return err_set(ERR_DATA, "%s: a single file, not a checkpoint directory", path);
        return 0;
    }
    if (fs_exists(fs_join(a, path, MANIFEST_NAME)))
        return 0;
    if (is_there(fs_join(a, path, "latest")) || fs_is_dir(fs_join(a, path, "ckpt")))
        return resolve_run(a, path, flags, dir, note, scanned);
    TRY(rc = has_model(a, path));
    if (!rc)
        return err_set(ERR_NOINPUT, "%s: no checkpoint, run or model in this directory", path);
    if (flags & CKPT_NEED_MANIFEST)
        return err_set(ERR_DATA, "%s: no MANIFEST.json: not a complete checkpoint", path);
    return 0;
}

int ckpt_resolve(struct arena *a, const char *path, unsigned flags, char **dir, char **note)
{
    struct ckpt_dir *scanned;
    char *unused;
    int rc = resolve(a, path, flags, dir, note ? note : &unused, &scanned);

    if (rc == 0)
        ckpt_dir_free(scanned);
    return rc;
}

/* ---- open */

int ckpt_open(const char *path, unsigned flags, struct ckpt **out)
{
    struct arena *a = arena_new();
    struct ckpt *c = arena_alloc(a, sizeof *c);
    char *dir;
    int rc;

    c->arena = a;
    TRY_OUT(rc, resolve(a, path, flags, &dir, &c->note, &c->d));
    if (!c->d)
        TRY_OUT(rc, ckpt_dir_scan(dir, NULL, NULL, &c->d));
    if (flags & CKPT_NEED_STATE && c->d->manifest && c->d->manifest->info.kind == MANIFEST_LIGHT) {
        rc = err_set(ERR_DATA, "%s: a light checkpoint: it holds the model without optimizer state, so training cannot go on from it", dir);
        ckpt_dir_free(c->d);
        goto out;
    }
    c->fd = arena_array(a, (size_t)c->d->n_files + 1, sizeof *c->fd);
    for (int i = 0; i < c->d->n_files; i++)
        atomic_init(&c->fd[i], -1);
    *out = c;
    return 0;
out:
    arena_free(a);
    return rc;
}

void ckpt_close(struct ckpt *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->d->n_files; i++)
        if (atomic_load(&c->fd[i]) >= 0)
            close(atomic_load(&c->fd[i]));
    ckpt_dir_free(c->d);
    arena_free(c->arena);
}

enum ckpt_kind ckpt_kind(const struct ckpt *c) { return c->d->kind; }
const char *ckpt_path(const struct ckpt *c) { return c->d->path; }
const char *ckpt_note(const struct ckpt *c) { return c->note; }
const struct manifest *ckpt_manifest(const struct ckpt *c) { return c->d->manifest; }
int64_t ckpt_n_tensors(const struct ckpt *c) { return c->d->n_tensors; }
const struct ckpt_tensor *ckpt_tensor(const struct ckpt *c, int64_t i) { return &c->d->tensors[i]; }

const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name)
{
    int64_t i = ckpt_names_find(c->d->names, name);

    return i < 0 ? NULL : &c->d->tensors[i];
}

static char *shape_text(char *buf, size_t size, int n_dims, const int64_t *shape)
{
    size_t n = 0;

    buf[0] = '\0';
    n += (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < n_dims && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, i ? ", %" PRId64 : "%" PRId64, shape[i]);
    if (n < size)
        snprintf(buf + n, size - n, "]");
    return buf;
}

int ckpt_need(const struct ckpt *c, const char *name, int n_dims, const int64_t *shape,
              const struct ckpt_tensor **out)
{
    const struct ckpt_tensor *t = ckpt_find(c, name);
    char is[400], want[400];
    _Bool same;

    if (!t)
        return err_set(ERR_DATA, "%s: tensor \"%s\" is missing", ckpt_path(c), name);
    same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++)
        same = t->shape[i] == shape[i];
    if (!same)
        return err_set(ERR_DATA, "%s: tensor \"%s\" has the shape %s, expected %s", c->d->files[t->i_file].path, name,
                       shape_text(is, sizeof is, t->n_dims, t->shape), shape_text(want, sizeof want, n_dims, shape));
    *out = t;
    return 0;
}

/* ---- read */

/* The lowest descriptor that is not kept.  New ones are the lowest that are free,
 * so this leaves half of them to others, however many checkpoints are open. */
static int keep_below(void)
{
    struct rlimit r;

    return getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur > 2 * MAX_OPEN ? MAX_OPEN : (int)(r.rlim_cur / 2);
}

/* A descriptor of the file; *temporary when the caller has to close it.  Two
 * threads may open at once: the loser closes his. */
static int file_fd(const struct ckpt *c, int i_file, _Bool *temporary)
{
    const struct ckpt_dir_file *f = &c->d->files[i_file];
    int fd = atomic_load(&c->fd[i_file]), none = -1;
    struct stat sb;

    *temporary = 0;
    if (fd >= 0)
        return fd;
    fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_sys(ERR_IO, "%s", f->path);
    if (fstat(fd, &sb) < 0 || !S_ISREG(sb.st_mode) || (uint64_t)sb.st_size != f->bytes) {
        close(fd);
        return err_set(ERR_DATA, "%s: changed since it was opened", f->path);
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);       /* tensors are large: more is read ahead */
    if (fd >= keep_below()) {
        *temporary = 1;
        return fd;
    }
    if (!atomic_compare_exchange_strong(&c->fd[i_file], &none, fd)) {
        close(fd);
        fd = none;
    }
    return fd;
}

/* One part, hashed whole; what of it lies in [first, first + n) goes to dst. */
static int read_part(const struct ckpt *c, int fd, const struct ckpt_tensor *t, const struct st_part *p,
                     uint64_t first, size_t n, char *dst)
{
    const char *path = c->d->files[t->i_file].path;
    struct hash_stream *h = hash_begin();
    _Bool whole = p->begin >= first && p->end <= first + n;
    char *buf = NULL;
    struct hash is;
    int rc = 0;

    if (!whole && !(buf = malloc(CHUNK_BYTES)))
        rc = err_set(ERR_IO, "%s: no memory", path);
    for (uint64_t at = p->begin, end; at < p->end && rc == 0; at = end) {
        char *to = whole ? dst + (at - first) : buf;

        end = p->end - at < CHUNK_BYTES ? p->end : at + CHUNK_BYTES;
        rc = fs_pread(fd, path, to, (size_t)(end - at), t->offset + at);
        if (rc < 0)
            break;
        hash_add(h, to, (size_t)(end - at));
        if (!whole && end > first && at < first + n) {
            uint64_t from = at > first ? at : first, until = end < first + n ? end : first + n;

            memcpy(dst + (from - first), buf + (from - at), (size_t)(until - from));
        }
    }
    is = hash_end(h);
    free(buf);
    if (rc < 0)
        return err_add("tensor \"%s\"", t->name);
    if (!hash_eq(&is, &p->hash))
        return err_set(ERR_DATA, "%s: tensor \"%s\": checksum differs in bytes %" PRIu64 " to %" PRIu64,
                       path, t->name, p->begin, p->end);
    return 0;
}

int ckpt_read(const struct ckpt *c, const struct ckpt_tensor *t, uint64_t first, size_t n, void *dst)
{
    _Bool temporary;
    int fd, rc = 0;

    BUG_ON(first > t->bytes || n > t->bytes - first);
    if (n == 0)
        return 0;
    fd = file_fd(c, t->i_file, &temporary);
    if (fd < 0)
        return fd;
    if (!t->parts)
        rc = fs_pread(fd, c->d->files[t->i_file].path, dst, n, t->offset + first);
    for (int i = 0; i < t->n_parts && rc == 0; i++)
        if (t->parts[i].end > first && t->parts[i].begin < first + n)
            rc = read_part(c, fd, t, &t->parts[i], first, n, dst);
    if (temporary)
        close(fd);
    return rc;
}

/* 16-bit elements are read into the upper half of the result and widened from
 * the front: element i is written to bytes 4i..4i+3, while the narrow ones not
 * yet used lie at 2n + 2j for j > i, never below. */
int ckpt_read_f32(const struct ckpt *c, const struct ckpt_tensor *t, int64_t first, int64_t n, float *dst)
{
    unsigned char *narrow = (unsigned char *)dst + 2 * n;
    uint16_t v;

    if (t->dtype == DT_F32)
        return ckpt_read(c, t, 4 * (uint64_t)first, 4 * (size_t)n, dst);
    if (t->dtype != DT_BF16 && t->dtype != DT_F16)
        return err_set(ERR_DATA, "%s: tensor \"%s\" is %s; F32, BF16 or F16 was expected",
                       c->d->files[t->i_file].path, t->name, t->type);
    TRY(ckpt_read(c, t, 2 * (uint64_t)first, 2 * (size_t)n, narrow));
    for (int64_t i = 0; i < n; i++) {
        memcpy(&v, narrow + 2 * i, 2);
        dst[i] = t->dtype == DT_BF16 ? dtype_from_bf16(v) : dtype_from_f16(v);
    }
    return 0;
}

static int read_file(const struct ckpt *c, const char *name, const char *path, struct fs_blob *out)
{
    const struct manifest *m = c->d->manifest;
    const struct manifest_file *listed = NULL;
    struct hash is;
    uint64_t bytes;
    int rc;

    for (int i = 0; m && i < m->n_files; i++)
        if (!strcmp(m->files[i].name, name))
            listed = &m->files[i];
    if (m && !listed && strcmp(name, CKPT_CARD_NAME))
        return err_set(ERR_NOINPUT, "%s: not part of the checkpoint", path);
    rc = fs_file_size(path, &bytes);            /* also: not a FIFO */
    if (rc < 0)
        return listed && rc == ERR_NOINPUT ? err_set(ERR_DATA, "%s", err_msg()) : rc;
    if (bytes > FILE_MAX)
        return err_set(ERR_DATA, "%s: %" PRIu64 " bytes, too large", path, bytes);
    TRY(fs_read(path, out));
    if (!listed)
        return 0;
    is = hash_bytes(out->data, out->size);
    if (out->size == listed->bytes && hash_eq(&is, &listed->hash))
        return 0;
    fs_blob_free(out);
    return err_set(ERR_DATA, "%s: checksum differs", path);
}

int ckpt_read_file(const struct ckpt *c, const char *name, struct fs_blob *out)
{
    struct arena *a;
    int rc;

    if (c->d->kind == CKPT_ONE_FILE)
        return err_set(ERR_NOINPUT, "%s: a single file has no %s", c->d->path, name);
    a = arena_new();
    rc = read_file(c, name, fs_join(a, c->d->path, name), out);
    arena_free(a);
    return rc;
}
