/* attention.c -- the attention half of a layer.
 *
 * x_mid = x_in + W_o attend(rope(norm(W_q a)), rope(norm(W_k a)), W_v a) + b_o,
 * a = rmsnorm(x_in).  With qk-norm the projections before the norm are kept,
 * because its backward reads them; without it nothing is stored twice. */
#include "model/block.h"

#include <math.h>

void attention_take(struct model *m, struct block *b, int64_t n)
{
    const struct model_config *c = m->c;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    _Bool head = c->use_qk_norm == QK_NORM_HEAD, norm = c->use_qk_norm != QK_NORM_NONE;
    b->a = block_take(m, MEM_ACT, "attention input", m->dt, 1, c->hidden_size, n);
    b->rstd_a = block_take(m, MEM_ACT, "rstd of the input norm", m->st, 1, 1, n);
    b->q = block_take(m, MEM_ACT, "queries", m->dt, 1, q, n);
    b->k = block_take(m, MEM_ACT, "keys", m->dt, 1, kv, n);
    b->v = block_take(m, MEM_ACT, "values", m->dt, 1, kv, n);
    b->q_raw = b->k_raw = b->rstd_q = b->rstd_k = (struct mat){ 0 };
    if (norm) {
        b->q_raw = block_take(m, MEM_ACT, "queries before their norm", m->dt, 1, q, n);
        b->k_raw = block_take(m, MEM_ACT, "keys before their norm", m->dt, 1, kv, n);
        b->rstd_q = block_take(m, MEM_ACT, "rstd of queries", m->st, head ? c->num_attention_heads : 1, 1, n);
        b->rstd_k = block_take(m, MEM_ACT, "rstd of keys", m->st, head ? c->num_key_value_heads : 1, 1, n);
    }
    b->o = block_take(m, MEM_ACT, "attention output", m->dt, 1, q, n);
    b->lse = block_take(m, MEM_ACT, "attention lse", m->st, 1, c->num_attention_heads, n);
    b->x_mid = block_take(m, MEM_ACT, "residual after attention", m->dt, 1, c->hidden_size, n);
}

void attention_give(struct model *m, struct block *b)
{
    block_give(m, &b->a);
    block_give(m, &b->rstd_a);
    block_give(m, &b->q);
    block_give(m, &b->k);
    block_give(m, &b->v);
    block_give(m, &b->q_raw);
    block_give(m, &b->k_raw);
    block_give(m, &b->rstd_q);
    block_give(m, &b->rstd_k);
    block_give(m, &b->o);
    block_give(m, &b->lse);
    block_give(m, &b->x_mid);
}

static void project(struct model *m, struct mat y, struct mat x, int w, int bias)
{
    m->ops->gemm(m->dev, y, x, 0, block_weight(m, w), 1, 0);
    if (bias >= 0)
        m->ops->bias_fwd(m->dev, y, block_weight(m, bias));
}

/* Per head: the same memory, seen as one row a head. */
static struct mat as_rows(struct mat x, int64_t width)
{
    int64_t rows = x.rows * (x.cols / width);
    return mat(x.p, x.dt, rows, width);
}

static int64_t norm_width(const struct model *m, struct mat x)
{
    return m->c->use_qk_norm == QK_NORM_HEAD ? m->c->head_dim : x.cols;
}

static struct attn shape_of(struct model *m, struct block *b, const struct block_pass *p)
{
    const struct model_config *c = m->c;
    return (struct attn){
        .q = b->q, .k = b->k, .v = b->v, .o = b->o, .lse = b->lse, .doc_start = p->doc_start,
        .n_heads = (int)c->num_attention_heads, .n_kv_heads = (int)c->num_key_value_heads,
        .head_dim = (int)c->head_dim, .scale = 1 / sqrt((double)c->head_dim),
    };
}

static void rope(struct model *m, struct mat x, int64_t n_heads, const struct block_pass *p, _Bool inverse)
{
    m->ops->rope(m->dev, x, (int)n_heads, (int)m->c->head_dim, m->rot, m->cos, m->sin, p->positions, inverse);
}

void attention_fwd(struct model *m, int layer, struct block *b, const struct block_pass *p, int64_t k0)
{
    const struct model_config *c = m->c;
    const struct layer_params *l = &m->t->layers[layer];
    const struct dev_ops *ops = m->ops;
    struct dev *d = m->dev;
    _Bool norm = c->use_qk_norm != QK_NORM_NONE;

    ops->rmsnorm_fwd(d, b->a, b->rstd_a, b->x_in, block_weight(m, l->input_norm), c->rms_norm_eps);
    project(m, norm ? b->q_raw : b->q, b->a, l->q, l->q_bias);
    project(m, norm ? b->k_raw : b->k, b->a, l->k, l->k_bias);
    project(m, b->v, b->a, l->v, l->v_bias);
    if (norm) {
        int64_t wq = norm_width(m, b->q), wk = norm_width(m, b->k);
        ops->rmsnorm_fwd(d, as_rows(b->q, wq), b->rstd_q, as_rows(b->q_raw, wq), block_weight(m, l->q_norm), c->rms_norm_eps);
        ops->rmsnorm_fwd(d, as_rows(b->k, wk), b->rstd_k, as_rows(b->k_raw, wk), block_weight(m, l->k_norm), c->rms_norm_eps);
    }
    rope(m, b->q, c->num_attention_heads, p, 0);
    rope(m, b->k, c->num_key_value_heads, p, 0);
    struct attn at = shape_of(m, b, p);
    if (k0 >= 0) {
        struct mat ck = m->cache_k[layer], cv = m->cache_v[layer];
        size_t bytes = (size_t)(p->n * ck.cols) * dtype_size(m->dt);
        ops->copy(d, mat_rows(ck, k0, p->n).p, b->k.p, bytes);
        ops->copy(d, mat_rows(cv, k0, p->n).p, b->v.p, bytes);
        at.k = mat_rows(ck, 0, k0 + p->n);
        at.v = mat_rows(cv, 0, k0 + p->n);
    }
    ops->attn_fwd(d, &at);
    ops->copy(d, b->x_mid.p, b->x_in.p, (size_t)(p->n * c->hidden_size) * dtype_size(m->dt));
    ops->gemm(d, b->x_mid, b->o, 0, block_weight(m, l->o), 1, 1);
    if (l->o_bias >= 0)
        ops->bias_fwd(d, b->x_mid, block_weight(m, l->o_bias));
}

/* From the gradient of the rotated, normed projection dq to that of its raw
 * form.  raw's own memory cannot take it (the norm's backward reads it), so it
 * goes where the normed projection lies, which nobody reads any more. */
static struct mat norm_bwd(struct model *m, struct mat dq, struct mat normed, struct mat raw, struct mat rstd,
                           int i_norm, double beta)
{
    if (i_norm < 0)
        return dq;
    int64_t w = norm_width(m, dq);
    m->ops->rmsnorm_bwd(m->dev, as_rows(normed, w), 0, block_grad(m, i_norm), beta, as_rows(dq, w), as_rows(raw, w),
                        block_weight(m, i_norm), rstd);
    return normed;
}

void attention_bwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat dx)
{
    const struct model_config *c = m->c;
    const struct layer_params *l = &m->t->layers[layer];
    const struct dev_ops *ops = m->ops;
    struct dev *d = m->dev;
    int64_t n = p->n, q = b->q.cols, kv = b->k.cols;

    struct mat do_ = block_take(m, MEM_ACT, "gradient of the attention output", m->dt, 1, q, n);
    struct mat dq = block_take(m, MEM_ACT, "gradient of queries", m->dt, 1, q, n);
    struct mat dk = block_take(m, MEM_ACT, "gradient of keys", m->dt, 1, kv, n);
    struct mat dv = block_take(m, MEM_ACT, "gradient of values", m->dt, 1, kv, n);
    struct mat da = block_take(m, MEM_ACT, "gradient of the attention input", m->dt, 1, c->hidden_size, n);

    block_linear_bwd(m, l->o, dx, b->o, do_, 0, p->beta);
    if (l->o_bias >= 0)
        ops->bias_bwd(d, block_grad(m, l->o_bias), dx, p->beta);
    struct attn at = shape_of(m, b, p);
    at.do_ = do_;
    at.dq = dq;
    at.dk = dk;
    at.dv = dv;
    ops->attn_bwd(d, &at);
    rope(m, dq, c->num_attention_heads, p, 1);
    rope(m, dk, c->num_key_value_heads, p, 1);
    struct mat gq = norm_bwd(m, dq, b->q, b->q_raw, b->rstd_q, l->q_norm, p->beta);
    struct mat gk = norm_bwd(m, dk, b->k, b->k_raw, b->rstd_k, l->k_norm, p->beta);
    if (l->q_bias >= 0) {
        ops->bias_bwd(d, block_grad(m, l->q_bias), gq, p->beta);
        ops->bias_bwd(d, block_grad(m, l->k_bias), gk, p->beta);
        ops->bias_bwd(d, block_grad(m, l->v_bias), dv, p->beta);
    }
    block_linear_bwd(m, l->q, gq, b->a, da, 0, p->beta);
    block_linear_bwd(m, l->k, gk, b->a, da, 1, p->beta);
    block_linear_bwd(m, l->v, dv, b->a, da, 1, p->beta);
    ops->rmsnorm_bwd(d, dx, 1, block_grad(m, l->input_norm), p->beta, da, b->x_in, block_weight(m, l->input_norm), b->rstd_a);

    block_give(m, &do_);
    block_give(m, &dq);
    block_give(m, &dk);
    block_give(m, &dv);
    block_give(m, &da);
}
