/* docs.h -- where documents begin and end in a text. */
#ifndef TOK_DOCS_H
#define TOK_DOCS_H

#include <stddef.h>
#include <stdint.h>

#include "tok/encode.h"

enum tok_docs_mode {
    TOK_DOCS_FILE,      /* the whole text, also when it is empty */
    TOK_DOCS_LINE,      /* each line, without its line feed; an empty line is an empty document */
    TOK_DOCS_BLANK,     /* each run of lines that are not blank, without its last line feed;
                           a line of white space alone is blank */
};

struct tok_docs { enum tok_docs_mode mode; const uint8_t *s; size_t n, pos; _Bool done; };

/* s is borrowed until the last call. */
void tok_docs_begin(struct tok_docs *d, enum tok_docs_mode mode, const void *s, size_t n);

/* A line (without its line feed) of white space alone. */
_Bool tok_docs_is_blank(const uint8_t *s, size_t n);

/* The next document; false after the last. */
_Bool tok_docs_next(struct tok_docs *d, struct tok_span *out);

#endif
