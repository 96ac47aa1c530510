/* split_mask.c -- masks without the help of wide registers, and the choice of a
 * kernel. */
#include "tok/split_mask.h"

enum { A_LETTER = 1, A_UPPER = 2, A_NUMBER = 4, A_SPACE = 8, A_BREAK = 16, A_BLANK = 32, A_APOS = 64, A_SLASH = 128 };

static inline uint64_t class_of(uint8_t c)
{
    uint64_t k = (uint8_t)((c | 0x20) - 'a') < 26 ? A_LETTER : 0;
    if ((uint8_t)(c - 'A') < 26)
        k |= A_UPPER;
    if ((uint8_t)(c - '0') < 10)
        k |= A_NUMBER;
    if ((uint8_t)(c - 9) < 5 || c == ' ')
        k |= A_SPACE | (c == '\r' || c == '\n' ? A_BREAK : c == ' ' ? A_BLANK : 0);
    return k | (c == '\'' ? A_APOS : c == '/' ? A_SLASH : 0);
}

/* Bit k of each of eight bytes, gathered: byte i goes to bit i. */
static inline uint64_t gather(uint64_t x, int k)
{
    return ((x >> k & 0x0101010101010101u) * 0x0102040810204080u) >> 56;
}

void tok_mask_portable(const uint8_t *s, size_t n_blocks, struct tok_block *out)
{
    for (; n_blocks > 0; n_blocks--, out++) {
        struct tok_block b = { 0 };
        for (int i = 0; i < 64; i += 8, s += 8) {
            uint64_t x = 0, high = 0, control = 0;
            for (int j = 0; j < 8; j++) {
                x |= class_of(s[j]) << 8 * j;
                high |= (uint64_t)(s[j] >> 7) << j;
                control |= (uint64_t)(s[j] < ' ' || s[j] == 0x7f) << j;
            }
            b.letter |= gather(x, 0) << i;
            b.upper |= gather(x, 1) << i;
            b.number |= gather(x, 2) << i;
            b.space |= gather(x, 3) << i;
            b.brk |= gather(x, 4) << i;
            b.blank |= gather(x, 5) << i;
            b.apos |= gather(x, 6) << i;
            b.slash |= gather(x, 7) << i;
            b.high |= high << i;
            b.control |= control << i;
        }
        b.control &= ~b.space;
        b.other = ~(b.letter | b.number | b.space | b.high);
        *out = b;
    }
}

tok_mask_ascii *tok_mask_kernel(int i)
{
    tok_mask_ascii *const all[] = { tok_mask_avx512(), tok_mask_avx2(), tok_mask_portable };
    for (int k = 0; k < 3; k++)
        if (all[k] != NULL && i-- == 0)
            return all[k];
    return NULL;
}
