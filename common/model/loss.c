/* loss.c -- final norm, head and cross entropy, a chunk of tokens at a time.
 *
 * Logits exist for loss_chunk tokens only, and forward and backward of a chunk
 * are done together, so nothing of size tokens x vocabulary is ever stored.
 * The gradient of the head is added chunk by chunk in ascending order. */
#include "base/err.h"
#include "model/block.h"

static int64_t chunk_rows(const struct model *m)
{
    return m->o.loss_chunk < m->o.micro_tokens ? m->o.loss_chunk : m->o.micro_tokens;
}

/* Buffers are sized by the options, not by a shorter batch. */
static struct mat take_rows(struct model *m, enum mem_class c, const char *name, enum dtype dt, int64_t cols)
{
    void *p = mem_take(m->mem, c, name, (size_t)(chunk_rows(m) * cols) * dtype_size(dt));
    return mat(p, dt, chunk_rows(m), cols);
}

static void norm_and_head(struct model *m, struct mat logits, struct mat xn, struct mat rstd, struct mat x)
{
    m->ops->rmsnorm_fwd(m->dev, xn, rstd, x, block_weight(m, m->t->norm), m->c->rms_norm_eps);
    m->ops->gemm(m->dev, logits, xn, 0, block_weight(m, m->t->head), 1, 0);
}

int loss_run(struct model *m, const struct model_batch *b, struct mat x, double inv_valid, double beta,
             double *nll, struct mat *dx)
{
    const struct dev_ops *ops = m->ops;
    struct dev *d = m->dev;
    int64_t n = b->n_tokens, h = m->c->hidden_size, v = m->c->vocab_size, chunk = chunk_rows(m);
    TRY(block_gather(m, MODEL_LAYER_HEAD, 0));
    struct mat xn = take_rows(m, MEM_LOGITS, "head input", m->dt, h);
    struct mat rstd = take_rows(m, MEM_LOGITS, "rstd of the final norm", m->st, 1);
    struct mat logits = take_rows(m, MEM_LOGITS, "logits", m->dt, v);
    struct mat dxn = { 0 };
    if (dx)
        dxn = take_rows(m, MEM_LOGITS, "gradient of the head input", m->dt, h);
    /* Once even without tokens, so that gradients are written as 0. */
    int64_t t0 = 0;
    do {
        int64_t rows = n - t0 < chunk ? n - t0 : chunk;
        struct mat cxn = mat_rows(xn, 0, rows), crstd = mat_rows(rstd, 0, rows), clogits = mat_rows(logits, 0, rows);
        norm_and_head(m, clogits, cxn, crstd, mat_rows(x, t0, rows));
        ops->xent(d, nll + t0, clogits, b->targets + t0, inv_valid, dx != NULL);
        if (dx) {
            struct mat cdxn = mat_rows(dxn, 0, rows);
            block_linear_bwd(m, m->t->head, clogits, cxn, cdxn, 0, beta);
            ops->rmsnorm_bwd(d, mat_rows(*dx, t0, rows), 0, block_grad(m, m->t->norm), beta, cdxn, mat_rows(x, t0, rows),
                             block_weight(m, m->t->norm), crstd);
            beta = 1;
        }
        t0 += chunk;
    } while (t0 < n);
    block_give(m, &xn);
    block_give(m, &rstd);
    block_give(m, &logits);
    block_give(m, &dxn);
    ops->sum(d, &m->sums[0], nll, n);
    TRY(block_release(m, MODEL_LAYER_HEAD, 0));
    return dx ? block_reduce(m, MODEL_LAYER_HEAD) : 0;
}

int loss_logits(struct model *m, struct mat x, struct mat logits)
{
    int64_t chunk = chunk_rows(m);
    TRY(block_gather(m, MODEL_LAYER_HEAD, 0));
    struct mat xn = take_rows(m, MEM_LOGITS, "head input", m->dt, m->c->hidden_size);
    struct mat rstd = take_rows(m, MEM_LOGITS, "rstd of the final norm", m->st, 1);
    for (int64_t t0 = 0; t0 < x.rows; t0 += chunk) {
        int64_t rows = x.rows - t0 < chunk ? x.rows - t0 : chunk;
        norm_and_head(m, mat_rows(logits, t0, rows), mat_rows(xn, 0, rows), mat_rows(rstd, 0, rows), mat_rows(x, t0, rows));
    }
    block_give(m, &xn);
    block_give(m, &rstd);
    return block_release(m, MODEL_LAYER_HEAD, 0);
}
