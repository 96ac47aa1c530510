/* train_texts.c -- a tally for every slab under way, taken in the order of the text. */
#include "train_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/progress.h"
#include "tok/text_team.h"

struct reading {
    const struct train_texts *x;
    struct tok_trainer *t;
    struct text_source *source;
    struct progress *progress;
    struct tok_tally **tally;           /* [slots] */
};

static int work(void *arg, int thread, int slot, const struct text_slab *b)
{
    struct reading *r = arg;
    int n_keys = b->docs == TEXT_JSONL ? text_source_n_keys(r->source) : 1;
    (void)thread;
    for (int64_t i = 0; i < b->n_rows * n_keys; i++)
        if (tok_tally_add(r->tally[slot], r->x->lang[b->input], b->input >= r->x->first_dev, b->doc[i].s, b->doc[i].n) < 0)
            return err_add("%s", r->x->path[b->input]);
    return 0;
}

static int take(void *arg, int slot, const struct text_slab *b)
{
    struct reading *r = arg;
    (void)b;
    progress_set(r->progress, text_source_stored(r->source));
    return tok_trainer_take(r->t, r->tally[slot]);
}

static int read_once(struct train_texts *x, struct tok_trainer *t, uint64_t total)
{
    static const struct text_team_ops ops = { work, take };
    struct reading r = { .x = x, .t = t };
    int slots = text_team_slots(x->threads);
    TRY(text_source_open(x->path, x->n, &x->how, &r.source));
    r.tally = arena_must(calloc((size_t)slots, sizeof *r.tally));
    for (int i = 0; i < slots; i++)
        r.tally[i] = tok_tally_new(t);
    r.progress = progress_begin(tok_trainer_surveys(t) ? "choose a sample" : "count pieces", total, "B");
    int rc = text_team_run(r.source, x->threads, &ops, &r);
    progress_end(r.progress);
    memcpy(x->count, text_source_counts(r.source), sizeof x->count);
    if (x->how.on[TEXT_EMPTY] == TEXT_KEEP)
        x->count[TEXT_EMPTY] = 0;       /* nothing is learned from them */
    for (int i = 0; i < slots; i++)
        tok_tally_free(r.tally[i]);
    free(r.tally);
    text_source_close(r.source);
    return rc;
}

int train_texts_read(struct train_texts *x, struct tok_trainer *t)
{
    uint64_t total = 0, size;
    for (int i = 0; i < x->n; i++)
        total += strcmp(x->path[i], "-") != 0 && fs_file_size(x->path[i], &size) == 0 ? size : 0;
    err_clear();
    x->how.cut = tok_trainer_cut;
    x->how.cut_arg = t;
    if (tok_trainer_surveys(t)) {
        TRY(read_once(x, t, total));
        tok_trainer_surveyed(t);
    }
    return read_once(x, t, total);
}
