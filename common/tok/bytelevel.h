/* bytelevel.h -- the ByteLevel alphabet: 256 visible characters for 256 bytes.
 *
 * Bytes 33-126, 161-172 and 174-255 are the characters of the same number; the
 * other 68 are, in byte order, U+0100 and what follows (space is U+0120). */
#ifndef TOK_BYTELEVEL_H
#define TOK_BYTELEVEL_H

#include <stddef.h>
#include <stdint.h>

/* The character (< 0x144) of a byte, and the byte of a character or -1. */
uint32_t tok_byte_char(uint8_t byte);
int tok_char_byte(uint32_t c);

/* The byte whose character is the i-th smallest (0 <= i < 256): the order in
 * which trained vocabularies number the bytes. */
uint8_t tok_byte_of_order(int i);

/* Writes the characters of n bytes as UTF-8 into dst (2 n bytes); returns the length. */
size_t tok_bytes_show(const uint8_t *s, size_t n, char *dst);

/* Reads such text back into dst (n bytes); returns the number of bytes or -1
 * when a character is not of the alphabet. */
int64_t tok_bytes_read(const char *s, size_t n, uint8_t *dst);

#endif
