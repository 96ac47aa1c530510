/* run_config.h -- the whole configuration of a run, one table.
 *
 * Each section's keys live with the module that obeys them; this file puts the
 * sections together, adds those of the trainer, and checks what concerns
 * several keys.  Values that a later stage brings can be read and planned with;
 * run_config_check_built() refuses them where something is to be computed. */
#ifndef TRAIN_RUN_CONFIG_H
#define TRAIN_RUN_CONFIG_H

#include "base/config.h"
#include "data/data_config.h"
#include "model/model_config.h"
#include "optim/optim_config.h"

enum { NONFINITE_STOP, NONFINITE_SKIP };
enum { COMPUTE_FP32, COMPUTE_BF16, COMPUTE_AUTO };

struct run_config {
    struct model_config model;
    int64_t init_seed;
    double init_std;
    char *tokenizer;                    /* path; NULL: none given */
    struct data_config data;
    int64_t steps, tokens_per_step, micro_tokens, loss_chunk;
    int compute_dtype, nonfinite;
    double aux_coef, z_coef, bias_rate;
    int aux_scope;                      /* enum aux_scope */
    struct optim_config optim;
    int64_t boundary_every;
    int state_home, boundary_home;      /* 0 device, 1 host */
    int64_t replicas, efsdp, ep, rows_cap, seqs_per_gather;     /* -1: auto */
    int grad_dtype, gather_dtype;
    _Bool split_replicas;
    int64_t ckpt_every, ckpt_keep, ckpt_major_every, ckpt_light_every, ckpt_light_keep;
    _Bool ckpt_async;
    int64_t eval_every, eval_batches;   /* 0: never; all windows */
    struct config *source;              /* for places, printing and the digest; owned */
};

/* Reads file ("-" stdin; NULL: defaults), applies key.path=value overrides,
 * fills family defaults and checks everything.  Paths of data and tokenizer
 * are relative to the working directory, like operands.  ERR_USAGE with all
 * errors, ERR_NOINPUT.  *out is filled only on success; run_config_fini() it. */
int run_config_load(const char *file, char **overrides, int n_overrides, struct run_config *out);

/* ERR_USAGE names every value that this version can plan with but not run. */
int run_config_check_built(const struct run_config *c);

/* The configuration behind a --from operand: RUN/config.yaml, that of the run
 * a checkpoint directory lies in, or (a Hugging Face directory) its config.json
 * with the defaults for everything else and data.seq_len 1024 unless
 * overridden.  file not NULL: that file instead. */
int run_config_from(const char *from, const char *file, char **overrides, int n_overrides, struct run_config *out);

void run_config_fini(struct run_config *c);

/* What identifies the model and the data order: two runs whose identities differ
 * are not the same run.  The text names the first difference ("model.head_dim:
 * 64, was 32"); shape or data: ERR_USAGE; *notes collects the other differences,
 * one a line, in arena a. */
int run_config_compare(const struct run_config *now, const struct run_config *was, struct arena *a, char **notes);

/* Identity of what a plan is made from: the printed values of model.*, mesh.*,
 * optim.muon.ns and optim.muon.split.  Data, schedule and outputs may change
 * between making a plan and obeying it. */
struct hash run_config_plan_digest(const struct run_config *c);

/* The table itself, for moe-formats(5) and its test. */
const struct config_key *run_config_keys(void);

#endif
