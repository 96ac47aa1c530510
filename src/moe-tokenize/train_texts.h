/* train_texts.h -- the texts of a trainer, read by a team of threads. */
#ifndef TRAIN_TEXTS_H
#define TRAIN_TEXTS_H

#include "tok/bpe_train.h"
#include "tok/text_source.h"

struct train_texts {
    const char **path; int n;
    int *lang;                          /* [n] */
    int first_dev;                      /* from here on it is development text */
    struct text_how how;
    int threads;
    int64_t count[TEXT_N_KINDS];        /* when they were read */
};

/* Once, or twice where the trainer makes a survey first. */
int train_texts_read(struct train_texts *x, struct tok_trainer *t);

#endif
