/* fuzz_tokenizer.c -- tok/vocab: tokenizer.json, the one we write and small ones of each kind. */
#include <stdlib.h>

#include "fuzz/fuzz.h"
#include "fuzz/vocab_use.h"
#include "tok/vocab.h"

const char fuzz_what[] = "a tokenizer.json";

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
    free(text);
    tok_vocab_free(v);
    return fuzz_vocab_seeds("tokenizer.json");
}

int fuzz_one(const uint8_t *data, size_t n) { return fuzz_vocab(data, n); }
