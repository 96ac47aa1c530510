/* test_text_source.c -- documents out of plain and packed text and lines of JSON,
 * for slabs of every size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/err.h"
#include "base/fs.h"
#include "tok/json_line.h"
#include "tok/text_source.h"

static char dir[] = "/tmp/test-source-XXXXXX";

static const char *file(const char *name, const void *data, size_t n)
{
    static char path[8][256];
    static int turn;
    char *p = path[turn++ & 7];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    assert_int_equal(fs_write_file(p, data, n), 0);
    return p;
}

/* All documents, each followed by '|', parts joined; NULL after an error. */
static char *documents(const char *path, const struct text_how *how, int64_t *count)
{
    static char all[1 << 20];
    struct text_source *t;
    struct tok_span d;
    size_t n = 0;
    _Bool part;
    int rc;
    assert_int_equal(text_source_open(&path, 1, how, &t), 0);
    while ((rc = text_source_next(t, &d, &part)) > 0) {
        assert_true(n + d.n + 2 < sizeof all);
        if (d.n > 0)
            memcpy(all + n, d.s, d.n);
        n += d.n;
        if (!part)
            all[n++] = '|';
    }
    all[n] = '\0';
    if (count != NULL)
        memcpy(count, text_source_counts(t), TEXT_N_KINDS * sizeof *count);
    text_source_close(t);
    return rc < 0 ? NULL : all;
}

static struct text_how how(enum text_docs docs, size_t slab)
{
    struct text_how h;
    tok_text_how_default(&h);
    h.docs = docs;
    h.slab_bytes = slab;
    return h;
}

static size_t at_space(const void *arg, const uint8_t *s, size_t n, size_t from)
{
    (void)arg;
    for (size_t i = from; i < n; i++)
        if (s[i] == ' ')
            return i;
    return n;
}

static void documents_do_not_depend_on_the_size_of_slabs(void **state)
{
    (void)state;
    static const char text[] = "one\ntwo words\n\n \t\r\nthree\n\n\nfour\nfive";
    const char *path = file("a.txt", text, sizeof text - 1);
    for (size_t slab = 1; slab < 60; slab++) {
        struct text_how h = how(TEXT_LINE, slab);
        assert_string_equal(documents(path, &h, NULL), "one|two words|| \t\r|three|||four|five|");
        h.docs = TEXT_BLANK;
        assert_string_equal(documents(path, &h, NULL), "one\ntwo words|three|four\nfive|");
        h.docs = TEXT_FILE;
        assert_string_equal(documents(path, &h, NULL), "one\ntwo words\n\n \t\r\nthree\n\n\nfour\nfive|");
    }
    char *big = malloc(300000), *want = malloc(300002);
    for (int i = 0; i < 300000; i++)
        big[i] = i % 7 == 6 && (i < 100000 || i > 200000) ? ' ' : (char)('a' + i % 5);
    memcpy(want, big, 300000);
    strcpy(want + 300000, "|");
    path = file("big.txt", big, 300000);
    for (size_t slab = 100; slab < 400000; slab = slab * 3 + 1) {
        struct text_how h = how(TEXT_FILE, slab);
        h.cut = at_space;
        assert_string_equal(documents(path, &h, NULL), want);
    }
    path = file("empty", "", 0);
    struct text_how h = how(TEXT_AUTO, 0);
    assert_string_equal(documents(path, &h, NULL), "|");
    h.docs = TEXT_LINE;
    assert_string_equal(documents(path, &h, NULL), "");
    free(big);
    free(want);
}

static void every_escape_of_json_is_undone(void **state)
{
    (void)state;
    static const char lines[] =
        "\xef\xbb\xbf{\"id\": 1, \"text\": \"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\te\", \"x\": [1, -2.5e+3, {\"y\": [[], {}, null, true]}]}\r\n"
        "{\"text\":\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"}\n"
        "\n"
        "{\"\\u0074ext\":\"\\ud800x\\udc00\\ud800\\ud83d\\ude00\"}\n"
        "  { \"text\" : \"\" }  \n"
        "{\"text\":\"no feed\\u0000 at the end, and a long stretch without any escape at all\\n\\n.\"}";
    const char *path = file("a.jsonl", lines, sizeof lines - 1);
    for (size_t slab = 1; slab < 300; slab += slab < 100 ? 1 : 50) {
        struct text_how h = how(TEXT_AUTO, slab);
        int64_t count[TEXT_N_KINDS];
        char *got = documents(path, &h, count);
        static const char want[] = "a\"b\\c/d\b\f\n\r\te|A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80|"
            "\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x98\x80||no feed\0 at the end, and a long stretch without any escape at all\n\n.|";
        assert_non_null(got);
        assert_memory_equal(got, want, sizeof want);
        assert_int_equal(count[TEXT_SURROGATE], 3);
        assert_int_equal(count[TEXT_NUL], 1);
        assert_int_equal(count[TEXT_BLANK_LINE], 1);
        assert_int_equal(count[TEXT_EMPTY], 1);
    }
}

static void what_is_no_object_is_named_with_its_line(void **state)
{
    (void)state;
    static const char *const bad[] = { "[1]", "{", "{\"text\":\"a\"", "{\"text\":\"a}", "{\"text\":\"a\"} x", "{\"text\":\"a\",}", "{\"text\" \"a\"}",
        "{text:1}", "{\"text\":\"\\x\"}", "{\"text\":\"\\u12g4\"}", "{\"text\":\"a\tb\"}", "{\"text\":01}", "{\"text\":1.}", "{\"text\":-}",
        "{\"text\":tru}", "{\"text\":\"a\",\"text\":\"b\"}", "{\"x\":[1,]}", "{\"x\":{\"y\"}}", "{\"x\":[1}", "{\"x\":{1:2}}", "{\"text\":\"\\", "{\"text\":\"\\u",
        "\"a\"", "null", "{,}", "{\"a\":}", "{\"a\":1 \"b\":2}", "{\"text\":\"\\u00e\"}", "{\"x\":\"\\ud800\\u\"}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char lines[256];
        int n = snprintf(lines, sizeof lines, "{\"text\":\"fine\"}\n%s\n{\"text\":\"last\"}\n", bad[i]);
        const char *path = file("bad.jsonl", lines, (size_t)n);
        struct text_how h = how(TEXT_AUTO, 0);
        assert_null(documents(path, &h, NULL));
        assert_int_equal(err_last(), ERR_DATA);
        assert_non_null(strstr(err_msg(), "bad.jsonl:2: column "));
        h.slab_bytes = 3;
        assert_null(documents(path, &h, NULL));
        assert_non_null(strstr(err_msg(), "bad.jsonl:2: column "));
        int64_t count[TEXT_N_KINDS];
        assert_int_equal(tok_text_how_set(&h, "json=skip"), 0);
        assert_string_equal(documents(path, &h, count), "fine|last|");
        assert_int_equal(count[TEXT_JSON], 1);
    }
    /* As deep as is allowed, and one deeper. */
    char deep[4096], line[5000];
    struct json_line_value v;
    struct json_line_fault f;
    static const char *const key = "text";
    for (int d = 1024; d <= 1025; d++) {
        memset(deep, '[', (size_t)d);
        memset(deep + d, ']', (size_t)d);
        deep[2 * d] = '\0';
        int n = snprintf(line, sizeof line, "{\"text\":%s}", deep);
        assert_int_equal(json_line_read((uint8_t *)line, (size_t)n, &key, 1, &v, &f), d == 1024);
    }
}

static void several_keys_give_rows_and_policies_decide_about_them(void **state)
{
    (void)state;
    static const char *const keys[] = { "a", "b" };
    static const char lines[] = "{\"a\":\"1\",\"b\":\"2\"}\n{\"b\":\"4\",\"a\":\"3\"}\n{\"a\":\"5\"}\n{\"a\":\"6\",\"b\":null}\n{\"a\":7,\"b\":\"8\"}\n{\"a\":\"\",\"b\":\"\"}\n";
    const char *path = file("k.jsonl", lines, sizeof lines - 1);
    struct text_how h = how(TEXT_JSONL, 0);
    int64_t count[TEXT_N_KINDS];
    h.keys = keys;
    h.n_keys = 2;
    assert_null(documents(path, &h, NULL));
    assert_non_null(strstr(err_msg(), "k.jsonl:3: \"b\" is absent"));
    assert_int_equal(tok_text_how_set(&h, "key=skip"), 0);
    assert_null(documents(path, &h, NULL));
    assert_non_null(strstr(err_msg(), "k.jsonl:5: \"a\" is a number, not a string"));
    assert_int_equal(tok_text_how_set(&h, "type=empty"), 0);
    assert_string_equal(documents(path, &h, count), "1|2|3|4||8|||");
    assert_int_equal(count[TEXT_KEY], 2);
    assert_int_equal(count[TEXT_TYPE], 1);
    assert_int_equal(tok_text_how_set(&h, "key=empty"), 0);
    assert_int_equal(tok_text_how_set(&h, "empty=skip"), 0);
    assert_string_equal(documents(path, &h, count), "1|2|3|4|5||6|||8|");
    assert_int_equal(count[TEXT_EMPTY], 1);
    assert_int_equal(tok_text_how_set(&h, "empty=stop"), 0);
    assert_null(documents(path, &h, NULL));
    assert_non_null(strstr(err_msg(), "k.jsonl:6: a document without text"));
    assert_int_equal(tok_text_how_set(&h, "type=keep"), ERR_USAGE);
    assert_non_null(strstr(err_msg(), "skip, empty, stop"));
    assert_int_equal(tok_text_how_set(&h, "types=skip"), ERR_USAGE);
    assert_int_equal(tok_text_how_set(&h, "type"), ERR_USAGE);
}

static void bytes_that_are_no_utf8_are_kept_replaced_left_out_or_refused(void **state)
{
    (void)state;
    static const char text[] = "a\xff" "b\xe2\x82" "c\xed\xa0\x80" "d\xf0\x9f\x98";
    const char *path = file("bad.txt", text, sizeof text - 1);
    for (size_t slab = 1; slab < 20; slab++) {
        struct text_how h = how(TEXT_FILE, slab);
        int64_t count[TEXT_N_KINDS];
        assert_memory_equal(documents(path, &h, NULL), text, sizeof text - 1);
        tok_text_how_set(&h, "utf8=replace");
        assert_string_equal(documents(path, &h, count), "a\xef\xbf\xbd" "b\xef\xbf\xbd" "c\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" "d\xef\xbf\xbd|");
        assert_int_equal(count[TEXT_UTF8], 9);
        tok_text_how_set(&h, "utf8=drop");
        assert_string_equal(documents(path, &h, NULL), "abcd|");
        tok_text_how_set(&h, "utf8=stop");
        assert_null(documents(path, &h, NULL));
        assert_non_null(strstr(err_msg(), "bad.txt: byte 1: no valid UTF-8"));
    }
    path = file("nul.jsonl", "{\"text\":\"a\\u0000b\xff\"}\n", 20);
    struct text_how h = how(TEXT_AUTO, 0);
    assert_memory_equal(documents(path, &h, NULL), "a\0b\xff|", 6);
    tok_text_how_set(&h, "nul=drop");
    assert_string_equal(documents(path, &h, NULL), "ab\xff|");
    tok_text_how_set(&h, "nul=replace");
    assert_string_equal(documents(path, &h, NULL), "a\xef\xbf\xbd" "b\xff|");
    tok_text_how_set(&h, "nul=stop");
    assert_null(documents(path, &h, NULL));
    assert_non_null(strstr(err_msg(), "nul.jsonl:1: U+0000"));
}

/* ---- packed */

static size_t gz(uint8_t *out, size_t cap, const void *text, size_t n)
{
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static size_t zst(uint8_t *out, size_t cap, const void *text, size_t n)
{
    size_t k = ZSTD_compress(out, cap, text, n, 3);
    assert_false(ZSTD_isError(k));
    return k;
}

static void packed_text_is_found_by_its_first_bytes_and_torn_text_is_refused(void **state)
{
    (void)state;
    enum { N = 50000, CAP = 200000 };
    char *text = malloc(N + 2), *want = malloc(2 * N + 2);
    uint8_t *packed = malloc(CAP);
    srand(1);
    for (int i = 0; i < N; i++)
        text[i] = (char)('a' + rand() % 26);
    memcpy(want, text, N);
    memcpy(want + N, text, N);
    strcpy(want + 2 * N, "|");
    for (int kind = 0; kind < 2; kind++) {
        size_t (*pack)(uint8_t *, size_t, const void *, size_t) = kind == 0 ? gz : zst;
        static const uint8_t skippable[] = { 0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c' };
        size_t n = 0, one;
        if (kind == 1) {
            memcpy(packed, skippable, sizeof skippable);
            n = sizeof skippable;
        }
        n += pack(packed + n, CAP - n, text, N);
        one = n;
        if (kind == 1) {
            memcpy(packed + n, skippable, sizeof skippable);
            n += sizeof skippable;
        }
        n += pack(packed + n, CAP - n, text, N);
        if (kind == 1) {
            memcpy(packed + n, skippable, sizeof skippable);
            n += sizeof skippable;
        } else {
            memset(packed + n, 0, 600);
            n += 600;
        }
        for (size_t slab = 1000; slab < 400000; slab *= 7) {
            struct text_how h = how(TEXT_FILE, slab);
            assert_string_equal(documents(file("no-name", packed, n), &h, NULL), want);
        }
        struct text_how h = how(TEXT_FILE, 0);
        for (size_t k = 5; k < n - 700; k += 1999) {
            if (k == one)
                continue;
            assert_null(documents(file("torn", packed, k), &h, NULL));
            assert_int_equal(err_last(), ERR_DATA);
            assert_non_null(strstr(err_msg(), "torn"));
            assert_non_null(strstr(err_msg(), "byte "));
        }
        assert_null(documents(file("torn", packed, one - 1), &h, NULL));
        assert_non_null(strstr(err_msg(), "truncated"));
        memcpy(packed + n, "garbage", 7);
        assert_null(documents(file("more", packed, n + 7), &h, NULL));
        assert_int_equal(err_last(), ERR_DATA);
        packed[one / 2] ^= 0x55;
        packed[one / 2 + 1] ^= 0x55;
        if (kind == 0) {                /* zstd keeps no checksum unless asked */
            assert_null(documents(file("flipped", packed, n), &h, NULL));
            assert_int_equal(err_last(), ERR_DATA);
        }
    }
    free(text);
    free(want);
    free(packed);
}

static void a_first_failure_is_the_same_however_far_the_reader_is(void **state)
{
    (void)state;
    const char *paths[2] = { file("p.jsonl", "{\"text\":\"a\"}\n{\"x\":1}\n", 22), "/nowhere/at/all" };
    struct text_how h = how(TEXT_AUTO, 0);
    struct text_source *t;
    struct text_slab *b[2] = { text_slab_new(), text_slab_new() };
    assert_int_equal(text_source_open(paths, 2, &h, &t), 0);
    assert_int_equal(text_source_read(t, b[0]), 1);
    assert_int_equal(text_source_read(t, b[1]), 1);
    assert_int_equal(text_source_parse(t, b[1]), 0);
    assert_int_equal(text_source_parse(t, b[0]), 0);
    assert_int_equal(text_source_take(t, b[0]), ERR_DATA);
    assert_non_null(strstr(err_msg(), "p.jsonl:2: \"text\" is absent"));
    assert_int_equal(text_source_take(t, b[1]), ERR_NOINPUT);
    assert_int_equal(text_source_read(t, b[0]), 0);
    text_source_close(t);
    text_slab_free(b[0]);
    text_slab_free(b[1]);
}

static void a_file_that_grows_while_it_is_read_is_refused(void **state)
{
    (void)state;
    const char *path = file("grows.txt", "one\ntwo\nthree\n", 14);
    struct text_how h = how(TEXT_LINE, 4);
    struct text_source *t;
    struct tok_span d;
    _Bool part;
    int rc;
    assert_int_equal(text_source_open(&path, 1, &h, &t), 0);
    assert_int_equal(text_source_next(t, &d, &part), 1);
    assert_int_equal(fs_append_line(path, "four\n", 5, 0), 0);
    while ((rc = text_source_next(t, &d, &part)) > 0)
        ;
    assert_int_equal(rc, ERR_DATA);
    assert_non_null(strstr(err_msg(), "grows.txt: changed while it was read"));
    text_source_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_do_not_depend_on_the_size_of_slabs),
        cmocka_unit_test(every_escape_of_json_is_undone),
        cmocka_unit_test(what_is_no_object_is_named_with_its_line),
        cmocka_unit_test(several_keys_give_rows_and_policies_decide_about_them),
        cmocka_unit_test(bytes_that_are_no_utf8_are_kept_replaced_left_out_or_refused),
        cmocka_unit_test(packed_text_is_found_by_its_first_bytes_and_torn_text_is_refused),
        cmocka_unit_test(a_file_that_grows_while_it_is_read_is_refused),
        cmocka_unit_test(a_first_failure_is_the_same_however_far_the_reader_is),
    };
    if (mkdtemp(dir) == NULL)
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    fs_remove_tree(dir);
    return rc;
}
