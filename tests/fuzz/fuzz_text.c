/* fuzz_text.c -- tok/text_source: plain text, lines of JSON, gzip and zstd. */
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/err.h"
#include "fuzz/fuzz.h"
#include "tok/text_source.h"

const char fuzz_what[] = "a text to tokenize";

static const char lines[] =
    "{\"id\":1,\"text\":\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\t\\u0000 \\ud83d\\ude00\\ud800 and some more words\",\"x\":[1,-2.5e+3,{\"y\":[[],{},null,true]}]}\n"
    "\n{\"text\":\"Das ist ein Text ohne Umwege, aber mit \xc3\xbc und \xff.\"}\n{\"te\\u0078t\":\"\",\"z\":{\"a\":{\"b\":[[[0]]]}}}\r\n";

int fuzz_seeds(void)
{
    uint8_t buf[4096];
    z_stream z = { 0 };
    fuzz_add_text(lines);
    if (deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return ERR_IO;
    z.next_in = (Bytef *)(uintptr_t)lines;
    z.avail_in = sizeof lines - 1;
    z.next_out = buf;
    z.avail_out = sizeof buf;
    int rc = deflate(&z, Z_FINISH);
    deflateEnd(&z);
    if (rc != Z_STREAM_END)
        return ERR_BUG;
    fuzz_add(buf, z.total_out);
    static const uint8_t skippable[] = { 0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 'x', 'y' };
    memcpy(buf, skippable, sizeof skippable);
    size_t n = sizeof skippable;
    for (int i = 0; i < 2; i++) {
        size_t k = ZSTD_compress(buf + n, sizeof buf - n, lines, sizeof lines - 1, 1);
        if (ZSTD_isError(k))
            return ERR_BUG;
        n += k;
    }
    fuzz_add(buf, n);
    return 0;
}

/* Every mode and small slabs; what is skipped must not stop. */
static int run(const char *path, enum text_docs docs, size_t slab, const char *const *on)
{
    struct text_how h;
    struct text_source *t;
    struct tok_span d;
    _Bool part;
    volatile uint8_t sum = 0;
    int rc;
    tok_text_how_default(&h);
    h.docs = docs;
    h.slab_bytes = slab;
    for (; on != NULL && *on != NULL; on++)
        if ((rc = tok_text_how_set(&h, *on)) < 0)
            return rc;
    if ((rc = text_source_open(&path, 1, &h, &t)) < 0)
        return rc;
    while ((rc = text_source_next(t, &d, &part)) > 0)
        for (size_t i = 0; i < d.n; i++)
            sum ^= d.s[i];
    text_source_close(t);
    return rc;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static const char *const lenient[] = { "json=skip", "key=skip", "type=empty", "utf8=replace", "nul=drop", "empty=skip", NULL };
    const char *path = fuzz_path(data, n);
    int rc = run(path, TEXT_JSONL, 64, lenient);
    if (rc == 0)
        rc = run(path, TEXT_BLANK, 7, NULL);
    return rc == 0 ? run(path, TEXT_JSONL, 0, NULL) : rc;
}
