/* decode_table.h -- ids to text at the speed of memory.
 *
 * For whole documents: nothing is held back for a screen.  What decode.c gives
 * for a document, in larger steps. */
#ifndef TOK_DECODE_TABLE_H
#define TOK_DECODE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "tok/vocab.h"

struct tok_table;

/* Special tokens have no text unless specials is true.  v is borrowed until
 * free.  ERR_DATA when the vocabulary cannot be decoded. */
int tok_table_new(const struct tok_vocab *v, _Bool specials, struct tok_table **out);
void tok_table_free(struct tok_table *t);               /* NULL is accepted */

/* The most bytes that a token of the vocabulary has. */
size_t tok_table_longest(const struct tok_table *t);

/* Writes the text of ids into dst, of room bytes, until it may not have room
 * for another token (longest + 16 bytes are left free).  *len: bytes written.
 * Returns how many ids were taken; one that is no token is not. */
size_t tok_table_text(const struct tok_table *t, const int32_t *ids, size_t n, char *dst, size_t room, size_t *len);

/* Bytes to leave out at the beginning of a document's text s[n], all of it or
 * enough: the spaces that encoding put there. */
size_t tok_table_strip(const struct tok_table *t, const char *s, size_t n);

/* Why an id stopped tok_table_text(): ERR_DATA with a sentence. */
int tok_table_refuse(const struct tok_table *t, int32_t id);

#endif
