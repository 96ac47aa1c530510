/* save_write.c -- tensors into the files of this rank, and rows to their writer.
 *
 * Rows travel in rounds.  In each, every writer that still lacks rows takes the
 * next 64 MiB of one tensor, so that it needs one buffer of that size however
 * many such tensors it writes, and different writers fill up side by side.  All
 * ranks take part in all rounds, also one whose own disk has failed: it receives
 * and throws away, and says so when errors are agreed. */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/pool.h"
#include "ckpt/safetensors.h"
#include "ckpt/save_impl.h"
#include "comm/comm.h"

struct file_record { uint64_t bytes; struct hash head; };

/* ---- files */

static int open_file(struct ckpt_save *s, int i_file, struct st_writer **out)
{
    const struct save_file *f = &s->plan.files[i_file];
    struct st_writer *w = s->writers[i_file];

    *out = w;
    if (w)
        return 0;
    *out = s->writers[i_file] = w = st_writer_new();
    st_writer_meta(w, "format", f->group == CKPT_MODEL ? "pt" : "moe.optim/1");
    for (int64_t k = 0; k < f->n; k++) {
        const struct save_tensor *t = &s->t[s->plan.order[f->first + k]];
        int number;

        TRY(number = st_writer_add(w, t->name, t->dtype, t->n_dims, t->shape));
        for (int i = 1; i < t->n_rows; i++)
            st_writer_cut(w, number, (uint64_t)t->rows[i].first_row * t->row_bytes);
    }
    return st_writer_begin(w, fs_join(s->arena, s->temp, f->name));
}

static void add_record(char *to, int64_t *n, const void *p, size_t bytes)
{
    if (bytes)
        memcpy(to + *n, p, bytes);
    *n += (int64_t)bytes;
}

/* Tensors that lie here whole, or all of them where there is a copy; then the end
 * of the file. */
static int finish_file(struct ckpt_save *s, int i_file, char *record, int64_t *n)
{
    const struct save_file *f = &s->plan.files[i_file];
    struct file_record r;
    struct st_writer *w;

    TRY(open_file(s, i_file, &w));
    for (int64_t k = 0; k < f->n; k++) {
        const struct save_tensor *t = &s->t[s->plan.order[f->first + k]];

        if (s->copy)
            TRY(st_writer_put(w, (int)k, 0, s->copy + t->stage_at, (size_t)t->bytes));
        else if (t->n_rows == 1)
            TRY(st_writer_put(w, (int)k, 0, t->rows[0].data, (size_t)t->bytes));
    }
    TRY(st_writer_end(w));
    memset(&r, 0, sizeof r);
    r.bytes = st_writer_bytes(w);
    r.head = st_writer_head_hash(w);
    add_record(record, n, &r, sizeof r);
    for (int64_t k = 0; k < f->n; k++) {
        int n_parts;
        const struct st_part *parts = st_writer_parts(w, (int)k, &n_parts);
        int64_t count = n_parts;

        add_record(record, n, &count, sizeof count);
        add_record(record, n, parts, (size_t)n_parts * sizeof *parts);
    }
    st_writer_free(w);
    s->writers[i_file] = NULL;
    return 0;
}

/* Room for the record of this rank: a part ends at a border or after 64 MiB. */
static size_t record_room(const struct ckpt_save *s)
{
    size_t room = 0;

    for (int i = 0; i < s->plan.n_files; i++)
        room += s->plan.files[i].writer == s->rank ? sizeof(struct file_record) : 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->t[i].writer == s->rank)
            room += sizeof(int64_t) + (size_t)(s->t[i].bytes / ST_PART_BYTES + 1 + (uint64_t)s->t[i].n_rows) * sizeof(struct st_part);
    return room;
}

static int take(const char **at, const char *end, void *to, size_t n)
{
    if ((size_t)(end - *at) < n)
        return err_set(ERR_BUG, "a rank sent too short a record of what it wrote");
    if (n)
        memcpy(to, *at, n);
    *at += n;
    return 0;
}

int save_write_take_file(const char **at, const char *end, uint64_t *bytes, struct hash *head)
{
    struct file_record r;

    TRY(take(at, end, &r, sizeof r));
    *bytes = r.bytes;
    *head = r.head;
    return 0;
}

int save_write_take_parts(const char **at, const char *end, struct arena *a, struct st_part **parts, int *n)
{
    int64_t count = 0;

    TRY(take(at, end, &count, sizeof count));
    if (count < 0 || count > (end - *at) / (int64_t)sizeof **parts)
        return err_set(ERR_BUG, "a rank sent too short a record of what it wrote");
    *n = (int)count;
    *parts = arena_array(a, (size_t)count + 1, sizeof **parts);
    return take(at, end, *parts, (size_t)count * sizeof **parts);
}

/* ---- rows */

/* A tensor on its way to its writer, and what of it travels this time. */
struct lane { const struct save_tensor *t; uint64_t begin, end; _Bool moves; };

struct span { uint64_t begin, end; };   /* bytes of the tensor; empty when begin >= end */

static struct span overlap(const struct lane *l, const struct ckpt_rows *r)
{
    uint64_t begin = (uint64_t)r->first_row * l->t->row_bytes, end = begin + (uint64_t)r->n_rows * l->t->row_bytes;

    return (struct span){ begin > l->begin ? begin : l->begin, end < l->end ? end : l->end };
}

/* Borrowed from the caller of the save; sends only read it. */
static char *rows_at(const struct save_tensor *t, const struct ckpt_rows *r, uint64_t byte)
{
    return (char *)(uintptr_t)r->data + (byte - (uint64_t)r->first_row * t->row_bytes);
}

/* Where bytes of a tensor arrive: in its copy, or in what one round needs. */
static char *arrival(const struct ckpt_save *s, const struct lane *l, uint64_t byte)
{
    return s->copy ? s->copy + l->t->stage_at + byte : s->stage + (byte - l->begin);
}

static void add_parts(const struct ckpt_save *s, const struct lane *l, struct comm_part *send, int *n_send,
                      struct comm_part *recv, int *n_recv)
{
    for (int i = 0; i < l->t->n_rows; i++) {
        const struct ckpt_rows *r = &l->t->rows[i];
        int sender = save_plan_sender(r, l->t->writer);
        struct span o = overlap(l, r);

        if (o.begin >= o.end || sender == l->t->writer)
            continue;
        if (sender == s->rank)
            send[(*n_send)++] = (struct comm_part){ .rank = l->t->writer, .bytes = (int64_t)(o.end - o.begin),
                                                    .p = rows_at(l->t, r, o.begin) };
        if (l->t->writer == s->rank)
            recv[(*n_recv)++] = (struct comm_part){ .rank = sender, .bytes = (int64_t)(o.end - o.begin),
                                                    .p = arrival(s, l, o.begin) };
    }
}

/* Our own rows of a tensor whose other rows have arrived. */
static void copy_lane(struct ckpt_save *s, const struct lane *l)
{
    for (int i = 0; i < l->t->n_rows; i++) {
        const struct ckpt_rows *r = &l->t->rows[i];
        struct span o = overlap(l, r);

        if (o.begin < o.end && save_plan_sender(r, s->rank) == s->rank)
            memcpy(arrival(s, l, o.begin), rows_at(l->t, r, o.begin), (size_t)(o.end - o.begin));
    }
}

static int put_lane(struct ckpt_save *s, const struct lane *l)
{
    struct st_writer *w;

    TRY(open_file(s, l->t->i_file, &w));
    for (int i = 0; i < l->t->n_rows; i++) {
        const struct ckpt_rows *r = &l->t->rows[i];
        struct span o = overlap(l, r);

        if (o.begin >= o.end)
            continue;
        TRY(st_writer_put(w, l->t->i_in_file, o.begin,
                          save_plan_sender(r, s->rank) == s->rank ? rows_at(l->t, r, o.begin) : arrival(s, l, o.begin),
                          (size_t)(o.end - o.begin)));
    }
    return 0;
}

/* The next piece of a tensor per writer; false when nothing is left. */
static _Bool next_round(struct lane *lanes, int n)
{
    _Bool any = 0;

    for (int i = 0; i < n; i++) {
        struct lane *l = &lanes[i];

        l->begin = l->end;
        l->moves = l->begin < l->t->bytes;
        for (int k = 0; k < i && l->moves; k++)
            l->moves = !(lanes[k].moves && lanes[k].t->writer == l->t->writer);
        if (l->moves)
            l->end = l->t->bytes - l->begin < ST_PART_BYTES ? l->t->bytes : l->begin + ST_PART_BYTES;
        any |= l->moves;
    }
    return any;
}

static int send_rows(struct ckpt_save *s)
{
    struct lane *lanes;
    struct comm_part *send, *recv;
    int n = 0, rc = 0;
    size_t n_rows = 0;

    for (int64_t i = 0; i < s->n; i++) {
        n += s->t[i].n_rows > 1;
        n_rows += s->t[i].n_rows > 1 ? (size_t)s->t[i].n_rows : 0;
    }
    lanes = arena_array(s->arena, (size_t)n + 1, sizeof *lanes);
    send = arena_array(s->arena, n_rows + 1, sizeof *send);
    recv = arena_array(s->arena, n_rows + 1, sizeof *recv);
    n = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->t[i].n_rows > 1)
            lanes[n++].t = &s->t[i];
    while (next_round(lanes, n)) {
        int n_send = 0, n_recv = 0;

        for (int i = 0; i < n; i++)
            if (lanes[i].moves)
                add_parts(s, &lanes[i], send, &n_send, recv, &n_recv);
        if (s->comm)
            save_must(s, comm_all_to_all(s->comm, send, n_send, recv, n_recv));
        for (int i = 0; i < n && rc == 0; i++)
            if (lanes[i].moves && lanes[i].t->writer == s->rank) {
                if (s->copy)
                    copy_lane(s, &lanes[i]);
                else
                    rc = put_lane(s, &lanes[i]);
            }
    }
    return rc;
}

int save_write_local(struct ckpt_save *s)
{
    int rc = 0;

    s->n_record = 0;
    s->record = arena_alloc(s->arena, record_room(s) + 1);
    for (int i = 0; i < s->plan.n_files && rc == 0; i++)
        if (s->plan.files[i].writer == s->rank)
            rc = finish_file(s, i, s->record, &s->n_record);
    return rc;
}

int save_write_files(struct ckpt_save *s)
{
    int rc = send_rows(s);

    pool_free(s->stage);
    s->stage = NULL;
    return rc == 0 ? save_write_local(s) : rc;
}

void save_write_rows(struct ckpt_save *s)
{
    send_rows(s);
}

void save_write_copy(struct ckpt_save *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        const struct save_tensor *t = &s->t[i];

        if (t->writer == s->rank && t->n_rows == 1 && t->bytes)
            memcpy(s->copy + t->stage_at, t->rows[0].data, (size_t)t->bytes);
    }
}

/* ---- replicas */

/* The hash of rows that lie elsewhere too; half of its digits tell drift as well. */
static uint64_t rows_hash(const struct save_tensor *t, const struct ckpt_rows *r)
{
    struct hash h = hash_bytes(r->data, (size_t)((uint64_t)r->n_rows * t->row_bytes));

    h.hex[16] = '\0';
    return strtoull(h.hex, NULL, 16);
}

static int compare(struct ckpt_save *s, const uint64_t *all, const int64_t *ends)
{
    int64_t *at = arena_array(s->arena, (size_t)s->size, sizeof *at);

    for (int i = 1; i < s->size; i++)
        at[i] = ends[i - 1] / (int64_t)sizeof *all;
    for (int64_t i = 0; i < s->n; i++)
        for (int k = 0; k < s->t[i].n_rows; k++) {
            const struct ckpt_rows *r = &s->t[i].rows[k];
            uint64_t first = 0;

            for (int h = 0; h < r->n_holders && r->n_holders > 1; h++) {
                int rank = r->holder + h * r->stride;
                uint64_t v;

                BUG_ON(at[rank] >= ends[rank] / (int64_t)sizeof *all);
                v = all[at[rank]++];
                if (h == 0)
                    first = v;
                else if (v != first)
                    return err_set(ERR_BUG, "tensor \"%s\": ranks %d and %d should hold the same bytes and do not: the replicas drifted",
                                   s->t[i].name, r->holder, rank);
            }
        }
    return 0;
}

int ckpt_save_check_replicas(struct ckpt_save *s)
{
    const int64_t *ends;
    const char *all;
    uint64_t *mine;
    int64_t n = 0;
    int rc = 0;

    TRY(save_settle(s));
    for (int64_t i = 0; i < s->n; i++)
        n += s->t[i].n_rows;
    mine = arena_array(s->arena, (size_t)n + 1, sizeof *mine);
    n = 0;
    for (int64_t i = 0; i < s->n; i++)
        for (int k = 0; k < s->t[i].n_rows; k++)
            if (s->t[i].rows[k].n_holders > 1 && save_plan_holds(&s->t[i].rows[k], s->rank))
                mine[n++] = rows_hash(&s->t[i], &s->t[i].rows[k]);
    save_collect(s, (const char *)mine, n * (int64_t)sizeof *mine, &all, &ends);
    if (s->rank == 0)
        rc = compare(s, (const uint64_t *)(const void *)all, ends);
    return save_agree(s, rc);
}
