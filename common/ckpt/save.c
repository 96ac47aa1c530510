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

#include "base/fs.h"
#include "base/grow.h"
#include "base/json.h"
#include "base/pool.h"
#include "ckpt/dir.h"
#include "ckpt/run.h"
#include "ckpt/save_impl.h"
#include "comm/comm.h"

/* ---- ranks */

int save_agree(struct ckpt_save *s, int rc)
{
    return s->comm ? comm_agree(s->comm, rc) : rc;
}

void save_must(struct ckpt_save *s, int rc)
{
    if (rc < 0)
        comm_abort(s->comm, rc, "%s: %s", s->temp, err_msg());
}

void save_collect(struct ckpt_save *s, const char *p, int64_t n, const char **all, const int64_t **ends)
{
    int64_t *e = arena_array(s->arena, (size_t)s->size, sizeof *e);
    char *joined = NULL;

    *ends = e;
    if (!s->comm) {
        e[0] = n;
        *all = p;
        return;
    }
    save_must(s, comm_gather_bytes(s->arena, s->comm, p, n, &joined, e));
    *all = joined;
}

/* A failure outside the collective calls.  Alone it is returned at once; one of
 * several ranks has to wait for the others. */
static int keep_error(struct ckpt_save *s, int rc)
{
    if (rc < 0 && s->kept.code == 0) {
        err_take(&s->kept);
        s->kept.code = rc;
        if (s->size == 1)
            err_put(&s->kept);
    }
    return s->size > 1 ? 0 : rc;
}

/* What is in the way: leftovers, and this step without its MANIFEST. */
static int sweep(struct ckpt_save *s)
{
    TRY(ckpt_sweep(s->run_dir));
    if (fs_exists(s->final) && !fs_exists(fs_join(s->arena, s->final, MANIFEST_NAME)))
        TRY(fs_remove_tree(s->final));
    return 0;
}

/* Measured: half a megabyte, and 1.2 KB a tensor with names of 50 bytes (tables,
 * and the texts of header, index and manifest); 0.5 KB where rank is not 0. */
size_t ckpt_save_memory(int64_t n_tensors)
{
    return ((size_t)1 << 20) + (size_t)n_tensors * 2048;
}

/* Rows are remembered, become parts, and those lines of the MANIFEST; a rank
 * has a file or two, with a line each; rows in transit need their buffer. */
size_t ckpt_save_memory_ranks(int64_t n_tensors, int64_t n_rows, int n_ranks, uint64_t largest_split)
{
    return ckpt_save_memory(n_tensors) + (size_t)n_rows * 512 + (size_t)n_ranks * 2048 +
           (size_t)(largest_split < ST_PART_BYTES ? largest_split : ST_PART_BYTES);
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

int ckpt_save_begin_ranks(struct comm *c, const char *run_dir, const struct manifest_info *info, uint64_t shard_bytes,
                          struct ckpt_save **out)
{
    struct arena *a = arena_new();
    struct ckpt_save *s = arena_alloc(a, sizeof *s);
    char step[32];
    int rc;

    s->arena = a;
    s->comm = c;
    s->rank = c ? comm_rank(c) : 0;
    s->size = c ? comm_size(c) : 1;
    s->run_dir = arena_strdup(a, run_dir);
    s->ckpt_dir = fs_join(a, run_dir, "ckpt");
    s->final = fs_join(a, s->ckpt_dir, ckpt_step_name(step, info->step));
    s->temp = arena_printf(a, "%s.tmp", s->final);
    s->shard_bytes = shard_bytes ? shard_bytes : CKPT_SHARD_BYTES;
    s->declared = hash_begin();
    hash_add(s->declared, step, strlen(step));
    hash_add(s->declared, &s->shard_bytes, sizeof s->shard_bytes);
    s->m.info = *info;
    rc = save_agree(s, s->rank == 0 ? begin(s) : 0);
    if (rc < 0) {
        ckpt_save_abort(s);
        return rc;
    }
    *out = s;
    return 0;
}

int ckpt_save_begin(const char *run_dir, const struct manifest_info *info, uint64_t shard_bytes,
                    struct ckpt_save **out)
{
    return ckpt_save_begin_ranks(NULL, run_dir, info, shard_bytes, out);
}

void ckpt_save_abort(struct ckpt_save *s)
{
    struct err_state why;

    if (!s)
        return;
    err_take(&why);
    if (s->phase != SAVE_DECLARED)
        ckpt_writer_wait(s->writer);
    for (int i = 0; s->writers && i < s->plan.n_files; i++)
        st_writer_free(s->writers[i]);
    if (s->rank == 0 && s->temp)
        fs_remove_tree(s->temp);
    err_put(&why);
    if (s->declared)
        hash_end(s->declared);
    pool_free(s->stage);
    pool_free(s->t);
    arena_free(s->arena);
}

/* ---- what there is to save */

/* Against our own mistakes: rows that leave a gap, or lie where nobody is. */
static int check_rows(const struct ckpt_save *s, const struct save_tensor *t, const struct ckpt_rows *rows, int n_rows)
{
    int64_t height = t->n_dims ? t->shape[0] : 1, at = 0;

    for (int i = 0; i < n_rows; i++) {
        const struct ckpt_rows *r = &rows[i];
        int64_t last;

        if (r->n_rows < 0 || r->first_row != at)
            break;
        at += r->n_rows;
        last = r->holder + (int64_t)(r->n_holders - 1) * r->stride;
        if (r->n_holders < 1 || r->holder < 0 || (r->n_holders > 1 && r->stride < 1) || last >= s->size)
            return err_set(ERR_BUG, "tensor \"%s\": rows %" PRId64 " and on lie on ranks that do not exist", t->name, r->first_row);
        if (!r->data && t->bytes && r->n_rows && save_plan_holds(r, s->rank))
            return err_set(ERR_BUG, "tensor \"%s\": rows %" PRId64 " and on are not there", t->name, r->first_row);
    }
    return at == height ? 0 : err_set(ERR_BUG, "tensor \"%s\": what the ranks hold does not make up its %" PRId64 " rows", t->name, height);
}

static void declare(struct ckpt_save *s, const struct save_tensor *t)
{
    int64_t head[4] = { t->group, t->dtype, t->n_dims, t->n_rows };

    hash_add(s->declared, head, sizeof head);
    hash_add(s->declared, t->name, strlen(t->name) + 1);
    if (t->n_dims)
        hash_add(s->declared, t->shape, (size_t)t->n_dims * sizeof *t->shape);
    for (int i = 0; i < t->n_rows; i++) {
        const struct ckpt_rows *r = &t->rows[i];
        int64_t v[5] = { r->first_row, r->n_rows, r->holder, r->stride, r->n_holders };

        hash_add(s->declared, v, sizeof v);
    }
}

static int add_tensor(struct ckpt_save *s, enum ckpt_group group, const char *name, enum dtype dtype,
                      int n_dims, const int64_t *shape, const struct ckpt_rows *rows, int n_rows)
{
    struct save_tensor *t;
    uint64_t bytes = dtype_size(dtype);

    BUG_ON(s->settled || n_dims < 0 || n_dims > ST_MAX_DIMS || n_rows < 1);
    for (int i = 0; i < n_dims; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes))
            return err_set(ERR_BUG, "tensor \"%s\": its shape is negative or overflows", name);
    if (grow_pooled(&s->t, &s->room, s->n + 1, sizeof *s->t, "tensors") < 0)
        return err_add("%s", s->temp);
    t = &s->t[s->n];
    *t = (struct save_tensor){ .group = group, .name = arena_strdup(s->arena, name), .dtype = dtype,
                               .n_dims = n_dims, .bytes = bytes };
    t->shape = arena_array(s->arena, (size_t)n_dims + 1, sizeof *t->shape);
    if (n_dims)
        memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
    t->row_bytes = n_dims && shape[0] ? bytes / (uint64_t)shape[0] : bytes;
    TRY(check_rows(s, t, rows, n_rows));
    /* A rank without rows of this tensor has no part in it. */
    t->rows = arena_array(s->arena, (size_t)n_rows, sizeof *t->rows);
    for (int i = 0; i < n_rows; i++)
        if (rows[i].n_rows)
            t->rows[t->n_rows++] = rows[i];
    if (t->n_rows == 0)
        t->rows[t->n_rows++] = rows[0];
    declare(s, t);
    s->n++;
    s->has_optim |= group == CKPT_OPTIM;
    return 0;
}

int ckpt_save_rows(struct ckpt_save *s, enum ckpt_group group, const char *name, enum dtype dtype,
                   int n_dims, const int64_t *shape, const struct ckpt_rows *rows, int n_rows)
{
    return keep_error(s, add_tensor(s, group, name, dtype, n_dims, shape, rows, n_rows));
}

int ckpt_save_tensor(struct ckpt_save *s, enum ckpt_group group, const char *name, enum dtype dtype,
                     int n_dims, const int64_t *shape, const void *data)
{
    struct ckpt_rows all = { .n_rows = n_dims ? shape[0] : 1, .stride = 1, .n_holders = s->size, .data = data };

    return ckpt_save_rows(s, group, name, dtype, n_dims, shape, &all, 1);
}

/* ---- files */

static struct manifest_file *list_file(struct ckpt_save *s, const char *name)
{
    struct manifest *m = &s->m;

    m->files = grow_arena(s->arena, m->files, &s->room_files, m->n_files + 1, sizeof *m->files);
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

static int put_listed(struct ckpt_save *s, const char *name, const void *data, size_t n)
{
    struct manifest_file *f;

    TRY(put_file(s, name, data, n));
    f = list_file(s, name);
    f->bytes = n;
    f->hash = hash_bytes(data, n);
    return 0;
}

int save_put_later(struct ckpt_save *s)
{
    for (const struct save_later *l = s->later; l; l = l->next)
        TRY(put_listed(s, l->name, l->data, l->n));
    return 0;
}

static int add_file(struct ckpt_save *s, const char *name, const void *data, size_t n)
{
    struct save_later *l;
    char *copy;

    BUG_ON(!strcmp(name, MANIFEST_NAME) || strchr(name, '/'));
    if (s->rank != 0)
        return 0;
    if (!s->writer)
        return put_listed(s, name, data, n);
    copy = arena_alloc(s->arena, n + 1);
    if (n)
        memcpy(copy, data, n);
    l = arena_alloc(s->arena, sizeof *l);
    *l = (struct save_later){ arena_strdup(s->arena, name), copy, n, NULL };
    *s->later_end = l;
    s->later_end = &l->next;
    return 0;
}

int ckpt_save_file(struct ckpt_save *s, const char *name, const void *data, size_t n)
{
    return keep_error(s, add_file(s, name, data, n));
}

/* ---- before anything is written */

static int same_everywhere(struct ckpt_save *s)
{
    struct hash mine = hash_end(s->declared), *all;

    s->declared = NULL;
    if (!s->comm)
        return 0;
    all = arena_array(s->arena, (size_t)s->size, sizeof *all);
    save_must(s, comm_all_gather(s->comm, &mine, sizeof mine, all));
    for (int i = 1; i < s->size; i++)
        if (!hash_eq(&all[i], &all[0]))
            return err_set(ERR_BUG, "rank %d saves other tensors than rank 0", i);
    return 0;
}

/* Where rows of other ranks arrive: the largest piece there can be. */
static int make_stage(struct ckpt_save *s)
{
    uint64_t most = 0;

    for (int64_t i = 0; i < s->n && !s->writer; i++) {
        const struct save_tensor *t = &s->t[i];
        uint64_t piece = t->bytes < ST_PART_BYTES ? t->bytes : ST_PART_BYTES;

        for (int k = 0; k < t->n_rows && t->writer == s->rank && piece > most; k++)
            if (!save_plan_holds(&t->rows[k], s->rank))
                most = piece;
    }
    if (most && !(s->stage = pool_alloc((size_t)most)))
        return err_set(ERR_IO, "%s: no memory for %" PRIu64 " bytes of rows from other ranks", s->temp, most);
    return 0;
}

static int prepare(struct ckpt_save *s)
{
    if (s->rank == 0 && s->has_optim)
        TRY(fs_mkdir(fs_join(s->arena, s->temp, "optim")));
    return make_stage(s);
}

int save_settle(struct ckpt_save *s)
{
    int rc;

    if (s->settled)
        return 0;
    s->settled = 1;
    /* First, since a rank that failed has another list. */
    TRY(save_agree(s, s->kept.code ? err_put(&s->kept) : 0));
    rc = same_everywhere(s);
    if (rc == 0) {
        save_plan(s->arena, s->t, s->n, s->size, s->shard_bytes, &s->plan);
        s->writers = arena_array(s->arena, (size_t)s->plan.n_files + 1, sizeof *s->writers);
        rc = prepare(s);
    }
    return save_agree(s, rc);
}

/* ---- what was written */

static int write_index(struct ckpt_save *s, enum ckpt_group group, const char *name)
{
    struct json_out *j = json_new_pretty();
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
            json_put_str(j, s->t[i].name, fs_base(s->plan.files[s->t[i].i_file].name));
    json_obj_end(j);
    json_obj_end(j);
    text = arena_printf(s->arena, "%s\n", json_text(j, NULL));
    json_free(j);
    n = strlen(text);
    return put_listed(s, name, text, n);
}

/* Another rank's file system may be another one, or may have lost the end of
 * the file: the MANIFEST must not vouch for what rank 0 cannot see. */
static int look_at(struct ckpt_save *s, const struct save_file *f, uint64_t bytes)
{
    const char *path = fs_join(s->arena, s->temp, f->name);
    uint64_t seen;
    int rc = fs_file_size(path, &seen);

    if (rc == 0 && seen != bytes)
        rc = err_set(ERR_IO, "%s: %" PRIu64 " bytes here, %" PRIu64 " were written", path, seen, bytes);
    if (rc < 0 && f->writer != 0) {
        err_add("written by rank %d", f->writer);
        rc = ERR_IO;
    }
    return rc;
}

/* Lists one file and its tensors from the record of its writer. */
static int list_shard(struct ckpt_save *s, const struct save_file *f, const char **at, const char *end)
{
    struct manifest_file *m = list_file(s, f->name);

    m->is_tensors = 1;
    TRY(save_write_take_file(at, end, &m->bytes, &m->hash));
    TRY(look_at(s, f, m->bytes));
    for (int64_t k = 0; k < f->n; k++) {
        const struct save_tensor *t = &s->t[s->plan.order[f->first + k]];
        struct st_part *parts;
        int n;

        TRY(save_write_take_parts(at, end, s->arena, &parts, &n));
        s->m.tensors[s->m.n_tensors++] = (struct manifest_tensor){
            .name = t->name, .i_file = s->m.n_files - 1, .type = dtype_name(t->dtype), .n_dims = t->n_dims,
            .shape = t->shape, .parts = parts, .n_parts = n,
        };
    }
    return 0;
}

static int list_group(struct ckpt_save *s, enum ckpt_group group, const char *index, const char **at, const char *const *end)
{
    TRY(write_index(s, group, index));
    for (int i = 0; i < s->plan.n_files; i++) {
        const struct save_file *f = &s->plan.files[i];

        if (f->group == group)
            TRY(list_shard(s, f, &at[f->writer], end[f->writer]));
    }
    return 0;
}

int save_list_all(struct ckpt_save *s)
{
    const char **at = arena_array(s->arena, (size_t)s->size, sizeof *at);
    const char **end = arena_array(s->arena, (size_t)s->size, sizeof *end);

    for (int i = 0; i < s->size; i++) {
        at[i] = s->all + (i ? s->ends[i - 1] : 0);
        end[i] = s->all + s->ends[i];
    }
    s->m.tensors = arena_array(s->arena, (size_t)s->n + 1, sizeof *s->m.tensors);
    TRY(list_group(s, CKPT_MODEL, CKPT_INDEX_NAME, at, end));
    if (!s->has_optim)
        return 0;
    TRY(list_group(s, CKPT_OPTIM, CKPT_OPTIM_INDEX_NAME, at, end));
    return fs_sync_dir(fs_join(s->arena, s->temp, "optim"));
}

int ckpt_save_write(struct ckpt_save *s)
{
    BUG_ON(s->written || s->writer);
    s->written = 1;
    TRY(save_settle(s));
    TRY(save_agree(s, save_write_files(s)));
    save_collect(s, s->record, s->n_record, &s->all, &s->ends);
    return save_agree(s, s->rank == 0 ? save_list_all(s) : 0);
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

/* Keeps this step and the newest before it: `keep` of those that a run can go on
 * from, with the major ones among them, and `keep_light` light ones.  What is
 * kept for good is not removed, but counts. */
static int remove_old(struct ckpt_save *s)
{
    struct ckpt_step *steps;
    char name[32];
    int n, kept[2] = { 0, 0 }, limit[2] = { s->keep, s->keep_light };

    if (s->keep <= 0 && s->keep_light <= 0)
        return 0;
    TRY(ckpt_list_kinds(s->arena, s->run_dir, &steps, &n));
    for (int i = n - 1; i >= 0; i--) {
        int light = steps[i].kind == MANIFEST_LIGHT;

        if (steps[i].step <= s->m.info.step && ++kept[light] > limit[light] && limit[light] > 0 && steps[i].kind != MANIFEST_MAJOR)
            TRY(ckpt_remove(fs_join(s->arena, s->ckpt_dir, ckpt_step_name(name, steps[i].step))));
    }
    return 0;
}

void ckpt_save_keep_light(struct ckpt_save *s, int keep)
{
    s->keep_light = keep;
}

int save_commit_here(struct ckpt_save *s)
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
    if (s->m.info.kind != MANIFEST_LIGHT)
        TRY(fs_symlink_replace(arena_printf(s->arena, "ckpt/%s", ckpt_step_name(step, s->m.info.step)),
                               fs_join(s->arena, s->run_dir, "latest")));
    return remove_old(s);
}

int ckpt_save_commit(struct ckpt_save *s, int keep)
{
    int rc;

    s->keep = keep;
    rc = save_agree(s, s->rank == 0 ? save_commit_here(s) : 0);
    ckpt_save_abort(s);
    return rc;
}
