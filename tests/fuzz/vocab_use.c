/* vocab_use.c -- what every vocabulary that loads must be able to do: the look-ups
 * in what was read, and encoding with it.  And where seeds of each format are. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "fuzz/fuzz.h"
#include "fuzz/vocab_use.h"
#include "tok/encode.h"
#include "tok/vocab.h"

enum { MOST = 4096 };

/* One way's ids; their number, or -1 where the vocabulary cannot encode it. */
static int64_t encode_by(const struct tok_vocab *v, const struct tok_how *how, const struct tok_span *doc, int32_t out[MOST])
{
    struct tok_encoder *e;
    const int32_t *ids;
    const int64_t *ends;
    uint64_t bad = 0;
    int64_t n = -1;
    size_t len;
    if (tok_encoder_new(v, how, &e) < 0)
        return -1;
    if (tok_encode(e, doc, 1, &ids, &ends, &bad) == 0 && ends[0] <= MOST) {
        n = ends[0];
        for (int64_t i = 0; i < n; i++) {
            if (tok_vocab_bytes(v, ids[i], &len) == NULL)
                abort();
            out[i] = ids[i];
        }
    }
    tok_encoder_free(e);
    return n;
}

/* What keeps the text gives it back. */
static void decode(const struct tok_vocab *v, const struct tok_span *doc, const int32_t *ids, int64_t n)
{
    struct tok_decoder d;
    char *buf = NULL;
    size_t len = 0, cap = 0;
    tok_decode_begin(&d, v);
    int rc = tok_decode(&d, ids, (size_t)n, 0, &buf, &len, &cap);
    if (rc == 0 && (rc = tok_decode_end(&d, &buf, &len, &cap)) == 0 && tok_vocab_keeps_text(v) && (len != doc->n || memcmp(buf, doc->s, len) != 0))
        abort();
    free(buf);
}

/* Whatever loads also encodes, by both ways alike, and gives tokens that it has. */
static void encode(const struct tok_vocab *v)
{
    static const char *const texts[] = {
        "The  times, 12345\n\n<|endoftext|>\xc3\xa9\xe4\xb8\xad\xff don't  ",
        "  a \xe2\x96\x81 b\xe2\x96\x81" "c  \r\n\re\xcc\x81 \xf0\x9f\x98\x80\xc2\xb2(,) TheTimes\t",
    };
    static int32_t ids[2][MOST];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct tok_span doc = { (const uint8_t *)texts[i], strlen(texts[i]) };
        for (int kind = 0; kind < 2; kind++) {
            int64_t n[2];
            for (int slow = 0; slow < 2; slow++) {
                struct tok_how how = { .threads = 1, .specials = kind, .template = kind, .slow = slow };
                n[slow] = encode_by(v, &how, &doc, ids[slow]);
            }
            if (n[0] != n[1] || (n[0] > 0 && memcmp(ids[0], ids[1], (size_t)n[0] * sizeof *ids[0]) != 0))
                abort();
            if (n[0] > 0 && kind == 0)
                decode(v, &doc, ids[0], n[0]);
        }
    }
}

int fuzz_vocab(const uint8_t *data, size_t n)
{
    struct tok_vocab *v = NULL;
    int rc = tok_vocab_parse("input", (const char *)data, n, &v);
    if (rc == ERR_USAGE) {      /* a rank file does not say how it splits */
        struct tok_load how = { .scheme = "cl100k" };
        rc = tok_vocab_parse_as("input", (const char *)data, n, &how, &v);
    }

    if (rc < 0)
        return rc;
    /* Every byte of every token can be read, and every merge names tokens. */
    volatile unsigned sum = 0;
    for (int32_t id = 0; id < tok_vocab_size(v); id++) {
        size_t len = 0;
        const uint8_t *b = tok_vocab_bytes(v, id, &len);
        for (size_t i = 0; b && i < len; i++)
            sum += b[i];
    }
    (void)sum;
    const struct tok_merge *m = tok_vocab_merges(v);
    for (int64_t i = 0; i < tok_vocab_n_merges(v); i++)
        if (m[i].a < 0 || m[i].b < 0 || m[i].product < 0 || m[i].a >= tok_vocab_size(v) ||
            m[i].b >= tok_vocab_size(v) || m[i].product >= tok_vocab_size(v))
            abort();
    encode(v);
    tok_vocab_free(v);
    return 0;
}

static size_t unbase64(const char *s, uint8_t *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t word = 0;
    size_t n = 0;
    int bits = 0;

    for (; *s && *s != '='; s++) {
        word = word << 6 | (uint32_t)(strchr(digits, *s) - digits);
        if ((bits += 6) >= 8)
            out[n++] = (uint8_t)(word >> (bits -= 8));
    }
    return n;
}

static void add_case(const json_t *o, const char *format)
{
    static uint8_t buf[1 << 16];
    const json_t *text = json_object_get(o, "vocabulary"), *packed = json_object_get(o, "vocabulary_base64");
    struct tok_load how = { .scheme = "cl100k" };
    struct tok_vocab *v = NULL;
    size_t n = 0;

    if (json_is_string(text) && json_string_length(text) < sizeof buf)
        memcpy(buf, json_string_value(text), n = json_string_length(text));
    else if (json_is_string(packed) && json_string_length(packed) < sizeof buf)
        n = unbase64(json_string_value(packed), buf);
    if (n > 0 && (tok_vocab_parse("seed", (char *)buf, n, &v) == 0 || tok_vocab_parse_as("seed", (char *)buf, n, &how, &v) == 0) &&
        !strcmp(tok_vocab_format(v), format))
        fuzz_add(buf, n);
    tok_vocab_free(v);
    err_clear();
}

int fuzz_vocab_seeds(const char *format)
{
    static const char path[] = "tests/golden/tok/cases.jsonl";
    struct fs_blob b;
    json_t *o;
    int rc = fs_read(path, &b);

    for (char *at = b.data, *end; rc == 0 && at < b.data + b.size; at = end + 1) {
        end = memchr(at, '\n', (size_t)(b.data + b.size - at));
        if (!end)
            break;
        if ((rc = json_load_nul(path, at, (size_t)(end - at), &o)) == 0) {
            add_case(o, format);
            json_decref(o);
        }
    }
    if (rc == 0)
        fs_blob_free(&b);
    return rc;
}
