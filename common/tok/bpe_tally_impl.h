/* bpe_tally_impl.h -- inside of a trainer, for bpe_tally.c and bpe_train.c alone. */
#ifndef TOK_BPE_TALLY_IMPL_H
#define TOK_BPE_TALLY_IMPL_H

#include "tok/bpe_count.h"
#include "tok/bpe_tally.h"
#include "tok/cutter.h"
#include "tok/vocab.h"

/* A sample is made of blocks of about BLOCK bytes, chosen by a hash of what stands in
 * them: those below a level that gives the bytes asked for. */
enum { TOK_SAMPLE_BLOCK = 4096, TOK_SAMPLE_LEVELS = 65536 };

struct tok_trainer {
    struct tok_train_how how;
    struct tok_vocab *bare;             /* its steps alone */
    struct tok_cutter *cutter;
    struct tok_counts *text, *dev;      /* [n_langs] */
    struct tok_train_lang *lang;        /* [n_langs] */
    _Bool surveying, has_dev;           /* has_dev: development text was given, be it empty */
    uint64_t *level_bytes;              /* [n_langs][TOK_SAMPLE_LEVELS], of the survey */
    uint32_t *level;                    /* [n_langs] blocks below are taken */
    int64_t pieces, cut, forgotten;
    uint64_t invalid;
};

/* Bytes of tables for these pieces, those of learning included. */
uint64_t tok_counts_cost(const struct tok_counts *c);

#endif
