/* fast.h -- the fast way: a text to ids by a compiled split and a cache.
 *
 * Chosen by the exact expression of the vocabulary; the ids are those of
 * slow.h. */
#ifndef TOK_FAST_H
#define TOK_FAST_H

#include <stddef.h>
#include <stdint.h>

#include "tok/slow.h"
#include "tok/split_kin.h"
#include "tok/vocab.h"

/* The compiled split that a vocabulary's steps are, perhaps behind NFC; NULL: none. */
const struct tok_split *tok_fast_split(const struct tok_vocab *v);

/* *out is NULL when the vocabulary has no fast way.  v and ref are borrowed. */
struct tok_fast;
int tok_fast_new(const struct tok_vocab *v, const struct tok_slow *ref, _Bool specials, struct tok_fast **out);
void tok_fast_free(struct tok_fast *f);

/* Scratch of one thread, of bounded size but for the longest piece. */
struct tok_fast_mem;
struct tok_fast_mem *tok_fast_mem_new(void);
void tok_fast_mem_free(struct tok_fast_mem *w);

/* Appends the ids of a text, or of a part of one that begins where it was cut. */
int tok_fast_run(const struct tok_fast *f, struct tok_fast_mem *w, const uint8_t *s, size_t n, _Bool begins, struct tok_ids *out, uint64_t *invalid);


/* As tok_encoder_cut(). */
size_t tok_fast_cut(const struct tok_fast *f, const uint8_t *s, size_t n, size_t from);

#endif
