/* test_tok_lists.c -- tokens and merges pulled from a tokenizer.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "tok/vocab_lists.h"

#define VOCAB "\"vocab\":{\"a\":3,\"b\":1,\"ab\":7,\"\\u0061b\\\"\":9,\"\\\"\":-2}"

static int pull(const char *text, struct tok_lists *l, json_t **rest)
{
    return tok_lists_read("T", text, strlen(text), 0, l, rest);
}

static void both_lists_become_tables_and_the_rest_a_tree(void **state)
{
    static const char *const texts[] = {
        "{\"x\":[1],\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"#version: 0.2\",\"a b\",[\"ab\",\"\\\"\"]]}}",
        "{\"x\":[1],\"model\":{\"type\":\"BPE\",\"merges\":[[\"a\",\"b\"],\"ab \\\"\",\"#version\"]," VOCAB "}}",
    };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tok_lists l;
        json_t *rest, *model;

        assert_int_equal(pull(texts[i], &l, &rest), 0);
        assert_int_equal(l.n_keys, 5);
        assert_int_equal(l.key[tok_lists_find(&l, "ab", 2)].id, 7);
        assert_int_equal(tok_lists_find(&l, "ab\"", 3), 3);
        assert_int_equal(tok_lists_find(&l, "\"", 1), 4);
        assert_int_equal(tok_lists_find(&l, "ba", 2), -1);
        assert_int_equal(l.key_bytes, 8);
        assert_int_equal(l.n_merges, 2);
        assert_int_equal(l.merges[0].a, 0);
        assert_int_equal(l.merges[0].b, 1);
        assert_int_equal(l.merges[0].product, 2);
        assert_int_equal(l.merges[1].a, 2);
        assert_int_equal(l.merges[1].product, 3);
        model = json_object_get(rest, "model");
        assert_string_equal(json_string_value(json_object_get(model, "type")), "BPE");
        assert_int_equal(json_array_size(json_object_get(rest, "x")), 1);
        assert_true(json_is_object(json_object_get(model, "vocab")) && json_object_size(json_object_get(model, "vocab")) == 0);
        assert_true(json_is_array(json_object_get(model, "merges")));
        json_decref(rest);
        tok_lists_free(&l);
    }
}

static void lists_of_another_kind_stay_as_they_are(void **state)
{
    struct tok_lists l;
    json_t *rest;

    (void)state;
    assert_int_equal(pull("{\"model\":{\"vocab\":[[\"a\",-1.5]],\"merges\":[7]},\"vocab\":[1]}", &l, &rest), 0);
    assert_int_equal(json_array_size(json_object_get(json_object_get(rest, "model"), "vocab")), 1);
    assert_int_equal(l.n_keys, 0);
    json_decref(rest);
    tok_lists_free(&l);
}

static void what_is_wrong_is_named_with_its_place(void **state)
{
    static const struct { const char *text, *want; } t[] = {
        { "{\"model\":{\"vocab\":{\"a\":1.5}}}", "T: model.vocab: \"a\": expected an integer" },
        { "{\"model\":{\"vocab\":{\"a\":1,\n\"a\":2}}}", "T:2:1: model.vocab: duplicate key \"a\"" },
        { "{\"model\":{\"vocab\":{\"a\":1,\"\\u0061\":2}}}", "duplicate key \"a\"" },
        { "{\"model\":{" VOCAB ",\"vocab\":{}}}", "duplicate key \"vocab\"" },
        { "{\"model\":{" VOCAB "},\"model\":{}}", "duplicate key \"model\"" },
        { "{\"x\":1,\"x\":1}", "duplicate key \"x\"" },
        { "{\"x\":{\"y\":1,\"y\":1}}", "duplicate" },
        { "{\"model\":{" VOCAB ",\"merges\":[\"a b\",\"a c\"]}}", "T: model.merges[1]: \"c\" is not in the vocabulary" },
        { "{\"model\":{" VOCAB ",\"merges\":[\"#version\",\"b a\"]}}", "T: model.merges[1]: \"ba\" is not in the vocabulary" },
        { "{\"model\":{" VOCAB ",\"merges\":[\"a  b\"]}}", "T: model.merges[0]: expected two tokens" },
        { "{\"model\":{" VOCAB ",\"merges\":[\"ab\"]}}", "expected two tokens" },
        { "{\"model\":{" VOCAB ",\"merges\":[\" b\"]}}", "expected two tokens" },
        { "{\"model\":{" VOCAB ",\"merges\":[[\"a\"]]}}", "expected two tokens" },
        { "{\"model\":{" VOCAB ",\"merges\":[[\"a\",\"b\",\"a\"]]}}", "expected two tokens" },
        { "{\"model\":{" VOCAB ",\"merges\":[[\"a\",\"\"]]}}", "expected two tokens" },
        { "{\"model\":{" VOCAB ",\"merges\":[7]}}", "expected two tokens" },
        { "{\"model\":{\"merges\":[7]," VOCAB "}}", "expected two tokens" },
        { "{\"model\":{" VOCAB "}}}", "something after the end" },
        { "{\"model\":{" VOCAB "}", "the text ends" },
        { "{\"model\":{\"vocab\":{\"\\u0000\":1}}}", "not allowed" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct tok_lists l;
        json_t *rest;
        int rc = pull(t[i].text, &l, &rest);

        if (rc != ERR_DATA || !strstr(err_msg(), t[i].want))
            print_message("# %s: %d %s\n", t[i].text, rc, err_msg());
        assert_int_equal(rc, ERR_DATA);
        assert_non_null(strstr(err_msg(), t[i].want));
        assert_null(rest);
        tok_lists_free(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_lists_become_tables_and_the_rest_a_tree),
        cmocka_unit_test(lists_of_another_kind_stay_as_they_are),
        cmocka_unit_test(what_is_wrong_is_named_with_its_place),
    };
    return cmocka_run_group_tests_name("tok_lists", tests, NULL, NULL);
}
