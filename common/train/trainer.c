/* trainer.c -- building a trainer twice: once to know, once to run. */
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "dev/timed.h"
#include "dev/trace.h"
#include "shard/sharing.h"
#include "train/world.h"

static struct dev_limits limits(const struct trainer *t)
{
    const struct model_config *m = &t->cfg->model;
    struct dev_limits l = { .n_heads = m->num_attention_heads, .head_dim = m->head_dim };
    int64_t micro = t->cfg->micro_tokens;

    l.max_rows = micro * m->num_experts_per_tok;
    if (t->opts.what & TRAINER_DECODE && l.max_rows < t->opts.max_positions)
        l.max_rows = t->opts.max_positions;
    l.max_cols = m->hidden_size > m->num_experts ? m->hidden_size : m->num_experts;
    for (int i = 0; i < t->table.n; i++) {
        const struct param *p = &t->table.v[i];
        if (p->kind != PARAM_EMBED && p->kind != PARAM_HEAD) {
            l.max_cols = p->rows > l.max_cols ? p->rows : l.max_cols;
            l.max_cols = p->cols > l.max_cols ? p->cols : l.max_cols;
        }
        if (p->optim == PARAM_MUON) {
            l.ns_rows = p->rows > l.ns_rows ? p->rows : l.ns_rows;
            l.ns_cols = p->cols > l.ns_cols ? p->cols : l.ns_cols;
        }
    }
    return l;
}

static int keep(struct trainer *t, enum mem_class c, const char *name, int64_t n, size_t size, void *out)
{
    return mem_keep(t->mem, c, name, (size_t)n * size, out);
}

static int rank_of(const struct trainer *t)
{
    return t->opts.world ? comm_rank(t->opts.world) : 0;
}

/* auto: alone every row at once; else 15 % more than the balanced share, beyond
 * which rounds are cheaper than memory. */
static int64_t rows_cap(const struct trainer *t)
{
    int64_t rows = t->cfg->micro_tokens * t->cfg->model.num_experts_per_tok;

    if (t->cfg->rows_cap > 0)
        return t->cfg->rows_cap;
    return t->mesh.ep == 1 ? 0 : rows + (rows * 15 + 99) / 100;
}

/* A layer's routing is there: what would its own scores have chosen?  The
 * answer is the same op's, into memory of its own. */
static int watch(void *ctx, int layer, const struct router *r)
{
    struct trainer *t = ctx;
    struct router own = *r;

    if (mem_recording(t->mem))
        return 0;
    own.idx = t->own_idx;
    own.w.p = t->own_w;
    own.forced = 0;
    own.counts = NULL;
    own.aux_sum = own.z_sum = NULL;
    t->dev.ops->router_fwd(&t->dev, &own);
    TRY(t->dev.ops->sync(&t->dev));
    return t->opts.routing->routed(t->opts.routing->ctx, t->micro, layer, r, t->own_idx);
}

static int keep_routing(struct trainer *t)
{
    const struct model_config *m = &t->cfg->model;
    int64_t slots = t->cfg->micro_tokens * m->num_experts_per_tok;

    TRY(keep(t, MEM_ROUTING, "routing to follow", slots * m->num_hidden_layers, sizeof *t->forced, &t->forced));
    TRY(keep(t, MEM_ROUTING, "own routing", slots, sizeof *t->own_idx, &t->own_idx));
    return keep(t, MEM_ROUTING, "weights of the own routing", slots, sizeof(float), &t->own_w);
}

/* Kept buffers in a fixed order: the tape of the set-up. */
static int build(struct trainer *t)
{
    const struct run_config *c = t->cfg;
    const struct model_config *m = &c->model;
    unsigned what = t->opts.what;
    int64_t cells = m->num_hidden_layers * m->num_experts, n = c->micro_tokens;

    TRY(keep(t, MEM_MASTER, "parameters", t->own.n_elems, sizeof(float), &t->master));
    if (what & TRAINER_GRADS || what & TRAINER_OPTIM)
        TRY(keep(t, MEM_GRAD, "gradients", t->own.n_elems, sizeof(float), &t->grads));
    TRY(keep(t, MEM_ROUTING, "expert counts of the step", cells, sizeof(int64_t), &t->counts));
    TRY(keep(t, MEM_ROUTING, "expert counts of the last step", cells, sizeof(int64_t), &t->last_counts));
    TRY(keep(t, MEM_ROUTING, "expert shares of the last step", cells, sizeof(double), &t->frac));
    if (what & (TRAINER_DATA | TRAINER_VALID)) {
        TRY(keep(t, MEM_BATCH, "ids", n, sizeof(int32_t), &t->batch.ids));
        TRY(keep(t, MEM_BATCH, "targets", n, sizeof(int32_t), &t->batch.targets));
        TRY(keep(t, MEM_BATCH, "document starts", n, sizeof(int32_t), &t->batch.doc_start));
        TRY(keep(t, MEM_BATCH, "positions", n, sizeof(int32_t), &t->batch.positions));
        TRY(keep(t, MEM_BATCH, "valid", n, 1, &t->valid));
        TRY(keep(t, MEM_BATCH, "nll", n, sizeof(double), &t->nll));
    }
    if (what & TRAINER_MODEL) {
        struct model_opts o = {
            .dtype = DT_F32, .micro_tokens = n, .seq_len = c->data.seq_len, .loss_chunk = c->loss_chunk,
            .boundary_every = (int)c->boundary_every, .aux_coef = c->aux_coef, .z_coef = c->z_coef,
            .aux_scope = c->aux_scope,
            .max_positions = what & TRAINER_DECODE ? t->opts.max_positions : c->data.seq_len,
            .ep = t->ep, .rows_cap = rows_cap(t),
        };
        if (o.loss_chunk > n)
            o.loss_chunk = n;
        if (t->opts.routing) {
            TRY(keep_routing(t));
            o.watch = (struct model_watch){ t, watch };
        }
        TRY(fsdp_new(t->build, t->plan, &t->own, mesh_at(t->mesh, rank_of(t)).ep, &t->groups, t->tapes, &t->dev, t->mem,
                     c->grad_dtype ? DT_BF16 : DT_F32, t->master, what & TRAINER_GRADS ? t->grads : NULL, &t->fsdp));
        struct model_io io = fsdp_io(t->fsdp);
        TRY(model_new(t->build, &t->table, &o, &t->dev, t->mem, &io, &t->model));
        if (what & TRAINER_DECODE) {
            TRY(keep(t, MEM_CACHE, "logits of the last token", m->vocab_size, sizeof(float), &t->logits));
            TRY(model_cache_new(t->model));
        }
    }
    if (what & TRAINER_OPTIM)
        TRY(optim_new(t->build, &t->table, t->stepped, &c->optim, &t->dev, t->mem, &t->optim));
    if (c->ckpt_async && t->opts.stage_bytes) {
        t->stage_bytes = t->opts.stage_bytes(t);
        TRY(keep(t, MEM_SAVE, "checkpoint being written", (int64_t)t->stage_bytes, 1, &t->stage));
    }
    struct dev_limits lim = limits(t);
    t->dev.ws_size = t->dev.ops->ws_bytes(&t->dev, &lim);
    return keep(t, MEM_WS, "device scratch", (int64_t)t->dev.ws_size, 1, &t->dev.ws);
}

static struct model_batch whole_batch(struct trainer *t)
{
    return (struct model_batch){
        .n_tokens = t->cfg->micro_tokens, .seq_len = t->cfg->data.seq_len, .ids = t->batch.ids,
        .targets = t->batch.targets, .valid = t->valid, .doc_start = t->batch.doc_start,
        .positions = t->batch.positions,
    };
}

/* Every program of the run, over the trace device. */
static int record(struct trainer *t)
{
    struct model_sums sums;
    struct model_batch b = whole_batch(t);
    unsigned what = t->opts.what;

    if (what & TRAINER_GRADS && what & TRAINER_MODEL) {
        TRY(fsdp_begin(t->fsdp, "train"));
        TRY(mem_begin(t->mem, "train"));
        TRY(model_train(t->model, &b, 1, 1, t->frac, NULL, t->counts, &sums));
        TRY(mem_end(t->mem));
    }
    if (what & TRAINER_OPTIM) {
        double *sq;
        TRY(mem_begin(t->mem, "optim"));
        TRY(optim_squares(t->optim, t->grads, &sq));
        TRY(optim_step(t->optim, t->master, t->grads, 1, 1, 1));
        TRY(mem_end(t->mem));
    }
    if (what & (TRAINER_VALID | TRAINER_DATA) && what & TRAINER_MODEL) {
        TRY(fsdp_begin(t->fsdp, "eval"));
        TRY(mem_begin(t->mem, "eval"));
        TRY(model_eval(t->model, &b, t->nll, &sums));
        TRY(mem_end(t->mem));
    }
    if (what & TRAINER_DECODE) {
        /* The first call feeds a prompt piece of the largest size. */
        TRY(fsdp_begin(t->fsdp, "decode"));
        TRY(mem_begin(t->mem, "decode"));
        TRY(model_decode(t->model, NULL, t->cfg->micro_tokens < t->opts.max_positions ? t->cfg->micro_tokens
                                                                                     : t->opts.max_positions, t->logits));
        TRY(mem_end(t->mem));
    }
    return 0;
}

static int load_vocab(struct trainer *t)
{
    const struct trainer_options *o = &t->opts;
    const struct run_config *c = t->cfg;
    struct fs_blob blob = { 0 };

    t->eod = -1;
    if (o->what & TRAINER_SYNTHETIC)
        return 0;
    if (o->tokenizer_text) {
        t->vocab_text = malloc(o->tokenizer_bytes + 1);
        if (!t->vocab_text)
            return err_set(ERR_IO, "out of memory for the tokenizer");
        memcpy(t->vocab_text, o->tokenizer_text, o->tokenizer_bytes);
        t->vocab_bytes = o->tokenizer_bytes;
    } else if (c->tokenizer) {
        TRY(fs_read(c->tokenizer, &blob));
        t->vocab_text = blob.data;      /* taken: fs_read() gives malloc'ed memory */
        t->vocab_bytes = blob.size;
    } else {
        return 0;
    }
    TRY(tok_vocab_parse(o->tokenizer_text ? o->tokenizer_name : c->tokenizer, t->vocab_text, t->vocab_bytes, &t->vocab));
    if (tok_vocab_size(t->vocab) > c->model.vocab_size)
        return err_set(ERR_USAGE, "%s: %d tokens do not fit into model.vocab_size %lld", tok_vocab_name(t->vocab),
                       tok_vocab_size(t->vocab), (long long)c->model.vocab_size);
    if (tok_vocab_n_specials(t->vocab) > 0) {
        const char *content;
        t->eod = tok_vocab_special(t->vocab, 0, &content);
    }
    return 0;
}

static int open_data(struct trainer *t)
{
    unsigned what = (t->opts.what & TRAINER_DATA ? LOADER_TRAIN : 0) | (t->opts.what & TRAINER_VALID ? LOADER_VALID : 0);
    struct loader_vocab v = { .vocab_size = t->cfg->model.vocab_size };

    if (!what || t->opts.plan_only || t->opts.what & TRAINER_SYNTHETIC)
        return 0;
    if (t->vocab) {
        v.hash = tok_vocab_hash(t->vocab);
        v.vocab_size = tok_vocab_size(t->vocab);
        v.byte_len = tok_vocab_text_bytes(t->vocab);
    }
    return loader_open(&t->cfg->data, t->vocab ? &v : NULL, (int)what, &t->loader);
}

static double ns_flops(const void *ctx, const struct param *p)
{
    return optim_ns_flops(p, ctx);
}

/* A group of more than one rank becomes a communicator. */
static int join(struct trainer *t, enum mesh_kind kind, struct comm **out)
{
    struct mesh_group g = mesh_group(t->mesh, kind, rank_of(t));

    *out = NULL;
    /* Every rank splits, or none does: groups of a kind have one size. */
    return g.size == 1 ? 0 : comm_split(t->opts.world, g.colour, g.me, mesh_kind_name(kind), out);
}

/* Who holds which rows of a parameter, in row order, for saving. */
static void index_rows(struct trainer *t)
{
    int64_t n = plan_n_parts(t->plan);
    int *fill = arena_array(t->arena, (size_t)t->table.n + 1, sizeof *fill);

    t->rows = arena_array(t->arena, (size_t)n, sizeof *t->rows);
    t->rows_at = arena_array(t->arena, (size_t)t->table.n + 1, sizeof *t->rows_at);
    for (int64_t k = 0; k < n; k++)
        t->rows_at[plan_part(t->plan, k)->i_param + 1]++;
    for (int i = 0; i < t->table.n; i++)
        t->rows_at[i + 1] += t->rows_at[i];
    for (int64_t k = 0; k < n; k++) {
        const struct plan_part *p = plan_part(t->plan, k);
        /* Parts of one parameter come in row order. */
        t->rows[t->rows_at[p->i_param] + fill[p->i_param]++] = (struct ckpt_rows){
            .first_row = p->first_row, .n_rows = p->n_rows, .holder = p->owner, .stride = mesh_shard(t->mesh),
            .n_holders = t->mesh.replicas,
        };
    }
}

/* Which of our parts this replica steps, and who has the state of every row. */
static void share_steps(struct trainer *t)
{
    int64_t n = plan_n_parts(t->plan);
    int *step_of = NULL, *of = NULL, *at;

    t->step_rows = t->rows;
    if (t->cfg->split_replicas && t->replica) {
        of = arena_array(t->arena, (size_t)n + 1, sizeof *of);
        step_of = arena_array(t->arena, (size_t)t->own.n_parts + 1, sizeof *step_of);
        at = arena_array(t->arena, (size_t)t->table.n, sizeof *at);
        t->step_rows = arena_array(t->arena, (size_t)n + 1, sizeof *t->step_rows);
        memcpy(t->step_rows, t->rows, (size_t)n * sizeof *t->rows);
        sharing_replica(t->arena, t->plan, of);
        for (int64_t k = 0; k < n; k++) {
            const struct plan_part *p = plan_part(t->plan, k);
            struct ckpt_rows *r = &t->step_rows[t->rows_at[p->i_param] + at[p->i_param]++];
            r->holder = of[k] * mesh_shard(t->mesh) + p->owner;
            r->n_holders = r->stride = 1;
            if (p->owner == t->own.owner)
                step_of[t->own.of_param[p->i_param]] = of[k];
        }
    }
    t->replicas = replicas_new(t->arena, &t->table, &t->own, t->replica, step_of);
    t->stepped = replicas_stepped(t->replicas);
}

/* Mesh, plan, and what of it is ours. */
static int take_place(struct trainer *t)
{
    const struct run_config *c = t->cfg;
    struct plan_costs costs = { optim_state_bytes, ns_flops, &c->optim };
    int world = t->opts.world ? comm_size(t->opts.world) : 1;

    TRY(mesh_make(c->replicas, c->efsdp, c->ep, world, c->model.num_experts, &t->mesh));
    if (t->opts.plan)
        TRY(plan_load(t->opts.plan, &t->table, run_config_plan_digest(c), &t->plan));
    else
        TRY(plan_make(&t->table, &costs, run_config_plan_digest(c), t->mesh, &t->plan));
    struct mesh m = plan_mesh(t->plan);
    if (m.replicas != t->mesh.replicas || m.efsdp != t->mesh.efsdp || m.ep != t->mesh.ep) {
        char a[40], b[40];
        return err_set(ERR_USAGE, "%s: a plan for %s ranks, but the run has %s", t->opts.plan, mesh_text(a, m), mesh_text(b, t->mesh));
    }
    if (c->tokens_per_step % (c->micro_tokens * world))
        return err_set(ERR_USAGE, "train.tokens_per_step: %lld is not a multiple of %d ranks x train.micro_tokens %lld",
                       (long long)c->tokens_per_step, world, (long long)c->micro_tokens);
    layout_owned(t->arena, t->plan, mesh_owner(t->mesh, rank_of(t)), &t->own);
    index_rows(t);
    t->tapes = fsdp_tapes_new(t->arena);
    return 0;
}

/* Everything that may fail on one rank before ranks first wait for each other. */
static int prepare(struct trainer *t)
{
    TRY(run_config_check_built(t->cfg));
    TRY(load_vocab(t));
    TRY(open_data(t));
    TRY(params_build(t->arena, &t->cfg->model, &t->table));
    t->rounds = arena_array(t->arena, (size_t)(2 * t->cfg->model.num_hidden_layers), sizeof *t->rounds);
    t->bias_range = t->rounds + t->cfg->model.num_hidden_layers;
    return take_place(t);
}

/* Collective.  The groups we talk in. */
static int join_groups(struct trainer *t)
{
    TRY(join(t, MESH_SHARD, &t->groups.shard));
    TRY(join(t, MESH_EFSDP, &t->groups.efsdp));
    TRY(join(t, MESH_REPLICA, &t->replica));
    TRY(join(t, MESH_EP, &t->ep));
    share_steps(t);
    return 0;
}

int trainer_open(const struct run_config *cfg, const struct trainer_options *o, struct trainer **out)
{
    struct trainer *t = calloc(1, sizeof *t);
    struct dev_options dopt = { .threads = o->threads };
    struct dev trace = { 0 }, real = { 0 };
    int rc;

    if (!t)
        return err_set(ERR_IO, "out of memory");
    t->cfg = cfg;
    t->opts = *o;
    t->arena = arena_new();
    t->build = arena_new();
    t->mem = mem_new();
    TRY_OUT(rc, world_agree(o->world, prepare(t)));
    TRY_OUT(rc, join_groups(t));
    TRY_OUT(rc, dev_open(o->device, &dopt, &real));
    if (!real.ops->takes(DT_F32)) {
        rc = err_set(ERR_ABSENT, "device %s does not compute in fp32", o->device);
        goto out;
    }
    if (o->timed)
        TRY_OUT(rc, timed_open(&real, &real));
    TRY_OUT(rc, trace_open(&real, &trace));
    mem_record(t->mem);
    t->dev = trace;
    TRY_OUT(rc, build(t));
    TRY_OUT(rc, record(t));
    TRY_OUT(rc, mem_plan(t->mem));
    if (!o->plan_only) {
        arena_reset(t->build);
        t->model = NULL;
        t->optim = NULL;
        t->fsdp = NULL;
        TRY_OUT(rc, mem_carve(t->mem));
        t->dev = real;
        TRY_OUT(rc, build(t));
        TRY_OUT(rc, mem_seal(t->mem));
        dev_close(&trace);
        memset(&real, 0, sizeof real);
    } else {
        dev_close(&real);
    }
    *out = t;
    return 0;
out:
    if (t->dev.ops == trace.ops)
        memset(&t->dev, 0, sizeof t->dev);
    if (trace.ops)
        dev_close(&trace);
    if (real.ops && t->dev.ops != real.ops)
        dev_close(&real);
    trainer_close(t);
    return rc;
}

void trainer_close(struct trainer *t)
{
    if (!t)
        return;
    if (t->dev.ops)
        dev_close(&t->dev);
    loader_close(t->loader);
    tok_vocab_free(t->vocab);
    free(t->vocab_text);
    mem_free(t->mem);
    comm_close(t->ep);
    comm_close(t->replica);
    comm_close(t->groups.efsdp);
    comm_close(t->groups.shard);
    plan_free(t->plan);
    arena_free(t->build);
    arena_free(t->arena);
    free(t);
}

void trainer_init(struct trainer *t)
{
    for (int i = 0; i < t->own.n_parts; i++) {
        const struct owned_part *p = &t->own.parts[i];
        params_init(&t->table, p->i_param, (uint64_t)t->cfg->init_seed, t->cfg->init_std, p->first_row, p->n_rows,
                    t->master + p->offset);
    }
    t->step = t->next_data = t->tokens = 0;
}

int64_t trainer_samples(const struct trainer *t)
{
    return t->cfg->tokens_per_step / t->cfg->data.seq_len;
}

float *trainer_owned(const struct trainer *t, float *flat, int i_param)
{
    int i = t->own.of_param[i_param];

    return i < 0 ? NULL : flat + t->own.parts[i].offset;
}

const char *trainer_kernels(const struct trainer *t)
{
    return t->dev.ops->name;
}
