/* split_class.h -- classes of characters, and the walks that the compiled splits
 * share; for them alone. */
#ifndef TOK_SPLIT_CLASS_H
#define TOK_SPLIT_CLASS_H

#include <stddef.h>
#include <stdint.h>

#include "tok/chars.h"
#include "tok/split.h"

/* Bits of a character's class.  A character is a LETTER, a NUMBER, SPACE or
 * OTHER, so none has no bit. */
enum {
    IN_U = 1,           /* Lu Lt Lm Lo M */
    IN_W = 2,           /* Ll Lm Lo M */
    LETTER = 4,
    NUMBER = 8,
    SPACE = 16,         /* White_Space */
    BREAK = 32,         /* CR or LF, which are SPACE too */
    OTHER = 64,         /* [^\s\p{L}\p{N}]: marks are OTHER too */
    SIGN = 128,         /* P or S, which are OTHER too */
    STOP = 0,           /* end of the text, or a byte that is no UTF-8 */
};

extern uint16_t tok_class_block[0x110000 / 256];
extern uint8_t tok_class_blocks[][256];

/* Before the first look-up. */
void tok_class_init(void);

/* The class of the character at pos and its length. */
static inline uint8_t class_at(const uint8_t *s, size_t n, size_t pos, int *len)
{
    uint32_t cp;
    if (pos >= n)
        return STOP;
    if (s[pos] < 0x80) {
        *len = 1;
        return tok_class_blocks[0][s[pos]];
    }
    *len = tok_utf8_char(s + pos, n - pos, &cp);
    return *len == 0 ? STOP : tok_class_blocks[tok_class_block[cp >> 8]][cp & 255];
}

/* The end of the run of bytes that are no UTF-8 at pos; *bad is increased. */
size_t tok_split_invalid(const uint8_t *s, size_t n, size_t pos, uint64_t *bad);

/* As tok_split_next(), without C and with \p{N} for \p{N}{1,3}. */
size_t tok_split_tekken(const uint8_t *s, size_t n, size_t pos, uint64_t *bad);

/* [\p{Han}]+ first, U and W without Han, and no "/" after line feeds. */
size_t tok_split_kimi(const uint8_t *s, size_t n, size_t pos, uint64_t *bad);
/* Before the first question, which is about the character at pos < n. */
void tok_split_han_init(void);
_Bool tok_split_is_han(const uint8_t *s, size_t n, size_t pos);

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)? at pos: its end. */
size_t tok_split_contraction(const uint8_t *s, size_t n, size_t pos);

#endif
