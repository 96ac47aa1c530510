/* fuzz_vocab.c -- tok/vocab: vocabularies of every format, the look-ups in what was read and encoding with it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "fuzz/fuzz.h"
#include "tok/encode.h"
#include "tok/vocab.h"

const char fuzz_what[] = "a vocabulary";

static size_t base64_of(int byte, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return (size_t)sprintf(out, "%c%c==", digits[byte >> 2], digits[(byte & 3) << 4]);
}

/* A rank file, a tekken.json and a SentencePiece model of a few tokens. */
static void add_small(void)
{
    static const char model[] = "\n\11\n\5<unk>\30\2\n\10\n\1a\25\0\0\0\0\n\10\n\1b\25\0\0\200\277\n\11\n\2ab\25\0\0\0\300\n\7\n\3<s>\30\3"
                                "\n\7\n\3yes\30\4\22\5\30\2\300\1\0\32\6\30\1\40\0\50\1";
    static char ranks[8192], tekken[32768];
    size_t n = 0, k = (size_t)sprintf(tekken, "{\"config\":{\"pattern\":\"\\\\s+|\\\\S+\",\"default_vocab_size\":259,\"default_num_special_tokens\":2,\"version\":\"v3\"},\"vocab\":[");
    char token[8];
    for (int b = 0; b < 256; b++) {
        token[base64_of(b, token)] = '\0';
        n += (size_t)sprintf(ranks + n, "%s %d\n", token, b);
        k += (size_t)sprintf(tekken + k, "{\"rank\":%d,\"token_bytes\":\"%s\"},", b, token);
    }
    n += (size_t)sprintf(ranks + n, "dGg= 256\n");
    k += (size_t)sprintf(tekken + k, "{\"rank\":256,\"token_bytes\":\"dGg=\"}],\"special_tokens\":[{\"rank\":0,\"token_str\":\"<s>\"}]}");
    fuzz_add(ranks, n);
    fuzz_add(tekken, k);
    fuzz_add(model, sizeof model - 1);
}

int fuzz_seeds(void)
{
    static const char *const specials[] = { TOK_EOD, "<|pad|>" };
    struct tok_merge merges[] = { { 'a' - 33, 'b' - 33, 0 }, { 258, 'c' - 33, 0 }, { 'd' - 33, 'd' - 33, 0 } };
    struct tok_vocab *v = NULL;
    size_t n;

    int rc = tok_vocab_build(specials, 2, merges, 3, &v);
    if (rc < 0)
        return rc;
    char *text = tok_vocab_text(v, &n);
    fuzz_add(text, n);
    add_small();
    free(text);
    tok_vocab_free(v);
    return 0;
}

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

int fuzz_one(const uint8_t *data, size_t n)
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
