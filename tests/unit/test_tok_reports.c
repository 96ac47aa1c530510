/* test_tok_reports.c -- inputs on which other programs were publicly reported to fail, each with its kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "tok/bytelevel.h"
#include "tok/encode.h"
#include "tok/vocab.h"
#include "tok_small.h"

static void a_million_of_one_character_takes_a_moment(void **state)
{
    (void)state;
    static const char *const units[] = { "^", "A", " ", "\n", "1", "\xcc\x81", "\xe4\xb8\xad", "\xff", "\xcd\x8f" };
    static const struct tok_small spec = { .normalizer = "{\"type\":\"NFC\"}", .pre = QWEN, .tokens = { "^^", "AA", "AAAA" }, .merges = "\"^ ^\",\"A A\",\"AA AA\"" };
    struct tok_vocab *v = tok_small_new(&spec, 1);
    enum { N = 1000000 };
    char *s = malloc(4 * N);
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        size_t n = strlen(units[k]), len = N / n * n;
        for (size_t i = 0; i < len; i += n)
            memcpy(s + i, units[k], n);
        int32_t one;
        double t0 = clock_s();
        assert_true(tok_small_encode(v, s, len, &one, 1) > 0);
        assert_true(clock_s() - t0 < 20);
    }
    free(s);
    tok_vocab_free(v);
}

static void the_text_of_an_added_token_is_its_content_and_no_map_of_bytes(void **state)
{
    (void)state;
    static const struct tok_small spec = { .pre = QWEN,
        .added = "{\"id\":256,\"content\":\"il\xc3\x96veyou\",\"normalized\":false,\"special\":false},{\"id\":257,\"content\":\"\xc4\x91" "em\",\"normalized\":true,\"special\":false}" };
    struct tok_vocab *v = tok_small_new(&spec, 1);
    tok_small_gives(v, "il\xc3\x96veyou\xc4\x91" "em", 2, (int32_t[]){ 256, 257 });
    tok_small_shows(v, 2, (int32_t[]){ 256, 257 }, "il\xc3\x96veyou\xc4\x91" "em");
    tok_vocab_free(v);
}

static void a_whole_piece_is_looked_up_before_merging_when_the_file_says_so(void **state)
{
    (void)state;
    struct tok_small spec = { .pre = QWEN, .options = ",\"ignore_merges\":true", .tokens = { "\xc4\xa0Vi\xc3\xa1\xc2\xbb\xc4\xa9t" } };
    struct tok_vocab *v = tok_small_new(&spec, 1);
    tok_small_gives(v, " Vi\xe1\xbb\x87t", 1, (int32_t[]){ 256 });
    tok_vocab_free(v);
    spec.options = NULL;
    v = tok_small_new(&spec, 1);
    tok_small_gives(v, " Vi\xe1\xbb\x87t", 7, (int32_t[]){ ' ', 'V', 'i', 0xe1, 0xbb, 0x87, 't' });
    tok_vocab_free(v);
}

static void a_space_survives_the_round_trip(void **state)
{
    (void)state;
    static const struct tok_small spec = { .pre = QWEN, .tokens = { "\xc4\xa0w" }, .merges = "\"\xc4\xa0 w\"" };
    struct tok_vocab *v = tok_small_new(&spec, 1);
    tok_small_gives(v, "o w", 2, (int32_t[]){ 'o', 256 });
    tok_small_shows(v, 2, (int32_t[]){ 'o', 256 }, "o w");
    tok_vocab_free(v);
}

static void a_normalized_added_token_is_found_inside_a_word(void **state)
{
    (void)state;
    static const struct tok_small spec = { .pre = QWEN, .normalizer = "{\"type\":\"Lowercase\"}",
        .added = "{\"id\":256,\"content\":\"TOK\",\"normalized\":true,\"special\":false},{\"id\":257,\"content\":\"Raw\",\"normalized\":false,\"special\":false}" };
    struct tok_vocab *v = tok_small_new(&spec, 1);
    tok_small_gives(v, "aTokb", 3, (int32_t[]){ 'a', 256, 'b' });
    tok_small_gives(v, "Raw", 1, (int32_t[]){ 257 });
    tok_small_gives(v, "raw", 3, (int32_t[]){ 'r', 'a', 'w' });
    tok_vocab_free(v);
}

static void no_space_is_put_behind_a_token_that_begins_the_text(void **state)
{
    (void)state;
    static const struct tok_small spec = { .decoder = SP_DECODER, .tokens = { "<unk>", "<s>", SPACE, "-", ">", "a" }, .options = ",\"unk_token\":\"<unk>\"",
        .added = "{\"id\":1,\"content\":\"<s>\",\"normalized\":false,\"special\":false}",
        .pre = "{\"type\":\"Metaspace\",\"replacement\":\"" SPACE "\",\"prepend_scheme\":\"first\",\"split\":false}" };
    struct tok_vocab *v = tok_small_new(&spec, 0);
    tok_small_gives(v, "<s>->", 3, (int32_t[]){ 1, 3, 4 });
    tok_small_gives(v, "->", 3, (int32_t[]){ 2, 3, 4 });
    tok_small_gives(v, "\xe4\xb8\xad\xe4\xb8\xad", 3, (int32_t[]){ 2, 0, 0 });
    tok_vocab_free(v);
}

static void tokens_of_bytes_make_characters_again(void **state)
{
    (void)state;
    static const struct tok_small spec = { .decoder = SP_DECODER, .tokens = { "<0xEA>", "<0xB9>", "<0xB0>", "a", "<0x61>", SPACE }, .options = ",\"byte_fallback\":true" };
    struct tok_vocab *v = tok_small_new(&spec, 0);
    tok_small_gives(v, "\xea\xb9\xb0", 3, (int32_t[]){ 0, 1, 2 });
    tok_small_shows(v, 3, (int32_t[]){ 0, 1, 2 }, "\xea\xb9\xb0");
    /* Text never gives the token of a byte that is a token itself; both read alike. */
    tok_small_gives(v, "a", 1, (int32_t[]){ 3 });
    tok_small_shows(v, 2, (int32_t[]){ 3, 4 }, "aa");
    tok_vocab_free(v);
}

static void thousands_of_added_tokens_cost_no_more_than_one(void **state)
{
    (void)state;
    enum { TOKENS = 6400, N = 1 << 20 };
    char *added = malloc(TOKENS * 96);
    size_t n = 0;
    for (int i = 0; i < TOKENS; i++)
        n += (size_t)sprintf(added + n, "%s{\"id\":%d,\"content\":\"\\n<reserved_%d>\",\"normalized\":false,\"special\":false}", i > 0 ? "," : "", 256 + i, i);
    struct tok_small spec = { .pre = QWEN };
    struct tok_vocab *v = tok_small_new(&spec, 1);
    tok_vocab_free(v);
    char *text = malloc(n + 20000);
    size_t k = 0;
    k += (size_t)sprintf(text, "{\"added_tokens\":[%s],\"pre_tokenizer\":" QWEN ",\"decoder\":" BYTES ",\"model\":{\"type\":\"BPE\",\"vocab\":{", added);
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        char shown[8];
        shown[tok_bytes_show(&byte, 1, shown)] = '\0';
        k += (size_t)sprintf(text + k, "%s\"%s%s\":%d", b > 0 ? "," : "", b == '"' || b == '\\' ? "\\" : "", shown, b);
    }
    k += (size_t)sprintf(text + k, "},\"merges\":[]}}");
    assert_int_equal(tok_vocab_parse("many", text, k, &v), 0);
    char *s = malloc(N);
    memset(s, '\n', N);
    int32_t one;
    double t0 = clock_s();
    assert_true(tok_small_encode(v, s, N, &one, 1) > 0);
    assert_true(clock_s() - t0 < 10);
    tok_small_gives(v, "\n<reserved_6399>", 1, (int32_t[]){ 256 + 6399 });
    tok_small_gives(v, "\n<reserved_63>", 1, (int32_t[]){ 256 + 63 });
    tok_vocab_free(v);
    free(s);
    free(text);
    free(added);
}

static void ids_with_holes_stay_as_the_file_has_them(void **state)
{
    (void)state;
    static const struct tok_small spec = { .pre = QWEN, .added = "{\"id\":300,\"content\":\"<x>\",\"normalized\":false,\"special\":false}" };
    struct tok_vocab *v = tok_small_new(&spec, 1);
    struct tok_decoder d;
    char *buf = NULL;
    size_t len = 0, cap = 0;
    assert_int_equal(tok_vocab_size(v), 301);
    tok_small_gives(v, "a<x>", 2, (int32_t[]){ 'a', 300 });
    tok_decode_begin(&d, v);
    assert_int_equal(tok_decode(&d, (int32_t[]){ 280 }, 1, 0, &buf, &len, &cap), ERR_DATA);
    assert_non_null(strstr(err_msg(), "id 280 is no token"));
    free(buf);
    tok_vocab_free(v);
}

#define SPECIAL(id, name) "{\"id\":" #id ",\"content\":\"" name "\",\"normalized\":false,\"special\":true}"
static void a_token_that_begins_texts_does_not_end_documents(void **state)
{
    (void)state;
    static const struct { const char *added, *ends; } cases[] = {
        { SPECIAL(256, "<s>") "," SPECIAL(257, "</s>"), "</s>" },
        { SPECIAL(256, "<|begin_of_text|>") "," SPECIAL(257, "<x>") "," SPECIAL(258, "<|end_of_text|>"), "<|end_of_text|>" },
        { SPECIAL(256, "<end>") "," SPECIAL(257, "</s>"), "<end>" },
        { SPECIAL(256, "<s>") "," SPECIAL(257, "<x>"), "<s>" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tok_small spec = { .pre = QWEN, .added = cases[i].added };
        struct tok_vocab *v = tok_small_new(&spec, 1);
        const char *name;
        tok_vocab_special(v, 0, &name);
        assert_string_equal(name, cases[i].ends);
        tok_vocab_special(v, 1, &name);
        assert_string_not_equal(name, cases[i].ends);
        tok_vocab_free(v);
    }
}

static void a_catastrophic_expression_ends_with_a_sentence(void **state)
{
    (void)state;
    static const struct tok_small spec = { .pre = SPLIT("(?:a+)+[bd]") };
    struct tok_vocab *v = tok_small_new(&spec, 1);
    char s[64];
    struct tok_span doc = { (uint8_t *)s, sizeof s };
    struct tok_encoder *e;
    const int32_t *ids;
    const int64_t *ends;
    uint64_t bad = 0;
    memset(s, 'a', sizeof s);
    assert_int_equal(tok_encoder_new(v, NULL, &e), 0);
    assert_int_equal(tok_encode(e, &doc, 1, &ids, &ends, &bad), ERR_DATA);
    assert_non_null(strstr(err_msg(), "the expression fails"));
    tok_encoder_free(e);
    tok_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_of_one_character_takes_a_moment),
        cmocka_unit_test(the_text_of_an_added_token_is_its_content_and_no_map_of_bytes),
        cmocka_unit_test(a_whole_piece_is_looked_up_before_merging_when_the_file_says_so),
        cmocka_unit_test(a_space_survives_the_round_trip),
        cmocka_unit_test(a_normalized_added_token_is_found_inside_a_word),
        cmocka_unit_test(no_space_is_put_behind_a_token_that_begins_the_text),
        cmocka_unit_test(tokens_of_bytes_make_characters_again),
        cmocka_unit_test(thousands_of_added_tokens_cost_no_more_than_one),
        cmocka_unit_test(ids_with_holes_stay_as_the_file_has_them),
        cmocka_unit_test(a_token_that_begins_texts_does_not_end_documents),
        cmocka_unit_test(a_catastrophic_expression_ends_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
