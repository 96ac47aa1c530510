/* vocab_json.h -- objects of a tokenizer.json that learned and converted vocabularies write alike. */
#ifndef TOK_VOCAB_JSON_H
#define TOK_VOCAB_JSON_H

#include <stdint.h>

#include "base/json.h"

/* The alphabet of bytes, as a pre-tokenizer or decoder; key NULL: in an array. */
void vocab_json_bytelevel(struct json_out *j, const char *key, _Bool trim_offsets);

/* A special token, in the array "added_tokens". */
void vocab_json_special(struct json_out *j, int32_t id, const char *content);

#endif
