/* journal.h -- how far the making of token files has come, for the run after a
 * killed one.
 *
 * A file of JSON lines: the first says what is made from what, each later one
 * adds inputs that are done, with the marks of all token files at that moment,
 * and the last may say that everything is written and only names are to be
 * moved.  A line is believed when it is whole; the caller has made durable what
 * it says before it is added. */
#ifndef DATA_JOURNAL_H
#define DATA_JOURNAL_H

#include <stdint.h>

#include "data/tokenfile.h"

#define JOURNAL_FORMAT "moe.encode-journal/1"

/* What must be the same for a run to be continued. */
struct journal_head {
    const char *tool;
    struct hash tokenizer;
    const char *how;                    /* options that matter */
    struct hash inputs;                 /* of the list of names */
    int n_inputs, n_outputs;
};

struct journal_input { uint64_t bytes; int64_t mtime_ns; struct hash hash; };

struct journal_state {
    int n_done;
    struct journal_input *input;        /* [n_done] */
    struct tokenfile_mark *mark;        /* [n_outputs]; NULL when n_done is 0 */
    int64_t *count; int n_counts;       /* the caller's counters */
    _Bool ready;
    struct arena *arena;
};

/* Begins a journal, replacing what is there. */
int journal_create(const char *path, const struct journal_head *h);
/* Adds inputs first..first+n-1 and the marks that hold behind them.  From the
 * marks only hashes that were not in the line before are written: was[n_outputs]
 * is how many those had, and is brought up to date. */
int journal_add(const char *path, const struct journal_input *input, int n, const struct tokenfile_mark *mark, int *was,
                int n_outputs, const int64_t *count, int n_counts);
int journal_ready(const char *path);

/* 1: *s is where that run came to (journal_free).  0: there is nothing that can
 * be continued; why says so in words, "" when there is no journal. */
int journal_read(const char *path, const struct journal_head *h, struct journal_state **s, const char **why);
void journal_free(struct journal_state *s);             /* NULL is accepted */

#endif
