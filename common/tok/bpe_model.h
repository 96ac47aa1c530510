/* bpe_model.h -- the merging of one piece by a vocabulary's own rules: the slow,
 * general form.
 *
 * Merge list, ranks and scores are one table of pairs here: a list gives each
 * pair its place, ranks and scores give every pair of tokens whose text
 * together is a token the rank of that token. */
#ifndef TOK_BPE_MODEL_H
#define TOK_BPE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "tok/merge.h"
#include "tok/vocab.h"

struct tok_bpe;

/* v is borrowed until free. */
int tok_bpe_new(const struct tok_vocab *v, struct tok_bpe **out);
void tok_bpe_free(struct tok_bpe *m);

/* The id whose key this is, or -1. */
int32_t tok_bpe_find(const struct tok_bpe *m, const uint8_t *s, size_t n);
/* First of two steps with other work between them: whether to look for a key at all. */
uint64_t tok_bpe_ask(const struct tok_bpe *m, const uint8_t *s, size_t n);
_Bool tok_bpe_may_be_there(const struct tok_bpe *m, uint64_t asked);
const struct tok_pairs *tok_bpe_pairs(const struct tok_bpe *m);

struct tok_ids { int32_t *v; size_t n, cap; };
void tok_ids_put(struct tok_ids *ids, int32_t id);
int tok_ids_room(struct tok_ids *ids, size_t n);        /* for n more */

struct tok_bpe_mem { struct tok_merge_mem merge; struct tok_ids ids; };
void tok_bpe_mem_free(struct tok_bpe_mem *w);

/* Appends the ids of a piece of n > 0 bytes.  raw: the piece is bytes that are
 * no valid UTF-8; each becomes the token of that byte, or the unknown token. */
int tok_bpe_run(const struct tok_bpe *m, struct tok_bpe_mem *w, const uint8_t *s, size_t n, _Bool raw, struct tok_ids *out);

#endif
