/* vocab_convert.h -- a vocabulary of ranks or scores as a tokenizer.json or a
 * rank file, and the proof that the copy gives the same ids.
 *
 * What the other format cannot say is refused by name. */
#ifndef TOK_VOCAB_CONVERT_H
#define TOK_VOCAB_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "tok/vocab.h"

/* The text is owned by the caller.  ERR_DATA names what cannot be said. */
int tok_vocab_to_json(const struct tok_vocab *v, char **text, size_t *n);
/* *specials is the JSON object of special tokens that belongs to the rank file. */
int tok_vocab_to_ranks(const struct tok_vocab *v, char **text, size_t *n, char **specials);

struct tok_check {
    int64_t entries;            /* tokens that merging could yield */
    int64_t holes;              /* ids that are no token */
    int64_t unreachable;        /* entries that their own text, as one piece, does not give */
    int64_t twins;              /* entries with the same text as another, such as "a" and <0x61> */
    int32_t first;              /* one that is unreachable, or -1 */
};

/* Encodes every entry as a piece of its own. */
int tok_vocab_check(const struct tok_vocab *v, struct tok_check *out);

/* Encodes the text of every entry, and runs of the shorter ones, as whole texts
 * by both vocabularies: ERR_DATA names the first that differs. */
int tok_vocab_equal(const struct tok_vocab *a, const struct tok_vocab *b);

#endif
