/* text_slab.h -- a run of documents, and what is decided about what is in them.
 *
 * Slabs come from text_source.h; rows are found here.  Nearly all documents are
 * spans of the slab's own data. */
#ifndef TOK_TEXT_SLAB_H
#define TOK_TEXT_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "tok/encode.h"

enum text_docs {
    TEXT_AUTO,          /* TEXT_JSONL for NAME.jsonl and NAME.ndjson, also .gz, .zst; else TEXT_FILE */
    TEXT_FILE, TEXT_LINE, TEXT_BLANK,   /* as in docs.h */
    TEXT_JSONL,         /* an object a line; its strings under the keys are documents */
};

/* What a text may hold that somebody has to decide about. */
enum text_kind {
    TEXT_UTF8,          /* bytes that are no valid UTF-8 (counted when they are not kept) */
    TEXT_SURROGATE,     /* JSON: half of a surrogate pair */
    TEXT_NUL,           /* U+0000 */
    TEXT_JSON,          /* JSON: a line that is no object */
    TEXT_KEY,           /* JSON: no such key, or null */
    TEXT_TYPE,          /* JSON: a value that is not a string */
    TEXT_BLANK_LINE,    /* JSON: a line of white space */
    TEXT_EMPTY,         /* a document (of all keys) without text */
    TEXT_N_KINDS
};
enum text_action {
    TEXT_KEEP, TEXT_REPLACE,            /* by U+FFFD */
    TEXT_DROP,                          /* leave the character out */
    TEXT_SKIP,                          /* leave the line or document out */
    TEXT_AS_EMPTY,                      /* as if the string were there and empty */
    TEXT_STOP,                          /* ERR_DATA with file and line */
    TEXT_N_ACTIONS
};

struct text_how {
    enum text_docs docs;
    const char *const *keys; int n_keys;        /* borrowed; 0: "text" */
    enum text_action on[TEXT_N_KINDS];
    size_t slab_bytes;                          /* 0: 1 MiB */
    /* Where a text may be cut in two, as tok_encoder_cut(); NULL: nowhere. */
    size_t (*cut)(const void *arg, const uint8_t *s, size_t n, size_t from);
    const void *cut_arg;
};

void tok_text_how_default(struct text_how *h);
/* "KIND=ACTION", e.g. "utf8=replace"; ERR_USAGE with what there is. */
int tok_text_how_set(struct text_how *h, const char *spec);
/* " --on KIND=ACTION" for each that is not the default; buf of 256 bytes. */
const char *tok_text_how_text(const struct text_how *h, char *buf);
const char *tok_text_kind_name(enum text_kind k);           /* for counters: "bad_json" */

enum text_docs tok_text_docs_of(const char *path);          /* TEXT_FILE or TEXT_JSONL, by the name */

/* A run of documents. */
struct text_slab {
    int input;                          /* index of its path */
    _Bool first, last;                  /* of its input */
    _Bool begins_doc, ends_doc;         /* false: the first (last) row goes on in another slab */
    int64_t n_rows;
    struct tok_span *doc;               /* [n_rows][n_keys]; n_keys is 1 unless the input is JSON */
    int64_t count[TEXT_N_KINDS];
    uint64_t stored;                    /* bytes of the input as stored, up to here */
    struct hash hash;                   /* of the input as stored, in its last slab */
    /* ---- of text_source.c alone */
    uint8_t *data; size_t n, cap;
    int64_t n_lines, cap_rows;
    enum text_docs docs;
    struct err_state read_err;
    int64_t fault_line;                 /* 0: none; else a line of this slab, from 1 */
    uint64_t fault_byte;
    char fault[200];
    uint8_t **mended; int64_t cap_mended; int n_mended;
};
struct text_slab *text_slab_new(void);                  /* NULL: no memory */
void text_slab_free(struct text_slab *b);               /* NULL is accepted */

void text_slab_trim(struct text_slab *b, size_t keep);  /* gives back buffers of more than keep bytes */

/* For text_source.c: an empty slab, its rows forgotten; then, when its data is
 * there, its rows, counts and perhaps its fault.  The data is changed where
 * strings of JSON are unpacked.  ERR_IO: no memory. */
void text_slab_reset(struct text_slab *b);
int text_slab_parse(struct text_slab *b, const struct text_how *how);

#endif
