/* moe.c -- the expert half of a layer, or its dense MLP.
 *
 * x_out = x_mid + sum over chosen experts of w_e E_e(m) + shared(m), m = rmsnorm(x_mid).
 * Weights are applied in the combine, after the experts.  Backward sends x and
 * the unscaled dy to the experts, where q = W_down^T dy gives dw = q . h and
 * dh = w q; the same identity serves the gate of a shared expert.  So the
 * output of an expert is never needed again, and is never made again.
 *
 * Routing is decided in moe_inner() of the forward pass only; backward replays
 * the saved indices and weights. */
#include "model/block.h"

#include "base/err.h"

static _Bool gated(const struct model *m) { return m->c->model_type == MODEL_QWEN2_MOE; }

static int64_t shared_width(const struct model *m)
{
    const struct model_config *c = m->c;
    return gated(m) ? c->shared_expert_intermediate_size : c->n_shared_experts * c->moe_intermediate_size;
}

static int32_t *take_ints(struct model *m, const char *name, int64_t count)
{
    return mem_take(m->mem, MEM_ROUTING, name, (size_t)count * sizeof(int32_t));
}

static void give_ints(struct model *m, int32_t **p)
{
    if (*p)
        mem_give(m->mem, *p);
    *p = NULL;
}

void moe_take(struct model *m, int layer, struct block *b, int64_t n)
{
    const struct model_config *c = m->c;
    int64_t k = c->num_experts_per_tok;
    b->m = block_take(m, MEM_ACT, "expert input", m->dt, 1, c->hidden_size, n);
    b->rstd_m = block_take(m, MEM_ACT, "rstd of the post norm", m->st, 1, 1, n);
    b->gate = b->up = b->logits = b->logits_in = b->xs = b->xgate = b->xup = b->sgate = b->sup = b->s = (struct mat){ 0 };
    b->row_of = b->token_of = b->offsets = NULL;
    if (!model_is_moe(c, layer)) {
        b->gate = block_take(m, MEM_ACT, "dense gate", m->dt, 1, c->intermediate_size, n);
        b->up = block_take(m, MEM_ACT, "dense up", m->dt, 1, c->intermediate_size, n);
        return;
    }
    if (m->dt != m->st)
        b->logits_in = block_take(m, MEM_ACT, "router input", m->st, 1, c->hidden_size, n);
    b->logits = block_take(m, MEM_ACT, "router logits", m->st, 1, c->num_experts, n);
    b->row_of = take_ints(m, "rows of slots", m->o.micro_tokens * k);
    b->token_of = take_ints(m, "tokens of rows", m->o.micro_tokens * k);
    b->offsets = take_ints(m, "rows of experts", c->num_experts + 1);
    experts_take(m, b);
    if (shared_width(m)) {
        b->sgate = block_take(m, MEM_ACT, "shared gate", m->dt, 1, shared_width(m), n);
        b->sup = block_take(m, MEM_ACT, "shared up", m->dt, 1, shared_width(m), n);
    }
    if (gated(m))
        b->s = block_take(m, MEM_ACT, "gate of the shared expert", m->st, 1, 1, n);
}

void moe_give(struct model *m, struct block *b)
{
    block_give(m, &b->m);
    block_give(m, &b->rstd_m);
    block_give(m, &b->gate);
    block_give(m, &b->up);
    block_give(m, &b->logits_in);
    block_give(m, &b->logits);
    give_ints(m, &b->row_of);
    give_ints(m, &b->token_of);
    give_ints(m, &b->offsets);
    experts_give(m, b);
    block_give(m, &b->sgate);
    block_give(m, &b->sup);
    block_give(m, &b->s);
}

static struct router router_of(struct model *m, int layer, const struct block *b, const struct block_pass *p)
{
    const struct model_config *c = m->c;
    const struct layer_params *l = &m->t->layers[layer];
    struct mat w = m->routing[layer].w;
    w.rows = p->n;
    return (struct router){
        .scoring = (enum scoring)c->scoring_func, .n_experts = (int)c->num_experts, .top_k = (int)c->num_experts_per_tok,
        .n_group = (int)c->n_group, .topk_group = (int)c->topk_group, .norm_topk = c->norm_topk_prob,
        .routed_scale = c->routed_scaling_factor, .n_tokens = p->n, .seq_len = p->seq_len, .logits = b->logits,
        .bias = l->router_bias >= 0 ? m->io.weight(m->io.ctx, l->router_bias) : NULL,
        .idx = m->routing[layer].idx, .w = w, .valid = p->valid,
        .frac = p->frac ? p->frac + layer * c->num_experts : NULL,
    };
}

static int route(struct model *m, int layer, struct block *b, const struct block_pass *p)
{
    const struct model_config *c = m->c;
    int64_t k = c->num_experts_per_tok;
    struct router r = router_of(m, layer, b, p);
    if (p->forced) {
        m->ops->copy(m->dev, r.idx, p->forced + layer * p->n * k, (size_t)(p->n * k) * sizeof *r.idx);
        r.forced = 1;
    }
    if (p->counts)
        r.counts = p->counts + layer * c->num_experts;
    if (p->want_losses && m->o.aux_coef != 0)
        r.aux_sum = &m->sums[1];
    if (p->want_losses && m->o.z_coef != 0)
        r.z_sum = &m->sums[2];
    m->ops->router_fwd(m->dev, &r);
    return m->o.watch.fn ? m->o.watch.fn(m->o.watch.ctx, layer, &r) : 0;
}

int moe_inner(struct model *m, int layer, struct block *b, const struct block_pass *p, _Bool replay)
{
    const struct model_config *c = m->c;
    const struct layer_params *l = &m->t->layers[layer];
    const struct dev_ops *ops = m->ops;
    struct dev *d = m->dev;

    ops->rmsnorm_fwd(d, b->m, b->rstd_m, b->x_mid, block_weight(m, l->post_norm), c->rms_norm_eps);
    if (!model_is_moe(c, layer)) {
        ops->gemm(d, b->gate, b->m, 0, block_weight(m, l->dense_gate), 1, 0);
        ops->gemm(d, b->up, b->m, 0, block_weight(m, l->dense_up), 1, 0);
        return 0;
    }
    struct mat in = b->m;
    if (b->logits_in.p) {
        ops->cast(d, b->logits_in, b->m);
        in = b->logits_in;
    }
    ops->gemm(d, b->logits, in, 0, block_weight(m, l->router), 1, 0);
    if (!replay)
        TRY(route(m, layer, b, p));
    struct route_map map = {
        p->n, (int)c->num_experts_per_tok, (int)c->num_experts, m->routing[layer].idx, b->row_of, b->token_of, b->offsets
    };
    ops->route_sort(d, &map);
    if (!replay)
        TRY(experts_plan(m, layer, b));
    if (b->sgate.p) {
        ops->gemm(d, b->sgate, b->m, 0, block_weight(m, l->shared_gate), 1, 0);
        ops->gemm(d, b->sup, b->m, 0, block_weight(m, l->shared_up), 1, 0);
    }
    if (b->s.p) {
        ops->gemm(d, b->s, in, 0, block_weight(m, l->shared_expert_gate), 1, 0);
        ops->sigmoid_fwd(d, b->s, b->s);
    }
    return 0;
}

int moe_outer(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat x_out)
{
    const struct model_config *c = m->c;
    const struct layer_params *l = &m->t->layers[layer];
    const struct dev_ops *ops = m->ops;
    struct dev *d = m->dev;
    int64_t n = p->n;

    ops->copy(d, x_out.p, b->x_mid.p, (size_t)(n * c->hidden_size) * dtype_size(m->dt));
    if (!model_is_moe(c, layer)) {
        struct mat h = block_take(m, MEM_ACT, "dense hidden", m->dt, 1, c->intermediate_size, n);
        ops->swiglu_fwd(d, h, b->gate, b->up);
        ops->gemm(d, x_out, h, 0, block_weight(m, l->dense_down), 1, 1);
        block_give(m, &h);
        return 0;
    }
    if (b->sgate.p) {
        struct mat h = block_take(m, MEM_ACT, "shared hidden", m->dt, 1, shared_width(m), n);
        ops->swiglu_fwd(d, h, b->sgate, b->sup);
        if (b->s.p) {
            struct mat y = block_take(m, MEM_ACT, "shared output", m->dt, 1, c->hidden_size, n);
            ops->gemm(d, y, h, 0, block_weight(m, l->shared_down), 1, 0);
            ops->rows_combine(d, x_out, y, b->s, NULL, 0, 1, 1);
            block_give(m, &y);
        } else {
            ops->gemm(d, x_out, h, 0, block_weight(m, l->shared_down), 1, 1);
        }
        block_give(m, &h);
    }
    return experts_fwd(m, layer, b, p, x_out);
}

/* One SwiGLU MLP over all tokens: dm += its share.  w and dw as swiglu_bwd. */
static void mlp_bwd(struct model *m, struct mat gate, struct mat up, int i_gate, int i_up, int i_down,
                    struct mat w, struct mat dw, struct block *b, const struct block_pass *p, struct mat dx,
                    struct mat dm, double beta_dm)
{
    struct mat q = block_take(m, MEM_ACT, "gradient of the hidden layer", m->dt, 1, gate.cols, p->n);
    m->ops->gemm(m->dev, q, dx, 0, block_weight(m, i_down), 0, 0);
    m->ops->swiglu_bwd(m->dev, gate, up, q, dw, q, gate, up, w);
    m->ops->gemm(m->dev, block_grad(m, i_down), dx, 1, q, 0, p->beta);
    block_give(m, &q);
    block_linear_bwd(m, i_gate, gate, b->m, dm, beta_dm, p->beta);
    block_linear_bwd(m, i_up, up, b->m, dm, 1, p->beta);
}

/* dm = what comes home from the experts and the router. */
static int routed_bwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat dx, struct mat dm)
{
    const struct model_config *c = m->c;
    const struct layer_params *l = &m->t->layers[layer];
    const struct dev_ops *ops = m->ops;
    struct dev *d = m->dev;
    struct mat dw = block_take(m, MEM_ROUTING, "gradient of the weights", m->st, 1, c->num_experts_per_tok, p->n);
    struct mat dlogits = block_take(m, MEM_ACT, "gradient of the router logits", m->st, 1, c->num_experts, p->n);

    TRY(experts_bwd(m, layer, b, p, dx, dm, dw));
    struct router r = router_of(m, layer, b, p);
    r.forced = 1;
    r.dw = dw;
    r.dlogits = dlogits;
    r.aux_scale = m->o.aux_coef * p->inv_valid;
    r.z_scale = m->o.z_coef * p->inv_valid;
    ops->router_bwd(d, &r);
    struct mat in = b->logits_in.p ? b->logits_in : b->m;
    block_linear_bwd(m, l->router, dlogits, in, dm, 1, p->beta);

    block_give(m, &dw);
    block_give(m, &dlogits);
    return 0;
}

int moe_bwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat dx)
{
    const struct model_config *c = m->c;
    const struct layer_params *l = &m->t->layers[layer];
    struct mat none = { 0 };
    struct mat dm = block_take(m, MEM_ACT, "gradient of the expert input", m->dt, 1, c->hidden_size, p->n);

    if (!model_is_moe(c, layer)) {
        mlp_bwd(m, b->gate, b->up, l->dense_gate, l->dense_up, l->dense_down, none, none, b, p, dx, dm, 0);
    } else {
        TRY(routed_bwd(m, layer, b, p, dx, dm));
        struct mat ds = none;
        if (b->s.p)
            ds = block_take(m, MEM_ACT, "gradient of the shared gate", m->st, 1, 1, p->n);
        if (b->sgate.p)
            mlp_bwd(m, b->sgate, b->sup, l->shared_gate, l->shared_up, l->shared_down, b->s, ds, b, p, dx, dm, 1);
        if (b->s.p) {
            m->ops->sigmoid_bwd(m->dev, ds, ds, b->s);
            block_linear_bwd(m, l->shared_expert_gate, ds, b->logits_in.p ? b->logits_in : b->m, dm, 1, p->beta);
        }
        block_give(m, &ds);
    }
    m->ops->rmsnorm_bwd(m->dev, dx, 1, block_grad(m, l->post_norm), p->beta, dm, b->x_mid, block_weight(m, l->post_norm),
                        b->rstd_m);
    block_give(m, &dm);
    return 0;
}
