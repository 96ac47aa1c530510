/* test_tok_split.c -- the hand-compiled split beside PCRE2 with the same expression.
 *
 * PCRE2 is loaded at run time, so that the build does not need it; without it
 * the comparison is skipped with the reason.  Two differences in the classes
 * themselves are kept out: U+180E, which PCRE2 counts as white space, and
 * characters whose general category the two libraries' Unicode versions give
 * differently. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tok/chars.h"
#include "tok/split.h"

static uint64_t counter;
static uint32_t dice(uint32_t n)
{
    uint32_t w[4];
    struct rng_key key = {{ 2024, 7 }};
    rng_block(key, counter++, 0, w);
    return w[0] % n;
}

static size_t put_char(uint8_t *p, uint32_t c)
{
    if (c < 0x80) {
        p[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (uint8_t)(0xc0 | c >> 6);
        p[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (uint8_t)(0xe0 | c >> 12);
        p[1] = (uint8_t)(0x80 | (c >> 6 & 63));
        p[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    p[0] = (uint8_t)(0xf0 | c >> 18);
    p[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    p[2] = (uint8_t)(0x80 | (c >> 6 & 63));
    p[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

/* ---- PCRE2, its 8-bit interface as its manual states it */
enum { UTF_FLAG = 0x00080000, UCP_FLAG = 0x00020000, ANCHORED_FLAG = (int)0x80000000u, NO_CHECK = 0x40000000 };
struct pcre {
    void *(*compile)(const unsigned char *, size_t, uint32_t, int *, size_t *, void *);
    void *(*match_data)(void *, void *);
    int (*match)(void *, const unsigned char *, size_t, size_t, uint32_t, void *, void *);
    size_t *(*ovector)(void *);
    void (*free_code)(void *), (*free_data)(void *);
};

static _Bool pcre_load(struct pcre *p)
{
    void *h = dlopen("libpcre2-8.so.0", RTLD_NOW);
    if (h == NULL)
        return 0;
    *(void **)&p->compile = dlsym(h, "pcre2_compile_8");
    *(void **)&p->match_data = dlsym(h, "pcre2_match_data_create_from_pattern_8");
    *(void **)&p->match = dlsym(h, "pcre2_match_8");
    *(void **)&p->ovector = dlsym(h, "pcre2_get_ovector_pointer_8");
    *(void **)&p->free_code = dlsym(h, "pcre2_code_free_8");
    *(void **)&p->free_data = dlsym(h, "pcre2_match_data_free_8");
    return p->free_code != NULL && p->free_data != NULL && p->compile != NULL && p->match_data != NULL && p->match != NULL && p->ovector != NULL;
}

static void *pcre_make(const struct pcre *p, const char *re)
{
    int err;
    size_t at;
    void *code = p->compile((const unsigned char *)re, strlen(re), UTF_FLAG | UCP_FLAG, &err, &at, NULL);
    assert_non_null(code);
    return code;
}

/* A class as seen through pieces: does c join a number, a run of white space, a
 * word in lower case, a word in upper case? */
static int our_class(uint32_t c)
{
    uint8_t s[16];
    uint64_t bad = 0;
    size_t n = put_char(s, c);
    memmove(s + 1, s, n);
    s[0] = '1';
    size_t two = tok_split_next(s, n + 1, 0, &bad);
    put_char(s + 1, c);
    s[0] = '\t';
    s[n + 1] = '\n';
    size_t three = tok_split_next(s, n + 2, 0, &bad);
    s[0] = 'a';
    size_t four = tok_split_next(s, n + 1, 0, &bad);
    s[0] = 'A';
    size_t five = tok_split_next(s, n + 1, 0, &bad);
    return (two > 1 ? 1 : 0) | (three == n + 2 ? 2 : 0) | (four > 1 ? 4 : 0) | (five > 1 ? 8 : 0);
}

static int their_class(const struct pcre *p, void *code, void *md, uint32_t c)
{
    uint8_t s[16];
    size_t n = put_char(s + 1, c);
    int r = 0;
    size_t *ov = p->ovector(md);
    s[0] = '1';
    if (p->match(code, s, n + 1, 0, 0, md, NULL) > 0 && ov[1] > 1)
        r |= 1;
    s[0] = '\t';
    s[n + 1] = '\n';
    if (p->match(code, s, n + 2, 0, 0, md, NULL) > 0 && ov[1] == n + 2)
        r |= 2;
    s[0] = 'a';
    if (p->match(code, s, n + 1, 0, 0, md, NULL) > 0 && ov[1] > 1)
        r |= 4;
    s[0] = 'A';
    if (p->match(code, s, n + 1, 0, 0, md, NULL) > 0 && ov[1] > 1)
        r |= 8;
    return r;
}

static void compare(const struct pcre *p, void *code, void *md, const uint8_t *s, size_t n)
{
    uint64_t bad = 0;
    size_t *ov = p->ovector(md);
    for (size_t pos = 0; pos < n;) {
        assert_true(p->match(code, s, n, pos, NO_CHECK, md, NULL) > 0);
        assert_int_equal(ov[0], pos);
        size_t e = tok_split_next(s, n, pos, &bad);
        if (e != ov[1]) {
            print_message("at %zu of:", pos);
            for (size_t i = 0; i < n; i++)
                print_message(" %02x", s[i]);
            print_message("\n");
        }
        assert_int_equal(e, ov[1]);
        pos = e;
    }
    assert_int_equal(bad, 0);
}

static void pieces_equal_those_of_pcre2(void **state)
{
    (void)state;
    struct pcre p;
    if (!pcre_load(&p)) {
        puts("skip: libpcre2-8.so.0 is not here (Debian: libpcre2-8-0): nothing to compare with");
        skip();
    }
    void *code = pcre_make(&p, tok_split_o200k);
    void *md = p.match_data(code, NULL);

    /* One representative (and all) of every kind, adversarially mixed. */
    static const uint32_t few[] = {
        'a', 'A', 'z', 'S', 's', 't', 'r', 'e', 'v', 'l', 'm', 'd', 'D', 'L', '\'', '\'', '\'', ' ', ' ', ' ', '\n', '\r',
        '\t', '/', '/', '.', '!', '1', '2', 0x17f, 0x301, 0x301, 0x2b0, 0x5d0, 0x4e00, 0x1c5, 0xdf, 0xe9, 0xc9, 0x85,
        0xa0, 0x2028, 0x3000, 0x660, 0x2163, 0xbd, 0x1f600, 0x200d, 0x200b, 0x903, 0x20dd, 0xfffd, 0x10ffff, 0, 0x1c, 0x7f,
    };
    enum { N_FEW = sizeof few / sizeof *few };
    uint8_t s[512];
    for (int round = 0; round < 60000; round++) {
        size_t n = 0;
        uint32_t len = 1 + dice(round % 100 == 0 ? 100 : 10), kinds = 1 + dice(N_FEW), base = dice(N_FEW);
        for (uint32_t i = 0; i < len; i++)
            n += put_char(s + n, few[(base + dice(kinds)) % N_FEW]);
        compare(&p, code, md, s, n);
    }

    /* Every character, where both know it alike. */
    uint32_t *known = malloc(0x110000 * sizeof *known);
    assert_non_null(known);
    uint32_t n_known = 0, differ = 0;
    for (uint32_t c = 1; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000)
            continue;
        if (our_class(c) == their_class(&p, code, md, c))
            known[n_known++] = c;
        else
            differ++;
    }
    print_message("%u characters alike, %u differ in class (other Unicode version, U+180E)\n", n_known, differ);
    assert_true(differ < 6000);
    for (int round = 0; round < 60000; round++) {
        size_t n = 0;
        uint32_t len = 1 + dice(12), wide = dice(3);
        for (uint32_t i = 0; i < len; i++)
            n += put_char(s + n, dice(2) == 0 ? few[dice(N_FEW)]
                                              : known[dice(wide == 0 ? 0x500 : wide == 1 ? 0x3000 : n_known)]);
        compare(&p, code, md, s, n);
    }
    free(known);
    p.free_data(md);
    p.free_code(code);
}

static size_t pieces(const char *text, size_t n, char *out, size_t cap)
{
    uint64_t bad = 0;
    size_t k = 0, count = 0;
    for (size_t pos = 0; pos < n; count++) {
        size_t e = tok_split_next((const uint8_t *)text, n, pos, &bad);
        assert_true(e > pos && e <= n && k + e - pos + 2 < cap);
        memcpy(out + k, text + pos, e - pos);
        k += e - pos;
        out[k++] = '|';
        pos = e;
    }
    out[k] = '\0';
    return count;
}

static void known_texts_are_cut_as_known(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "Hello world", "Hello| world|" },
        { "it's IT'S we'LLama 'tis", "it's| IT'S| we'LL|ama| '|tis|" },
        { "HTTPServer", "HTTPServer|" },
        { "camelCase XMLHttp", "camel|Case| XMLHttp|" },
        { "12345 6", "123|45| |6|" },
        { "a\n  b", "a|\n| | b|" },
        { "a \n \n  ", "a| \n \n|  |" },
        { "x...//\n\ny", "x|...//\n\n|y|" },
        { " !?", " !?|" },
        { "it'\xc5\xbf", "it'\xc5\xbf|" },
        { "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87",
          "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87|" },
        { "a\xff\xfe" "b", "a|\xff\xfe|b|" },
        { "  \xff", "  |\xff|" },
        { "a\xe2\x82", "a|\xe2\x82|" },
    };
    char out[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pieces(cases[i][0], strlen(cases[i][0]), out, sizeof out);
        assert_string_equal(out, cases[i][1]);
    }
}

static void invalid_utf8_is_told_from_valid(void **state)
{
    (void)state;
    static const struct { const char *s; int len; } cases[] = {
        { "\xc0\x80", 0 }, { "\xc1\xbf", 0 }, { "\xc2\x80", 2 }, { "\xe0\x9f\xbf", 0 }, { "\xe0\xa0\x80", 3 },
        { "\xed\xa0\x80", 0 }, { "\xed\x9f\xbf", 3 }, { "\xee\x80\x80", 3 }, { "\xf0\x8f\xbf\xbf", 0 },
        { "\xf0\x90\x80\x80", 4 }, { "\xf4\x8f\xbf\xbf", 4 }, { "\xf4\x90\x80\x80", 0 }, { "\xf5\x80\x80\x80", 0 },
        { "\x80", 0 }, { "\xe2\x82", 0 }, { "\xf0\x9f\x98", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t cp;
        assert_int_equal(tok_utf8_char((const uint8_t *)cases[i].s, strlen(cases[i].s), &cp), cases[i].len);
    }
}

/* Random text, valid and not, cut at every place that tok_split_cut() offers. */
static void texts_cut_at_safe_places_give_the_same_pieces(void **state)
{
    (void)state;
    static const char alphabet[] = "aB1 \n\r/.'s\t \xc3\xa9\xff";
    uint8_t s[64];
    int cuts = 0;
    for (int round = 0; round < 40000; round++) {
        size_t n = 2 + dice(40), at[2][80], k[2] = { 0, 0 };
        uint64_t bad = 0;
        for (size_t i = 0; i < n; i++)
            s[i] = (uint8_t)alphabet[dice(sizeof alphabet - 1)];
        size_t cut = tok_split_cut(s, n, 1 + dice((uint32_t)n - 1));
        cuts += cut < n;
        for (size_t pos = 0; pos < n; at[0][k[0]++] = pos)
            pos = tok_split_next(s, n, pos, &bad);
        for (size_t pos = 0; pos < cut; at[1][k[1]++] = pos)
            pos = tok_split_next(s, cut, pos, &bad);
        for (size_t pos = cut; pos < n; at[1][k[1]++] = pos)
            pos = cut + tok_split_next(s + cut, n - cut, pos - cut, &bad);
        assert_int_equal(k[0], k[1]);
        assert_memory_equal(at[0], at[1], k[0] * sizeof at[0][0]);
    }
    assert_true(cuts > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_equal_those_of_pcre2),
        cmocka_unit_test(known_texts_are_cut_as_known),
        cmocka_unit_test(invalid_utf8_is_told_from_valid),
        cmocka_unit_test(texts_cut_at_safe_places_give_the_same_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
