/* shape.c -- checks of operand shapes; aborts on our own mistakes only. */
#include "dev/shape.h"

#include "base/err.h"

void shape_mat(struct mat m)
{
    BUG_ON(m.rows < 0 || m.cols < 0 || m.ld < m.cols);
    BUG_ON(!m.p && m.rows && m.cols);
}

void shape_same(struct mat a, struct mat b)
{
    shape_mat(a);
    shape_mat(b);
    BUG_ON(a.rows != b.rows || a.cols != b.cols);
}

static void check_beta(double beta)
{
    BUG_ON(beta != 0 && beta != 1);
}

/* A column of statistics, one per row of m. */
static void check_stat(struct mat s, struct mat m, int64_t cols)
{
    shape_mat(s);
    BUG_ON(s.rows != m.rows || s.cols != cols || s.dt != dev_stat(m.dt));
}

static void check_vector(struct mat v, int64_t cols)
{
    shape_mat(v);
    BUG_ON(v.rows != 1 || v.cols != cols);
}

void shape_gemm(struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    shape_mat(a);
    shape_mat(b);
    shape_mat(c);
    check_beta(beta);
    BUG_ON(c.rows != (ta ? a.cols : a.rows));
    BUG_ON(c.cols != (tb ? b.rows : b.cols));
    BUG_ON((ta ? a.rows : a.cols) != (tb ? b.cols : b.rows));
}

void shape_group(const struct group *g, struct mat out, struct mat in, double beta)
{
    shape_mat(out);
    shape_mat(in);
    check_beta(beta);
    BUG_ON(g->n_experts < 0 || g->n_out < 0 || g->n_in < 0 || !g->offsets || (!g->w && g->n_experts));
    BUG_ON(out.rows != in.rows || out.cols != g->n_out || in.cols != g->n_in);
}

void shape_rmsnorm_fwd(struct mat y, struct mat rstd, struct mat x, struct mat w)
{
    shape_same(y, x);
    check_stat(rstd, x, 1);
    check_vector(w, x.cols);
}

void shape_rmsnorm_bwd(struct mat dx, double beta_dx, struct mat dw, double beta_dw,
                       struct mat dy, struct mat x, struct mat w, struct mat rstd)
{
    shape_same(dx, x);
    shape_same(dy, x);
    check_stat(rstd, x, 1);
    check_vector(w, x.cols);
    check_vector(dw, x.cols);
    check_beta(beta_dx);
    check_beta(beta_dw);
}

void shape_bias(struct mat y, struct mat b, double beta)
{
    shape_mat(y);
    check_vector(b, y.cols);
    check_beta(beta);
}

void shape_rope(struct mat x, int n_heads, int head_dim, int rot_dim, struct mat cos, struct mat sin)
{
    shape_mat(x);
    shape_same(cos, sin);
    BUG_ON(x.cols != (int64_t)n_heads * head_dim);
    BUG_ON(rot_dim < 0 || rot_dim % 2 || rot_dim > head_dim);
    BUG_ON(cos.cols != rot_dim / 2 || cos.dt != sin.dt || cos.dt != dev_stat(x.dt));
}

void shape_attn(const struct attn *a, _Bool backward)
{
    BUG_ON(a->n_heads < 1 || a->n_kv_heads < 1 || a->head_dim < 1 || a->n_heads % a->n_kv_heads);
    shape_same(a->q, a->o);
    shape_same(a->k, a->v);
    BUG_ON(a->q.cols != (int64_t)a->n_heads * a->head_dim);
    BUG_ON(a->k.cols != (int64_t)a->n_kv_heads * a->head_dim);
    BUG_ON(a->k.rows < a->q.rows);
    BUG_ON(!a->doc_start && a->q.rows);
    check_stat(a->lse, a->q, a->n_heads);
    if (!backward)
        return;
    shape_same(a->do_, a->q);
    shape_same(a->dq, a->q);
    shape_same(a->dk, a->k);
    shape_same(a->dv, a->k);
}

void shape_swiglu_bwd(struct mat dgate, struct mat dup, struct mat hw, struct mat dw,
                      struct mat q, struct mat gate, struct mat up, struct mat w)
{
    shape_same(dgate, gate);
    shape_same(dup, gate);
    shape_same(hw, gate);
    shape_same(q, gate);
    shape_same(up, gate);
    if (!w.p)
        return;
    check_stat(w, gate, 1);
    check_stat(dw, gate, 1);
}

void shape_router(const struct router *r, _Bool backward)
{
    BUG_ON(r->n_experts < 1 || r->n_experts > 65536 || r->top_k < 1 || r->top_k > r->n_experts);
    BUG_ON(r->n_group > 1 && (r->n_experts % r->n_group || r->topk_group < 1 || r->topk_group > r->n_group));
    shape_mat(r->logits);
    BUG_ON(r->logits.rows != r->n_tokens || r->logits.cols != r->n_experts);
    BUG_ON(!r->idx && r->n_tokens);
    if (!backward) {
        BUG_ON(r->aux_sum && !r->frac && r->seq_len < 1);
        check_stat(r->w, r->logits, r->top_k);
        return;
    }
    BUG_ON(r->aux_scale != 0 && !r->frac && r->seq_len < 1);
    check_stat(r->dw, r->logits, r->top_k);
    shape_same(r->dlogits, r->logits);
}

void shape_route_sort(const struct route_map *m)
{
    BUG_ON(m->n_tokens < 0 || m->top_k < 1 || m->n_experts < 1 || !m->offsets);
    BUG_ON(m->n_tokens && (!m->idx || !m->row_of || !m->token_of));
    BUG_ON(m->n_tokens * m->top_k > INT32_MAX);
}

void shape_gather(struct mat xs, struct mat x)
{
    shape_mat(xs);
    shape_mat(x);
    BUG_ON(xs.cols != x.cols);
}

void shape_combine(struct mat y, struct mat ys, struct mat w, const int32_t *row_of, int top_k, double beta)
{
    shape_mat(y);
    shape_mat(ys);
    check_beta(beta);
    BUG_ON(y.cols != ys.cols || top_k < 1);
    BUG_ON(!row_of && (top_k != 1 || ys.rows < y.rows));
    if (w.p) {
        shape_mat(w);
        BUG_ON(w.rows != y.rows || w.cols != top_k);
    }
}

void shape_slots(struct mat w, struct mat wr)
{
    shape_mat(w);
    shape_mat(wr);
    BUG_ON(wr.cols != 1);
}

void shape_embed(struct mat y, struct mat table, double beta)
{
    shape_mat(y);
    shape_mat(table);
    check_beta(beta);
    BUG_ON(y.cols != table.cols);
}

void shape_adamw(const struct adamw *a)
{
    shape_same(a->w, a->m);
    shape_same(a->w, a->v);
    shape_same(a->w, a->g);
    BUG_ON(a->t < 1);
}

void shape_momentum(struct mat u, struct mat m, struct mat g)
{
    shape_same(u, m);
    shape_same(m, g);
}

void shape_newton_schulz(const struct mat *x, int n, const struct ns_coef *coef, int n_steps)
{
    BUG_ON(n < 0 || (n && !x) || n_steps < 0 || (n_steps && !coef));
    for (int i = 0; i < n; i++)
        shape_same(x[i], x[0]);
}
