/* test_json.c -- JSON out and in. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/rng.h"

static void fields_come_in_the_order_of_the_calls(void **state)
{
    struct json_out *j = json_new();
    size_t n;
    (void)state;
    json_obj(j, NULL);
    json_put_str(j, "z", "x");
    json_put_int(j, "a", INT64_MIN);
    json_put_num(j, "n", 3e-3);
    json_put_bool(j, "b", 1);
    json_put_str(j, "nil", NULL);
    json_arr(j, "v");
    json_put_int(j, NULL, 1);
    json_put_num(j, NULL, 2.5);
    json_obj(j, NULL);
    json_obj_end(j);
    json_arr(j, NULL);
    json_arr_end(j);
    json_arr_end(j);
    json_put_nonfinite(j);
    json_obj_end(j);
    assert_string_equal(json_text(j, &n), "{\"z\":\"x\",\"a\":-9223372036854775808,\"n\":0.003,\"b\":true,\"nil\":null,\"v\":[1,2.5,{},[]],\"nonfinite\":[]}");
    assert_int_equal(n, strlen(json_text(j, NULL)));
    json_reset(j);
    json_arr(j, NULL);
    json_arr_end(j);
    assert_string_equal(json_text(j, NULL), "[]");
    json_free(j);
    json_free(NULL);
}

static void pretty_text_has_one_key_a_line(void **state)
{
    struct json_out *j = json_new_pretty();
    (void)state;
    json_obj(j, NULL);
    json_put_int(j, "a", 1);
    json_arr(j, "v");
    json_put_int(j, NULL, 1);
    json_put_int(j, NULL, 2);
    json_arr_end(j);
    json_obj(j, "o");
    json_put_bool(j, "b", 0);
    json_obj_end(j);
    json_obj(j, "e");
    json_obj_end(j);
    json_arr(j, "l");
    json_arr(j, NULL);
    json_put_int(j, NULL, 3);
    json_arr_end(j);
    json_arr_end(j);
    json_obj_end(j);
    assert_string_equal(json_text(j, NULL),
        "{\n  \"a\": 1,\n  \"v\": [1, 2],\n  \"o\": {\n    \"b\": false\n  },\n  \"e\": {},\n  \"l\": [\n    [3]\n  ]\n}");
    json_free(j);
}

static void numbers_that_are_none_become_null_and_are_named(void **state)
{
    struct json_out *j = json_new();
    (void)state;
    json_obj(j, NULL);
    json_put_num(j, "loss", NAN);
    json_put_num(j, "ok", 1);
    json_arr(j, "load");
    json_put_num(j, NULL, INFINITY);
    json_put_num(j, NULL, -INFINITY);
    json_arr_end(j);
    json_put_num(j, "loss2", NAN);
    json_put_nonfinite(j);
    json_obj_end(j);
    assert_string_equal(json_text(j, NULL), "{\"loss\":null,\"ok\":1,\"load\":[null,null],\"loss2\":null,\"nonfinite\":[\"loss\",\"load\",\"loss2\"]}");
    json_free(j);
}

static void any_bytes_become_a_valid_string(void **state)
{
    static const struct { const char *s, *want; } t[] = {
        { "a\"b\\c/", "[\"a\\\"b\\\\c/\"]" }, { "\n\r\t\b\f\x01\x1f\x7f", "[\"\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\"]" },
        { "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"]" },
        { "a\xff" "b", "[\"a\\ufffdb\"]" }, { "\xc3", "[\"\\ufffd\"]" }, { "\xe2\x82", "[\"\\ufffd\\ufffd\"]" },
        { "\xc0\x80", "[\"\\ufffd\\ufffd\"]" }, { "\xed\xa0\x80", "[\"\\ufffd\\ufffd\\ufffd\"]" },
        { "\xf4\x90\x80\x80", "[\"\\ufffd\\ufffd\\ufffd\\ufffd\"]" }, { "\xe0\x80\x80", "[\"\\ufffd\\ufffd\\ufffd\"]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct json_out *j = json_new();
        json_arr(j, NULL);
        json_put_str(j, NULL, t[i].s);
        json_arr_end(j);
        assert_string_equal(json_text(j, NULL), t[i].want);
        json_free(j);
    }
    struct rng_key k = rng_key(1, "json");
    for (uint64_t i = 0; i < 3000; i++) {
        uint32_t w[4];
        json_t *v;
        struct json_out *j = json_new();
        rng_block(k, i, 0, w);
        json_arr(j, NULL);
        json_put_strn(j, NULL, (char *)w, (w[0] & 15) + 1);
        json_arr_end(j);
        /* jansson refuses U+0000, which is valid JSON. */
        if (!memchr(w, 0, (w[0] & 15) + 1)) {
            assert_int_equal(json_load_text("x", json_text(j, NULL), strlen(json_text(j, NULL)), &v), 0);
            json_decref(v);
        }
        json_free(j);
    }
}

static void broken_texts_are_refused_with_their_place(void **state)
{
    static const struct { const char *s, *want; } t[] = {
        { "", "x: empty, expected JSON" }, { " \n\t", "x: empty, expected JSON" },
        { "{\"a\":1,\n \"a\":2}", "x:2:4: duplicate object key near '\"a\"'" },
        { "{\"a\":1} x", "x:1:9: end of file expected near 'x'" },
        { "{\"a\":", "x:1:5: unexpected token near end of file" },
        { "[\"\xff\"]", NULL }, { "[nan]", NULL }, { "[1e999]", NULL }, { "[\"\n\"]", NULL }, { "5", NULL }, { "{'a':1}", NULL }, { "[01]", NULL }, { "[1,]", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        json_t *v = NULL;
        assert_int_equal(json_load_text("x", t[i].s, strlen(t[i].s), &v), ERR_DATA);
        assert_null(v);
        if (t[i].want)
            assert_string_equal(err_msg(), t[i].want);
        assert_null(strchr(err_msg(), '\n'));
        assert_true(!strncmp(err_msg(), t[i].want ? "x:" : "x:1:", t[i].want ? 2 : 4));
    }
    json_t *v;
    assert_int_equal(json_load_text("x", "[1]junk", 3, &v), 0);
    json_decref(v);
    assert_int_equal(json_load_path("/nonexistent", &v), ERR_NOINPUT);
}

static void look_ups_say_what_was_expected(void **state)
{
    static const char text[] = "{\"i\":5,\"f\":1.5,\"s\":\"x\",\"b\":true,\"n\":null}";
    json_t *o;
    int64_t i = 7;
    double d = 7;
    const char *s = "7";
    _Bool b = 0;
    (void)state;
    assert_int_equal(json_load_text("x", text, sizeof text - 1, &o), 0);
    assert_true(json_get_int(o, "w", "i", &i) == 0 && i == 5);
    assert_true(json_get_num(o, "w", "f", &d) == 0 && d == 1.5);
    assert_true(json_get_num(o, "w", "i", &d) == 0 && d == 5);
    assert_true(json_get_str(o, "w", "s", &s) == 0 && !strcmp(s, "x"));
    assert_true(json_get_bool(o, "w", "b", &b) == 0 && b);
    assert_int_equal(json_get_int(o, "w", "f", &i), ERR_DATA);
    assert_string_equal(err_msg(), "w: \"f\": expected an integer");
    assert_int_equal(json_get_str(o, "w", "absent", &s), ERR_DATA);
    assert_string_equal(err_msg(), "w: \"absent\" is missing");
    assert_int_equal(json_get_bool(o, "w", "n", &b), ERR_DATA);
    i = 7;
    assert_true(json_opt_int(o, "w", "absent", &i) == 0 && i == 7);
    assert_true(json_opt_int(o, "w", "n", &i) == 0 && i == 7);
    assert_int_equal(json_opt_num(o, "w", "s", &d), ERR_DATA);
    assert_int_equal(json_opt_bool(o, "w", "s", &b), ERR_DATA);
    assert_int_equal(json_opt_str(o, "w", "i", &s), ERR_DATA);
    assert_int_equal(json_get_int(json_object_get(o, "i"), "w", "x", &i), ERR_DATA);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_come_in_the_order_of_the_calls),
        cmocka_unit_test(pretty_text_has_one_key_a_line),
        cmocka_unit_test(numbers_that_are_none_become_null_and_are_named),
        cmocka_unit_test(any_bytes_become_a_valid_string),
        cmocka_unit_test(broken_texts_are_refused_with_their_place),
        cmocka_unit_test(look_ups_say_what_was_expected),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
