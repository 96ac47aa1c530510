/* split.c -- the o200k split expression, compiled by hand.
 *
 * Every branch of the expression is a few lines over character classes; what
 * a regular expression engine finds by backtracking is computed directly: the
 * comments at the branches say why the result is the same.  A general engine
 * is tens of times slower and its worst cases are quadratic.
 *
 * Refuses to know other expressions: each would be a function of its own. */
#include "tok/split.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "tok/chars.h"
#include "tok/regex.h"
#include "tok/split_class.h"

const char tok_split_o200k[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Classes of all characters in two levels: blocks of 256 of which few differ,
 * about 60 KiB that stay in the cache. */
enum { N_BLOCKS = 0x110000 / 256, MAX_BLOCKS = 512 };
uint16_t tok_class_block[N_BLOCKS];
uint8_t tok_class_blocks[MAX_BLOCKS][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static uint8_t classify(uint32_t c, uint8_t kind)
{
    static const uint8_t class[] = {
        [TOK_KIND_REST] = OTHER, [TOK_KIND_UPPER] = IN_U | LETTER, [TOK_KIND_LOWER] = IN_W | LETTER, [TOK_KIND_LETTER] = IN_U | IN_W | LETTER,
        [TOK_KIND_MARK] = IN_U | IN_W | OTHER, [TOK_KIND_NUMBER] = NUMBER, [TOK_KIND_SIGN] = OTHER | SIGN,
    };
    if (tok_char_space(c))
        return c == '\r' || c == '\n' ? SPACE | BREAK : SPACE;
    return class[kind];
}

/* Planes 4 to 13 are empty, 15 and 16 private. */
static void make_table(void)
{
    static const struct { uint32_t from, to; } parts[] = { { 0, 0x40000 }, { 0xe0000, 0xe1000 } };
    uint8_t *kind = calloc(0x110000, 1);
    int n = 0;
    arena_must(kind);
    for (int i = 0; i < 2; i++)
        tok_regex_kinds(parts[i].from, parts[i].to, kind + parts[i].from);
    for (int b = 0; b < N_BLOCKS; b++) {
        uint8_t block[256];
        int i;
        for (i = 0; i < 256; i++)
            block[i] = classify((uint32_t)(b * 256 + i), kind[b * 256 + i]);
        for (i = 0; i < n && memcmp(tok_class_blocks[i], block, 256) != 0; i++)
            ;
        if (i == n) {
            BUG_ON(n == MAX_BLOCKS);
            memcpy(tok_class_blocks[n++], block, 256);
        }
        tok_class_block[b] = (uint16_t)i;
    }
    free(kind);
}

void tok_class_init(void)
{
    pthread_once(&table_once, make_table);
}

size_t tok_split_invalid(const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    int len;
    size_t e = pos + 1;
    while (e < n && class_at(s, n, e, &len) == STOP)
        e++;
    *bad += e - pos;
    return e;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)? : no alternative begins another, so the first
 * that fits is the only one.  U+017F folds to s. */
size_t tok_split_contraction(const uint8_t *s, size_t n, size_t pos)
{
    if (pos + 1 >= n || s[pos] != '\'')
        return pos;
    uint8_t a = s[pos + 1] | 0x20, b = pos + 2 < n ? s[pos + 2] | 0x20 : 0;
    if (s[pos + 1] >= 0x80)
        return s[pos + 1] == 0xc5 && pos + 2 < n && s[pos + 2] == 0xbf ? pos + 3 : pos;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return pos + 2;
    if (pos + 2 < n && s[pos + 2] < 0x80 &&
        ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')))
        return pos + 3;
    return pos;
}

/* \p{Han}, a bit each; 64 KiB of which little is touched. */
enum { HAN_FROM = 0x2e80, HAN_TO = 0x40000 };
static uint8_t han[(HAN_TO - HAN_FROM) / 8];
static pthread_once_t han_once = PTHREAD_ONCE_INIT;

static void make_han(void)
{
    struct tok_regex *re;
    struct tok_regex_mem *m = tok_regex_mem_new();
    struct tok_regex_walk w;
    uint8_t *text = malloc(4 * (size_t)(HAN_TO - HAN_FROM));
    size_t n = 0, from, to;
    int rc;
    arena_must(m);
    arena_must(text);
    for (uint32_t c = HAN_FROM; c < HAN_TO; c++)
        if (c < 0xd800 || c > 0xdfff)
            n += tok_char_put(c, text + n);
    rc = tok_regex_new("\\p{Han}", "\\p{Han}+", 8, TOK_RUST, &re);
    BUG_ON(rc < 0);
    tok_regex_begin(&w, re, text, n);
    while (tok_regex_next(&w, m, &from, &to) > 0)
        for (uint32_t c; from < to;) {
            from += (size_t)tok_utf8_char(text + from, to - from, &c);
            han[(c - HAN_FROM) >> 3] |= (uint8_t)(1 << (c & 7));
        }
    tok_regex_free(re);
    tok_regex_mem_free(m);
    free(text);
}

void tok_split_han_init(void)
{
    pthread_once(&han_once, make_han);
}

_Bool tok_split_is_han(const uint8_t *s, size_t n, size_t pos)
{
    uint32_t c;
    if (s[pos] < 0xe2 || tok_utf8_char(s + pos, n - pos, &c) == 0 || c < HAN_FROM || c >= HAN_TO)
        return 0;
    return han[(c - HAN_FROM) >> 3] >> (c & 7) & 1;
}

/* The class, but that of Han characters is no part of words where they are apart. */
static inline uint8_t word_class(const uint8_t *s, size_t n, size_t pos, int *len, const _Bool apart)
{
    uint8_t c = class_at(s, n, pos, len);
    return apart && c & (IN_U | IN_W) && tok_split_is_han(s, n, pos) ? c & ~(IN_U | IN_W) : c;
}

/* U*W+ from pos; pos when there is none.  U* takes all it can to a.  Is there
 * a W at a, W+ goes on from there.  Otherwise U* gives back characters until
 * one of them is a W; that is the last such character, and what follows it is
 * not W, so W+ is this one character.  *upper is a. */
static inline size_t mixed_word(const uint8_t *s, size_t n, size_t pos, size_t *upper, const _Bool apart)
{
    size_t a = pos, last = pos, e;
    int len = 0;
    uint8_t c = 0;
    for (; (c = word_class(s, n, a, &len, apart)) & IN_U; a += (size_t)len)
        if (c & IN_W)
            last = a + (size_t)len;
    *upper = a;
    if (!(c & IN_W))
        return last;
    for (e = a; word_class(s, n, e, &len, apart) & IN_W; e += (size_t)len)
        ;
    return e;
}

/* Branches 1 and 2.  When neither form of branch 1 fits, no W stands in or
 * after the run of U, so W* of branch 2 is empty. */
static inline size_t word(const uint8_t *s, size_t n, size_t pos, uint8_t c, int len, const _Bool tail, const _Bool apart)
{
    size_t with = 0, without = 0, e, first = pos + (size_t)len;
    if (!(c & (LETTER | NUMBER | BREAK))) {
        e = mixed_word(s, n, first, &with, apart);
        if (e > first)
            return tail ? tok_split_contraction(s, n, e) : e;
    }
    if (c & (IN_U | IN_W)) {
        e = mixed_word(s, n, pos, &without, apart);
        if (e > pos)
            return tail ? tok_split_contraction(s, n, e) : e;
    }
    if (with > first)
        return tail ? tok_split_contraction(s, n, with) : with;
    if (without > pos)
        return tail ? tok_split_contraction(s, n, without) : without;
    return pos;
}

/* Branch 4 after its optional space; pos when it does not fit. */
static size_t others(const uint8_t *s, size_t n, size_t pos, const _Bool slash)
{
    size_t e = pos;
    int len;
    while (class_at(s, n, e, &len) & OTHER)
        e += (size_t)len;
    if (e > pos)
        while (e < n && (s[e] == '\r' || s[e] == '\n' || (slash && s[e] == '/')))
            e++;
    return e;
}

/* Branches 5 to 7 on the run of white space at pos.  \s*[\r\n]+ gives back
 * until the last break; \s+(?!\S) gives back one character unless the text
 * ends; a single character is left to the last branch. */
static size_t spaces(const uint8_t *s, size_t n, size_t pos)
{
    size_t e = pos, last = pos, after_break = pos;
    int len;
    uint8_t c;
    while ((c = class_at(s, n, e, &len)) & SPACE) {
        last = e;
        e += (size_t)len;
        if (c & BREAK)
            after_break = e;
    }
    if (after_break > pos)
        return after_break;
    return c == STOP || last == pos ? e : last;
}

static inline size_t next(const uint8_t *s, size_t n, size_t pos, uint64_t *bad, const _Bool tail, const int digits, const _Bool apart)
{
    int len = 0;
    size_t e;
    uint8_t c = class_at(s, n, pos, &len);
    if (c == STOP)
        return tok_split_invalid(s, n, pos, bad);
    if (apart && tok_split_is_han(s, n, pos)) {
        for (e = pos; e < n && tok_split_is_han(s, n, e);)
            e += s[e] < 0xf0 ? 3 : 4;
        return e;
    }
    e = word(s, n, pos, c, len, tail, apart);
    if (e > pos)
        return e;
    if (c & NUMBER) {
        e = pos + (size_t)len;
        for (int i = 1; i < digits && class_at(s, n, e, &len) & NUMBER; i++)
            e += (size_t)len;
        return e;
    }
    if (s[pos] == ' ' && (e = others(s, n, pos + 1, !apart)) > pos + 1)
        return e;
    if (c & OTHER)
        return others(s, n, pos, !apart);
    return spaces(s, n, pos);
}

size_t tok_split_next(const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    tok_class_init();
    return next(s, n, pos, bad, 1, 3, 0);
}

size_t tok_split_tekken(const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    tok_class_init();
    return next(s, n, pos, bad, 0, 1, 0);
}

size_t tok_split_kimi(const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    tok_class_init();
    return next(s, n, pos, bad, 1, 3, 1);
}

/* A space can only begin a piece or lie among white space, so after a visible
 * character it begins one.  After a line feed only CR, LF, "/" and white space
 * can belong to the same piece.  No branch looks at what comes before it, and
 * the only look-ahead, (?!\S), concerns white space, which ends neither kind
 * of left part without a break. */
size_t tok_split_cut(const uint8_t *s, size_t n, size_t from)
{
    for (size_t i = from; i < n; i++) {
        uint8_t a = s[i - 1], b = s[i];
        if (b == ' ' && a > ' ' && a < 0x7f)
            return i;
        if (a == '\n' && b > ' ' && b < 0x7f && b != '/')
            return i;
    }
    return n;
}
