/* convert.h -- model directories of the five families, into one another and
 * into other types, streaming.
 *
 * The input is a checkpoint of ours or a Hugging Face directory, with one
 * tensor per expert matrix or with fused experts (transformers 5: gate_up_proj
 * [E, 2I, H], gate rows first, and down_proj [E, H, I]).  Which of the two is
 * read off the names, and what the bytes of each mean follows from the family,
 * never from a shape: 2I = H is no riddle.  The output has one tensor per expert
 * matrix, which every reader of these families takes.
 *
 * Every tensor of the input is used and every tensor of the output is made, or
 * nothing is written and the error names those that are not.  Left out, and
 * told of, are only the optimizer state, layers of multi-token prediction
 * (glm4_moe), and, between families, tensors that are proven to add zero.
 * Another family is written only where it computes the same function.
 *
 * Memory: two pieces, 192 MiB with a MANIFEST in the input, whatever the model
 * is.  Router selection biases stay F32. */
#ifndef CKPT_CONVERT_H
#define CKPT_CONVERT_H

#include <stdint.h>

#include "base/dtype.h"
#include "ckpt/derive.h"
#include "ckpt/load.h"
#include "model/model_config.h"

struct convert {
    const char *to;             /* the directory to make */
    _Bool replace;              /* one that this tool wrote */
    int family;                 /* enum model_type, MODEL_TYPE_N: the input's */
    enum dtype dtype;           /* DT_F32, DT_BF16, DT_F16; DT_N: each tensor's own */
    uint64_t shard_bytes;       /* 0: CKPT_SHARD_BYTES */
    struct derive_maker by;

    void (*note)(void *ctx, const char *sentence);      /* what is left out; may be NULL */
    void (*progress)(void *ctx, uint64_t done, uint64_t total);         /* bytes written; may be NULL */
    void *ctx;

    /* Results. */
    _Bool was_current;          /* made from the same input before: nothing was done */
    int64_t n_tensors;
    int n_files;
    uint64_t bytes;
    enum model_type family_written;
    enum dtype dtype_written;   /* what config.json says */
};

/* ERR_DATA: tensors that do not fit; ERR_USAGE: a model that cannot be expressed
 * (config.json says why); else as ckpt/modeldir.h. */
int convert_run(const struct ckpt *c, struct convert *v);

/* "gpt_oss" and others that we know and cannot convert: why, and what works.
 * NULL for a family we convert. */
const char *convert_refusal(const char *model_type);

#endif
