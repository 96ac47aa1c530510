/* load.h -- tensors by global name, from whatever holds them.
 *
 * Opens a checkpoint directory (with a MANIFEST), a Hugging Face model directory
 * (without), a RUN (its `latest`, else the newest checkpoint that verifies) or
 * one .safetensors file.  Nothing is loaded at opening but headers, and these
 * are checked against each other: MANIFEST, index and files must name the same
 * tensors with the same types and shapes, each exactly once.
 *
 * With a MANIFEST every byte handed out has been hashed on the way; there is no
 * switch for that.  It never guesses: a tensor that is missing, twice or unknown
 * is an error, and a checkpoint used in place of a broken `latest` is named in
 * ckpt_note() so that the program can say so.
 *
 * Errors: ERR_DATA "FILE: tensor "NAME": ..." for damage, ERR_NOINPUT for what
 * is not there, ERR_IO for the rest. */
#ifndef CKPT_LOAD_H
#define CKPT_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/fs.h"
#include "ckpt/dir.h"
#include "ckpt/manifest.h"

/* Flags of opening. */
#define CKPT_NEED_MANIFEST 1u   /* only a complete checkpoint will do (resume, --from) */
#define CKPT_NO_FALLBACK 2u     /* a RUN whose latest is broken is an error */
#define CKPT_NEED_STATE 4u      /* no light one: training is to go on from it */

/* struct ckpt_tensor and enum ckpt_kind: ckpt/dir.h. */

struct ckpt;

/* *out is owned (ckpt_close). */
int ckpt_open(const char *path, unsigned flags, struct ckpt **out);
void ckpt_close(struct ckpt *c);                        /* NULL is accepted */

enum ckpt_kind ckpt_kind(const struct ckpt *c);
const char *ckpt_path(const struct ckpt *c);            /* the directory (or file) in use */
const char *ckpt_note(const struct ckpt *c);            /* NULL, or what was used instead of `latest` and why */
const struct manifest *ckpt_manifest(const struct ckpt *c);     /* NULL without */

/* In the order of the files: model first, then optim. */
int64_t ckpt_n_tensors(const struct ckpt *c);
const struct ckpt_tensor *ckpt_tensor(const struct ckpt *c, int64_t i);
const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name);    /* or NULL */

/* As ckpt_find(), but ERR_DATA when it is absent or when the shape differs. */
int ckpt_need(const struct ckpt *c, const char *name, int n_dims, const int64_t *shape,
              const struct ckpt_tensor **out);

/* Bytes [first, first + n) as they lie in the file.  With a MANIFEST each part
 * that is touched is read and hashed whole; reads that keep to part borders
 * (every 64 MiB, and owner borders) cost nothing extra.  dst is undefined after
 * an error.  Threads may share c. */
int ckpt_read(const struct ckpt *c, const struct ckpt_tensor *t, uint64_t first, size_t n, void *dst);

/* Elements [first, first + n) as float: F32 copied bit for bit, BF16 and F16
 * widened exactly; other types are ERR_DATA. */
int ckpt_read_f32(const struct ckpt *c, const struct ckpt_tensor *t, int64_t first, int64_t n, float *dst);

/* A small file of the directory ("config.json"), hashed when a MANIFEST lists
 * it.  ERR_NOINPUT when there is none.  *out is owned (fs_blob_free). */
int ckpt_read_file(const struct ckpt *c, const char *name, struct fs_blob *out);

/* The checkpoint directory behind an operand: itself, or that of a RUN; also
 * *note as in ckpt_note().  Strings in the arena; note may be NULL. */
int ckpt_resolve(struct arena *a, const char *path, unsigned flags, char **dir, char **note);

#endif
