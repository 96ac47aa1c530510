/* corpus.h -- texts to ids by a team of threads, into token files, a stream, or
 * nowhere (to compare two ways of encoding, or with token files that are there). */
#ifndef CORPUS_H
#define CORPUS_H

#include <stdint.h>

#include "against.h"
#include "outputs.h"
#include "tok/encode.h"
#include "tok/text_source.h"

struct corpus {
    const char *const *paths; int n_paths;
    struct text_how how;
    struct tok_encoder *e, *other;      /* other: the slow way, to compare; then nothing is written */
    int threads;
    int64_t vocab_size;
    int32_t eod;                        /* ends documents; -1: nothing does */
    struct outputs *outputs;
    struct against *against;            /* files to compare with; neither of the two: stdout */
    struct tokenfile_input *input;      /* [n_paths]; sizes and hashes are filled in */
    uint64_t stored;                    /* bytes of all inputs, as far as they are known */
    /* what came of it */
    int64_t count[TEXT_N_KINDS];
    int64_t *invalid;                   /* [n_keys] bytes that are no UTF-8, kept */
    int64_t text_bytes;                 /* of documents in this run */
    double seconds;
};

int corpus_run(struct corpus *c);

#endif
