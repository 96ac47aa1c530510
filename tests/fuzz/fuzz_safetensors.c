/* fuzz_safetensors.c -- ckpt/safetensors: a header as text, and as the head of a file. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/safetensors.h"
#include "fuzz/fuzz.h"

const char fuzz_what[] = "a safetensors header";

int fuzz_seeds(void)
{
    fuzz_add_text("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                  "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}");
    fuzz_add_text("{\"__metadata__\":{\"format\":\"pt\",\"k\\u00e9y\":\"v\"},"
                  "\"x.y\":{\"shape\":[0,5],\"data_offsets\":[0,0],\"dtype\":\"I64\"}}   ");
    fuzz_add_text("{}");
    return 0;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    struct st_header *h = NULL;
    struct st_file *f = NULL;
    uint64_t n_le = n;
    unsigned char word[8], buf[64];

    int rc = st_parse("input", (const char *)data, n, -1, &h);
    if (rc < 0)
        return rc;
    /* What was read must be whole: look at all of it. */
    uint64_t bytes = h->data_bytes;
    for (int64_t i = 0; i < h->n_tensors; i++)
        if (st_find(h, h->tensors[i].name) != &h->tensors[i])
            abort();
    for (int i = 0; i < h->n_meta; i++)
        if (!st_meta_get(h, h->meta[i].key))
            abort();
    st_header_free(h);

    /* The same header before so much data as it asks for, up to a small file. */
    if (bytes > 4096)
        return 0;
    for (int i = 0; i < 8; i++)
        word[i] = (unsigned char)(n_le >> (8 * i));
    uint8_t *file = calloc(1, 8 + n + bytes + 1);
    if (!file)
        abort();
    memcpy(file, word, 8);
    memcpy(file + 8, data, n);
    rc = st_open(fuzz_path(file, 8 + n + bytes), &f);
    if (rc == 0) {
        const struct st_tensor *t = st_head(f)->n_tensors ? &st_head(f)->tensors[0] : NULL;
        if (t && t->end - t->begin <= sizeof buf)
            rc = st_read(f, t, 0, (size_t)(t->end - t->begin), buf);
        st_close(f);
    }
    free(file);
    return rc;
}
