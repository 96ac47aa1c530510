/* modeldir.c -- one writer, one file open at a time, MANIFEST last.
 *
 * The lock is flock(2) on the temporary directory itself: it goes with the
 * process, however that ends, so a leftover is told from a live writer. */
#include "ckpt/modeldir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/grow.h"
#include "base/json.h"
#include "base/pool.h"
#include "ckpt/dir.h"
#include "ckpt/run.h"
#include "ckpt/safetensors.h"

struct tensor {
    const char *name;
    enum dtype dtype;
    enum ckpt_group group;
    int n_dims;
    const int64_t *shape;
    uint64_t bytes, done;
    int i_file, i_in_file;
    struct st_part *parts;
    int n_parts;
};

struct file { const char *name; int64_t first, n; enum ckpt_group group; uint64_t bytes; struct hash head; };

struct extra { const char *name; const void *data; size_t n; };

struct modeldir {
    struct arena *arena;
    const char *path, *parent, *temp, *old;
    unsigned flags;
    const struct manifest_info *info;
    uint64_t shard_bytes, bytes[2];
    int want_files;
    struct tensor *t;
    int64_t n, room;
    struct file *files;
    int n_files, i_open;        /* i_open: the file being written */
    struct st_writer *w;
    struct extra *extra;
    int64_t room_extra;
    int n_extra;
    int lock;                   /* descriptor of temp, -1: not made */
};

/* What may be replaced: a directory whose MANIFEST names this tool. */
static int check_old(struct modeldir *d)
{
    struct manifest *m;
    struct stat sb;
    char **names;
    _Bool ours = 0;
    int n;

    if (lstat(d->path, &sb) < 0)
        return errno == ENOENT ? 0 : err_sys(ERR_CREATE, "%s", d->path);
    if (S_ISDIR(sb.st_mode)) {
        TRY(fs_list(d->arena, d->path, &names, &n));
        if (n == 0)
            return 0;
    }
    if (S_ISDIR(sb.st_mode)) {
        int rc = manifest_load(d->path, &m);

        if (rc == ERR_IO)       /* it may well be ours */
            return rc;
        if (rc == 0) {
            ours = strncmp(m->info.tool, "moe-ckpt ", 9) == 0;
            manifest_free(m);
        }
    }
    if (ours && !(d->flags & MODELDIR_REPLACE))
        return err_set(ERR_CREATE, "%s: is there already and made in another way; -f replaces it", d->path);
    return ours ? 0 : err_set(ERR_CREATE, "%s: is there already and was not written by moe-ckpt, so it is not replaced; remove it first", d->path);
}

static struct modeldir *new_dir(const char *path)
{
    struct arena *a = arena_new();
    struct modeldir *d = arena_alloc(a, sizeof *d);
    char *plain = arena_strdup(a, path);
    size_t n = strlen(plain);

    while (n > 1 && plain[n - 1] == '/')
        plain[--n] = '\0';
    *d = (struct modeldir){ .arena = a, .path = plain, .parent = fs_parent(a, plain), .i_open = -1, .lock = -1 };
    d->temp = fs_join(a, d->parent, arena_printf(a, ".%.200s.moe-tmp", fs_base(plain)));
    d->old = fs_join(a, d->parent, arena_printf(a, ".%.200s.old.moe-tmp", fs_base(plain)));
    return d;
}

int modeldir_begin(const char *path, unsigned flags, const struct manifest_info *info, uint64_t shard_bytes, int n_files,
                   struct modeldir **out)
{
    struct modeldir *d = new_dir(path);
    const char *base = fs_base(d->path);
    int rc;

    d->flags = flags;
    d->info = info;
    d->shard_bytes = shard_bytes ? shard_bytes : CKPT_SHARD_BYTES;
    d->want_files = n_files;
    if (!*base || !strcmp(base, ".") || !strcmp(base, "..") || !strcmp(d->path, "/")) {
        rc = err_set(ERR_USAGE, "\"%s\": expected the name of a directory to make", path);
        goto out;
    }
    TRY_OUT(rc, check_old(d));
    *out = d;
    return 0;
out:
    arena_free(d->arena);
    return rc;
}

int modeldir_add(struct modeldir *d, enum ckpt_group group, const char *name, enum dtype dtype, int n_dims, const int64_t *shape)
{
    struct tensor *t;
    int64_t *copy = arena_array(d->arena, (size_t)n_dims + 1, sizeof *copy);
    uint64_t bytes = dtype_size(dtype);

    for (int i = 0; i < n_dims; i++) {
        copy[i] = shape[i];
        if (__builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes))
            return err_set(ERR_DATA, "tensor \"%s\": its size overflows", name);
    }
    TRY(grow_plain(&d->t, &d->room, d->n + 1, sizeof *d->t, "tensors"));
    BUG_ON(d->n && d->t[d->n - 1].group == CKPT_OPTIM && group == CKPT_MODEL);
    t = &d->t[d->n];
    *t = (struct tensor){ .name = arena_strdup(d->arena, name), .dtype = dtype, .group = group, .n_dims = n_dims, .shape = copy, .bytes = bytes };
    d->bytes[group] += bytes;
    return (int)d->n++;
}

void modeldir_file(struct modeldir *d, const char *name, const void *data, size_t n)
{
    char *copy = arena_alloc(d->arena, n + 1);

    if (n)
        memcpy(copy, data, n);
    d->extra = grow_arena(d->arena, d->extra, &d->room_extra, d->n_extra + 1, sizeof *d->extra);
    d->extra[d->n_extra++] = (struct extra){ arena_strdup(d->arena, name), copy, n };
}

uint64_t modeldir_bytes(const struct modeldir *d) { return d->bytes[0] + d->bytes[1]; }
int modeldir_n_files(const struct modeldir *d) { return d->n_files; }

/* Files are cut where the next tensor would pass the limit, or at the share of
 * all bytes that comes nearest to so many files. */
static void cut_files(struct modeldir *d)
{
    uint64_t sum = 0, before[2] = { 0, 0 };
    int in_group[2] = { 0, 0 }, i[2] = { 0, 0 };

    d->files = arena_array(d->arena, (size_t)d->n + 2, sizeof *d->files);
    for (int64_t k = 0; k < d->n; k++) {
        struct tensor *t = &d->t[k];
        struct file *f = d->n_files ? &d->files[d->n_files - 1] : NULL;
        _Bool cut = !f || f->group != t->group;

        if (!cut && t->group == CKPT_MODEL && d->want_files > 0)
            cut = in_group[0] < d->want_files &&
                  (double)before[0] + (double)t->bytes / 2 >= (double)d->bytes[0] / d->want_files * in_group[0];
        else if (!cut)
            cut = sum + t->bytes > d->shard_bytes;
        if (cut) {
            f = &d->files[d->n_files++];
            *f = (struct file){ .first = k, .group = t->group };
            in_group[t->group]++;
            sum = 0;
        }
        t->i_file = d->n_files - 1;
        t->i_in_file = (int)f->n++;
        sum += t->bytes;
        before[t->group] += t->bytes;
    }
    for (int k = 0; k < d->n_files; k++) {
        int g = d->files[k].group;

        d->files[k].name = arena_printf(d->arena, g == CKPT_MODEL ? "model-%05d-of-%05d.safetensors"
                                        : "optim/optim-%05d-of-%05d.safetensors", ++i[g], in_group[g]);
    }
}

static int make_temp(struct modeldir *d)
{
    struct stat a, b;

    TRY(fs_mkdirs(d->parent));
    for (int tries = 0; tries < 2; tries++) {
        _Bool made = mkdir(d->temp, 0777) == 0;

        if (!made && errno != EEXIST)
            return err_sys(ERR_CREATE, "%s", d->temp);
        d->lock = open(d->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (d->lock < 0) {
            err_sys(ERR_CREATE, "%s", d->temp);
            if (made)           /* empty, and of no use to another writer either */
                rmdir(d->temp);
            return ERR_CREATE;
        }
        if (flock(d->lock, LOCK_EX | LOCK_NB) < 0) {
            int rc = errno == EWOULDBLOCK ? err_set(ERR_LOCKED, "%s: another process is writing it", d->path)
                                          : err_sys(ERR_CREATE, "%s", d->temp);

            close(d->lock);
            d->lock = -1;
            return rc;
        }
        /* Ours, and still under its name: what a dead writer left goes. */
        if (fstat(d->lock, &a) == 0 && stat(d->temp, &b) == 0 && a.st_ino == b.st_ino) {
            char **names;
            int n;

            TRY(fs_list(d->arena, d->temp, &names, &n));
            for (int i = 0; i < n; i++)
                TRY(fs_remove_tree(fs_join(d->arena, d->temp, names[i])));
            return 0;
        }
        close(d->lock);
        d->lock = -1;
    }
    return err_set(ERR_LOCKED, "%s: another process is writing it", d->path);
}

int modeldir_claim(struct arena *a, const char *path, char **temp, int *lock)
{
    struct modeldir *d = new_dir(path);
    int rc = make_temp(d);

    *temp = arena_strdup(a, d->temp);
    *lock = d->lock;
    arena_free(d->arena);
    return rc;
}

static int put_file(struct modeldir *d, const char *name, const void *data, size_t n)
{
    struct fs_out *f;

    TRY(fs_out_create(fs_join(d->arena, d->temp, name), &f));
    if (fs_out_write(f, data, n) < 0) {
        fs_out_abort(f);
        return err_last();
    }
    return fs_out_commit(f);
}

int modeldir_start(struct modeldir *d)
{
    cut_files(d);
    TRY(ckpt_room(d->parent, modeldir_bytes(d), d->n));
    TRY(make_temp(d));
    TRY(fs_remove_tree(d->old));
    if (d->bytes[1])
        TRY(fs_mkdir(fs_join(d->arena, d->temp, "optim")));
    for (int i = 0; i < d->n_extra; i++)
        TRY(put_file(d, d->extra[i].name, d->extra[i].data, d->extra[i].n));
    return 0;
}

/* ---- tensors */

static int open_file(struct modeldir *d, int i)
{
    const struct file *f = &d->files[i];

    d->w = st_writer_new();
    d->i_open = i;
    st_writer_meta(d->w, "format", f->group == CKPT_MODEL ? "pt" : "moe.optim/1");
    for (int64_t k = f->first; k < f->first + f->n; k++)
        TRY(st_writer_add(d->w, d->t[k].name, d->t[k].dtype, d->t[k].n_dims, d->t[k].shape));
    return st_writer_begin(d->w, fs_join(d->arena, d->temp, f->name));
}

static int close_file(struct modeldir *d)
{
    struct file *f = &d->files[d->i_open];

    TRY(st_writer_end(d->w));
    f->bytes = st_writer_bytes(d->w);
    f->head = st_writer_head_hash(d->w);
    for (int64_t k = f->first; k < f->first + f->n; k++) {
        const struct st_part *parts = st_writer_parts(d->w, d->t[k].i_in_file, &d->t[k].n_parts);

        d->t[k].parts = arena_array(d->arena, (size_t)d->t[k].n_parts + 1, sizeof *parts);
        if (d->t[k].n_parts)
            memcpy(d->t[k].parts, parts, (size_t)d->t[k].n_parts * sizeof *parts);
    }
    st_writer_free(d->w);
    d->w = NULL;
    return 0;
}

int modeldir_put(struct modeldir *d, int i_tensor, uint64_t first, const void *data, size_t n)
{
    struct tensor *t = &d->t[i_tensor];

    BUG_ON(t->i_file < d->i_open || first != t->done);
    while (d->i_open < t->i_file) {
        if (d->w)
            TRY(close_file(d));
        TRY(open_file(d, d->i_open + 1));
    }
    TRY(st_writer_put(d->w, t->i_in_file, first, data, n));
    t->done += n;
    return 0;
}

/* ---- index, MANIFEST, rename */

static const char *index_text(struct modeldir *d, enum ckpt_group group)
{
    struct json_out *j = json_new_pretty();
    const char *text;

    json_obj(j, NULL);
    json_obj(j, "metadata");
    json_put_int(j, "total_size", (int64_t)d->bytes[group]);
    json_obj_end(j);
    json_obj(j, "weight_map");
    for (int64_t i = 0; i < d->n; i++)
        if (d->t[i].group == group)
            json_put_str(j, d->t[i].name, fs_base(d->files[d->t[i].i_file].name));
    json_obj_end(j);
    json_obj_end(j);
    text = arena_printf(d->arena, "%s\n", json_text(j, NULL));
    json_free(j);
    return text;
}

static int write_manifest(struct modeldir *d)
{
    struct manifest m = { .info = *d->info };
    char *text;
    size_t n;
    int rc;

    m.files = arena_array(d->arena, (size_t)(d->n_files + d->n_extra), sizeof *m.files);
    m.tensors = arena_array(d->arena, (size_t)d->n + 1, sizeof *m.tensors);
    for (int i = 0; i < d->n_extra; i++)
        m.files[m.n_files++] = (struct manifest_file){ d->extra[i].name, d->extra[i].n, 0, hash_bytes(d->extra[i].data, d->extra[i].n) };
    for (int i = 0; i < d->n_files; i++)
        m.files[m.n_files++] = (struct manifest_file){ d->files[i].name, d->files[i].bytes, 1, d->files[i].head };
    for (int64_t i = 0; i < d->n; i++)
        m.tensors[m.n_tensors++] = (struct manifest_tensor){
            d->t[i].name, d->n_extra + d->t[i].i_file, dtype_name(d->t[i].dtype), d->t[i].n_dims, d->t[i].shape,
            d->t[i].parts, d->t[i].n_parts };
    TRY(manifest_format(&m, &text, &n));
    rc = put_file(d, MANIFEST_NAME, text, n);
    pool_free(text);
    return rc;
}

/* First the mark that it is whole, then the rest. */
static int remove_old(struct modeldir *d, const char *dir)
{
    const char *manifest = fs_join(d->arena, dir, MANIFEST_NAME);

    if (fs_exists(manifest)) {
        TRY(fs_remove_tree(manifest));
        TRY(fs_sync_dir(dir));
    }
    return fs_remove_tree(dir);
}

static int take_name(struct modeldir *d)
{
    struct stat sb;
    char **names;
    int n, rc;

    if (lstat(d->path, &sb) < 0)
        return fs_rename(d->temp, d->path);
    TRY(check_old(d));          /* once more: it may have come meanwhile */
    TRY(fs_list(d->arena, d->path, &names, &n));
    if (n == 0)
        return fs_rename(d->temp, d->path);
    rc = fs_exchange(d->temp, d->path);
    if (rc == 0)
        return remove_old(d, d->temp);
    if (rc != ERR_ABSENT)
        return rc;
    TRY(fs_rename(d->path, d->old));
    TRY(fs_rename(d->temp, d->path));
    return remove_old(d, d->old);
}

_Bool modeldir_is_current(const char *path, const struct hash *recipe)
{
    struct modeldir *d;
    struct manifest *m;
    _Bool same;

    if (!fs_is_dir(path) || manifest_load(path, &m) < 0)
        return 0;
    same = hash_eq(&m->info.plan, recipe);
    manifest_free(m);
    if (!same)
        return 0;
    d = new_dir(path);
    if (fs_is_dir(d->temp) && make_temp(d) == 0)
        fs_remove_tree(d->temp);
    if (d->lock >= 0) {
        fs_remove_tree(d->old);
        close(d->lock);
    }
    arena_free(d->arena);
    return 1;
}

static int commit(struct modeldir *d)
{
    for (int64_t i = 0; i < d->n; i++)
        if (d->t[i].done != d->t[i].bytes)
            return err_set(ERR_BUG, "tensor \"%s\": %" PRIu64 " of %" PRIu64 " bytes were put", d->t[i].name, d->t[i].done, d->t[i].bytes);
    while (d->i_open < d->n_files) {            /* also files whose tensors are all empty */
        if (d->w)
            TRY(close_file(d));
        if (d->i_open + 1 == d->n_files)
            break;
        TRY(open_file(d, d->i_open + 1));
    }
    for (int g = 0; g < 2; g++) {
        const char *name = g ? CKPT_OPTIM_INDEX_NAME : CKPT_INDEX_NAME, *text;

        if (g && !d->bytes[1])
            continue;
        text = index_text(d, (enum ckpt_group)g);
        modeldir_file(d, name, text, strlen(text));
        TRY(put_file(d, name, text, strlen(text)));
    }
    if (d->bytes[1])
        TRY(fs_sync_dir(fs_join(d->arena, d->temp, "optim")));
    TRY(write_manifest(d));
    TRY(fs_sync_dir(d->temp));
    return take_name(d);
}

static void free_dir(struct modeldir *d)
{
    st_writer_free(d->w);
    if (d->lock >= 0)
        close(d->lock);
    free(d->t);
    arena_free(d->arena);
}

int modeldir_commit(struct modeldir *d)
{
    int rc = commit(d);

    if (rc < 0) {
        modeldir_abort(d);
        return rc;
    }
    free_dir(d);
    return 0;
}

void modeldir_abort(struct modeldir *d)
{
    struct err_state kept;

    if (!d)
        return;
    err_take(&kept);
    st_writer_free(d->w);
    d->w = NULL;
    /* It never had a name that anybody opens, so the order does not matter. */
    if (d->lock >= 0)
        fs_remove_tree(d->temp);
    free_dir(d);
    if (kept.code)
        err_put(&kept);
}
