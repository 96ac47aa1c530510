/* tokenfile_info.h -- what the sidecar of a token file says.
 *
 * A plain record, between the files themselves (tokenfile.h) and the JSON that
 * describes them (sidecar.h), so that neither has to know the other. */
#ifndef DATA_TOKENFILE_INFO_H
#define DATA_TOKENFILE_INFO_H

#include <stdint.h>

#include "base/hash.h"

#define TOKENFILE_FORMAT "moe.tokens/1"
#define TOKENFILE_CHUNK 67108864        /* bytes of .bin per recorded hash */
#define TOKENFILE_VERIFY_MAX (1ull << 30)

struct tokenfile_input { char *path; uint64_t bytes; struct hash hash; };
/* A token file that was merged into this one. */
struct tokenfile_part { char *path; int64_t documents, tokens; struct hash hash; };
struct tokenfile_counter { char *name; int64_t n; };

/* What the sidecar says. */
struct tokenfile_info {
    char *tool;                 /* "moe-tokenize 0.1.0" */
    char **argv; int n_argv;
    struct hash tokenizer;      /* of the tokenizer.json */
    int64_t vocab_size;
    int32_t eod_id;
    char *eod_token;
    char *docs;                 /* what made a document: file, line, blank, jsonl; auto: file and jsonl */
    char *key;                  /* whose strings the documents are, of JSON; else NULL */
    char *how;                  /* options that change the ids, as on a command line; NULL or "": none */
    int dtype_bytes;            /* 2 or 4 */
    int64_t documents, tokens, text_bytes;
    int64_t invalid_utf8, empty;        /* invalid bytes; documents without text */
    int64_t empty_tokens;       /* for the writer: what a document without text has, the last one included; 0: 1 */
    struct tokenfile_counter *more; int n_more;     /* other counters */
    struct tokenfile_input *inputs; int n_inputs;
    struct tokenfile_part *parts; int n_parts;      /* of a merged file, in order; else none */
};

#endif
