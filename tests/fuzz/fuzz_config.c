/* fuzz_config.c -- train/run_config on base/config: the whole table, from YAML text. */
#include "fuzz/fuzz.h"
#include "train/run_config.h"

const char fuzz_what[] = "a configuration";

int fuzz_seeds(void)
{
    fuzz_add_text("model:\n  model_type: glm4_moe\n  hidden_size: 64\n  num_hidden_layers: 2\n  num_attention_heads: 4\n"
                  "  num_key_value_heads: 2\n  head_dim: 16\n  vocab_size: 8Ki\n  num_experts: 8\n"
                  "  num_experts_per_tok: 2\n  moe_intermediate_size: 32\n  n_shared_experts: 1\n"
                  "  first_k_dense_replace: 0\n  norm_topk_prob: true\n  use_qk_norm: true\n"
                  "data:\n  train: [{path: data/train, weight: 1}]\n  valid: [{name: de, path: \"data/v\\u0061lid\"}]\n"
                  "  seq_len: 64\ntrain: {steps: 20, tokens_per_step: 256, micro_tokens: 128}\n"
                  "optim:\n  adamw: {lr: 3e-3, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1}\n"
                  "  schedule: {kind: wsd, warmup: 2, decay: 6, final: 0.1}\n");
    return 0;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    struct run_config c = { 0 };
    int rc = run_config_load(fuzz_path(data, n), NULL, 0, &c);

    if (rc == 0)
        run_config_fini(&c);
    return rc;
}
