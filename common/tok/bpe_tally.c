/* bpe_tally.c -- pieces counted by many threads, bounded, sampled.
 *
 * A tally is small, so any thread may fill one; the trainer's tables grow only
 * when tallies are taken, one after another.  So what is forgotten for want of
 * memory does not depend on the threads either. */
#include "tok/bpe_tally.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/grow.h"
#include "tok/bpe_tally_impl.h"

struct level { uint32_t level, bytes; };

struct tok_tally {
    const struct tok_trainer *t;
    struct tok_cutter_mem *mem;
    struct tok_counts counts;
    struct level *blocks; size_t n_blocks; int64_t cap_blocks;
    int lang;
    _Bool dev;
    int64_t bytes, taken, pieces, cut;
    uint64_t invalid;
};

int tok_trainer_new(const struct tok_train_how *how, struct tok_trainer **out)
{
    struct tok_trainer *t = calloc(1, sizeof *t);
    arena_must(t);
    t->how = *how;
    if (t->how.n_langs == 0)
        t->how.n_langs = 1;
    size_t n = (size_t)t->how.n_langs;
    *out = NULL;
    int rc = tok_vocab_build_as(&how->recipe, how->specials, how->n_specials, NULL, 0, &t->bare);
    if (rc == 0 && how->vocab_size < 256 + how->n_specials)
        rc = err_set(ERR_USAGE, "a vocabulary of %d tokens is too small: the bytes and the special tokens are %d", (int)how->vocab_size, 256 + how->n_specials);
    if (rc < 0) {
        tok_trainer_free(t);
        return rc;
    }
    t->cutter = tok_cutter_new(t->bare);
    t->text = arena_must(calloc(n, sizeof *t->text));
    t->dev = arena_must(calloc(n, sizeof *t->dev));
    t->lang = arena_must(calloc(n, sizeof *t->lang));
    t->surveying = how->sample_bytes > 0;
    if (t->surveying) {
        t->level_bytes = arena_must(calloc(n * TOK_SAMPLE_LEVELS, sizeof *t->level_bytes));
        t->level = arena_must(calloc(n, sizeof *t->level));
    }
    *out = t;
    return 0;
}

void tok_trainer_free(struct tok_trainer *t)
{
    if (t == NULL)
        return;
    for (int i = 0; i < t->how.n_langs; i++) {
        if (t->text != NULL)
            tok_counts_free(&t->text[i]);
        if (t->dev != NULL)
            tok_counts_free(&t->dev[i]);
    }
    free(t->text);
    free(t->dev);
    free(t->lang);
    free(t->level_bytes);
    free(t->level);
    tok_cutter_free(t->cutter);
    tok_vocab_free(t->bare);
    free(t);
}

struct tok_tally *tok_tally_new(const struct tok_trainer *t)
{
    struct tok_tally *y = calloc(1, sizeof *y);
    arena_must(y);
    y->t = t;
    y->mem = tok_cutter_mem_new();
    return y;
}

void tok_tally_free(struct tok_tally *y)
{
    if (y == NULL)
        return;
    tok_cutter_mem_free(y->mem);
    tok_counts_free(&y->counts);
    free(y->blocks);
    free(y);
}

static int count(void *arg, const uint8_t *s, size_t n)
{
    struct tok_tally *y = arg;
    size_t most = (size_t)y->t->how.max_piece;
    y->pieces++;
    if (most == 0 || n <= most)
        return tok_counts_add(&y->counts, s, n, 1);
    y->cut++;
    while (n > 0) {
        size_t k = n < most ? n : most;
        while (k < n && k > 1 && (s[k] & 0xc0) == 0x80 && most - k < 3)
            k--;
        TRY(tok_counts_add(&y->counts, s, k, 1));
        s += k;
        n -= k;
    }
    return 0;
}

static int survey(struct tok_tally *y, uint32_t level, size_t n)
{
    TRY(grow_plain(&y->blocks, &y->cap_blocks, (int64_t)y->n_blocks + 1, sizeof *y->blocks, "blocks of text"));
    y->blocks[y->n_blocks++] = (struct level){ level, (uint32_t)n };
    return 0;
}

static int add_block(struct tok_tally *y, const uint8_t *s, size_t n)
{
    const struct tok_trainer *t = y->t;
    if (t->how.sample_bytes > 0 && !y->dev) {
        uint32_t level = (uint32_t)(XXH3_64bits(s, n) >> 48);
        if (t->surveying)
            return survey(y, level, n);
        if (level >= t->level[y->lang])
            return 0;
    }
    y->taken += (int64_t)n;
    return tok_cutter_run(t->cutter, y->mem, s, n, count, y, &y->invalid);
}

int tok_tally_add(struct tok_tally *y, int lang, _Bool dev, const uint8_t *s, size_t n)
{
    y->lang = lang;
    y->dev = dev;
    if (dev && y->t->surveying)
        return 0;
    y->bytes += (int64_t)n;
    if (y->t->how.sample_bytes == 0 || dev)
        return add_block(y, s, n);
    for (size_t end; n > 0; s += end, n -= end) {
        end = n > TOK_SAMPLE_BLOCK ? tok_cutter_cut(y->t->cutter, s, n, TOK_SAMPLE_BLOCK) : n;
        if (end > UINT32_MAX)
            return err_set(ERR_DATA, "a text of more than 4 GiB that cannot be cut cannot be sampled either");
        TRY(add_block(y, s, end));
    }
    return 0;
}

/* ---- taking */

uint64_t tok_counts_cost(const struct tok_counts *c)
{
    /* The table: a piece, its slots, its bytes.  Learning: symbols, lengths, and
     * about one place in a pair's list, with its share of the pair, for each byte. */
    return c->n * (sizeof(struct tok_piece) + 2 * sizeof(uint32_t) + sizeof(uint32_t)) + c->n_bytes * (1 + sizeof(int32_t) + 3 * sizeof(uint32_t));
}

static uint64_t cost(const struct tok_trainer *t)
{
    uint64_t sum = 0;
    for (int l = 0; l < t->how.n_langs; l++)
        sum += tok_counts_cost(&t->text[l]);
    return sum;
}

/* Forgets the rarest pieces until half of the memory is free. */
static int forget(struct tok_trainer *t)
{
    int64_t level = 0;
    for (uint64_t now = cost(t); now > t->how.memory / 2; now = cost(t)) {
        int64_t least = INT64_MAX;
        for (int l = 0; l < t->how.n_langs; l++)
            for (size_t i = 0; i < t->text[l].n; i++)
                if (t->text[l].piece[i].count < least)
                    least = t->text[l].piece[i].count;
        if (least == INT64_MAX)
            break;
        level = least;
        for (int l = 0; l < t->how.n_langs; l++)
            TRY(tok_counts_forget(&t->text[l], level));
    }
    t->forgotten += level;
    return 0;
}

static int take_counts(struct tok_trainer *t, struct tok_tally *y)
{
    struct tok_counts *to = y->dev ? &t->dev[y->lang] : &t->text[y->lang];
    for (size_t i = 0; i < y->counts.n; i++) {
        const struct tok_piece *p = &y->counts.piece[i];
        TRY(tok_counts_add_hashed(to, y->counts.bytes + p->at, p->n, p->hash, p->count));
    }
    return t->how.memory > 0 && cost(t) > t->how.memory ? forget(t) : 0;
}

int tok_trainer_take(struct tok_trainer *t, struct tok_tally *y)
{
    int rc = 0;
    if (t->surveying)
        for (size_t i = 0; i < y->n_blocks; i++)
            t->level_bytes[(size_t)y->lang * TOK_SAMPLE_LEVELS + y->blocks[i].level] += y->blocks[i].bytes;
    else
        rc = take_counts(t, y);
    t->has_dev |= y->dev;
    if (!t->surveying && !y->dev) {
        t->lang[y->lang].bytes += y->bytes;
        t->lang[y->lang].taken += y->taken;
        t->pieces += y->pieces;
        t->cut += y->cut;
        t->invalid += y->invalid;
    }
    tok_counts_clear(&y->counts);
    y->n_blocks = 0;
    y->bytes = y->taken = y->pieces = y->cut = 0;
    y->invalid = 0;
    return rc;
}

const struct tok_train_lang *tok_trainer_langs(const struct tok_trainer *t)
{
    return t->lang;
}

size_t tok_trainer_cut(const void *arg, const uint8_t *s, size_t n, size_t from)
{
    return tok_cutter_cut(((const struct tok_trainer *)arg)->cutter, s, n, from);
}

_Bool tok_trainer_surveys(const struct tok_trainer *t)
{
    return t->surveying;
}

/* The level at which the bytes asked for are reached. */
void tok_trainer_surveyed(struct tok_trainer *t)
{
    for (int l = 0; l < t->how.n_langs; l++) {
        const uint64_t *bytes = t->level_bytes + (size_t)l * TOK_SAMPLE_LEVELS;
        uint64_t sum = 0;
        t->level[l] = 0;
        while (t->level[l] < TOK_SAMPLE_LEVELS && sum < t->how.sample_bytes)
            sum += bytes[t->level[l]++];
    }
    t->surveying = 0;
}
