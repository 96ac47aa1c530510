/* bpe_train.c -- which pair is merged next.
 *
 * By frequency there is one learner over all text.  For parity there is one
 * for each language, and one for its development text: a merge is chosen in one
 * of them and made in all.  Costs are compared as products of integers, so that
 * no rounding decides. */
#include "tok/bpe_train.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "tok/bpe_learn.h"
#include "tok/bpe_tally_impl.h"
#include "tok/recipe.h"

struct school {
    struct tok_trainer *t;
    struct tok_counts sum;              /* of all languages, weighted */
    struct tok_learner *all;            /* over sum; NULL when not needed any more */
    struct tok_learner **text, **dev;   /* [n_langs]; parity alone, dev NULL without */
    int *window; int64_t n_chosen;      /* the languages of the last merges */
    int64_t *in_window;
    _Bool *done;                        /* has no pair left */
};

static void school_free(struct school *s)
{
    for (int l = 0; l < s->t->how.n_langs; l++) {
        if (s->text != NULL)
            tok_learner_free(s->text[l]);
        if (s->dev != NULL)
            tok_learner_free(s->dev[l]);
    }
    tok_learner_free(s->all);
    tok_counts_free(&s->sum);
    free(s->text);
    free(s->dev);
    free(s->window);
    free(s->in_window);
    free(s->done);
}

/* In the counts of all texts: weights are thousandths, so they are too. */
static int64_t least_of_all(const struct tok_train_how *h)
{
    int64_t least = h->min_count < 1 ? 1 : h->min_count;
    return h->weight == NULL ? least : __builtin_mul_overflow(least, TOK_WEIGHT_ONE, &least) ? INT64_MAX : least;
}

static int add_up(struct school *s)
{
    const struct tok_train_how *h = &s->t->how;
    if (h->n_langs == 1 && h->weight == NULL) {
        if (h->parity)
            return tok_learner_new(&s->t->text[0], least_of_all(h), &s->all);
        s->sum = s->t->text[0];
        memset(&s->t->text[0], 0, sizeof s->t->text[0]);
    }
    for (int l = 0; l < h->n_langs; l++) {
        const struct tok_counts *c = &s->t->text[l];
        for (size_t i = 0; i < c->n; i++) {
            const struct tok_piece *p = &c->piece[i];
            int64_t count = p->count;
            if (h->weight != NULL && __builtin_mul_overflow(count, h->weight[l], &count))
                return err_set(ERR_DATA, "a piece is seen too often to be weighted");
            if (count > 0)
                TRY(tok_counts_add_hashed(&s->sum, c->bytes + p->at, p->n, p->hash, count));
        }
        if (!h->parity)
            tok_counts_free(&s->t->text[l]);
    }
    return tok_learner_new(&s->sum, least_of_all(h), &s->all);
}

static int open_languages(struct school *s)
{
    struct tok_trainer *t = s->t;
    size_t n = (size_t)t->how.n_langs;
    int n_dev = 0;
    s->text = arena_must(calloc(n, sizeof *s->text));
    s->dev = arena_must(calloc(n, sizeof *s->dev));
    s->done = arena_must(calloc(n, sizeof *s->done));
    s->in_window = arena_must(calloc(n, sizeof *s->in_window));
    s->window = arena_must(calloc((size_t)t->how.parity_window + 1, sizeof *s->window));
    for (int l = 0; l < t->how.n_langs; l++)
        n_dev += t->dev[l].n > 0;
    if (t->has_dev && n_dev < t->how.n_langs)
        return err_set(ERR_USAGE, "%d of %d languages have development text; parity needs it of all, or of none", n_dev, t->how.n_langs);
    for (int l = 0; l < t->how.n_langs; l++) {
        TRY(tok_learner_new(&t->text[l], 1, &s->text[l]));
        if (n_dev > 0)
            TRY(tok_learner_new(&t->dev[l], 1, &s->dev[l]));
    }
    return 0;
}

/* True when language a costs more than b. */
static _Bool worse(const struct school *s, int a, int b)
{
    if (s->dev[a] != NULL)
        return tok_learner_tokens(s->dev[a]) > tok_learner_tokens(s->dev[b]);
    return (__int128)tok_learner_tokens(s->text[a]) * s->t->lang[b].taken > (__int128)tok_learner_tokens(s->text[b]) * s->t->lang[a].taken;
}

/* The worst language that still has a pair, and has not had more than its
 * share of the last merges unless all others have none left; -1: none. */
static int choose(const struct school *s)
{
    const struct tok_train_how *h = &s->t->how;
    int worst[2] = { -1, -1 };
    for (int l = 0; l < h->n_langs; l++) {
        _Bool over = h->parity_window > 0 && s->in_window[l] * h->n_langs >= (int64_t)TOK_WINDOW_SHARE * h->parity_window;
        if (!s->done[l] && (worst[over] < 0 || worse(s, l, worst[over])))
            worst[over] = l;
    }
    return worst[0] >= 0 ? worst[0] : worst[1];
}

static void note_choice(struct school *s, int l)
{
    int w = s->t->how.parity_window;
    s->t->lang[l].merges++;
    if (w > 0) {
        int *place = &s->window[s->n_chosen % w];
        if (s->n_chosen >= w)
            s->in_window[*place]--;
        *place = l;
        s->in_window[l]++;
    }
    s->n_chosen++;
}

/* The next pair for parity: 1, or 0 when no language has one. */
static int best_for_parity(struct school *s, int32_t *a, int32_t *b)
{
    for (int l; (l = choose(s)) >= 0; s->done[l] = 1) {
        int found = tok_learner_best(s->text[l], s->t->how.min_count, a, b);
        if (found < 0)
            return found;
        if (found) {
            note_choice(s, l);
            return 1;
        }
    }
    return 0;
}

static int merge_all(struct school *s, int32_t a, int32_t b, int32_t product)
{
    if (s->all != NULL)
        TRY(tok_learner_merge(s->all, a, b, product));
    for (int l = 0; s->text != NULL && l < s->t->how.n_langs; l++) {
        TRY(tok_learner_merge(s->text[l], a, b, product));
        if (s->dev[l] != NULL)
            TRY(tok_learner_merge(s->dev[l], a, b, product));
    }
    return 0;
}

static int learn(struct school *s, struct tok_merge *merges, int64_t want, void (*tick)(void *, int64_t), void *arg, int64_t *done)
{
    const struct tok_train_how *h = &s->t->how;
    int32_t first = 256 + h->n_specials, a, b;
    int64_t by_count = h->parity ? h->parity_after : want, k;
    int64_t min_count = least_of_all(h);
    for (k = 0; k < want; k++) {
        if (k == by_count) {
            tok_learner_free(s->all);
            s->all = NULL;
        }
        int found = s->all != NULL ? tok_learner_best(s->all, min_count, &a, &b) : best_for_parity(s, &a, &b);
        TRY(found);
        if (!found)
            break;
        merges[k] = (struct tok_merge){ a, b, first + (int32_t)k };
        TRY(merge_all(s, a, b, merges[k].product));
        if (tick != NULL)
            tick(arg, first + k + 1);
    }
    *done = k;
    return 0;
}

static int open_school(struct school *s, struct tok_train_stats *st)
{
    struct tok_trainer *t = s->t;
    for (int l = 0; l < t->how.n_langs; l++) {
        st->bytes += t->lang[l].bytes;
        st->taken += t->lang[l].taken;
        st->distinct += (int64_t)t->text[l].n;
    }
    if (st->bytes == 0)
        return err_set(ERR_DATA, "the text is empty: there is nothing to learn from");
    if (t->how.parity)
        TRY(open_languages(s));
    if (!t->how.parity || t->how.parity_after > 0)
        TRY(add_up(s));
    if (s->all != NULL && !t->how.parity)
        st->distinct = (int64_t)s->sum.n;
    /* The learners hold what they need. */
    tok_counts_free(&s->sum);
    for (int l = 0; l < t->how.n_langs; l++) {
        tok_counts_free(&t->text[l]);
        tok_counts_free(&t->dev[l]);
    }
    return 0;
}

int tok_trainer_run(struct tok_trainer *t, void (*tick)(void *arg, int64_t tokens), void *arg,
                    struct tok_vocab **out, struct tok_train_stats *stats)
{
    const struct tok_train_how *h = &t->how;
    struct school s = { .t = t };
    int64_t first = 256 + h->n_specials, want = (int64_t)h->vocab_size - first, done = 0;
    struct tok_merge *merges = malloc((size_t)want * sizeof *merges + 1);
    int rc;
    *out = NULL;
    *stats = (struct tok_train_stats){ .pieces = t->pieces, .cut = t->cut, .forgotten = t->forgotten, .invalid = t->invalid, .lang = t->lang };
    if (merges == NULL)
        return err_sys(ERR_IO, "memory for %lld merges", (long long)want);
    TRY_OUT(rc, open_school(&s, stats));
    TRY_OUT(rc, learn(&s, merges, want, tick, arg, &done));
    if (done < want) {
        rc = err_set(ERR_DATA, "the text supports a vocabulary of %lld tokens, not %d: no other pair is seen %lld times%s",
                     (long long)(first + done), (int)h->vocab_size, (long long)(h->min_count > 1 ? h->min_count : 1),
                     t->forgotten > 0 ? " in what --memory had room for" : "");
        goto out;
    }
    for (int l = 0; s.text != NULL && l < h->n_langs; l++) {
        t->lang[l].tokens = tok_learner_tokens(s.text[l]);
        t->lang[l].dev_tokens = s.dev[l] != NULL ? tok_learner_tokens(s.dev[l]) : 0;
    }
    TRY_OUT(rc, tok_vocab_build_as(&h->recipe, h->specials, h->n_specials, merges, done, out));
    BUG_ON(tok_vocab_size(*out) != h->vocab_size);      /* no string is learned twice */
    stats->merges = done;
out:
    school_free(&s);
    free(merges);
    return rc < 0 ? rc : 0;
}
