/* save.h -- writes a checkpoint that is either complete or not there.
 *
 * begin -> add tensors and files -> write -> commit.  Everything goes into a
 * temporary sibling, RUN/ckpt/step-N.tmp; each file is fsynced; MANIFEST.json
 * comes last; then the directory is fsynced and renamed, its parent fsynced,
 * RUN/latest replaced, and RUN fsynced.  A failure or a kill at any point leaves
 * the earlier checkpoints and `latest` as they were; what a killed save left
 * behind is removed by the next one.  Removal of old checkpoints deletes their
 * MANIFEST first, so half a removal is never taken for a checkpoint.
 *
 * The bytes depend only on what is added and in which order: no time, no host,
 * no process id.
 *
 * Invariants, each tested by the N-th call of a kind failing or killing:
 * 1 a step directory with a MANIFEST is complete;
 * 2 `latest` names a complete checkpoint whenever one was ever committed;
 * 3 after an error no temporary is left (unless its removal fails too). */
#ifndef CKPT_SAVE_H
#define CKPT_SAVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "ckpt/manifest.h"
#include "ckpt/run.h"

#define CKPT_SHARD_BYTES ((uint64_t)5000000000)         /* default limit of tensor bytes in one file */

enum ckpt_group { CKPT_MODEL, CKPT_OPTIM };

struct ckpt_save;

/* run_dir is made when absent, the lock on it is the caller's business.  info
 * is borrowed until commit or abort; info->step names the directory.
 * shard_bytes 0: CKPT_SHARD_BYTES. */
int ckpt_save_begin(const char *run_dir, const struct manifest_info *info, uint64_t shard_bytes,
                    struct ckpt_save **out);

/* One tensor under its global name: for the model the family's Hugging Face
 * name, for the optimizer NAME.momentum, NAME.exp_avg or NAME.exp_avg_sq.  data
 * is borrowed until ckpt_save_write() returns; the name and shape are copied.
 * Files are filled in the order of the calls. */
int ckpt_save_tensor(struct ckpt_save *s, enum ckpt_group group, const char *name, enum dtype dtype,
                     int n_dims, const int64_t *shape, const void *data);

/* One more file beside them (config.json, tokenizer.json ...); written at once. */
int ckpt_save_file(struct ckpt_save *s, const char *name, const void *data, size_t n);

/* Writes and fsyncs all shards and indexes.  Between this and the commit the
 * ranks agree on errors. */
int ckpt_save_write(struct ckpt_save *s);

/* MANIFEST, rename, latest; then keeps the newest `keep` checkpoints up to this
 * step and removes older ones (0: keeps all).  An error before the rename
 * leaves everything as it was; one after it (latest, removal) leaves the new
 * checkpoint in place.  Frees s whatever happens. */
int ckpt_save_commit(struct ckpt_save *s, int keep);

/* What to pool_reserve() so that saving n_tensors needs no memory from the
 * system; the tensors themselves are never copied. */
size_t ckpt_save_memory(int64_t n_tensors);

/* Removes the temporary; keeps the recorded error.  NULL is accepted. */
void ckpt_save_abort(struct ckpt_save *s);

#endif
