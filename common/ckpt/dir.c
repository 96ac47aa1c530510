/* dir.c -- MANIFEST, index and headers, each held against the others.
 *
 * A file whose header could not be read is told of once; the tensors that
 * should have been in it are not counted as missing one by one. */
#include "ckpt/dir.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/grow.h"
#include "base/json_pull.h"
#include "ckpt/names.h"

#define INDEX_MAX ((uint64_t)1 << 30)

struct scan {
    struct ckpt_dir *d;
    struct arena *a;
    void (*problem)(void *ctx, const char *sentence);
    void *ctx;
    int64_t room;               /* of d->tensors */
    int room_files;
    _Bool *unread;              /* [room_files] the header could not be read */
};

/* What was recorded is a problem to tell of, or the end of the scan.  A part of
 * a checkpoint that is not there is damage; only the whole can be "no input". */
static int bad(struct scan *s)
{
    if (err_last() == ERR_NOINPUT && s->d->kind != CKPT_ONE_FILE)
        err_set(ERR_DATA, "%s", err_msg());
    if (!s->problem || err_last() != ERR_DATA)
        return err_last();
    s->d->n_problems++;
    s->problem(s->ctx, err_msg());
    return 0;
}

#define BAD(s, ...) (err_set(ERR_DATA, __VA_ARGS__), bad(s))

static int add_file(struct scan *s, const char *name, const char *path, _Bool is_optim)
{
    struct ckpt_dir *d = s->d;
    int n = d->n_files;

    if (n == s->room_files) {
        int room = n ? 2 * n : 16;
        struct ckpt_dir_file *files = arena_array(s->a, (size_t)room, sizeof *files);
        _Bool *unread = arena_array(s->a, (size_t)room, sizeof *unread);

        if (n) {
            memcpy(files, d->files, (size_t)n * sizeof *files);
            memcpy(unread, s->unread, (size_t)n * sizeof *unread);
        }
        d->files = files;
        s->unread = unread;
        s->room_files = room;
    }
    d->files[n] = (struct ckpt_dir_file){ arena_strdup(s->a, name), arena_strdup(s->a, path), 0, is_optim };
    return d->n_files++;
}

static int find_file(const struct ckpt_dir *d, const char *name)
{
    for (int i = d->n_files - 1; i >= 0; i--)
        if (!strcmp(d->files[i].name, name))
            return i;
    return -1;
}

/* ---- headers */

static int add_tensors(struct scan *s, int i_file, const struct st_header *h)
{
    struct ckpt_dir *d = s->d;

    if (grow_plain(&d->tensors, &s->room, d->n_tensors + h->n_tensors, sizeof *d->tensors, "tensors") < 0)
        return err_add("%s", d->path);
    for (int64_t i = 0; i < h->n_tensors; i++) {
        const struct st_tensor *from = &h->tensors[i];
        int64_t *shape = arena_array(s->a, (size_t)from->n_dims + 1, sizeof *shape);

        memcpy(shape, from->shape, (size_t)from->n_dims * sizeof *shape);
        d->tensors[d->n_tensors++] = (struct ckpt_tensor){
            .name = arena_strdup(s->a, from->name), .type = from->type, .dtype = from->dtype,
            .n_dims = from->n_dims, .shape = shape, .bytes = from->end - from->begin,
            .file = d->files[i_file].name, .is_optim = d->files[i_file].is_optim,
            .offset = h->data_start + from->begin, .i_file = i_file,
        };
    }
    return 0;
}

/* listed: what the MANIFEST says of this file, or NULL. */
static int read_file(struct scan *s, int i_file, const struct manifest_file *listed)
{
    struct ckpt_dir_file *f = &s->d->files[i_file];
    struct st_file *st;
    struct hash is;
    int rc = st_open(f->path, &st);

    if (rc < 0) {
        s->unread[i_file] = 1;
        return bad(s);
    }
    f->bytes = st_file_bytes(st);
    is = st_head_hash(st);
    if (listed && f->bytes != listed->bytes) {
        s->unread[i_file] = 1;
        rc = BAD(s, "%s: %" PRIu64 " bytes, MANIFEST.json says %" PRIu64, f->path, f->bytes, listed->bytes);
    } else if (listed && !hash_eq(&is, &listed->hash)) {
        s->unread[i_file] = 1;
        rc = BAD(s, "%s: header: checksum differs", f->path);
    } else {
        rc = add_tensors(s, i_file, st_head(st));
    }
    st_close(st);
    return rc;
}

static int build_names(struct scan *s)
{
    struct ckpt_dir *d = s->d;
    int64_t twice, first;

    d->names = ckpt_names_new(d->tensors, d->n_tensors, sizeof *d->tensors, offsetof(struct ckpt_tensor, name), &twice);
    if (twice < 0)
        return 0;
    first = ckpt_names_find(d->names, d->tensors[twice].name);
    return BAD(s, "%s: tensor \"%s\" is also in %s", d->files[d->tensors[twice].i_file].path, d->tensors[twice].name,
               d->tensors[first].file);
}

/* ---- MANIFEST against headers */

static _Bool same_shape(const struct ckpt_tensor *t, const struct manifest_tensor *m)
{
    if (strcmp(t->type, m->type) || t->n_dims != m->n_dims)
        return 0;
    for (int i = 0; i < t->n_dims; i++)
        if (t->shape[i] != m->shape[i])
            return 0;
    return 1;
}

static int check_manifest(struct scan *s)
{
    struct ckpt_dir *d = s->d;
    struct manifest *m = d->manifest;
    int64_t n_here = 0;
    int rc = 0;

    for (int64_t i = 0; i < d->n_tensors && rc == 0; i++) {
        struct ckpt_tensor *t = &d->tensors[i];
        int64_t k = ckpt_names_find(m->names, t->name);
        const char *path = d->files[t->i_file].path;

        if (k < 0) {
            rc = BAD(s, "%s: tensor \"%s\": not in MANIFEST.json", path, t->name);
            continue;
        }
        n_here++;
        if (strcmp(m->files[m->tensors[k].i_file].name, t->file))
            rc = BAD(s, "%s: tensor \"%s\": MANIFEST.json has it in %s", path, t->name,
                     m->files[m->tensors[k].i_file].name);
        else if (!same_shape(t, &m->tensors[k]))
            rc = BAD(s, "%s: tensor \"%s\": type or shape differs from MANIFEST.json", path, t->name);
        t->parts = m->tensors[k].parts;
        t->n_parts = m->tensors[k].n_parts;
    }
    if (rc < 0 || n_here == m->n_tensors)
        return rc;
    for (int64_t i = 0; i < m->n_tensors && rc == 0; i++) {
        const char *file = m->files[m->tensors[i].i_file].name;

        if (ckpt_names_find(d->names, m->tensors[i].name) < 0 && !s->unread[find_file(d, file)])
            rc = BAD(s, "%s: tensor \"%s\" is missing", d->files[find_file(d, file)].path, m->tensors[i].name);
    }
    return rc;
}

static int scan_manifest(struct scan *s)
{
    struct ckpt_dir *d = s->d;
    struct manifest *m;

    d->kind = CKPT_COMPLETE;
    if (manifest_load(d->path, &d->manifest) < 0)
        return bad(s);
    m = d->manifest;
    for (int optim = 0; optim < 2; optim++)
        for (int i = 0; i < m->n_files; i++) {
            const struct manifest_file *f = &m->files[i];

            if (!f->is_tensors || (strncmp(f->name, "optim/", 6) == 0) != optim)
                continue;
            TRY(read_file(s, add_file(s, f->name, fs_join(s->a, d->path, f->name), optim), f));
        }
    TRY(build_names(s));
    return check_manifest(s);
}

/* ---- index files */

/* "weight_map": tensors and their files. */
struct index_entry { const char *name, *file; };

struct index {
    struct index_entry *v;      /* [n] in the order of the text */
    int64_t n, room;
    struct ckpt_names *names;
    struct arena *arena;
};

static void free_index(struct index *x)
{
    ckpt_names_free(x->names);
    free(x->v);
    arena_free(x->arena);
}

static _Bool has_control(struct json_slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.s[i] < 0x20 || s.s[i] == 0x7f)
            return 1;
    return 0;
}

static const char *keep(struct index *x, struct json_slice s)
{
    return memcpy(arena_alloc(x->arena, s.n + 1), s.s, s.n);
}

static int add_entry(struct index *x, struct json_pull *j)
{
    const char *last = x->n ? x->v[x->n - 1].file : NULL;
    struct json_slice s;

    if (grow_plain(&x->v, &x->room, x->n + 1, sizeof *x->v, "tensors") < 0)
        return err_add("%s", j->where);
    TRY(json_pull_key(j, &s));
    if (has_control(s))
        return err_set(ERR_DATA, "%s: weight_map: a control character in a tensor name", j->where);
    x->v[x->n].name = keep(x, s);
    /* A plain name: an index must not lead out of its directory. */
    if (json_pull_peek(j) != '"')
        s = (struct json_slice){ "", 0 };
    else
        TRY(json_pull_string(j, "a string", &s));
    if (!s.n || s.n > NAME_MAX || s.s[0] == '.' || memchr(s.s, '/', s.n))
        return err_set(ERR_DATA, "%s: weight_map: a value that is not the name of a file beside it", j->where);
    if (has_control(s))
        return err_set(ERR_DATA, "%s: weight_map: a control character in a file name", j->where);
    x->v[x->n++].file = last && json_slice_is(s, last) ? last : keep(x, s);
    return 0;
}

static int read_map(struct index *x, struct json_pull *j)
{
    int rc;

    j->p++;
    for (rc = !json_pull_empty(j, '}'); rc;) {
        TRY(add_entry(x, j));
        TRY(rc = json_pull_more(j, '}'));
    }
    return 0;
}

/* Of all keys weight_map alone is of use; the others must be sound. */
static int read_index(struct index *x, struct json_pull *j)
{
    struct ckpt_names *keys;
    struct index_entry *key = NULL;     /* of the top object */
    struct json_slice s;
    json_t *other;
    int64_t n = 0, again;
    _Bool found = 0;
    int rc;

    if (!json_pull_peek(j) && j->p == j->end)
        return err_set(ERR_DATA, "%s: empty, expected JSON", j->where);
    if (json_pull_peek(j) != '{') {
        TRY(json_load_text(j->where, j->text, (size_t)(j->end - j->text), &other));
        json_decref(other);
        return err_set(ERR_DATA, "%s: \"weight_map\": expected an object", j->where);
    }
    j->p++;
    for (rc = !json_pull_empty(j, '}'); rc; n++) {
        TRY(json_pull_key(j, &s));
        if (!(n & (n + 1))) {           /* 0, 1, 3, 7...: room for twice as many and one */
            struct index_entry *bigger = arena_array(x->arena, 2 * (size_t)n + 1, sizeof *bigger);

            key = n ? memcpy(bigger, key, (size_t)n * sizeof *key) : bigger;
        }
        key[n].name = keep(x, s);
        if (json_slice_is(s, "weight_map") && json_pull_peek(j) == '{') {
            if (!found)
                TRY(read_map(x, j));
            else
                return json_pull_fail(j, j->p, "duplicate key \"weight_map\"");
            found = 1;
        } else {
            TRY(json_pull_tree(j, &other));
            json_decref(other);
        }
        TRY(rc = json_pull_more(j, '}'));
    }
    TRY(json_pull_finish(j));
    keys = ckpt_names_new(key, n, sizeof *key, offsetof(struct index_entry, name), &again);
    ckpt_names_free(keys);
    if (again >= 0)
        return err_set(ERR_DATA, "%s: duplicate key \"%s\"", j->where, key[again].name);
    if (!found)
        return err_set(ERR_DATA, "%s: \"weight_map\": expected an object", j->where);
    x->names = ckpt_names_new(x->v, x->n, sizeof *x->v, offsetof(struct index_entry, name), &again);
    if (again >= 0)
        return err_set(ERR_DATA, "%s: weight_map: duplicate key \"%s\"", j->where, x->v[again].name);
    return 0;
}

static int load_index(const char *path, struct index *x)
{
    struct json_pull j;
    struct fs_blob b;
    uint64_t bytes;
    int rc;

    *x = (struct index){ .arena = arena_new() };
    TRY(fs_file_size(path, &bytes));
    if (bytes > INDEX_MAX)
        return err_set(ERR_DATA, "%s: %" PRIu64 " bytes, too large for an index", path, bytes);
    TRY(fs_read(path, &b));
    json_pull_start(&j, path, b.data, b.size);
    rc = read_index(x, &j);
    json_pull_done(&j);
    fs_blob_free(&b);
    return rc;
}

/* "optim/" and the name, made once for a run of the same. */
static const char *in_folder(struct scan *s, const char *prefix, const struct index *x, int64_t i, const char *before)
{
    if (i && x->v[i].file == x->v[i - 1].file)
        return before;
    return *prefix ? arena_printf(s->a, "%s%s", prefix, x->v[i].file) : arena_strdup(s->a, x->v[i].file);
}

/* Both ways: what the index names is there, what is there the index names. */
static int check_index(struct scan *s, const char *path, const char *prefix, const struct index *x, _Bool is_optim)
{
    struct ckpt_dir *d = s->d;
    const char *file = NULL;

    for (int64_t k = 0; k < x->n; k++) {
        const char *name = x->v[k].name;
        int64_t i = ckpt_names_find(d->names, name);
        int i_file;

        file = in_folder(s, prefix, x, k, file);
        if (i >= 0 && !strcmp(d->tensors[i].file, file))
            continue;
        i_file = i < 0 ? find_file(d, file) : d->tensors[i].i_file;
        if (i_file < 0)
            TRY(BAD(s, "%s: tensor \"%s\": its file %s is not part of the checkpoint", path, name, file));
        else if (i < 0 && !s->unread[i_file])
            TRY(BAD(s, "%s: tensor \"%s\" is not in %s", path, name, file));
        else if (i >= 0)
            TRY(BAD(s, "%s: tensor \"%s\" is in %s, not in %s", path, name, d->tensors[i].file, file));
    }
    for (int64_t i = 0; i < d->n_tensors; i++)
        if (d->tensors[i].is_optim == is_optim && ckpt_names_find(x->names, d->tensors[i].name) < 0)
            TRY(BAD(s, "%s: tensor \"%s\": not in %s", d->files[d->tensors[i].i_file].path, d->tensors[i].name, path));
    return 0;
}

static int check_index_file(struct scan *s, const char *name, const char *prefix, _Bool is_optim)
{
    const char *path = fs_join(s->a, s->d->path, name);
    struct index x;
    int rc = load_index(path, &x);

    rc = rc < 0 ? bad(s) : check_index(s, path, prefix, &x, is_optim);
    free_index(&x);
    return rc;
}

/* ---- without a MANIFEST */

/* The files that the index names, in the order of its text.  *sound: the index
 * itself could be read, and is in x. */
static int scan_indexed(struct scan *s, const char *index, const char *prefix, _Bool is_optim, struct index *x, _Bool *sound)
{
    struct ckpt_dir *d = s->d;
    const char *path = fs_join(s->a, d->path, index), *file = NULL;

    if (load_index(path, x) < 0) {
        *sound = 0;
        return bad(s);
    }
    for (int64_t i = 0; i < x->n; i++) {
        if (i && x->v[i].file == x->v[i - 1].file)
            continue;
        file = in_folder(s, prefix, x, i, file);
        if (find_file(d, file) < 0)
            TRY(read_file(s, add_file(s, file, fs_join(s->a, d->path, file), is_optim), NULL));
    }
    return 0;
}

/* Without an index there is one file: model.safetensors, which is the name that
 * every loader looks for, or else whatever is alone. */
static int scan_alone(struct scan *s)
{
    struct ckpt_dir *d = s->d;
    const char *found = NULL;
    char **names;
    int n;

    if (fs_exists(fs_join(s->a, d->path, "model.safetensors")))
        return read_file(s, add_file(s, "model.safetensors", fs_join(s->a, d->path, "model.safetensors"), 0), NULL);
    TRY(fs_list(s->a, d->path, &names, &n));
    for (int i = 0; i < n; i++) {
        size_t len = strlen(names[i]);

        if (len < 12 || strcmp(names[i] + len - 12, ".safetensors"))
            continue;
        if (found)
            return BAD(s, "%s: several .safetensors files and no " CKPT_INDEX_NAME, d->path);
        found = names[i];
    }
    if (!found)
        return err_set(ERR_NOINPUT, "%s: no MANIFEST.json, no index and no .safetensors file", d->path);
    return read_file(s, add_file(s, found, fs_join(s->a, d->path, found), 0), NULL);
}

static int scan_plain(struct scan *s)
{
    static const char *const name[2] = { CKPT_INDEX_NAME, CKPT_OPTIM_INDEX_NAME }, *const prefix[2] = { "", "optim/" };
    struct ckpt_dir *d = s->d;
    struct index x[2] = { { 0 }, { 0 } };
    _Bool has[2];
    int rc = 0;

    d->kind = CKPT_HF_DIR;
    for (int i = 0; i < 2 && rc == 0; i++) {
        has[i] = fs_exists(fs_join(s->a, d->path, name[i]));
        if (has[i])
            rc = scan_indexed(s, name[i], prefix[i], i, &x[i], &has[i]);
        else if (i == 0)
            rc = scan_alone(s);
    }
    if (rc == 0)
        rc = build_names(s);
    for (int i = 0; i < 2 && rc == 0; i++)
        if (has[i])
            rc = check_index(s, fs_join(s->a, d->path, name[i]), prefix[i], &x[i], i);
    free_index(&x[0]);
    free_index(&x[1]);
    return rc;
}

/* ---- all kinds */

static int scan(struct scan *s)
{
    struct ckpt_dir *d = s->d;
    _Bool optim = 0;

    if (!fs_exists(d->path))
        return err_set(ERR_NOINPUT, "%s: No such file or directory", d->path);
    if (!fs_is_dir(d->path)) {
        d->kind = CKPT_ONE_FILE;
        TRY(read_file(s, add_file(s, fs_base(d->path), d->path, 0), NULL));
        return build_names(s);
    }
    if (!fs_exists(fs_join(s->a, d->path, MANIFEST_NAME)))
        return scan_plain(s);
    TRY(scan_manifest(s));
    if (!d->manifest)
        return 0;
    for (int i = 0; i < d->n_files; i++)
        optim |= d->files[i].is_optim;
    TRY(check_index_file(s, CKPT_INDEX_NAME, "", 0));
    return optim ? check_index_file(s, CKPT_OPTIM_INDEX_NAME, "optim/", 1) : 0;
}

int ckpt_dir_scan(const char *path, void (*problem)(void *ctx, const char *sentence), void *ctx,
                  struct ckpt_dir **out)
{
    struct arena *a = arena_new();
    struct ckpt_dir *d = arena_alloc(a, sizeof *d);
    struct scan s = { .d = d, .a = a, .problem = problem, .ctx = ctx };
    int rc;

    d->arena = a;
    d->path = arena_strdup(a, path);
    rc = scan(&s);
    if (rc < 0) {
        ckpt_dir_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

void ckpt_dir_free(struct ckpt_dir *d)
{
    if (!d)
        return;
    ckpt_names_free(d->names);
    manifest_free(d->manifest);
    free(d->tensors);
    arena_free(d->arena);
}
