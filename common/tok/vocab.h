/* vocab.h -- a byte-level BPE vocabulary and its file, tokenizer.json.
 *
 * A vocabulary is a list of tokens (id -> bytes), a list of merges (rank ->
 * pair of ids and product) and added tokens, of which one may end documents.
 * The file is Hugging Face's tokenizer.json; what is read is exactly what
 * moe-tokenize train writes: model BPE over the ByteLevel alphabet, the o200k
 * split, decoder ByteLevel, special added tokens.  Everything else in such a
 * file (Unigram, dropout, normalizers, other splits...) is refused by name,
 * because an approximated vocabulary gives wrong ids in silence.
 *
 * Added tokens are never looked for in text: "<|endoftext|>" inside a web page
 * is plain text. */
#ifndef TOK_VOCAB_H
#define TOK_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define TOK_EOD "<|endoftext|>"         /* the default end-of-document token */

struct tok_merge { int32_t a, b, product; };    /* ids; the index is the rank */

struct tok_vocab;

/* ERR_NOINPUT, or ERR_DATA "path: model.type: \"Unigram\" is not supported". */
int tok_vocab_load(const char *path, struct tok_vocab **out);
int tok_vocab_parse(const char *name, const char *text, size_t n, struct tok_vocab **out);
void tok_vocab_free(struct tok_vocab *v);       /* NULL is accepted */

/* Builds a vocabulary in the layout that train writes: ids 0..255 are the
 * bytes in the order of their ByteLevel characters, then the specials, then
 * one new token per merge (a merge whose product exists gets that id).
 * merges[].product is filled in.  Everything is copied. */
int tok_vocab_build(const char *const *specials, int n_specials,
                    struct tok_merge *merges, int64_t n_merges, struct tok_vocab **out);

/* The file's text, a pure function of the vocabulary; owned by the caller. */
char *tok_vocab_text(const struct tok_vocab *v, size_t *n);

/* Ids are 0 .. size-1. */
int32_t tok_vocab_size(const struct tok_vocab *v);
int64_t tok_vocab_n_merges(const struct tok_vocab *v);
const struct tok_merge *tok_vocab_merges(const struct tok_vocab *v);
int32_t tok_vocab_byte_id(const struct tok_vocab *v, uint8_t byte);

/* Bytes of a token (an added token: its content), borrowed until free; *n is
 * their number.  NULL when id is no token. */
const uint8_t *tok_vocab_bytes(const struct tok_vocab *v, int32_t id, size_t *n);

/* [size] text bytes of each token; 0 for special tokens, which are no text. */
const int32_t *tok_vocab_text_bytes(const struct tok_vocab *v);

_Bool tok_vocab_is_special(const struct tok_vocab *v, int32_t id);
int tok_vocab_n_specials(const struct tok_vocab *v);
int32_t tok_vocab_special(const struct tok_vocab *v, int i, const char **content);

/* Id of a special token by its content: ERR_DATA when there is none. */
int tok_vocab_find_special(const struct tok_vocab *v, const char *content, int32_t *id);

/* Hash of the file's bytes: the identity that token files carry. */
struct hash tok_vocab_hash(const struct tok_vocab *v);
const char *tok_vocab_name(const struct tok_vocab *v);          /* the path it came from */

#endif
