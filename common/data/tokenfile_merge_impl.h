/* tokenfile_merge_impl.h -- between tokenfile_merge.c and tokenfile_merge_plain.c alone. */
#ifndef DATA_TOKENFILE_MERGE_IMPL_H
#define DATA_TOKENFILE_MERGE_IMPL_H

#include <stdint.h>

#include "data/megatron.h"
#include "data/tokenfile.h"
#include "data/tokenfile_merge.h"

struct merge_part {
    const char *prefix;
    struct tokenfile *file;             /* with a sidecar */
    struct megatron_pair *pair;         /* without */
    const struct megatron *m;           /* of either */
    _Bool hashed;
    struct hash hash, bin_hash, idx_hash;
    uint64_t idx_bytes;
    int i_input;                        /* where its inputs begin in the list of all */
};

/* A pair without a sidecar from parts of one dtype: sequences and documents stay
 * what they are, only their numbers move on. */
int tokenfile_merge_plain(struct merge_part *part, int n, const char *prefix, void (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                          struct tokenfile_merge_done *done);

#endif
