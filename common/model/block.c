/* block.c -- what every part of a layer asks of the model: buffers, weights,
 * gradients, and the calls to whoever owns them.
 *
 * No arithmetic of a layer stands here, and no order of a pass. */
#include "model/block.h"

#include "base/err.h"
#include "comm/comm.h"

struct mat block_take(struct model *m, enum mem_class c, const char *name, enum dtype dt, int64_t rows, int64_t cols, int64_t n)
{
    void *p = mem_take(m->mem, c, name, (size_t)(m->o.micro_tokens * rows * cols) * dtype_size(dt));
    return mat(p, dt, n * rows, cols);
}

void block_give(struct model *m, struct mat *x)
{
    if (x->p)
        mem_give(m->mem, x->p);
    *x = (struct mat){ 0 };
}

static struct mat as_mat(const struct param *p, void *at, enum dtype dt)
{
    return p->n_dims == 1 ? mat(at, dt, 1, p->rows) : mat(at, dt, p->rows, p->cols);
}

struct mat block_weight(const struct model *m, int i_param)
{
    const struct param *p = &m->t->v[i_param];
    /* Ops do not write through weights; the table is not const. */
    void *at = (void *)(uintptr_t)m->io.weight(m->io.ctx, i_param);
    return as_mat(p, at, p->kind == PARAM_ROUTER ? m->st : m->dt);
}

struct mat block_grad(const struct model *m, int i_param)
{
    return as_mat(&m->t->v[i_param], m->io.grad(m->io.ctx, i_param), m->st);
}

void block_linear_bwd(struct model *m, int i_param, struct mat dy, struct mat x, struct mat dx, double beta_dx, double beta)
{
    m->ops->gemm(m->dev, block_grad(m, i_param), dy, 1, x, 0, beta);
    m->ops->gemm(m->dev, dx, dy, 0, block_weight(m, i_param), 0, beta_dx);
}

int block_gather(struct model *m, int layer, int pass)
{
    return m->io.gather ? m->io.gather(m->io.ctx, layer, pass) : 0;
}

int block_release(struct model *m, int layer, int pass)
{
    return m->io.release ? m->io.release(m->io.ctx, layer, pass) : 0;
}

int block_reduce(struct model *m, int layer)
{
    return m->io.reduce ? m->io.reduce(m->io.ctx, layer) : 0;
}

/* While a plan is recorded there is no data, and nobody on the other side. */
int block_exchange(struct model *m, struct mat out, const int64_t *send_n, struct mat in, const int64_t *recv_n)
{
    size_t row = (size_t)out.cols * dtype_size(out.dt);
    char *from = out.p, *to = in.p;

    BUG_ON(out.ld != out.cols || in.ld != in.cols || in.cols != out.cols);
    if (mem_recording(m->mem))
        return 0;
    TRY(m->ops->sync(m->dev));
    for (int i = 0; i < m->dispatch.n_ranks; i++) {
        m->send[i] = (struct comm_part){ .rank = i, .bytes = send_n[i] * (int64_t)row, .p = from };
        m->recv[i] = (struct comm_part){ .rank = i, .bytes = recv_n[i] * (int64_t)row, .p = to };
        from += (size_t)send_n[i] * row;
        to += (size_t)recv_n[i] * row;
    }
    return comm_all_to_all(m->o.ep, m->send, m->dispatch.n_ranks, m->recv, m->dispatch.n_ranks);
}

int block_share_counts(struct model *m, int layer)
{
    const struct dispatch *d = &m->dispatch;

    if (mem_recording(m->mem))
        return 0;
    return comm_all_gather(m->o.ep, dispatch_counts(d, layer, d->rank), d->n_experts * (int64_t)sizeof(int32_t),
                           dispatch_counts(d, layer, 0));
}
