/* state.h -- a trainer's state to and from files: checkpoints and gradients.
 *
 * Checkpoints hold every parameter under its Hugging Face name, its optimizer
 * state, and per router NAME.expert_counts (I64 [E]) of the last update, which
 * the batch balance loss of the next step needs.  A gradient stream holds every
 * gradient, unclipped, and the counts of its own step. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "train/trainer.h"

/* Who saves: what MANIFEST says beyond the trainer itself.  Borrowed strings. */
struct run_identity {
    const char *tool;           /* "moe-train 0.1.0" */
    char **argv;
    int argc;
    struct hash run_id, plan;
    int64_t restart;
    const struct manifest_info *inherit;        /* its data sets are named when the trainer has none; NULL */
};

/* What a checkpoint is to be, and how many to keep of it and of light ones (0: all). */
struct state_policy { enum manifest_kind kind; int64_t keep, keep_light; };

/* Collective in the trainer's world.  Saves the trainer as RUN/ckpt/step-N. */
int state_save(struct trainer *t, const char *run_dir, const struct run_identity *id, const struct state_policy *p);

/* Collective.  The same, written by w beside what follows, from a copy of the
 * trainer as it is now; *out goes through ckpt_save_copied() before the trainer
 * changes and through ckpt_save_next() until it is done. */
int state_save_beside(struct trainer *t, const char *run_dir, const struct run_identity *id, const struct state_policy *p,
                      struct ckpt_writer *w, struct ckpt_save **out);

/* Memory that the copy of this rank takes. */
size_t state_stage_bytes(struct trainer *t);

/* ERR_CREATE unless a checkpoint of this trainer fits beside run_dir. */
int state_room(struct trainer *t, const char *run_dir);

/* Parameters, and with TRAINER_OPTIM the optimizer state; step, next_data and
 * tokens from the MANIFEST, which must not be of a light checkpoint then.  Missing,
 * unknown and misshapen tensors are named, all at once (ERR_DATA).  A checkpoint of another model_config is ERR_DATA. */
int state_load(struct trainer *t, const struct ckpt *c);

/* Parameters alone, for a new run that starts from a model: no optimizer state,
 * and the step stays what it is. */
int state_load_weights(struct trainer *t, const struct ckpt *c);

/* "bit-exact", or "not bit-exact: threads 2 -> 4, kernels ref -> cpu"; buf of n bytes. */
const char *state_exactness(const struct trainer *t, const struct ckpt *c, char *buf, size_t n);

/* Collective in the trainer's world.  The gradients of f->step as one safetensors
 * stream, and back: rank 0 writes or reads it, whatever the layout.  path "-" is
 * standard output or input; a file appears whole or not at all.  Reading refuses
 * another step or configuration (ERR_DATA).  Errors are agreed. */
int state_write_grads(struct trainer *t, const struct step_facts *f, const char *path);
int state_read_grads(struct trainer *t, struct step_facts *f, const char *path);

#endif
