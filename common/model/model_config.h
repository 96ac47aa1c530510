/* model_config.h -- the shape of a model, under the names of Hugging Face's
 * config.json, and what each family can and cannot express.
 *
 * Read from the model: section of a YAML file (base/config.h) or from a
 * config.json.  A config.json key is used, must be neutral, or is bookkeeping
 * (one table per model_type in families.c); any other key is an error.  A model
 * outside what its model_type can express is refused here, never at export.
 * Sources: transformers' configuration classes of each family. */
#ifndef MODEL_MODEL_CONFIG_H
#define MODEL_MODEL_CONFIG_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/config.h"
#include "dev/dev.h"

enum model_type { MODEL_GLM4_MOE, MODEL_QWEN3_MOE, MODEL_MIXTRAL, MODEL_OLMOE, MODEL_QWEN2_MOE, MODEL_TYPE_N };

enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE };

struct model_config {
    int model_type;                     /* enum model_type */
    int64_t hidden_size, num_hidden_layers;
    int64_t num_attention_heads, num_key_value_heads, head_dim;
    int64_t vocab_size;
    int64_t num_experts, num_experts_per_tok, moe_intermediate_size;
    int64_t n_shared_experts;           /* glm4_moe: one MLP of n x moe_intermediate_size */
    int64_t shared_expert_intermediate_size;    /* qwen2_moe; 0 elsewhere */
    int64_t first_k_dense_replace, intermediate_size;   /* leading dense layers and their width */
    int64_t n_group, topk_group;
    _Bool norm_topk_prob, tie_word_embeddings, attention_bias;
    _Bool attention_bias_o;             /* qwen3_moe: the bias includes o_proj */
    int scoring_func;                   /* enum scoring */
    int use_qk_norm;                    /* enum qk_norm */
    double routed_scaling_factor, partial_rotary_factor, rope_theta, rms_norm_eps;
    int rope_scaling;                   /* null or default: none */
    int64_t max_position_embeddings;    /* bookkeeping; written back, at least seq_len */
    json_t *extra;                      /* bookkeeping keys kept from a config.json, or NULL; owned */
};

#define MODEL_TYPE_WORDS "glm4_moe|qwen3_moe|mixtral|olmoe|qwen2_moe"

/* Rows for base/config.h: offsets within struct model_config, paths "model.*".
 * 0, false and auto stand for "the family's default" until model_config_finish(). */
extern const struct config_key model_config_keys[];

/* "glm4_moe" ... */
const char *model_type_name(int model_type);

/* After config_load(): fills the family's defaults for what the YAML left out
 * and shows them in config_print(), then checks every rule of the family.  All
 * errors at once, one a line; ERR_USAGE. */
int model_config_finish(struct model_config *m, struct config *c);

/* From a config.json (path for messages).  ERR_USAGE / ERR_NOINPUT / ERR_DATA.
 * seq_len decides whether a sliding window is neutral (0: any window is refused
 * unless disabled). */
int model_config_read(struct model_config *m, const char *path, int64_t seq_len);
void model_config_fini(struct model_config *m);

/* Makes config_print() show the values of m; note tells their origin.  With
 * all false only the keys that the user did not give. */
int model_config_show(const struct model_config *m, struct config *c, _Bool all, const char *note);

/* The config.json of a checkpoint: family keys in both spellings where v4 and
 * v5 of transformers differ, torch_dtype and dtype "float32", architectures,
 * bookkeeping kept.  eos: id or -1.  Text owned (pool_free). */
char *model_config_json(const struct model_config *m, int64_t eos, int64_t seq_len);

/* The same for weights of another type: "float32", "bfloat16", "float16". */
char *model_config_json_typed(const struct model_config *m, int64_t eos, int64_t seq_len, const char *torch_type);

/* The two shapes are the same model: *key names the first that differs. */
_Bool model_config_same(const struct model_config *a, const struct model_config *b, const char **key);

static inline int64_t model_rot_dim(const struct model_config *m)
{
    return (int64_t)((double)m->head_dim * m->partial_rotary_factor) & ~(int64_t)1;
}
static inline _Bool model_is_moe(const struct model_config *m, int64_t layer)
{
    return layer >= m->first_k_dense_replace;
}

#endif
