/* scheme.c -- expressions as their programs have them, character by character. */
#include "tok/scheme.h"

#include <stddef.h>
#include <string.h>

#include "tok/split.h"
#include "tok/split_parts.h"

static const struct { const char *name, *expression; } schemes[] = {
    { "gpt2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s" },
    { "cl100k", "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s" },
    { "o200k", tok_split_o200k },
    { "llama3", SPLIT_LLAMA3 },
    { "qwen2", SPLIT_QWEN2 },
    { "tekken", SPLIT_TEKKEN },
    { "kimi", SPLIT_KIMI },
};

const char tok_scheme_names[] = "gpt2, cl100k, o200k, llama3, qwen2, tekken, kimi";

const char *tok_scheme_find(const char *name)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strcmp(schemes[i].name, name) == 0)
            return schemes[i].expression;
    return NULL;
}
