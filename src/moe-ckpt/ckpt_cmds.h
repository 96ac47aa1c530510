/* ckpt_cmds.h -- the subcommands of moe-ckpt, and what they share. */
#ifndef MOE_CKPT_CKPT_CMDS_H
#define MOE_CKPT_CKPT_CMDS_H

#include "base/arena.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/table.h"
#include "ckpt/derive.h"
#include "ckpt/load.h"

extern const struct opt_cmd ckpt_ls_cmd, ckpt_info_cmd, ckpt_verify_cmd, ckpt_cat_cmd, ckpt_diff_cmd, ckpt_convert_cmd, ckpt_gc_cmd,
    ckpt_reshard_cmd, ckpt_average_cmd, ckpt_pack_cmd, ckpt_unpack_cmd, ckpt_card_cmd;

/* Opens an operand for looking at; warns when it is not what `latest` names. */
int ckpt_cmds_open(const char *path, struct ckpt **out);

/* --json and --tsv exclude each other. */
int ckpt_cmds_form(_Bool json, _Bool tsv, enum table_form *out);

/* "256x128", NULL for a scalar; in the arena. */
const char *ckpt_cmds_shape(struct arena *a, int n_dims, const int64_t *shape);

/* Elements of a tensor. */
int64_t ckpt_cmds_count(const struct ckpt_tensor *t);

/* Who writes a directory, for its MANIFEST. */
struct derive_maker ckpt_cmds_maker(struct arena *a, const char *how);

/* A bar that begins with the first call of progress; ctx is the bar. */
struct ckpt_cmds_bar { const char *what; struct progress *p; };
void ckpt_cmds_progress(void *ctx, uint64_t done, uint64_t total);
void ckpt_cmds_progress_end(struct ckpt_cmds_bar *bar);

/* The row of a directory that was written: moe.ckpt-written/1 with json, else a
 * sentence on stderr. */
struct ckpt_cmds_written { const char *path, *how; _Bool current; int64_t tensors, files; uint64_t bytes; double seconds; };
int ckpt_cmds_written(const struct ckpt_cmds_written *w, _Bool json);

#endif
