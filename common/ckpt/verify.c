/* verify.c -- structure first, then every byte in the order of the files. */
#include "ckpt/verify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/hash.h"
#include "ckpt/dir.h"
#include "ckpt/manifest.h"

#define CHUNK_BYTES ((size_t)1 << 20)

struct work {
    struct ckpt_verify *v;
    struct ckpt_dir *d;
    struct arena *a;
    char *buf;                  /* [CHUNK_BYTES] */
    uint64_t total;
};

static void count_problem(void *ctx, const char *sentence)
{
    struct ckpt_verify *v = ctx;

    v->n_problems++;
    if (v->problem)
        v->problem(v->ctx, sentence);
}

/* Damage is told of and counted; anything else ends the call. */
static int note(struct work *w)
{
    if (err_last() != ERR_DATA && err_last() != ERR_NOINPUT)
        return err_last();
    count_problem(w->v, err_msg());
    return 0;
}

static void advance(struct work *w, uint64_t n)
{
    w->v->bytes += n;
    if (w->v->progress)
        w->v->progress(w->v->ctx, w->v->bytes, w->total);
}

/* ---- files that are hashed whole */

static int check_whole_file(struct work *w, const struct manifest_file *f)
{
    const char *path = fs_join(w->a, w->d->path, f->name);
    struct hash is;
    uint64_t bytes;

    if (fs_file_size(path, &bytes) < 0) {       /* also: not a FIFO */
        _Bool told = !strcmp(f->name, CKPT_INDEX_NAME) || !strcmp(f->name, CKPT_OPTIM_INDEX_NAME);

        return told && err_last() == ERR_NOINPUT ? 0 : note(w);         /* by the scan, which reads indexes */
    }
    if (bytes != f->bytes) {
        err_set(ERR_DATA, "%s: %" PRIu64 " bytes, MANIFEST.json says %" PRIu64, path, bytes, f->bytes);
        return note(w);
    }
    if (w->v->structure_only)
        return 0;
    if (hash_file(path, &is, NULL) < 0)
        return note(w);
    if (!hash_eq(&is, &f->hash)) {
        err_set(ERR_DATA, "%s: checksum differs", path);
        return note(w);
    }
    advance(w, bytes);
    return 0;
}

/* ---- tensors */

static int check_part(struct work *w, int fd, const struct ckpt_tensor *t, const struct st_part *p)
{
    const char *path = w->d->files[t->i_file].path;
    struct hash_stream *h = NULL;
    struct hash is;
    int rc = 0;

    if (p->end - p->begin <= CHUNK_BYTES) {     /* nearly all: no state to set up */
        rc = fs_pread(fd, path, w->buf, (size_t)(p->end - p->begin), t->offset + p->begin);
        if (rc == 0)
            is = hash_bytes(w->buf, (size_t)(p->end - p->begin));
        goto hashed;
    }
    h = hash_begin();
    for (uint64_t at = p->begin; at < p->end && rc == 0;) {
        size_t n = p->end - at < CHUNK_BYTES ? (size_t)(p->end - at) : CHUNK_BYTES;

        rc = fs_pread(fd, path, w->buf, n, t->offset + at);
        if (rc == 0)
            hash_add(h, w->buf, n);
        at += n;
    }
    is = hash_end(h);
hashed:
    if (rc < 0)
        return note(w);
    w->v->n_parts++;
    if (!hash_eq(&is, &p->hash)) {
        if (t->n_parts == 1)
            err_set(ERR_DATA, "%s: tensor \"%s\": checksum differs", path, t->name);
        else
            err_set(ERR_DATA, "%s: tensor \"%s\": bytes %" PRIu64 " to %" PRIu64 ": checksum differs",
                    path, t->name, p->begin, p->end);
        return note(w);
    }
    advance(w, p->end - p->begin);
    return 0;
}

static int check_tensor_file(struct work *w, int i_file, int64_t *i_tensor)
{
    const struct ckpt_dir_file *f = &w->d->files[i_file];
    const struct ckpt_tensor *t;
    int fd, rc = 0;

    if (*i_tensor == w->d->n_tensors || w->d->tensors[*i_tensor].i_file != i_file)
        return 0;               /* nothing in it that could be read */
    fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        err_sys(ERR_IO, "%s", f->path);
        return ERR_IO;
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    advance(w, w->d->tensors[*i_tensor].offset);        /* the header was hashed by the scan */
    for (; *i_tensor < w->d->n_tensors && (t = &w->d->tensors[*i_tensor])->i_file == i_file; ++*i_tensor)
        for (int k = 0; k < t->n_parts && rc == 0; k++)
            rc = check_part(w, fd, t, &t->parts[k]);
    close(fd);
    return rc;
}

/* ---- what is there but not listed */

static _Bool is_listed(const struct manifest *m, const char *name, _Bool dir)
{
    size_t n = strlen(name);

    for (int i = 0; i < m->n_files; i++)
        if (dir ? !strncmp(m->files[i].name, name, n) && m->files[i].name[n] == '/' : !strcmp(m->files[i].name, name))
            return 1;
    return 0;
}

static int check_extra(struct work *w, const char *below)
{
    const char *dir = *below ? fs_join(w->a, w->d->path, below) : w->d->path;
    char **names;
    int n;

    TRY(fs_list(w->a, dir, &names, &n));
    for (int i = 0; i < n; i++) {
        const char *name = *below ? fs_join(w->a, below, names[i]) : names[i];
        const char *path = fs_join(w->a, dir, names[i]);
        struct stat sb;
        _Bool is_dir = lstat(path, &sb) == 0 && S_ISDIR(sb.st_mode);

        if (!is_dir && (!strcmp(name, MANIFEST_NAME) || !strcmp(name, CKPT_CARD_NAME)))
            continue;
        if (!is_listed(w->d->manifest, name, is_dir)) {
            err_set(ERR_DATA, "%s: not listed in MANIFEST.json", path);
            TRY(note(w));
        } else if (is_dir) {
            TRY(check_extra(w, name));
        }
    }
    return 0;
}

static int check_bytes(struct work *w)
{
    const struct manifest *m = w->d->manifest;
    int64_t i_tensor = 0;

    for (int i = 0; i < m->n_files; i++)
        w->total += m->files[i].bytes;
    for (int i = 0; i < m->n_files; i++)
        if (!m->files[i].is_tensors)
            TRY(check_whole_file(w, &m->files[i]));
    TRY(check_extra(w, ""));
    if (w->v->structure_only)
        return 0;
    for (int i = 0; i < w->d->n_files; i++)
        TRY(check_tensor_file(w, i, &i_tensor));
    return 0;
}

int ckpt_verify(const char *dir, struct ckpt_verify *v)
{
    struct work w = { .v = v };
    int rc;

    v->has_manifest = 0;
    v->n_problems = v->n_files = v->n_tensors = v->n_parts = 0;
    v->bytes = 0;
    TRY(ckpt_dir_scan(dir, count_problem, v, &w.d));
    w.a = arena_new();
    w.buf = malloc(CHUNK_BYTES);
    v->has_manifest = w.d->kind == CKPT_COMPLETE;
    v->kind = w.d->manifest ? w.d->manifest->info.kind : MANIFEST_FULL;
    v->n_tensors = w.d->n_tensors;
    v->n_files = w.d->manifest ? w.d->manifest->n_files : w.d->n_files;
    if (!w.buf)
        rc = err_set(ERR_IO, "%s: no memory", dir);
    else
        rc = w.d->manifest ? check_bytes(&w) : 0;
    if (!w.d->manifest)
        for (int i = 0; i < w.d->n_files; i++)
            v->bytes += w.d->files[i].bytes;
    free(w.buf);
    arena_free(w.a);
    ckpt_dir_free(w.d);
    return rc;
}
