/* tokenize_stats_table.c -- moe-tokenize stats: the tables.
 *
 * For programs there is a row for every vocabulary and language, and then one
 * for every vocabulary.  People get the vocabularies side by side. */
#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/units.h"
#include "tokenize_stats.h"

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

static void ratio(struct table *t, int64_t part, int64_t whole)
{
    if (whole > 0)
        table_num(t, share(part, whole));
    else
        table_none(t);
}

static const struct stats_cell *cell(const struct stats *s, int v, int l)
{
    return &s->cell[v * s->n_langs + l];
}

/* ---- a row for every vocabulary and language */

static const struct table_col lang_cols[] = {
    { "vocabulary", "vocabulary", 's', 0 },
    { "language", "language", 's', 0 },
    { "files", "files", 'i', 0 },
    { "bytes", "bytes", 'i', 0 },
    { "words", "words", 'i', 0 },
    { "tokens", "tokens", 'i', 0 },
    { "bytes_per_token", "bytes/token", 'f', 3 },
    { "fertility", "tokens/word", 'f', 3 },
    { "parity", "parity", 'f', 3 },
    { "continued", "continued", 'f', 3 },
    { "retention", "one token", 'f', 3 },
    { "used", "ids used", 'i', 0 },
    { "utilisation", "of all", 'f', 3 },
    { "partial", "partial", 'i', 0 },
    { "unknown", "unknown", 'i', 0 },
    { "invalid_utf8", "invalid", 'i', 0 },
};
enum { HUMAN_FROM = 1, FILES = 2, PARITY = 8, HUMAN_TO = 15 };     /* what people see of one vocabulary */

static void lang_row(const struct stats *s, struct table *t, int v, int l, _Bool human)
{
    const struct stats_cell *c = cell(s, v, l);
    if (!human)
        table_str(t, s->vocab[v].name);
    table_str(t, s->lang[l].name);
    if (!human)
        table_int(t, s->lang[l].n);
    table_int(t, c->m.bytes);
    table_int(t, c->m.words);
    table_int(t, c->m.tokens);
    ratio(t, c->m.bytes, c->m.tokens);
    ratio(t, c->m.tokens, c->m.words);
    if (!human || s->base >= 0)
        ratio(t, c->m.tokens, s->base >= 0 ? cell(s, v, s->base)->m.tokens : 0);
    ratio(t, c->m.continued, c->m.token_words);
    ratio(t, c->m.one_token, c->m.plain_words);
    table_int(t, c->used);
    ratio(t, c->used, s->vocab[v].entries);
    table_int(t, c->m.partial);
    table_int(t, c->m.unknown);
    if (!human)
        table_int(t, c->invalid);
}

static int lang_table(const struct stats *s, enum table_form form)
{
    struct table_col human[HUMAN_TO];
    int n = 0;
    for (int i = HUMAN_FROM; i < HUMAN_TO; i++)
        if (i != FILES && (i != PARITY || s->base >= 0))
            human[n++] = lang_cols[i];
    _Bool people = form == TABLE_HUMAN;
    struct table *t = table_begin(form, "moe.tokenize-stats/1", people ? human : lang_cols, people ? n : (int)(sizeof lang_cols / sizeof *lang_cols));
    for (int v = 0; v < s->n_vocabs; v++)
        for (int l = 0; l < s->n_langs; l++)
            lang_row(s, t, v, l, people);
    return table_end(t);
}

/* Several vocabularies: what is compared most, beside one another. */
static int side_by_side(const struct stats *s)
{
    struct arena *a = arena_new();
    int each = s->base >= 0 ? 3 : 2, n = 0;
    struct table_col *c = arena_array(a, (size_t)(3 + each * s->n_vocabs), sizeof *c);
    c[n++] = (struct table_col){ "language", "language", 's', 0 };
    c[n++] = (struct table_col){ "bytes", "bytes", 'i', 0 };
    c[n++] = (struct table_col){ "words", "words", 'i', 0 };
    for (int v = 0; v < s->n_vocabs; v++) {
        c[n++] = (struct table_col){ s->vocab[v].name, s->vocab[v].name, 'i', 0 };
        c[n++] = (struct table_col){ "fertility", "/word", 'f', 2 };
        if (s->base >= 0)
            c[n++] = (struct table_col){ "parity", "parity", 'f', 2 };
    }
    struct table *t = table_begin(TABLE_HUMAN, "moe.tokenize-stats/1", c, n);
    for (int l = 0; l < s->n_langs; l++) {
        table_str(t, s->lang[l].name);
        table_int(t, cell(s, 0, l)->m.bytes);
        table_int(t, cell(s, 0, l)->m.words);
        for (int v = 0; v < s->n_vocabs; v++) {
            table_int(t, cell(s, v, l)->m.tokens);
            ratio(t, cell(s, v, l)->m.tokens, cell(s, v, l)->m.words);
            if (s->base >= 0)
                ratio(t, cell(s, v, l)->m.tokens, cell(s, v, s->base)->m.tokens);
        }
    }
    int rc = table_end(t);
    arena_free(a);
    return rc;
}

/* ---- a row for every vocabulary */

static const struct table_col total_cols[] = {
    { "vocabulary", "vocabulary", 's', 0 },
    { "vocab_size", "size", 'i', 0 },
    { "languages", "languages", 'i', 0 },
    { "bytes", "bytes", 'i', 0 },
    { "words", "words", 'i', 0 },
    { "tokens", "tokens", 'i', 0 },
    { "bytes_per_token", "bytes/token", 'f', 2 },
    { "fertility", "tokens/word", 'f', 2 },
    { "mean_fertility", "mean", 'f', 2 },
    { "mean_parity", "mean parity", 'f', 2 },
    { "worst_parity", "worst", 'f', 2 },
    { "worst", "of", 's', 0 },
    { "gini", "Gini", 'f', 3 },
    { "gini_of", "of", 's', 0 },
    { "continued", "continued", 'f', 3 },
    { "retention", "one token", 'f', 3 },
    { "used", "ids used", 'i', 0 },
    { "utilisation", "of all", 'f', 3 },
    { "partial", "partial", 'i', 0 },
    { "unknown", "unknown", 'i', 0 },
    { "unreachable", "unreachable", 'i', 0 },
    { "invalid_utf8", "invalid", 'i', 0 },
    { "tokenizer", "hash", 's', 0 },
};

struct total { struct stats_cell sum; double fertility, parity, worst, gini; int i_worst, n; };

/* Means over languages weigh each the same, however long its text. */
static void add_up(const struct stats *s, int v, struct total *t)
{
    double *cost = arena_must(malloc((size_t)s->n_langs * sizeof *cost));
    *t = (struct total){ .i_worst = -1 };
    for (int l = 0; l < s->n_langs; l++) {
        const struct tok_measure *m = &cell(s, v, l)->m;
        struct tok_measure *to = &t->sum.m;
        to->bytes += m->bytes;
        to->words += m->words;
        to->tokens += m->tokens;
        to->token_words += m->token_words;
        to->continued += m->continued;
        to->plain_words += m->plain_words;
        to->one_token += m->one_token;
        to->partial += m->partial;
        to->unknown += m->unknown;
        t->sum.invalid += cell(s, v, l)->invalid;
        if (m->words == 0)
            continue;
        double fertility = share(m->tokens, m->words), parity = s->base >= 0 ? share(m->tokens, cell(s, v, s->base)->m.tokens) : 0;
        t->fertility += fertility;
        t->parity += parity;
        cost[t->n++] = s->base >= 0 ? (double)m->tokens : fertility;
        if (t->i_worst < 0 || parity > t->worst) {
            t->worst = parity;
            t->i_worst = l;
        }
    }
    t->gini = tok_measure_gini(cost, t->n);
    free(cost);
}

static void num_if(struct table *t, _Bool known, double v)
{
    if (known)
        table_num(t, v);
    else
        table_none(t);
}

static int total_table(const struct stats *s, enum table_form form)
{
    struct table *t = table_begin(form, "moe.tokenize-stats-total/1", total_cols, sizeof total_cols / sizeof *total_cols);
    for (int v = 0; v < s->n_vocabs; v++) {
        struct total sum;
        add_up(s, v, &sum);
        const struct tok_measure *m = &sum.sum.m;
        _Bool any = sum.n > 0, base = any && s->base >= 0;
        table_str(t, s->vocab[v].name);
        table_int(t, s->vocab[v].size);
        table_int(t, s->n_langs);
        table_int(t, m->bytes);
        table_int(t, m->words);
        table_int(t, m->tokens);
        ratio(t, m->bytes, m->tokens);
        ratio(t, m->tokens, m->words);
        num_if(t, any, sum.fertility / (any ? sum.n : 1));
        num_if(t, base, sum.parity / (any ? sum.n : 1));
        num_if(t, base, sum.worst);
        if (base)
            table_str(t, s->lang[sum.i_worst].name);
        else
            table_none(t);
        num_if(t, sum.n > 1, sum.gini);
        table_str(t, s->base >= 0 ? "tokens" : "fertility");
        ratio(t, m->continued, m->token_words);
        ratio(t, m->one_token, m->plain_words);
        table_int(t, s->vocab[v].used);
        ratio(t, s->vocab[v].used, s->vocab[v].entries);
        table_int(t, m->partial);
        table_int(t, m->unknown);
        table_int(t, s->vocab[v].unreachable);
        table_int(t, sum.sum.invalid);
        table_str(t, s->vocab[v].hash);
    }
    return table_end(t);
}

/* For people: the totals as a list of facts, a column for each vocabulary,
 * since twenty columns fit on no screen.  NAN is what cannot be said. */
struct fact { const char *name; int digits; double (*of)(const struct stats *s, int v, const struct total *t); };

static double of_whole(double part, int64_t whole)
{
    return whole > 0 ? part / (double)whole : (double)NAN;
}

static double f_size(const struct stats *s, int v, const struct total *t) { (void)t; return (double)s->vocab[v].size; }
static double f_tokens(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return (double)t->sum.m.tokens; }
static double f_density(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return of_whole((double)t->sum.m.bytes, t->sum.m.tokens); }
static double f_fertility(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return of_whole((double)t->sum.m.tokens, t->sum.m.words); }
static double f_mean(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return of_whole(t->fertility, t->n); }
static double f_parity(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return of_whole(t->parity, t->n); }
static double f_worst(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return t->worst; }
static double f_gini(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return t->gini; }
static double f_continued(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return of_whole((double)t->sum.m.continued, t->sum.m.token_words); }
static double f_retention(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return of_whole((double)t->sum.m.one_token, t->sum.m.plain_words); }
static double f_used(const struct stats *s, int v, const struct total *t) { (void)t; return share(s->vocab[v].used, s->vocab[v].entries); }
static double f_partial(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return (double)t->sum.m.partial; }
static double f_unknown(const struct stats *s, int v, const struct total *t) { (void)s; (void)v; return (double)t->sum.m.unknown; }
static double f_unreachable(const struct stats *s, int v, const struct total *t) { (void)t; return (double)s->vocab[v].unreachable; }

static const struct fact facts[] = {
    { "ids in the vocabulary", 0, f_size },
    { "tokens", 0, f_tokens },
    { "bytes a token", 2, f_density },
    { "tokens a word", 2, f_fertility },
    { "tokens a word, mean of languages", 2, f_mean },
    { "parity, mean of languages", 2, f_parity },
    { "parity, worst language", 2, f_worst },
    { "Gini over languages", 3, f_gini },
    { "words of more than one token", 3, f_continued },
    { "plain words in one token", 3, f_retention },
    { "share of the ids that were used", 3, f_used },
    { "tokens that are parts of characters", 0, f_partial },
    { "unknown tokens", 0, f_unknown },
    { "entries that no text gives", 0, f_unreachable },
};

static _Bool applies(const struct stats *s, const struct total *t, const struct fact *f)
{
    if (f->of == f_parity || f->of == f_worst)
        return s->base >= 0 && t->n > 0;
    return f->of != f_gini || t->n > 1;
}

static int fact_table(const struct stats *s)
{
    struct arena *a = arena_new();
    struct table_col *c = arena_array(a, (size_t)s->n_vocabs + 1, sizeof *c);
    struct total *sum = arena_array(a, (size_t)s->n_vocabs, sizeof *sum);
    c[0] = (struct table_col){ "fact", "", 's', 0 };
    for (int v = 0; v < s->n_vocabs; v++) {
        c[v + 1] = (struct table_col){ s->vocab[v].name, s->vocab[v].name, 's', 0 };
        add_up(s, v, &sum[v]);
    }
    struct table *t = table_begin(TABLE_HUMAN, "moe.tokenize-stats-total/1", c, s->n_vocabs + 1);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (!applies(s, &sum[0], &facts[i]))
            continue;
        table_str(t, facts[i].name);
        for (int v = 0; v < s->n_vocabs; v++) {
            double x = facts[i].of(s, v, &sum[v]);
            char count[32];
            if (isnan(x))
                table_none(t);
            else if (facts[i].digits == 0)
                table_str(t, arena_strdup(a, units_count(count, (int64_t)x)));
            else if (facts[i].of == f_worst)
                table_str(t, arena_printf(a, "%s %.2f", s->lang[sum[v].i_worst].name, x));
            else
                table_str(t, arena_printf(a, "%.*f", facts[i].digits, x));
        }
    }
    int rc = table_end(t);
    arena_free(a);
    return rc;
}

int tokenize_stats_print(const struct stats *s, enum table_form form)
{
    if (form != TABLE_HUMAN) {
        TRY(lang_table(s, form));
        return total_table(s, form);
    }
    TRY(s->n_vocabs > 1 ? side_by_side(s) : lang_table(s, form));
    return fact_table(s);
}
