/* fast_space.h -- vocabularies without a split, in which spaces are "▁": where a text
 * may be cut all the same.
 *
 * Before a space (or a run of them) no token goes on, when no entry of the
 * vocabulary holds a "▁" behind anything but another one.  Then each word and
 * the spaces before it merge for themselves. */
#ifndef TOK_FAST_SPACE_H
#define TOK_FAST_SPACE_H

#include "tok/bpe_model.h"
#include "tok/split_kin.h"
#include "tok/vocab.h"

/* What is put before a stretch of text: nothing, a "▁", or one where none is, at every
 * stretch or at the first. */
enum tok_space_prefix { TOK_SPACE_NEVER, TOK_SPACE_ALWAYS, TOK_SPACE_UNLESS, TOK_SPACE_FIRST };

struct tok_space { struct tok_split split; enum tok_space_prefix prefix; };

/* False when the vocabulary is not of this kind or it cannot be proved. */
_Bool tok_space_find(const struct tok_vocab *v, const struct tok_bpe *m, struct tok_space *out);

#endif
