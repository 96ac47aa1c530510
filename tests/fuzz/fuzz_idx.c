/* fuzz_idx.c -- data/tokenfile and data/megatron: .idx and sidecar of a small token file.
 *
 * An input is a u32 with the length of the .idx, the .idx, and the sidecar.  The
 * recorded hash of the .idx is made to fit again, to reach what stands behind. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/hash.h"
#include "data/megatron.h"
#include "data/tokenfile.h"
#include "fuzz/fuzz.h"

const char fuzz_what[] = "an .idx with its sidecar";

static const char *prefix(void)
{
    static char path[512];

    strcpy(path, fuzz_dir());
    return strcat(path, "/t");
}

static const char *part(const char *ext)
{
    static char path[520];

    strcpy(path, prefix());
    return strcat(path, ext);
}

static int add(int dtype_bytes)
{
    struct tokenfile_info info = { .tool = (char *)"moe-tokenize 0.1.0", .tokenizer = hash_bytes("t", 1), .vocab_size = 300, .eod_id = 2,
                                   .eod_token = (char *)"<|endoftext|>", .docs = (char *)"file", .dtype_bytes = dtype_bytes };
    struct tokenfile_input in = { (char *)"de.txt", 9, hash_bytes("x", 1) };
    static const int32_t ids[] = { 5, 6, 7, 299, 0 };
    struct tokenfile_writer *w;
    struct fs_blob idx, json;

    info.inputs = &in;
    info.n_inputs = 1;
    TRY(tokenfile_create(prefix(), &info, &w));
    for (int d = 0; d < 3; d++) {
        TRY(tokenfile_append(w, ids, (size_t)(2 * d)));
        TRY(tokenfile_end_doc(w, (uint64_t)d));
    }
    TRY(tokenfile_commit(w, 0, NULL));
    TRY(fs_read(part(".idx"), &idx));
    TRY(fs_read(part(".json"), &json));
    uint32_t k = (uint32_t)idx.size;
    uint8_t *both = malloc(4 + idx.size + json.size);
    memcpy(both, &k, 4);
    memcpy(both + 4, idx.data, idx.size);
    memcpy(both + 4 + idx.size, json.data, json.size);
    fuzz_add(both, 4 + idx.size + json.size);
    free(both);
    fs_blob_free(&idx);
    fs_blob_free(&json);
    return 0;
}

/* The .bin that is left is the one of two bytes an id. */
int fuzz_seeds(void) { return add(2); }

static void use(const struct tokenfile *f)
{
    const struct tokenfile_info *i = tokenfile_about(f);
    int32_t ids[64];

    for (int64_t d = 0; d < i->documents && d < 64; d++) {
        int64_t at = tokenfile_doc_first(f, d);
        if (tokenfile_doc_of(f, at) != d)
            abort();
    }
    if (tokenfile_doc_first(f, i->documents) != i->tokens)
        abort();
    for (int64_t at = 0; at < i->tokens && at < 256; at += 64)
        if (tokenfile_ids(f, at, i->tokens - at < 64 ? i->tokens - at : 64, ids) < 0)
            return;
}

/* The same .idx without its sidecar, as one that somebody else wrote. */
static void foreign(const uint8_t *idx, size_t n)
{
    static uint8_t ids[36];
    struct fs_blob a = { malloc(n + 1), n, 0 }, b = { (char *)ids, n > 17 && idx[17] == MEGATRON_U16 ? 18 : sizeof ids, 0 };
    struct megatron m;
    int32_t out[64];
    int64_t tokens = 0;

    memcpy(a.data, idx, n);
    a.data = realloc(a.data, n ? n : 1);        /* to the byte, for the sanitizer */
    int rc = megatron_view(&m, "idx", &a, "bin", &b);
    if (rc == 0)
        rc = megatron_check(&m, &tokens);
    if (rc == 0) {
        for (int64_t d = 0; d < m.n_docs && d < 64; d++)
            if (megatron_doc_first(&m, d) > megatron_doc_first(&m, d + 1))
                abort();
        if (tokens < 0 || (uint64_t)tokens * (uint64_t)m.width != m.bytes || !megatron_dtype(m.code))
            abort();
        if (megatron_holds_ids(&m))
            megatron_ids(&m, 0, tokens < 64 ? tokens : 64, out);
    } else if (fuzz_judge(rc)) {
        abort();
    }
    free(a.data);
    err_clear();
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static const char key[] = "\"idx\":[\"";
    struct tokenfile *f = NULL;
    uint32_t k = 0;

    if (n >= 4)
        memcpy(&k, data, 4);
    if (n < 4 || k > n - 4)
        return 0;
    foreign(data + 4, k);
    fuzz_file("t.idx", data + 4, k);
    size_t m = n - 4 - k;
    char *json = malloc(m + 1);
    memcpy(json, data + 4 + k, m);
    char *at = memmem(json, m, key, sizeof key - 1);
    if (at && (size_t)(json + m - at) >= sizeof key - 1 + 32)
        memcpy(at + sizeof key - 1, hash_bytes(data + 4, k).hex, 32);
    fuzz_file("t.json", json, m);
    free(json);
    int rc = tokenfile_open(prefix(), &f);
    if (rc == 0) {
        use(f);
        err_clear();
        tokenfile_close(f);
    }
    return rc;
}
