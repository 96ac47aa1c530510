/* test_tok_cases.c -- small vocabularies of every format, with the ids that their own packages gave
 * (tests/oracle/make_tok_cases.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "tok/encode.h"
#include "tok/vocab.h"

static struct fs_blob cases;

static int set_up(void **state)
{
    (void)state;
    return fs_read("tests/golden/tok/cases.jsonl", &cases) < 0;
}

static int tear_down(void **state)
{
    (void)state;
    fs_blob_free(&cases);
    return 0;
}

static size_t from_base64(const char *s, char *dst)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    unsigned acc = 0, bits = 0;
    for (; *s != '\0' && *s != '='; s++) {
        acc = acc << 6 | (unsigned)(strchr(digits, *s) - digits);
        if ((bits += 6) >= 8)
            dst[n++] = (char)(acc >> (bits -= 8));
    }
    return n;
}

/* The vocabulary of a case; "same" is the text of the case before. */
static struct tok_vocab *load(const json_t *c, int line, char **kept)
{
    const char *text = json_string_value(json_object_get(c, "vocabulary")), *raw = json_string_value(json_object_get(c, "vocabulary_base64"));
    const json_t *special = json_object_get(c, "special_ids");
    struct tok_load how = { json_string_value(json_object_get(c, "scheme")), NULL };
    char path[64], *ids = special != NULL ? json_dumps(special, 0) : NULL;
    size_t n;
    if (raw != NULL || strcmp(text, "same") != 0) {
        free(*kept);
        *kept = raw != NULL ? malloc(strlen(raw) + 1) : strdup(text);
    }
    n = raw != NULL ? from_base64(raw, *kept) : strlen(*kept);
    snprintf(path, sizeof path, "/tmp/test_tok_cases.%ld", (long)getpid());
    if (ids != NULL) {
        assert_int_equal(fs_write_file(path, ids, strlen(ids)), 0);
        how.specials = path;
    }
    struct tok_vocab *v = NULL;
    int rc = tok_vocab_parse_as("case", *kept, n, &how, &v);
    if (rc < 0)
        print_message("case %d: %s\n", line, err_msg());
    assert_int_equal(rc, 0);
    free(ids);
    unlink(path);
    return v;
}

static void check_doc(const struct tok_vocab *v, const json_t *d, int line, _Bool slow)
{
    struct tok_how how = { 1, json_is_true(json_object_get(d, "specials")), json_is_true(json_object_get(d, "template")), slow };
    const json_t *text = json_object_get(d, "text"), *want = json_object_get(d, "ids");
    struct tok_span doc = { (const uint8_t *)json_string_value(text), json_string_length(text) };
    struct tok_encoder *e;
    const int32_t *ids;
    const int64_t *ends;
    uint64_t bad = 0;
    assert_int_equal(tok_encoder_new(v, &how, &e), 0);
    assert_int_equal(tok_encode(e, &doc, 1, &ids, &ends, &bad), 0);
    _Bool same = ends[0] == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < ends[0]; i++)
        same = ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    if (!same)
        print_message("case %d, %s: \"%s\"\n", line, tok_vocab_format(v), (const char *)doc.s);
    assert_true(same);
    tok_encoder_free(e);
}

static void each_format_gives_the_ids_of_its_own_package(void **state)
{
    (void)state;
    char *kept = NULL;
    int line = 0, docs = 0;
    for (const char *p = cases.data, *end = p + cases.size, *nl; p < end; p = nl + 1) {
        json_t *c;
        nl = memchr(p, '\n', (size_t)(end - p));
        assert_non_null(nl);
        assert_int_equal(json_load_text("case", p, (size_t)(nl - p), &c), 0);
        struct tok_vocab *v = load(c, ++line, &kept);
        const json_t *list = json_object_get(c, "docs");
        for (size_t i = 0; i < json_array_size(list); i++, docs++)
            for (int slow = 0; slow < 2; slow++)
                check_doc(v, json_array_get(list, i), line, slow);
        tok_vocab_free(v);
        json_decref(c);
    }
    free(kept);
    assert_true(line > 20 && docs > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_format_gives_the_ids_of_its_own_package),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
