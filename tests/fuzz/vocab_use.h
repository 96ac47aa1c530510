/* vocab_use.h -- one target for each file format of vocabularies, one use of them. */
#ifndef FUZZ_VOCAB_USE_H
#define FUZZ_VOCAB_USE_H

#include <stddef.h>
#include <stdint.h>

/* fuzz_one() of all of them: the format shows in the bytes. */
int fuzz_vocab(const uint8_t *data, size_t n);

#endif
