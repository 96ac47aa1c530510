/* fuzz_tekken.c -- tok/vocab: tekken.json. */
#include <stdio.h>

#include "fuzz/fuzz.h"
#include "fuzz/vocab_use.h"

const char fuzz_what[] = "a tekken.json";

static size_t base64_of(int byte, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return (size_t)sprintf(out, "%c%c==", digits[byte >> 2], digits[(byte & 3) << 4]);
}

int fuzz_seeds(void)
{
    static char tekken[32768];
    char token[8];
    size_t n = (size_t)sprintf(tekken, "{\"config\":{\"pattern\":\"\\\\s+|\\\\S+\",\"default_vocab_size\":259,\"default_num_special_tokens\":2,"
                                       "\"version\":\"v3\"},\"vocab\":[");

    for (int b = 0; b < 256; b++) {
        token[base64_of(b, token)] = '\0';
        n += (size_t)sprintf(tekken + n, "{\"rank\":%d,\"token_bytes\":\"%s\"},", b, token);
    }
    n += (size_t)sprintf(tekken + n, "{\"rank\":256,\"token_bytes\":\"dGg=\"}],\"special_tokens\":[{\"rank\":0,\"token_str\":\"<s>\"}]}");
    fuzz_add(tekken, n);
    return fuzz_vocab_seeds("tekken.json");
}

int fuzz_one(const uint8_t *data, size_t n) { return fuzz_vocab(data, n); }
