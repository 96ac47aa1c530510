/* vocab_store.h -- inside of a vocabulary, for the files of tok/ alone. */
#ifndef TOK_VOCAB_STORE_H
#define TOK_VOCAB_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "tok/vocab.h"

struct tok_vocab {
    struct arena *arena;                /* holds everything below */
    const char *name;
    int32_t size;
    const uint8_t **bytes;              /* [size] */
    uint32_t *len;                      /* [size] */
    int32_t *text_bytes;                /* [size] len, or 0 for special tokens */
    int64_t n_merges;
    struct tok_merge *merges;           /* [n_merges] */
    int32_t byte_id[256];
    int n_specials;
    int32_t *special;                   /* [n_specials] ids, ascending */
    struct hash hash;
};

/* All arrays for size tokens and n_merges merges. */
struct tok_vocab *tok_vocab_alloc(const char *name, int32_t size, int64_t n_merges, int n_specials);

/* Fills text_bytes and byte_id; ERR_DATA when a byte has no token. */
int tok_vocab_finish(struct tok_vocab *v);

#endif
