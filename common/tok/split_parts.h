/* split_parts.h -- the branches that the well-known split expressions are made of.
 *
 * A vocabulary is recognised by its exact expression, so what recognises it
 * (split_kin.c), what names it (scheme.c) and what writes it (recipe.c) spell it
 * from the same parts. */
#ifndef TOK_SPLIT_PARTS_H
#define TOK_SPLIT_PARTS_H

#define SPLIT_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPLIT_MARK "[^\\r\\n\\p{L}\\p{N}]?"
#define SPLIT_OTHERS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define SPLIT_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPLIT_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"      /* up to "]" or SPLIT_NOT_HAN */
#define SPLIT_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define SPLIT_NOT_HAN "&&[^\\p{Han}]]"

/* Whole ones that have more than one reader. */
#define SPLIT_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SPLIT_PLAIN SPLIT_CONTRACTION "|" SPLIT_MARK "\\p{L}+"
#define SPLIT_CL100K_HF SPLIT_PLAIN "|\\p{N}{1,3}" SPLIT_OTHERS "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SPLIT_LLAMA3 SPLIT_PLAIN "|\\p{N}{1,3}" SPLIT_OTHERS SPLIT_SPACES
#define SPLIT_QWEN2 SPLIT_PLAIN "|\\p{N}" SPLIT_OTHERS SPLIT_SPACES
#define SPLIT_QWEN35 SPLIT_CONTRACTION "|" SPLIT_MARK "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPLIT_SPACES
#define SPLIT_TEKKEN SPLIT_MARK SPLIT_UPPER "]*" SPLIT_LOWER "]+|" SPLIT_MARK SPLIT_UPPER "]+" SPLIT_LOWER \
        "]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPLIT_SPACES
#define SPLIT_KIMI "[\\p{Han}]+|" SPLIT_MARK SPLIT_UPPER SPLIT_NOT_HAN "*" SPLIT_LOWER SPLIT_NOT_HAN "+" SPLIT_CONTRACTION "?|" \
        SPLIT_MARK SPLIT_UPPER SPLIT_NOT_HAN "+" SPLIT_LOWER SPLIT_NOT_HAN "*" SPLIT_CONTRACTION "?|\\p{N}{1,3}" SPLIT_OTHERS SPLIT_SPACES

/* The three steps of DeepSeek-V3, whose line ends stand in it as they are. */
#define SPLIT_DEEPSEEK_1 "\\p{N}{1,3}"
#define SPLIT_DEEPSEEK_2 "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+"
#define SPLIT_DEEPSEEK_3 "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
        "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

#endif
