/* bpe_train.h -- learning a BPE vocabulary from text.
 *
 * Pieces are counted in a table, then the most frequent adjacent pair is
 * merged again and again, with exact 64-bit counts.  Equal counts go to the
 * smallest (id_a, id_b), where the 256 bytes are numbered in the order of
 * their ByteLevel characters: the same merges as Hugging Face's BpeTrainer
 * given the whole texts.
 *
 * Parity-aware (arXiv 2508.04796): each merge is the best one of the language
 * that is worst off at that time.  A language's cost is the tokens of its
 * development text, when the languages have parallel ones, else the tokens a
 * byte of the text it is learned from.
 */
#ifndef TOK_BPE_TRAIN_H
#define TOK_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "tok/bpe_tally.h"
#include "tok/vocab.h"

struct tok_train_stats {
    int64_t bytes, taken, pieces, distinct, merges, cut;        /* cut: pieces that were too long */
    int64_t forgotten;          /* a count is short by no more than this */
    uint64_t invalid;
    const struct tok_train_lang *lang;  /* [n_langs], borrowed from the trainer */
};

/* Learns until the vocabulary has its size.  ERR_DATA when there is no text, or
 * when pairs of at least min_count run out before: the sentence names the size
 * that was reached.  ERR_USAGE: development texts of some languages alone.
 * tick(arg, tokens so far) may be NULL. */
int tok_trainer_run(struct tok_trainer *t, void (*tick)(void *arg, int64_t tokens), void *arg,
                    struct tok_vocab **out, struct tok_train_stats *stats);

#endif
