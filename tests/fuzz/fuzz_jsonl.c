/* fuzz_jsonl.c -- tok/text_source: lines of JSON, in slabs of any size.
 *
 * The first byte of an input is how: what to do with lines that are not as they
 * should be, and plain lines or runs of lines instead.  Small slabs must give
 * the documents, the counts and the answer of large ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "fuzz/fuzz.h"
#include "tok/text_source.h"

const char fuzz_what[] = "lines of JSON";

int fuzz_seeds(void)
{
    fuzz_add_text("\1{\"text\":\"one\\n\\u00e9\\ud83d\\ude00\",\"id\":[1,2.5e3,{\"a\":null}]}\n{\"title\":\"t\",\"text\":\"\"}\n\n"
                  "{\"text\":\"two \xc3\xa9\"}\n");
    fuzz_add_text("\5{\"text\":\"\\ud800 \\u0000\"}\n{\"text\":null}\n[1]\n{\"text\":7}\nxyz\n{\"text\":\"\xff\"}");
    fuzz_add_text("\2one line\nanother\r\n\n \nlast");
    fuzz_add_text("\3a run\nof lines\n\n \nanother\n");
    return 0;
}

struct seen { struct hash_stream *h; int64_t n, count[TEXT_N_KINDS]; int rc; struct err_state err; };

static void look(const char *path, const struct text_how *how, struct seen *out)
{
    struct text_source *t = NULL;
    struct tok_span doc;
    _Bool part = 0;

    *out = (struct seen){ .h = hash_begin() };
    out->rc = text_source_open(&path, 1, how, &t);
    while (out->rc >= 0 && (out->rc = text_source_next(t, &doc, &part)) > 0) {
        uint64_t n = doc.n;
        hash_add(out->h, doc.s, doc.n);
        hash_add(out->h, &n, sizeof n);
        out->n++;
        if (part)
            abort();            /* nobody said where a text may be cut */
    }
    if (t)
        memcpy(out->count, text_source_counts(t), sizeof out->count);
    err_take(&out->err);
    text_source_close(t);
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static const char *const lenient[] = { "surrogate=skip", "nul=drop", "json=skip", "key=skip", "type=skip", "blank=skip", "utf8=replace" };
    static const char *const keys[] = { "title", "text" };
    struct text_how how;
    struct seen big, small;
    uint8_t mode = n ? data[0] : 0;

    tok_text_how_default(&how);
    how.docs = mode % 4 == 2 ? TEXT_LINE : mode % 4 == 3 ? TEXT_BLANK : TEXT_JSONL;
    for (size_t i = 0; i < sizeof lenient / sizeof *lenient; i++)
        if (mode & 4 && tok_text_how_set(&how, lenient[i]) < 0)
            err_clear();
    if (mode & 8) {
        how.keys = keys;
        how.n_keys = 2;
    }
    const char *path = fuzz_path(data + (n > 0), n - (n > 0));
    look(path, &how, &big);
    how.slab_bytes = 16 + mode / 16;
    look(path, &how, &small);
    struct hash a = hash_end(big.h), b = hash_end(small.h);
    if ((big.rc < 0) != (small.rc < 0) || (big.rc < 0 && strcmp(big.err.msg, small.err.msg)) ||
        (big.rc == 0 && (!hash_eq(&a, &b) || big.n != small.n || memcmp(big.count, small.count, sizeof big.count)))) {
        fprintf(stderr, "slabs differ: %d %lld \"%s\", %d %lld \"%s\"\n", big.rc, (long long)big.n, big.err.msg, small.rc, (long long)small.n, small.err.msg);
        abort();
    }
    if (big.rc < 0)
        err_put(&big.err);
    return big.rc;
}
