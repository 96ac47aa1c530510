/* vocab_use.h -- one target for each file format of vocabularies, one use of them. */
#ifndef FUZZ_VOCAB_USE_H
#define FUZZ_VOCAB_USE_H

#include <stddef.h>
#include <stdint.h>

/* fuzz_one() of all of them: the format shows in the bytes. */
int fuzz_vocab(const uint8_t *data, size_t n);

/* Adds the vocabularies of one format among the cases of tests/golden/tok as
 * seeds; what tok_vocab_format() calls it.  0 or a negative code. */
int fuzz_vocab_seeds(const char *format);

#endif
