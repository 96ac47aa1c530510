/* chars.h -- questions about single characters. */
#ifndef TOK_CHARS_H
#define TOK_CHARS_H

#include <stddef.h>
#include <stdint.h>

/* The 25 characters with the property White_Space: \s of Oniguruma and Rust. */
_Bool tok_char_space(uint32_t c);

/* Nd, Nl and No: \p{N}. */
_Bool tok_char_number(uint32_t c);

/* Length of the UTF-8 character at s[0] (n > 0), 0 when the bytes are not one
 * (overlong, surrogate, over U+10FFFF or cut short); *cp when valid. */
int tok_utf8_char(const uint8_t *s, size_t n, uint32_t *cp);

/* Writes c as UTF-8 into dst (4 bytes); returns the length. */
size_t tok_char_put(uint32_t c, uint8_t *dst);

/* The length of the valid UTF-8 at the beginning of s. */
size_t tok_chars_valid(const uint8_t *s, size_t n);

#endif
