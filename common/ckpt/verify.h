/* verify.h -- is everything there, and is every byte what was written?
 *
 * Goes on after a problem, so that one call names all of them.  With a MANIFEST
 * it reads every byte of every file; without one only structure can be checked:
 * headers, index against files, no tensor twice, missing or unknown. */
#ifndef CKPT_VERIFY_H
#define CKPT_VERIFY_H

#include <stdint.h>

#include "ckpt/manifest.h"

struct ckpt_verify {
    /* Called for every problem with one sentence that names the file; may be NULL. */
    void (*problem)(void *ctx, const char *sentence);
    /* Called now and then with the bytes read and the total; may be NULL. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
    _Bool structure_only;       /* do not read tensor bytes */

    /* Results. */
    _Bool has_manifest;
    enum manifest_kind kind;
    int64_t n_problems, n_files, n_tensors, n_parts;
    uint64_t bytes;             /* hashed, or covered by headers */
};

/* dir: a directory or a .safetensors file, as ckpt_resolve() gives it.  Returns
 * 0 also when problems were found (see n_problems); negative only when it could
 * not go on: ERR_NOINPUT, ERR_IO. */
int ckpt_verify(const char *dir, struct ckpt_verify *v);

#endif
