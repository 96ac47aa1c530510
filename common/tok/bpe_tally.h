/* bpe_tally.h -- counting the text that a vocabulary is learned from.
 *
 * Text comes as tallies: any thread fills one, and they are taken in the order
 * of the text, so that nothing depends on the number of threads. */
#ifndef TOK_BPE_TALLY_H
#define TOK_BPE_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include "tok/recipe.h"

enum { TOK_WEIGHT_ONE = 1000, TOK_WINDOW_SHARE = 2 };

struct tok_train_how {
    int32_t vocab_size;         /* 256 bytes and the specials included */
    int64_t min_count;          /* no pair that is seen less often (times its weight) is merged */
    const char *const *specials; int n_specials;        /* borrowed until the run has ended */
    struct tok_recipe recipe;
    int64_t max_piece;          /* bytes; what is longer is cut, between characters; 0: no limit */
    uint64_t memory;            /* bound of the tables: rare pieces are forgotten; 0: none */
    uint64_t sample_bytes;      /* of each language, about; 0: everything */
    int n_langs;                /* 0: one */
    const int64_t *weight;      /* [n_langs] a text counts so many thousandths; NULL: all 1000 */
    _Bool parity;
    int64_t parity_after;       /* merges that are made by frequency before */
    int parity_window;          /* a language gets at most TOK_WINDOW_SHARE times its share of so many merges; 0: no limit */
};

/* how is copied.  ERR_USAGE as tok_vocab_build_as(), or when vocab_size is too small. */
struct tok_trainer;
int tok_trainer_new(const struct tok_train_how *how, struct tok_trainer **out);
void tok_trainer_free(struct tok_trainer *t);

/* As tok_encoder_cut(); arg is the trainer. */
size_t tok_trainer_cut(const void *arg, const uint8_t *s, size_t n, size_t from);

/* The pieces of some text of one language; dev: of its development text. */
struct tok_tally;
struct tok_tally *tok_tally_new(const struct tok_trainer *t);
void tok_tally_free(struct tok_tally *y);
int tok_tally_add(struct tok_tally *y, int lang, _Bool dev, const uint8_t *s, size_t n);

/* Empties it into the trainer; one thread at a time, in the order of the text. */
int tok_trainer_take(struct tok_trainer *t, struct tok_tally *y);

/* With sample_bytes every text is read twice: this comes between. */
_Bool tok_trainer_surveys(const struct tok_trainer *t);
void tok_trainer_surveyed(struct tok_trainer *t);

struct tok_train_lang {
    int64_t bytes, taken;       /* of its text, and of that what was learned from */
    int64_t merges;             /* parity: those that were chosen for it */
    int64_t tokens, dev_tokens; /* at the end; parity alone */
};
const struct tok_train_lang *tok_trainer_langs(const struct tok_trainer *t);    /* [n_langs] */

#endif
