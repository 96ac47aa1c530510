/* slow.h -- the reference: a whole text to ids, the slow way, for every kind of
 * vocabulary.
 *
 * Each part does what its name does in the package the vocabulary comes from;
 * nothing is compiled, cached or guessed.  The fast path (encode.h) is held
 * against this one. */
#ifndef TOK_SLOW_H
#define TOK_SLOW_H

#include <stddef.h>
#include <stdint.h>

#include "tok/bpe_model.h"
#include "tok/vocab.h"

/* Tables, read-only once made and shared by threads; v is borrowed until free. */
struct tok_slow;
int tok_slow_new(const struct tok_vocab *v, struct tok_slow **out);
void tok_slow_free(struct tok_slow *r);
const struct tok_bpe *tok_slow_model(const struct tok_slow *r);

/* What looks for added tokens: those found in the raw text, or the others. */
struct tok_finder;
const struct tok_finder *tok_slow_finder(const struct tok_slow *r, _Bool normalized);

/* Scratch of one thread; NULL when memory runs out. */
struct tok_slow_mem;
struct tok_slow_mem *tok_slow_mem_new(void);
void tok_slow_mem_free(struct tok_slow_mem *w);

/* Appends the ids of a text.  specials: the names of special tokens in the text
 * are those tokens.  Each longest run of bytes that are no valid UTF-8 is a
 * piece, counted in *invalid, and the text on either side of it stands alone. */
int tok_slow_run(const struct tok_slow *r, struct tok_slow_mem *w, const uint8_t *s, size_t n, _Bool specials,
                struct tok_ids *out, uint64_t *invalid);

#endif
