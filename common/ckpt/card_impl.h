/* card_impl.h -- the facts of a card, between the sources that find them and
 * those that write them down.
 *
 * A number that is not known is 0 beside a flag or a name that says so; every
 * string lies in the arena of the card or is borrowed from its inputs. */
#ifndef CKPT_CARD_IMPL_H
#define CKPT_CARD_IMPL_H

#include <jansson.h>

#include "base/hash.h"
#include "base/json.h"
#include "ckpt/card.h"
#include "data/sidecar.h"
#include "model/params.h"

/* ---- from metrics.jsonl: rows of steps up to that of the checkpoint */

struct card_eval { const char *set; int64_t step, tokens; double loss, ppl, bits_per_byte; };

struct card_rows {
    int64_t steps;              /* that have a row; each counted once */
    int64_t redone, skipped;    /* rows of steps that came again; of updates that were skipped */
    int64_t later;              /* rows after the step of the checkpoint, not counted */
    double flops, flops_spent;  /* of each step once; of all rows */
    double step_s, ckpt_s, eval_s;      /* of all rows */
    const char *first, *last;   /* time of the first and the last row */
    struct card_eval *evals;    /* [n_evals]: the newest of each set */
    int n_evals;
};

/* Rows after `step` are left out; step < 0: none are. */
int card_rows_read(struct arena *a, const char *path, int64_t step, struct card_rows *out);

/* ---- from MANIFEST, configuration and sidecars */

struct card_set {
    const char *name;           /* of a validation set; NULL */
    const char *path;
    struct hash hash;           /* hex[0] == 0: not known */
    int64_t windows;            /* 0: not known */
    double share;               /* of the samples; < 0: not known */
    int64_t samples;            /* that training took so far; < 0: not known */
    struct sidecar *side;       /* NULL: not here, or of other tokens */
};

struct card_lang { const char *code; int64_t bytes; double tokens; _Bool estimated; };

struct card {
    const struct ckpt *ckpt;
    const struct card_input *in;
    struct arena *arena;
    const struct manifest *manifest;    /* NULL without */
    _Bool derived;              /* made by moe-ckpt: layout and threads are not those of training */
    int64_t step, tokens;       /* -1: not known */
    int64_t ranks;              /* 0: not known */

    json_t *config;             /* config.json, or NULL */
    _Bool known;                /* cfg and params are filled */
    const char *unknown_why;    /* else: the sentence */
    struct model_config cfg;
    struct param_table params;
    int64_t elements;           /* of the model tensors in the files */
    uint64_t bytes;
    const char *types;          /* "F32, BF16" */

    _Bool has_tokenizer;
    struct hash tokenizer;
    int64_t tokenizer_size;     /* 0: of a kind that is not read here */

    _Bool has_rows;
    struct card_rows rows;
    double flops;               /* of the training; 0: not known */
    _Bool flops_measured;       /* summed over rows, else by formula */
    _Bool flops_upper;          /* by formula with whole windows attended */
    _Bool flops_no_attention;   /* by formula, length of windows not known */

    struct card_set *train, *valid;
    int n_train, n_valid;
    struct card_lang *langs;    /* [n_langs] of the training text, by bytes */
    int n_langs;
    int64_t text_bytes;         /* that the languages were found in; of all text that is known: */
    int64_t text_bytes_all;

    const char **notes;         /* [n_notes] */
    int64_t notes_room;
    int n_notes;
    struct json_out *json;
    struct card_text *text;
};

void card_say(struct card *c, const char *sentence);    /* adds a note */

int card_data_read(struct card *c);                     /* sets and languages */
_Bool card_data_is_language(const char *code);          /* two letters that are one */
const char *card_data_language(const char *code);       /* its English name */

/* Hours of all counted rows, and what they took; NaN where something is not known. */
double card_hours(const struct card *c);
double card_energy_kwh(const struct card *c);

/* ---- text that grows */

struct card_text { char *s; size_t n, room; };
void card_text_add(struct card_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void card_text_free(struct card_text *t);

/* For Markdown: punctuation escaped, control characters and bytes that are not
 * UTF-8 as U+FFFD; in the arena. */
const char *card_text_plain(struct arena *a, const char *s);
/* The same bytes for a block of code: only control characters go. */
const char *card_text_clean(struct arena *a, const char *s);
/* A fence that no line of the text ends. */
const char *card_text_fence(struct arena *a, const char *s);

/* A count as people write it, from a million on with its short form: "42,408,000 (42.4 M)". */
const char *card_text_count(struct arena *a, int64_t n);

/* ---- the fields of Regulation (EU) 2024/1689 */

struct card_field {
    const char *part;           /* heading over it: "Section 1, point 1: ..." */
    const char *ref;            /* "Annex XI, section 1, 1(a)" */
    const char *title;
    const char *fact;           /* Markdown; NULL */
    const char *hint;           /* what a human must add; NULL: nothing */
};

/* All fields in order, in the arena. */
int card_act_fields(const struct card *c, struct card_field **out);

#endif
