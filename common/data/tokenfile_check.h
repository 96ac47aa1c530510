/* tokenfile_check.h -- is a token file whole, down to every id?
 *
 * Goes on after a problem, so that one call names all of them.  With a sidecar
 * every byte of .bin and .idx is held against its checksums; a pair without
 * one (Megatron's own) can only be checked for structure.  The first bad id,
 * document or byte of each kind is named. */
#ifndef DATA_TOKENFILE_CHECK_H
#define DATA_TOKENFILE_CHECK_H

#include <stdint.h>

#include "base/hash.h"

struct tokenfile_check {
    /* Called for every problem with one sentence that names the file; may be NULL. */
    void (*problem)(void *ctx, const char *sentence);
    /* Called now and then with the bytes of .bin read and the total; may be NULL. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
    _Bool structure_only;       /* no checksums; .bin is read only when there is a vocabulary */
    int threads;                /* 0: all; the answer does not depend on it */

    /* The vocabulary, when there is one: vocab_size 0 for none. */
    struct hash tokenizer;
    int64_t vocab_size;
    int32_t eod_id;             /* -1: none */
    const int32_t *byte_len;    /* [vocab_size] text bytes of each token */
    _Bool keeps_text;           /* tokens give back every byte of the text, so that text_bytes can be told */

    /* Results. */
    _Bool has_sidecar;          /* and it could be read */
    _Bool has_eod;              /* the end-of-document token is known, from it or the vocabulary */
    _Bool ids_read;
    int64_t n_problems, sequences, documents, tokens;
    int64_t no_eod;             /* documents that do not end with it; the first of them */
    int64_t first_no_eod;
    int64_t eod_inside;         /* end-of-document tokens that end no document: legal, but worth a look */
    int64_t text_bytes;         /* of all tokens; -1: not counted */
    uint64_t bytes;             /* of .bin and .idx that were read */
};

/* Returns 0 also when problems were found; negative only when it could not go
 * on: ERR_NOINPUT when there is neither .bin nor .idx, ERR_IO. */
int tokenfile_check(const char *prefix, struct tokenfile_check *c);

#endif
