/* chars.c -- white space, numbers and UTF-8, one character at a time. */
#include "tok/chars.h"

#include <utf8proc.h>

#include "tok/split.h"

_Bool tok_char_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

_Bool tok_char_number(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

size_t tok_char_put(uint32_t c, uint8_t *dst)
{
    if (c < 0x80) {
        dst[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (uint8_t)(0xc0 | c >> 6);
        dst[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (uint8_t)(0xe0 | c >> 12);
        dst[1] = (uint8_t)(0x80 | (c >> 6 & 63));
        dst[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    dst[0] = (uint8_t)(0xf0 | c >> 18);
    dst[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    dst[2] = (uint8_t)(0x80 | (c >> 6 & 63));
    dst[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

size_t tok_chars_valid(const uint8_t *s, size_t n)
{
    size_t i = 0;
    uint32_t c;
    for (int len; i < n && (len = tok_utf8_char(s + i, n - i, &c)) > 0; i += (size_t)len)
        ;
    return i;
}
