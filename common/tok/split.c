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
#include <string.h>
#include <utf8proc.h>

#include "base/err.h"

const char tok_split_o200k[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Bits of a character's class. */
enum {
    IN_U = 1,           /* Lu Lt Lm Lo M */
    IN_W = 2,           /* Ll Lm Lo M */
    LETTER = 4,
    NUMBER = 8,
    SPACE = 16,         /* White_Space */
    BREAK = 32,         /* CR or LF, which are SPACE too */
    OTHER = 64,         /* [^\s\p{L}\p{N}]: marks are OTHER too */
    STOP = 128,         /* end of the text, or a byte that is no UTF-8 */
};

/* Classes of all characters in two levels: blocks of 256 of which few differ,
 * about 60 KiB that stay in the cache. */
enum { N_BLOCKS = 0x110000 / 256, MAX_BLOCKS = 512 };
static uint16_t block_of[N_BLOCKS];
static uint8_t blocks[MAX_BLOCKS][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static _Bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

static uint8_t classify(uint32_t c)
{
    if (is_space(c))
        return c == '\r' || c == '\n' ? SPACE | BREAK : SPACE;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return IN_U | LETTER;
    case UTF8PROC_CATEGORY_LL:
        return IN_W | LETTER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return IN_U | IN_W | LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return IN_U | IN_W | OTHER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NUMBER;
    default:
        return OTHER;
    }
}

static void make_table(void)
{
    int n = 0;
    for (int b = 0; b < N_BLOCKS; b++) {
        uint8_t block[256];
        int i;
        for (i = 0; i < 256; i++)
            block[i] = classify((uint32_t)(b * 256 + i));
        for (i = 0; i < n && memcmp(blocks[i], block, 256) != 0; i++)
            ;
        if (i == n) {
            BUG_ON(n == MAX_BLOCKS);
            memcpy(blocks[n++], block, 256);
        }
        block_of[b] = (uint16_t)i;
    }
}

int tok_utf8_char(const uint8_t *s, size_t n, uint32_t *cp)
{
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    if (n < 2 || (s[1] & 0xc0) != 0x80)
        return 0;
    if (s[0] < 0xe0) {
        *cp = (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
        return 2;
    }
    if (n < 3 || (s[2] & 0xc0) != 0x80)
        return 0;
    if (s[0] < 0xf0) {
        *cp = (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
        return *cp < 0x800 || (*cp >= 0xd800 && *cp < 0xe000) ? 0 : 3;
    }
    if (n < 4 || (s[3] & 0xc0) != 0x80)
        return 0;
    *cp = (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 |
          (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3f);
    return *cp < 0x10000 || *cp > 0x10ffff ? 0 : 4;
}

/* The class of the character at pos and its length. */
static inline uint8_t class_at(const uint8_t *s, size_t n, size_t pos, int *len)
{
    uint32_t cp;
    if (pos >= n)
        return STOP;
    if (s[pos] < 0x80) {
        *len = 1;
        return blocks[0][s[pos]];
    }
    *len = tok_utf8_char(s + pos, n - pos, &cp);
    return *len == 0 ? STOP : blocks[block_of[cp >> 8]][cp & 255];
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)? : no alternative begins another, so the first
 * that fits is the only one.  U+017F folds to s. */
static size_t contraction(const uint8_t *s, size_t n, size_t pos)
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

/* U*W+ from pos; pos when there is none.  U* takes all it can to a.  Is there
 * a W at a, W+ goes on from there.  Otherwise U* gives back characters until
 * one of them is a W; that is the last such character, and what follows it is
 * not W, so W+ is this one character.  *upper is a. */
static size_t mixed_word(const uint8_t *s, size_t n, size_t pos, size_t *upper)
{
    size_t a = pos, last = pos, e;
    int len = 0;
    uint8_t c = 0;
    for (; (c = class_at(s, n, a, &len)) & IN_U; a += (size_t)len)
        if (c & IN_W)
            last = a + (size_t)len;
    *upper = a;
    if (!(c & IN_W))
        return last;
    for (e = a; class_at(s, n, e, &len) & IN_W; e += (size_t)len)
        ;
    return e;
}

/* Branches 1 and 2.  When neither form of branch 1 fits, no W stands in or
 * after the run of U, so W* of branch 2 is empty. */
static size_t word(const uint8_t *s, size_t n, size_t pos, uint8_t c, int len)
{
    size_t with = 0, without = 0, e, first = pos + (size_t)len;
    if (!(c & (LETTER | NUMBER | BREAK))) {
        e = mixed_word(s, n, first, &with);
        if (e > first)
            return contraction(s, n, e);
    }
    if (c & (IN_U | IN_W)) {
        e = mixed_word(s, n, pos, &without);
        if (e > pos)
            return contraction(s, n, e);
    }
    if (with > first)
        return contraction(s, n, with);
    if (without > pos)
        return contraction(s, n, without);
    return pos;
}

/* Branch 4 after its optional space; pos when it does not fit. */
static size_t others(const uint8_t *s, size_t n, size_t pos)
{
    size_t e = pos;
    int len;
    while (class_at(s, n, e, &len) & OTHER)
        e += (size_t)len;
    if (e > pos)
        while (e < n && (s[e] == '\r' || s[e] == '\n' || s[e] == '/'))
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

size_t tok_split_next(const uint8_t *s, size_t n, size_t pos, uint64_t *bad)
{
    int len = 0;
    size_t e;
    pthread_once(&table_once, make_table);
    uint8_t c = class_at(s, n, pos, &len);
    if (c == STOP) {
        for (e = pos + 1; e < n && class_at(s, n, e, &len) == STOP; e++)
            ;
        *bad += e - pos;
        return e;
    }
    e = word(s, n, pos, c, len);
    if (e > pos)
        return e;
    if (c & NUMBER) {
        e = pos + (size_t)len;
        for (int i = 1; i < 3 && class_at(s, n, e, &len) & NUMBER; i++)
            e += (size_t)len;
        return e;
    }
    if (s[pos] == ' ' && (e = others(s, n, pos + 1)) > pos + 1)
        return e;
    if (c & OTHER)
        return others(s, n, pos);
    return spaces(s, n, pos);
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
