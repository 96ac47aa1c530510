/* bytelevel.c -- the ByteLevel alphabet, computed instead of stored. */
#include "tok/bytelevel.h"

#include "tok/chars.h"

static _Bool shows_itself(uint32_t b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

/* The hidden bytes are 0-32, 127-160 and 173, in this order. */
uint32_t tok_byte_char(uint8_t byte)
{
    if (shows_itself(byte))
        return byte;
    if (byte <= 32)
        return 0x100u + byte;
    return byte == 173 ? 0x100 + 67 : 0x100 + 33 + (byte - 127u);
}

int tok_char_byte(uint32_t c)
{
    if (c < 256)
        return shows_itself(c) ? (int)c : -1;
    c -= 256;
    if (c < 33)
        return (int)c;
    if (c < 67)
        return (int)(127 + c - 33);
    return c == 67 ? 173 : -1;
}

uint8_t tok_byte_of_order(int i)
{
    if (i < 94)
        return (uint8_t)(33 + i);
    if (i < 106)
        return (uint8_t)(161 + i - 94);
    if (i < 188)
        return (uint8_t)(174 + i - 106);
    return (uint8_t)tok_char_byte(0x100 + (uint32_t)i - 188);
}

size_t tok_bytes_show(const uint8_t *s, size_t n, char *dst)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t c = tok_byte_char(s[i]);
        if (c < 0x80) {
            dst[k++] = (char)c;
        } else {
            dst[k++] = (char)(0xc0 | c >> 6);
            dst[k++] = (char)(0x80 | (c & 63));
        }
    }
    return k;
}

int64_t tok_bytes_read(const char *s, size_t n, uint8_t *dst)
{
    int64_t k = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        int len = tok_utf8_char((const uint8_t *)s + i, n - i, &c), b;
        if (len == 0 || (b = tok_char_byte(c)) < 0)
            return -1;
        dst[k++] = (uint8_t)b;
        i += (size_t)len;
    }
    return k;
}
