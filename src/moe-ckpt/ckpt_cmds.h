/* ckpt_cmds.h -- the subcommands of moe-ckpt, and what they share. */
#ifndef MOE_CKPT_CKPT_CMDS_H
#define MOE_CKPT_CKPT_CMDS_H

#include "base/arena.h"
#include "base/opt.h"
#include "base/table.h"
#include "ckpt/load.h"

extern const struct opt_cmd ckpt_ls_cmd, ckpt_info_cmd, ckpt_verify_cmd, ckpt_cat_cmd, ckpt_diff_cmd, ckpt_convert_cmd;

/* Opens an operand for looking at; warns when it is not what `latest` names. */
int ckpt_cmds_open(const char *path, struct ckpt **out);

/* --json and --tsv exclude each other. */
int ckpt_cmds_form(_Bool json, _Bool tsv, enum table_form *out);

/* "256x128", NULL for a scalar; in the arena. */
const char *ckpt_cmds_shape(struct arena *a, int n_dims, const int64_t *shape);

/* Elements of a tensor. */
int64_t ckpt_cmds_count(const struct ckpt_tensor *t);

#endif
