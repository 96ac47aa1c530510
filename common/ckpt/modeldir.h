/* modeldir.h -- writes a model directory that is either whole or not there.
 *
 * For what is made from checkpoints: a directory that a Hugging Face program
 * opens, with shards, index and a MANIFEST.json, so that it verifies like a
 * checkpoint.  begin -> add every tensor and file -> start -> put the bytes,
 * tensor by tensor in the order of the adds -> commit.
 *
 * Everything goes into a hidden sibling, .NAME.moe-tmp, each file is fsynced,
 * MANIFEST comes last, then one rename.  A failure or a kill leaves what was
 * there before; the next run on the same name removes the sibling, unless a
 * live process holds it (ERR_LOCKED).  An existing directory is replaced only
 * when asked, and only one that this tool wrote: never somebody's data. */
#ifndef CKPT_MODELDIR_H
#define CKPT_MODELDIR_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "ckpt/manifest.h"
#include "ckpt/save.h"

struct modeldir;

#define MODELDIR_REPLACE 1u     /* an existing directory of ours */

/* True when path holds a directory that was made by this recipe already:
 * manifest_info.plan of what modeldir writes is the hash of how it was made.
 * What a writer that was killed late left beside it goes. */
_Bool modeldir_is_current(const char *path, const struct hash *recipe);

/* info is borrowed until commit or abort.  shard_bytes: tensor bytes of one
 * file at most (a larger tensor has its own), 0: CKPT_SHARD_BYTES; n_files > 0
 * asks for so many model files of about the same size instead.  ERR_CREATE when
 * path exists and may not be replaced, ERR_LOCKED when somebody is writing it. */
int modeldir_begin(const char *path, unsigned flags, const struct manifest_info *info, uint64_t shard_bytes, int n_files,
                   struct modeldir **out);

/* Returns the number of the tensor: 0, 1, ...; all of CKPT_MODEL come first.
 * Strings and shapes are copied. */
int modeldir_add(struct modeldir *d, enum ckpt_group group, const char *name, enum dtype dtype, int n_dims, const int64_t *shape);

/* One more file (config.json ...); data is copied. */
void modeldir_file(struct modeldir *d, const char *name, const void *data, size_t n);

uint64_t modeldir_bytes(const struct modeldir *d);      /* of all tensors added */
int modeldir_n_files(const struct modeldir *d);         /* with tensors; after start */

/* ERR_CREATE when there is no room for it. */
int modeldir_start(struct modeldir *d);

/* Bytes [first, first + n): front to back, one tensor after another. */
int modeldir_put(struct modeldir *d, int i_tensor, uint64_t first, const void *data, size_t n);

/* ERR_BUG when a byte never came.  Frees d whatever happens. */
int modeldir_commit(struct modeldir *d);
void modeldir_abort(struct modeldir *d);        /* keeps the recorded error; NULL is accepted */

/* For others that make a directory whole: the empty hidden sibling of path, in
 * arena a, and its lock, to be closed.  ERR_CREATE, ERR_LOCKED. */
int modeldir_claim(struct arena *a, const char *path, char **temp, int *lock);

#endif
