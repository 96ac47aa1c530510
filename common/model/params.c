/* params.c -- the parameter table from a configuration.
 *
 * The families differ in names only; shapes, order and optimizer follow from
 * the role of a tensor.  A name is made here and nowhere else. */
#include "model/params.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "model/families.h"

enum { ALIGN_ELEMS = 16 };      /* 64 bytes of F32 */

struct builder {
    struct arena *a;
    const struct model_config *m;
    struct param_table *t;
    int layer, expert, room;
};

/* Vectors have cols 1 and n_dims 1; they and the router go to AdamW. */
static int add(struct builder *b, enum param_kind kind, int n_dims, int64_t rows, int64_t cols, const char *name)
{
    struct param_table *t = b->t;
    BUG_ON(t->n >= b->room);
    struct param *p = &t->v[t->n];
    p->name = b->layer < 0 ? arena_strdup(b->a, name) : arena_printf(b->a, "model.layers.%d.%s", b->layer, name);
    p->kind = kind;
    p->n_dims = n_dims;
    p->rows = rows;
    p->cols = cols;
    p->layer = b->layer;
    p->expert = b->expert;
    p->decay = n_dims == 2;
    p->optim = kind == PARAM_ROUTER_BIAS ? PARAM_NONE
             : n_dims == 2 && (kind == PARAM_ATTN || kind == PARAM_EXPERT || kind == PARAM_SHARED || kind == PARAM_DENSE)
             ? PARAM_MUON : PARAM_ADAMW;
    p->offset = t->n_elems;
    t->n_elems += (rows * cols + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
    return t->n++;
}

static int matrix(struct builder *b, enum param_kind kind, int64_t rows, int64_t cols, const char *name)
{
    return add(b, kind, 2, rows, cols, name);
}

static int vector(struct builder *b, enum param_kind kind, int64_t n, const char *name)
{
    return add(b, kind, 1, n, 1, name);
}

static void attention(struct builder *b, struct layer_params *l)
{
    const struct model_config *m = b->m;
    int64_t q = m->num_attention_heads * m->head_dim, kv = m->num_key_value_heads * m->head_dim;
    l->q = matrix(b, PARAM_ATTN, q, m->hidden_size, "self_attn.q_proj.weight");
    l->k = matrix(b, PARAM_ATTN, kv, m->hidden_size, "self_attn.k_proj.weight");
    l->v = matrix(b, PARAM_ATTN, kv, m->hidden_size, "self_attn.v_proj.weight");
    l->o = matrix(b, PARAM_ATTN, m->hidden_size, q, "self_attn.o_proj.weight");
    if (m->attention_bias) {
        l->q_bias = vector(b, PARAM_ATTN_BIAS, q, "self_attn.q_proj.bias");
        l->k_bias = vector(b, PARAM_ATTN_BIAS, kv, "self_attn.k_proj.bias");
        l->v_bias = vector(b, PARAM_ATTN_BIAS, kv, "self_attn.v_proj.bias");
    }
    if (m->attention_bias_o)
        l->o_bias = vector(b, PARAM_ATTN_BIAS, m->hidden_size, "self_attn.o_proj.bias");
    if (m->use_qk_norm) {
        _Bool whole = m->use_qk_norm == QK_NORM_WHOLE;
        l->q_norm = vector(b, PARAM_NORM, whole ? q : m->head_dim, "self_attn.q_norm.weight");
        l->k_norm = vector(b, PARAM_NORM, whole ? kv : m->head_dim, "self_attn.k_norm.weight");
    }
}

static void experts(struct builder *b, struct layer_params *l)
{
    const struct model_config *m = b->m;
    const struct family *fam = &families[m->model_type];
    int64_t h = m->hidden_size, i = m->moe_intermediate_size;
    _Bool mixtral = m->model_type == MODEL_MIXTRAL;
    const char *block = mixtral ? "block_sparse_moe" : "mlp";
    char *name = arena_printf(b->a, "%s.gate.weight", block);
    l->router = matrix(b, PARAM_ROUTER, m->num_experts, h, name);
    if (fam->selection_bias)
        l->router_bias = vector(b, PARAM_ROUTER_BIAS, m->num_experts, "mlp.gate.e_score_correction_bias");
    if (fam->shared == FAMILY_SHARED_SUM) {
        int64_t s = m->n_shared_experts * i;
        l->shared_gate = matrix(b, PARAM_SHARED, s, h, "mlp.shared_experts.gate_proj.weight");
        l->shared_up = matrix(b, PARAM_SHARED, s, h, "mlp.shared_experts.up_proj.weight");
        l->shared_down = matrix(b, PARAM_SHARED, h, s, "mlp.shared_experts.down_proj.weight");
    } else if (fam->shared == FAMILY_SHARED_GATED) {
        int64_t s = m->shared_expert_intermediate_size;
        l->shared_gate = matrix(b, PARAM_SHARED, s, h, "mlp.shared_expert.gate_proj.weight");
        l->shared_up = matrix(b, PARAM_SHARED, s, h, "mlp.shared_expert.up_proj.weight");
        l->shared_down = matrix(b, PARAM_SHARED, h, s, "mlp.shared_expert.down_proj.weight");
        l->shared_expert_gate = matrix(b, PARAM_SHARED_GATE, 1, h, "mlp.shared_expert_gate.weight");
    }
    static const char *const usual[] = { "gate_proj", "up_proj", "down_proj" }, *const short_names[] = { "w1", "w3", "w2" };
    const char *const *parts = mixtral ? short_names : usual;
    l->experts = b->t->n;
    for (int e = 0; e < m->num_experts; e++) {
        b->expert = e;
        for (int p = 0; p < 3; p++) {
            name = arena_printf(b->a, "%s.experts.%d.%s.weight", block, e, parts[p]);
            matrix(b, PARAM_EXPERT, p < 2 ? i : h, p < 2 ? h : i, name);
        }
    }
    b->expert = -1;
}

static void dense(struct builder *b, struct layer_params *l)
{
    const struct model_config *m = b->m;
    l->dense_gate = matrix(b, PARAM_DENSE, m->intermediate_size, m->hidden_size, "mlp.gate_proj.weight");
    l->dense_up = matrix(b, PARAM_DENSE, m->intermediate_size, m->hidden_size, "mlp.up_proj.weight");
    l->dense_down = matrix(b, PARAM_DENSE, m->hidden_size, m->intermediate_size, "mlp.down_proj.weight");
}

static _Thread_local const struct param_table *sorting;        /* qsort takes no context */
static int by_name(const void *x, const void *y)
{
    return strcmp(sorting->v[*(const int *)x].name, sorting->v[*(const int *)y].name);
}

int params_build(struct arena *a, const struct model_config *cfg, struct param_table *out)
{
    memset(out, 0, sizeof *out);
    /* Fewer than 24 tensors a layer besides the experts. */
    int64_t room = 3 + cfg->num_hidden_layers * (24 + 3 * cfg->num_experts);
    if (room > INT32_MAX)
        return err_set(ERR_USAGE, "model: %lld tensors are too many", (long long)room);
    out->cfg = cfg;
    out->v = arena_array(a, (size_t)room, sizeof *out->v);
    out->layers = arena_array(a, (size_t)cfg->num_hidden_layers, sizeof *out->layers);
    struct builder b = { a, cfg, out, -1, -1, (int)room };
    out->embed = matrix(&b, PARAM_EMBED, cfg->vocab_size, cfg->hidden_size, "model.embed_tokens.weight");
    for (int i = 0; i < cfg->num_hidden_layers; i++) {
        struct layer_params *l = &out->layers[i];
        memset(l, 0xff, sizeof *l);     /* every index -1 */
        b.layer = i;
        l->input_norm = vector(&b, PARAM_NORM, cfg->hidden_size, "input_layernorm.weight");
        attention(&b, l);
        l->post_norm = vector(&b, PARAM_NORM, cfg->hidden_size, "post_attention_layernorm.weight");
        if (model_is_moe(cfg, i))
            experts(&b, l);
        else
            dense(&b, l);
    }
    b.layer = -1;
    out->norm = vector(&b, PARAM_NORM, cfg->hidden_size, "model.norm.weight");
    out->head = cfg->tie_word_embeddings ? out->embed
              : matrix(&b, PARAM_HEAD, cfg->vocab_size, cfg->hidden_size, "lm_head.weight");
    out->by_name = arena_array(a, (size_t)out->n, sizeof *out->by_name);
    for (int i = 0; i < out->n; i++)
        out->by_name[i] = i;
    sorting = out;
    qsort(out->by_name, (size_t)out->n, sizeof *out->by_name, by_name);
    return 0;
}

int params_find(const struct param_table *t, const char *name)
{
    int lo = 0, hi = t->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2, c = strcmp(t->v[t->by_name[mid]].name, name);
        if (!c)
            return t->by_name[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

static int64_t active_of(const struct param_table *t, const struct param *p)
{
    int64_t n = p->rows * p->cols;
    /* Experts of a layer are of one size, so a k / E share of all is whole. */
    return p->kind == PARAM_EXPERT && p->expert >= t->cfg->num_experts_per_tok ? 0 : n;
}

int64_t params_total(const struct param_table *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        n += t->v[i].rows * t->v[i].cols;
    return n;
}

int64_t params_active(const struct param_table *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        n += active_of(t, &t->v[i]);
    return n;
}

int64_t params_matmul(const struct param_table *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->v[i].n_dims == 2 && (i != t->embed || t->head == t->embed))
            n += active_of(t, &t->v[i]);
    return n;
}

void params_init(const struct param_table *t, int i, uint64_t seed, double std, int64_t first_row, int64_t n_rows, float *dst)
{
    const struct param *p = &t->v[i];
    int64_t n = n_rows * p->cols;
    if (p->n_dims == 2) {
        rng_fill_normal(dst, n, rng_key(seed, p->name), (uint64_t)(first_row * p->cols), std);
        return;
    }
    float v = p->kind == PARAM_NORM ? 1 : 0;
    for (int64_t j = 0; j < n; j++)
        dst[j] = v;
}

const char *params_kind_name(enum param_kind k)
{
    static const char *const names[PARAM_KIND_N] = {
        "embed", "head", "norm", "attn", "attn_bias", "router", "router_bias", "expert", "shared", "shared_gate", "dense"
    };
    return names[k];
}

const char *params_optim_name(enum param_optim o)
{
    static const char *const names[] = { "none", "adamw", "muon" };
    return names[o];
}

double params_flops(const struct param_table *t, int64_t n_tokens, double n_pairs)
{
    const struct model_config *m = t->cfg;
    return 6.0 * (double)params_matmul(t) * (double)n_tokens +
           12.0 * (double)(m->num_hidden_layers * m->num_attention_heads * m->head_dim) * n_pairs;
}
