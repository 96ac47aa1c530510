/* test_tok_fast.c -- the fast way beside the slow one, for every compiled split and for
 * vocabularies without a split, on hostile text, whole and in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/rng.h"
#include "tok/chars.h"
#include "tok/encode.h"
#include "tok/split_kin.h"
#include "tok/vocab.h"

enum { TEXT = 150000 };

static uint64_t counter;
static uint32_t dice(uint32_t n)
{
    uint32_t w[4];
    struct rng_key key = {{ 77, 5 }};
    rng_block(key, counter++, 0, w);
    return w[0] % n;
}

/* Words, and among them what makes trouble; bytes that are no UTF-8 where rough. */
static size_t make_text(uint8_t *s, size_t most, _Bool rough)
{
    static const char *const words[] = {
        "the", " of", " and", "Der ", " Haus", "\n", "\n\n", "  ", " ", " ", " ", "\t", "\r\n", "'s", "'LL", "l'", "12", "2025", "x", "X", "aA", "::", "->", "/",
        "\xc3\xa9", "e\xcc\x81", "\xce\xb1\xce\xb2\xce\xb3", "\xd0\x96", "\xc2\xa0", "\xe4\xb8\xad\xe6\x96\x87", "\xe2\x96\x81", " \xe2\x96\x81", "\xf0\x9f\x98\x80", "\xe2\x80\x9c",
        "\xe1\x84\x80\xe1\x85\xa1", "\xc5\xbf", ".", ",", "<s>", "<|endoftext|>", "<tok>", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\xe3\x80\x87", "\xd7\x90",
    };
    size_t n = 0;
    while (n + 80 < most) {
        if (rough && dice(40) == 0) {
            s[n++] = (uint8_t)(0x80 + dice(128));
        } else if (dice(30) == 0) {
            uint32_t c = dice(dice(2) == 0 ? 0x3100 : 0x110000);
            n += c >= 0xd800 && c < 0xe000 ? 0 : tok_char_put(c, s + n);
        } else if (dice(400) == 0) {
            size_t k = dice(7000);      /* longer than a window */
            k = k + n + 80 < most ? k : 0;
            memset(s + n, "a \n\xff"[dice(rough ? 4 : 3)], k);
            n += k;
        } else {
            const char *w = words[dice(sizeof words / sizeof *words)];
            memcpy(s + n, w, strlen(w));
            n += strlen(w);
        }
    }
    return n;
}

static void both_ways(const struct tok_vocab *v, const char *what, const uint8_t *s, size_t n, int threads, _Bool specials)
{
    struct tok_encoder *fast, *slow;
    struct tok_span docs[] = { { s, n }, { s, 0 }, { s + n / 2, n / 50 } };
    const int32_t *a, *b;
    const int64_t *ends_a, *ends_b;
    uint64_t bad_a = 0, bad_b = 0;
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = threads, .specials = specials }, &fast), 0);
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 1, .specials = specials, .slow = 1 }, &slow), 0);
    assert_int_equal(tok_encode(fast, docs, 3, &a, &ends_a, &bad_a), 0);
    assert_int_equal(tok_encode(slow, docs, 3, &b, &ends_b, &bad_b), 0);
    for (int64_t i = 0; i < ends_a[2] && i < ends_b[2]; i++)
        if (a[i] != b[i]) {
            print_message("%s, id %lld\n", what, (long long)i);
            assert_int_equal(a[i], b[i]);
        }
    for (int i = 0; i < 3; i++)
        assert_int_equal(ends_a[i], ends_b[i]);
    assert_int_equal(bad_a, bad_b);
    tok_encoder_free(fast);
    tok_encoder_free(slow);
}

static struct tok_vocab *parse(json_t *j)
{
    struct tok_vocab *v = NULL;
    char *text = json_dumps(j, 0);
    int rc = tok_vocab_parse("case", text, strlen(text), &v);
    if (rc < 0)
        print_message("%s\n", err_msg());
    assert_int_equal(rc, 0);
    free(text);
    json_decref(j);
    return v;
}

static _Bool is_fast(const struct tok_vocab *v)
{
    struct tok_encoder *e;
    assert_int_equal(tok_encoder_new(v, NULL, &e), 0);
    _Bool fast = tok_encoder_is_fast(e);
    tok_encoder_free(e);
    return fast;
}

/* The golden vocabulary with another expression before its bytes, and NFC or not. */
static json_t *with_expression(const json_t *golden, const char *expression, _Bool nfc)
{
    json_t *j = json_deep_copy(golden);
    json_t *split = json_pack("{s:s,s:{s:s},s:s,s:b}", "type", "Split", "pattern", "Regex", expression, "behavior", "Isolated", "invert", 0);
    json_t *bytes = json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0);
    json_object_set_new(j, "pre_tokenizer", json_pack("{s:s,s:[o,o]}", "type", "Sequence", "pretokenizers", split, bytes));
    json_object_set_new(j, "normalizer", nfc ? json_pack("{s:s}", "type", "NFC") : json_null());
    return j;
}

static void every_split_gives_the_ids_of_the_slow_way(void **state)
{
    (void)state;
    struct fs_blob blob;
    json_t *golden;
    enum tok_dialect d = TOK_ONIG;
    const char *e;
    static uint8_t s[TEXT];
    int n_fast = 0;
    assert_int_equal(fs_read("tests/golden/tok/tokenizer.json", &blob), 0);
    assert_int_equal(json_load_text("golden", blob.data, blob.size, &golden), 0);
    for (int i = 0; (e = tok_split_known(i, &d)) != NULL; i++) {
        if (d != TOK_ONIG)
            continue;
        struct tok_vocab *v = parse(with_expression(golden, e, i % 2 == 0));
        assert_true(is_fast(v));
        n_fast++;
        both_ways(v, e, s, make_text(s, TEXT, i % 3 == 0), 1 + i % 5, i % 2 == 1);
        for (int k = 0; k < 100; k++)
            both_ways(v, e, s, make_text(s, 100 + dice(200), k % 3 == 0), 1, k % 2 == 1);
        tok_vocab_free(v);
    }
    assert_true(n_fast > 10);
    json_decref(golden);
    fs_blob_free(&blob);
}

/* ---- without a split */

static json_t *words_vocab(_Bool fallback, _Bool inner, const char *more)
{
    static const char *const merges[][2] = {
        { "\xe2\x96\x81", "\xe2\x96\x81" }, { "\xe2\x96\x81", "t" }, { "h", "e" }, { "\xe2\x96\x81t", "he" }, { "a", "a" }, { "aa", "aa" }, { "o", "f" },
        { "\xe2\x96\x81", "of" }, { "a", "n" }, { "an", "d" }, { "D", "e" }, { "De", "r" }, { "\xe2\x96\x81\xe2\x96\x81", "\xe2\x96\x81\xe2\x96\x81" }, { "2", "0" }, { ".", "," },
    };
    static const char *const chars[] = { "\xe2\x96\x81", "t", "h", "e", "a", "o", "f", "n", "d", "D", "r", "2", "0", ".", ",", "\xc3\xa9", "s", "'" };
    json_t *vocab = json_object(), *list = json_array();
    json_object_set_new(vocab, "<unk>", json_integer(0));
    for (int b = 0; fallback && b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        json_object_set_new(vocab, name, json_integer((json_int_t)json_object_size(vocab)));
    }
    for (size_t i = 0; i < sizeof chars / sizeof *chars; i++)
        json_object_set_new(vocab, chars[i], json_integer((json_int_t)json_object_size(vocab)));
    if (more != NULL)
        json_object_set_new(vocab, more, json_integer((json_int_t)json_object_size(vocab)));
    for (size_t i = 0; i < sizeof merges / sizeof *merges + inner; i++) {
        const char *a = i < sizeof merges / sizeof *merges ? merges[i][0] : "d", *b = i < sizeof merges / sizeof *merges ? merges[i][1] : "\xe2\x96\x81";
        char both[64];
        snprintf(both, sizeof both, "%s%s", a, b);
        json_object_set_new(vocab, both, json_integer((json_int_t)json_object_size(vocab)));
        json_array_append_new(list, json_pack("[s,s]", a, b));
    }
    return json_pack("{s:s,s:n,s:s,s:n,s:n,s:b,s:b,s:b,s:o,s:o}", "type", "BPE", "dropout", "unk_token", "<unk>", "continuing_subword_prefix",
                     "end_of_word_suffix", "fuse_unk", 1, "byte_fallback", fallback, "ignore_merges", 0, "vocab", vocab, "merges", list);
}

static json_t *words_file(json_t *model, const char *normalizer, const char *pre)
{
    json_t *norm = normalizer != NULL ? json_loads(normalizer, 0, NULL) : json_null(), *p = pre != NULL ? json_loads(pre, 0, NULL) : json_null();
    json_t *added = json_pack("[{s:i,s:s,s:b,s:b,s:b,s:b,s:b}]", "id", 900, "content", "<s>", "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    assert_true(norm != NULL && p != NULL && added != NULL && model != NULL);
    return json_pack("{s:s,s:n,s:n,s:o,s:o,s:o,s:n,s:n,s:o}", "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer", norm,
                     "pre_tokenizer", p, "post_processor", "decoder", "model", model);
}

#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}"
#define PREPEND "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}," REPLACE "]}"
#define METASPACE(scheme, split) "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"" scheme "\",\"split\":" split "}"

static void words_without_a_split_give_the_ids_of_the_slow_way(void **state)
{
    (void)state;
    static const struct { const char *norm, *pre; } forms[] = {
        { PREPEND, NULL }, { REPLACE, NULL }, { REPLACE, "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}" },
        { NULL, METASPACE("always", "true") }, { NULL, METASPACE("first", "false") }, { NULL, METASPACE("never", "false") }, { NULL, METASPACE("always", "false") },
        { NULL, METASPACE("first", "true") },
    };
    static uint8_t s[TEXT];
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int k = 0; k < 4; k++) {
            struct tok_vocab *v = parse(words_file(words_vocab(k & 1, 0, k & 2 ? "\n" : NULL), forms[i].norm, forms[i].pre));
            char what[64];
            snprintf(what, sizeof what, "form %zu, variant %d", i, k);
            assert_true(is_fast(v));
            both_ways(v, what, s, make_text(s, TEXT, k == 1), 1 + k, 0);
            both_ways(v, what, s, make_text(s, TEXT, k == 2), 3, 1);
            for (int j = 0; j < 200; j++)
                both_ways(v, what, s, make_text(s, 90 + dice(100), j % 3 == 0), 1, j % 2 == 1);
            tok_vocab_free(v);
        }
}

static void an_entry_with_an_inner_space_forbids_cutting_at_spaces(void **state)
{
    (void)state;
    static uint8_t s[20000];
    struct tok_vocab *v = parse(words_file(words_vocab(1, 1, NULL), PREPEND, NULL));
    assert_false(is_fast(v));
    both_ways(v, "inner", s, make_text(s, sizeof s, 0), 2, 0);
    tok_vocab_free(v);
    /* A split at each space makes the cuts itself. */
    v = parse(words_file(words_vocab(1, 1, NULL), NULL, METASPACE("always", "true")));
    assert_true(is_fast(v));
    both_ways(v, "inner", s, make_text(s, sizeof s, 0), 2, 0);
    tok_vocab_free(v);
}

static void the_first_difference_is_named(void **state)
{
    (void)state;
    static const int32_t a[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, b[] = { 1, 2, 3, 4, 9, 6, 7, 8 };
    static const int64_t ends_a[] = { 2, 3, 8 }, ends_b[] = { 2, 4, 8 };
    struct tok_vocab *v;
    struct tok_encoder *e;
    struct tok_difference d;
    assert_int_equal(tok_vocab_load("tests/golden/tok/tokenizer.json", &v), 0);
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 1 }, &e), 0);
    assert_false(tok_encode_differ(e, 3, a, ends_a, a, ends_a, &d));
    assert_true(tok_encode_differ(e, 3, a, ends_a, b, ends_a, &d));
    assert_true(d.doc == 2 && d.token == 1 && d.byte == 1 && d.a[0] == 5 && d.b[0] == 9 && d.a[3] == 8);
    assert_true(tok_encode_differ(e, 3, a, ends_a, a, ends_b, &d));
    assert_true(d.doc == 1 && d.token == 1 && d.a[0] == -1 && d.b[0] == 4 && d.b[1] == -1);
    tok_encoder_free(e);
    tok_vocab_free(v);
}

/* Long texts given in parts, each after the first as one that goes on. */
static void parts_of_a_text_have_the_ids_of_the_whole(void **state)
{
    (void)state;
    static uint8_t s[TEXT];
    struct tok_vocab *v = parse(words_file(words_vocab(1, 0, NULL), PREPEND, NULL));
    struct tok_encoder *e, *whole;
    const int32_t *ids, *all;
    const int64_t *ends;
    uint64_t bad = 0;
    int64_t k = 0, parts = 0;
    size_t n = make_text(s, TEXT, 1);
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 1 }, &e), 0);
    assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 1, .slow = 1 }, &whole), 0);
    assert_int_equal(tok_encode(whole, &(struct tok_span){ s, n }, 1, &all, &ends, &bad), 0);
    int64_t total = ends[0];
    for (size_t pos = 0, end; pos < n; pos = end, parts++) {
        end = n - pos > 1 ? pos + tok_encoder_cut(e, s + pos, n - pos, 1 + (n - pos < 5000 ? 0 : 5000)) : n;
        assert_int_equal(tok_encode_on(e, pos > 0, &(struct tok_span){ s + pos, end - pos }, 1, &ids, &ends, &bad), 0);
        assert_memory_equal(ids, all + k, (size_t)ends[0] * sizeof *ids);
        k += ends[0];
    }
    assert_int_equal(k, total);
    assert_true(parts > 10);
    tok_encoder_free(e);
    tok_encoder_free(whole);
    tok_vocab_free(v);
}

/* Each took hours in some program.  Ten seconds are a hundred times what it needs. */
static void a_megabyte_of_one_thing_takes_a_moment(void **state)
{
    (void)state;
    static const char *const things[] = { "a", "A", " ", "\n", " \n", "7", "\xcc\x81", "\xf0\x9f\x98\x80", "\xe4\xb8\xad", "'s", "(-", "ab", "\xff", "\xe2\x96\x81", "a\xcc\x81" };
    enum { MEGABYTE = 1 << 20 };
    uint8_t *s = malloc(MEGABYTE + 8);
    assert_non_null(s);
    for (int k = 0; k < 2; k++) {
        struct tok_vocab *v = NULL;
        if (k == 0)
            assert_int_equal(tok_vocab_load("tests/golden/tok/tokenizer.json", &v), 0);
        else
            v = parse(words_file(words_vocab(1, 0, NULL), PREPEND, NULL));
        for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
            struct tok_encoder *e;
            struct timespec t0, t1;
            const int32_t *ids;
            const int64_t *ends;
            uint64_t bad = 0;
            size_t n = 0;
            while (n < MEGABYTE)
                n += (size_t)snprintf((char *)s + n, 8, "%s", things[i]);
            struct tok_span doc = { s, n };
            assert_int_equal(tok_encoder_new(v, &(struct tok_how){ .threads = 1 }, &e), 0);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
            assert_int_equal(tok_encode(e, &doc, 1, &ids, &ends, &bad), 0);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
            double took = (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
            if (took > 10)
                print_message("\"%s\": %.1f s\n", things[i], took);
            assert_true(took < 10);
            tok_encoder_free(e);
        }
        tok_vocab_free(v);
    }
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_gives_the_ids_of_the_slow_way),
        cmocka_unit_test(words_without_a_split_give_the_ids_of_the_slow_way),
        cmocka_unit_test(an_entry_with_an_inner_space_forbids_cutting_at_spaces),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(parts_of_a_text_have_the_ids_of_the_whole),
        cmocka_unit_test(a_megabyte_of_one_thing_takes_a_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
