/* block.c -- what every part of a layer asks of the model: buffers, weights,
 * gradients, and the calls to whoever owns them.
 *
 * No arithmetic of a layer stands here, and no order of a pass. */
#include "model/block.h"

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
