/* test_json_pull.c -- JSON piece by piece: what is taken, what is refused, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/json_pull.h"

static int string_of(const char *text, size_t n, struct json_pull *j, struct json_slice *s)
{
    json_pull_start(j, "T", text, n);
    return json_pull_string(j, "a string", s);
}

static void strings_of_every_length_end_at_their_quote(void **state)
{
    char text[80];
    struct json_pull j;
    struct json_slice s;

    (void)state;
    for (size_t n = 0; n < 40; n++)
        for (size_t lead = 0; lead < 9; lead++) {
            memset(text, ' ', sizeof text);
            text[lead] = '"';
            memset(text + lead + 1, 'x', n);
            memcpy(text + lead + 1 + n, "\"y\\\n", 4);
            assert_int_equal(string_of(text, lead + n + 2, &j, &s), 0);
            assert_int_equal(s.n, n);
            assert_ptr_equal(s.s, text + lead + 1);
            assert_ptr_equal(j.p, j.end);
            assert_int_equal(string_of(text, lead + n + 1, &j, &s), ERR_DATA);
            json_pull_done(&j);
        }
}

/* Each byte value at each place of a word: plain, the end, or an error. */
static void every_byte_is_judged_wherever_it_stands(void **state)
{
    struct json_pull j;
    struct json_slice s;
    char text[32];

    (void)state;
    for (int b = 0; b < 256; b++)
        for (size_t at = 1; at < 18; at++) {
            memset(text, 'a', sizeof text);
            text[0] = text[20] = '"';
            text[at] = (char)b;
            int rc = string_of(text, 21, &j, &s);
            if (b == '"')
                assert_int_equal(s.n, at - 1);
            else if (b < 0x20 || b >= 0x80)
                assert_int_equal(rc, ERR_DATA);
            else if (b == '\\')
                assert_int_equal(rc, ERR_DATA);         /* \a is none */
            else
                assert_int_equal(s.n, 19);
            json_pull_done(&j);
        }
}

static void escapes_are_decoded(void **state)
{
    static const char text[] = "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t \\u0041\\u00e9\\u20AC\\ud83d\\ude00 \xc3\xa9 end\"";
    static const char want[] = "a\"\\/\b\f\n\r\t A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \xc3\xa9 end";
    struct json_pull j;
    struct json_slice s;

    (void)state;
    assert_int_equal(string_of(text, sizeof text - 1, &j, &s), 0);
    assert_int_equal(s.n, sizeof want - 1);
    assert_memory_equal(s.s, want, s.n);
    json_pull_done(&j);
}

static void broken_strings_are_refused_with_their_place(void **state)
{
    static const struct { const char *text, *want; } t[] = {
        { "x", "T:1:1: expected a string in quotes" },
        { "\n  \"abc", "T:2:3: a string without end" },
        { "\"ab\\", "T:1:4: the text ends inside a string" },
        { "\"ab\\x\"", "T:1:4: unknown escape" },
        { "\"\\u12g4\"", "T:1:4: expected four hex digits" },
        { "\"\\u12", "T:1:4: expected four hex digits" },
        { "\"\\ud83d\"", "T:1:2: half a surrogate pair" },
        { "\"\\ud83d\\u0041\"", "T:1:2: half a surrogate pair" },
        { "\"\\ude00\"", "T:1:2: half a surrogate pair" },
        { "\"\\u0000\"", "T:1:2: \\u0000 is not allowed here" },
        { "\"\xc3\xa9\n\"", "T:1:3: a bare control character" },
        { "\"\xc0\x80\"", "T:1:2: invalid UTF-8" },
        { "\"\xed\xa0\x80\"", "T:1:2: invalid UTF-8" },
        { "\"\xf4\x90\x80\x80\"", "T:1:2: invalid UTF-8" },
        { "\"\xe2\x82\"", "T:1:2: invalid UTF-8" },
    };
    struct json_pull j;
    struct json_slice s;

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        int rc = string_of(t[i].text, strlen(t[i].text), &j, &s);
        if (rc != ERR_DATA || !strstr(err_msg(), t[i].want))
            print_message("# %zu: %d %s\n", i, rc, err_msg());
        assert_int_equal(rc, ERR_DATA);
        assert_non_null(strstr(err_msg(), t[i].want));
        json_pull_done(&j);
    }
}

static void integers_are_told_from_what_is_none(void **state)
{
    static const struct { const char *text; int rc; int64_t v; } t[] = {
        { "0", 1, 0 }, { "-0", 1, 0 }, { " 17 ", 1, 17 }, { "9223372036854775807", 1, INT64_MAX },
        { "-9223372036854775808", 1, INT64_MIN }, { "9223372036854775808", ERR_DATA, 0 }, { "-9223372036854775809", ERR_DATA, 0 },
        { "99999999999999999999999", ERR_DATA, 0 }, { "01", ERR_DATA, 0 }, { "-", ERR_DATA, 0 }, { "1.0", 0, 0 }, { "1e3", 0, 0 },
        { "\"1\"", 0, 0 }, { "null", 0, 0 }, { "+1", 0, 0 }, { "", 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct json_pull j;
        int64_t v = 0;

        json_pull_start(&j, "T", t[i].text, strlen(t[i].text));
        assert_int_equal(json_pull_int(&j, &v), t[i].rc);
        if (t[i].rc == 1)
            assert_true(v == t[i].v);
        else
            assert_ptr_equal(j.p, t[i].text);
    }
}

static void what_is_not_looked_at_becomes_a_tree_and_the_walk_goes_on(void **state)
{
    static const char text[] = "{\"a\":{\"x\":[1,2.5]},\"b\":-3e2,\"c\":true,\"d\":\"e\" , \"f\":7}\n";
    struct json_slice key;
    struct json_pull j;
    int64_t v = 0;
    int rc, n = 0;

    (void)state;
    json_pull_start(&j, "T", text, sizeof text - 1);
    assert_int_equal(json_pull_take(&j, '{', "first"), 0);
    for (rc = !json_pull_empty(&j, '}'); rc == 1; n++) {
        json_t *tree;

        assert_int_equal(json_pull_key(&j, &key), 0);
        if (json_slice_is(key, "f")) {
            assert_int_equal(json_pull_int(&j, &v), 1);
        } else {
            assert_int_equal(json_pull_tree(&j, &tree), 0);
            if (json_slice_is(key, "b"))
                assert_true(json_real_value(tree) == -300);
            json_decref(tree);
        }
        rc = json_pull_more(&j, '}');
    }
    assert_int_equal(rc, 0);
    assert_int_equal(n, 5);
    assert_int_equal(v, 7);
    assert_int_equal(json_pull_finish(&j), 0);

    json_pull_start(&j, "T", "[1]]", 4);
    json_t *tree;
    assert_int_equal(json_pull_tree(&j, &tree), 0);
    json_decref(tree);
    assert_int_equal(json_pull_finish(&j), ERR_DATA);
    assert_string_equal(err_msg(), "T:1:4: something after the end of the value");
    json_pull_start(&j, "T", "\n{\"a\":1,\"a\":2}", 14);
    assert_int_equal(json_pull_tree(&j, &tree), ERR_DATA);
    assert_non_null(strstr(err_msg(), "T:2:"));
    assert_non_null(strstr(err_msg(), "duplicate"));
    json_pull_done(&j);
}

static void a_frame_counts_bytes_instead_of_lines(void **state)
{
    struct json_pull j;
    uint64_t v;

    (void)state;
    json_pull_start(&j, "T", "[\n-1]", 5);
    j.frame = "header";
    j.base = 8;
    assert_int_equal(json_pull_take(&j, '[', "of it"), 0);
    assert_int_equal(json_pull_digits(&j, "a size", &v), ERR_DATA);
    assert_string_equal(err_msg(), "T: header: a size with a sign at byte 10");
    j.frame = "tensor";
    j.name = "x";
    assert_int_equal(json_pull_more(&j, ']'), ERR_DATA);
    assert_string_equal(err_msg(), "T: tensor \"x\": expected ',' or ']' at byte 10");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_of_every_length_end_at_their_quote),
        cmocka_unit_test(every_byte_is_judged_wherever_it_stands),
        cmocka_unit_test(escapes_are_decoded),
        cmocka_unit_test(broken_strings_are_refused_with_their_place),
        cmocka_unit_test(integers_are_told_from_what_is_none),
        cmocka_unit_test(what_is_not_looked_at_becomes_a_tree_and_the_walk_goes_on),
        cmocka_unit_test(a_frame_counts_bytes_instead_of_lines),
    };
    return cmocka_run_group_tests_name("json_pull", tests, NULL, NULL);
}
