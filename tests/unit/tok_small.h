/* tok_small.h -- vocabularies of a few tokens, written where they are tested. */
#ifndef UNIT_TOK_SMALL_H
#define UNIT_TOK_SMALL_H

#include <stddef.h>
#include <stdint.h>

#include "tok/vocab.h"

#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
#define SPACE "\xe2\x96\x81"
#define SP_DECODER "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" SPACE "\"},\"content\":\" \"}," \
                   "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}"
#define SPLIT_HOW(regex, behavior, invert) "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"}," \
                   "\"behavior\":\"" behavior "\",\"invert\":" invert "}," BYTES "]}"
#define SPLIT(regex) SPLIT_HOW(regex, "Isolated", "false")
#define QWEN SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")

/* What differs from a byte-level vocabulary of 256 bytes; NULL is null. */
struct tok_small { const char *added, *normalizer, *pre, *decoder, *options, *post; const char *tokens[24]; const char *merges; };

/* bytes: ids 0 to 255 are the bytes, and the tokens come behind them. */
struct tok_vocab *tok_small_new(const struct tok_small *s, _Bool bytes);

/* Reading it, or making an encoder of it, fails with this in its sentence. */
void tok_small_refused(const struct tok_small *s, _Bool bytes, const char *why);

/* Encodes by both ways, compares, and gives the number of ids. */
int64_t tok_small_encode(const struct tok_vocab *v, const void *s, size_t n, int32_t *out, int64_t most);
void tok_small_gives(const struct tok_vocab *v, const char *text, int n, const int32_t *want);
void tok_small_shows(const struct tok_vocab *v, int n, const int32_t *ids, const char *want);

#endif
