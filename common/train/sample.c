/* sample.c -- see sample.h.  Probabilities are formed in double on the host;
 * one random number a token, from (seed, number of the prompt, position). */
#include "train/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"

struct choice { double p; int32_t id; };

struct sampler {
    struct trainer *t;
    struct sample_options o;
    struct rng_key key;
    struct choice *v;           /* [vocab] */
    float *logits;              /* [vocab], host */
    int64_t n_out, n_pos;
};

int sample_new(struct trainer *t, const struct sample_options *o, struct sampler **out)
{
    size_t n = (size_t)t->cfg->model.vocab_size;
    struct sampler *s = calloc(1, sizeof *s);

    if (s) {
        s->v = calloc(n, sizeof *s->v);
        s->logits = calloc(n, sizeof *s->logits);
    }
    if (!s || !s->v || !s->logits) {
        sample_free(s);
        return err_set(ERR_IO, "out of memory");
    }
    s->t = t;
    s->o = *o;
    *out = s;
    return 0;
}

void sample_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->v);
    free(s->logits);
    free(s);
}

static int feed(struct sampler *s, const int32_t *ids, int64_t n)
{
    struct trainer *t = s->t;

    TRY(fsdp_begin(t->fsdp, "decode"));
    TRY(mem_begin(t->mem, "decode"));
    TRY(model_decode(t->model, ids, n, t->logits));
    t->dev.ops->copy(&t->dev, s->logits, t->logits, (size_t)t->cfg->model.vocab_size * sizeof(float));
    TRY(mem_end(t->mem));
    s->n_pos += n;
    return t->dev.ops->sync(&t->dev);
}

int sample_prompt(struct sampler *s, const int32_t *ids, int64_t n, int64_t number)
{
    int64_t piece = s->t->cfg->micro_tokens;
    char name[64];

    if (n > s->t->opts.max_positions)
        return err_set(ERR_DATA, "a prompt of %lld tokens is longer than the context of %lld", (long long)n,
                       (long long)s->t->opts.max_positions);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->t->cfg->model.vocab_size)
            return err_set(ERR_DATA, "prompt token %lld is %d, but the vocabulary has %lld", (long long)i, ids[i],
                           (long long)s->t->cfg->model.vocab_size);
    snprintf(name, sizeof name, "sample %lld", (long long)number);
    s->key = rng_key((uint64_t)s->o.seed, name);
    s->n_out = s->n_pos = 0;
    model_cache_reset(s->t->model);
    for (int64_t i = 0; i < n; i += piece)
        TRY(feed(s, ids + i, n - i < piece ? n - i : piece));
    return 0;
}

/* Tokens that can be drawn: rows of the head behind the tokenizer's last id are
 * padding and have no text. */
static int64_t n_choices(const struct sampler *s)
{
    int64_t n = s->t->cfg->model.vocab_size;

    return s->t->vocab && tok_vocab_size(s->t->vocab) < n ? tok_vocab_size(s->t->vocab) : n;
}

static int by_probability(const void *x, const void *y)
{
    const struct choice *a = x, *b = y;

    if (a->p != b->p)
        return a->p > b->p ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static int32_t most_likely(const float *l, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (l[i] > l[best])
            best = i;
    return (int32_t)best;
}

static int32_t draw(struct sampler *s)
{
    int64_t n = n_choices(s), keep = n;
    double max = s->logits[most_likely(s->logits, n)], sum = 0;

    for (int64_t i = 0; i < n; i++) {
        s->v[i] = (struct choice){ exp(((double)s->logits[i] - max) / s->o.temperature), (int32_t)i };
        sum += s->v[i].p;
    }
    qsort(s->v, (size_t)n, sizeof *s->v, by_probability);
    if (s->o.top_k > 0 && s->o.top_k < keep)
        keep = s->o.top_k;
    double kept = 0;
    for (int64_t i = 0; i < keep; i++) {
        kept += s->v[i].p;
        if (kept >= s->o.top_p * sum) {
            keep = i + 1;
            break;
        }
    }
    double u = rng_uniform(s->key, (uint64_t)s->n_pos) * kept;
    for (int64_t i = 0; i < keep; i++) {
        u -= s->v[i].p;
        if (u < 0)
            return s->v[i].id;
    }
    return s->v[keep - 1].id;
}

int sample_next(struct sampler *s, int32_t *id, _Bool *done)
{
    for (int64_t i = 0; i < n_choices(s); i++)
        if (!isfinite(s->logits[i]))
            return err_set(ERR_NO, "the model gives logits that are not finite");
    *id = s->o.temperature > 0 ? draw(s) : most_likely(s->logits, n_choices(s));
    s->n_out++;
    *done = s->n_out >= s->o.n_tokens || s->n_pos >= s->t->opts.max_positions ||
            (*id == s->t->eod && !s->o.ignore_eod);
    return *done ? 0 : feed(s, id, 1);
}
