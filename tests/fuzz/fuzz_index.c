/* fuzz_index.c -- ckpt/dir: model.safetensors.index.json before two small files. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "ckpt/dir.h"
#include "fuzz/fuzz.h"

const char fuzz_what[] = "an index.json";

static void put_file(const char *name, const char *header, size_t data_bytes)
{
    unsigned char buf[1024] = { 0 };
    size_t n = strlen(header);

    buf[0] = (unsigned char)n;
    buf[1] = (unsigned char)(n >> 8);
    memcpy(buf + 8, header, n);
    fuzz_file(name, buf, 8 + n + data_bytes);
}

int fuzz_seeds(void)
{
    put_file("model-00001-of-00002.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
             "\"b.c\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[8,12]}}", 12);
    put_file("model-00002-of-00002.safetensors", "{\"d\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8);
    fuzz_add_text("{\"metadata\":{\"total_size\":20},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
                  "\"b.c\":\"model-00001-of-00002.safetensors\",\"d\":\"model-00002-of-00002.safetensors\"}}");
    fuzz_add_text("{\"weight_map\":{\"d\":\"model-00002-of-00002.safetensors\"}}");
    return 0;
}

static void problem(void *ctx, const char *sentence)
{
    /* Each is for a terminal, as the last one is. */
    for (const char *s = sentence; *s; s++)
        if ((unsigned char)*s < ' ')
            abort();
    ++*(int64_t *)ctx;
}

/* Stopping at the first contradiction and hearing of all must agree. */
int fuzz_one(const uint8_t *data, size_t n)
{
    struct ckpt_dir *d = NULL;
    struct err_state first;
    int64_t told = 0;

    fuzz_file(CKPT_INDEX_NAME, data, n);
    int rc = ckpt_dir_scan(fuzz_dir(), NULL, NULL, &d);
    if (rc == 0)
        ckpt_dir_free(d);
    err_take(&first);
    d = NULL;
    int all = ckpt_dir_scan(fuzz_dir(), problem, &told, &d);
    if (all == 0) {
        if (d->n_problems != told || (told > 0) != (rc < 0))
            abort();
        ckpt_dir_free(d);
    } else if (rc == 0) {
        abort();
    }
    err_put(&first);
    return rc;
}
