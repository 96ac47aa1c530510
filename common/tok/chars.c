/* chars.c -- white space, numbers and UTF-8, one character at a time. */
#include "tok/chars.h"

#include <string.h>
#include <utf8proc.h>

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
    uint64_t eight;
    for (int len; i < n; i += (size_t)len) {
        if (s[i] >= 0x80) {
            if ((len = tok_utf8_char(s + i, n - i, &c)) == 0)
                break;
        } else {
            len = n - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0) ? 8 : 1;
        }
    }
    return i;
}
