/* card.h -- a model card: what is known of a checkpoint, and what is not.
 *
 * Gathers facts from the files of a checkpoint, from the rows of its run and
 * from the sidecars of its data, and writes them as Markdown with the front
 * matter that the Hub of Hugging Face reads, or as one JSON object.  What the
 * technical documentation of the EU AI Act asks for and no file can tell is
 * marked CARD_MARK, each mark on a line of its own field.
 *
 * It refuses to guess: no power given means no energy, no name of a language
 * means none, and a number that covers a part of the training says which part.
 * The text is a pure function of its inputs: no date, no host. */
#ifndef CKPT_CARD_H
#define CKPT_CARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "ckpt/load.h"

#define CARD_MARK "TO FILL IN BY A HUMAN"

/* What the caller knows beside the checkpoint; strings are borrowed. */
struct card_train { const char *path; double weight; };
struct card_valid { const char *name, *path; };
struct card_input {
    const char *title;          /* of the model */
    const char *metrics;        /* path of the run's metrics.jsonl; NULL: none */
    const char *config_text;    /* the run's configuration as YAML; NULL: not known, and the next five are 0 */
    int64_t seq_len, tokens_per_step;
    const struct card_train *train;
    const struct card_valid *valid;
    int n_train, n_valid;
    const char *init;           /* the model that training began from; NULL: none known */
    const char *hardware;       /* NULL: not stated */
    double power_w;             /* that one rank draws; 0: not stated */
    double pue;                 /* power usage effectiveness of the site; 0: not stated, 1 in the formula */
    const char *languages;      /* "de,fr"; NULL: what the names of files tell */
};

struct card;

/* Reads everything.  c and in are borrowed as long as the card.  ERR_DATA: a
 * damaged file; ERR_USAGE: languages that are no codes.  *out is owned. */
int card_make(const struct ckpt *c, const struct card_input *in, struct card **out);
void card_free(struct card *c);                         /* NULL is accepted */

/* What was looked for and is not in the card, as sentences; NULL after the last. */
const char *card_note(const struct card *c, int i);

/* Text that is borrowed until card_free(); *n may be NULL. */
const char *card_markdown(struct card *c, size_t *n);
const char *card_json(struct card *c, size_t *n);

/* Lines of a card that still hold a mark, in arena a: where it stands and what
 * is to be filled in. */
struct card_mark { int64_t line; const char *heading, *what; };
int card_marks(struct arena *a, const char *text, size_t n, struct card_mark **out);    /* how many */

#endif
