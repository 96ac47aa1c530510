/* train_cmds.h -- the subcommands of moe-train and what they share. */
#ifndef TRAIN_CMDS_H
#define TRAIN_CMDS_H

#include "base/opt.h"
#include "base/table.h"
#include "ckpt/load.h"
#include "train/trainer.h"

extern const struct opt_cmd train_run_cmd, train_eval_cmd, train_sample_cmd, train_grad_cmd, train_verify_cmd, train_status_cmd,
    train_top_cmd;

#define TRAIN_DEVICE_OPTS(T)                                                                     \
    { OPT_STR, 0, "device", "NAME", "cpu", "cpu, or ref (slow, the specification)",              \
      offsetof(T, device), 0, 0 },                                                               \
    { OPT_INT, 'j', "threads", "N", "0", "threads; 0: all the process may use",                  \
      offsetof(T, threads), 0, 4096 }

/* Sorts operands: key.path=value overrides to the front of argv (*n_over of
 * them), the rest (data) behind.  An operand that names an existing file, or
 * NAME=PREFIX of existing token files with name true, is data. */
void train_split_operands(int argc, char **argv, _Bool names, int *n_over);

/* Operands of subcommands that train: the overrides, and behind them one that
 * puts the data operands, if there are any, in the place of data.train.  In the
 * arena, *n of them; *data (or NULL) says whether there were data. */
char **train_overrides(struct arena *a, int argc, char **argv, int *n, _Bool *data);

/* Form of a table; ERR_USAGE for both. */
int train_form(_Bool json, _Bool tsv, enum table_form *out);

/* Collective in o->world, errors agreed.  Opens a checkpoint and a trainer that holds it: model weights (and optimizer
 * state with TRAINER_OPTIM), tokenizer from the checkpoint when it has one.
 * o->tokenizer* are set here. */
int train_open_from(const char *from, const struct run_config *c, struct trainer_options *o, unsigned ckpt_flags,
                    struct trainer **out);

/* A name as YAML has it in single quotes: a quote in it stands twice. */
char *train_quoted(struct arena *a, const char *name);

#endif
