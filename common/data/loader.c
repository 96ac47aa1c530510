/* loader.c -- batches as a pure function of (seed, step).
 *
 * Nothing here depends on the number of ranks or on how often the run was
 * restarted: sample n is found from n alone (mixture, then permutation), and
 * resume is "call with sample = k".  What is kept between calls only saves
 * walking and never changes an answer.
 *
 * Document borders come from the index of the token file, never from a search
 * for the end-of-document token, which text itself may contain. */
#include "data/loader.h"

#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/rng.h"
#include "data/mixture.h"
#include "data/tokenfile.h"

struct set {
    const char *name;           /* of a validation set, else NULL */
    struct tokenfile *file;
    struct hash hash;
    int64_t windows;
    int64_t epoch;              /* the one whose key is kept; -1: none */
    struct rng_key key;
};

struct loader {
    struct arena *arena;
    const struct data_config *c;
    const int32_t *byte_len;    /* may be NULL */
    struct set *train, *valid;
    int n_train, n_valid;
    struct mixture *mix;
};

static int open_set(struct loader *l, struct set *s, const char *path, const struct loader_vocab *v)
{
    TRY(tokenfile_open(path, &s->file));
    const struct tokenfile_info *i = tokenfile_about(s->file);
    if (v != NULL && v->hash.hex[0] != '\0' && !hash_eq(&v->hash, &i->tokenizer))
        return err_set(ERR_DATA, "%s: encoded with another tokenizer (%s, not %s)", path, i->tokenizer.hex, v->hash.hex);
    if (v != NULL && i->vocab_size > v->vocab_size)
        return err_set(ERR_DATA, "%s: has a vocabulary of %lld tokens, more than the %lld expected", path,
                       (long long)i->vocab_size, (long long)v->vocab_size);
    if (i->tokens < l->c->seq_len)
        return err_set(ERR_DATA, "seq_len %lld is longer than the %lld tokens of %s", (long long)l->c->seq_len, (long long)i->tokens, path);
    s->windows = (i->tokens - 1) / l->c->seq_len;
    if (s->windows == 0)
        return err_set(ERR_DATA, "seq_len %lld and one look-ahead are longer than the %lld tokens of %s", (long long)l->c->seq_len,
                       (long long)i->tokens, path);
    s->epoch = -1;
    s->hash = tokenfile_hash(s->file);
    return 0;
}

static int open_train(struct loader *l, const struct loader_vocab *v)
{
    const struct data_train_item *t = l->c->train.v;
    int n = l->c->train.n;
    if (n == 0)
        return err_set(ERR_USAGE, "no token file to train on: give one as an operand or under data.train");
    double *weights = arena_array(l->arena, (size_t)n, sizeof *weights);
    l->train = arena_array(l->arena, (size_t)n, sizeof *l->train);
    for (l->n_train = 0; l->n_train < n; l->n_train++) {
        weights[l->n_train] = t[l->n_train].weight;
        TRY(open_set(l, &l->train[l->n_train], t[l->n_train].path, v));
    }
    l->mix = mixture_new(l->arena, weights, n);
    return 0;
}

static int open_valid(struct loader *l, const struct loader_vocab *v)
{
    const struct data_valid_item *t = l->c->valid.v;
    l->valid = arena_array(l->arena, (size_t)l->c->valid.n, sizeof *l->valid);
    for (l->n_valid = 0; l->n_valid < l->c->valid.n; l->n_valid++) {
        l->valid[l->n_valid].name = t[l->n_valid].name;
        TRY(open_set(l, &l->valid[l->n_valid], t[l->n_valid].path, v));
    }
    return 0;
}

int loader_open(const struct data_config *c, const struct loader_vocab *vocab, int what, struct loader **out)
{
    int rc;
    *out = NULL;
    TRY(data_config_check(c));
    struct arena *a = arena_new();
    struct loader *l = arena_alloc(a, sizeof *l);
    l->arena = a;
    l->c = c;
    l->byte_len = vocab != NULL ? vocab->byte_len : NULL;
    if (what & LOADER_TRAIN)
        TRY_OUT(rc, open_train(l, vocab));
    if (what & LOADER_VALID)
        TRY_OUT(rc, open_valid(l, vocab));
    *out = l;
    return 0;
out:
    loader_close(l);
    return rc;
}

/* An open that failed leaves the last set half open, with or without a file. */
void loader_close(struct loader *l)
{
    if (l == NULL)
        return;
    for (int i = 0; l->train != NULL && i <= l->n_train && i < l->c->train.n; i++)
        tokenfile_close(l->train[i].file);
    for (int i = 0; l->valid != NULL && i <= l->n_valid && i < l->c->valid.n; i++)
        tokenfile_close(l->valid[i].file);
    arena_free(l->arena);
}

/* ---- one window */

/* Writes one window as row i_seq of the batch and adds to its counts. */
static int fill_window(const struct loader *l, const struct set *s, int64_t window, struct batch *b, int64_t i_seq)
{
    int64_t n = l->c->seq_len, first = window * n, row = i_seq * n;
    int32_t *targets = b->targets != NULL ? b->targets + row : NULL;
    if (b->ids != NULL)
        TRY(tokenfile_ids(s->file, first, n, b->ids + row));
    if (targets != NULL)
        TRY(tokenfile_ids(s->file, first + 1, n, targets));
    b->n_valid += n;
    int64_t doc = tokenfile_doc_of(s->file, first);
    for (int64_t pos = 0; pos < n; doc++) {
        int64_t end = tokenfile_doc_first(s->file, doc + 1) - first, stop = end < n ? end : n;
        if (end <= n) {                 /* its last token lies in the window */
            b->n_valid--;
            if (targets != NULL)
                targets[end - 1] = -1;
        }
        for (int64_t k = pos; k < stop; k++) {
            if (b->doc_start != NULL)
                b->doc_start[row + k] = (int32_t)(row + pos);
            if (b->positions != NULL)
                b->positions[row + k] = (int32_t)(k - pos);
        }
        pos = stop;
    }
    if (targets != NULL && l->byte_len != NULL)
        for (int64_t k = 0; k < n; k++)
            if (targets[k] >= 0)
                b->text_bytes += l->byte_len[targets[k]];
    return 0;
}

static void begin_batch(const struct loader *l, int64_t n, struct batch *b)
{
    BUG_ON(n < 0 || n > INT32_MAX / l->c->seq_len);
    b->n_seqs = n;
    b->seq_len = l->c->seq_len;
    b->n_valid = 0;
    b->text_bytes = 0;
}

/* ---- training */

static struct rng_key epoch_key(const struct loader *l, int i_set, int64_t epoch)
{
    struct set *s = &l->train[i_set];
    if (s->epoch != epoch) {
        char name[64];
        snprintf(name, sizeof name, "data.train.%d.epoch.%lld", i_set, (long long)epoch);
        s->key = rng_key((uint64_t)l->c->seed, name);
        s->epoch = epoch;
    }
    return s->key;
}

int loader_where(struct loader *l, int64_t sample, struct loader_where *out)
{
    int64_t before;
    BUG_ON(sample < 0 || l->mix == NULL);
    out->set = mixture_set(l->mix, sample, &before);
    int64_t windows = l->train[out->set].windows;
    out->epoch = before / windows;
    out->window = (int64_t)rng_permute(epoch_key(l, out->set, out->epoch), (uint64_t)windows, (uint64_t)(before % windows));
    return 0;
}

int loader_samples(struct loader *l, int64_t first, int64_t n, struct batch *b)
{
    begin_batch(l, n, b);
    for (int64_t i = 0; i < n; i++) {
        struct loader_where w;
        TRY(loader_where(l, first + i, &w));
        TRY(fill_window(l, &l->train[w.set], w.window, b, i));
    }
    return 0;
}

/* A window loses one target for each document that ends in it, that is for each
 * border between its first token and its look-ahead. */
int loader_valid_targets(struct loader *l, int64_t first, int64_t n, int64_t *out)
{
    int64_t len = l->c->seq_len;
    *out = 0;
    for (int64_t i = 0; i < n; i++) {
        struct loader_where w;
        TRY(loader_where(l, first + i, &w));
        const struct tokenfile *f = l->train[w.set].file;
        *out += len - (tokenfile_doc_of(f, (w.window + 1) * len) - tokenfile_doc_of(f, w.window * len));
    }
    return 0;
}

double loader_epochs(struct loader *l, int i, int64_t sample)
{
    return (double)mixture_count(l->mix, i, sample) / (double)l->train[i].windows;
}

static struct loader_set describe(const struct set *s)
{
    const struct tokenfile_info *i = tokenfile_about(s->file);
    return (struct loader_set){ s->name, tokenfile_prefix(s->file), s->hash, s->windows, i->tokens, i->documents, i->text_bytes };
}

int loader_n_train(const struct loader *l)
{
    return l->n_train;
}

struct loader_set loader_train_set(const struct loader *l, int i)
{
    return describe(&l->train[i]);
}

/* ---- evaluation */

int loader_n_valid_sets(const struct loader *l)
{
    return l->n_valid;
}

struct loader_set loader_valid_set(const struct loader *l, int i)
{
    return describe(&l->valid[i]);
}

int loader_valid_windows(struct loader *l, int i_set, int64_t first, int64_t n, struct batch *b)
{
    const struct set *s = &l->valid[i_set];
    begin_batch(l, n, b);
    BUG_ON(first < 0 || first > s->windows - n);
    for (int64_t i = 0; i < n; i++)
        TRY(fill_window(l, s, first + i, b, i));
    return 0;
}
