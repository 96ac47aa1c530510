/* measure.h -- what a vocabulary makes of a text, counted.
 *
 * A word is a longest run of characters that are not white space (the 25 of
 * White_Space); a plain word is a longest run of letters and marks.  Both are
 * looked for in what the tokens give back, so that a token and a word can be
 * laid side by side also where the vocabulary changes the text.  Memory does
 * not grow with the text. */
#ifndef TOK_MEASURE_H
#define TOK_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include "tok/vocab.h"

struct tok_measure {
    int64_t bytes, words;               /* of the text itself */
    int64_t tokens;
    int64_t token_words, continued;     /* words, and those of more than one token */
    int64_t plain_words, one_token;     /* plain words, and those that lie in one token */
    int64_t partial;                    /* tokens that hold no whole number of characters */
    int64_t unknown;                    /* tokens of what no other token stands for */
};

/* v is borrowed until free. */
struct tok_meter;
struct tok_meter *tok_meter_new(const struct tok_vocab *v);
void tok_meter_free(struct tok_meter *m);               /* NULL is accepted */

/* A document in one or more parts, cut between characters and between tokens:
 * adds its text s[n] and its ids to *sum, and marks the ids in the meter. */
void tok_meter_add(struct tok_meter *m, const uint8_t *s, size_t n, const int32_t *ids, int64_t n_ids, _Bool ends_doc, struct tok_measure *sum);

_Bool tok_meter_seen(const struct tok_meter *m, int32_t id);
/* Different ids seen since the last reset that are no special tokens. */
int64_t tok_meter_used(const struct tok_meter *m);
void tok_meter_reset(struct tok_meter *m);              /* forgets the ids seen */
/* How many there could be. */
int64_t tok_meter_entries(const struct tok_meter *m);

/* How unequal n shares are: 0 all the same, near 1 one has everything.
 * (n + 1 - 2 sum_i (n + 1 - i) v_i / sum v) / n, v ascending, i from 1.  v is sorted. */
double tok_measure_gini(double *v, int n);

#endif
