/* trainer.h -- one process's part of a run: model, data, optimizer, memory.
 *
 * Everything is built twice by the same code: first over the trace device with
 * memory recording, where each program of the run (a micro-batch, the
 * optimizer, an evaluation batch, a decoding step) plays once without data;
 * then over the real device in the one reservation that the recording asked
 * for.  So the printed plan is the memory in use, by construction.
 *
 * A trainer does arithmetic and holds state.  Directories, signals, metrics and
 * the order of things in a run belong to conduct.h. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "ckpt/load.h"
#include "ckpt/save.h"
#include "data/loader.h"
#include "dev/dev.h"
#include "dev/mem.h"
#include "model/model.h"
#include "model/params.h"
#include "optim/optim.h"
#include "shard/layout.h"
#include "tok/vocab.h"
#include "train/fsdp.h"
#include "train/replicas.h"
#include "train/run_config.h"

struct trainer;

/* What a program needs from its trainer; the rest takes no memory. */
enum {
    TRAINER_MODEL = 1,          /* forward */
    TRAINER_GRADS = 2,          /* and backward */
    TRAINER_OPTIM = 4,          /* optimizer state */
    TRAINER_DATA = 8,           /* training sets */
    TRAINER_VALID = 16,         /* validation sets */
    TRAINER_DECODE = 32,        /* key/value cache */
    TRAINER_SYNTHETIC = 64,     /* with TRAINER_DATA: batches of synthetic.h, no file and no tokenizer is read */
};

/* Who looks at the routing of a step, or dictates it: moe-train verify.  micro is
 * the number of a micro-batch in its step, whichever rank has it; idx is
 * [layers][micro_tokens][k]. */
struct trainer_routing {
    void *ctx;
    const uint16_t *(*forced)(void *ctx, int64_t micro);        /* idx to be followed, host memory; NULL: the own choice */
    /* Of one layer: r as in model_watch, own [n][k] what its scores would choose. */
    int (*routed)(void *ctx, int64_t micro, int layer, const struct router *r, const uint16_t *own);
};

struct trainer_options {
    unsigned what;
    const char *device;         /* "cpu", "ref" */
    int threads;                /* 0: the affinity mask */
    int64_t max_positions;      /* TRAINER_DECODE: length of the cache */
    _Bool timed;                /* the device is one of timed.h around the one named */
    struct comm *world;         /* the ranks of the run; NULL: this process alone */
    const char *plan;           /* a plan file to obey, "-" standard input; NULL: our own */
    const struct trainer_routing *routing;      /* borrowed; NULL: nobody */
    /* With checkpoint.async: memory for a copy to save from; NULL: no saves beside the steps. */
    size_t (*stage_bytes)(struct trainer *t);
    _Bool plan_only;            /* stop after the plan: nothing is reserved, no data is opened */
    /* The bytes of tokenizer.json and their name, when they do not come from cfg->tokenizer. */
    const char *tokenizer_name, *tokenizer_text;
    size_t tokenizer_bytes;
};

/* Facts of one step, before they become a metrics row. */
struct step_facts {
    int64_t step;               /* number of the step, from 1; a skipped one is tried again on the next data */
    int64_t n_tokens, n_valid;
    double ce, aux, z, loss;    /* means over valid targets; aux and z with their coefficients */
    double norm;
    _Bool clipped, skipped;
    _Bool own_finite;           /* this rank's part of the loss is */
    double lr_muon, lr_adamw;
    double pairs;               /* attended (query, key) pairs */
    double data_s, fwd_s, bwd_s, optim_s;
    double comm_s;              /* of these, what was spent waiting for other ranks */
};

struct trainer {
    const struct run_config *cfg;
    struct trainer_options opts;
    struct arena *arena;        /* lives as long as the trainer */
    struct arena *build;        /* of the current build */
    struct tok_vocab *vocab;    /* NULL without a tokenizer */
    char *vocab_text;           /* tokenizer.json as it is copied into checkpoints */
    size_t vocab_bytes;
    int64_t eod;                /* -1: none */
    struct loader *loader;
    struct dev dev;
    struct mem *mem;
    struct param_table table;
    struct mesh mesh;
    struct plan *plan;
    struct owned_layout own;    /* what of master, gradients and state is here */
    struct ckpt_rows *rows;     /* the plan by parameter: rows [rows_at[i], rows_at[i + 1]) are those of parameter i */
    struct ckpt_rows *step_rows;        /* the same for who steps them and has their state; perhaps rows itself */
    int *rows_at;               /* [params + 1] */
    struct fsdp_comms groups;
    struct comm *replica;       /* NULL: there is one */
    struct replicas *replicas;
    const struct owned_layout *stepped; /* the parts of own that this rank steps */
    struct comm *ep;            /* NULL: experts are all here */
    struct fsdp_tapes *tapes;
    struct fsdp *fsdp;
    struct model *model;
    struct optim *optim;

    float *master, *grads;      /* owned storage */
    int64_t *counts;            /* [layers][E], of the step */
    int64_t *last_counts;       /* [layers][E], of the last update: saved */
    double *frac;               /* [layers][E], shares of last_counts, for aux_scope batch */
    double *rounds, *bias_range;        /* [layers] each, adjacent; see trainer_layer_facts() */
    struct batch batch;         /* arrays of micro_tokens */
    uint8_t *valid;
    double *nll;
    uint16_t *forced, *own_idx; /* with opts.routing: [layers][micro_tokens][k], [micro_tokens][k] */
    void *own_w;
    int64_t micro;              /* the micro-batch at hand */
    void *logits;               /* TRAINER_DECODE: [vocab] */
    void *stage;                /* [stage_bytes], host memory; NULL: saves are not to go on beside steps */
    size_t stage_bytes;

    int64_t step;               /* updates done */
    int64_t next_data;          /* steps of data used: step + skipped ones */
    int64_t tokens;             /* seen */
    _Bool agreed;               /* the last failure is one that all ranks know of */
};

/* Collective in o->world.  Errors of configuration, tokenizer, data and plan as
 * they are, agreed; what fails later (device, memory) is not.  *out is owned. */
int trainer_open(const struct run_config *cfg, const struct trainer_options *o, struct trainer **out);
void trainer_close(struct trainer *t);          /* NULL is accepted */

/* Sets every parameter we own to its initial value: step 0. */
void trainer_init(struct trainer *t);

/* Samples of a step, all ranks together. */
int64_t trainer_samples(const struct trainer *t);

/* Where the rows of a parameter lie in owned storage; NULL when none do. */
float *trainer_owned(const struct trainer *t, float *flat, int i_param);

/* Collective in the world, like what follows.  Forward and backward of step
 * t->step + 1: owned gradients, and counts and sums of all ranks.
 * f->n_valid 0: nothing was computed. */
int trainer_gradients(struct trainer *t, struct step_facts *f);

/* Norm, policy, clip, update, bias: what follows the gradients, here and in
 * moe-optstep.  Advances step, next_data and tokens.  A loss or gradient that is
 * not finite: nonfinite stop is ERR_NO and leaves everything as it was;
 * nonfinite skip skips weights, moments, bias and schedule together: step stays,
 * next_data goes on.  A step without valid targets is skipped likewise. */
int trainer_update(struct trainer *t, struct step_facts *f);

/* Collective.  ERR_NO with a sentence that says which rank's loss, or which
 * tensor's gradient, was not finite; sq from optim_squares(), summed. */
int trainer_blame(struct trainer *t, const struct step_facts *f, const double *sq);

/* Collective.  For a metrics row after the update: bias_range and the rounds of
 * the step become those of all ranks, wherever the biases live. */
int trainer_layer_facts(struct trainer *t);

/* Both. */
int trainer_step(struct trainer *t, struct step_facts *f);

/* Mean loss of a validation set: all windows, or the first n_batches
 * micro-batches (0: all). */
struct eval_facts { const char *set; int64_t tokens, text_bytes; double nll; };
int trainer_eval(struct trainer *t, int i_set, int64_t n_batches, struct eval_facts *out);

/* Shares from last_counts, after they were set. */
void trainer_set_shares(struct trainer *t);

/* For MANIFEST: "cpu" device with the kernel set it chose. */
const char *trainer_kernels(const struct trainer *t);

#endif
