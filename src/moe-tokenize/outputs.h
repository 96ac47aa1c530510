/* outputs.h -- the token files that one encode makes: a file for each key and
 * shard, whole or not at all, continued when a run was killed.
 *
 * They grow in STEM.part/ beside where they will be, under a lock, with a
 * journal of the inputs that are done. */
#ifndef OUTPUTS_H
#define OUTPUTS_H

#include <stdint.h>

#include "base/arena.h"
#include "data/journal.h"
#include "data/tokenfile.h"

struct outputs_plan {
    const char *prefix;
    const char *const *keys; int n_keys;        /* names carry the key when there are several */
    int n_shards;                               /* deal documents over that many */
    int shard, of;                              /* of > 0: this is one of several jobs */
    struct tokenfile_info info;                 /* what all have in common; its inputs are filled in */
    int64_t *mtime_ns;                          /* [info.n_inputs], -1: no regular file */
    const char *vocab_path;
    _Bool keyed;                                /* documents come from keys */
    _Bool force;
    int n_counts;                               /* counters that outputs_mark() is given */
};

struct outputs;

enum outputs_begun { OUTPUTS_NEW, OUTPUTS_UP_TO_DATE, OUTPUTS_CONTINUED, OUTPUTS_DONE };

/* Makes ready to write, from where an earlier run came to.  *begun tells what is
 * to be done: OUTPUTS_UP_TO_DATE and _DONE (an earlier run had only names left
 * to move): nothing.  The plan is borrowed until close. */
int outputs_open(struct outputs_plan *plan, struct outputs **out, enum outputs_begun *begun);
/* Inputs that are done already, and the counters behind them. */
int outputs_n_done(const struct outputs *o);
const int64_t *outputs_counts(const struct outputs *o);

/* Rows of documents, one a key: packed[k] and length[k] as for
 * tokenfile_append_packed(), bytes[k][row] of text. */
struct outputs_rows { const unsigned char *packed; const int64_t *length, *bytes; };
int outputs_add(struct outputs *o, const struct outputs_rows *rows, int64_t n_rows, _Bool open);

/* Input i (in order) is done: its size and hash are in plan->info.inputs[i]. */
int outputs_mark(struct outputs *o, int i, const int64_t *counts);

/* Everything was added.  invalid[k] and more (n_more counters) go to the sidecars
 * of the first shard. */
int outputs_finish(struct outputs *o, const int64_t *invalid, struct tokenfile_counter *more, int n_more, struct tokenfile_info *total);

/* Frees o.  Without outputs_finish() before: what can be continued is kept, and
 * added to the sentence of the failure; else nothing is left. */
void outputs_close(struct outputs *o);          /* NULL is accepted */

/* The names of the files, [shard][key]. */
int outputs_n_files(const struct outputs_plan *plan);
const char **outputs_prefixes(struct arena *a, const struct outputs_plan *plan);

#endif
