/* dir.h -- the tables of a checkpoint: which tensors there are, in which files.
 *
 * Reads MANIFEST, index files and headers, never tensor bytes, and holds each
 * against the others.  Loading stops at the first contradiction; verifying
 * wants to hear of all of them.  Both come here. */
#ifndef CKPT_DIR_H
#define CKPT_DIR_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"

#define CKPT_INDEX_NAME "model.safetensors.index.json"
#define CKPT_OPTIM_INDEX_NAME "optim/index.json"
/* A card may be written beside the weights of a checkpoint later: its MANIFEST
 * need not list it, and no loader reads it. */
#define CKPT_CARD_NAME "README.md"

enum ckpt_kind { CKPT_COMPLETE, CKPT_HF_DIR, CKPT_ONE_FILE };

struct ckpt_tensor {
    const char *name;
    const char *type;           /* "F32" */
    enum dtype dtype;           /* DT_N: known to the format only */
    int n_dims;
    const int64_t *shape;
    uint64_t bytes;
    const char *file;           /* relative to the directory */
    _Bool is_optim;             /* lies under optim/ */
    const struct st_part *parts;        /* NULL without a MANIFEST */
    int n_parts;
    uint64_t offset;            /* of its first byte in the file */
    int i_file;                 /* in files[] */
};

struct ckpt_dir_file {
    const char *name;           /* relative */
    const char *path;
    uint64_t bytes;
    _Bool is_optim;
};

struct ckpt_dir {
    enum ckpt_kind kind;
    const char *path;
    struct manifest *manifest;          /* NULL without */
    struct ckpt_dir_file *files;        /* [n_files] with tensors, in reading order */
    int n_files;
    struct ckpt_tensor *tensors;        /* [n_tensors] in the order of their bytes */
    int64_t n_tensors;
    struct ckpt_names *names;
    struct arena *arena;
    int64_t n_problems;
};

/* path: a directory or a file, not a RUN.  Without a callback the first problem
 * is returned as an error (ERR_DATA, ERR_NOINPUT).  With one, each problem is
 * passed to it as a sentence, the tables hold what could be read, and only what
 * stops the scan (no such path, I/O) is an error.  *out is owned. */
int ckpt_dir_scan(const char *path, void (*problem)(void *ctx, const char *sentence), void *ctx,
                  struct ckpt_dir **out);
void ckpt_dir_free(struct ckpt_dir *d);         /* NULL is accepted */

#endif
