/* encode.h -- text to ids and back, exactly.
 *
 * There are two ways to the same ids.  The fast one knows the split expression:
 * short pieces are merged side by side and remembered in a bounded cache per
 * thread, long ones go to a heap, so that a megabyte of one letter takes a
 * moment and not an hour.  The slow one (slow.h) serves every other vocabulary
 * and is what the fast one is held against.  The ids do not depend on the way
 * or on the number of threads. */
#ifndef TOK_ENCODE_H
#define TOK_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "tok/vocab.h"

struct tok_encoder;

struct tok_how {
    int threads;                /* 0: what OpenMP offers */
    _Bool specials;             /* names of special tokens in text are those tokens */
    _Bool template;             /* each text gets what the vocabulary puts around it */
    _Bool slow;                 /* the slow way, whatever the vocabulary */
};

/* v is borrowed until free.  how NULL: all zero. */
int tok_encoder_new(const struct tok_vocab *v, const struct tok_how *how, struct tok_encoder **out);
void tok_encoder_free(struct tok_encoder *e);
/* An encoder for one thread of the caller's own, with the tables of e, which it
 * borrows until it is freed. */
int tok_encoder_share(const struct tok_encoder *e, struct tok_encoder **out);
_Bool tok_encoder_is_fast(const struct tok_encoder *e);

struct tok_span { const uint8_t *s; size_t n; };

/* Encodes n_docs texts; the results are borrowed until the next call:
 * ids[0 .. ends[n_docs-1]), text i ends before ends[i].  *invalid is increased
 * by the number of bytes that are no valid UTF-8. */
int tok_encode(struct tok_encoder *e, const struct tok_span *docs, int64_t n_docs,
               const int32_t **ids, const int64_t **ends, uint64_t *invalid);

/* The same, where the first of the texts is the rest of one that was cut (goes_on). */
int tok_encode_on(struct tok_encoder *e, _Bool goes_on, const struct tok_span *docs, int64_t n_docs,
                  const int32_t **ids, const int64_t **ends, uint64_t *invalid);

/* The first place at or after from (0 < from) where a text may be given to
 * tok_encode and tok_encode_on in two parts without a change of ids; n when there is none. */
size_t tok_encoder_cut(const struct tok_encoder *e, const uint8_t *s, size_t n, size_t from);

/* Where two results for the same texts part: the first such text, its token, and the byte
 * of the text where that begins, as far as the tokens before it tell (a normalizer may have
 * moved it).  a and b: the ids from there on, -1 behind the last. */
struct tok_difference { int64_t doc, token; size_t byte; int32_t a[4], b[4]; };

/* False when there is none. */
_Bool tok_encode_differ(const struct tok_encoder *e, int64_t n_docs, const int32_t *ids_a, const int64_t *ends_a,
                        const int32_t *ids_b, const int64_t *ends_b, struct tok_difference *out);

/* Writes the longest prefix of whole UTF-8 characters: what a terminal can
 * show now.  The rest (at most 3 bytes) waits for the next ids. */
struct tok_decoder { const struct tok_vocab *v; uint8_t held[4]; int n_held, strip; };
void tok_decode_begin(struct tok_decoder *d, const struct tok_vocab *v);

/* Appends the text of n ids to *buf (grown with realloc, *len, *cap); special
 * tokens have no text unless specials is true.  ERR_DATA names an id that is no
 * token; the ids before it are decoded. */
int tok_decode(struct tok_decoder *d, const int32_t *ids, size_t n, _Bool specials,
               char **buf, size_t *len, size_t *cap);
/* What is still held back, as it is. */
int tok_decode_end(struct tok_decoder *d, char **buf, size_t *len, size_t *cap);

#endif
