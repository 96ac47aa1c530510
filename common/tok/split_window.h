/* split_window.h -- all pieces of a short text at once, for the compiled splits. */
#ifndef TOK_SPLIT_WINDOW_H
#define TOK_SPLIT_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "tok/split_kin.h"
#include "tok/split_mask.h"

enum { TOK_WINDOW_MAX = 6144 };

/* The ends of the pieces of s, n <= TOK_WINDOW_MAX, into end[n]: how many there are.  0
 * when something in it is not known here, or n is 0 or too many: then tok_split.next() has
 * the pieces.  The kernel is one of split_mask.h; the ends do not depend on it.  *plain
 * (where there are ends): every character is surely in NFC (steps.h). */
size_t tok_split_window(const struct tok_split *k, tok_mask_ascii *kernel, const uint8_t *s, size_t n, uint16_t *end, _Bool *plain);

#endif
