/* text_input.h -- the bytes of a text, whatever it was packed with.
 *
 * A file or standard input that begins like gzip or zstd is unpacked; its name
 * does not matter.  Several gzip members or zstd frames behind one another are
 * one text.  Memory does not depend on the size.  What is torn or damaged is
 * ERR_DATA with the place in the file, and so is a file that changed while it
 * was read, or one that begins like xz, bzip2, lz4 or zip. */
#ifndef TOK_TEXT_INPUT_H
#define TOK_TEXT_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

struct text_input;

/* "-" is standard input; ERR_NOINPUT when it cannot be opened. */
int text_input_open(const char *path, struct text_input **out);
void text_input_close(struct text_input *in);           /* NULL is accepted */

/* Up to n bytes of text into buf, n only at the end not reached; *got 0: the end. */
int text_input_read(struct text_input *in, void *buf, size_t n, size_t *got);

/* Of the file as it is stored, as far as it was read. */
uint64_t text_input_stored(const struct text_input *in);
struct hash text_input_hash(const struct text_input *in);

/* The same of a whole file, or of standard input, without unpacking. */
int text_input_hash_stored(const char *path, struct hash *hash, uint64_t *bytes);

#endif
