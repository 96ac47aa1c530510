/* manifest.h -- MANIFEST.json: what a checkpoint is made of, and its hashes.
 *
 * Written last, so that a directory with a MANIFEST is complete.  One line per
 * file and per tensor, keys in a fixed order, and a last key "self" with the
 * hash of all that stands before it.  Parsing refuses another format version, a
 * wrong self hash, unknown or missing keys, tensors in files that are not
 * listed, parts that do not tile their tensor, and file names that leave the
 * directory.  It says nothing about the files themselves: ckpt/load.h does. */
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "ckpt/safetensors.h"

#define MANIFEST_NAME "MANIFEST.json"
#define MANIFEST_FORMAT "moe.checkpoint/1"

/* full: model and optimizer state, in the turn of `keep`.  major: the same, kept
 * for good.  light: the model alone; no run can go on from it. */
enum manifest_kind { MANIFEST_FULL, MANIFEST_MAJOR, MANIFEST_LIGHT };

struct manifest_set { const char *path; struct hash hash; int64_t windows; };

/* Who made the checkpoint and where training stands.  Strings are borrowed. */
struct manifest_info {
    enum manifest_kind kind;
    const char *tool;           /* "moe-train 0.1.0" */
    const char *const *argv;    /* [n_argv] */
    int n_argv;
    struct hash run_id;
    int64_t restart;
    int64_t step;               /* steps done; the next one is data_next_step */
    int64_t tokens;             /* tokens seen by all ranks */
    struct hash config;         /* digest of the configuration */
    struct hash plan;           /* digest of the plan */
    int64_t replicas, efsdp, ep;
    int64_t threads;
    const char *kernels;        /* "ref", "avx512_bf16", ... */
    int64_t data_next_step;
    uint64_t data_seed;
    const struct manifest_set *sets;    /* [n_sets] */
    int n_sets;
};

struct manifest_file {
    const char *name;           /* relative: "config.json", "optim/optim-00001-of-00001.safetensors" */
    uint64_t bytes;
    _Bool is_tensors;           /* hash is that of the first 8 + N bytes; else of the whole file */
    struct hash hash;
};

struct manifest_tensor {
    const char *name;
    int i_file;                 /* in files[] */
    const char *type;           /* "F32" */
    int n_dims;
    const int64_t *shape;
    const struct st_part *parts;        /* [n_parts], in order, tiling the tensor */
    int n_parts;
};

struct manifest {
    struct manifest_info info;
    struct manifest_file *files;        /* [n_files] */
    int n_files;
    struct manifest_tensor *tensors;    /* [n_tensors] */
    int64_t n_tensors;
    struct hash self;
    struct ckpt_names *names;           /* private: names to tensors; NULL in one that is being built */
    void *memory;                       /* private; NULL in one that is being built */
};

/* The text of m, with its self hash; *out is owned (pool_free), *n its length. */
int manifest_format(const struct manifest *m, char **out, size_t *n);

/* The same bytes read back.  *out is owned (manifest_free). */
int manifest_parse(const char *where, const char *text, size_t n, struct manifest **out);
int manifest_load(const char *dir, struct manifest **out);      /* ERR_NOINPUT when dir has none */
void manifest_free(struct manifest *m);

const char *manifest_kind_name(enum manifest_kind k);

/* The kind of the checkpoint dir, from the first bytes of its MANIFEST and nothing
 * else; full when they do not say, as in one that is damaged, which is for who
 * loads it to find.  ERR_NOINPUT, ERR_IO: they cannot be read. */
int manifest_kind_of(const char *dir, enum manifest_kind *out);

#endif
