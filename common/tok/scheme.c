/* scheme.c -- expressions as their programs have them, character by character. */
#include "tok/scheme.h"

#include <stddef.h>
#include <string.h>

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define NOT_HAN "&&[^\\p{Han}]"
#define MARK "[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct { const char *name, *expression; } schemes[] = {
    { "gpt2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s" },
    { "cl100k", "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s" },
    { "o200k", MARK UPPER "]*" LOWER "]+" CONTRACTION "?|" MARK UPPER "]+" LOWER "]*" CONTRACTION "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES },
    { "llama3", CONTRACTION "|" MARK "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES },
    { "qwen2", CONTRACTION "|" MARK "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES },
    { "tekken", MARK UPPER "]*" LOWER "]+|" MARK UPPER "]+" LOWER "]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES },
    { "kimi", "[\\p{Han}]+|" MARK UPPER NOT_HAN "]*" LOWER NOT_HAN "]+" CONTRACTION "?|" MARK UPPER NOT_HAN "]+" LOWER NOT_HAN "]*" CONTRACTION
              "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES },
};

const char tok_scheme_names[] = "gpt2, cl100k, o200k, llama3, qwen2, tekken, kimi";

const char *tok_scheme_find(const char *name)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strcmp(schemes[i].name, name) == 0)
            return schemes[i].expression;
    return NULL;
}
