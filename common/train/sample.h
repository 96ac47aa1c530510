/* sample.h -- text from a model, token by token, through the key/value cache. */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include "train/trainer.h"

struct sample_options {
    int64_t n_tokens;           /* at most, beyond the prompt */
    double temperature;         /* 0: the most likely token */
    int64_t top_k;              /* 0: all */
    double top_p;               /* 1: all */
    int64_t seed;
    _Bool ignore_eod;           /* go on after the end of a document */
};

struct sampler;

/* t needs TRAINER_DECODE.  Everything is allocated here. */
int sample_new(struct trainer *t, const struct sample_options *o, struct sampler **out);
void sample_free(struct sampler *s);            /* NULL is accepted */

/* Starts a document with a prompt of n > 0 tokens; number tells apart the
 * prompts of one call (it enters the random stream). */
int sample_prompt(struct sampler *s, const int32_t *ids, int64_t n, int64_t number);

/* The next token; *done when it is the last (n_tokens reached, end of document,
 * or the cache is full).  A pure function of model, prompt, options and number. */
int sample_next(struct sampler *s, int32_t *id, _Bool *done);

#endif
