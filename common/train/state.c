/* state.c -- see state.h. */
#include "train/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/pool.h"
#include "ckpt/run.h"
#include "ckpt/save.h"
#include "train/state_impl.h"

/* Every tensor of a checkpoint in one order, the same on every rank: parameters
 * in table order, then the state of each, then counts. */
static int each_item(struct trainer *t, _Bool with_optim, state_item_fn *fn, void *ctx)
{
    static const char *const muon[] = { "momentum", NULL }, *const adamw[] = { "exp_avg", "exp_avg_sq", NULL }, *const none[] = { NULL };
    struct state_item it = { .group = CKPT_MODEL };

    for (int i = 0; i < t->table.n; i++) {
        snprintf(it.name, sizeof it.name, "%s", t->table.v[i].name);
        if (state_describe(t, i, &it) >= 0)
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
        state_describe(t, i, &it);
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
        state_describe_counts(t, l, t->last_counts, &it);
        TRY(fn(ctx, &it));
    }
    return 0;
}

/* ---- saving */

/* The rows of a tensor and who holds them, from the plan. */
static int rows_of(const struct trainer *t, const struct state_item *it, struct ckpt_rows **out)
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

static int count_item(void *ctx, const struct state_item *it)
{
    struct room *r = ctx;
    struct ckpt_rows *rows;
    int n = rows_of(r->t, it, &rows);

    r->bytes += state_item_bytes(it);
    r->n++;
    r->n_rows += n;
    if (n > 1 && state_item_bytes(it) > r->largest_split)
        r->largest_split = state_item_bytes(it);
    return 0;
}

/* config.json and generation_config.json are smaller; and what steps and
 * evaluations need while a save is in hand. */
#define BESIDE_BYTES ((size_t)1 << 20)

int state_room(struct trainer *t, const char *run_dir)
{
    struct room r = { .t = t };
    size_t beside = t->stage ? BESIDE_BYTES + t->vocab_bytes : 0;

    TRY(each_item(t, 1, count_item, &r));
    if (t->opts.world)
        TRY(pool_reserve(ckpt_save_memory_ranks(r.n, r.n_rows, comm_size(t->opts.world), r.largest_split) + beside));
    else
        TRY(pool_reserve(ckpt_save_memory(r.n) + beside));
    return ckpt_room(run_dir, r.bytes, r.n);
}

struct saving { struct trainer *t; struct ckpt_save *s; };

static int save_item(void *ctx, const struct state_item *it)
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

static size_t stage_bytes(struct trainer *t, _Bool optim)
{
    struct ckpt_save *s = ckpt_save_rehearse(t->opts.world ? comm_rank(t->opts.world) : 0, mesh_world(t->mesh));
    struct saving v = { t, s };
    size_t bytes = 0;

    if (each_item(t, optim, save_item, &v) == 0)
        bytes = ckpt_save_stage_bytes(s);
    ckpt_save_abort(s);
    return bytes;
}

/* Light ones are spread over the ranks in another way. */
size_t state_stage_bytes(struct trainer *t)
{
    size_t full = stage_bytes(t, 1), light = t->cfg->ckpt_light_every ? stage_bytes(t, 0) : 0;

    return full > light ? full : light;
}

/* The table of sets is read until the save is done, and there is one at a time. */
static int declare(struct trainer *t, const char *run_dir, const struct run_identity *id, const struct state_policy *p,
                   struct ckpt_writer *w, struct ckpt_save **out)
{
    static struct manifest_set sets[MAX_SETS];
    struct ckpt_save *s = NULL;
    struct manifest_info info = {
        .kind = p->kind, .tool = id->tool, .argv = (const char *const *)id->argv, .n_argv = id->argc, .run_id = id->run_id,
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
    if (w)
        ckpt_save_beside(s, w);
    ckpt_save_keep_light(s, (int)p->keep_light);
    struct saving v = { t, s };
    TRY_OUT(rc, each_item(t, p->kind != MANIFEST_LIGHT, save_item, &v));
    TRY_OUT(rc, save_files(t, s));
    if (t->mesh.replicas > 1)
        TRY_OUT(rc, ckpt_save_check_replicas(s));
    *out = s;
    return 0;
out:
    ckpt_save_abort(s);
    return rc;
}

int state_save(struct trainer *t, const char *run_dir, const struct run_identity *id, const struct state_policy *p)
{
    struct ckpt_save *s;
    int rc;

    TRY(declare(t, run_dir, id, p, NULL, &s));
    rc = ckpt_save_write(s);
    if (rc == 0)
        return ckpt_save_commit(s, (int)p->keep);
    ckpt_save_abort(s);
    return rc;
}

int state_save_beside(struct trainer *t, const char *run_dir, const struct run_identity *id, const struct state_policy *p,
                      struct ckpt_writer *w, struct ckpt_save **out)
{
    struct ckpt_save *s;
    int rc;

    TRY(declare(t, run_dir, id, p, w, &s));
    rc = ckpt_save_start(s, (int)p->keep);
    if (rc < 0)
        ckpt_save_abort(s);
    else
        *out = s;
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

static int check_item(void *ctx, const struct state_item *it)
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

static int load_item(void *ctx, const struct state_item *it)
{
    struct loading *l = ctx;
    const struct ckpt_tensor *f = ckpt_find(l->c, it->name);

    int64_t cols = it->n_dims == 2 ? it->shape[1] : 1;

    if (it->n_rows == 0)
        return 0;
    if (it->dtype == DT_F32)
        return ckpt_read_f32(l->c, f, it->first_row * cols, it->n_rows * cols, it->data);
    return ckpt_read(l->c, f, 0, state_item_bytes(it), it->data);
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

    if (optim && ckpt_manifest(c) && ckpt_manifest(c)->info.kind == MANIFEST_LIGHT)
        return err_set(ERR_DATA, "%s: a light checkpoint: it holds the model without optimizer state", ckpt_path(c));
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
