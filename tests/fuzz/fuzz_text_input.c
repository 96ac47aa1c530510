/* fuzz_text_input.c -- tok/text_input: texts packed with gzip and zstd. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/err.h"
#include "fuzz/fuzz.h"
#include "tok/text_input.h"

const char fuzz_what[] = "a packed text";

static size_t gzipped(const char *text, uint8_t *out, size_t room)
{
    z_stream z = { 0 };

    if (deflateInit2(&z, 6, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    z.next_in = (Bytef *)text;
    z.avail_in = (uInt)strlen(text);
    z.next_out = out;
    z.avail_out = (uInt)room;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    size_t n = z.total_out;
    deflateEnd(&z);
    return n;
}

int fuzz_seeds(void)
{
    static const char text[] = "the quick brown fox, the quick brown dog; the quick brown fox.\n";
    uint8_t buf[1024];

    size_t n = gzipped(text, buf, sizeof buf);
    fuzz_add(buf, n);
    size_t m = gzipped("a second member\n", buf + n, sizeof buf - n);
    fuzz_add(buf, n + m);
    n = ZSTD_compress(buf, sizeof buf, text, sizeof text - 1, 3);
    fuzz_add(buf, n);
    m = ZSTD_compress(buf + n, sizeof buf - n, "a second frame\n", 15, 1);
    fuzz_add(buf, n + m);
    fuzz_add_text(text);
    return 0;
}

/* Reads of any size give the same bytes; a small file may hold a large text, so
 * it stops somewhere. */
static int look(const char *path, size_t piece, size_t *sum, unsigned *crc)
{
    static uint8_t buf[65536];
    struct text_input *in;
    size_t got = 1;
    int rc;

    *sum = 0;
    *crc = 0;
    TRY(text_input_open(path, &in));
    while ((rc = text_input_read(in, buf, piece, &got)) == 0 && got > 0 && *sum < (1 << 22)) {
        *crc = (unsigned)crc32(*crc, buf, (uInt)got);
        *sum += got;
    }
    text_input_close(in);
    return rc;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    const char *path = fuzz_path(data, n);
    size_t a, b;
    unsigned ca, cb;
    struct err_state first;
    int rc = look(path, 65536, &a, &ca);

    err_take(&first);
    int again = look(path, 1024, &b, &cb);
    if ((rc < 0) != (again < 0) && a < (1 << 22))
        abort();
    if (rc == 0 && a < (1 << 22) && (a != b || ca != cb))
        abort();
    if (rc < 0)
        err_put(&first);
    return rc;
}
