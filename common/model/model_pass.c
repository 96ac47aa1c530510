/* model_pass.c -- the order of a pass: embedding, layers, loss, and back.
 *
 * Invariants: M1 what survives the forward pass is the residual stream at the
 * boundaries and the routing, unless boundary_every is 0.  M2 the gradient of a
 * parameter is written once per pass with beta 0 or 1 (the head: once a chunk),
 * in an order that does not depend on boundary_every.  M3 buffers are taken and
 * given in an order, and with sizes, that follow from the options alone.
 * tests/unit/test_model_train.c checks all three. */
#include "model/block.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "comm/comm.h"

/* ---- set-up */

/* Angles in double, rounded once; through a small buffer, since the table may
 * be device memory and long. */
static int rope_table(struct model *m)
{
    enum { ROWS = 64 };
    int64_t half = m->rot / 2, n = m->o.max_positions;
    size_t size = dtype_size(m->st);
    struct arena *scratch = arena_new();
    char *buf = arena_array(scratch, (size_t)(2 * ROWS * half), size);
    void *p[2];
    int rc = 0;
    TRY_OUT(rc, mem_keep(m->mem, MEM_TABLE, "rope cos", (size_t)(n * half) * size, &p[0]));
    TRY_OUT(rc, mem_keep(m->mem, MEM_TABLE, "rope sin", (size_t)(n * half) * size, &p[1]));
    m->cos = mat(p[0], m->st, n, half);
    m->sin = mat(p[1], m->st, n, half);
    for (int64_t t0 = 0; t0 < n; t0 += ROWS) {
        int64_t rows = n - t0 < ROWS ? n - t0 : ROWS;
        for (int64_t i = 0; i < rows * half; i++) {
            double angle = (double)(t0 + i / half) * pow(m->c->rope_theta, -2.0 * (double)(i % half) / m->rot);
            double v[2] = { cos(angle), sin(angle) };
            for (int j = 0; j < 2; j++) {
                char *to = buf + (size_t)(j * ROWS * half + i) * size;
                float f = (float)v[j];
                memcpy(to, m->st == DT_F64 ? (void *)&v[j] : (void *)&f, size);
            }
        }
        m->ops->copy(m->dev, mat_rows(m->cos, t0, rows).p, buf, (size_t)(rows * half) * size);
        m->ops->copy(m->dev, mat_rows(m->sin, t0, rows).p, buf + (size_t)(ROWS * half) * size, (size_t)(rows * half) * size);
        /* The buffer is filled again. */
        TRY_OUT(rc, m->ops->sync(m->dev));
    }
out:
    arena_free(scratch);
    return rc;
}

int model_new(struct arena *a, const struct param_table *t, const struct model_opts *o,
              struct dev *dev, struct mem *mem, const struct model_io *io, struct model **out)
{
    const struct model_config *c = t->cfg;
    size_t layers = (size_t)c->num_hidden_layers, n_e = (size_t)c->num_experts;
    BUG_ON(o->micro_tokens < 1 || o->loss_chunk < 1 || o->boundary_every < 0 || o->max_positions < 1);
    if (!dev->ops->takes(o->dtype))
        return err_set(ERR_ABSENT, "device %s does not compute in %s", dev->ops->name, dtype_name(o->dtype));
    struct model *m = arena_alloc(a, sizeof *m);
    m->t = t;
    m->c = c;
    m->o = *o;
    m->dev = dev;
    m->ops = dev->ops;
    m->mem = mem;
    m->io = *io;
    m->dt = o->dtype;
    m->st = dev_stat(o->dtype);
    m->rot = (int)model_rot_dim(c);
    m->routing = arena_array(a, layers, sizeof *m->routing);
    m->blocks = arena_array(a, o->boundary_every ? 1 : layers, sizeof *m->blocks);
    m->x = arena_array(a, layers + 1, sizeof *m->x);
    m->expert_w = arena_array(a, 3 * n_e, sizeof(void *));
    m->expert_g = arena_array(a, 3 * n_e, sizeof(void *));
    m->cache_k = arena_array(a, layers, sizeof *m->cache_k);
    m->cache_v = arena_array(a, layers, sizeof *m->cache_v);
    m->host_positions = arena_array(a, (size_t)o->micro_tokens, sizeof *m->host_positions);
    int n_ep = o->ep ? comm_size(o->ep) : 1;
    m->send = arena_array(a, (size_t)n_ep, sizeof *m->send);
    m->recv = arena_array(a, (size_t)n_ep, sizeof *m->recv);
    m->host_offsets = arena_array(a, n_e + 1, sizeof *m->host_offsets);
    dispatch_init(a, c, n_ep, o->ep ? comm_rank(o->ep) : 0, o->micro_tokens * c->num_experts_per_tok, o->rows_cap, &m->dispatch);
    void *p;
    TRY(mem_keep(mem, MEM_TABLE, "loss sums", 3 * sizeof(double), &p));
    m->sums = p;
    for (int i = 0; i < c->num_hidden_layers; i++) {
        if (!model_is_moe(c, i))
            continue;
        TRY(mem_keep(mem, MEM_ROUTING, "chosen experts", (size_t)(o->micro_tokens * c->num_experts_per_tok) * sizeof(uint16_t), &p));
        m->routing[i].idx = p;
    }
    TRY(rope_table(m));
    *out = m;
    return 0;
}

const uint16_t *model_routing(const struct model *m, int layer)
{
    return m->routing[layer].idx;
}

int64_t model_rounds(const struct model *m, int layer)
{
    return dispatch_rounds(&m->dispatch, layer);
}

int64_t model_row_moves(const struct model *m)
{
    return m->row_moves;
}

/* ---- passes */

static void take_routing(struct model *m, int layer, int64_t n)
{
    if (model_is_moe(m->c, layer))
        m->routing[layer].w = block_take(m, MEM_ROUTING, "expert weights", m->st, 1, m->c->num_experts_per_tok, n);
}

static struct mat take_x(struct model *m, enum mem_class c, int64_t n)
{
    return block_take(m, c, c == MEM_BOUNDARY ? "boundary" : "residual", m->dt, 1, m->c->hidden_size, n);
}

/* A layer's whole forward; its buffers stay taken in b. */
static int layer_fwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat x_in,
                      _Bool replay, int64_t k0)
{
    b->x_in = x_in;
    attention_take(m, b, p->n);
    attention_fwd(m, layer, b, p, k0);
    moe_take(m, layer, b, p->n);
    return moe_inner(m, layer, b, p, replay);
}

static void layer_give(struct model *m, struct block *b)
{
    moe_give(m, b);
    attention_give(m, b);
}

static int embed(struct model *m, const struct model_batch *b, struct mat x)
{
    TRY(block_gather(m, MODEL_LAYER_EMBED, 0));
    m->ops->embed_fwd(m->dev, x, block_weight(m, m->t->embed), b->ids);
    return block_release(m, MODEL_LAYER_EMBED, 0);
}

int model_forward(struct model *m, const struct block_pass *p, struct mat *x, int64_t k0)
{
    for (int i = 0; i < m->c->num_hidden_layers; i++) {
        struct block *b = &m->blocks[0];
        TRY(block_gather(m, i, 0));
        take_routing(m, i, p->n);
        TRY(layer_fwd(m, i, b, p, *x, 0, k0));
        struct mat y = take_x(m, MEM_ACT, p->n);
        TRY(moe_outer(m, i, b, p, y));
        layer_give(m, b);
        block_give(m, &m->routing[i].w);
        block_give(m, x);
        *x = y;
        TRY(block_release(m, i, 0));
    }
    return 0;
}

static struct block_pass pass_of(const struct model_batch *b)
{
    return (struct block_pass){
        .n = b->n_tokens, .seq_len = b->seq_len, .doc_start = b->doc_start, .positions = b->positions, .valid = b->valid
    };
}

static _Bool is_boundary(const struct model *m, int layer)
{
    return !m->o.boundary_every || layer % m->o.boundary_every == 0;
}

static int train_fwd(struct model *m, const struct model_batch *b, const struct block_pass *p)
{
    int n_layers = (int)m->c->num_hidden_layers, keep = !m->o.boundary_every;
    m->x[0] = take_x(m, MEM_BOUNDARY, p->n);
    TRY(embed(m, b, m->x[0]));
    for (int i = 0; i < n_layers; i++) {
        struct block *l = &m->blocks[keep ? i : 0];
        TRY(block_gather(m, i, 0));
        take_routing(m, i, p->n);
        TRY(layer_fwd(m, i, l, p, m->x[i], 0, -1));
        m->x[i + 1] = take_x(m, i + 1 < n_layers && is_boundary(m, i + 1) ? MEM_BOUNDARY : MEM_ACT, p->n);
        TRY(moe_outer(m, i, l, p, m->x[i + 1]));
        if (!keep)
            layer_give(m, l);
        if (!is_boundary(m, i))
            block_give(m, &m->x[i]);
        TRY(block_release(m, i, 0));
    }
    return 0;
}

/* Makes the residual stream between the boundaries of a segment again. */
static int segment_fwd(struct model *m, const struct block_pass *p, int first, int end)
{
    for (int i = first; i + 1 < end; i++) {
        TRY(block_gather(m, i, 1));
        TRY(layer_fwd(m, i, m->blocks, p, m->x[i], 1, -1));
        m->x[i + 1] = take_x(m, MEM_ACT, p->n);
        TRY(moe_outer(m, i, m->blocks, p, m->x[i + 1]));
        layer_give(m, m->blocks);
        TRY(block_release(m, i, 1));
    }
    return 0;
}

static int train_bwd(struct model *m, const struct block_pass *p, struct mat dx)
{
    int n_layers = (int)m->c->num_hidden_layers, keep = !m->o.boundary_every, k = keep ? 1 : m->o.boundary_every;
    for (int end = n_layers, first; end > 0; end = first) {
        first = (end - 1) / k * k;
        TRY(segment_fwd(m, p, first, end));
        for (int i = end - 1; i >= first; i--) {
            struct block *b = &m->blocks[keep ? i : 0];
            TRY(block_gather(m, i, 1));
            if (!keep)
                TRY(layer_fwd(m, i, b, p, m->x[i], 1, -1));
            TRY(moe_bwd(m, i, b, p, dx));
            moe_give(m, b);
            attention_bwd(m, i, b, p, dx);
            attention_give(m, b);
            block_give(m, &m->routing[i].w);
            block_give(m, &m->x[i]);
            TRY(block_release(m, i, 1));
            TRY(block_reduce(m, i));
        }
    }
    return 0;
}

static int fetch_sums(struct model *m, struct model_sums *sums)
{
    double host[3] = { 0 };
    m->ops->copy(m->dev, host, m->sums, sizeof host);
    TRY(m->ops->sync(m->dev));
    sums->nll = host[0];
    sums->aux = host[1];
    sums->z = host[2];
    return 0;
}

int model_train(struct model *m, const struct model_batch *b, double inv_valid, _Bool first,
                const double *frac, const uint16_t *forced, int64_t *counts, struct model_sums *sums)
{
    struct block_pass p = pass_of(b);
    double t0 = clock_s();
    BUG_ON(b->n_tokens > m->o.micro_tokens);
    p.forced = forced;
    p.frac = m->o.aux_scope == AUX_BATCH ? frac : NULL;
    p.counts = counts;
    p.want_losses = 1;
    p.inv_valid = inv_valid;
    p.beta = first ? 0 : 1;
    m->ops->zero(m->dev, m->sums, 3 * sizeof *m->sums);
    TRY(train_fwd(m, b, &p));
    TRY(m->ops->sync(m->dev));
    sums->fwd_s += clock_s() - t0;

    struct mat dx = take_x(m, MEM_ACT, p.n), *last = &m->x[m->c->num_hidden_layers];
    double *nll = mem_take(m->mem, MEM_LOGITS, "losses", (size_t)m->o.micro_tokens * sizeof *nll);
    TRY(loss_run(m, b, *last, inv_valid, p.beta, nll, &dx));
    mem_give(m->mem, nll);
    block_give(m, last);
    TRY(train_bwd(m, &p, dx));
    /* A tied table already has the gradient of the head. */
    m->ops->embed_bwd(m->dev, block_grad(m, m->t->embed), dx, b->ids, m->t->head == m->t->embed ? 1 : p.beta);
    block_give(m, &dx);
    TRY(block_reduce(m, MODEL_LAYER_EMBED));
    return fetch_sums(m, sums);
}

int model_eval(struct model *m, const struct model_batch *b, double *nll, struct model_sums *sums)
{
    struct block_pass p = pass_of(b);
    double t0 = clock_s();
    BUG_ON(b->n_tokens > m->o.micro_tokens);
    p.want_losses = 1;
    m->ops->zero(m->dev, m->sums, 3 * sizeof *m->sums);
    struct mat x = take_x(m, MEM_ACT, p.n);
    TRY(embed(m, b, x));
    TRY(model_forward(m, &p, &x, -1));
    TRY(loss_run(m, b, x, 0, 0, nll, NULL));
    block_give(m, &x);
    TRY(fetch_sums(m, sums));
    sums->fwd_s += clock_s() - t0;
    return 0;
}

int model_logits(struct model *m, const struct model_batch *b, const uint16_t *forced, struct mat logits)
{
    struct block_pass p = pass_of(b);
    BUG_ON(b->n_tokens > m->o.micro_tokens);
    p.forced = forced;
    struct mat x = take_x(m, MEM_ACT, p.n);
    TRY(embed(m, b, x));
    TRY(model_forward(m, &p, &x, -1));
    TRY(loss_logits(m, x, logits));
    block_give(m, &x);
    return m->ops->sync(m->dev);
}
