/* trainer_step.c -- the step, written once: gradients of a global batch, then the
 * update.  moe-train grad stops between the two and moe-optstep begins there,
 * which is why they are two functions and share every line. */
#include "train/trainer.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "train/synthetic.h"

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

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

int trainer_gradients(struct trainer *t, struct step_facts *f)
{
    const struct run_config *c = t->cfg;
    int64_t n = trainer_samples(t), per_micro = c->micro_tokens / c->data.seq_len, first = t->next_data * n;
    int64_t cells = c->model.num_hidden_layers * c->model.num_experts;
    double t0 = now(), nll = 0, aux = 0, z = 0;

    memset(f, 0, sizeof *f);
    f->step = t->step + 1;
    f->n_tokens = c->tokens_per_step;
    TRY(valid_targets(t, first, n, &f->n_valid));
    f->data_s = now() - t0;
    memset(t->counts, 0, (size_t)cells * sizeof *t->counts);
    if (f->n_valid == 0)
        return 0;

    for (int64_t i = 0; i < n; i += per_micro) {
        struct model_sums sums = { 0 };
        t0 = now();
        TRY(next_samples(t, first + i, per_micro));
        struct model_batch b = batch_of(t, &f->pairs);
        f->data_s += now() - t0;
        t0 = now();
        TRY(mem_begin(t->mem, "train"));
        TRY(model_train(t->model, &b, 1 / (double)f->n_valid, i == 0,
                        c->aux_scope == AUX_BATCH ? t->frac : NULL, NULL, t->counts, &sums));
        TRY(mem_end(t->mem));
        f->fwd_s += sums.fwd_s;
        f->bwd_s += now() - t0 - sums.fwd_s;
        nll += sums.nll;
        aux += sums.aux;
        z += sums.z;
    }
    f->ce = nll / (double)f->n_valid;
    f->aux = c->aux_coef * aux / (double)f->n_valid;
    f->z = c->z_coef * z / (double)f->n_valid;
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
        if (i >= 0 && t->cfg->bias_rate > 0)
            optim_bias_update(t->master + t->table.v[i].offset, t->counts + l * m->num_experts,
                              (int)m->num_experts, t->cfg->bias_rate);
    }
}

int trainer_update(struct trainer *t, struct step_facts *f)
{
    const struct run_config *c = t->cfg;
    double t0 = now();
    double lr = optim_schedule(&c->optim, c->steps, t->step);
    _Bool finite = 1;

    f->lr_muon = c->optim.muon_lr * lr;
    f->lr_adamw = c->optim.adamw_lr * lr;
    TRY(mem_begin(t->mem, "optim"));
    if (f->n_valid > 0) {
        TRY(optim_norm(t->optim, t->grads, &f->norm));
        finite = isfinite(f->norm) && isfinite(f->loss);
    }
    f->skipped = f->n_valid == 0 || !finite;
    if (!f->skipped) {
        double g_scale = optim_clip(&c->optim, f->norm, &f->clipped);
        TRY(optim_step(t->optim, t->master, t->grads, t->step + 1, lr, g_scale));
        update_biases(t);
        memcpy(t->last_counts, t->counts, (size_t)(c->model.num_hidden_layers * c->model.num_experts) * sizeof *t->counts);
        trainer_set_shares(t);
    }
    TRY(mem_end(t->mem));
    if (!finite && c->nonfinite == NONFINITE_STOP)
        return err_set(ERR_NO, "step %lld: the %s is not finite; nothing was updated (train.nonfinite: stop)",
                       (long long)f->step, isfinite(f->loss) ? "gradient" : "loss");
    t->step += !f->skipped;
    t->next_data++;
    t->tokens += f->n_tokens;
    f->optim_s = now() - t0;
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
    for (int64_t i = 0; i < windows; i += per_batch) {
        int64_t n = windows - i < per_batch ? windows - i : per_batch;
        struct model_sums sums = { 0 };
        double pairs = 0;
        TRY(loader_valid_windows(t->loader, i_set, i, n, &t->batch));
        struct model_batch b = batch_of(t, &pairs);
        TRY(mem_begin(t->mem, "eval"));
        TRY(model_eval(t->model, &b, t->nll, &sums));
        TRY(mem_end(t->mem));
        out->nll += sums.nll;
        out->tokens += b.n_valid;
        out->text_bytes += t->batch.text_bytes;
    }
    return 0;
}
