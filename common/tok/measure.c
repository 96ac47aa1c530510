/* measure.c -- words beside tokens.
 *
 * The text of the tokens of a part is laid out in a buffer, with the place
 * where each token ends; then one walk over its characters finds words and
 * counts the borders of tokens that fall into them.  What a part leaves open
 * (a word, its tokens so far) is all that is kept for the next. */
#include "tok/measure.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/arena.h"
#include "tok/chars.h"

enum { WHITE = 1, PLAIN = 2, BMP = 0x10000 };

/* A run of characters that is open, and the tokens in it so far. */
struct run { _Bool open; int64_t tokens, last; };

struct tok_meter {
    const struct tok_vocab *v;
    int32_t size, unknown;
    uint8_t *kind;                      /* [BMP] of characters */
    uint8_t *partial, *seen;            /* [size] */
    _Bool in_word;                      /* of the text itself */
    struct run word, plain;
    uint8_t *text; size_t cap_text;     /* of the tokens of a part */
    size_t *end; size_t cap_end;        /* [tokens] */
};

static uint8_t kind_of(uint32_t c)
{
    if (tok_char_space(c))
        return WHITE;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME:
        return PLAIN;
    default:
        return 0;
    }
}

struct tok_meter *tok_meter_new(const struct tok_vocab *v)
{
    struct tok_meter *m = arena_must(calloc(1, sizeof *m));
    m->v = v;
    m->size = tok_vocab_size(v);
    m->unknown = tok_vocab_unknown(v);
    m->kind = arena_must(malloc(BMP));
    m->partial = arena_must(calloc((size_t)m->size + 1, 1));
    m->seen = arena_must(calloc((size_t)m->size + 1, 1));
    for (uint32_t c = 0; c < BMP; c++)
        m->kind[c] = kind_of(c);
    for (int32_t i = 0; i < m->size; i++) {
        size_t n;
        const uint8_t *s = tok_vocab_bytes(v, i, &n);
        m->partial[i] = s != NULL && !tok_vocab_is_special(v, i) && tok_chars_valid(s, n) != n;
    }
    return m;
}

void tok_meter_free(struct tok_meter *m)
{
    if (m == NULL)
        return;
    free(m->kind);
    free(m->partial);
    free(m->seen);
    free(m->text);
    free(m->end);
    free(m);
}

/* Length and kind of the character at s; bytes that are none stand alone. */
static size_t char_at(const struct tok_meter *m, const uint8_t *s, size_t n, uint8_t *kind)
{
    uint32_t c;
    int k = tok_utf8_char(s, n, &c);
    *kind = k == 0 ? 0 : c < BMP ? m->kind[c] : kind_of(c);
    return k == 0 ? 1 : (size_t)k;
}

static void count_words(struct tok_meter *m, const uint8_t *s, size_t n, _Bool ends_doc, struct tok_measure *sum)
{
    uint8_t kind;
    for (size_t i = 0; i < n;) {
        i += char_at(m, s + i, n - i, &kind);
        _Bool in = kind != WHITE;
        sum->words += in && !m->in_word;
        m->in_word = in;
    }
    if (ends_doc)
        m->in_word = 0;
}

/* The tokens' own text, and where each ends in it. */
static size_t lay_out(struct tok_meter *m, const int32_t *ids, int64_t n_ids)
{
    size_t len = 0;
    if ((size_t)n_ids > m->cap_end) {
        m->cap_end = (size_t)n_ids;
        m->end = arena_must(realloc(m->end, m->cap_end * sizeof *m->end));
    }
    for (int64_t i = 0; i < n_ids; i++) {
        size_t n;
        const uint8_t *s = tok_vocab_bytes(m->v, ids[i], &n);
        if (s == NULL || tok_vocab_is_special(m->v, ids[i]))
            n = 0;
        if (n > m->cap_text - len) {
            m->cap_text = 2 * (len + n) + 4096;
            m->text = arena_must(realloc(m->text, m->cap_text));
        }
        if (n > 0)
            memcpy(m->text + len, s, n);
        m->end[i] = len += n;
    }
    return len;
}

static void close_word(struct run *r, struct tok_measure *sum)
{
    if (!r->open)
        return;
    sum->token_words++;
    sum->continued += r->tokens > 1;
    r->open = 0;
}

static void close_plain(struct run *r, struct tok_measure *sum)
{
    if (!r->open)
        return;
    sum->plain_words++;
    sum->one_token += r->tokens == 1;
    r->open = 0;
}

/* A character that lies in tokens first..last belongs to the run. */
static void extend(struct run *r, int64_t first, int64_t last)
{
    if (!r->open)
        *r = (struct run){ 1, 0, first - 1 };
    r->tokens += last - r->last;
    r->last = last;
}

void tok_meter_add(struct tok_meter *m, const uint8_t *s, size_t n, const int32_t *ids, int64_t n_ids, _Bool ends_doc, struct tok_measure *sum)
{
    size_t len = lay_out(m, ids, n_ids);
    int64_t t = 0;
    sum->bytes += (int64_t)n;
    sum->tokens += n_ids;
    count_words(m, s, n, ends_doc, sum);
    for (int64_t i = 0; i < n_ids; i++) {
        m->seen[ids[i]] = 1;
        sum->partial += m->partial[ids[i]];
        sum->unknown += ids[i] == m->unknown;
    }
    m->word.last = m->plain.last = -1;          /* tokens are numbered anew in each part */
    for (size_t p = 0; p < len;) {
        uint8_t kind;
        size_t k = char_at(m, m->text + p, len - p, &kind);
        while (m->end[t] <= p)
            t++;
        int64_t first = t;
        while (m->end[t] < p + k)
            t++;
        if (kind == WHITE)
            close_word(&m->word, sum);
        else
            extend(&m->word, first, t);
        if (kind == PLAIN)
            extend(&m->plain, first, t);
        else
            close_plain(&m->plain, sum);
        p += k;
    }
    if (ends_doc) {
        close_word(&m->word, sum);
        close_plain(&m->plain, sum);
    }
}

_Bool tok_meter_seen(const struct tok_meter *m, int32_t id)
{
    return m->seen[id];
}

int64_t tok_meter_used(const struct tok_meter *m)
{
    int64_t n = 0;
    for (int32_t i = 0; i < m->size; i++)
        n += m->seen[i] && !tok_vocab_is_special(m->v, i);
    return n;
}

void tok_meter_reset(struct tok_meter *m)
{
    memset(m->seen, 0, (size_t)m->size);
    m->in_word = m->word.open = m->plain.open = 0;
}

int64_t tok_meter_entries(const struct tok_meter *m)
{
    int64_t n = 0;
    size_t len;
    for (int32_t i = 0; i < m->size; i++)
        n += tok_vocab_bytes(m->v, i, &len) != NULL && !tok_vocab_is_special(m->v, i);
    return n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tok_measure_gini(double *v, int n)
{
    double sum = 0, ranked = 0;
    qsort(v, (size_t)n, sizeof *v, ascending);
    for (int i = 0; i < n; i++) {
        sum += v[i];
        ranked += (double)(n - i) * v[i];
    }
    return n == 0 || sum <= 0 ? 0 : ((double)n + 1 - 2 * ranked / sum) / n;
}
