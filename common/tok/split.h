/* split.h -- the o200k split expression, compiled by hand.
 *
 * With U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], W = [\p{Ll}\p{Lm}\p{Lo}\p{M}] and
 * C = (?i:'s|'t|'re|'ve|'m|'ll|'d), text is cut into pieces by
 *   [^\r\n\p{L}\p{N}]?U*W+C? | [^\r\n\p{L}\p{N}]?U+W*C? | \p{N}{1,3} |
 *    ?[^\s\p{L}\p{N}]+[\r\n/]* | \s*[\r\n]+ | \s+(?!\S) | \s+
 * leftmost branch first, greedy, with backtracking.  \s is White_Space, as in
 * Oniguruma.  Pieces cover valid UTF-8 without gaps.
 *
 * Bytes that are no valid UTF-8 are pieces too: each longest run of them is
 * one, and the valid text on either side is cut as if it stood alone. */
#ifndef TOK_SPLIT_H
#define TOK_SPLIT_H

#include <stddef.h>
#include <stdint.h>

/* The expression as it stands in tokenizer.json. */
extern const char tok_split_o200k[];

/* Calls per piece: the end of the piece that begins at pos < n.  The first
 * call on a text may come at any piece border.  *bad is increased by the
 * number of invalid bytes when the piece is a run of them. */
size_t tok_split_next(const uint8_t *s, size_t n, size_t pos, uint64_t *bad);

/* The first place at or after from (0 < from) where a piece ends whatever
 * stands before and after, or n: texts cut there give the same pieces as the
 * whole, so that threads may share a text. */
size_t tok_split_cut(const uint8_t *s, size_t n, size_t from);

#endif
