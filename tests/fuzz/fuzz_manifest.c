/* fuzz_manifest.c -- ckpt/manifest: MANIFEST.json with its self hash made right.
 *
 * The parser compares the hash first, so broken copies would all end there;
 * the target signs each of them again to reach what stands behind. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/manifest.h"
#include "fuzz/fuzz.h"

const char fuzz_what[] = "a MANIFEST.json";

int fuzz_seeds(void)
{
    static const char *const argv[] = { "moe-train", "run" };
    struct hash some = hash_bytes("x", 1);
    struct manifest_set set = { "data/train", some, 9 };
    struct manifest_file files[] = { { "config.json", 912, 0, some },
                                     { "model-00001-of-00001.safetensors", 4096, 1, some } };
    int64_t shape[] = { 16, 16 };
    struct st_part parts[] = { { 0, 512, some }, { 512, 1024, some } };
    struct manifest_tensor tensors[] = { { "model.norm.weight", 1, "F32", 2, shape, parts, 2 } };
    struct manifest m = {
        .info = { .tool = "moe-train 0.1.0", .argv = argv, .n_argv = 2, .run_id = some, .step = 200, .tokens = 819200,
                  .config = some, .plan = some, .replicas = 1, .efsdp = 1, .ep = 1, .threads = 2, .kernels = "ref",
                  .data_next_step = 200, .data_seed = 1, .sets = &set, .n_sets = 1 },
        .files = files, .n_files = 2, .tensors = tensors, .n_tensors = 1,
    };
    char *text;
    size_t n;

    int rc = manifest_format(&m, &text, &n);
    if (rc < 0)
        return rc;
    fuzz_add(text, n);
    free(text);
    return 0;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static const char key[] = "\"self\":\"";
    struct manifest *m = NULL;
    size_t k = sizeof key - 1, at = n;

    for (size_t i = 0; i + k <= n; i++)
        if (!memcmp(data + i, key, k))
            at = i;
    char *text = malloc(n + 64);
    if (!text)
        abort();
    memcpy(text, data, n);
    if (at + k + 32 <= n) {
        struct hash h = hash_bytes(data, at);
        memcpy(text + at + k, h.hex, 32);
    }
    int rc = manifest_parse("input", text, n, &m);
    if (rc == 0)
        manifest_free(m);
    free(text);
    return rc;
}
