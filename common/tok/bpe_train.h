/* bpe_train.h -- learning a BPE vocabulary from text.
 *
 * Pieces are counted in a table, then the most frequent adjacent pair is
 * merged again and again, with exact 64-bit counts.  Equal counts go to the
 * smallest (id_a, id_b), where the 256 bytes are numbered in the order of
 * their ByteLevel characters: the same merges as Hugging Face's BpeTrainer
 * given the whole texts.  The result does not depend on the number of threads. */
#ifndef TOK_BPE_TRAIN_H
#define TOK_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "tok/vocab.h"

struct tok_trainer;

struct tok_trainer *tok_trainer_new(int threads);       /* 0: what OpenMP offers */
void tok_trainer_free(struct tok_trainer *t);

/* Counts the pieces of one text (a document; pieces do not cross texts). */
int tok_trainer_add(struct tok_trainer *t, const uint8_t *s, size_t n);

struct tok_train_stats { int64_t bytes, pieces, distinct, merges; uint64_t invalid; };

/* Learns until the vocabulary has vocab_size tokens (256 bytes and the specials
 * included).  ERR_DATA when there is no text, or when pairs of at least
 * min_count run out before: the sentence names the size that was reached.
 * tick(arg, tokens so far) may be NULL. */
int tok_trainer_run(struct tok_trainer *t, int32_t vocab_size, int64_t min_count,
                    const char *const *specials, int n_specials,
                    void (*tick)(void *arg, int64_t tokens), void *arg,
                    struct tok_vocab **out, struct tok_train_stats *stats);

#endif
