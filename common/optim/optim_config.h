/* optim_config.h -- the optim: section of a configuration. */
#ifndef OPTIM_OPTIM_CONFIG_H
#define OPTIM_OPTIM_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/config.h"

/* Words of the choices, in the order of the enums. */
#define OPTIM_NS_WORDS "jordan|you|polar_express|dion|deepseek_v4|cubic5"
#define OPTIM_SCALE_WORDS "match_rms_adamw|original"
#define OPTIM_SPLIT_WORDS "none|head"
#define OPTIM_SCHEDULE_WORDS "constant|cosine|linear|wsd"
enum { OPTIM_SCALE_MATCH_RMS, OPTIM_SCALE_ORIGINAL };
enum { OPTIM_SPLIT_NONE, OPTIM_SPLIT_HEAD };
enum { SCHEDULE_CONSTANT, SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD };

struct optim_config {
    double muon_lr, muon_momentum, muon_weight_decay;
    _Bool muon_nesterov;
    int muon_ns, muon_ns_dtype, muon_scale, muon_split;
    double adamw_lr, adamw_betas[2], adamw_eps, adamw_weight_decay;
    double clip_norm;                   /* 0: no clipping */
    int schedule;
    int64_t warmup, decay;              /* steps */
    double final;                       /* factor at the end of the decay */
};

/* Rows for the configuration table of struct type T whose member m is a
 * struct optim_config. */
#define OPTIM_CONFIG_KEYS(T, m)                                                              \
    { "optim.muon.lr", CONFIG_FLOAT, offsetof(T, m.muon_lr), "3e-3", 0, 10, NULL,             \
      "learning rate of matrices", NULL, 0 },                                                 \
    { "optim.muon.momentum", CONFIG_FLOAT, offsetof(T, m.muon_momentum), "0.95", 0, 0.9999, NULL, \
      "momentum, in the EMA form of torch.optim.Muon", NULL, 0 },                             \
    { "optim.muon.nesterov", CONFIG_BOOL, offsetof(T, m.muon_nesterov), "true", 0, 0, NULL,   \
      "look ahead with the momentum", NULL, 0 },                                              \
    { "optim.muon.ns", CONFIG_CHOICE, offsetof(T, m.muon_ns), "jordan", 0, 0, OPTIM_NS_WORDS, \
      "coefficients of the Newton-Schulz iteration", NULL, 0 },                               \
    { "optim.muon.ns_dtype", CONFIG_CHOICE, offsetof(T, m.muon_ns_dtype), "auto", 0, 0, "auto|fp32", \
      "arithmetic of the Newton-Schulz iteration", NULL, 0 },                                 \
    { "optim.muon.scale", CONFIG_CHOICE, offsetof(T, m.muon_scale), "match_rms_adamw", 0, 0,  \
      OPTIM_SCALE_WORDS, "size of an update: 0.2 sqrt(max(rows, cols)), or sqrt(max(1, rows/cols))", NULL, 0 }, \
    { "optim.muon.split", CONFIG_CHOICE, offsetof(T, m.muon_split), "none", 0, 0,             \
      OPTIM_SPLIT_WORDS, "orthogonalise attention matrices whole or head by head", NULL, 0 }, \
    { "optim.muon.weight_decay", CONFIG_FLOAT, offsetof(T, m.muon_weight_decay), "0.1", 0, 1, NULL, \
      "decay of matrices, times the unadjusted learning rate", NULL, 0 },                     \
    { "optim.adamw.lr", CONFIG_FLOAT, offsetof(T, m.adamw_lr), "3e-3", 0, 10, NULL,           \
      "learning rate of embeddings, head, router and vectors", NULL, 0 },                     \
    { "optim.adamw.betas", CONFIG_FLOATS, offsetof(T, m.adamw_betas), "[0.9, 0.95]", 0, 0.99999999, NULL, \
      "decay rates of the two moments", NULL, 2 },                                            \
    { "optim.adamw.eps", CONFIG_FLOAT, offsetof(T, m.adamw_eps), "1e-8", 1e-30, 1, NULL,      \
      "added to the root of the second moment", NULL, 0 },                                    \
    { "optim.adamw.weight_decay", CONFIG_FLOAT, offsetof(T, m.adamw_weight_decay), "0.1", 0, 1, NULL, \
      "decay of matrices under AdamW; vectors and biases never decay", NULL, 0 },             \
    { "optim.clip_norm", CONFIG_FLOAT, offsetof(T, m.clip_norm), "1.0", 0, 1e30, NULL,        \
      "largest norm of the whole gradient; 0 switches clipping off", NULL, 0 },               \
    { "optim.schedule.kind", CONFIG_CHOICE, offsetof(T, m.schedule), "wsd", 0, 0,             \
      OPTIM_SCHEDULE_WORDS, "shape of the learning rate over the run", NULL, 0 },             \
    { "optim.schedule.warmup", CONFIG_INT, offsetof(T, m.warmup), "0", 0, 1e15, NULL,         \
      "steps of linear warm-up", NULL, 0 },                                                   \
    { "optim.schedule.decay", CONFIG_INT, offsetof(T, m.decay), "0", 0, 1e15, NULL,           \
      "last steps of wsd, in which the rate falls linearly", NULL, 0 },                       \
    { "optim.schedule.final", CONFIG_FLOAT, offsetof(T, m.final), "0.1", 0, 1, NULL,          \
      "factor reached at the last step", NULL, 0 }

/* Rules that concern several keys (steps: train.steps).  c names places;
 * errors are ERR_USAGE: original without both learning rates given; warm-up
 * and decay longer than the run. */
int optim_config_check(const struct optim_config *o, int64_t steps, const struct config *c);

/* Factor on both learning rates for the update of step `step` (0-based). */
double optim_schedule(const struct optim_config *o, int64_t steps, int64_t step);

#endif
