/* text_team.h -- many threads over one source of text, results in its order.
 *
 * Whoever is free reads the next slab, finds its documents and works on it;
 * what is done is taken one slab after another.  So work sees slabs in any
 * order and on any thread, take sees them as if there were one thread, and a
 * failure is the one that comes first in the text. */
#ifndef TOK_TEXT_TEAM_H
#define TOK_TEXT_TEAM_H

#include "tok/text_source.h"

/* Slabs under way at one time; slots are numbered below that. */
static inline int text_team_slots(int threads) { return threads > 1 ? 2 * threads + 1 : 1; }

struct text_team_ops {
    /* thread: 0 to threads-1; slot: whose result is taken later under the same number. */
    int (*work)(void *arg, int thread, int slot, const struct text_slab *b);
    int (*take)(void *arg, int slot, const struct text_slab *b);
};

int text_team_run(struct text_source *t, int threads, const struct text_team_ops *ops, void *arg);

#endif
