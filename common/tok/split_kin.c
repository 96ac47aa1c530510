/* split_kin.c -- the splits of GPT-2, cl100k, Llama-3, Qwen, tekken and DeepSeek.
 *
 * They share their branches, so each is a few lines over the classes of
 * split_class.h; the comments say why the engine would find the same. */
#include "tok/split_kin.h"

#include <string.h>

#include "tok/split_class.h"
#include "tok/split_parts.h"

/* [U+4E00-U+9FA5 U+3040-U+309F U+30A0-U+30FF] */
static inline _Bool is_cjk(const uint8_t *s, size_t n, size_t pos)
{
    uint32_t c;
    if (s[pos] < 0xe3 || s[pos] > 0xe9 || tok_utf8_char(s + pos, n - pos, &c) == 0)
        return 0;
    return (c >= 0x4e00 && c <= 0x9fa5) || (c >= 0x3040 && c <= 0x30ff);
}

/* DeepSeek's expressions apply in turn: what is between numbers and runs of
 * CJK is a text of its own, so for its third expression a text ends there. */
static inline uint8_t cls(const uint8_t *s, size_t n, size_t pos, int *len, const _Bool third)
{
    uint8_t c = class_at(s, n, pos, len);
    return third && c != STOP && (c & NUMBER || is_cjk(s, n, pos)) ? STOP : c;
}

static inline size_t run(const uint8_t *s, size_t n, size_t pos, uint8_t of, const _Bool third)
{
    int len;
    while (cls(s, n, pos, &len, third) & of)
        pos += (size_t)len;
    return pos;
}

static size_t numbers(const uint8_t *s, size_t n, size_t pos, int most)
{
    int len;
    for (; most > 0 && class_at(s, n, pos, &len) & NUMBER; most--)
        pos += (size_t)len;
    return pos;
}

/* [^\s\p{L}\p{N}]+[\r\n]*, with "/" among the latter where slash. */
static inline size_t others(const uint8_t *s, size_t n, size_t pos, uint8_t of, _Bool slash, const _Bool third)
{
    size_t e = run(s, n, pos, of, third);
    if (e > pos)
        while (e < n && (s[e] == '\r' || s[e] == '\n' || (slash && s[e] == '/')))
            e++;
    return e;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ : \s* takes the whole run and gives back until a
 * break is left for [\r\n], so it is the last break that ends the piece, with
 * "+" or without.  \s+(?!\S) gives back one character unless the text ends.
 * (\s++$ first: then a run that ends the text is one piece.) */
static inline size_t spaces(const uint8_t *s, size_t n, size_t pos, _Bool breaks, _Bool end_space, const _Bool third)
{
    size_t e = pos, last = pos, after_break = pos;
    int len;
    uint8_t c;
    while ((c = cls(s, n, e, &len, third)) & SPACE) {
        last = e;
        e += (size_t)len;
        if (c & BREAK)
            after_break = e;
    }
    if (c == STOP && end_space)
        return e;
    if (breaks && after_break > pos)
        return after_break;
    return c == STOP || last == pos ? e : last;
}

/* [^\s\p{L}\p{N}]+[\r\n]*, where marks count as letters or as others. */
static size_t plain_others(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos)
{
    size_t e = pos;
    int len;
    if (!k->marks)
        return others(s, n, pos, OTHER, 0, 0);
    for (uint8_t c; (c = class_at(s, n, e, &len)) & OTHER && !(c & IN_W); e += (size_t)len)
        ;
    while (e > pos && e < n && (s[e] == '\r' || s[e] == '\n'))
        e++;
    return e;
}

/* C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}| ?[^\s\p{L}\p{N}]+[\r\n]*|... */
static size_t plain_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    int len = 0, next_len;
    uint8_t c = class_at(s, n, pos, &len);
    size_t e;
    if (c == STOP)
        return tok_split_invalid(s, n, pos, bad);
    if (s[pos] == '\'' && (e = tok_split_contraction(s, n, pos)) > pos)
        return e;
    const uint8_t letter = k->marks ? LETTER | IN_U | IN_W : LETTER;
    if (c & letter)
        return run(s, n, pos, letter, 0);
    if (c & NUMBER)
        return numbers(s, n, pos, k->digits);
    if (!(c & BREAK) && class_at(s, n, pos + (size_t)len, &next_len) & letter)
        return run(s, n, pos + (size_t)len, letter, 0);
    if (s[pos] == ' ' && (e = plain_others(k, s, n, pos + 1)) > pos + 1)
        return e;
    if (c & OTHER)
        return plain_others(k, s, n, pos);
    return spaces(s, n, pos, 1, k->end_space, 0);
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    int len = 0;
    uint8_t c = class_at(s, n, pos, &len);
    (void)k;
    if (c == STOP)
        return tok_split_invalid(s, n, pos, bad);
    if (s[pos] == '\'' && pos + 1 < n) {
        if (strchr("stmd", s[pos + 1]) != NULL && s[pos + 1] != '\0')
            return pos + 2;
        if (pos + 2 < n && (memcmp(s + pos + 1, "re", 2) == 0 || memcmp(s + pos + 1, "ve", 2) == 0 || memcmp(s + pos + 1, "ll", 2) == 0))
            return pos + 3;
    }
    size_t from = s[pos] == ' ' ? pos + 1 : pos;
    uint8_t kind = class_at(s, n, from, &len) & (LETTER | NUMBER | OTHER);
    if (kind != 0)
        return run(s, n, from, kind, 0);
    return spaces(s, n, pos, 0, 0, 0);
}

/* [!-/:-@\[-`{-~] */
static _Bool is_ascii_sign(uint8_t c)
{
    return c > ' ' && c < 0x7f && tok_class_blocks[0][c] & SIGN;
}

/* The third expression of DeepSeek: pos when no branch fits the character there,
 * which is of class c and len bytes. */
static size_t deepseek_match(const uint8_t *s, size_t n, size_t pos, uint8_t c, int len)
{
    const uint8_t letter = LETTER | IN_U | IN_W;
    size_t e = pos + 1;
    int next_len;
    if (is_ascii_sign(s[pos])) {
        while (e < n && (uint8_t)((s[e] | 0x20) - 'a') < 26)
            e++;
        if (e > pos + 1)
            return e;
    }
    /* [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ : a mark may be its first part or its second. */
    if (!(c & (LETTER | SIGN | BREAK)) && cls(s, n, pos + (size_t)len, &next_len, 1) & letter)
        return run(s, n, pos + (size_t)len, letter, 1);
    if (c & letter)
        return run(s, n, pos, letter, 1);
    if (s[pos] == ' ' && (e = others(s, n, pos + 1, SIGN, 0, 1)) > pos + 1)
        return e;
    if (c & SIGN)
        return others(s, n, pos, SIGN, 0, 1);
    return c & SPACE ? spaces(s, n, pos, 1, 0, 1) : pos;
}

/* A run of characters that match nothing in the third expression is one piece. */
static size_t deepseek_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    int len = 0;
    uint8_t c = class_at(s, n, pos, &len);
    size_t e = pos;
    if (c == STOP)
        return tok_split_invalid(s, n, pos, bad);
    if (c & NUMBER)
        return numbers(s, n, pos, k->digits);
    if (is_cjk(s, n, pos)) {
        while (e < n && is_cjk(s, n, e))
            e += 3;
        return e;
    }
    if ((e = deepseek_match(s, n, pos, c, len)) > pos)
        return e;
    do {
        e += (size_t)len;
        c = cls(s, n, e, &len, 1);
    } while (c != STOP && deepseek_match(s, n, e, c, len) == e);
    return e;
}

static size_t o200k_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    (void)k;
    return tok_split_next(s, n, pos, bad);
}

static size_t tekken_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    (void)k;
    return tok_split_tekken(s, n, pos, bad);
}

static size_t kimi_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    (void)k;
    return tok_split_kimi(s, n, pos, bad);
}

/* [(\s|.,!?…。，、।۔،)], whose bytes an expression meant otherwise. */
static _Bool parts_words(uint32_t c)
{
    static const uint32_t signs[] = { '(', ')', '|', '.', ',', '!', '?', 0x2026, 0x3002, 0xff0c, 0x3001, 0x964, 0x6d4, 0x60c };
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (c == signs[i])
            return 1;
    return tok_char_space(c);
}

/* 1: a word goes on here, 0: it does not, -1: the text ends. */
static int in_word(const uint8_t *s, size_t n, size_t pos, size_t *len)
{
    uint32_t c;
    if (pos >= n || (*len = (size_t)tok_utf8_char(s + pos, n - pos, &c)) == 0)
        return -1;
    return !parts_words(c);
}

/*  ?[^(\s|.,!?…。，、।۔،)]+ ; what lies between two matches is one piece. */
static size_t bloom_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    size_t e = pos, len;
    int word = in_word(s, n, pos, &len);
    (void)k;
    if (word < 0)
        return tok_split_invalid(s, n, pos, bad);
    if (s[pos] == ' ' && in_word(s, n, pos + 1, &len) == 1) {
        e++;
        word = 1;
    }
    if (word) {
        while (in_word(s, n, e, &len) == 1)
            e += len;
        return e;
    }
    while (in_word(s, n, e, &len) == 0 && !(e > pos && s[e] == ' ' && in_word(s, n, e + 1, &len) == 1)) {
        in_word(s, n, e, &len);
        e += len;
    }
    return e;
}

/* A space as it is or as it is shown: its length. */
static inline size_t space_at(const uint8_t *s, size_t n, size_t pos)
{
    if (s[pos] == ' ')
        return 1;
    return s[pos] == 0xe2 && n - pos >= 3 && s[pos + 1] == 0x96 && s[pos + 2] == 0x81 ? 3 : 0;
}

size_t tok_split_space_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    size_t e = pos, len;
    (void)bad;
    if (k->lines && (s[pos] == '\r' || s[pos] == '\n'))
        return pos + 1;
    while (e < n && (len = space_at(s, n, e)) > 0 && !(k->each && e > pos))
        e += len;
    while (e < n && space_at(s, n, e) == 0 && !(k->lines && (s[e] == '\r' || s[e] == '\n')))
        e++;
    return e;
}

/* ---- which one */

static const struct tok_split
    gpt2 = { .name = "gpt2", .next = gpt2_next, .form = TOK_FORM_GPT2 },
    cl100k_rust = { .name = "cl100k", .next = plain_next, .digits = 3, .line_cut = 1, .end_space = 1 },
    llama3 = { .name = "llama3", .next = plain_next, .digits = 3, .line_cut = 1 },
    two_digits = { .name = "two digits", .next = plain_next, .digits = 2, .line_cut = 1 },
    qwen2 = { .name = "qwen2", .next = plain_next, .digits = 1, .line_cut = 1 },
    qwen35 = { .name = "qwen3.5", .next = plain_next, .digits = 1, .line_cut = 1, .marks = 1 },
    deepseek = { .name = "deepseek", .next = deepseek_next, .digits = 3, .line_cut = 1, .form = TOK_FORM_DEEPSEEK, .marks = 1, .apart = 1 },
    o200k = { .name = "o200k", .next = o200k_next, .digits = 3, .line_cut = 1, .slash = 1, .form = TOK_FORM_CASED, .tail = 1 },
    tekken = { .name = "tekken", .next = tekken_next, .digits = 1, .line_cut = 1, .slash = 1, .form = TOK_FORM_CASED },
    bloom = { .name = "bloom", .next = bloom_next, .form = TOK_FORM_OTHER },
    kimi = { .name = "kimi", .next = kimi_next, .digits = 3, .line_cut = 1, .form = TOK_FORM_CASED, .tail = 1, .apart = 1 };

#define RUST (1 << TOK_RUST)
#define ONIG (1 << TOK_ONIG)
#define APOSTROPHE "'(?i:[sdmt]|ll|ve|re)|"

/* In several an end of white space is written with one [\r\n]: it ends a piece at the
 * same place as [\r\n]+ does.  A possessive "?+" or "++" before what cannot follow it
 * anyway changes nothing; {1,3}+ is possessive in Rust alone. */
static const struct { const char *expression; const struct tok_split *split; int dialects; } known[] = {
    { "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s", &gpt2, RUST },
    { SPLIT_GPT2, &gpt2, RUST | ONIG },
    { APOSTROPHE "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s", &cl100k_rust, RUST },
    { APOSTROPHE "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+", &llama3, RUST | ONIG },
    { APOSTROPHE "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,2}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+", &two_digits, RUST | ONIG },
    { APOSTROPHE "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+", &qwen2, RUST | ONIG },
    /* and the first and the third as moe-tokenize import writes them */
    { "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++\\z|\\s+(?!\\S)|\\s", &gpt2, ONIG },
    { APOSTROPHE "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++\\z|\\s*[\\r\\n]|\\s+(?!\\S)|\\s", &cl100k_rust, ONIG },
    { SPLIT_CL100K_HF, &llama3, RUST | ONIG },
    { SPLIT_LLAMA3, &llama3, RUST | ONIG },
    { SPLIT_PLAIN "|\\p{N}{1,2}" SPLIT_OTHERS SPLIT_SPACES, &two_digits, RUST | ONIG },
    { SPLIT_QWEN2, &qwen2, RUST | ONIG },
    { SPLIT_QWEN35, &qwen35, RUST | ONIG },
    { SPLIT_TEKKEN, &tekken, RUST | ONIG },
    { tok_split_o200k, &o200k, RUST | ONIG },
    { " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+", &bloom, ONIG },
    { " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+", &bloom, RUST | ONIG },
    { SPLIT_KIMI, &kimi, RUST | ONIG },
};

static const char *const deepseek_steps[] = { SPLIT_DEEPSEEK_1, SPLIT_DEEPSEEK_2, SPLIT_DEEPSEEK_3 };

/* Of expressions that match everything to keep the matches and to isolate them is the same. */
static _Bool isolates(const struct tok_pre *p, _Bool covers)
{
    return p->kind == TOK_SPLIT && p->expression != NULL &&
           ((p->behavior == TOK_ISOLATED) || (covers && p->behavior == TOK_REMOVED && p->invert));
}

const char *tok_split_known(int i, enum tok_dialect *d)
{
    if (i >= (int)(sizeof known / sizeof *known))
        return NULL;
    *d = known[i].dialects & ONIG ? TOK_ONIG : TOK_RUST;
    return known[i].expression;
}

const struct tok_split *tok_split_find(const struct tok_pre *pre, int n, enum tok_dialect d)
{
    tok_class_init();
    if (n == 3 && d == TOK_ONIG) {
        for (int i = 0; i < 3; i++)
            if (!isolates(&pre[i], 0) || strcmp(pre[i].expression, deepseek_steps[i]) != 0)
                return NULL;
        return &deepseek;
    }
    if (n != 1 || !isolates(&pre[0], 1))
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(pre[0].expression, known[i].expression) == 0 && known[i].dialects >> d & 1) {
            if (!isolates(&pre[0], known[i].split != &bloom))
                return NULL;
            if (known[i].split == &kimi)
                tok_split_han_init();
            return known[i].split;
        }
    return NULL;
}

/* A comma or full stop of East Asia after an ideograph: no piece holds both, and normal forms
 * change neither.  (U+4DC0 and U+9FC0 begin signs and what is not in all tables.) */
static inline _Bool ends_ideographs(const uint8_t *s, size_t n, size_t i)
{
    if (n - i < 3 || i < 3 || !((s[i] == 0xe3 && s[i + 1] == 0x80 && (s[i + 2] == 0x81 || s[i + 2] == 0x82)) ||
                                (s[i] == 0xef && s[i + 1] == 0xbc && s[i + 2] == 0x8c)))
        return 0;
    return s[i - 3] >= 0xe5 && s[i - 3] <= 0xe9 && (s[i - 2] & 0xc0) == 0x80 && (s[i - 1] & 0xc0) == 0x80 && !(s[i - 3] == 0xe9 && s[i - 2] == 0xbf);
}

/* A space can only begin a piece or lie among white space, so after a visible
 * character it begins one.  After a line feed only CR, LF, white space and (where
 * slash) "/" can belong to the same piece, but where white space has no branch
 * for line feeds (GPT-2) the run depends on what follows.  No branch looks at what
 * comes before it.  (BLOOM's joins signs and spaces that match nothing: there it is a space
 * after a letter.) */
size_t tok_split_kin_cut(const struct tok_split *k, const uint8_t *s, size_t n, size_t from)
{
    for (size_t i = from; i < n; i++) {
        uint8_t a = s[i - 1], b = s[i];
        if (b == ' ' && a > ' ' && a < 0x7f && (k->form != TOK_FORM_OTHER || (uint8_t)((a | 0x20) - 'a') < 26))
            return i;
        if (k->line_cut && a == '\n' && b > ' ' && b < 0x7f && !(k->slash && b == '/'))
            return i;
        if (b >= 0xe3 && k->form != TOK_FORM_SPACE && ends_ideographs(s, n, i))
            return i;
    }
    return n;
}
