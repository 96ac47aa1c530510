/* fuzz_json.c -- base/json: strict loading of a text. */
#include "base/json.h"
#include "fuzz/fuzz.h"

const char fuzz_what[] = "a JSON text";

int fuzz_seeds(void)
{
    fuzz_add_text("{\"a\":1,\"b\":[1.5,-2e-3,true,null],\"c\":{\"d\":\"x\\u00e9\\\"y\"}}");
    fuzz_add_text("{}");
    return fuzz_add_file("tests/golden/glm4_moe/config.json");
}

int fuzz_one(const uint8_t *data, size_t n)
{
    json_t *j = NULL;
    int rc = json_load_text("input", (const char *)data, n, &j);
    int64_t a;

    if (rc == 0) {
        rc = json_opt_int(j, "input", "a", &a);
        json_decref(j);
    }
    return rc;
}
