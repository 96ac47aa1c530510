/* fuzz_packed.c -- ckpt/packing: a packed stream, unpacked and looked into.
 *
 * Heads and payloads carry hashes; those of heads, of JSON and of the index are
 * made right again, so that what is tested is the meaning of blocks. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zstd.h>

#include "base/err.h"
#include "base/fs.h"
#include "ckpt/packing.h"
#include "ckpt/packing_impl.h"
#include "fuzz/fuzz.h"

const char fuzz_what[] = "a packed stream";

struct bytes { uint8_t v[65536]; size_t n; };

static int keep(void *ctx, const void *data, size_t n)
{
    struct bytes *b = ctx;

    if (n > sizeof b->v - b->n)
        return err_set(ERR_DATA, "too much for a test");
    memcpy(b->v + b->n, data, n);
    b->n += n;
    return 0;
}

int fuzz_seeds(void)
{
    static struct bytes out;
    static const char head[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]},"
                               "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[32,38]}}";
    struct rlimit most = { 1 << 26, 1 << 26 };
    uint8_t file[512] = { sizeof head - 1 };
    struct packing p = { .tool = "moe-ckpt 0.1.0" };
    struct ckpt *c;

    memcpy(file + 8, head, sizeof head - 1);
    for (int i = 0; i < 38; i++)
        file[8 + sizeof head - 1 + i] = (uint8_t)(i * 37);
    TRY(ckpt_open(fuzz_file("in.safetensors", file, 8 + sizeof head - 1 + 38), 0, &c));
    int rc = packing_write(c, keep, &out, &p);
    ckpt_close(c);
    fuzz_add(out.v, out.n);
    /* A size in the stream is reserved before it is read. */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &most);
    return rc;
}

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void sign_again(uint8_t *s, size_t n)
{
    static uint8_t text[65536];
    struct packing_block b;
    uint64_t number = 0;
    size_t at = 8;

    for (; at + PACKING_HEAD <= n; number++) {
        uint8_t *payload = s + at + PACKING_HEAD;

        packing_head_get(s + at, &b, number);
        if (b.packed > n - at - PACKING_HEAD)
            return;
        if (b.kind == 'I') {
            size_t k = ZSTD_decompress(text, sizeof text, payload, b.packed);
            if (!ZSTD_isError(k)) {
                b.raw = (uint32_t)k;
                b.hash = packing_hash(text, k);
            }
        } else if (b.kind != 'C') {
            b.hash = packing_hash(payload, b.packed);
        }
        packing_head_put(s + at, &b, number);
        at += PACKING_HEAD + b.packed;
        if (b.kind == 'I')
            break;
    }
    if (at + PACKING_TRAILER == n) {
        put64(s + at, at - PACKING_HEAD - b.packed);
        put64(s + at + 8, number);
    }
}

static int nowhere(void *ctx, const void *data, size_t n)
{
    (void)data;
    *(size_t *)ctx += n;
    return *(size_t *)ctx > (1 << 26) ? err_set(ERR_DATA, "enough") : 0;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    struct packing p = { 0 }, q = { 0 };
    char to[512];
    size_t sum = 0;
    uint8_t *s = malloc(n + 1);

    memcpy(s, data, n);
    sign_again(s, n);
    const char *path = fuzz_path(s, n);
    free(s);
    strcpy(to, fuzz_dir());
    strcat(to, "/out");
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        abort();
    int rc = packing_read(fd, "input", to, &p);
    close(fd);
    fs_remove_tree(to);
    if (rc == ERR_IO || rc == ERR_CREATE)       /* larger than a file may be, or a name that cannot be */
        rc = 0;
    struct err_state first;
    err_take(&first);
    int one = packing_tensor(path, "a", nowhere, &sum, &q);
    const char *wrong = fuzz_judge(one);
    if (wrong)
        abort();
    if (rc < 0)
        err_put(&first);
    return rc;
}
