/* text_source.h -- documents out of files and pipes, in pieces of bounded size.
 *
 * Inputs are plain text or lines of JSON, as they are or packed (text_input.h).
 * They come as slabs: runs of whole documents, or of a part of one document
 * where the caller knows how to cut it.  Reading is for one thread at a time,
 * finding the documents of a slab is for any thread, and the result is taken in
 * order, so that counts, line numbers and the first failure do not depend on
 * who worked when.  A document that cannot be cut is held whole; nothing else
 * grows with the input.
 *
 *     while (text_source_read(t, slab) > 0) {     one thread at a time
 *         TRY(text_source_parse(t, slab));        any thread
 *         TRY(text_source_take(t, slab));         in the order of reading
 *         slab->doc[0 .. n_rows * n_keys) ...     until slab is read again
 *     }
 *
 * or, one after another in one thread: text_source_next(). */
#ifndef TOK_TEXT_SOURCE_H
#define TOK_TEXT_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "tok/encode.h"
#include "tok/text_slab.h"

struct text_source;

/* paths and how are borrowed; "-" is standard input. */
int text_source_open(const char *const *paths, int n, const struct text_how *how, struct text_source **out);
void text_source_close(struct text_source *t);          /* NULL is accepted */
int text_source_n_keys(const struct text_source *t);

/* Leaves inputs below i, of so many bytes as stored, out; before the first read. */
void text_source_skip_to(struct text_source *t, int i, uint64_t stored);

/* 1: a slab, 0: no more.  A failure to read comes with text_source_take(), in its turn. */
int text_source_read(struct text_source *t, struct text_slab *b);
int text_source_parse(const struct text_source *t, struct text_slab *b);        /* ERR_IO: memory */
int text_source_take(struct text_source *t, const struct text_slab *b);

/* Sums over the slabs taken. */
const int64_t *text_source_counts(const struct text_source *t);         /* [TEXT_N_KINDS] */
void text_source_add_counts(struct text_source *t, const int64_t *count);

/* One document after another, the keys of a line in turn; *part: more of it
 * follows.  Borrowed until the next call.  1, or 0 after the last. */
int text_source_next(struct text_source *t, struct tok_span *doc, _Bool *part);
uint64_t text_source_stored(const struct text_source *t);       /* bytes read of all inputs so far */

#endif
