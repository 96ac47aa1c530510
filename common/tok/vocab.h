/* vocab.h -- a BPE vocabulary and the files it comes in.
 *
 * A vocabulary is a set of tokens (id -> bytes; ids may have holes), what makes
 * neighbours merge, added tokens, and the steps that a text goes through before.
 * It is read from Hugging Face's tokenizer.json, tiktoken's rank files,
 * tekken.json or SentencePiece's .model of type BPE.  What would change an id
 * and is not done here (Unigram, dropout, unknown normalizers...) is refused by
 * name, because an approximated vocabulary gives wrong ids in silence. */
#ifndef TOK_VOCAB_H
#define TOK_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define TOK_EOD "<|endoftext|>"         /* the default end-of-document token */

struct tok_merge { int32_t a, b, product; };    /* ids; the index is the rank */

struct tok_vocab;

/* What makes two neighbours merge: their place in a list of pairs, the rank of
 * the token that they are together, or the score of that token. */
enum tok_semantics { TOK_LIST, TOK_RANKS, TOK_SCORES };

/* ERR_NOINPUT, or ERR_DATA "path: model.type: \"Unigram\" is not supported". */
int tok_vocab_load(const char *path, struct tok_vocab **out);
int tok_vocab_parse(const char *name, const char *text, size_t n, struct tok_vocab **out);
/* A rank file of tiktoken needs the name of its scheme (scheme.h) and may have a
 * file of special tokens: {"<|endoftext|>": 100257}. */
struct tok_load { const char *scheme, *specials; };
int tok_vocab_load_as(const char *path, const struct tok_load *how, struct tok_vocab **out);
int tok_vocab_parse_as(const char *name, const char *text, size_t n, const struct tok_load *how, struct tok_vocab **out);
void tok_vocab_free(struct tok_vocab *v);       /* NULL is accepted */

/* Builds a vocabulary in the layout that train writes: ids 0..255 are the
 * bytes in the order of their ByteLevel characters, then the specials, then
 * one new token per merge (a merge whose product exists gets that id).
 * merges[].product is filled in.  Everything is copied. */
int tok_vocab_build(const char *const *specials, int n_specials,
                    struct tok_merge *merges, int64_t n_merges, struct tok_vocab **out);

/* The tokenizer.json of a vocabulary that was built, a pure function of it; owned
 * by the caller. */
char *tok_vocab_text(const struct tok_vocab *v, size_t *n);

/* Ids are 0 .. size-1; some of them may be no token. */
int32_t tok_vocab_size(const struct tok_vocab *v);
int64_t tok_vocab_n_merges(const struct tok_vocab *v);
const struct tok_merge *tok_vocab_merges(const struct tok_vocab *v);
int32_t tok_vocab_byte_id(const struct tok_vocab *v, uint8_t byte);      /* -1: none */

/* Bytes of a token (an added token: its content), borrowed until free; *n is
 * their number.  NULL when id is no token. */
const uint8_t *tok_vocab_bytes(const struct tok_vocab *v, int32_t id, size_t *n);

/* [size] text bytes of each token; 0 for special tokens, which are no text. */
const int32_t *tok_vocab_text_bytes(const struct tok_vocab *v);

/* True when the tokens of any text hold exactly its bytes: nothing is normalized,
 * put before it, dropped or unknown. */
_Bool tok_vocab_keeps_text(const struct tok_vocab *v);

/* The token of what no other token stands for; -1: none. */
int32_t tok_vocab_unknown(const struct tok_vocab *v);

_Bool tok_vocab_is_special(const struct tok_vocab *v, int32_t id);
int tok_vocab_n_specials(const struct tok_vocab *v);
/* i = 0 is the token that ends documents: the one of the lowest id, unless that is
 * called as a beginning is (<s>, <|begin_of_text|>...) and another as an end. */
int32_t tok_vocab_special(const struct tok_vocab *v, int i, const char **content);

/* Id of a special token by its content: ERR_DATA when there is none. */
int tok_vocab_find_special(const struct tok_vocab *v, const char *content, int32_t *id);

/* Hash of the file's bytes: the identity that token files carry. */
enum tok_semantics tok_vocab_semantics(const struct tok_vocab *v);
const char *tok_vocab_format(const struct tok_vocab *v);        /* "tokenizer.json", "tiktoken", ... */

struct hash tok_vocab_hash(const struct tok_vocab *v);
const char *tok_vocab_name(const struct tok_vocab *v);          /* the path it came from */

#endif
