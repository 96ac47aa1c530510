/* derive.h -- what all directories made from checkpoints have in common: where
 * they come from, what their MANIFEST says, and the small files that go along. */
#ifndef CKPT_DERIVE_H
#define CKPT_DERIVE_H

#include "base/hash.h"
#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/modeldir.h"

/* Who makes it, for the MANIFEST. */
struct derive_maker {
    const char *tool;           /* "moe-ckpt 0.1.0" */
    const char *const *argv;    /* [argc] */
    int argc;
    const char *how;            /* "convert": stands where a trainer names its kernels */
};

/* Adds what tells this input from others: the hash of its MANIFEST, else names,
 * sizes and times of its files. */
int derive_digest(const struct ckpt *c, struct hash_stream *h);

/* State of training as in c, if it knows one; layout 1x1x1; plan is the recipe.
 * Borrowed from c and from the maker. */
void derive_info(const struct ckpt *c, const struct derive_maker *by, const struct hash *recipe, struct manifest_info *out);

/* Tokenizer files and generation_config.json, and config.json if asked. */
int derive_files(const struct ckpt *c, _Bool config, struct modeldir *d);

/* ERR_USAGE when `to` is the directory of c. */
int derive_check_place(const struct ckpt *c, const char *to);

#endif
