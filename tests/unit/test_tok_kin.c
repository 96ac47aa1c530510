/* test_tok_kin.c -- every compiled split beside the general way with the same expression, and
 * its pieces found by bits beside those found one by one.
 *
 * Both sides take their characters from one table, so every character may be compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tok/chars.h"
#include "tok/regex.h"
#include "tok/split_kin.h"
#include "tok/split_window.h"
#include "tok/steps.h"

static _Bool plain_text;

static uint64_t counter;
static uint32_t dice(uint32_t n)
{
    uint32_t w[4];
    struct rng_key key = {{ 2025, 11 }};
    rng_block(key, counter++, 0, w);
    return w[0] % n;
}

static const uint32_t few[] = {
    'a', 'A', 'z', 'S', 's', 't', 'r', 'e', 'v', 'l', 'm', 'd', 'D', 'L', '\'', '\'', '\'', ' ', ' ', ' ', '\n', '\r', '\n', ' ',
    '\t', '/', '/', '.', '!', '1', '2', '(', 0x17f, 0x301, 0x301, 0x2b0, 0x5d0, 0x4e00, 0x1c5, 0xdf, 0xe9, 0xc9, 0x85,
    0xa0, 0x2028, 0x3000, 0x660, 0x2163, 0xbd, 0x1f600, 0x200d, 0x200b, 0x903, 0x20dd, 0xfffd, 0x10ffff, 0, 0x1c, 0x7f,
    0x3007, 0x2e80, 0x3005, 0x3042, 0x30a2, 0x9fa5, 0x9fa6, 0xac00, 0x20000, 0x391, 0x3b1, 0x410, 0x430, 0xab, 0x2014,
};
/* What the texts of Europe consist of: these stay within what bits know. */
static const uint32_t plain[] = {
    'a', 'b', 's', 't', 'l', 'e', 'A', 'S', 'L', ' ', ' ', ' ', ' ', '\n', '\n', '\r', '\t', '.', ',', '\'', '\'', '/', '(', '-', '1', '2', '3',
    0xe9, 0xc9, 0x3b1, 0x391, 0x430, 0xa0, 0x202f, 0x17f, 0xab, 0x2014, 0x1e9e,
};
enum { N_FEW = sizeof few / sizeof *few, N_PLAIN = sizeof plain / sizeof *plain, LONG = 5000 };

static size_t make_text(uint8_t *s, size_t most, int kind)
{
    size_t n = 0, len = 1 + dice((uint32_t)most);
    uint32_t kinds = 1 + dice(kind == 0 ? N_PLAIN : N_FEW), base = dice(N_FEW);
    while (n < len) {
        uint32_t c = kind == 0 ? plain[(base + dice(kinds)) % N_PLAIN] : kind == 1 ? few[(base + dice(kinds)) % N_FEW]
                     : dice(2) == 0 ? few[dice(N_FEW)] : dice(dice(2) == 0 ? 0x3100 : 0x110000);
        if (c >= 0xd800 && c < 0xe000)
            continue;
        n += tok_char_put(c, s + n);
    }
    return n;
}

struct scheme { const struct tok_split *k; struct tok_pre pre[3]; int n_pre; };

static const char *const deepseek[] = {
    "\\p{N}{1,3}",
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

/* The i-th scheme; false after the last, which is the one of three steps. */
static _Bool scheme(int i, struct scheme *x)
{
    enum tok_dialect d = TOK_ONIG;
    const char *e = tok_split_known(i, &d);
    memset(x, 0, sizeof *x);
    if (e == NULL && i > 0 && tok_split_known(i - 1, &d) == NULL)
        return 0;
    d = e == NULL ? TOK_ONIG : d;
    x->n_pre = e == NULL ? 3 : 1;
    for (int j = 0; j < x->n_pre; j++) {
        x->pre[j] = (struct tok_pre){ .kind = TOK_SPLIT, .behavior = TOK_ISOLATED, .expression = e == NULL ? deepseek[j] : e };
        assert_int_equal(tok_regex_new("test", x->pre[j].expression, strlen(x->pre[j].expression), d, &x->pre[j].re), 0);
    }
    x->k = tok_split_find(x->pre, x->n_pre, d);
    assert_non_null(x->k);
    return 1;
}

static void scheme_end(struct scheme *x)
{
    for (int j = 0; j < x->n_pre; j++)
        tok_regex_free(x->pre[j].re);
}

static void show(const struct scheme *x, const uint8_t *s, size_t n, size_t at)
{
    print_message("%s (%s), at %zu of:", x->k->name, x->pre[0].expression, at);
    for (size_t i = 0; i < n; i++)
        print_message(" %02x", s[i]);
    print_message("\n");
}

static void pieces_are_those_of_the_expression(void **state)
{
    (void)state;
    struct tok_regex_mem *mem = tok_regex_mem_new();
    struct arena *a = arena_new();
    struct scheme x;
    uint8_t s[512];
    int i = 0;
    for (; scheme(i, &x); i++) {
        for (int round = 0; round < 12000; round++) {
            struct tok_pieces p = { 0 };
            size_t n = make_text(s, round % 100 == 0 ? 300 : 30, round % 3), pos = 0;
            uint64_t bad = 0;
            tok_pieces_put(&p, s, n, 1);
            assert_int_equal(tok_steps_cut(x.pre, x.n_pre, mem, a, &p), 0);
            for (size_t k = 0; k < p.n; k++) {
                size_t end = x.k->next(x.k, s, n, pos, &bad);
                if (p.v[k].s != s + pos || p.v[k].n != end - pos)
                    show(&x, s, n, pos);
                assert_true(p.v[k].s == s + pos && p.v[k].n == end - pos);
                pos = end;
            }
            assert_int_equal(pos, n);
            free(p.v);
        }
        scheme_end(&x);
    }
    assert_true(i > 15);
    arena_free(a);
    tok_regex_mem_free(mem);
}

static void pieces_found_by_bits_are_the_same(void **state)
{
    (void)state;
    struct scheme x;
    static uint8_t s[LONG + 4];
    static uint16_t end[TOK_WINDOW_MAX], other[TOK_WINDOW_MAX];
    for (int i = 0; scheme(i, &x); i++) {
        int known = 0;
        for (int round = 0; round < 3000; round++) {
            size_t n = make_text(s, round % 10 == 0 ? LONG : round % 2 == 0 ? 40 : 200, round % 4 == 3), pos = 0;
            uint64_t bad = 0;
            size_t m = tok_split_window(x.k, tok_mask_portable, s, n, end, &plain_text);
            for (int j = 0; tok_mask_kernel(j) != NULL; j++) {
                assert_int_equal(tok_split_window(x.k, tok_mask_kernel(j), s, n, other, &plain_text), m);
                assert_memory_equal(end, other, m * sizeof *end);
            }
            known += m > 0;
            for (size_t k = 0; k < m; pos = end[k++]) {
                size_t e = x.k->next(x.k, s, n, pos, &bad);
                if (e != end[k])
                    show(&x, s, n, pos);
                assert_int_equal(e, end[k]);
            }
            assert_true(m == 0 || pos == n);
        }
        assert_true(x.k->form == TOK_FORM_OTHER || known > 1500);
        scheme_end(&x);
    }
}

static size_t ends_of(const struct scheme *x, const uint8_t *s, size_t n, size_t add, size_t *end)
{
    uint64_t bad = 0;
    size_t k = 0;
    for (size_t pos = 0; pos < n; end[k++] = add + pos)
        pos = x->k->next(x->k, s, n, pos, &bad);
    return k;
}

static void texts_cut_at_safe_places_give_the_same_pieces(void **state)
{
    (void)state;
    static const char *const parts[] = { "a", "B", "1", " ", " ", "\n", "\r", "/", ".", "'s", "\t", "\xc3\xa9", "\xff", "\xe5\xad\x97", "\xe3\x80\x82", "\xe3\x80\x81",
                                         "\xef\xbc\x8c", "\xe4\xb7\x80", "\xe3\x81\x82", "\xcc\x81", "\xe9\xbf\xbf", "\xc2\xa0" };
    struct scheme x;
    for (int i = 0; scheme(i, &x); i++) {
        int cuts = 0;
        for (int round = 0; round < 20000; round++) {
            uint8_t s[256];
            size_t n = 0, whole[256], two[256];
            for (uint32_t k = 2 + dice(40); k > 0; k--) {
                const char *p = parts[dice(sizeof parts / sizeof *parts)];
                memcpy(s + n, p, strlen(p));
                n += strlen(p);
            }
            size_t cut = n > 1 ? tok_split_kin_cut(x.k, s, n, 1 + dice((uint32_t)n - 1)) : n;
            cuts += cut < n;
            size_t k = ends_of(&x, s, n, 0, whole), m = ends_of(&x, s, cut, 0, two);
            m += ends_of(&x, s + cut, n - cut, cut, two + m);
            if (k != m || memcmp(whole, two, k * sizeof *two) != 0)
                show(&x, s, n, cut);
            assert_int_equal(k, m);
            assert_memory_equal(whole, two, k * sizeof *two);
        }
        assert_true(cuts > 1000);
        scheme_end(&x);
    }
}

static void windows_refuse_what_they_do_not_know(void **state)
{
    (void)state;
    struct scheme x;
    uint16_t end[TOK_WINDOW_MAX];
    static uint8_t many[TOK_WINDOW_MAX + 1];
    memset(many, 'a', sizeof many);
    for (int i = 0; scheme(i, &x); i++) {
        static const char *const bad[] = { "a\xff", "\xc3", "ab\xe2\x82", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80", "x\xf4\x90\x80\x80" };
        for (size_t j = 0; j < sizeof bad / sizeof *bad; j++)
            assert_int_equal(tok_split_window(x.k, tok_mask_portable, (const uint8_t *)bad[j], strlen(bad[j]), end, &plain_text), 0);
        assert_int_equal(tok_split_window(x.k, tok_mask_portable, many, sizeof many, end, &plain_text), 0);
        assert_int_equal(tok_split_window(x.k, tok_mask_portable, many, 0, end, &plain_text), 0);
        scheme_end(&x);
    }
}

static void a_class_in_a_class_is_their_union_or_refused(void **state)
{
    (void)state;
    static const char *const fine[] = { "[a[bc]]+", "[^(\\s|[.,]d]", "[[ab]c]" };
    static const char *const refused[] = { "[a[b[c]]]", "[a-[b]]", "[a[^b]]", "[[a]-z]", "[a[b-]]", "[a[-b]]", "[[:alpha:]]", "[a[b", "[a[b]", "[a[b&&[^c]]]" };
    char *out;
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        assert_int_equal(tok_regex_translate("test", fine[i], strlen(fine[i]), TOK_ONIG, &out), 0);
        free(out);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_true(tok_regex_translate("test", refused[i], strlen(refused[i]), TOK_ONIG, &out) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_those_of_the_expression),
        cmocka_unit_test(pieces_found_by_bits_are_the_same),
        cmocka_unit_test(texts_cut_at_safe_places_give_the_same_pieces),
        cmocka_unit_test(a_class_in_a_class_is_their_union_or_refused),
        cmocka_unit_test(windows_refuse_what_they_do_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
