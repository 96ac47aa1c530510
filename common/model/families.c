/* families.c -- the facts and key tables of the five families.
 *
 * Sources: the configuration and modelling classes of transformers 4.57 and
 * 5.24.  Refuses to guess: a feature that a family's modelling code does not
 * have is false here, whatever a configuration says. */
#include "model/families.h"

#include <string.h>

#define FIELD(f) offsetof(struct model_config, f)
#define USED(key, kind, field) { key, kind, FIELD(field), NULL, NULL }
#define ZERO(key, why) { key, FAMILY_NEUTRAL, 0, NULL, why }
#define ONLY(key, text, why) { key, FAMILY_ONLY, 0, text, why }
#define CODE(key) { key, FAMILY_CODE, 0, NULL, NULL }
#define BOOK(key) { key, FAMILY_BOOK, 0, NULL, NULL }
#define DROP(key) { key, FAMILY_DROP, 0, NULL, NULL }
#define END { NULL, FAMILY_DROP, 0, NULL, NULL }

const struct family_key families_common[] = {
    USED("hidden_size", FAMILY_INT, hidden_size),
    USED("num_hidden_layers", FAMILY_INT, num_hidden_layers),
    USED("num_attention_heads", FAMILY_INT, num_attention_heads),
    USED("num_key_value_heads", FAMILY_INT, num_key_value_heads),
    USED("head_dim", FAMILY_INT, head_dim),
    USED("vocab_size", FAMILY_INT, vocab_size),
    USED("num_experts_per_tok", FAMILY_INT, num_experts_per_tok),
    USED("rms_norm_eps", FAMILY_NUM, rms_norm_eps),
    USED("tie_word_embeddings", FAMILY_BOOL, tie_word_embeddings),
    USED("max_position_embeddings", FAMILY_INT, max_position_embeddings),
    CODE("model_type"),
    CODE("architectures"),
    CODE("rope_theta"),
    CODE("rope_scaling"),
    CODE("rope_parameters"),
    CODE("partial_rotary_factor"),
    ONLY("hidden_act", "silu", "the experts are SwiGLU"),
    ZERO("attention_dropout", "dropout is not part of this trainer"),
    ZERO("hidden_dropout", "dropout is not part of this trainer"),
    ZERO("resid_pdrop", "dropout is not part of this trainer"),
    ZERO("embd_pdrop", "dropout is not part of this trainer"),
    ZERO("quantization_config", "quantized weights are not read"),
    ZERO("mlp_bias", "the family has no bias in its MLPs"),
    ZERO("is_encoder_decoder", "only decoders are trained"),
    ZERO("add_cross_attention", "only decoders are trained"),
    ZERO("cross_attention_hidden_size", "only decoders are trained"),
    ZERO("pruned_heads", "pruned heads are not read"),
    ONLY("pretraining_tp", "1", "slices of a tensor-parallel run are not imitated"),
    BOOK("bos_token_id"), BOOK("eos_token_id"), BOOK("pad_token_id"), BOOK("initializer_range"), BOOK("use_cache"),
    BOOK("output_router_logits"), BOOK("router_aux_loss_coef"), BOOK("tokenizer_class"), BOOK("return_dict"),
    BOOK("output_attentions"), BOOK("output_hidden_states"), BOOK("id2label"), BOOK("label2id"), BOOK("problem_type"),
    BOOK("chunk_size_feed_forward"), BOOK("is_decoder"), BOOK("finetuning_task"), BOOK("prefix"),
    BOOK("sep_token_id"), BOOK("decoder_start_token_id"), BOOK("task_specific_params"), BOOK("transformers_version"),
    DROP("torch_dtype"), DROP("dtype"), DROP("_name_or_path"), DROP("auto_map"), DROP("_attn_implementation"),
    DROP("_attn_implementation_autoset"), DROP("_experts_implementation"),
    END
};

static const struct family_key glm4_moe[] = {
    USED("n_routed_experts", FAMILY_INT, num_experts),
    USED("num_local_experts", FAMILY_INT, num_experts),
    USED("num_experts", FAMILY_INT, num_experts),
    USED("moe_intermediate_size", FAMILY_INT, moe_intermediate_size),
    USED("intermediate_size", FAMILY_INT, intermediate_size),
    USED("n_shared_experts", FAMILY_INT, n_shared_experts),
    USED("first_k_dense_replace", FAMILY_INT, first_k_dense_replace),
    USED("n_group", FAMILY_INT, n_group),
    USED("topk_group", FAMILY_INT, topk_group),
    USED("norm_topk_prob", FAMILY_BOOL, norm_topk_prob),
    USED("routed_scaling_factor", FAMILY_NUM, routed_scaling_factor),
    USED("attention_bias", FAMILY_BOOL, attention_bias),
    CODE("use_qk_norm"),
    ONLY("scoring_func", "sigmoid", "the router of glm4_moe is sigmoid"),
    ONLY("topk_method", "noaux_tc", "the router of glm4_moe selects by score + bias"),
    ONLY("moe_layer_freq", "1", "every layer after the dense ones has experts"),
    DROP("num_nextn_predict_layers"), DROP("num_mtp_layers"),   /* their tensors are dropped by name */
    END
};

static const struct family_key qwen3_moe[] = {
    USED("num_experts", FAMILY_INT, num_experts),
    USED("num_local_experts", FAMILY_INT, num_experts),
    USED("moe_intermediate_size", FAMILY_INT, moe_intermediate_size),
    USED("intermediate_size", FAMILY_INT, intermediate_size),
    USED("norm_topk_prob", FAMILY_BOOL, norm_topk_prob),
    USED("attention_bias", FAMILY_BOOL, attention_bias),
    CODE("mlp_only_layers"),
    ONLY("decoder_sparse_step", "1", "leading dense layers are the only ones that can be expressed"),
    CODE("sliding_window"), CODE("use_sliding_window"), CODE("layer_types"),
    BOOK("max_window_layers"),
    END
};

static const struct family_key mixtral[] = {
    USED("num_local_experts", FAMILY_INT, num_experts),
    USED("num_experts", FAMILY_INT, num_experts),
    USED("intermediate_size", FAMILY_INT, moe_intermediate_size),
    ZERO("router_jitter_noise", "router noise is not part of this trainer"),
    CODE("sliding_window"), CODE("layer_types"),
    END
};

static const struct family_key olmoe[] = {
    USED("num_experts", FAMILY_INT, num_experts),
    USED("num_local_experts", FAMILY_INT, num_experts),
    USED("intermediate_size", FAMILY_INT, moe_intermediate_size),
    USED("norm_topk_prob", FAMILY_BOOL, norm_topk_prob),
    USED("attention_bias", FAMILY_BOOL, attention_bias),
    ZERO("clip_qkv", "clipping of q, k and v is not implemented"),
    END
};

static const struct family_key qwen2_moe[] = {
    USED("num_experts", FAMILY_INT, num_experts),
    USED("num_local_experts", FAMILY_INT, num_experts),
    USED("moe_intermediate_size", FAMILY_INT, moe_intermediate_size),
    USED("shared_expert_intermediate_size", FAMILY_INT, shared_expert_intermediate_size),
    USED("intermediate_size", FAMILY_INT, intermediate_size),
    USED("norm_topk_prob", FAMILY_BOOL, norm_topk_prob),
    USED("qkv_bias", FAMILY_BOOL, attention_bias),
    CODE("mlp_only_layers"),
    ONLY("decoder_sparse_step", "1", "leading dense layers are the only ones that can be expressed"),
    CODE("sliding_window"), CODE("use_sliding_window"), CODE("layer_types"),
    BOOK("max_window_layers"),
    END
};

/* What all defaults share: one group, scale 1. */
#define SAME .n_group = 1, .topk_group = 1, .routed_scaling_factor = 1

const struct family families[MODEL_TYPE_N] = {
    [MODEL_GLM4_MOE] = {
        "glm4_moe", "Glm4MoeForCausalLM", FAMILY_SHARED_SUM,
        1u << QK_NORM_NONE | 1u << QK_NORM_HEAD,
        .bias = 1, .groups = 1, .scale = 1, .partial = 1, .dense = 1, .selection_bias = 1, .free_head_dim = 1,
        .def = { .model_type = MODEL_GLM4_MOE, SAME, .hidden_size = 4096, .num_hidden_layers = 46,
                 .num_attention_heads = 96, .num_key_value_heads = 8, .vocab_size = 151552, .num_experts = 128,
                 .num_experts_per_tok = 8, .moe_intermediate_size = 1408, .n_shared_experts = 1,
                 .first_k_dense_replace = 1, .intermediate_size = 10944, .norm_topk_prob = 1,
                 .scoring_func = SCORING_SIGMOID, .use_qk_norm = QK_NORM_NONE, .partial_rotary_factor = 0.5, .rope_theta = 10000,
                 .rms_norm_eps = 1e-5, .max_position_embeddings = 131072 },
        .keys = glm4_moe },
    [MODEL_QWEN3_MOE] = {
        "qwen3_moe", "Qwen3MoeForCausalLM", FAMILY_SHARED_NONE,
        1u << QK_NORM_HEAD,
        .bias = 1, .bias_o = 1, .dense = 1, .free_head_dim = 1,
        .def = { .model_type = MODEL_QWEN3_MOE, SAME, .hidden_size = 2048, .num_hidden_layers = 24,
                 .num_attention_heads = 32, .num_key_value_heads = 4, .vocab_size = 151936, .num_experts = 128,
                 .num_experts_per_tok = 8, .moe_intermediate_size = 768, .intermediate_size = 6144,
                 .scoring_func = SCORING_SOFTMAX, .use_qk_norm = QK_NORM_HEAD, .partial_rotary_factor = 1,
                 .rope_theta = 10000,
                 .rms_norm_eps = 1e-6, .max_position_embeddings = 32768 },
        .keys = qwen3_moe },
    [MODEL_MIXTRAL] = {
        "mixtral", "MixtralForCausalLM", FAMILY_SHARED_NONE,
        1u << QK_NORM_NONE,
        .free_head_dim = 1, .always_norm_topk = 1,
        .def = { .model_type = MODEL_MIXTRAL, SAME, .hidden_size = 4096, .num_hidden_layers = 32,
                 .num_attention_heads = 32, .num_key_value_heads = 8, .vocab_size = 32000, .num_experts = 8,
                 .num_experts_per_tok = 2, .moe_intermediate_size = 14336, .norm_topk_prob = 1,
                 .scoring_func = SCORING_SOFTMAX, .use_qk_norm = QK_NORM_NONE, .partial_rotary_factor = 1,
                 .rope_theta = 1000000, .rms_norm_eps = 1e-5, .max_position_embeddings = 131072 },
        .keys = mixtral },
    [MODEL_OLMOE] = {
        "olmoe", "OlmoeForCausalLM", FAMILY_SHARED_NONE,
        1u << QK_NORM_WHOLE,
        .bias = 1, .bias_o = 1,
        .def = { .model_type = MODEL_OLMOE, SAME, .hidden_size = 2048, .num_hidden_layers = 16,
                 .num_attention_heads = 16, .vocab_size = 50304, .num_experts = 64, .num_experts_per_tok = 8,
                 .moe_intermediate_size = 2048, .scoring_func = SCORING_SOFTMAX, .use_qk_norm = QK_NORM_WHOLE,
                 .partial_rotary_factor = 1, .rope_theta = 10000, .rms_norm_eps = 1e-5, .max_position_embeddings = 4096 },
        .keys = olmoe },
    [MODEL_QWEN2_MOE] = {
        "qwen2_moe", "Qwen2MoeForCausalLM", FAMILY_SHARED_GATED,
        1u << QK_NORM_NONE,
        .bias = 1, .dense = 1,
        .def = { .model_type = MODEL_QWEN2_MOE, SAME, .hidden_size = 2048, .num_hidden_layers = 24,
                 .num_attention_heads = 16, .num_key_value_heads = 16, .vocab_size = 151936, .num_experts = 60,
                 .num_experts_per_tok = 4, .moe_intermediate_size = 1408, .shared_expert_intermediate_size = 5632,
                 .intermediate_size = 5632, .attention_bias = 1, .scoring_func = SCORING_SOFTMAX,
                 .use_qk_norm = QK_NORM_NONE, .partial_rotary_factor = 1, .rope_theta = 10000, .rms_norm_eps = 1e-6,
                 .max_position_embeddings = 32768 },
        .keys = qwen2_moe },
};

const struct family_key *families_key(const struct family *f, const char *key)
{
    for (const struct family_key *k = f->keys; k->key; k++)
        if (!strcmp(k->key, key))
            return k;
    for (const struct family_key *k = families_common; k->key; k++)
        if (!strcmp(k->key, key))
            return k;
    return NULL;
}
