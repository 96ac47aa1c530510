/* fuzz_model_config.c -- model/config_json: config.json files of every family. */
#include "fuzz/fuzz.h"
#include "base/pool.h"
#include "model/model_config.h"

#include <stdio.h>
#include <stdlib.h>

const char fuzz_what[] = "a config.json";

int fuzz_seeds(void)
{
    static const char *const names[] = { "glm4_moe", "glm4_moe_groups", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe" };
    char path[64];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "tests/golden/%s/config.json", names[i]);
        if (fuzz_add_file(path) < 0)
            return -1;
    }
    return 0;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    struct model_config m = { 0 };
    int rc = model_config_read(&m, fuzz_path(data, n), 64);

    if (rc == 0)
        pool_free(model_config_json(&m, -1, 64));
    model_config_fini(&m);
    return rc;
}
