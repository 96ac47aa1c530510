/* bpe_learn.h -- merging the most frequent pair of counted pieces, again and again.
 *
 * Symbols below 256 are the bytes in the order of their ByteLevel characters;
 * equal counts go to the smallest (a, b). */
#ifndef TOK_BPE_LEARN_H
#define TOK_BPE_LEARN_H

#include <stdint.h>

#include "tok/bpe_count.h"

/* c is not needed afterwards.  least: pairs that are seen less often will not be
 * merged, so they are not kept; 1 where merges are chosen elsewhere. */
struct tok_learner;
int tok_learner_new(const struct tok_counts *c, int64_t least, struct tok_learner **out);
void tok_learner_free(struct tok_learner *l);

/* The most frequent pair now: 1, or 0 when none is seen min_count times. */
int tok_learner_best(struct tok_learner *l, int64_t min_count, int32_t *a, int32_t *b);

/* Makes it one symbol wherever it stands, if anywhere; product is larger than all before. */
int tok_learner_merge(struct tok_learner *l, int32_t a, int32_t b, int32_t product);

/* What the counted text is in symbols now. */
int64_t tok_learner_tokens(const struct tok_learner *l);

#endif
