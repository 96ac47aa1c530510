/* fuzz_ranks.c -- tok/vocab: rank files of tiktoken. */
#include <stdio.h>

#include "fuzz/fuzz.h"
#include "fuzz/vocab_use.h"

const char fuzz_what[] = "a rank file";

static size_t base64_of(int byte, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return (size_t)sprintf(out, "%c%c==", digits[byte >> 2], digits[(byte & 3) << 4]);
}

int fuzz_seeds(void)
{
    static char ranks[8192];
    char token[8];
    size_t n = 0;

    for (int b = 0; b < 256; b++) {
        token[base64_of(b, token)] = '\0';
        n += (size_t)sprintf(ranks + n, "%s %d\n", token, b);
    }
    n += (size_t)sprintf(ranks + n, "dGg= 256\n");
    fuzz_add(ranks, n);
    return fuzz_vocab_seeds("tiktoken");
}

int fuzz_one(const uint8_t *data, size_t n) { return fuzz_vocab(data, n); }
