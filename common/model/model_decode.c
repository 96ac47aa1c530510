/* model_decode.c -- one document, fed in pieces, with its keys and values kept.
 *
 * Equal to the full forward pass: the same ops on the same rows, only that
 * keys and values of earlier tokens come from the cache.  Refuses to slide the
 * window: when the cache is full, it says so. */
#include "base/err.h"
#include "model/block.h"

int model_cache_new(struct model *m)
{
    const struct model_config *c = m->c;
    int64_t kv = c->num_key_value_heads * c->head_dim, n = m->o.max_positions;
    BUG_ON(!m->cache_k);
    for (int i = 0; i < c->num_hidden_layers; i++) {
        void *p;
        TRY(mem_keep(m->mem, MEM_CACHE, "cached keys", (size_t)(n * kv) * dtype_size(m->dt), &p));
        m->cache_k[i] = mat(p, m->dt, n, kv);
        TRY(mem_keep(m->mem, MEM_CACHE, "cached values", (size_t)(n * kv) * dtype_size(m->dt), &p));
        m->cache_v[i] = mat(p, m->dt, n, kv);
    }
    m->n_cached = 0;
    return 0;
}

void model_cache_reset(struct model *m)
{
    m->n_cached = 0;
}

int model_decode(struct model *m, const int32_t *ids, int64_t n, void *logits)
{
    const struct model_config *c = m->c;
    const struct dev_ops *ops = m->ops;
    size_t bytes = (size_t)n * sizeof(int32_t), room = (size_t)m->o.micro_tokens * sizeof(int32_t);
    BUG_ON(n < 1 || n > m->o.micro_tokens || !m->cache_k[0].p);
    if (m->n_cached + n > m->o.max_positions)
        return err_set(ERR_DATA, "the text is longer than the %lld positions of this run", (long long)m->o.max_positions);
    for (int64_t i = 0; i < n; i++)
        m->host_positions[i] = (int32_t)(m->n_cached + i);
    int32_t *dev_ids = mem_take(m->mem, MEM_BATCH, "ids", room);
    int32_t *positions = mem_take(m->mem, MEM_BATCH, "positions", room);
    int32_t *doc_start = mem_take(m->mem, MEM_BATCH, "document starts", room);
    ops->copy(m->dev, dev_ids, ids, bytes);
    ops->copy(m->dev, positions, m->host_positions, bytes);
    ops->zero(m->dev, doc_start, bytes);

    struct block_pass p = { .n = n, .seq_len = n, .doc_start = doc_start, .positions = positions };
    struct mat x = block_take(m, MEM_ACT, "residual", m->dt, 1, c->hidden_size, n);
    TRY(block_gather(m, MODEL_LAYER_EMBED, 0));
    ops->embed_fwd(m->dev, x, block_weight(m, m->t->embed), dev_ids);
    TRY(block_release(m, MODEL_LAYER_EMBED, 0));
    TRY(model_forward(m, &p, &x, m->n_cached));
    TRY(loss_logits(m, mat_rows(x, n - 1, 1), mat(logits, m->dt, 1, c->vocab_size)));
    block_give(m, &x);
    mem_give(m->mem, dev_ids);
    mem_give(m->mem, positions);
    mem_give(m->mem, doc_start);
    m->n_cached += n;
    return ops->sync(m->dev);
}
