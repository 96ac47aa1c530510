/* fast_space.c -- the proof that words may be merged one by one.
 *
 * It is a walk over all entries.  What it does not understand (a regular expression, a
 * normalizer that looks further than one character) is not of this kind. */
#include "tok/fast_space.h"

#include <string.h>

#include "tok/vocab_store.h"

#define MARK "\xe2\x96\x81"
enum { MARK_LEN = 3 };

static _Bool is(struct tok_str s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.s, text, s.n) == 0;
}

/* The forms in which files say that spaces are shown as marks. */
static _Bool find_form(const struct tok_vocab *v, struct tok_space *out)
{
    const struct tok_norm *t = v->norm;
    int n = v->n_norm, n_pre = v->n_pre;
    if (n_pre == 1 && n == 0 && v->pre[0].kind == TOK_METASPACE && is(v->pre[0].text, MARK)) {
        out->split.each = v->pre[0].split;
        out->prefix = v->pre[0].prefix == TOK_ALWAYS ? TOK_SPACE_UNLESS : v->pre[0].prefix == TOK_FIRST ? TOK_SPACE_FIRST : TOK_SPACE_NEVER;
        return 1;
    }
    /* What splits at spaces finds none behind the normalizer. */
    if (n_pre == 1 && v->pre[0].kind == TOK_SPLIT && v->pre[0].re == NULL && is(v->pre[0].text, " ") && !v->pre[0].invert)
        n_pre = 0;
    if (n_pre != 0)
        return 0;
    if (n == 1 && t[0].kind == TOK_SP) {
        out->prefix = t[0].left ? TOK_SPACE_ALWAYS : TOK_SPACE_NEVER;
        return t[0].escape && !t[0].right && !t[0].suffix;
    }
    if (n == 2 && t[0].kind == TOK_PREPEND && is(t[0].text, MARK)) {
        out->prefix = TOK_SPACE_ALWAYS;
        t++;
        n--;
    }
    return n == 1 && t[0].kind == TOK_REPLACE && t[0].re == NULL && is(t[0].text, " ") && is(t[0].with, MARK);
}

static _Bool has_inner_mark(const uint8_t *s, size_t n)
{
    for (size_t i = MARK_LEN; i + MARK_LEN <= n; i++)
        if (memcmp(s + i, MARK, MARK_LEN) == 0 && memcmp(s + i - MARK_LEN, MARK, MARK_LEN) != 0)
            return 1;
    return n > MARK_LEN && memcmp(s, MARK, MARK_LEN) != 0 && (memmem(s + 1, n - 1, MARK, MARK_LEN) != NULL);
}

/* Every character without a token becomes bytes: none is unknown. */
static _Bool falls_back(const struct tok_vocab *v)
{
    for (int b = 0; b < 256; b++)
        if (v->fallback[b] < 0)
            return 0;
    return v->byte_fallback;
}

/* CR and LF stand alone: no other entry holds them, and their ids take part in no merge. */
static _Bool breaks_alone(const struct tok_vocab *v, const struct tok_bpe *m)
{
    for (int32_t i = 0; i < v->size; i++)
        if (v->key[i] != NULL && v->key_len[i] > 1 && (memchr(v->key[i], '\n', v->key_len[i]) != NULL || memchr(v->key[i], '\r', v->key_len[i]) != NULL))
            return 0;
    for (const char *c = "\r\n"; *c != '\0'; c++) {
        int32_t id = tok_bpe_find(m, (const uint8_t *)c, 1);
        if (id < 0 && !falls_back(v))
            return 0;           /* unknown, it may fuse with its neighbours, and as bytes pass by one that is */
        if (id < 0)
            id = v->fallback[(uint8_t)*c];
        for (int64_t k = 0; k < v->n_merges; k++)
            if (v->merges[k].a == id || v->merges[k].b == id)
                return 0;
    }
    return 1;
}

_Bool tok_space_find(const struct tok_vocab *v, const struct tok_bpe *m, struct tok_space *out)
{
    *out = (struct tok_space){ .split = { .name = "spaces", .next = tok_split_space_next, .form = TOK_FORM_SPACE } };
    if (v->byte_level || !v->char_keys || !find_form(v, out))
        return 0;
    /* What is matched first lies inside a word or is not of this kind. */
    for (int i = 0; i < v->n_frozen; i++) {
        const uint8_t *s = v->key[v->frozen[i]];
        uint32_t n = v->key_len[v->frozen[i]];
        if (memmem(s, n, MARK, MARK_LEN) != NULL || memchr(s, ' ', n) != NULL || memchr(s, '\n', n) != NULL || memchr(s, '\r', n) != NULL)
            return 0;
    }
    /* An unknown mark could fuse with what is unknown before it.  (Ids beyond the vocabulary
     * are of characters inside of entries.) */
    const int32_t mark = tok_bpe_find(m, (const uint8_t *)MARK, MARK_LEN);
    if (mark < 0 || mark >= v->size)
        return 0;
    if (out->split.each)
        return 1;
    if (v->ignore_merges)       /* the whole text is looked up */
        return 0;
    if (v->unk < 0 && !falls_back(v))   /* what is dropped no longer stands between two marks */
        return 0;
    for (int32_t i = 0; i < v->size; i++)
        if (v->key[i] != NULL && has_inner_mark(v->key[i], v->key_len[i]))
            return 0;
    out->split.lines = out->split.line_cut = breaks_alone(v, m);
    return 1;
}
