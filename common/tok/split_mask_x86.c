/* split_mask_x86.c -- masks by the wide registers of x86-64, chosen at run time. */
#include "tok/split_mask.h"

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx512f,avx512bw")))
static void masks_512(const uint8_t *s, size_t n_blocks, struct tok_block *out)
{
    for (; n_blocks > 0; n_blocks--, out++, s += 64) {
        struct tok_block b = { 0 };
        __m512i x = _mm512_loadu_si512(s);
        __m512i low = _mm512_or_si512(x, _mm512_set1_epi8(0x20));
        b.letter = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(low, _mm512_set1_epi8('a')), _mm512_set1_epi8(26));
        b.upper = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(x, _mm512_set1_epi8('A')), _mm512_set1_epi8(26));
        b.number = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(x, _mm512_set1_epi8('0')), _mm512_set1_epi8(10));
        b.blank = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(' '));
        b.space = b.blank | _mm512_cmplt_epu8_mask(_mm512_sub_epi8(x, _mm512_set1_epi8(9)), _mm512_set1_epi8(5));
        b.brk = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('\n')) | _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('\r'));
        b.apos = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('\''));
        b.slash = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('/'));
        b.high = _mm512_movepi8_mask(x);
        b.control = (_mm512_cmplt_epu8_mask(x, _mm512_set1_epi8(' ')) | _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(0x7f))) & ~b.space;
        b.other = ~(b.letter | b.number | b.space | b.high);
        *out = b;
    }
}

__attribute__((target("avx2")))
static inline uint64_t both(__m256i a, __m256i b)
{
    return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b) << 32;
}

/* from <= x < from + n, where all are below 128: signed comparisons do. */
__attribute__((target("avx2")))
static inline __m256i within(__m256i x, char from, char n)
{
    return _mm256_and_si256(_mm256_cmpgt_epi8(x, _mm256_set1_epi8((char)(from - 1))),
                            _mm256_cmpgt_epi8(_mm256_set1_epi8((char)(from + n)), x));
}

__attribute__((target("avx2")))
static void masks_256(const uint8_t *s, size_t n_blocks, struct tok_block *out)
{
    const __m256i bit5 = _mm256_set1_epi8(0x20);
    for (; n_blocks > 0; n_blocks--, out++, s += 64) {
        struct tok_block b = { 0 };
        __m256i x = _mm256_loadu_si256((const __m256i *)s), y = _mm256_loadu_si256((const __m256i *)(s + 32));
        b.letter = both(within(_mm256_or_si256(x, bit5), 'a', 26), within(_mm256_or_si256(y, bit5), 'a', 26));
        b.upper = both(within(x, 'A', 26), within(y, 'A', 26));
        b.number = both(within(x, '0', 10), within(y, '0', 10));
        b.blank = both(_mm256_cmpeq_epi8(x, bit5), _mm256_cmpeq_epi8(y, bit5));
        b.space = b.blank | both(within(x, 9, 5), within(y, 9, 5));
        b.brk = both(_mm256_cmpeq_epi8(x, _mm256_set1_epi8('\n')), _mm256_cmpeq_epi8(y, _mm256_set1_epi8('\n'))) |
                both(_mm256_cmpeq_epi8(x, _mm256_set1_epi8('\r')), _mm256_cmpeq_epi8(y, _mm256_set1_epi8('\r')));
        b.apos = both(_mm256_cmpeq_epi8(x, _mm256_set1_epi8('\'')), _mm256_cmpeq_epi8(y, _mm256_set1_epi8('\'')));
        b.slash = both(_mm256_cmpeq_epi8(x, _mm256_set1_epi8('/')), _mm256_cmpeq_epi8(y, _mm256_set1_epi8('/')));
        b.high = both(x, y);
        b.control = (both(_mm256_cmpgt_epi8(bit5, x), _mm256_cmpgt_epi8(bit5, y)) & ~b.high & ~b.space) |
                    both(_mm256_cmpeq_epi8(x, _mm256_set1_epi8(0x7f)), _mm256_cmpeq_epi8(y, _mm256_set1_epi8(0x7f)));
        b.other = ~(b.letter | b.number | b.space | b.high);
        *out = b;
    }
}

tok_mask_ascii *tok_mask_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? masks_512 : NULL;
}

tok_mask_ascii *tok_mask_avx2(void)
{
    return __builtin_cpu_supports("avx2") ? masks_256 : NULL;
}

#else

tok_mask_ascii *tok_mask_avx512(void)
{
    return NULL;
}

tok_mask_ascii *tok_mask_avx2(void)
{
    return NULL;
}

#endif
