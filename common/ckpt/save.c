/* save.c -- the commit protocol.
 *
 * Order is everything here: data is durable before the MANIFEST vouches for it,
 * the MANIFEST is durable before the directory gets its name, the name is
 * durable before `latest` points at it, and only then may an older checkpoint
 * go.  A step that was saved before (a run that went back and came again) is
 * exchanged for the new one in a single rename. */
#include "ckpt/save.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/pool.h"
#include "ckpt/dir.h"
#include "ckpt/run.h"

struct save_tensor {
    enum ckpt_group group;
    const char *name;
    enum dtype dtype;
    int n_dims;
    int64_t *shape;
    uint64_t bytes;
    const void *data;
    int shard;                  /* within its group */
};

struct ckpt_save {
    struct arena *arena;
    const char *run_dir, *ckpt_dir, *final, *temp;
    uint64_t shard_bytes;
    struct save_tensor *t;      /* [n], in the order of the calls */
    int64_t n, room;
    struct manifest m;
    int room_files;
    _Bool written, has_optim;
};

/* What is in the way: leftovers, and this step without its MANIFEST. */
static int sweep(struct ckpt_save *s)
{
    TRY(ckpt_sweep(s->run_dir));
    if (fs_exists(s->final) && !fs_exists(fs_join(s->arena, s->final, MANIFEST_NAME)))
        TRY(fs_remove_tree(s->final));
    return 0;
}

/* Measured: half a megabyte, and just under 1 KB a tensor with names of 50
 * bytes (tables, and the texts of header, index and manifest). */
size_t ckpt_save_memory(int64_t n_tensors)
{
    return ((size_t)1 << 20) + (size_t)n_tensors * 2048;
}

static int begin(struct ckpt_save *s)
{
    _Bool fresh = !fs_is_dir(s->ckpt_dir);

    TRY(fs_mkdirs(s->ckpt_dir));
    if (fresh) {
        TRY(fs_sync_dir(s->run_dir));
        TRY(fs_sync_dir(fs_parent(s->arena, s->run_dir)));
    }
    TRY(sweep(s));
    return fs_mkdir(s->temp);
}

int ckpt_save_begin(const char *run_dir, const struct manifest_info *info, uint64_t shard_bytes,
                    struct ckpt_save **out)
{
    struct arena *a = arena_new();
    struct ckpt_save *s = arena_alloc(a, sizeof *s);
    char step[32];
    int rc;

    s->arena = a;
    s->run_dir = arena_strdup(a, run_dir);
    s->ckpt_dir = fs_join(a, run_dir, "ckpt");
    s->final = fs_join(a, s->ckpt_dir, ckpt_step_name(step, info->step));
    s->temp = arena_printf(a, "%s.tmp", s->final);
    s->shard_bytes = shard_bytes ? shard_bytes : CKPT_SHARD_BYTES;
    s->m.info = *info;
    rc = begin(s);
    if (rc < 0) {
        ckpt_save_abort(s);
        return rc;
    }
    *out = s;
    return 0;
}

void ckpt_save_abort(struct ckpt_save *s)
{
    struct err_state why;

    if (!s)
        return;
    err_take(&why);
    fs_remove_tree(s->temp);
    err_put(&why);
    pool_free(s->t);
    arena_free(s->arena);
}

int ckpt_save_tensor(struct ckpt_save *s, enum ckpt_group group, const char *name, enum dtype dtype,
                     int n_dims, const int64_t *shape, const void *data)
{
    struct save_tensor *t;
    uint64_t bytes = dtype_size(dtype);

    BUG_ON(s->written || n_dims < 0 || n_dims > ST_MAX_DIMS);
    for (int i = 0; i < n_dims; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes))
            return err_set(ERR_BUG, "tensor \"%s\": its shape is negative or overflows", name);
    if (s->n == s->room) {
        int64_t room = s->room ? 2 * s->room : 256;
        struct save_tensor *bigger = pool_realloc(s->t, (size_t)room * sizeof *bigger);

        if (!bigger)
            return err_set(ERR_IO, "%s: no memory for %" PRId64 " tensors", s->temp, room);
        s->t = bigger;
        s->room = room;
    }
    t = &s->t[s->n++];
    *t = (struct save_tensor){ .group = group, .name = arena_strdup(s->arena, name), .dtype = dtype,
                               .n_dims = n_dims, .bytes = bytes, .data = data };
    t->shape = arena_array(s->arena, (size_t)n_dims + 1, sizeof *t->shape);
    if (n_dims)
        memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
    s->has_optim |= group == CKPT_OPTIM;
    return 0;
}

/* ---- files */

static struct manifest_file *list_file(struct ckpt_save *s, const char *name)
{
    struct manifest *m = &s->m;

    if (m->n_files == s->room_files) {
        struct manifest_file *bigger;

        s->room_files = s->room_files ? 2 * s->room_files : 16;
        bigger = arena_array(s->arena, (size_t)s->room_files, sizeof *bigger);
        if (m->n_files)
            memcpy(bigger, m->files, (size_t)m->n_files * sizeof *bigger);
        m->files = bigger;
    }
    m->files[m->n_files] = (struct manifest_file){ .name = arena_strdup(s->arena, name) };
    return &m->files[m->n_files++];
}

/* Into the temporary directory, durable; not yet listed. */
static int put_file(struct ckpt_save *s, const char *name, const void *data, size_t n)
{
    struct fs_out *f;

    TRY(fs_out_create(fs_join(s->arena, s->temp, name), &f));
    /* A failure is remembered in f, and commit returns it. */
    (void)fs_out_write(f, data, n);
    return fs_out_commit(f);
}

int ckpt_save_file(struct ckpt_save *s, const char *name, const void *data, size_t n)
{
    struct manifest_file *f;

    BUG_ON(!strcmp(name, MANIFEST_NAME) || strchr(name, '/'));
    TRY(put_file(s, name, data, n));
    f = list_file(s, name);
    f->bytes = n;
    f->hash = hash_bytes(data, n);
    return 0;
}

static const char *shard_name(struct ckpt_save *s, enum ckpt_group group, int i, int n)
{
    return group == CKPT_MODEL ? arena_printf(s->arena, "model-%05d-of-%05d.safetensors", i + 1, n)
                               : arena_printf(s->arena, "optim/optim-%05d-of-%05d.safetensors", i + 1, n);
}

/* Fills shards in order; returns their number. */
static int cut_shards(struct ckpt_save *s, enum ckpt_group group)
{
    uint64_t in_shard = 0;
    int n = 0;

    for (int64_t i = 0; i < s->n; i++) {
        struct save_tensor *t = &s->t[i];

        if (t->group != group)
            continue;
        if (n == 0 || (in_shard && t->bytes > s->shard_bytes - (in_shard < s->shard_bytes ? in_shard : s->shard_bytes))) {
            n++;
            in_shard = 0;
        }
        t->shard = n - 1;
        in_shard += t->bytes;
    }
    return n;
}

static void list_tensor(struct ckpt_save *s, const struct save_tensor *t, int i_file, const struct st_part *parts, int n)
{
    struct st_part *copy = arena_array(s->arena, (size_t)n + 1, sizeof *copy);

    if (n)
        memcpy(copy, parts, (size_t)n * sizeof *copy);
    s->m.tensors[s->m.n_tensors++] = (struct manifest_tensor){
        .name = t->name, .i_file = i_file, .type = dtype_name(t->dtype), .n_dims = t->n_dims,
        .shape = t->shape, .parts = copy, .n_parts = n,
    };
}

static int write_shard(struct ckpt_save *s, enum ckpt_group group, int shard, const char *name)
{
    struct st_writer *w = st_writer_new();
    struct manifest_file *f;
    int64_t i;
    int rc = 0, k = 0, n;

    st_writer_meta(w, "format", group == CKPT_MODEL ? "pt" : "moe.optim/1");
    for (i = 0; i < s->n; i++)
        if (s->t[i].group == group && s->t[i].shard == shard)
            TRY_OUT(rc, st_writer_add(w, s->t[i].name, s->t[i].dtype, s->t[i].n_dims, s->t[i].shape));
    TRY_OUT(rc, st_writer_begin(w, fs_join(s->arena, s->temp, name)));
    for (i = 0; i < s->n; i++)
        if (s->t[i].group == group && s->t[i].shard == shard)
            TRY_OUT(rc, st_writer_put(w, k++, 0, s->t[i].data, (size_t)s->t[i].bytes));
    TRY_OUT(rc, st_writer_end(w));
    f = list_file(s, name);
    f->is_tensors = 1;
    f->bytes = st_writer_bytes(w);
    f->hash = st_writer_head_hash(w);
    for (i = 0, k = 0; i < s->n; i++)
        if (s->t[i].group == group && s->t[i].shard == shard) {
            const struct st_part *parts = st_writer_parts(w, k++, &n);

            list_tensor(s, &s->t[i], s->m.n_files - 1, parts, n);
        }
out:
    st_writer_free(w);
    return rc;
}

static int write_index(struct ckpt_save *s, enum ckpt_group group, int n_shards, const char *name)
{
    struct json_out *j = json_new_pretty();
    struct manifest_file *f;
    uint64_t total = 0;
    const char *text;
    size_t n;

    for (int64_t i = 0; i < s->n; i++)
        total += s->t[i].group == group ? s->t[i].bytes : 0;
    json_obj(j, NULL);
    json_obj(j, "metadata");
    json_put_int(j, "total_size", (int64_t)total);
    json_obj_end(j);
    json_obj(j, "weight_map");
    for (int64_t i = 0; i < s->n; i++)
        if (s->t[i].group == group)
            json_put_str(j, s->t[i].name, fs_base(shard_name(s, group, s->t[i].shard, n_shards)));
    json_obj_end(j);
    json_obj_end(j);
    text = arena_printf(s->arena, "%s\n", json_text(j, NULL));
    json_free(j);
    n = strlen(text);
    TRY(put_file(s, name, text, n));
    f = list_file(s, name);
    f->bytes = n;
    f->hash = hash_bytes(text, n);
    return 0;
}

static int write_group(struct ckpt_save *s, enum ckpt_group group, const char *index)
{
    int n = cut_shards(s, group);

    TRY(write_index(s, group, n, index));
    for (int i = 0; i < n; i++)
        TRY(write_shard(s, group, i, shard_name(s, group, i, n)));
    return 0;
}

int ckpt_save_write(struct ckpt_save *s)
{
    BUG_ON(s->written);
    s->written = 1;
    s->m.tensors = arena_array(s->arena, (size_t)s->n + 1, sizeof *s->m.tensors);
    TRY(write_group(s, CKPT_MODEL, CKPT_INDEX_NAME));
    if (!s->has_optim)
        return 0;
    TRY(fs_mkdir(fs_join(s->arena, s->temp, "optim")));
    TRY(write_group(s, CKPT_OPTIM, CKPT_OPTIM_INDEX_NAME));
    return fs_sync_dir(fs_join(s->arena, s->temp, "optim"));
}

/* ---- commit */

/* The rename that makes it a checkpoint.  Where the file system cannot
 * exchange two names, a step that is saved again is removed first: then there
 * is an instant with only the other checkpoints. */
static int give_name(struct ckpt_save *s)
{
    int rc;

    if (!fs_exists(s->final))
        return fs_rename(s->temp, s->final);
    rc = fs_exchange(s->temp, s->final);
    if (rc == 0)
        return ckpt_remove(s->temp);
    if (rc != ERR_ABSENT)
        return rc;
    TRY(ckpt_remove(s->final));
    return fs_rename(s->temp, s->final);
}

/* Keeps this step and the newest `keep` - 1 before it. */
static int remove_old(struct ckpt_save *s, int keep)
{
    int64_t *steps;
    char name[32];
    int n, kept = 0;

    if (keep <= 0)
        return 0;
    TRY(ckpt_list_steps(s->arena, s->run_dir, &steps, &n));
    for (int i = n - 1; i >= 0; i--)
        if (steps[i] <= s->m.info.step && ++kept > keep)
            TRY(ckpt_remove(fs_join(s->arena, s->ckpt_dir, ckpt_step_name(name, steps[i]))));
    return 0;
}

static int commit(struct ckpt_save *s, int keep)
{
    char *text, step[32];
    size_t n;
    int rc;

    BUG_ON(!s->written);
    TRY(manifest_format(&s->m, &text, &n));
    rc = put_file(s, MANIFEST_NAME, text, n);
    pool_free(text);
    TRY(rc);
    TRY(fs_sync_dir(s->temp));
    TRY(give_name(s));
    TRY(fs_symlink_replace(arena_printf(s->arena, "ckpt/%s", ckpt_step_name(step, s->m.info.step)),
                           fs_join(s->arena, s->run_dir, "latest")));
    return remove_old(s, keep);
}

int ckpt_save_commit(struct ckpt_save *s, int keep)
{
    int rc = commit(s, keep);

    ckpt_save_abort(s);
    return rc;
}
