/* state.c -- see state.h. */
#include "train/state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/units.h"
#include "ckpt/safetensors.h"
#include "ckpt/run.h"
#include "ckpt/save.h"

#define NAME_MAX_BYTES 512

/* One tensor of the state: a parameter, a part of its optimizer state, or the
 * counts of a router.  data holds rows [first_row, first_row + n_rows) of it:
 * all on one rank, what we own on several. */
struct item {
    int i_param;                /* -1: counts */
    char name[NAME_MAX_BYTES];
    enum ckpt_group group;
    enum dtype dtype;
    int n_dims;
    int64_t shape[2];
    int64_t first_row, n_rows;
    void *data;                 /* NULL when n_rows is 0 */
    _Bool everywhere;           /* the same on every rank */
};

typedef int item_fn(void *ctx, const struct item *it);

/* Shape of parameter i, and which of its rows are here. */
static int describe(const struct trainer *t, int i, struct item *it)
{
    const struct param *p = &t->table.v[i];
    int part = t->own.of_param[i];

    it->i_param = i;
    it->everywhere = 0;
    it->dtype = DT_F32;
    it->n_dims = p->n_dims;
    it->shape[0] = p->rows;
    it->shape[1] = p->cols;
    it->first_row = part < 0 ? 0 : t->own.parts[part].first_row;
    it->n_rows = part < 0 ? 0 : t->own.parts[part].n_rows;
    it->data = NULL;
    return part;
}

/* The counts of router l. */
static void describe_counts(const struct trainer *t, int64_t l, int64_t *counts, struct item *it)
{
    snprintf(it->name, sizeof it->name, "%s.expert_counts", t->table.v[t->table.layers[l].router].name);
    it->i_param = -1;
    it->dtype = DT_I64;
    it->n_dims = 1;
    it->shape[0] = it->n_rows = t->cfg->model.num_experts;
    it->first_row = 0;
    it->data = counts + l * t->cfg->model.num_experts;
    it->everywhere = 1;
}

/* Every tensor of a checkpoint in one order, the same on every rank: parameters
 * in table order, then the state of each, then counts. */
static int each_item(struct trainer *t, _Bool with_optim, item_fn *fn, void *ctx)
{
    static const char *const muon[] = { "momentum", NULL }, *const adamw[] = { "exp_avg", "exp_avg_sq", NULL }, *const none[] = { NULL };
    struct item it = { .group = CKPT_MODEL };

    for (int i = 0; i < t->table.n; i++) {
        snprintf(it.name, sizeof it.name, "%s", t->table.v[i].name);
        if (describe(t, i, &it) >= 0)
            it.data = t->master + t->own.parts[t->own.of_param[i]].offset;
        TRY(fn(ctx, &it));
    }
    if (!with_optim)
        return 0;
    it.group = CKPT_OPTIM;
    for (int i = 0; i < t->table.n; i++) {
        const struct param *p = &t->table.v[i];
        const char *const *suffix = p->optim == PARAM_MUON ? muon : p->optim == PARAM_ADAMW ? adamw : none;
        struct optim_state s[2];
        describe(t, i, &it);
        int part = t->stepped->of_param[i], n = part < 0 ? 0 : optim_states(t->optim, part, s);
        /* Another replica may have the state of rows that we own. */
        it.n_rows = part < 0 ? 0 : it.n_rows;
        for (int k = 0; suffix[k]; k++) {
            snprintf(it.name, sizeof it.name, "%s.%s", p->name, suffix[k]);
            it.data = n ? s[k].data : NULL;
            TRY(fn(ctx, &it));
        }
    }
    for (int64_t l = 0; l < t->cfg->model.num_hidden_layers; l++) {
        if (t->table.layers[l].router < 0)
            continue;
        describe_counts(t, l, t->last_counts, &it);
        TRY(fn(ctx, &it));
    }
    return 0;
}

static uint64_t item_bytes(const struct item *it)
{
    uint64_t n = dtype_size(it->dtype);

    for (int k = 0; k < it->n_dims; k++)
        n *= (uint64_t)it->shape[k];
    return n;
}

/* ---- saving */

/* The rows of a tensor and who holds them, from the plan. */
static int rows_of(const struct trainer *t, const struct item *it, struct ckpt_rows **out)
{
    static struct ckpt_rows whole;
    int n = 1;

    if (it->everywhere) {
        whole = (struct ckpt_rows){ 0, it->shape[0], 0, 1, mesh_world(t->mesh), it->data };
        *out = &whole;
        return 1;
    }
    *out = (it->group == CKPT_OPTIM ? t->step_rows : t->rows) + t->rows_at[it->i_param];
    n = t->rows_at[it->i_param + 1] - t->rows_at[it->i_param];
    for (int k = 0; k < n; k++)
        (*out)[k].data = it->n_rows && (*out)[k].first_row == it->first_row ? it->data : NULL;
    return n;
}

struct room { struct trainer *t; uint64_t bytes, largest_split; int64_t n, n_rows; };

static int count_item(void *ctx, const struct item *it)
{
    struct room *r = ctx;
    struct ckpt_rows *rows;
    int n = rows_of(r->t, it, &rows);

    r->bytes += item_bytes(it);
    r->n++;
    r->n_rows += n;
    if (n > 1 && item_bytes(it) > r->largest_split)
        r->largest_split = item_bytes(it);
    return 0;
}

int state_room(struct trainer *t, const char *run_dir)
{
    struct room r = { .t = t };

    TRY(each_item(t, 1, count_item, &r));
    if (t->opts.world)
        TRY(pool_reserve(ckpt_save_memory_ranks(r.n, r.n_rows, comm_size(t->opts.world), r.largest_split)));
    else
        TRY(pool_reserve(ckpt_save_memory(r.n)));
    return ckpt_room(run_dir, r.bytes, r.n);
}

struct saving { struct trainer *t; struct ckpt_save *s; };

static int save_item(void *ctx, const struct item *it)
{
    struct saving *v = ctx;
    struct ckpt_rows *rows;
    int n = rows_of(v->t, it, &rows);

    return ckpt_save_rows(v->s, it->group, it->name, it->dtype, it->n_dims, it->shape, rows, n);
}

static int save_files(struct trainer *t, struct ckpt_save *s)
{
    char *text = model_config_json(&t->cfg->model, t->eod, t->cfg->data.seq_len);
    int rc = ckpt_save_file(s, "config.json", text, strlen(text));
    char gen[64];

    pool_free(text);
    if (rc < 0)
        return rc;
    if (t->vocab_text)
        TRY(ckpt_save_file(s, "tokenizer.json", t->vocab_text, t->vocab_bytes));
    if (t->eod >= 0)
        snprintf(gen, sizeof gen, "{\"eos_token_id\": %" PRId64 "}\n", t->eod);
    else
        snprintf(gen, sizeof gen, "{}\n");
    return ckpt_save_file(s, "generation_config.json", gen, strlen(gen));
}

#define MAX_SETS 256

int state_save(struct trainer *t, const char *run_dir, const struct run_identity *id, int64_t keep)
{
    static struct manifest_set sets[MAX_SETS];
    struct ckpt_save *s = NULL;
    struct manifest_info info = {
        .tool = id->tool, .argv = (const char *const *)id->argv, .n_argv = id->argc, .run_id = id->run_id,
        .restart = id->restart, .step = t->step, .tokens = t->tokens, .config = config_digest(t->cfg->source),
        .plan = id->plan, .replicas = t->mesh.replicas, .efsdp = t->mesh.efsdp, .ep = t->mesh.ep, .threads = t->dev.threads,
        .kernels = trainer_kernels(t), .data_next_step = t->next_data, .data_seed = (uint64_t)t->cfg->data.seed,
        .sets = sets,
    };
    int rc;

    if (!t->loader && id->inherit) {
        info.sets = id->inherit->sets;
        info.n_sets = id->inherit->n_sets;
    }
    for (int i = 0; t->loader && i < loader_n_train(t->loader) && i < MAX_SETS; i++) {
        struct loader_set set = loader_train_set(t->loader, i);
        sets[info.n_sets++] = (struct manifest_set){ set.path, set.hash, set.windows };
    }
    TRY(ckpt_save_begin_ranks(t->opts.world, run_dir, &info, 0, &s));
    struct saving v = { t, s };
    TRY_OUT(rc, each_item(t, 1, save_item, &v));
    TRY_OUT(rc, save_files(t, s));
    if (t->mesh.replicas > 1)
        TRY_OUT(rc, ckpt_save_check_replicas(s));
    TRY_OUT(rc, ckpt_save_write(s));
    return ckpt_save_commit(s, (int)keep);
out:
    ckpt_save_abort(s);
    return rc;
}

/* ---- loading */

struct loading {
    struct trainer *t;
    const struct ckpt *c;
    int n_faults;
    char text[1024];
    size_t n;
    int64_t n_found;
};

static void load_fault(struct loading *l, const char *name, const char *what)
{
    if (l->n_faults++ < 8) {
        int k = snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s: %s", l->n ? "; " : "", name, what);
        if (k > 0)
            l->n = l->n + (size_t)k < sizeof l->text ? l->n + (size_t)k : sizeof l->text - 1;
    }
}

static int check_item(void *ctx, const struct item *it)
{
    struct loading *l = ctx;
    const struct ckpt_tensor *f = ckpt_find(l->c, it->name);

    if (!f) {
        load_fault(l, it->name, "missing");
        return 0;
    }
    l->n_found++;
    /* Half-precision weights of other programs widen exactly. */
    _Bool same = f->n_dims == it->n_dims && (f->dtype == it->dtype || (it->group == CKPT_MODEL && it->dtype == DT_F32 &&
                                                                       (f->dtype == DT_BF16 || f->dtype == DT_F16)));
    for (int k = 0; same && k < it->n_dims; k++)
        same = f->shape[k] == it->shape[k];
    if (!same)
        load_fault(l, it->name, "another shape or type");
    return 0;
}

static int load_item(void *ctx, const struct item *it)
{
    struct loading *l = ctx;
    const struct ckpt_tensor *f = ckpt_find(l->c, it->name);

    int64_t cols = it->n_dims == 2 ? it->shape[1] : 1;

    if (it->n_rows == 0)
        return 0;
    if (it->dtype == DT_F32)
        return ckpt_read_f32(l->c, f, it->first_row * cols, it->n_rows * cols, it->data);
    return ckpt_read(l->c, f, 0, item_bytes(it), it->data);
}

static int load_config(struct trainer *t, const struct ckpt *c)
{
    struct model_config m = { 0 };
    struct fs_blob text;
    const char *key;
    char path[4096];
    int rc;

    /* The reader of configurations knows no hashes: what it will read is
     * checked against the MANIFEST first. */
    TRY(ckpt_read_file(c, "config.json", &text));
    fs_blob_free(&text);
    snprintf(path, sizeof path, "%s/config.json", ckpt_path(c));
    TRY(model_config_read(&m, path, t->cfg->data.seq_len));
    rc = model_config_same(&m, &t->cfg->model, &key)
             ? 0 : err_set(ERR_DATA, "%s: another model: %s differs from the configuration", path, key);
    model_config_fini(&m);
    return rc;
}

/* glm4_moe keeps multi-token prediction in layers behind the last one; like
 * transformers, we do without.  Each tensor left out is named. */
static _Bool is_prediction(const struct model_config *m, const char *name)
{
    static const char prefix[] = "model.layers.";
    char *end;

    if (m->model_type != MODEL_GLM4_MOE || strncmp(name, prefix, sizeof prefix - 1) != 0)
        return 0;
    long layer = strtol(name + sizeof prefix - 1, &end, 10);
    return *end == '.' && layer >= m->num_hidden_layers;
}

static int load(struct trainer *t, const struct ckpt *c, _Bool optim)
{
    struct loading l = { .t = t, .c = c };

    if (ckpt_kind(c) != CKPT_ONE_FILE)
        TRY(load_config(t, c));
    TRY(each_item(t, optim, check_item, &l));
    for (int64_t i = 0; i < ckpt_n_tensors(c) && (optim || l.n_found < ckpt_n_tensors(c)); i++) {
        const struct ckpt_tensor *f = ckpt_tensor(c, i);
        if (f->is_optim || params_find(&t->table, f->name) >= 0)
            continue;
        if (is_prediction(&t->cfg->model, f->name))
            log_warn("%s: \"%s\" is not used: multi-token prediction is not part of the model", ckpt_path(c), f->name);
        else
            load_fault(&l, f->name, "unknown");
    }
    if (l.n_faults)
        return err_set(ERR_DATA, "%s: %d tensor%s do%s not fit the model: %s%s", ckpt_path(c), l.n_faults,
                       l.n_faults == 1 ? "" : "s", l.n_faults == 1 ? "es" : "", l.text, l.n_faults > 8 ? "; ..." : "");
    return each_item(t, optim, load_item, &l);
}

int state_load_weights(struct trainer *t, const struct ckpt *c)
{
    return load(t, c, 0);
}

int state_load(struct trainer *t, const struct ckpt *c)
{
    _Bool optim = (t->opts.what & TRAINER_OPTIM) != 0;

    TRY(load(t, c, optim));
    if (optim)
        trainer_set_shares(t);
    const struct manifest *m = ckpt_manifest(c);
    if (m) {
        t->step = m->info.step;
        t->next_data = m->info.data_next_step;
        t->tokens = m->info.tokens;
    }
    return 0;
}

const char *state_exactness(const struct trainer *t, const struct ckpt *c, char *buf, size_t n)
{
    const struct manifest *m = ckpt_manifest(c);
    size_t k = 0;

    if (!m)
        return "not bit-exact: no MANIFEST";
    buf[0] = '\0';
    if (m->info.threads != t->dev.threads)
        k += (size_t)snprintf(buf + k, n - k, "threads %" PRId64 " -> %d", m->info.threads, t->dev.threads);
    if (strcmp(m->info.kernels, trainer_kernels(t)) != 0 && k < n)
        k += (size_t)snprintf(buf + k, n - k, "%skernels %s -> %s", k ? ", " : "", m->info.kernels, trainer_kernels(t));
    if (!k)
        return "bit-exact";
    memmove(buf + 15, buf, k + 1 < n - 15 ? k + 1 : n - 16);
    memcpy(buf, "not bit-exact: ", 15);
    buf[n - 1] = '\0';
    return buf;
}

/* ---- gradients */


/* Gradients in table order (trained parameters only), then counts. */
static int each_grad(struct trainer *t, item_fn *fn, void *ctx)
{
    struct item it = { .group = CKPT_MODEL };

    for (int i = 0; i < t->table.n; i++) {
        const struct param *p = &t->table.v[i];
        if (p->optim == PARAM_NONE)
            continue;
        snprintf(it.name, sizeof it.name, "%s", p->name);
        if (describe(t, i, &it) >= 0)
            it.data = t->grads + t->own.parts[t->own.of_param[i]].offset;
        TRY(fn(ctx, &it));
    }
    for (int64_t l = 0; l < t->cfg->model.num_hidden_layers; l++) {
        if (t->table.layers[l].router < 0)
            continue;
        describe_counts(t, l, t->counts, &it);
        TRY(fn(ctx, &it));
    }
    return 0;
}

struct grad_item { char name[NAME_MAX_BYTES]; void *data; uint64_t bytes; };
struct grad_list { struct grad_item *v; int n, cap; struct st_writer *w; const struct st_header *head; };

static int declare_grad(void *ctx, const struct item *it)
{
    struct grad_list *g = ctx;

    if (g->n == g->cap) {
        g->cap = g->cap ? 2 * g->cap : 256;
        struct grad_item *v = realloc(g->v, (size_t)g->cap * sizeof *v);
        if (!v)
            return err_set(ERR_IO, "out of memory for the list of gradients");
        g->v = v;
    }
    struct grad_item *e = &g->v[g->n++];
    memcpy(e->name, it->name, sizeof e->name);
    e->data = it->data;
    e->bytes = item_bytes(it);
    if (g->w)
        return st_writer_add(g->w, it->name, it->dtype, it->n_dims, it->shape);
    const struct st_tensor *f = st_find(g->head, it->name);
    if (!f)
        return err_set(ERR_DATA, "gradient of \"%s\" is missing", it->name);
    _Bool same = f->n_dims == it->n_dims && f->dtype == it->dtype;
    for (int k = 0; same && k < it->n_dims; k++)
        same = f->shape[k] == it->shape[k];
    return same ? 0 : err_set(ERR_DATA, "gradient of \"%s\" has another shape or type", it->name);
}

int state_write_grads(struct trainer *t, const struct step_facts *f, const char *path)
{
    struct grad_list g = { .w = st_writer_new() };
    char num[32];
    int rc, i;

    TRY_OUT(rc, st_writer_meta(g.w, "format", "moe.grads/1"));
    snprintf(num, sizeof num, "%" PRId64, f->step);
    TRY_OUT(rc, st_writer_meta(g.w, "step", num));
    TRY_OUT(rc, st_writer_meta(g.w, "config", config_digest(t->cfg->source).hex));
    snprintf(num, sizeof num, "%" PRId64, f->n_valid);
    TRY_OUT(rc, st_writer_meta(g.w, "loss_tokens", num));
    TRY_OUT(rc, st_writer_meta(g.w, "loss", units_shortest(num, f->loss)));
    TRY_OUT(rc, each_grad(t, declare_grad, &g));
    if (strcmp(path, "-") == 0)
        TRY_OUT(rc, st_writer_begin_stream(g.w, STDOUT_FILENO, "standard output"));
    else
        TRY_OUT(rc, st_writer_begin_replace(g.w, path));
    /* A stream has its own order; a file takes any. */
    if (strcmp(path, "-") == 0)
        while ((i = st_writer_next(g.w)) >= 0)
            TRY_OUT(rc, st_writer_put(g.w, i, 0, g.v[i].data, g.v[i].bytes));
    else
        for (i = 0; i < g.n; i++)
            TRY_OUT(rc, st_writer_put(g.w, i, 0, g.v[i].data, g.v[i].bytes));
    rc = st_writer_end(g.w);
out:
    st_writer_free(g.w);
    free(g.v);
    return rc;
}

static int grad_meta(const struct st_header *h, const char *name, const char *key, const char **out)
{
    *out = st_meta_get(h, key);
    return *out ? 0 : err_set(ERR_DATA, "%s: no gradient stream: \"%s\" is missing from its metadata", name, key);
}

/* Metadata and declarations against the trainer. */
static int check_grads(struct trainer *t, struct step_facts *f, struct grad_list *g, const char *name)
{
    const char *v;

    TRY(grad_meta(g->head, name, "format", &v));
    if (strcmp(v, "moe.grads/1") != 0)
        return err_set(ERR_DATA, "%s: format \"%s\", expected \"moe.grads/1\"", name, v);
    TRY(grad_meta(g->head, name, "step", &v));
    f->step = strtoll(v, NULL, 10);
    if (f->step != t->step + 1)
        return err_set(ERR_DATA, "%s: gradients of step %s, but the checkpoint is at step %" PRId64, name, v, t->step);
    TRY(grad_meta(g->head, name, "config", &v));
    if (strcmp(v, config_digest(t->cfg->source).hex) != 0)
        return err_set(ERR_DATA, "%s: gradients of another configuration (%s)", name, v);
    TRY(grad_meta(g->head, name, "loss_tokens", &v));
    f->n_valid = strtoll(v, NULL, 10);
    TRY(grad_meta(g->head, name, "loss", &v));
    f->loss = f->ce = strtod(v, NULL);
    f->n_tokens = t->cfg->tokens_per_step;
    if (each_grad(t, declare_grad, g) < 0)
        return err_add("%s", name);
    if (g->n != g->head->n_tensors)
        return err_set(ERR_DATA, "%s: %" PRId64 " tensors, expected %d", name, g->head->n_tensors, g->n);
    return 0;
}

int state_read_grads(struct trainer *t, struct step_facts *f, const char *path)
{
    _Bool std_in = strcmp(path, "-") == 0;
    const char *name = std_in ? "standard input" : path;
    struct st_stream *s = NULL;
    struct grad_list g = { 0 };
    int rc, fd = std_in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

    memset(f, 0, sizeof *f);
    if (fd < 0)
        return err_sys(ERR_NOINPUT, "%s", path);
    TRY_OUT(rc, st_stream_open(fd, name, &s));
    g.head = st_stream_head(s);
    TRY_OUT(rc, check_grads(t, f, &g, name));
    /* The stream is in our own order but for the counts, so the next name is
     * nearly always the one that follows. */
    for (int64_t i = 0, k = 0; i < g.head->n_tensors; i++) {
        for (k = (k + 1) % g.n; strcmp(g.v[k].name, g.head->tensors[i].name) != 0;)
            k = (k + 1) % g.n;
        TRY_OUT(rc, st_stream_read(s, g.v[k].data, g.v[k].bytes));
    }
    rc = st_stream_end(s);
out:
    st_stream_close(s);
    free(g.v);
    if (!std_in)
        close(fd);
    return rc;
}
