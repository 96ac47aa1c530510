/* families_check.c -- defaults and rules of a model's shape.
 *
 * A configuration comes from YAML or from a config.json; both end in
 * families_check(), so that a shape that its model_type cannot express is
 * refused at the door, with all its faults at once.  Nothing here reads files. */
#include "model/model_config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "model/families.h"

#define KEY_INT(f, def, lo, hi, doc) \
    { "model." #f, CONFIG_INT, offsetof(struct model_config, f), def, lo, hi, NULL, doc, NULL, 0 }
#define KEY_NUM(f, lo, hi, doc) \
    { "model." #f, CONFIG_FLOAT, offsetof(struct model_config, f), "0", lo, hi, NULL, doc, NULL, 0 }
#define KEY_BOOL(f, doc) \
    { "model." #f, CONFIG_BOOL, offsetof(struct model_config, f), "false", 0, 0, NULL, doc, NULL, 0 }
#define KEY_WORD(f, def, words, doc) \
    { "model." #f, CONFIG_CHOICE, offsetof(struct model_config, f), def, 0, 0, words, doc, NULL, 0 }

const struct config_key model_config_keys[] = {
    KEY_WORD(model_type, NULL, MODEL_TYPE_WORDS, "family, as in transformers"),
    KEY_INT(hidden_size, NULL, 1, 1048576, "width of the residual stream"),
    KEY_INT(num_hidden_layers, NULL, 1, 65535, "decoder layers"),
    KEY_INT(num_attention_heads, NULL, 1, 65536, "query heads"),
    KEY_INT(num_key_value_heads, "0", 0, 65536, "key and value heads; 0: as many as query heads"),
    KEY_INT(head_dim, "0", 0, 65536, "width of a head; 0: hidden_size / num_attention_heads"),
    KEY_INT(vocab_size, NULL, 2, 2147483647, "rows of the embedding"),
    KEY_INT(num_experts, NULL, 1, 65535, "routed experts of a layer"),
    KEY_INT(num_experts_per_tok, NULL, 1, 256, "experts chosen for a token"),
    KEY_INT(moe_intermediate_size, "0", 0, 1048576, "width of a routed expert"),
    KEY_INT(n_shared_experts, "0", 0, 1024, "glm4_moe: one shared MLP of this many expert widths"),
    KEY_INT(shared_expert_intermediate_size, "0", 0, 16777216, "qwen2_moe: width of the gated shared expert"),
    KEY_INT(first_k_dense_replace, "0", 0, 65535, "leading layers without experts"),
    KEY_INT(intermediate_size, "0", 0, 16777216, "width of the leading dense layers"),
    KEY_WORD(scoring_func, "auto", "softmax|sigmoid|auto", "scores of the router"),
    KEY_BOOL(norm_topk_prob, "weights of the chosen experts sum to 1"),
    KEY_NUM(routed_scaling_factor, 0, 1e6, "factor on the weights of the chosen experts"),
    KEY_INT(n_group, "0", 0, 65535, "groups of experts"),
    KEY_INT(topk_group, "0", 0, 65535, "groups that a token may choose from"),
    KEY_BOOL(attention_bias, "biases in the attention"),
    KEY_WORD(use_qk_norm, "auto", "none|head|whole|false|true|auto",
             "norm of queries and keys, per head or over the whole projection"),
    KEY_NUM(partial_rotary_factor, 0, 1, "share of a head's dims that turn"),
    KEY_NUM(rope_theta, 0, 1e15, "base of the rotary angles"),
    KEY_WORD(rope_scaling, "null", "null|default", "no other scaling is supported"),
    KEY_NUM(rms_norm_eps, 0, 1, "added to the mean square"),
    KEY_INT(max_position_embeddings, "0", 0, 2147483647, "written to config.json, at least seq_len"),
    KEY_BOOL(tie_word_embeddings, "the head is the embedding"),
    { NULL, CONFIG_INT, 0, NULL, 0, 0, NULL, NULL, NULL, 0 }
};

/* use_qk_norm as it is written; the first three are enum qk_norm. */
enum { QK_WORD_FALSE = QK_NORM_WHOLE + 1, QK_WORD_TRUE, QK_WORD_AUTO };
enum { SCORING_WORD_AUTO = SCORING_SIGMOID + 1 };

const char *model_type_name(int model_type)
{
    BUG_ON(model_type < 0 || model_type >= MODEL_TYPE_N);
    return families[model_type].name;
}

void families_fault(struct family_faults *f, const char *key, const char *fmt, ...)
{
    size_t at = strlen(f->text), room = sizeof f->text - at;
    f->n++;
    if (room < 200) {
        return;                 /* the first dozen faults say enough */
    }
    if (f->c) {
        char path[128];
        snprintf(path, sizeof path, "model.%s", key);
        snprintf(f->text + at, room, "%s%s: %s: ", at ? "\n" : "", config_where(f->c, path), path);
    } else {
        snprintf(f->text + at, room, "%s%s: %s: ", at ? "\n" : "", f->path, key);
    }
    at = strlen(f->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text + at, sizeof f->text - at, fmt, ap);
    va_end(ap);
}

int families_faults_end(const struct family_faults *f)
{
    return f->n ? err_set(ERR_USAGE, "%s", f->text) : 0;
}

static void check_sizes(struct model_config *m, struct family_faults *f)
{
    static const struct { const char *key; size_t offset; int64_t max; } sizes[] = {
        { "hidden_size", offsetof(struct model_config, hidden_size), 1 << 20 },
        { "num_hidden_layers", offsetof(struct model_config, num_hidden_layers), 65535 },
        { "num_attention_heads", offsetof(struct model_config, num_attention_heads), 65536 },
        { "num_key_value_heads", offsetof(struct model_config, num_key_value_heads), 65536 },
        { "head_dim", offsetof(struct model_config, head_dim), 65536 },
        { "vocab_size", offsetof(struct model_config, vocab_size), INT32_MAX },
        { "num_experts", offsetof(struct model_config, num_experts), 65535 },
        { "num_experts_per_tok", offsetof(struct model_config, num_experts_per_tok), 256 },
        { "moe_intermediate_size", offsetof(struct model_config, moe_intermediate_size), 1 << 20 },
        { "n_group", offsetof(struct model_config, n_group), 65535 },
        { "topk_group", offsetof(struct model_config, topk_group), 65535 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t v;
        memcpy(&v, (const char *)m + sizes[i].offset, sizeof v);
        if (v < 1 || v > sizes[i].max)
            families_fault(f, sizes[i].key, "expected 1 to %lld, not %lld", (long long)sizes[i].max, (long long)v);
    }
}

static void check_attention(struct model_config *m, const struct family *fam, struct family_faults *f)
{
    if (m->num_attention_heads % m->num_key_value_heads)
        families_fault(f, "num_key_value_heads", "%lld query heads are no multiple of %lld",
                       (long long)m->num_attention_heads, (long long)m->num_key_value_heads);
    if (!fam->free_head_dim && m->head_dim * m->num_attention_heads != m->hidden_size)
        families_fault(f, "head_dim", "in %s it is hidden_size / num_attention_heads", fam->name);
    if (m->num_attention_heads * m->head_dim > 1 << 22)
        families_fault(f, "head_dim", "heads x head_dim is over %d", 1 << 22);
    if (m->use_qk_norm < 0 || m->use_qk_norm > QK_NORM_WHOLE || !(fam->qk_norms >> m->use_qk_norm & 1)) {
        static const char *const words[] = { "none", "head", "whole" };
        const char *can = fam->qk_norms == (1u << QK_NORM_NONE | 1u << QK_NORM_HEAD) ? "none or head"
                        : words[__builtin_ctz(fam->qk_norms)];
        families_fault(f, "use_qk_norm", "%s has %s", fam->name, can);
    }
    if (m->attention_bias && !fam->bias)
        families_fault(f, "attention_bias", "%s has no biases", fam->name);
    m->attention_bias_o = m->attention_bias && fam->bias_o;
    if (!fam->partial && m->partial_rotary_factor != 1)
        families_fault(f, "partial_rotary_factor", "%s turns all dims of a head: 1", fam->name);
    if (!(m->partial_rotary_factor > 0 && m->partial_rotary_factor <= 1))
        families_fault(f, "partial_rotary_factor", "expected a number over 0, at most 1");
    else if ((int64_t)((double)m->head_dim * m->partial_rotary_factor) < 2 ||
             (int64_t)((double)m->head_dim * m->partial_rotary_factor) % 2)
        families_fault(f, "partial_rotary_factor", "head_dim x partial_rotary_factor must be an even number, at least 2");
    if (!(m->rope_theta > 0 && m->rope_theta <= 1e15))
        families_fault(f, "rope_theta", "expected a number over 0, at most 1e15");
}

static void check_experts(struct model_config *m, const struct family *fam, struct family_faults *f)
{
    if (m->num_experts_per_tok > m->num_experts)
        families_fault(f, "num_experts_per_tok", "%lld of only %lld experts", (long long)m->num_experts_per_tok,
                       (long long)m->num_experts);
    if (m->scoring_func != (int)fam->def.scoring_func)
        families_fault(f, "scoring_func", "the router of %s is %s", fam->name,
                       fam->def.scoring_func == SCORING_SIGMOID ? "sigmoid" : "softmax");
    if (!fam->groups && (m->n_group != 1 || m->topk_group != 1)) {
        families_fault(f, "n_group", "%s has no groups of experts: 1", fam->name);
    } else if (m->num_experts % m->n_group) {
        families_fault(f, "n_group", "%lld experts are no multiple of %lld", (long long)m->num_experts,
                       (long long)m->n_group);
    } else if (m->topk_group > m->n_group ||
               (m->num_experts_per_tok <= m->num_experts &&
                m->topk_group * (m->num_experts / m->n_group) < m->num_experts_per_tok)) {
        families_fault(f, "topk_group", "%lld of %lld groups do not hold %lld experts", (long long)m->topk_group,
                       (long long)m->n_group, (long long)m->num_experts_per_tok);
    } else if (m->n_group > 1 && m->num_experts / m->n_group < 2) {
        families_fault(f, "n_group", "a group's score is the sum of its two best: groups of one do not load in transformers");
    }
    if (!(m->routed_scaling_factor > 0 && m->routed_scaling_factor <= 1e6))
        families_fault(f, "routed_scaling_factor", "expected a number over 0, at most 1e6");
    else if (!fam->scale && m->routed_scaling_factor != 1)
        families_fault(f, "routed_scaling_factor", "%s does not scale: 1", fam->name);
    if (fam->always_norm_topk && !m->norm_topk_prob)
        families_fault(f, "norm_topk_prob", "%s always normalises: true", fam->name);

    if (fam->shared == FAMILY_SHARED_SUM && (m->n_shared_experts < 1 || m->n_shared_experts > 1024))
        families_fault(f, "n_shared_experts", "%s always has a shared expert: 1 to 1024", fam->name);
    if (fam->shared != FAMILY_SHARED_SUM && m->n_shared_experts)
        families_fault(f, "n_shared_experts", fam->shared ? "%s sizes its one with shared_expert_intermediate_size: 0"
                       : "%s has no shared expert: 0", fam->name);
    if (fam->shared == FAMILY_SHARED_GATED &&
        (m->shared_expert_intermediate_size < 1 || m->shared_expert_intermediate_size > 1 << 24))
        families_fault(f, "shared_expert_intermediate_size", "%s always has one: 1 to %d", fam->name, 1 << 24);
    if (fam->shared != FAMILY_SHARED_GATED && m->shared_expert_intermediate_size)
        families_fault(f, "shared_expert_intermediate_size", "%s has none: 0", fam->name);

    if (!fam->dense && m->first_k_dense_replace)
        families_fault(f, "first_k_dense_replace", "every layer of %s has experts: 0", fam->name);
    else if (m->first_k_dense_replace < 0 || m->first_k_dense_replace >= m->num_hidden_layers)
        families_fault(f, "first_k_dense_replace", "%lld of %lld layers: no layer with experts is left",
                       (long long)m->first_k_dense_replace, (long long)m->num_hidden_layers);
    if (m->intermediate_size > 1 << 24)
        families_fault(f, "intermediate_size", "expected at most %d", 1 << 24);
    else if (m->first_k_dense_replace > 0 && m->intermediate_size < 1)
        families_fault(f, "intermediate_size", "the leading dense layers need a width");
}

void families_check(struct model_config *m, struct family_faults *f)
{
    const struct family *fam = &families[m->model_type];
    if (!m->num_key_value_heads)
        m->num_key_value_heads = m->num_attention_heads;
    if (!m->head_dim && m->num_attention_heads > 0) {
        if (m->hidden_size % m->num_attention_heads) {
            families_fault(f, "head_dim", "must be given: hidden_size %lld is no multiple of %lld heads",
                           (long long)m->hidden_size, (long long)m->num_attention_heads);
            m->head_dim = 2;    /* so that only the cause is reported */
        } else {
            m->head_dim = m->hidden_size / m->num_attention_heads;
        }
    }
    int before = f->n;
    check_sizes(m, f);
    if (f->n > before)
        return;                 /* the rest divides by them */
    if (!(m->rms_norm_eps > 0 && m->rms_norm_eps < 1))
        families_fault(f, "rms_norm_eps", "expected a number over 0, below 1");
    check_attention(m, fam, f);
    check_experts(m, fam, f);
}

int model_config_finish(struct model_config *m, struct config *c)
{
    const struct family *fam = &families[m->model_type];
    const struct model_config *d = &fam->def;
    struct family_faults f = { .c = c };
#define GIVEN(f) config_given(c, "model." #f)
#define DEFAULT(f) do { if (!GIVEN(f)) m->f = d->f; } while (0)
    DEFAULT(first_k_dense_replace);
    DEFAULT(n_shared_experts);
    DEFAULT(norm_topk_prob);
    DEFAULT(attention_bias);
    DEFAULT(tie_word_embeddings);
    DEFAULT(routed_scaling_factor);
    DEFAULT(partial_rotary_factor);
    DEFAULT(rope_theta);
    DEFAULT(rms_norm_eps);
    DEFAULT(n_group);
    DEFAULT(topk_group);
    if (m->scoring_func == SCORING_WORD_AUTO)
        m->scoring_func = d->scoring_func;
    if (m->use_qk_norm == QK_WORD_FALSE)
        m->use_qk_norm = QK_NORM_NONE;
    else if (m->use_qk_norm == QK_WORD_AUTO)
        m->use_qk_norm = d->use_qk_norm;
    else if (m->use_qk_norm == QK_WORD_TRUE)
        m->use_qk_norm = fam->qk_norms >> QK_NORM_WHOLE & 1 ? QK_NORM_WHOLE : QK_NORM_HEAD;
    /* mixtral and olmoe call the experts' width intermediate_size. */
    if (!fam->dense && GIVEN(intermediate_size) && m->intermediate_size) {
        if (GIVEN(moe_intermediate_size) && m->moe_intermediate_size != m->intermediate_size)
            families_fault(&f, "intermediate_size", "in %s it is the width of the experts, which is given as %lld",
                           fam->name, (long long)m->moe_intermediate_size);
        m->moe_intermediate_size = m->intermediate_size;
        m->intermediate_size = 0;
    }
    if (!GIVEN(moe_intermediate_size) && !m->moe_intermediate_size) {
        families_fault(&f, "moe_intermediate_size", "must be given");
        m->moe_intermediate_size = 1;
    }
    families_check(m, &f);
    TRY(families_faults_end(&f));
    char note[64];
    snprintf(note, sizeof note, "default of %s", fam->name);
    return model_config_show(m, c, 0, note);
}

int model_config_show(const struct model_config *m, struct config *c, _Bool all, const char *note)
{
    for (const struct config_key *k = model_config_keys; k->path; k++) {
        if (!all && config_given(c, k->path))
            continue;
        const char *p = (const char *)m + k->offset;
        char text[64];
        int64_t i;
        double v;
        _Bool b;
        int w;
        switch (k->kind) {
        case CONFIG_INT:
            memcpy(&i, p, sizeof i);
            snprintf(text, sizeof text, "%lld", (long long)i);
            break;
        case CONFIG_FLOAT:
            memcpy(&v, p, sizeof v);
            units_shortest(text, v);
            break;
        case CONFIG_BOOL:
            memcpy(&b, p, sizeof b);
            snprintf(text, sizeof text, "%s", b ? "true" : "false");
            break;
        default: {
            memcpy(&w, p, sizeof w);
            const char *word = k->choices;
            while (w-- > 0)
                word = strchr(word, '|') + 1;
            snprintf(text, sizeof text, "%.*s", (int)strcspn(word, "|"), word);
        }
        }
        TRY(config_note(c, k->path, text, note));
    }
    return 0;
}

void model_config_fini(struct model_config *m)
{
    json_decref(m->extra);
    m->extra = NULL;
}

_Bool model_config_same(const struct model_config *a, const struct model_config *b, const char **key)
{
    for (const struct config_key *k = model_config_keys; k->path; k++) {
        if (!strcmp(k->path, "model.max_position_embeddings") || !strcmp(k->path, "model.rope_scaling"))
            continue;
        /* The width of dense layers that do not exist says nothing. */
        if (!strcmp(k->path, "model.intermediate_size") && !a->first_k_dense_replace && !b->first_k_dense_replace)
            continue;
        size_t n = k->kind == CONFIG_INT ? sizeof(int64_t) : k->kind == CONFIG_FLOAT ? sizeof(double)
                 : k->kind == CONFIG_BOOL ? sizeof(_Bool) : sizeof(int);
        if (memcmp((const char *)a + k->offset, (const char *)b + k->offset, n)) {
            *key = k->path + strlen("model.");
            return 0;
        }
    }
    *key = NULL;
    return 1;
}
