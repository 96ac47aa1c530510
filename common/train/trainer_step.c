/* trainer_step.c -- the step, written once: gradients of a global batch, then the
 * update.  moe-train grad stops between the two and moe-optstep begins there,
 * which is why they are two functions and share every line. */
#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "train/synthetic.h"

static struct model_batch batch_of(struct trainer *t, double *pairs)
{
    const struct batch *b = &t->batch;
    int64_t n = b->n_seqs * b->seq_len;

    for (int64_t i = 0; i < n; i++)
        t->valid[i] = b->targets[i] >= 0;
    for (int64_t i = 0; i < n; i++)
        *pairs += b->positions[i] + 1;
    return (struct model_batch){ .n_tokens = n, .seq_len = b->seq_len, .ids = b->ids, .targets = b->targets,
                                 .valid = t->valid, .n_valid = b->n_valid, .doc_start = b->doc_start,
                                 .positions = b->positions };
}

static int next_samples(struct trainer *t, int64_t first, int64_t n)
{
    if (!(t->opts.what & TRAINER_SYNTHETIC))
        return loader_samples(t->loader, first, n, &t->batch);
    synthetic_samples(t->cfg, first, n, &t->batch);
    return 0;
}

static int valid_targets(struct trainer *t, int64_t first, int64_t n, int64_t *out)
{
    if (!(t->opts.what & TRAINER_SYNTHETIC))
        return loader_valid_targets(t->loader, first, n, out);
    *out = synthetic_valid_targets(t->cfg, first, n);
    return 0;
}

static int n_ranks(const struct trainer *t) { return t->opts.world ? comm_size(t->opts.world) : 1; }
static int my_rank(const struct trainer *t) { return t->opts.world ? comm_rank(t->opts.world) : 0; }

/* Sums of this rank become those of all; in ascending rank order, so that every
 * rank holds the same bits. */
static int share_sums(struct trainer *t, double *v, int64_t n)
{
    return t->opts.world ? comm_all_reduce(t->opts.world, v, n, DT_F64, COMM_SUM) : 0;
}

static int share_counts(struct trainer *t)
{
    int64_t cells = t->cfg->model.num_hidden_layers * t->cfg->model.num_experts;

    return t->opts.world ? comm_all_reduce(t->opts.world, t->counts, cells, DT_I64, COMM_SUM) : 0;
}

/* What can fail on one rank alone (files) is agreed before the part in which
 * ranks wait for each other. */
static int agreed(struct trainer *t, int rc)
{
    if (!t->opts.world)
        return rc;
    rc = comm_agree(t->opts.world, rc);
    t->agreed = rc < 0;
    return rc;
}

static double waited(const struct trainer *t)
{
    struct comm_counts n = { .wait_s = 0 };

    if (t->opts.world)
        comm_counts(t->opts.world, &n);
    return n.wait_s;
}

/* The most rounds of any micro-batch. */
static void note_rounds(struct trainer *t)
{
    for (int64_t l = 0; l < t->cfg->model.num_hidden_layers; l++)
        if (t->table.layers[l].router >= 0)
            t->rounds[l] = fmax(t->rounds[l], (double)model_rounds(t->model, (int)l));
}

int trainer_layer_facts(struct trainer *t)
{
    const struct model_config *m = &t->cfg->model;

    for (int64_t l = 0; l < m->num_hidden_layers; l++) {
        int i = t->table.layers[l].router_bias;
        const float *b = i >= 0 ? trainer_owned(t, t->master, i) : NULL;
        float lo = 0, hi = 0;
        for (int64_t e = 0; b && e < m->num_experts; e++) {
            lo = e == 0 || b[e] < lo ? b[e] : lo;
            hi = e == 0 || b[e] > hi ? b[e] : hi;
        }
        t->bias_range[l] = hi - lo;
    }
    return t->opts.world ? comm_all_reduce(t->opts.world, t->rounds, 2 * m->num_hidden_layers, DT_F64, COMM_MAX) : 0;
}

/* The routing that micro-batch i of the step has to follow; NULL: its own. */
static const uint16_t *forced(struct trainer *t, int64_t i)
{
    const struct trainer_routing *r = t->opts.routing;
    const struct model_config *m = &t->cfg->model;

    t->micro = i;
    const uint16_t *idx = r ? r->forced(r->ctx, i) : NULL;
    if (!idx)
        return NULL;
    t->dev.ops->copy(&t->dev, t->forced, idx, (size_t)(m->num_hidden_layers * t->cfg->micro_tokens * m->num_experts_per_tok) *
                                              sizeof *idx);
    return t->forced;
}

/* One micro-batch of this rank; v: nll, aux, z, pairs are added to. */
static int micro_batch(struct trainer *t, struct step_facts *f, int64_t sample, int64_t i, _Bool first, double v[4])
{
    const struct run_config *c = t->cfg;
    struct model_sums sums = { 0 };
    double t0 = clock_s();

    if (agreed(t, next_samples(t, sample, c->micro_tokens / c->data.seq_len)) < 0)
        return err_add("step %lld", (long long)f->step);
    struct model_batch b = batch_of(t, &v[3]);
    f->data_s += clock_s() - t0;
    t0 = clock_s();
    TRY(fsdp_begin(t->fsdp, "train"));
    TRY(mem_begin(t->mem, "train"));
    TRY(model_train(t->model, &b, 1 / (double)f->n_valid, fsdp_first(t->fsdp, first),
                    c->aux_scope == AUX_BATCH ? t->frac : NULL, forced(t, i), t->counts, &sums));
    TRY(mem_end(t->mem));
    note_rounds(t);
    f->fwd_s += sums.fwd_s;
    f->bwd_s += clock_s() - t0 - sums.fwd_s;
    v[0] += sums.nll;
    v[1] += sums.aux;
    v[2] += sums.z;
    return 0;
}

int trainer_gradients(struct trainer *t, struct step_facts *f)
{
    const struct run_config *c = t->cfg;
    int64_t n = trainer_samples(t), per_micro = c->micro_tokens / c->data.seq_len, first = t->next_data * n;
    int64_t cells = c->model.num_hidden_layers * c->model.num_experts;
    double t0 = clock_s(), waited0 = waited(t), v[4] = { 0 };

    memset(f, 0, sizeof *f);
    memset(t->rounds, 0, (size_t)c->model.num_hidden_layers * sizeof *t->rounds);
    f->step = t->step + 1;
    f->n_tokens = c->tokens_per_step;
    TRY(agreed(t, valid_targets(t, first, n, &f->n_valid)));
    f->data_s = clock_s() - t0;
    memset(t->counts, 0, (size_t)cells * sizeof *t->counts);
    if (f->n_valid == 0)
        return 0;

    /* Micro-batch i of the step belongs to rank i mod world. */
    for (int64_t i = my_rank(t) * per_micro; i < n; i += n_ranks(t) * per_micro)
        TRY(micro_batch(t, f, first + i, i / per_micro, i < n_ranks(t) * per_micro, v));
    t0 = clock_s();
    TRY(fsdp_finish(t->fsdp));
    TRY(replicas_sum(t->replicas, &t->dev, t->grads));
    f->own_finite = isfinite(v[0] + v[1] + v[2]);
    TRY(share_sums(t, v, 4));
    TRY(share_counts(t));
    f->bwd_s += clock_s() - t0;
    f->comm_s = waited(t) - waited0;
    f->ce = v[0] / (double)f->n_valid;
    f->aux = c->aux_coef * v[1] / (double)f->n_valid;
    f->z = c->z_coef * v[2] / (double)f->n_valid;
    f->pairs = v[3];
    f->loss = f->ce + f->aux + f->z;
    return 0;
}

void trainer_set_shares(struct trainer *t)
{
    const struct model_config *m = &t->cfg->model;

    for (int64_t l = 0; l < m->num_hidden_layers; l++) {
        const int64_t *n = t->last_counts + l * m->num_experts;
        int64_t total = 0;
        for (int64_t e = 0; e < m->num_experts; e++)
            total += n[e];
        for (int64_t e = 0; e < m->num_experts; e++)
            t->frac[l * m->num_experts + e] = total ? (double)n[e] / (double)total : 0;
    }
}

static void update_biases(struct trainer *t)
{
    const struct model_config *m = &t->cfg->model;

    for (int64_t l = 0; l < m->num_hidden_layers; l++) {
        int i = t->table.layers[l].router_bias;
        float *bias = i >= 0 ? trainer_owned(t, t->master, i) : NULL;
        if (bias && t->cfg->bias_rate > 0)
            optim_bias_update(bias, t->counts + l * m->num_experts, (int)m->num_experts, t->cfg->bias_rate);
    }
}

int trainer_update(struct trainer *t, struct step_facts *f)
{
    const struct run_config *c = t->cfg;
    double t0 = clock_s(), waited0 = waited(t);
    double lr = optim_schedule(&c->optim, c->steps, t->step);
    _Bool finite = 1;
    double *sq = NULL;

    f->lr_muon = c->optim.muon_lr * lr;
    f->lr_adamw = c->optim.adamw_lr * lr;
    TRY(mem_begin(t->mem, "optim"));
    if (f->n_valid > 0) {
        TRY(optim_squares(t->optim, t->grads, &sq));
        TRY(replicas_squares(t->replicas, sq, t->table.n));
        if (t->groups.shard)
            TRY(comm_all_reduce(t->groups.shard, sq, t->table.n, DT_F64, COMM_SUM));
        f->norm = optim_norm(t->optim, sq);
        finite = isfinite(f->norm) && isfinite(f->loss);
    }
    f->skipped = f->n_valid == 0 || !finite;
    if (!f->skipped) {
        double g_scale = optim_clip(&c->optim, f->norm, &f->clipped);
        TRY(optim_step(t->optim, t->master, t->grads, t->step + 1, lr, g_scale));
        update_biases(t);
        TRY(replicas_spread(t->replicas, &t->dev, t->master));
        memcpy(t->last_counts, t->counts, (size_t)(c->model.num_hidden_layers * c->model.num_experts) * sizeof *t->counts);
        trainer_set_shares(t);
        if (t->fsdp)
            fsdp_stale(t->fsdp);
    }
    TRY(mem_end(t->mem));
    if (!finite && c->nonfinite == NONFINITE_STOP) {
        int rc = trainer_blame(t, f, sq);
        t->agreed = rc == ERR_NO;
        return rc;
    }
    t->agreed = 0;
    t->step += !f->skipped;
    t->next_data++;
    t->tokens += f->n_tokens;
    f->optim_s = clock_s() - t0;
    f->comm_s += waited(t) - waited0;
    return 0;
}

int trainer_step(struct trainer *t, struct step_facts *f)
{
    TRY(trainer_gradients(t, f));
    return trainer_update(t, f);
}

int trainer_eval(struct trainer *t, int i_set, int64_t n_batches, struct eval_facts *out)
{
    const struct run_config *c = t->cfg;
    struct loader_set set = loader_valid_set(t->loader, i_set);
    int64_t per_batch = c->micro_tokens / c->data.seq_len;
    int64_t windows = set.windows;

    if (n_batches > 0 && n_batches * per_batch < windows)
        windows = n_batches * per_batch;
    *out = (struct eval_facts){ .set = set.name };
    double v[3] = { 0 };
    /* Batch i belongs to rank i mod world; a rank that is left without one takes
     * part with an empty batch. */
    for (int64_t round = 0; round < windows; round += n_ranks(t) * per_batch) {
        int64_t i = round + my_rank(t) * per_batch, left = windows - i;
        int64_t n = left < 0 ? 0 : left < per_batch ? left : per_batch;
        struct model_sums sums = { 0 };
        double pairs = 0;
        TRY(agreed(t, loader_valid_windows(t->loader, i_set, n ? i : 0, n, &t->batch)));
        struct model_batch b = batch_of(t, &pairs);
        TRY(fsdp_begin(t->fsdp, "eval"));
        TRY(mem_begin(t->mem, "eval"));
        TRY(model_eval(t->model, &b, t->nll, &sums));
        TRY(mem_end(t->mem));
        v[0] += sums.nll;
        v[1] += (double)b.n_valid;
        v[2] += (double)t->batch.text_bytes;
    }
    TRY(share_sums(t, v, 3));
    out->nll = v[0];
    out->tokens = (int64_t)v[1];
    out->text_bytes = (int64_t)v[2];
    return 0;
}
