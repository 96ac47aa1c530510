/* fuzz_json_pull.c -- base/json_pull: a text taken piece by piece.
 *
 * jansson is the judge: both must take the same texts, and the strings must be
 * the same bytes.  But a NUL behind a number, which it passes over, is refused
 * here, so texts with one are walked without a judge. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_pull.h"
#include "fuzz/fuzz.h"

enum { DEPTH_MAX = 200 };

const char fuzz_what[] = "a JSON text that is pulled";

int fuzz_seeds(void)
{
    fuzz_add_text("{\"a\":1,\"b\":[-15,0,9223372036854775807,-9223372036854775808],\"c\":{\"d\":\"x\\u00e9\\\"y\",\"e\":\"\\ud83d\\ude00\"}}");
    fuzz_add_text("[{},[],\"\",\"a string of more than sixteen bytes\",null,true,false,1.5e3]");
    return fuzz_add_file("tests/golden/glm4_moe/config.json");
}

/* NULL for what no tree is compared with. */
static int walk(struct json_pull *j, const json_t *is, int depth)
{
    const _Bool object = json_pull_peek(j) == '{';
    const char close = object ? '}' : ']';
    struct json_slice s;
    int rc;

    if (depth == DEPTH_MAX)
        return err_set(ERR_NO, "too deep to be compared");
    if (json_pull_peek(j) == '"') {
        TRY(json_pull_string(j, "a string", &s));
        if (is && (!json_is_string(is) || json_string_length(is) != s.n || memcmp(json_string_value(is), s.s, s.n)))
            abort();
        return 0;
    }
    if (!object && json_pull_peek(j) != '[') {
        int64_t v;
        json_t *other;

        TRY(rc = json_pull_int(j, &v));
        if (rc == 1) {
            if (is && (!json_is_integer(is) || json_integer_value(is) != v))
                abort();
            return 0;
        }
        TRY(json_pull_tree(j, &other));
        if (is && !json_equal(is, other))
            abort();
        json_decref(other);
        return 0;
    }
    j->p++;
    rc = !json_pull_empty(j, close);
    for (size_t i = 0; rc; i++) {
        const json_t *in = json_array_get(is, i);

        if (object) {
            TRY(json_pull_key(j, &s));
            if (is && !json_object_getn(is, s.s, s.n))
                abort();
        }
        TRY(walk(j, in, depth + 1));
        TRY(rc = json_pull_more(j, close));
    }
    return 0;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    const char *text = n ? (const char *)data : "";
    struct json_pull j;
    json_error_t e;
    json_t *is = memchr(text, 0, n) ? NULL : json_loadb(text, n, JSON_DECODE_ANY, &e);

    json_pull_start(&j, "input", text, n);
    int rc = walk(&j, is, 0);
    if (rc == 0)
        rc = json_pull_finish(&j);
    json_pull_done(&j);
    if (rc != ERR_NO && !memchr(text, 0, n) && (rc == 0) != (is != NULL))
        abort();
    json_decref(is);
    return rc == ERR_NO ? 0 : rc;
}
