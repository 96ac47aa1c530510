/* normal.c -- normalizers: a text changed as a whole. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/err.h"
#include "tok/chars.h"
#include "tok/steps.h"

void tok_buf_put(struct tok_buf *b, const void *s, size_t n)
{
    if (b->n + n > b->cap || b->p == NULL) {
        b->cap = 2 * (b->n + n) + 64;
        b->p = arena_must(realloc(b->p, b->cap));
    }
    if (n > 0)
        memcpy(b->p + b->n, s, n);
    b->n += n;
}

void tok_buf_free(struct tok_buf *b)
{
    free(b->p);
    *b = (struct tok_buf){ 0 };
}

/* ---- Unicode's forms */

static int class_of(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* A run of marks in the order of their classes, those of one class as they stood.
 * It may be as long as the text, so that it is counted where it is not short. */
static void order_marks(int32_t *c, size_t n, int32_t *spare)
{
    size_t at[257] = { 0 };
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            int32_t x = c[i];
            size_t k = i;
            for (; k > 0 && class_of(c[k - 1]) > class_of(x); k--)
                c[k] = c[k - 1];
            c[k] = x;
        }
        return;
    }
    for (size_t i = 0; i < n; i++)
        at[class_of(c[i]) + 1]++;
    for (int k = 1; k < 257; k++)
        at[k] += at[k - 1];
    for (size_t i = 0; i < n; i++)
        spare[at[class_of(c[i])]++] = c[i];
    memcpy(c, spare, n * sizeof *c);
}

static void order_all(int32_t *c, size_t n, int32_t *spare)
{
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && class_of(c[end]) != 0; end++)
            ;
        if (end - i > 1)
            order_marks(c + i, end - i, spare);
    }
}

/* Characters taken apart; the library's own loop over a text would also order
 * the marks, in a time that is the square of their number. */
static int take_apart(struct tok_str s, int options, struct tok_buf *to, size_t *n)
{
    utf8proc_int32_t d[32];
    uint32_t c;
    for (size_t i = 0; i < s.n;) {
        int len = tok_utf8_char(s.s + i, s.n - i, &c), last = 0;
        utf8proc_ssize_t k = len > 0 ? utf8proc_decompose_char((utf8proc_int32_t)c, d, 32, (utf8proc_option_t)options, &last) : UTF8PROC_ERROR_INVALIDUTF8;
        if (k < 0 || k > 32)
            return err_set(ERR_IO, "normalizing %zu bytes: %s", s.n, k < 0 ? utf8proc_errmsg(k) : "a character of many parts");
        tok_buf_put(to, d, (size_t)k * sizeof *d);
        i += (size_t)len;
    }
    *n = to->n / sizeof *d;
    return 0;
}

static int unicode(enum tok_norm_kind kind, struct tok_str s, struct tok_buf *out)
{
    static const int options[] = {
        [TOK_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [TOK_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [TOK_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [TOK_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    struct tok_buf parts = { 0 };
    uint8_t utf8[4];
    size_t n = 0;
    int rc = take_apart(s, options[kind], &parts, &n);
    if (rc == 0 && n > 0) {
        int32_t *c = (int32_t *)(void *)parts.p, *spare = arena_must(malloc(n * sizeof *spare));
        order_all(c, n, spare);
        free(spare);
        if (kind == TOK_NFC || kind == TOK_NFKC)
            n = (size_t)utf8proc_normalize_utf32(c, (utf8proc_ssize_t)n, (utf8proc_option_t)options[kind]);
        for (size_t i = 0; i < n; i++)
            tok_buf_put(out, utf8, tok_char_put((uint32_t)c[i], utf8));
    }
    tok_buf_free(&parts);
    return rc;
}

/* Characters that NFC neither changes nor joins to what stands before them, a bit
 * each.  Those that are not looked at one by one below (most of CJK, Hangul
 * syllables, planes without decompositions) are such. */
uint8_t tok_not_plain[TOK_PLAIN_END / 8];
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

static void mark(int32_t c)
{
    if (c >= 0 && c < TOK_PLAIN_END)
        tok_not_plain[c >> 3] |= (uint8_t)(1 << (c & 7));
}

static void look_at(int32_t c)
{
    utf8proc_int32_t d[32];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, d, 32, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &last);
    if (n < 1 || n > 32 || utf8proc_get_property(c)->combining_class != 0) {
        mark(c);
        return;
    }
    for (utf8proc_ssize_t i = 1; i < n; i++)
        mark(d[i]);
    if (n > 1 || d[0] != c) {
        n = utf8proc_normalize_utf32(d, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (n != 1 || d[0] != c)
            mark(c);
    }
}

static void make_plain(void)
{
    static const struct { int32_t from, to; } look[] = { { 0xa0, 0x3400 }, { 0xa000, 0xac00 }, { 0xd7b0, 0xd800 }, { 0xf900, 0x20000 }, { 0x2f800, 0x2fa20 } };
    for (size_t i = 0; i < sizeof look / sizeof *look; i++)
        for (int32_t c = look[i].from; c < look[i].to; c++)
            look_at(c);
    for (int32_t c = 0x1100; c < 0x1200; c++)           /* jamo join into syllables */
        mark(c);
}

void tok_steps_plain_init(void)
{
    pthread_once(&plain_once, make_plain);
}

/* ASCII by 32 bytes, then what stands up to the next of it. */
size_t tok_steps_plain(const uint8_t *s, size_t n)
{
    const uint64_t high = 0x8080808080808080u;
    size_t i = 0;
    uint32_t c;
    uint64_t w[4];
    tok_steps_plain_init();
    while (i < n) {
        if (n - i >= 32 && (memcpy(w, s + i, 32), ((w[0] | w[1] | w[2] | w[3]) & high) == 0)) {
            i += 32;
            continue;
        }
        for (size_t end = n - i < 32 ? n : i + 32; i < end;) {
            if (s[i] < 0x80) {
                i++;
            } else if (s[i] >= 0xc3 && s[i] < 0xe0 && n - i > 1 && (s[i + 1] & 0xc0) == 0x80) {
                if (!tok_char_plain((uint32_t)(s[i] & 0x1f) << 6 | (s[i + 1] & 0x3f)))
                    return i;
                i += 2;
            } else {
                int len = tok_utf8_char(s + i, n - i, &c);
                if (len == 0 || !tok_char_plain(c))
                    return i;
                i += (size_t)len;
            }
        }
    }
    return n;
}

static int replace(const struct tok_norm *t, struct tok_regex_mem *mem, struct tok_str s, struct tok_buf *out)
{
    size_t at = 0, from, to;
    int rc = 0;
    if (t->re != NULL) {
        struct tok_regex_walk w;
        tok_regex_begin(&w, t->re, s.s, s.n);
        while ((rc = tok_regex_next(&w, mem, &from, &to)) > 0) {
            tok_buf_put(out, s.s + at, from - at);
            tok_buf_put(out, t->with.s, t->with.n);
            at = to;
        }
    } else {
        const uint8_t *p;
        while ((p = memmem(s.s + at, s.n - at, t->text.s, t->text.n)) != NULL) {
            tok_buf_put(out, s.s + at, (size_t)(p - s.s) - at);
            tok_buf_put(out, t->with.s, t->with.n);
            at = (size_t)(p - s.s) + t->text.n;
        }
    }
    tok_buf_put(out, s.s + at, s.n - at);
    return rc;
}

static void strip(const struct tok_norm *t, struct tok_str s, struct tok_buf *out)
{
    size_t from = 0, to = s.n, i = 0;
    uint32_t c;
    for (int len; t->left && from < s.n; from += (size_t)len) {
        len = tok_utf8_char(s.s + from, s.n - from, &c);
        if (!tok_char_space(c))
            break;
    }
    if (t->right) {
        to = from;
        for (i = from; i < s.n;) {
            i += (size_t)tok_utf8_char(s.s + i, s.n - i, &c);
            if (!tok_char_space(c))
                to = i;
        }
    }
    tok_buf_put(out, s.s + from, to - from);
}

/* One character gives one, but for U+0130, which is an i with a dot above. */
static void lowercase(struct tok_str s, struct tok_buf *out)
{
    uint8_t buf[4];
    uint32_t c;
    for (size_t i = 0; i < s.n;) {
        i += (size_t)tok_utf8_char(s.s + i, s.n - i, &c);
        if (c == 0x130) {
            tok_buf_put(out, "i\xcc\x87", 3);
            continue;
        }
        tok_buf_put(out, buf, tok_char_put((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), buf));
    }
}

/* Spaces as SentencePiece has them: at most one in a row and none at the ends
 * (right), one more at the beginning (left) or the end (suffix), all of them
 * shown as U+2581 (escape).  A text without anything else stays empty. */
static void sentencepiece(const struct tok_norm *t, struct tok_str s, struct tok_buf *out)
{
    struct tok_str space = { (const uint8_t *)(t->escape ? "\xe2\x96\x81" : " "), t->escape ? 3 : 1 };
    if (t->right) {
        while (s.n > 0 && s.s[0] == ' ') {
            s.s++;
            s.n--;
        }
        while (s.n > 0 && s.s[s.n - 1] == ' ')
            s.n--;
    }
    if (s.n == 0)
        return;
    if (t->left && !t->suffix)
        tok_buf_put(out, space.s, space.n);
    for (size_t i = 0; i < s.n; i++) {
        if (s.s[i] != ' ')
            tok_buf_put(out, s.s + i, 1);
        else if (!(t->right && s.s[i - 1] == ' '))      /* no space comes first, so i > 0 */
            tok_buf_put(out, space.s, space.n);
    }
    /* There a U+2581 of the text itself is taken for a space, too. */
    while (t->right && out->n >= space.n && memcmp(out->p + out->n - space.n, space.s, space.n) == 0)
        out->n -= space.n;
    if (t->left && t->suffix)
        tok_buf_put(out, space.s, space.n);
}

int tok_steps_normal(const struct tok_norm *step, int n_steps, struct tok_regex_mem *mem, struct tok_str s,
                     struct tok_buf two[2], struct tok_str *out)
{
    for (int k = 0; k < n_steps; k++) {
        const struct tok_norm *t = &step[k];
        struct tok_buf *b = &two[k & 1];
        b->n = 0;
        tok_buf_put(b, "", 0);
        switch (t->kind) {
        case TOK_NFC: case TOK_NFD: case TOK_NFKC: case TOK_NFKD:
            TRY(unicode(t->kind, s, b));
            break;
        case TOK_PREPEND:
            if (s.n > 0)
                tok_buf_put(b, t->text.s, t->text.n);
            tok_buf_put(b, s.s, s.n);
            break;
        case TOK_REPLACE:
            TRY(replace(t, mem, s, b));
            break;
        case TOK_STRIP:
            strip(t, s, b);
            break;
        case TOK_LOWERCASE:
            lowercase(s, b);
            break;
        case TOK_SP:
            sentencepiece(t, s, b);
            break;
        }
        s = (struct tok_str){ b->p, b->n };
    }
    *out = s;
    return 0;
}
