/* sidecar.h -- PREFIX.json: what a token file says about itself. */
#ifndef DATA_SIDECAR_H
#define DATA_SIDECAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/fs.h"
#include "data/tokenfile_info.h"

/* A sidecar with its hashes; info comes first, so that a pointer to it is one
 * to the whole. */
struct sidecar {
    struct tokenfile_info info;
    struct arena *arena;                /* of a sidecar that was read */
    int64_t chunk_bytes;
    struct hash *bin, *idx;
    int n_bin, n_idx;
};

/* The text, owned by the caller. */
char *sidecar_text(const struct sidecar *s, size_t *n);

int sidecar_read(const char *path, struct sidecar **out);
void sidecar_free(struct sidecar *s);

/* Hash of the recorded hashes: the identity of the tokens, without reading them. */
struct hash sidecar_hash(const struct sidecar *s);

/* Checks data against recorded hashes, chunk by chunk, and forgets what was read;
 * path and json for the sentence. */
int sidecar_verify(const struct sidecar *s, const struct hash *want, int n_want,
                   const char *path, const char *json, const struct fs_blob *data);

#endif
