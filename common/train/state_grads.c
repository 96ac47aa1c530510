/* state_grads.c -- gradients to and from one stream, by any number of ranks.
 *
 * The stream is rank 0's business: it has one writer and one reader, in one
 * order, whatever the layout.  Rows travel between it and their owners in pieces
 * of 64 MiB.  A failure of the stream does not stop the pieces: the other ranks
 * learn of it at the end, so that all leave together. */
#include "train/state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "ckpt/safetensors.h"
#include "train/state_impl.h"
#include "train/world.h"

#define PIECE_BYTES ((int64_t)64 << 20)

struct gradients {
    struct trainer *t;
    struct arena *a;
    struct state_item *items;   /* counts, then trained parameters in table order: the order of a stream */
    int n;
    struct st_writer *w;        /* rank 0 */
    struct st_stream *s;
    struct comm_part *send, *recv;
    char *piece;                /* rank 0, on several ranks */
    int rc;                     /* rank 0: the first failure of the stream */
    struct err_state why;
};

static int n_ranks(const struct trainer *t) { return t->opts.world ? comm_size(t->opts.world) : 1; }

static void list(struct gradients *g)
{
    struct trainer *t = g->t;
    int64_t n_layers = t->cfg->model.num_hidden_layers;

    g->items = arena_array(g->a, (size_t)(t->table.n + n_layers), sizeof *g->items);
    for (int64_t l = 0; l < n_layers; l++)
        if (t->table.layers[l].router >= 0)
            state_describe_counts(t, l, t->counts, &g->items[g->n++]);
    for (int i = 0; i < t->table.n; i++) {
        struct state_item *it = &g->items[g->n];
        if (t->table.v[i].optim == PARAM_NONE)
            continue;
        snprintf(it->name, sizeof it->name, "%s", t->table.v[i].name);
        if (state_describe(t, i, it) >= 0)
            it->data = t->grads + t->own.parts[t->own.of_param[i]].offset;
        g->n++;
    }
}

static int64_t row_bytes(const struct state_item *it)
{
    return it->shape[0] ? (int64_t)state_item_bytes(it) / it->shape[0] : 0;
}

/* Whole tensors never have to fit beside the trainer. */
static int64_t piece_rows(const struct state_item *it)
{
    int64_t n = row_bytes(it) ? PIECE_BYTES / row_bytes(it) : it->shape[0];

    n = n < 1 ? 1 : n;
    return n < it->shape[0] ? n : it->shape[0];
}

static int open_pieces(struct gradients *g)
{
    struct trainer *t = g->t;
    int64_t bytes = 0, most = 0;

    if (n_ranks(t) == 1)
        return 0;
    for (int i = 0; i < t->table.n; i++)
        most = t->rows_at[i + 1] - t->rows_at[i] > most ? t->rows_at[i + 1] - t->rows_at[i] : most;
    g->send = arena_array(g->a, (size_t)(most * t->mesh.replicas), sizeof *g->send);
    g->recv = arena_array(g->a, (size_t)(most * t->mesh.replicas), sizeof *g->recv);
    for (int i = 0; i < g->n && world_leads(t->opts.world); i++)
        if (!g->items[i].everywhere && piece_rows(&g->items[i]) * row_bytes(&g->items[i]) > bytes)
            bytes = piece_rows(&g->items[i]) * row_bytes(&g->items[i]);
    g->piece = bytes ? malloc((size_t)bytes) : NULL;
    return bytes && !g->piece ? err_set(ERR_IO, "out of memory for gradients") : 0;
}

/* Collective.  Rows [first, first + n) between the piece on rank 0 and those who
 * hold them: in: everybody who owns a row; out: the one who has its sum. */
static int move(struct gradients *g, const struct state_item *it, int64_t first, int64_t n, _Bool in)
{
    struct trainer *t = g->t;
    const struct ckpt_rows *rows = in ? t->rows : t->step_rows;
    int64_t size = row_bytes(it);
    int me = comm_rank(t->opts.world), n_send = 0, n_recv = 0;

    for (int k = t->rows_at[it->i_param]; k < t->rows_at[it->i_param + 1]; k++) {
        int64_t from = rows[k].first_row > first ? rows[k].first_row : first;
        int64_t to = rows[k].first_row + rows[k].n_rows < first + n ? rows[k].first_row + rows[k].n_rows : first + n;
        for (int h = 0; from < to && h < (in ? rows[k].n_holders : 1); h++) {
            int holder = rows[k].holder + h * rows[k].stride;
            struct comm_part here = { .rank = holder, .bytes = (to - from) * size, .p = g->piece + (from - first) * size };
            struct comm_part there = { .rank = 0, .bytes = (to - from) * size,
                                       .p = me == holder ? (char *)it->data + (from - it->first_row) * size : NULL };
            if (me == 0)
                *(in ? &g->send[n_send++] : &g->recv[n_recv++]) = here;
            if (me == holder)
                *(in ? &g->recv[n_recv++] : &g->send[n_send++]) = there;
        }
    }
    return comm_all_to_all(t->opts.world, g->send, n_send, g->recv, n_recv);
}

/* What rank 0 does with the stream, until something fails there. */
static void stream(struct gradients *g, int rc)
{
    if (rc < 0 && g->rc == 0) {
        g->rc = rc;
        err_take(&g->why);
    }
}

/* ---- writing */

static void put(struct gradients *g, int i, uint64_t first, const void *p, uint64_t bytes)
{
    if (g->w && g->rc == 0)
        stream(g, st_writer_put(g->w, i, first, p, (size_t)bytes));
}

static int put_item(struct gradients *g, int i)
{
    const struct state_item *it = &g->items[i];

    if (n_ranks(g->t) == 1 || it->everywhere) {
        put(g, i, 0, it->data, state_item_bytes(it));
        return 0;
    }
    for (int64_t at = 0, n = piece_rows(it); at < it->shape[0]; at += n) {
        n = n < it->shape[0] - at ? n : it->shape[0] - at;
        TRY(move(g, it, at, n, 0));
        put(g, i, (uint64_t)(at * row_bytes(it)), g->piece, (uint64_t)(n * row_bytes(it)));
    }
    return 0;
}

static int begin_writing(struct gradients *g, const struct step_facts *f, const char *path)
{
    char num[32];

    g->w = st_writer_new();
    TRY(st_writer_meta(g->w, "format", "moe.grads/1"));
    snprintf(num, sizeof num, "%" PRId64, f->step);
    TRY(st_writer_meta(g->w, "step", num));
    TRY(st_writer_meta(g->w, "config", config_digest(g->t->cfg->source).hex));
    snprintf(num, sizeof num, "%" PRId64, f->n_valid);
    TRY(st_writer_meta(g->w, "loss_tokens", num));
    TRY(st_writer_meta(g->w, "loss", units_shortest(num, f->loss)));
    for (int i = 0; i < g->n; i++)
        TRY(st_writer_add(g->w, g->items[i].name, g->items[i].dtype, g->items[i].n_dims, g->items[i].shape));
    if (strcmp(path, "-") == 0)
        return st_writer_begin_stream(g->w, STDOUT_FILENO, "standard output");
    return st_writer_begin_replace(g->w, path);
}

int state_write_grads(struct trainer *t, const struct step_facts *f, const char *path)
{
    struct gradients g = { .t = t, .a = arena_new() };
    int rc;

    list(&g);
    rc = open_pieces(&g);
    if (rc == 0 && world_leads(t->opts.world))
        rc = begin_writing(&g, f, path);
    TRY_OUT(rc, world_agree(t->opts.world, rc));
    for (int i = 0; i < g.n; i++)
        TRY_OUT(rc, put_item(&g, i));
    rc = g.rc ? err_put(&g.why) : g.w ? st_writer_end(g.w) : 0;
    rc = world_agree(t->opts.world, rc);
out:
    st_writer_free(g.w);
    free(g.piece);
    arena_free(g.a);
    return rc;
}

/* ---- reading */

static int grad_meta(const struct st_header *h, const char *name, const char *key, const char **out)
{
    *out = st_meta_get(h, key);
    return *out ? 0 : err_set(ERR_DATA, "%s: no gradient stream: \"%s\" is missing from its metadata", name, key);
}

static int check_item(const struct st_header *h, const struct state_item *it, const char *name)
{
    const struct st_tensor *f = st_find(h, it->name);

    if (!f)
        return err_set(ERR_DATA, "%s: gradient of \"%s\" is missing", name, it->name);
    _Bool same = f->n_dims == it->n_dims && f->dtype == it->dtype;
    for (int k = 0; same && k < it->n_dims; k++)
        same = f->shape[k] == it->shape[k];
    return same ? 0 : err_set(ERR_DATA, "%s: gradient of \"%s\" has another shape or type", name, it->name);
}

/* Metadata and declarations against the trainer. */
static int check_header(const struct gradients *g, struct step_facts *f, const char *name)
{
    const struct st_header *h = st_stream_head(g->s);
    struct trainer *t = g->t;
    const char *v;

    TRY(grad_meta(h, name, "format", &v));
    if (strcmp(v, "moe.grads/1") != 0)
        return err_set(ERR_DATA, "%s: format \"%s\", expected \"moe.grads/1\"", name, v);
    TRY(grad_meta(h, name, "step", &v));
    f->step = strtoll(v, NULL, 10);
    if (f->step != t->step + 1)
        return err_set(ERR_DATA, "%s: gradients of step %s, but the checkpoint is at step %" PRId64, name, v, t->step);
    TRY(grad_meta(h, name, "config", &v));
    if (strcmp(v, config_digest(t->cfg->source).hex) != 0)
        return err_set(ERR_DATA, "%s: gradients of another configuration (%s)", name, v);
    TRY(grad_meta(h, name, "loss_tokens", &v));
    f->n_valid = strtoll(v, NULL, 10);
    TRY(grad_meta(h, name, "loss", &v));
    f->loss = f->ce = strtod(v, NULL);
    f->n_tokens = t->cfg->tokens_per_step;
    f->own_finite = 1;
    for (int i = 0; i < g->n; i++)
        TRY(check_item(h, &g->items[i], name));
    if (g->n != h->n_tensors)
        return err_set(ERR_DATA, "%s: %" PRId64 " tensors, expected %d", name, h->n_tensors, g->n);
    return 0;
}

/* order [n]: the items as they come. */
static int begin_reading(struct gradients *g, struct step_facts *f, int fd, const char *name, int32_t *order)
{
    TRY(st_stream_open(fd, name, &g->s));
    TRY(check_header(g, f, name));
    /* The next name is nearly always the one that follows. */
    for (int64_t i = 0, k = g->n - 1; i < g->n; i++) {
        do
            k = (k + 1) % g->n;
        while (strcmp(g->items[k].name, st_stream_head(g->s)->tensors[i].name) != 0);
        order[i] = (int32_t)k;
    }
    return 0;
}

static void get(struct gradients *g, void *p, uint64_t bytes)
{
    if (g->s && g->rc == 0)
        stream(g, st_stream_read(g->s, p, (size_t)bytes));
}

static int get_item(struct gradients *g, const struct state_item *it)
{
    if (n_ranks(g->t) == 1 || it->everywhere) {
        get(g, it->data, state_item_bytes(it));
        return it->everywhere && g->t->opts.world
            ? comm_broadcast(g->t->opts.world, 0, it->data, (int64_t)state_item_bytes(it)) : 0;
    }
    for (int64_t at = 0, n = piece_rows(it); at < it->shape[0]; at += n) {
        n = n < it->shape[0] - at ? n : it->shape[0] - at;
        get(g, g->piece, (uint64_t)(n * row_bytes(it)));
        TRY(move(g, it, at, n, 1));
    }
    return 0;
}

int state_read_grads(struct trainer *t, struct step_facts *f, const char *path)
{
    _Bool std_in = strcmp(path, "-") == 0, leads = world_leads(t->opts.world);
    struct gradients g = { .t = t, .a = arena_new() };
    int fd = !leads ? -1 : std_in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), rc;

    memset(f, 0, sizeof *f);
    list(&g);
    int32_t *order = arena_array(g.a, (size_t)g.n + 1, sizeof *order);
    rc = leads && fd < 0 ? err_sys(ERR_NOINPUT, "%s", path) : open_pieces(&g);
    if (rc == 0 && leads)
        rc = begin_reading(&g, f, fd, std_in ? "standard input" : path, order);
    TRY_OUT(rc, world_agree(t->opts.world, rc));
    if (t->opts.world) {
        TRY_OUT(rc, comm_broadcast(t->opts.world, 0, f, sizeof *f));
        TRY_OUT(rc, comm_broadcast(t->opts.world, 0, order, g.n * (int64_t)sizeof *order));
    }
    for (int i = 0; i < g.n; i++)
        TRY_OUT(rc, get_item(&g, &g.items[order[i]]));
    rc = g.rc ? err_put(&g.why) : g.s ? st_stream_end(g.s) : 0;
    rc = world_agree(t->opts.world, rc);
out:
    st_stream_close(g.s);
    free(g.piece);
    if (fd >= 0 && !std_in)
        close(fd);
    arena_free(g.a);
    return rc;
}
