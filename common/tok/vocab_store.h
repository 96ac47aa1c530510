/* vocab_store.h -- inside of a vocabulary, for the files of tok/ alone. */
#ifndef TOK_VOCAB_STORE_H
#define TOK_VOCAB_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "tok/added.h"
#include "tok/steps.h"
#include "tok/vocab.h"

struct tok_vocab {
    struct arena *arena;                /* holds everything below but expressions */
    const char *name, *format;
    int32_t size;                       /* the largest id and 1 */
    const uint8_t **bytes;              /* [size] the token's text; NULL: no token has this id */
    uint32_t *len;                      /* [size] */
    int32_t *text_bytes;                /* [size] len, or 0 for special tokens */
    uint8_t *is_special;                /* [size] */

    /* The model.  A key is what a piece is looked up by: the bytes of the
     * token, or (char_keys) its characters as they stand in the file. */
    enum tok_semantics semantics;
    const uint8_t **key;                /* [size]; NULL: merging never yields this id */
    uint32_t *key_len;                  /* [size] */
    _Bool char_keys;                    /* symbols are characters, not bytes */
    _Bool byte_level;                   /* every piece ends in the ByteLevel alphabet or is bytes */
    _Bool ignore_merges, byte_fallback, fuse_unk;
    int32_t unk;                        /* -1: none */
    int32_t fallback[256];              /* ids of <0x00>..., -1: none */
    int32_t *frozen; int n_frozen;      /* ids matched first and never merged (SentencePiece) */
    int64_t n_merges;
    struct tok_merge *merges;           /* [n_merges]; TOK_LIST only */
    float *score;                       /* [size]; TOK_SCORES only */
    int32_t byte_id[256];               /* -1: none */

    /* Around it. */
    struct tok_added *added; int n_added;
    struct tok_norm *norm; int n_norm;
    struct tok_pre *pre; int n_pre;
    _Bool gaps;                         /* text that no branch of the expression matches is dropped */
    int32_t *before; int n_before;      /* the template's ids before a text and after it */
    int32_t *after; int n_after;
    int strip;                          /* spaces that decoding takes from the beginning of a text */
    const char *no_decode;              /* why it cannot be decoded; NULL: it can */

    int n_specials;
    int32_t *special;                   /* [n_specials] ids: what ends documents, then the others, ascending */
    struct hash hash;
};

/* All arrays for size ids and n_merges merges. */
struct tok_vocab *tok_vocab_alloc(const char *name, int32_t size, int64_t n_merges, int n_specials);

/* Gives the token its text; ERR_DATA when the id has one or is out of range. */
int tok_vocab_put(struct tok_vocab *v, int64_t id, const uint8_t *s, size_t n, const char *shown);

/* Fills text_bytes, is_special and byte_id, and sorts the specials. */
int tok_vocab_finish(struct tok_vocab *v);

/* The steps of a vocabulary that is learned (recipe.h). */
struct tok_recipe;
int tok_vocab_recipe_steps(struct tok_vocab *v, const struct tok_recipe *r);

#endif
