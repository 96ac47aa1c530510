/* test_tok_bpe.c -- vocabularies: learned, written, read, used in both directions. */
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
#include "base/rng.h"
#include "tok/bpe_train.h"
#include "tok/bytelevel.h"
#include "tok/encode.h"
#include "tok/split.h"
#include "tok/vocab.h"

static uint64_t counter;
static uint32_t dice(uint32_t n)
{
    uint32_t w[4];
    struct rng_key key = {{ 11, 13 }};
    rng_block(key, counter++, 0, w);
    return w[0] % n;
}

/* Text with words that repeat, in several scripts, and some noise. */
static size_t make_text(uint8_t *s, size_t cap)
{
    static const char *const words[] = {
        "the", " the", " of", " and", " ning", " running", " Haus", " Häuser", " δεν", " και", " на", " един", "\n", "\n\n",
        " 1234", " it's", "  ", ".", ", ", " Übung", " übung", " abab", " aaaa", "aaaaaaa", " \t", " été", "/", "://", " banana",
    };
    size_t n = 0;
    while (n + 64 < cap) {
        const char *w = words[dice(dice(2) == 0 ? 8 : sizeof words / sizeof *words)];
        size_t k = strlen(w);
        memcpy(s + n, w, k);
        n += k;
        if (dice(10) == 0)
            s[n++] = (uint8_t)('a' + dice(26));
    }
    return n;
}

static struct tok_vocab *learn(const uint8_t *s, size_t n, int32_t size, int parts)
{
    static const char *const specials[] = { TOK_EOD };
    struct tok_vocab *v;
    struct tok_train_stats st;
    struct tok_train_how how = { .vocab_size = size, .min_count = 2, .specials = specials, .n_specials = 1 };
    struct tok_trainer *t;
    assert_int_equal(tok_trainer_new(&how, &t), 0);
    /* in so many parts, as the slabs of a text come */
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = parts > 1 && n - begin > n / (size_t)parts ? begin + tok_trainer_cut(t, s + begin, n - begin, n / (size_t)parts) : n;
        struct tok_tally *y = tok_tally_new(t);
        assert_int_equal(tok_tally_add(y, 0, 0, s + begin, end - begin), 0);
        assert_int_equal(tok_trainer_take(t, y), 0);
        tok_tally_free(y);
    }
    int rc = tok_trainer_run(t, NULL, NULL, &v, &st);
    if (rc < 0)
        print_message("%s\n", err_msg());
    assert_int_equal(rc, 0);
    tok_trainer_free(t);
    return v;
}

/* ---- the definitions, as slowly as they are written */

static int64_t naive_train(const uint8_t *s, size_t n, int64_t n_merges, struct tok_merge *out, int32_t first_id)
{
    int32_t *sym = malloc(n * sizeof *sym);
    size_t *end = malloc(n * sizeof *end), n_sym = 0, n_pieces = 0;
    uint64_t bad = 0;
    int32_t id[256];
    for (int i = 0; i < 256; i++)
        id[tok_byte_of_order(i)] = i;
    for (size_t pos = 0; pos < n;) {
        size_t e = tok_split_next(s, n, pos, &bad);
        for (; pos < e; pos++)
            sym[n_sym++] = id[s[pos]];
        end[n_pieces++] = n_sym;
    }
    int64_t k = 0;
    for (; k < n_merges; k++) {
        /* counts of pairs in a square table: ids stay small in this test */
        int32_t m = first_id + (int32_t)k;
        int64_t *count = calloc((size_t)m * (size_t)m, sizeof *count), best = 1;
        int32_t a = -1, b = -1;
        for (size_t p = 0, i = 0; p < n_pieces; i = end[p++])
            for (; i + 1 < end[p]; i++)
                count[(size_t)sym[i] * (size_t)m + (size_t)sym[i + 1]]++;
        for (int32_t x = 0; x < m; x++)
            for (int32_t y = 0; y < m; y++)
                if (count[(size_t)x * (size_t)m + (size_t)y] > best) {
                    best = count[(size_t)x * (size_t)m + (size_t)y];
                    a = x;
                    b = y;
                }
        free(count);
        if (a < 0)
            break;
        out[k] = (struct tok_merge){ a, b, m };
        size_t w = 0;
        for (size_t p = 0, i = 0; p < n_pieces; p++) {
            for (; i < end[p];) {
                if (i + 1 < end[p] && sym[i] == a && sym[i + 1] == b) {
                    sym[w++] = m;
                    i += 2;
                } else {
                    sym[w++] = sym[i++];
                }
            }
            end[p] = w;
        }
    }
    free(sym);
    free(end);
    return k;
}

static size_t naive_encode(const struct tok_vocab *v, const uint8_t *s, size_t n, int32_t *out)
{
    const struct tok_merge *m = tok_vocab_merges(v);
    size_t total = 0;
    uint64_t bad = 0;
    for (size_t pos = 0; pos < n;) {
        size_t e = tok_split_next(s, n, pos, &bad), k = 0;
        int32_t *p = out + total;
        for (; pos < e; pos++)
            p[k++] = tok_vocab_byte_id(v, s[pos]);
        for (int64_t r = 0; r < tok_vocab_n_merges(v); r++) {
            size_t w = 0;
            for (size_t i = 0; i < k;) {
                if (i + 1 < k && p[i] == m[r].a && p[i + 1] == m[r].b) {
                    p[w++] = m[r].product;
                    i += 2;
                } else {
                    p[w++] = p[i++];
                }
            }
            k = w;
        }
        total += k;
    }
    return total;
}

static void training_equals_the_definition(void **state)
{
    (void)state;
    enum { N = 40000, MERGES = 150 };
    uint8_t *s = malloc(N);
    size_t n = make_text(s, N);
    struct tok_merge want[MERGES];
    int64_t k = naive_train(s, n, MERGES, want, 257);
    assert_int_equal(k, MERGES);
    struct tok_vocab *v = learn(s, n, 257 + MERGES, 1);
    assert_int_equal(tok_vocab_n_merges(v), MERGES);
    assert_int_equal(tok_vocab_size(v), 257 + MERGES);
    for (int i = 0; i < MERGES; i++) {
        assert_int_equal(tok_vocab_merges(v)[i].a, want[i].a);
        assert_int_equal(tok_vocab_merges(v)[i].b, want[i].b);
        assert_int_equal(tok_vocab_merges(v)[i].product, want[i].product);
    }
    tok_vocab_free(v);
    free(s);
}

static void training_does_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    enum { N = 3000000 };
    uint8_t *s = malloc(N);
    size_t n = make_text(s, N);
    struct tok_vocab *one = learn(s, n, 700, 1), *four = learn(s, n, 700, 4);
    struct hash a = tok_vocab_hash(one), b = tok_vocab_hash(four);
    assert_true(hash_eq(&a, &b));
    tok_vocab_free(one);
    tok_vocab_free(four);
    free(s);
}

static void a_text_that_cannot_support_the_vocabulary_is_bad_data_with_the_size_reached(void **state)
{
    (void)state;
    struct tok_vocab *v;
    struct tok_train_stats st;
    struct tok_train_how how = { .vocab_size = 300, .min_count = 2 };
    struct tok_trainer *t;
    assert_int_equal(tok_trainer_new(&how, &t), 0);
    assert_int_equal(tok_trainer_run(t, NULL, NULL, &v, &st), ERR_DATA);
    assert_non_null(strstr(err_msg(), "empty"));
    struct tok_tally *y = tok_tally_new(t);
    assert_int_equal(tok_tally_add(y, 0, 0, (const uint8_t *)"abab", 4), 0);
    assert_int_equal(tok_trainer_take(t, y), 0);
    tok_tally_free(y);
    assert_int_equal(tok_trainer_run(t, NULL, NULL, &v, &st), ERR_DATA);
    assert_non_null(strstr(err_msg(), "257"));
    tok_trainer_free(t);
    how.vocab_size = 100;
    assert_int_equal(tok_trainer_new(&how, &t), ERR_USAGE);
}

static void same(struct tok_encoder *e, const struct tok_vocab *v, const uint8_t *s, size_t n)
{
    struct tok_span doc = { s, n };
    const int32_t *ids;
    const int64_t *ends;
    uint64_t bad = 0;
    int32_t *want = malloc(n * sizeof *want + 4);
    size_t k = naive_encode(v, s, n, want);
    assert_int_equal(tok_encode(e, &doc, 1, &ids, &ends, &bad), 0);
    assert_int_equal(ends[0], k);
    if (k > 0)
        assert_memory_equal(ids, want, k * sizeof *ids);
    free(want);
}

static void encoding_equals_the_definition(void **state)
{
    (void)state;
    enum { N = 200000 };
    uint8_t *s = malloc(N);
    size_t n = make_text(s, N);
    struct tok_vocab *v = learn(s, n, 500, 2);
    struct tok_encoder *e;
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 2 }, &e), 0);
    same(e, v, s, 0);
    same(e, v, s, n);
    for (int i = 0; i < 50; i++) {
        size_t from = dice((uint32_t)n - 3000);
        same(e, v, s + from, dice(2000));
    }
    /* Long pieces take the heap: letters of a few kinds, without a space. */
    for (int i = 0; i < 40; i++) {
        size_t k = 50 + dice(2000);
        for (size_t j = 0; j < k; j++)
            s[j] = (uint8_t)"abnaing"[dice(i % 5 == 0 ? 1 : 7)];
        same(e, v, s, k);
    }
    tok_encoder_free(e);
    tok_vocab_free(v);
    free(s);
}

static void decoding_what_was_encoded_gives_the_same_bytes_for_any_bytes(void **state)
{
    (void)state;
    enum { N = 300000 };
    uint8_t *s = malloc(N);
    size_t n = make_text(s, N);
    struct tok_vocab *v = learn(s, n, 600, 2);
    struct tok_encoder *one, *four;
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 1 }, &one), 0);
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 4 }, &four), 0);
    for (int round = 0; round < 30; round++) {
        size_t k = round == 0 ? N : dice(round % 3 == 0 ? 200000 : 50);
        if (round % 4 == 3)
            k = make_text(s, 64 + dice(200000));
        else
            for (size_t i = 0; i < k; i++)
                s[i] = (uint8_t)(round % 2 == 0 ? dice(256) : (uint8_t)"\xe2\x82\xac\xffz \xf0\x9f\x98\x80"[dice(10)]);
        struct tok_span doc = { s, k };
        const int32_t *ids, *ids4;
        const int64_t *ends, *ends4;
        uint64_t bad = 0, bad4 = 0;
        assert_int_equal(tok_encode(one, &doc, 1, &ids, &ends, &bad), 0);
        assert_int_equal(tok_encode(four, &doc, 1, &ids4, &ends4, &bad4), 0);
        assert_int_equal(ends[0], ends4[0]);
        assert_int_equal(bad, bad4);
        if (ends[0] > 0)
            assert_memory_equal(ids, ids4, (size_t)ends[0] * sizeof *ids);
        struct tok_decoder d;
        char *buf = NULL;
        size_t len = 0, cap = 0;
        tok_decode_begin(&d, v);
        for (int64_t i = 0; i < ends[0];) {     /* in steps of random size */
            int64_t m = 1 + dice(7);
            if (m > ends[0] - i)
                m = ends[0] - i;
            assert_int_equal(tok_decode(&d, ids + i, (size_t)m, 0, &buf, &len, &cap), 0);
            assert_true(d.n_held <= 3);
            i += m;
        }
        assert_int_equal(tok_decode_end(&d, &buf, &len, &cap), 0);
        assert_int_equal(len, k);
        if (k > 0)
            assert_memory_equal(buf, s, k);
        free(buf);
    }
    tok_encoder_free(one);
    tok_encoder_free(four);
    tok_vocab_free(v);
    free(s);
}

static void a_character_is_held_back_until_it_is_whole(void **state)
{
    (void)state;
    struct tok_vocab *v;
    assert_int_equal(tok_vocab_build(NULL, 0, NULL, 0, &v), 0);
    static const struct { const char *bytes; int shown[8]; } cases[] = {
        { "\xe2\x82\xac" "a", { 0, 0, 3, 4 } },
        { "\xf0\x9f\x98\x80", { 0, 0, 0, 4 } },
        { "\xe2" "ab", { 0, 2, 3 } },
        { "\xff\xfe", { 1, 2 } },
        { "\xed\xa0\x80", { 0, 2, 3 } },
        { "\x80\x80", { 1, 2 } },
        { "\xe2\x82\xe2\x82\xac", { 0, 0, 2, 2, 5 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tok_decoder d;
        char *buf = NULL;
        size_t len = 0, cap = 0;
        tok_decode_begin(&d, v);
        for (size_t k = 0; k < strlen(cases[i].bytes); k++) {
            int32_t id = tok_vocab_byte_id(v, (uint8_t)cases[i].bytes[k]);
            assert_int_equal(tok_decode(&d, &id, 1, 0, &buf, &len, &cap), 0);
            assert_int_equal(len, cases[i].shown[k]);
        }
        free(buf);
    }
    struct tok_decoder d;
    char *buf = NULL;
    size_t len = 0, cap = 0;
    int32_t beyond[] = { 0, 256 };
    tok_decode_begin(&d, v);
    assert_int_equal(tok_decode(&d, beyond, 2, 0, &buf, &len, &cap), ERR_DATA);
    assert_non_null(strstr(err_msg(), "id 256 is beyond the vocabulary of 256 tokens"));
    free(buf);
    tok_vocab_free(v);
}

static void a_megabyte_of_one_letter_takes_a_moment(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static const char kinds[] = "a ^\n\xff";
    uint8_t *s = malloc(N);
    size_t n = make_text(s, 100000);
    struct tok_vocab *v = learn(s, n, 500, 1);
    struct tok_encoder *e;
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 1 }, &e), 0);
    for (int i = 0; i < 5; i++) {
        memset(s, kinds[i], N);
        struct tok_span doc = { s, N };
        const int32_t *ids;
        const int64_t *ends;
        uint64_t bad = 0;
        double t0 = clock_s();
        assert_int_equal(tok_encode(e, &doc, 1, &ids, &ends, &bad), 0);
        assert_true(ends[0] > 0 && ends[0] <= N);
        assert_true(clock_s() - t0 < 10);       /* quadratic would be an hour */
    }
    tok_encoder_free(e);
    tok_vocab_free(v);
    free(s);
}

static void a_vocabulary_read_back_is_the_one_written(void **state)
{
    (void)state;
    static uint8_t s[50000];
    size_t n = make_text(s, sizeof s), len, len2;
    struct tok_vocab *v = learn(s, n, 400, 1), *back;
    char *text = tok_vocab_text(v, &len);
    int rc = tok_vocab_parse("tok.json", text, len, &back);
    if (rc < 0)
        print_message("%s\n", err_msg());
    assert_int_equal(rc, 0);
    char *again = tok_vocab_text(back, &len2);
    assert_int_equal(len, len2);
    assert_memory_equal(text, again, len);
    struct hash a = tok_vocab_hash(v), b = tok_vocab_hash(back);
    assert_true(hash_eq(&a, &b));
    int32_t id = 0;
    assert_int_equal(tok_vocab_find_special(back, TOK_EOD, &id), 0);
    assert_int_equal(id, 256);
    assert_int_equal(tok_vocab_text_bytes(back)[256], 0);
    assert_int_equal(tok_vocab_find_special(back, "<s>", &id), ERR_DATA);
    free(text);
    free(again);
    tok_vocab_free(v);
    tok_vocab_free(back);
}

/* Replaces the first `from` in text. */
static char *changed(const char *text, const char *from, const char *to)
{
    const char *p = strstr(text, from);
    assert_non_null(p);
    size_t n = strlen(text) + strlen(to) + 1;
    char *out = malloc(n);
    snprintf(out, n, "%.*s%s%s", (int)(p - text), text, to, p + strlen(from));
    return out;
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    static const struct { const char *from, *to, *says; } cases[] = {
        { "\"type\": \"BPE\"", "\"type\": \"Unigram\"", "model.type: \"Unigram\" is not supported" },
        { "\"dropout\": null", "\"dropout\": 0.1", "model.dropout: 0.1" },
        { "\"unk_token\": null", "\"unk_token\": 5", "model.unk_token: 5" },
        { "\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"", "model.continuing_subword_prefix: \"##\"" },
        { "\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", "model.end_of_word_suffix: \"</w>\"" },
        { "\"normalizer\": null", "\"normalizer\": {\"type\": \"Precompiled\"}", "normalizer: {\"type\":\"Precompiled\"}" },
        { "\"normalizer\": null", "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Nmt\"}]}", "normalizer.normalizers[1]: {\"type\":\"Nmt\"}" },
        { "\"type\": \"Split\"", "\"type\": \"BertPreTokenizer\"", "pre_tokenizer.pretokenizers[0]: {\"type\":\"BertPreTokenizer\"" },
        { "\"Isolated\"", "\"Scattered\"", "\"Scattered\" is not supported" },
        { "\\\\p{N}{1,3}", "\\\\X", "this escape" },
        { "\\\\p{N}{1,3}", "\\\\p{Wrong}", "not supported" },
        { "\"post_processor\": null", "\"post_processor\": {\"type\": \"TemplateProcessing\"}", "post_processor.single" },
        { "\"post_processor\": null", "\"post_processor\": {\"type\": \"BertProcessing\"}", "BertProcessing" },
        { "\"truncation\": null", "\"truncation\": {\"max_length\": 3}", "truncation" },
        { "\"model\":", "\"modell\":", "model" },
        { "\"version\":", "\"verzion\":", "unknown key \"verzion\"" },
        { "\"!\": 0", "\"!\": 1", "id 1 is given twice" },
        { "\"!\": 0", "\"!\": 9999999", "an id of 9999999" },
        { "\"!\": 0", "\"!\": \"0\"", "expected an integer" },
    };
    static uint8_t s[50000];
    size_t n = make_text(s, sizeof s), len;
    struct tok_vocab *v = learn(s, n, 300, 1), *back;
    char *text = tok_vocab_text(v, &len);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *bad = changed(text, cases[i].from, cases[i].to);
        assert_int_equal(tok_vocab_parse("tok.json", bad, strlen(bad), &back), ERR_DATA);
        if (strstr(err_msg(), cases[i].says) == NULL)
            print_message("%s\n", err_msg());
        assert_non_null(strstr(err_msg(), cases[i].says));
        assert_null(strchr(err_msg(), '\n'));
        free(bad);
    }
    for (size_t k = 0; k < len; k += 997)       /* cut short anywhere */
        assert_int_equal(tok_vocab_parse("tok.json", text, k, &back), ERR_DATA);
    free(text);
    tok_vocab_free(v);
}

static void special_tokens_that_cannot_work_are_refused(void **state)
{
    (void)state;
    struct tok_vocab *v;
    static const char *const twice[] = { "<a>", "<a>" }, *const empty[] = { "" }, *const bad[] = { "\xff" }, *const learned[] = { "a" };
    assert_int_equal(tok_vocab_build(twice, 2, NULL, 0, &v), ERR_USAGE);
    assert_int_equal(tok_vocab_build(empty, 1, NULL, 0, &v), ERR_USAGE);
    assert_int_equal(tok_vocab_build(bad, 1, NULL, 0, &v), ERR_USAGE);
    assert_int_equal(tok_vocab_build(learned, 1, NULL, 0, &v), ERR_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_equals_the_definition),
        cmocka_unit_test(training_does_not_depend_on_the_number_of_threads),
        cmocka_unit_test(a_text_that_cannot_support_the_vocabulary_is_bad_data_with_the_size_reached),
        cmocka_unit_test(encoding_equals_the_definition),
        cmocka_unit_test(decoding_what_was_encoded_gives_the_same_bytes_for_any_bytes),
        cmocka_unit_test(a_character_is_held_back_until_it_is_whole),
        cmocka_unit_test(a_megabyte_of_one_letter_takes_a_moment),
        cmocka_unit_test(a_vocabulary_read_back_is_the_one_written),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(special_tokens_that_cannot_work_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
