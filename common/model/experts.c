/* experts.c -- the routed experts of a layer, round by round.
 *
 * Forward: x of the rows goes to the experts (1), their outputs come home and
 * are combined, weighted in at least F32, in (round, rank, slot) order (2).
 * Backward: x, the unscaled dy and the weight w go out in one message (3, 4),
 * dx and dw come home together (5).  The experts compute gate and up again from
 * x; what W_down gave is never needed.  An expert's weight gradient is written
 * with beta at its first rows of the layer and added to after that; an expert
 * without rows gets its zero in the first round.
 *
 * At boundary_every 0, alone and in one round, x, gate and up of forward are
 * kept in the block and rows 3 is not moved. */
#include "model/block.h"

#include "base/err.h"

#define TAIL 16                 /* columns behind dy: w, dw; a multiple of the vector width */

/* Views of the rows of a round; separate buffers alone, columns of one packed
 * buffer when they travel. */
struct rows { struct mat all, x, dy, w, dw; };

static struct mat view(struct mat m, int64_t col, int64_t cols)
{
    m.p = (char *)m.p + (size_t)col * dtype_size(m.dt);
    m.cols = cols;
    return m;
}

static struct mat take(struct model *m, const char *name, enum dtype dt, int64_t cols)
{
    void *p = mem_take(m->mem, MEM_ROWS, name, (size_t)(m->dispatch.cap * cols) * dtype_size(dt));

    return mat(p, dt, m->dispatch.cap, cols);
}

static _Bool alone(const struct model *m) { return m->dispatch.n_ranks == 1; }
static _Bool kept(const struct model *m) { return !m->o.boundary_every && m->dispatch.resident; }

/* ---- the kept rows of boundary_every 0 */

void experts_take(struct model *m, struct block *b)
{
    b->xs = b->xgate = b->xup = (struct mat){ 0 };
    if (!kept(m))
        return;
    b->xs = take(m, "expert rows", m->dt, m->c->hidden_size);
    b->xgate = take(m, "expert gate", m->dt, m->c->moe_intermediate_size);
    b->xup = take(m, "expert up", m->dt, m->c->moe_intermediate_size);
}

void experts_give(struct model *m, struct block *b)
{
    block_give(m, &b->xs);
    block_give(m, &b->xgate);
    block_give(m, &b->xup);
}

/* ---- rounds */

/* Device copies of what the round at hand says. */
struct round_ints { int32_t *offsets, *order, *back; };

static struct round_ints take_ints(struct model *m)
{
    struct round_ints i = { 0 };

    if (m->dispatch.resident)
        return i;
    i.offsets = mem_take(m->mem, MEM_ROUTING, "rows of experts in a round", (size_t)(m->dispatch.n_local + 1) * sizeof(int32_t));
    if (!alone(m)) {
        i.order = mem_take(m->mem, MEM_ROUTING, "expert order of rows", (size_t)m->dispatch.cap * sizeof(int32_t));
        i.back = mem_take(m->mem, MEM_ROUTING, "arrival order of rows", (size_t)m->dispatch.cap * sizeof(int32_t));
    }
    return i;
}

static void give_ints(struct model *m, struct round_ints *i)
{
    if (i->offsets)
        mem_give(m->mem, i->offsets);
    if (i->order)
        mem_give(m->mem, i->order);
    if (i->back)
        mem_give(m->mem, i->back);
}

/* Counts of this layer from all ranks, once, in the forward pass. */
int experts_plan(struct model *m, int layer, struct block *b)
{
    struct dispatch *d = &m->dispatch;
    int32_t *mine = dispatch_counts(d, layer, d->rank);

    if (d->resident)
        return 0;
    /* Differences of the sorted borders. */
    m->ops->copy(m->dev, m->host_offsets, b->offsets, (size_t)(d->n_experts + 1) * sizeof(int32_t));
    TRY(m->ops->sync(m->dev));
    for (int64_t e = 0; e < d->n_experts; e++)
        mine[e] = m->host_offsets[e + 1] - m->host_offsets[e];
    return alone(m) ? 0 : block_share_counts(m, layer);
}

static void enter_round(struct model *m, int layer, const struct block *b, int64_t r, const struct round_ints *i, int64_t n_rows)
{
    struct dispatch *d = &m->dispatch;

    if (d->resident) {
        d->send_first[0] = 0;
        d->n_send = d->n_recv = d->send_n[0] = n_rows;
        return;
    }
    (void)b;
    dispatch_round(d, layer, r);
    m->ops->copy(m->dev, i->offsets, d->offsets, (size_t)(d->n_local + 1) * sizeof(int32_t));
    if (!alone(m)) {
        m->ops->copy(m->dev, i->order, d->order, (size_t)d->n_recv * sizeof(int32_t));
        m->ops->copy(m->dev, i->back, d->back, (size_t)d->n_recv * sizeof(int32_t));
    }
}

/* The matrices (i: 0 gate, 1 up, 2 down) of experts [e0, e0 + n) of this rank. */
static struct group experts_of(struct model *m, int layer, const int32_t *offsets, int i, int64_t e0, int64_t n, _Bool grads)
{
    const struct model_config *c = m->c;
    int64_t base = m->dispatch.rank * m->dispatch.n_local;
    int first = m->t->layers[layer].experts;
    void **w = (grads ? m->expert_g : m->expert_w) + i * c->num_experts;

    for (int64_t e = e0; e < e0 + n; e++) {
        int at = first + 3 * (int)(base + e) + i;
        w[e] = grads ? m->io.grad(m->io.ctx, at) : (void *)(uintptr_t)m->io.weight(m->io.ctx, at);
    }
    return (struct group){
        .n_experts = (int)n, .offsets = offsets + e0, .w = w + e0, .w_dt = grads ? m->st : m->dt,
        .n_out = i < 2 ? c->moe_intermediate_size : c->hidden_size,
        .n_in = i < 2 ? c->hidden_size : c->moe_intermediate_size,
    };
}

static struct group all_experts(struct model *m, int layer, const int32_t *offsets, int i)
{
    return experts_of(m, layer, offsets, i, 0, m->dispatch.n_local, 0);
}

/* Weight gradients: experts that meet their first rows in this round are
 * written with beta, those that met some before are added to. */
static void wgrad(struct model *m, int layer, const int32_t *offsets, int i, int64_t r, struct mat dy, struct mat x, double beta)
{
    const struct dispatch *d = &m->dispatch;

    for (int64_t e = 0, end; e < d->n_local; e = end) {
        _Bool first = d->resident || d->first_round[e] == r, later = !first && d->first_round[e] < r;
        for (end = e + 1; end < d->n_local; end++) {
            _Bool f = d->resident || d->first_round[end] == r;
            if (f != first || (!f && d->first_round[end] < r) != later)
                break;
        }
        if (!first && !later)
            continue;
        struct group g = experts_of(m, layer, offsets, i, e, end - e, 1);
        m->ops->group_wgrad(m->dev, &g, dy, x, first ? beta : 1);
    }
}

/* Rows of this rank for rank `to` lie behind those for the ranks before it. */
static struct mat block_for(const struct model *m, struct mat rows, int to)
{
    int64_t at = 0;

    for (int i = 0; i < to; i++)
        at += m->dispatch.send_n[i];
    return mat_rows(rows, at, m->dispatch.send_n[to]);
}

static void gather_rows(struct model *m, struct mat out, struct mat x, const struct block *b)
{
    for (int to = 0; to < m->dispatch.n_ranks; to++)
        m->ops->rows_gather(m->dev, block_for(m, out, to), x, b->token_of + m->dispatch.send_first[to]);
}

static void combine_rows(struct model *m, struct mat y, struct mat in, struct mat w, const struct block *b, double beta)
{
    for (int to = 0; to < m->dispatch.n_ranks; to++, beta = 1)
        m->ops->rows_combine(m->dev, y, block_for(m, in, to), w, b->row_of, m->dispatch.send_first[to],
                             (int)m->c->num_experts_per_tok, beta);
}

/* ---- forward */

/* y[rows] = experts(x[rows]), rows in expert order. */
static void mlp_fwd(struct model *m, int layer, const int32_t *offsets, struct mat x, struct mat gate, struct mat up, struct mat h, struct mat y)
{
    struct group g = all_experts(m, layer, offsets, 0), u = all_experts(m, layer, offsets, 1), down = all_experts(m, layer, offsets, 2);

    m->ops->group_fwd(m->dev, &g, gate, x);
    m->ops->group_fwd(m->dev, &u, up, x);
    m->ops->swiglu_fwd(m->dev, h, gate, up);
    m->ops->group_fwd(m->dev, &down, y, h);
}

int experts_fwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat x_out)
{
    const struct model_config *c = m->c;
    struct dispatch *d = &m->dispatch;
    int64_t n_rows = p->n * c->num_experts_per_tok;
    struct round_ints ints = take_ints(m);
    const int32_t *offsets = d->resident ? b->offsets : ints.offsets;
    struct mat x = kept(m) ? b->xs : take(m, "expert rows", m->dt, c->hidden_size);
    struct mat gate = kept(m) ? b->xgate : take(m, "expert gate", m->dt, c->moe_intermediate_size);
    struct mat up = kept(m) ? b->xup : take(m, "expert up", m->dt, c->moe_intermediate_size);
    /* Taken once for all rounds: their number is not in the plan. */
    struct mat h = take(m, "expert hidden", m->dt, c->moe_intermediate_size), y = take(m, "expert output", m->dt, c->hidden_size);
    struct mat away = alone(m) ? (struct mat){ 0 } : take(m, "expert rows under way", m->dt, c->hidden_size);
    struct mat w = m->routing[layer].w;
    int rc = 0;

    w.rows = p->n;
    if (!d->resident)
        dispatch_layer(d, layer);
    for (int64_t r = 0, n_rounds = dispatch_rounds(d, layer); r < n_rounds; r++) {
        enter_round(m, layer, b, r, &ints, n_rows);
        x.rows = y.rows = gate.rows = up.rows = h.rows = d->n_recv;
        if (alone(m)) {
            gather_rows(m, x, b->m, b);
        } else {
            struct mat out = mat_rows(y, 0, d->n_send), in = mat_rows(away, 0, d->n_recv);
            out.rows = d->n_send;
            gather_rows(m, out, b->m, b);
            TRY_OUT(rc, block_exchange(m, out, d->send_n, in, d->recv_n));
            m->ops->rows_gather(m->dev, x, in, ints.order);
        }
        mlp_fwd(m, layer, offsets, x, gate, up, h, y);
        if (!alone(m)) {
            struct mat back = mat_rows(away, 0, d->n_recv), home = x;
            m->ops->rows_gather(m->dev, back, y, ints.back);
            home.rows = d->n_send;
            TRY_OUT(rc, block_exchange(m, back, d->recv_n, home, d->send_n));
            combine_rows(m, x_out, home, w, b, 1);
        } else {
            combine_rows(m, x_out, y, w, b, 1);
        }
    }
    m->row_moves += 2;
out:
    if (away.p)
        block_give(m, &away);
    block_give(m, &y);
    block_give(m, &h);
    if (!kept(m)) {
        block_give(m, &up);
        block_give(m, &gate);
        block_give(m, &x);
    } else {
        b->xs.rows = b->xgate.rows = b->xup.rows = n_rows;
    }
    give_ints(m, &ints);
    return rc;
}

/* ---- backward */

/* Buffers of a round: alone three plain ones, else columns x | dy | w dw of one. */
static struct rows rows_take(struct model *m, const struct block *b, const char *name)
{
    int64_t h = m->c->hidden_size;
    struct rows r = { 0 };

    if (alone(m)) {
        r.x = kept(m) ? b->xs : take(m, "expert rows", m->dt, h);
        r.dy = take(m, "gradient of the expert output", m->dt, h);
        r.w = take(m, "weights of rows", m->st, 1);
        r.dw = take(m, "gradient of the weights of rows", m->st, 1);
        return r;
    }
    /* One type for a whole row: activations and statistics are both F32 (F64). */
    BUG_ON(m->dt != m->st);
    r.all = take(m, name, m->dt, 2 * h + TAIL);
    r.x = view(r.all, 0, h);
    r.dy = view(r.all, h, h);
    r.w = view(r.all, 2 * h, 1);
    r.dw = view(r.all, 2 * h + 1, 1);
    return r;
}

static void rows_give(struct model *m, struct rows *r)
{
    if (r->all.p) {
        block_give(m, &r->all);
        return;
    }
    block_give(m, &r->dw);
    block_give(m, &r->w);
    block_give(m, &r->dy);
    if (!kept(m))
        block_give(m, &r->x);
}

static void rows_set(struct rows *r, int64_t n)
{
    r->all.rows = r->x.rows = r->dy.rows = r->w.rows = r->dw.rows = n;
}

/* From x, dy, w of the rows (expert order) to dx in dy's place and dw. */
static void mlp_bwd(struct model *m, int layer, const int32_t *offsets, int64_t r, const struct rows *x, struct mat gate,
                    struct mat up, struct mat q, double beta)
{
    struct group g = all_experts(m, layer, offsets, 0), u = all_experts(m, layer, offsets, 1), down = all_experts(m, layer, offsets, 2);
    struct dev *d = m->dev;

    if (!kept(m)) {
        m->ops->group_fwd(d, &g, gate, x->x);
        m->ops->group_fwd(d, &u, up, x->x);
    }
    m->ops->group_dgrad(d, &down, q, x->dy, 0);
    m->ops->swiglu_bwd(d, gate, up, q, x->dw, q, gate, up, x->w);
    wgrad(m, layer, offsets, 2, r, x->dy, q, beta);
    wgrad(m, layer, offsets, 0, r, gate, x->x, beta);
    wgrad(m, layer, offsets, 1, r, up, x->x, beta);
    /* dy is spent; dx takes its place. */
    m->ops->group_dgrad(d, &g, x->dy, gate, 0);
    m->ops->group_dgrad(d, &u, x->dy, up, 1);
}

static void send_rows(struct model *m, struct rows *out, const struct block *b, struct mat dx, struct mat w)
{
    if (!kept(m))
        gather_rows(m, out->x, b->m, b);
    gather_rows(m, out->dy, dx, b);
    for (int to = 0; to < m->dispatch.n_ranks; to++)
        m->ops->slots_to_rows(m->dev, block_for(m, out->w, to), w, b->row_of, m->dispatch.send_first[to]);
}

static void bring_home(struct model *m, const struct rows *in, const struct block *b, struct mat dm, struct mat dw, _Bool first)
{
    combine_rows(m, dm, in->dy, (struct mat){ 0 }, b, first ? 0 : 1);
    for (int to = 0; to < m->dispatch.n_ranks; to++)
        m->ops->rows_to_slots(m->dev, dw, block_for(m, in->dw, to), b->row_of, m->dispatch.send_first[to]);
}

/* The way of a round's rows over other ranks: out in arrival order -> in in
 * expert order, and after the experts the second half of each row home. */
static int travel_out(struct model *m, const struct rows *out, const struct rows *in, const struct rows *x, const int32_t *order)
{
    struct dispatch *d = &m->dispatch;

    TRY(block_exchange(m, mat_rows(out->all, 0, d->n_send), d->send_n, mat_rows(in->all, 0, d->n_recv), d->recv_n));
    m->ops->rows_gather(m->dev, x->all, mat_rows(in->all, 0, d->n_recv), order);
    return 0;
}

static int travel_home(struct model *m, const struct rows *x, const struct rows *back, struct rows *home, const int32_t *arrival)
{
    struct dispatch *d = &m->dispatch;
    int64_t h = m->c->hidden_size;
    /* Only dx and the tail go home; they are packed so that a row is one piece. */
    struct mat half = mat(back->all.p, m->dt, d->n_recv, h + TAIL), got = mat(home->all.p, m->dt, d->n_send, h + TAIL);

    m->ops->rows_gather(m->dev, half, view(x->all, h, h + TAIL), arrival);
    TRY(block_exchange(m, half, d->recv_n, got, d->send_n));
    home->dy = view(got, 0, h);
    home->dw = view(got, h + 1, 1);
    return 0;
}

int experts_bwd(struct model *m, int layer, struct block *b, const struct block_pass *p, struct mat dx, struct mat dm, struct mat dw)
{
    const struct model_config *c = m->c;
    struct dispatch *d = &m->dispatch;
    int64_t n_rows = p->n * c->num_experts_per_tok, width = c->moe_intermediate_size;
    struct round_ints ints = take_ints(m);
    const int32_t *offsets = d->resident ? b->offsets : ints.offsets;
    struct rows x = rows_take(m, b, "rows in expert order"), out = { 0 }, in = { 0 };
    struct mat gate = kept(m) ? b->xgate : take(m, "expert gate", m->dt, width);
    struct mat up = kept(m) ? b->xup : take(m, "expert up", m->dt, width);
    struct mat q = take(m, "gradient of the expert hidden layer", m->dt, width), w = m->routing[layer].w;
    int rc = 0;

    w.rows = p->n;
    if (!alone(m)) {
        out = rows_take(m, b, "rows sent");
        in = rows_take(m, b, "rows received");
    }
    if (!d->resident)
        dispatch_layer(d, layer);
    for (int64_t r = 0, n_rounds = dispatch_rounds(d, layer); r < n_rounds; r++) {
        enter_round(m, layer, b, r, &ints, n_rows);
        rows_set(&x, d->n_recv);
        gate.rows = up.rows = q.rows = d->n_recv;
        if (alone(m)) {
            send_rows(m, &x, b, dx, w);
            mlp_bwd(m, layer, offsets, r, &x, gate, up, q, p->beta);
            bring_home(m, &x, b, dm, dw, r == 0);
            continue;
        }
        struct rows o = out, home = out;
        rows_set(&o, d->n_send);
        send_rows(m, &o, b, dx, w);
        TRY_OUT(rc, travel_out(m, &o, &in, &x, ints.order));
        mlp_bwd(m, layer, offsets, r, &x, gate, up, q, p->beta);
        TRY_OUT(rc, travel_home(m, &x, &in, &home, ints.back));
        bring_home(m, &home, b, dm, dw, r == 0);
    }
    m->row_moves += kept(m) ? 2 : 3;
out:
    if (!alone(m)) {
        rows_give(m, &in);
        rows_give(m, &out);
    }
    block_give(m, &q);
    if (!kept(m)) {
        block_give(m, &up);
        block_give(m, &gate);
    }
    rows_give(m, &x);
    give_ints(m, &ints);
    return rc;
}
