/* tokenize_stats.h -- counts of several vocabularies over several languages,
 * and the tables made of them. */
#ifndef TOKENIZE_STATS_H
#define TOKENIZE_STATS_H

#include <stdint.h>

#include "langs.h"
#include "base/table.h"
#include "tok/measure.h"

struct stats_cell { struct tok_measure m; int64_t used, invalid; };

struct stats_vocab {
    const char *name;
    int64_t size, entries, unreachable;
    int64_t used;                       /* over all languages */
    const char *hash;
};


struct stats {
    struct stats_vocab *vocab; int n_vocabs;
    struct lang_texts *lang; int n_langs;
    struct stats_cell *cell;            /* [n_vocabs][n_langs] */
    int base;                           /* language that the others are compared with; -1: none */
};

/* Prints both tables. */
int tokenize_stats_print(const struct stats *s, enum table_form form);

#endif
