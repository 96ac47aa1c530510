/* vocab_use.c -- what every vocabulary that loads must be able to do: the look-ups
 * in what was read, and encoding with it. */
#include <stdlib.h>

#include "base/err.h"
#include "fuzz/vocab_use.h"
#include "tok/encode.h"
#include "tok/vocab.h"

/* Whatever loads also encodes, and gives tokens that it has. */
static void encode(const struct tok_vocab *v)
{
    static const uint8_t text[] = "The  times, 12345\n\n<|endoftext|>\xc3\xa9\xe4\xb8\xad\xff don't  ";
    struct tok_span doc = { text, sizeof text - 1 };
    for (int slow = 0; slow < 2; slow++) {
        struct tok_how how = { .threads = 1, .specials = 1, .template = 1, .slow = slow };
        struct tok_encoder *e;
        const int32_t *ids;
        const int64_t *ends;
        uint64_t bad = 0;
        size_t len;
        if (tok_encoder_new(v, &how, &e) < 0)
            return;
        if (tok_encode(e, &doc, 1, &ids, &ends, &bad) == 0)
            for (int64_t i = 0; i < ends[0]; i++)
                if (tok_vocab_bytes(v, ids[i], &len) == NULL)
                    abort();
        tok_encoder_free(e);
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
