/* parity.c -- see parity.h: the layouts one after another, and the verdicts.
 *
 * Every layout is a trainer of its own on the first ranks of the world, closed
 * before the next one opens.  What the first one leaves behind is the routing
 * (on all ranks) and whole tensors (on rank 0). */
#include "train/parity_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pool.h"
#include "comm/comm.h"

#define TIE_ULPS 64             /* scores closer than this may fall either way */

const char *parity_what_name(enum parity_what w)
{
    static const char *const names[PARITY_N] = { "start", "routing", "counts", "loss", "norm", "gradient", "update", "bias",
                                                 "replicas" };

    return names[w];
}

static _Bool leads(const struct parity *v) { return comm_rank(v->o->world) == 0; }

static int64_t cells(const struct parity *v) { return v->cfg->model.num_hidden_layers * v->cfg->model.num_experts; }

/* ---- routing: what the trainer asks and tells */

static uint16_t *tape_at(struct parity *v, int64_t micro)
{
    return v->tape + (v->step * v->n_micro + micro) * v->micro_slots;
}

static const uint16_t *forced(void *ctx, int64_t micro)
{
    struct parity *v = ctx;

    return v->is_first ? NULL : tape_at(v, micro);
}

/* Host copies of what one layer's router saw; scratch. */
static int compare_choice(struct parity *v, int64_t micro, int layer, const struct router *r, const uint16_t *own,
                          const uint16_t *followed)
{
    struct arena *a = arena_new();
    struct dev *d = &v->t->dev;
    size_t n = (size_t)r->n_tokens, k = (size_t)r->top_k, n_e = (size_t)r->n_experts;
    uint16_t *mine = arena_array(a, n * k, sizeof *mine);
    float *logits = arena_array(a, n * n_e, sizeof *logits), *bias = r->bias ? arena_array(a, n_e, sizeof *bias) : NULL;
    int rc;

    d->ops->copy(d, mine, own, n * k * sizeof *mine);
    d->ops->copy(d, logits, r->logits.p, n * n_e * sizeof *logits);
    if (bias)
        d->ops->copy(d, bias, r->bias, n_e * sizeof *bias);
    TRY_OUT(rc, d->ops->sync(d));
    for (size_t i = 0; i < n; i++) {
        double gap = parity_gap_ulps(r, logits + i * n_e, bias, mine + i * k, followed + i * k);
        v->gap.n_tokens += gap > 0;
        /* A NaN is the largest of all. */
        if (gap > 0 && !(gap <= v->gap.ulps)) {
            v->gap.ulps = gap;
            v->gap.step = v->step;
            v->gap.micro = micro;
            v->gap.layer = layer;
            v->gap.token = (int64_t)i;
        }
    }
out:
    arena_free(a);
    return rc;
}

static int routed(void *ctx, int64_t micro, int layer, const struct router *r, const uint16_t *own)
{
    struct parity *v = ctx;
    struct dev *d = &v->t->dev;
    uint16_t *tape = tape_at(v, micro) + layer * v->cfg->micro_tokens * r->top_k;

    if (!v->is_first)
        return compare_choice(v, micro, layer, r, own, tape);
    d->ops->copy(d, tape, r->idx, (size_t)(r->n_tokens * r->top_k) * sizeof *tape);
    return d->ops->sync(d);
}

/* Collective in the world: what the first layout decided. */
static int share_tape(struct parity *v, int n_ranks)
{
    struct comm *w = v->o->world;

    for (v->step = 0; v->step < v->o->steps; v->step++)
        for (int64_t i = 0; i < v->n_micro; i++)
            TRY(comm_broadcast(w, (int)(i % n_ranks), tape_at(v, i), v->micro_slots * (int64_t)sizeof *v->tape));
    return comm_broadcast(w, 0, v->counts, v->o->steps * cells(v) * (int64_t)sizeof *v->counts);
}

/* ---- verdicts */

/* How much of its limit an error uses up; a NaN is more than any. */
static double used(double error, double limit)
{
    if (error <= 0)
        return 0;
    return limit > 0 && error < INFINITY ? error / limit : INFINITY;
}

static void judge(struct parity *v, enum parity_what what, int64_t step, double error, double limit, const char *where)
{
    struct parity_worst *w = &v->worst[what];

    if (w->seen && !(used(error, limit) > used(w->error, w->limit)))
        return;
    w->seen = 1;
    w->error = error;
    w->limit = limit;
    w->step = step;
    snprintf(w->where, sizeof w->where, "%s", error > 0 || isnan(error) ? where : "");
}

static void report(struct parity *v)
{
    for (int i = 0; i < PARITY_N; i++) {
        const struct parity_worst *w = &v->worst[i];
        struct parity_row r = { .mesh = v->mesh, .what = (enum parity_what)i, .worst = w->where, .step = w->step,
                                .error = w->error, .limit = w->limit };
        if (!w->seen)
            continue;
        r.ok = w->error <= w->limit;
        r.verdict = r.ok ? "ok" : i == PARITY_ROUTING ? "routing differs without a tie" : "limit passed";
        v->failed |= !r.ok;
        v->o->row(v->o->ctx, &r);
    }
}

static double relative(double x, double was)
{
    return x == was ? 0 : fabs(x - was) / fabs(was);
}

static void compare_facts(struct parity *v, const struct step_facts *f)
{
    const struct step_facts *was = &v->steps[v->step].f;
    double limit = parity_loss_limit(v);

    judge(v, PARITY_LOSS, v->step + 1, relative(f->ce, was->ce), limit, "cross entropy");
    judge(v, PARITY_LOSS, v->step + 1, relative(f->aux, was->aux), limit, "balance loss");
    judge(v, PARITY_LOSS, v->step + 1, relative(f->z, was->z), limit, "z-loss");
    judge(v, PARITY_NORM, v->step + 1, relative(f->norm, was->norm), parity_gradient_limit(v), "all gradients");
}

/* Largest difference over largest value.  A gradient of exactly 0, that of an
 * expert without tokens, is 0 everywhere. */
static double gradient_error(const float *g, const float *was, int64_t n)
{
    double diff = 0, max = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)g[i] - was[i]);
        if (!(d <= diff))
            diff = d;
        max = fmax(max, fabs((double)was[i]));
    }
    return diff == 0 ? 0 : max == 0 ? INFINITY : diff / max;
}

static void compare_gradients(struct parity *v)
{
    for (int i = 0; i < v->table->n; i++) {
        const struct param *p = &v->table->v[i];
        if (p->optim != PARAM_NONE)
            judge(v, PARITY_GRADIENT, v->step + 1,
                  gradient_error(v->g + p->offset, v->steps[v->step].g + p->offset, p->rows * p->cols),
                  parity_gradient_limit(v), p->name);
    }
}

static double largest_difference(const float *x, const float *was, int64_t n)
{
    double diff = 0;

    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - was[i]) <= diff))
            diff = fabs((double)x[i] - was[i]);
    return diff;
}

static void compare_updates(struct parity *v, const struct step_facts *f)
{
    const struct parity_step *s = &v->steps[v->step];
    _Bool clipped;
    double scale = optim_clip(&v->cfg->optim, f->norm, &clipped), was = optim_clip(&v->cfg->optim, s->f.norm, &clipped);

    for (int i = 0; i < v->table->n; i++) {
        const struct param *p = &v->table->v[i];
        if (p->optim == PARAM_NONE) {
            judge(v, PARITY_BIAS, v->step + 1, largest_difference(v->w + p->offset, s[1].w + p->offset, p->rows * p->cols), 0,
                  p->name);
            continue;
        }
        double error, limit = parity_update_limit(v, i, s, s[1].w, relative(scale, was), &error);
        judge(v, PARITY_UPDATE, v->step + 1, error, limit, p->name);
    }
}

static void compare_counts(struct parity *v)
{
    const int64_t *was = v->counts + v->step * cells(v), n_e = v->cfg->model.num_experts;
    char where[64] = "";
    int64_t most = 0;

    for (int64_t i = 0; i < cells(v); i++)
        if (llabs(v->t->counts[i] - was[i]) > most) {
            most = llabs(v->t->counts[i] - was[i]);
            snprintf(where, sizeof where, "layer %" PRId64 " expert %" PRId64, i / n_e, i % n_e);
        }
    judge(v, PARITY_COUNTS, v->step + 1, (double)most, 0, where);
}

/* Collective in the layout. */
static int compare_routing(struct parity *v)
{
    int n = comm_size(v->comm);
    struct parity_gap *all = arena_array(v->arena, (size_t)n, sizeof *all), worst;
    char where[128];

    TRY(comm_all_gather(v->comm, &v->gap, sizeof v->gap, all));
    worst = all[0];
    for (int r = 1; r < n; r++) {
        int64_t n_tokens = worst.n_tokens + all[r].n_tokens;
        if (!(all[r].ulps <= worst.ulps))
            worst = all[r];
        worst.n_tokens = n_tokens;
    }
    snprintf(where, sizeof where, "layer %d token %" PRId64 " (%" PRId64 " differ)", worst.layer,
             worst.micro * v->cfg->micro_tokens + worst.token, worst.n_tokens);
    judge(v, PARITY_ROUTING, worst.step + 1, worst.ulps, nextafter(TIE_ULPS, 0), where);
    return 0;
}

/* Collective in the layout: the same weights in every replica. */
static int compare_replicas(struct parity *v)
{
    struct hash mine = hash_bytes(v->t->master, (size_t)v->t->own.n_elems * sizeof(float)), *all;
    int n = comm_size(v->comm), shard = mesh_shard(v->mesh), bad = 0;
    char where[64] = "";

    all = arena_array(v->arena, (size_t)n, sizeof *all);
    TRY(comm_all_gather(v->comm, &mine, sizeof mine, all));
    for (int r = shard; r < n; r++)
        if (!hash_eq(&all[r], &all[r % shard])) {
            if (!bad)
                snprintf(where, sizeof where, "rank %d and rank %d", r % shard, r);
            bad++;
        }
    if (v->mesh.replicas > 1)
        judge(v, PARITY_REPLICAS, v->step + 1, bad, 0, where);
    return 0;
}

/* ---- steps */

/* Weights and moments of the first layout. */
static int take_over(struct parity *v)
{
    struct trainer *t = v->t;
    const struct parity_step *s = &v->steps[v->step];

    TRY(parity_scatter(v, PARITY_MASTER, s->w));
    TRY(parity_scatter(v, PARITY_FIRST, s->first));
    TRY(parity_scatter(v, PARITY_SECOND, s->second));
    memcpy(t->last_counts, v->counts + (v->step - 1) * cells(v), (size_t)cells(v) * sizeof *t->last_counts);
    trainer_set_shares(t);
    fsdp_stale(t->fsdp);
    return 0;
}

/* Weights are drawn, not read, so layouts may differ there already. */
static int start(struct parity *v)
{
    struct parity_step *s = &v->steps[0];

    trainer_init(v->t);
    if (v->is_first)
        return parity_gather(v, PARITY_MASTER, s->w);
    TRY(parity_gather(v, PARITY_MASTER, v->w));
    for (int i = 0; leads(v) && i < v->table->n; i++) {
        const struct param *p = &v->table->v[i];
        judge(v, PARITY_START, 0, largest_difference(v->w + p->offset, s->w + p->offset, p->rows * p->cols), 0, p->name);
    }
    return 0;
}

/* What the first layout leaves of its step. */
static int keep(struct parity *v, const struct step_facts *f)
{
    struct parity_step *s = &v->steps[v->step];

    s->f = *f;
    memcpy(v->counts + v->step * cells(v), v->t->counts, (size_t)cells(v) * sizeof *v->counts);
    TRY(parity_gather(v, PARITY_MASTER, s[1].w));
    TRY(parity_gather(v, PARITY_FIRST, s[1].first));
    return parity_gather(v, PARITY_SECOND, s[1].second);
}

static int compare(struct parity *v, const struct step_facts *f)
{
    TRY(parity_gather(v, PARITY_MASTER, v->w));
    TRY(compare_replicas(v));
    if (!leads(v))
        return 0;
    compare_counts(v);
    compare_facts(v, f);
    compare_gradients(v);
    compare_updates(v, f);
    return 0;
}

static int one_step(struct parity *v)
{
    struct step_facts f;

    comm_set_step(v->comm, v->step + 1);
    if (v->step > 0 && !v->is_first)
        TRY(take_over(v));
    TRY(trainer_gradients(v->t, &f));
    if (f.n_valid == 0) {
        v->agreed = 1;
        return err_set(ERR_DATA, "step %" PRId64 ": no token has a target, there is nothing to compare", f.step);
    }
    TRY(parity_gather(v, PARITY_GRADS, v->is_first ? v->steps[v->step].g : v->g));
    TRY(trainer_update(v->t, &f));
    return v->is_first ? keep(v, &f) : compare(v, &f);
}

static int all_steps(struct parity *v)
{
    TRY(start(v));
    for (v->step = 0; v->step < v->o->steps; v->step++)
        TRY(one_step(v));
    return v->is_first ? 0 : compare_routing(v);
}

/* ---- layouts */

static int open_trainer(struct parity *v, const struct run_config *c)
{
    static const unsigned what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA;
    struct trainer_options o = { .what = what | (v->o->synthetic ? TRAINER_SYNTHETIC : 0), .device = v->o->device,
                                 .threads = v->o->threads, .world = v->comm, .routing = &v->routing };

    v->routing = (struct trainer_routing){ .ctx = v, .forced = forced, .routed = routed };
    TRY(trainer_open(c, &o, &v->t));
    v->table = &v->t->table;
    return 0;
}

/* Tensors of rank 0, when their size is known; the others have none. */
static int have_memory(struct parity *v)
{
    size_t n = (size_t)v->table->n_elems;
    float **all[4];

    if (v->steps)
        return 0;
    v->steps = arena_array(v->arena, (size_t)v->o->steps + 1, sizeof *v->steps);
    for (int64_t i = 0; leads(v) && i <= v->o->steps; i++) {
        struct parity_step *s = &v->steps[i];
        all[0] = &s->w;
        all[1] = &s->first;
        all[2] = &s->second;
        all[3] = &s->g;
        for (int k = 0; k < (i < v->o->steps ? 4 : 3); k++)
            if (!(*all[k] = pool_calloc(n, sizeof(float))))
                return err_set(ERR_IO, "out of memory for the tensors of the first layout");
    }
    if (!leads(v))
        return 0;
    v->g = pool_calloc(n, sizeof *v->g);
    v->w = pool_calloc(n, sizeof *v->w);
    return v->g && v->w ? 0 : err_set(ERR_IO, "out of memory for the tensors of a layout");
}

static void free_memory(struct parity *v)
{
    for (int64_t i = 0; v->steps && i <= v->o->steps; i++) {
        pool_free(v->steps[i].w);
        pool_free(v->steps[i].first);
        pool_free(v->steps[i].second);
        pool_free(v->steps[i].g);
    }
    pool_free(v->g);
    pool_free(v->w);
    pool_free(v->tape);
    pool_free(v->counts);
}

/* Collective in the world. */
static int one_layout(struct parity *v, struct mesh mesh)
{
    struct comm *world = v->o->world;
    struct run_config c = *v->cfg;
    int n = mesh_world(mesh), rc;
    char text[40];

    c.replicas = mesh.replicas;
    c.efsdp = mesh.efsdp;
    c.ep = mesh.ep;
    v->mesh = mesh;
    memset(v->worst, 0, sizeof v->worst);
    v->gap = (struct parity_gap){ 0 };
    v->agreed = 0;
    TRY(comm_split(world, comm_rank(world) < n ? 0 : -1, comm_rank(world), "layout", &v->comm));
    if (v->comm) {
        rc = open_trainer(v, &c);
        if (rc >= 0)
            rc = have_memory(v);
        if (rc < 0)
            err_add("layout %s", mesh_text(text, mesh));
    } else {
        rc = 0;
    }
    TRY_OUT(rc, comm_agree(world, rc));
    if (leads(v))
        log_info("layout %s: %d rank%s", mesh_text(text, mesh), n, n == 1 ? "" : "s");
    if (v->comm)
        rc = all_steps(v);
    /* Anything that only some ranks know of would leave the others waiting. */
    if (rc < 0 && !v->agreed && !v->t->agreed)
        comm_abort(world, rc, "layout %s: %s", mesh_text(text, mesh), err_msg());
    if (rc < 0)
        err_add("layout %s", mesh_text(text, mesh));
    int of_first = rc;
    TRY_OUT(rc, comm_broadcast(world, 0, &of_first, sizeof of_first));
    if ((rc = of_first) < 0) {
        /* One voice. */
        if (!leads(v))
            err_set(rc, "%s", "");
        goto out;
    }
    if (v->is_first)
        TRY_OUT(rc, share_tape(v, n));
    else if (leads(v))
        report(v);
out:
    trainer_close(v->t);
    v->t = NULL;
    comm_close(v->comm);
    v->comm = NULL;
    return rc;
}

static int check_options(const struct run_config *c, const struct parity_options *o)
{
    char text[40];

    if (o->n_layouts < 2)
        return err_set(ERR_USAGE, "one layout alone has nothing to be compared with");
    for (int i = 0; i < o->n_layouts; i++) {
        struct mesh m = o->layouts[i];
        int n = mesh_world(m);
        if (n > comm_size(o->world))
            return err_set(ERR_USAGE, "layout %s needs %d ranks, there are %d", mesh_text(text, m), n, comm_size(o->world));
        if (mesh_make(m.replicas, m.efsdp, m.ep, n, c->model.num_experts, &m) < 0)
            return err_add("layout %s", mesh_text(text, m));
        if (c->tokens_per_step % (c->micro_tokens * n))
            return err_set(ERR_USAGE, "layout %s: train.tokens_per_step %lld is not a multiple of %d ranks x train.micro_tokens %lld",
                           mesh_text(text, m), (long long)c->tokens_per_step, n, (long long)c->micro_tokens);
    }
    return 0;
}

int parity_run(const struct run_config *cfg, const struct parity_options *o)
{
    struct run_config c = *cfg;
    struct parity v = { .cfg = &c, .o = o };
    int failed, rc;

    /* All ranks find the same; one voice. */
    rc = check_options(cfg, o);
    if (rc < 0)
        return leads(&v) ? rc : err_set(rc, "%s", "");
    v.arena = arena_new();
    /* A number that is not finite is an answer here, not a reason to go on. */
    c.nonfinite = NONFINITE_STOP;
    v.n_micro = c.tokens_per_step / c.micro_tokens;
    v.micro_slots = c.model.num_hidden_layers * c.micro_tokens * c.model.num_experts_per_tok;
    v.tape = pool_calloc((size_t)(o->steps * v.n_micro * v.micro_slots), sizeof *v.tape);
    v.counts = pool_calloc((size_t)(o->steps * cells(&v)), sizeof *v.counts);
    rc = v.tape && v.counts ? 0 : err_set(ERR_IO, "out of memory for the routing of %" PRId64 " steps", o->steps);
    TRY_OUT(rc, comm_agree(o->world, rc));
    for (int i = 0; i < o->n_layouts; i++) {
        v.is_first = i == 0;
        TRY_OUT(rc, one_layout(&v, o->layouts[i]));
    }
    failed = v.failed;
    TRY_OUT(rc, comm_broadcast(o->world, 0, &failed, sizeof failed));
    rc = failed ? err_set(ERR_NO, "%s", "") : 0;
out:
    free_memory(&v);
    arena_free(v.arena);
    return rc;
}
