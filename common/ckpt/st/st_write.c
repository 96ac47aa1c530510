/* st_write.c -- writes safetensors: the header first, then bytes as they come.
 *
 * Every part of a tensor is filled front to back, so its hash is computed from
 * the caller's bytes while they are in cache; nothing is read back.  The header
 * we made goes through our own parser before a byte is written: what we write
 * is never something that we refuse to read. */
#include "ckpt/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/grow.h"
#include "base/json.h"
#include "base/out.h"
#include "base/pool.h"

#define CHUNK_BYTES ((size_t)1 << 20)   /* hashed and written while in cache */

struct out_tensor {
    const char *name;
    enum dtype dtype;
    int n_dims;
    int64_t *shape;
    uint64_t bytes;
    uint64_t begin;             /* in the data, from layout() */
    uint64_t *cuts;             /* [n_cuts] borders asked for */
    int64_t room_cuts;
    int n_cuts;
    struct st_part *parts;      /* [n_parts] */
    int n_parts;
    uint64_t *filled;           /* [n_parts] bytes that have come */
    struct hash_stream **hash;  /* [n_parts] of a part that is half filled */
    uint64_t done;              /* bytes that have come */
};

struct st_writer {
    struct arena *arena;
    struct out_tensor *t;       /* [n] in the order of the calls */
    int64_t room;
    int n;
    int *order;                 /* [n] numbers in the order of the bytes */
    struct st_meta *meta;
    int64_t room_meta;
    int n_meta;
    char *head;                 /* length word and text, from layout() */
    size_t head_bytes;
    uint64_t data_bytes;
    struct hash head_hash;
    _Bool laid_out, begun, ended;

    struct fs_out *file;        /* the file form, or NULL */
    _Bool in_order;             /* so far every byte came in file order */
    uint64_t at;                /* data bytes written in order */
    int fd;                     /* the stream form */
    char *name;
    int i_next;                 /* in order[] */
};

struct st_writer *st_writer_new(void)
{
    struct arena *a = arena_new();
    struct st_writer *w = arena_alloc(a, sizeof *w);

    w->arena = a;
    w->fd = -1;
    w->in_order = 1;
    return w;
}

void st_writer_free(struct st_writer *w)
{
    if (!w)
        return;
    fs_out_abort(w->file);
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->t[i].n_parts; k++)
            if (w->t[i].hash && w->t[i].hash[k])
                hash_end(w->t[i].hash[k]);
    pool_free(w->head);
    arena_free(w->arena);
}

int st_writer_meta(struct st_writer *w, const char *key, const char *value)
{
    BUG_ON(w->begun);
    w->meta = grow_arena(w->arena, w->meta, &w->room_meta, w->n_meta + 1, sizeof *w->meta);
    w->meta[w->n_meta].key = arena_strdup(w->arena, key);
    w->meta[w->n_meta++].value = arena_strdup(w->arena, value);
    w->laid_out = 0;
    return 0;
}

int st_writer_add(struct st_writer *w, const char *name, enum dtype dtype, int n_dims, const int64_t *shape)
{
    struct out_tensor *t;
    uint64_t bytes = dtype_size(dtype);

    BUG_ON(w->begun || n_dims < 0);
    for (int i = 0; i < n_dims; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes))
            return err_set(ERR_BUG, "tensor \"%s\": its shape is negative or overflows", name);
    w->t = grow_arena(w->arena, w->t, &w->room, w->n + 1, sizeof *w->t);
    t = &w->t[w->n];
    t->name = arena_strdup(w->arena, name);
    t->dtype = dtype;
    t->n_dims = n_dims;
    t->shape = arena_array(w->arena, (size_t)n_dims + 1, sizeof *t->shape);
    if (n_dims)
        memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
    t->bytes = bytes;
    w->laid_out = 0;
    return w->n++;
}

void st_writer_cut(struct st_writer *w, int i_tensor, uint64_t byte)
{
    struct out_tensor *t = &w->t[i_tensor];
    int i = t->n_cuts;

    BUG_ON(w->begun || byte > t->bytes);
    if (byte == 0 || byte == t->bytes)
        return;
    while (i > 0 && t->cuts[i - 1] > byte)
        i--;
    if (i > 0 && t->cuts[i - 1] == byte)
        return;
    t->cuts = grow_arena(w->arena, t->cuts, &t->room_cuts, t->n_cuts + 1, sizeof *t->cuts);
    memmove(t->cuts + i + 1, t->cuts + i, (size_t)(t->n_cuts - i) * sizeof *t->cuts);
    t->cuts[i] = byte;
    t->n_cuts++;
}

/* ---- layout */

/* Wider elements first, otherwise as declared: a stable counting sort. */
static void sort_order(struct st_writer *w)
{
    int k = 0;

    w->order = arena_array(w->arena, (size_t)w->n + 1, sizeof *w->order);
    for (size_t size = 8; size; size /= 2)
        for (int i = 0; i < w->n; i++)
            if (dtype_size(w->t[i].dtype) == size)
                w->order[k++] = i;
    BUG_ON(k != w->n);
}

static int layout(struct st_writer *w)
{
    struct json_out *j;
    struct st_header *check = NULL;
    const char *text;
    size_t n;
    int rc;

    if (w->laid_out)
        return 0;
    sort_order(w);
    j = json_new();
    json_obj(j, NULL);
    if (w->n_meta) {
        json_obj(j, "__metadata__");
        for (int i = 0; i < w->n_meta; i++)
            json_put_str(j, w->meta[i].key, w->meta[i].value);
        json_obj_end(j);
    }
    w->data_bytes = 0;
    for (int k = 0; k < w->n; k++) {
        struct out_tensor *t = &w->t[w->order[k]];

        t->begin = w->data_bytes;
        w->data_bytes += t->bytes;
        json_obj(j, t->name);
        json_put_str(j, "dtype", dtype_name(t->dtype));
        json_arr(j, "shape");
        for (int i = 0; i < t->n_dims; i++)
            json_put_int(j, NULL, t->shape[i]);
        json_arr_end(j);
        json_arr(j, "data_offsets");
        json_put_int(j, NULL, (int64_t)t->begin);
        json_put_int(j, NULL, (int64_t)w->data_bytes);
        json_arr_end(j);
        json_obj_end(j);
    }
    json_obj_end(j);
    text = json_text(j, &n);
    pool_free(w->head);
    w->head_bytes = (8 + n + 7) / 8 * 8;        /* data starts 8-aligned */
    w->head = pool_alloc(w->head_bytes);
    if (!w->head) {
        json_free(j);
        return err_set(ERR_IO, "no memory for a header of %zu bytes", n);
    }
    memcpy(w->head + 8, text, n);
    memset(w->head + 8 + n, ' ', w->head_bytes - 8 - n);
    for (int i = 0; i < 8; i++)
        w->head[i] = (char)((uint64_t)(w->head_bytes - 8) >> 8 * i & 0xff);
    json_free(j);
    rc = st_parse("a header of our own", w->head + 8, w->head_bytes - 8, (int64_t)w->data_bytes, &check);
    st_header_free(check);
    if (rc < 0)
        return rc == ERR_DATA ? err_set(ERR_BUG, "%s", err_msg()) : rc;
    w->head_hash = hash_bytes(w->head, w->head_bytes);
    w->laid_out = 1;
    return 0;
}

static void make_parts(struct st_writer *w, struct out_tensor *t)
{
    uint64_t most = t->bytes / ST_PART_BYTES + 1 + (uint64_t)t->n_cuts, at = 0;
    int i = 0;

    t->parts = arena_array(w->arena, (size_t)most, sizeof *t->parts);
    while (at < t->bytes) {
        uint64_t end = (at / ST_PART_BYTES + 1) * ST_PART_BYTES;

        while (i < t->n_cuts && t->cuts[i] <= at)
            i++;
        if (i < t->n_cuts && t->cuts[i] < end)
            end = t->cuts[i];
        if (end > t->bytes)
            end = t->bytes;
        t->parts[t->n_parts++] = (struct st_part){ .begin = at, .end = end };
        at = end;
    }
    t->filled = arena_array(w->arena, (size_t)most, sizeof *t->filled);
    t->hash = arena_array(w->arena, (size_t)most, sizeof *t->hash);
}

uint64_t st_writer_bytes(struct st_writer *w)
{
    BUG_ON(layout(w) < 0);
    return w->head_bytes + w->data_bytes;
}

/* ---- output */

static int fd_write(struct st_writer *w, const char *p, size_t n)
{
    /* Standard output has one buffer and one rule for a reader that left. */
    if (w->fd == STDOUT_FILENO)
        return out_write(p, n);
    while (n) {
        ssize_t k = write(w->fd, p, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_sys(ERR_IO, "%s", w->name);
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* The next tensor in file order that still lacks bytes. */
static void skip_full(struct st_writer *w)
{
    while (w->i_next < w->n && w->t[w->order[w->i_next]].done == w->t[w->order[w->i_next]].bytes)
        w->i_next++;
}

static int begin_file(struct st_writer *w, int rc)
{
    if (rc < 0)
        return rc;
    w->begun = 1;
    for (int i = 0; i < w->n; i++)
        make_parts(w, &w->t[i]);
    rc = fs_out_reserve(w->file, w->head_bytes + w->data_bytes);
    if (rc == 0)
        rc = fs_out_write(w->file, w->head, w->head_bytes);
    if (rc < 0) {
        fs_out_abort(w->file);
        w->file = NULL;
    }
    return rc;
}

int st_writer_begin(struct st_writer *w, const char *path)
{
    TRY(layout(w));
    return begin_file(w, fs_out_create(path, &w->file));
}

int st_writer_begin_replace(struct st_writer *w, const char *path)
{
    TRY(layout(w));
    return begin_file(w, fs_out_open(path, &w->file));
}

int st_writer_begin_stream(struct st_writer *w, int fd, const char *name)
{
    TRY(layout(w));
    w->begun = 1;
    w->fd = fd;
    w->name = arena_strdup(w->arena, name);
    skip_full(w);
    return fd_write(w, w->head, w->head_bytes);
}

int st_writer_next(const struct st_writer *w)
{
    return w->i_next < w->n ? w->order[w->i_next] : -1;
}

/* The part that byte `at` of the tensor lies in. */
static int part_at(const struct out_tensor *t, uint64_t at)
{
    int lo = 0, hi = t->n_parts - 1;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;

        if (t->parts[mid].end <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* A piece inside one part: hashed, and written. */
static int put_piece(struct st_writer *w, struct out_tensor *t, int k, const char *data, size_t n)
{
    struct st_part *p = &t->parts[k];
    uint64_t at = t->begin + p->begin + t->filled[k];

    if (t->filled[k] == 0 && n == p->end - p->begin) {
        p->hash = hash_bytes(data, n);
    } else {
        if (!t->hash[k])
            t->hash[k] = hash_begin();
        hash_add(t->hash[k], data, n);
        if (t->filled[k] + n == p->end - p->begin) {
            p->hash = hash_end(t->hash[k]);
            t->hash[k] = NULL;
        }
    }
    t->filled[k] += n;
    t->done += n;
    /* In order goes through the buffer, so small tensors share a write. */
    if (w->in_order && at == w->at) {
        w->at += n;
        return fs_out_write(w->file, data, n);
    }
    w->in_order = 0;
    return fs_out_at(w->file, w->head_bytes + at, data, n);
}

int st_writer_put(struct st_writer *w, int i_tensor, uint64_t first, const void *data, size_t n)
{
    struct out_tensor *t = &w->t[i_tensor];
    const char *p = data;

    BUG_ON(!w->begun || w->ended || first > t->bytes || n > t->bytes - first);
    if (w->fd >= 0) {
        BUG_ON(n && (i_tensor != st_writer_next(w) || first != t->done));
        TRY(fd_write(w, p, n));
        t->done += n;
        skip_full(w);
        return 0;
    }
    while (n) {
        int k = part_at(t, first);
        size_t take = n;

        BUG_ON(first != t->parts[k].begin + t->filled[k]);
        if (take > t->parts[k].end - first)
            take = (size_t)(t->parts[k].end - first);
        if (take > CHUNK_BYTES)
            take = CHUNK_BYTES;
        TRY(put_piece(w, t, k, p, take));
        p += take;
        first += take;
        n -= take;
    }
    return 0;
}

int st_writer_end(struct st_writer *w)
{
    struct fs_out *f = w->file;

    BUG_ON(!w->begun || w->ended);
    w->ended = 1;
    for (int i = 0; i < w->n; i++)
        if (w->t[i].done != w->t[i].bytes)
            return err_set(ERR_BUG, "tensor \"%s\": %" PRIu64 " of %" PRIu64 " bytes were written",
                           w->t[i].name, w->t[i].done, w->t[i].bytes);
    w->file = NULL;
    return f ? fs_out_commit(f) : 0;
}

struct hash st_writer_head_hash(const struct st_writer *w) { return w->head_hash; }

const struct st_part *st_writer_parts(const struct st_writer *w, int i_tensor, int *n)
{
    *n = w->t[i_tensor].n_parts;
    return w->t[i_tensor].parts;
}
