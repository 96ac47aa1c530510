/* cutter.h -- the pieces of a text, as the model of a vocabulary would get them.
 *
 * By the compiled split where there is one, else by the expressions. */
#ifndef TOK_CUTTER_H
#define TOK_CUTTER_H

#include <stddef.h>
#include <stdint.h>

#include "tok/vocab.h"

/* Read-only once made and shared by threads.  v is borrowed, and was built (recipe.h). */
struct tok_cutter;
struct tok_cutter *tok_cutter_new(const struct tok_vocab *v);
void tok_cutter_free(struct tok_cutter *c);

/* Scratch of one thread. */
struct tok_cutter_mem;
struct tok_cutter_mem *tok_cutter_mem_new(void);
void tok_cutter_mem_free(struct tok_cutter_mem *w);

/* Calls piece() for each in turn; its first failure ends the walk.  Each longest run of
 * bytes that are no UTF-8 is a piece, counted in *invalid. */
typedef int tok_piece_fn(void *arg, const uint8_t *s, size_t n);
int tok_cutter_run(const struct tok_cutter *c, struct tok_cutter_mem *w, const uint8_t *s, size_t n, tok_piece_fn *piece, void *arg, uint64_t *invalid);

/* The first place at or after from (0 < from) where a text may be given in two parts; n: none. */
size_t tok_cutter_cut(const struct tok_cutter *c, const uint8_t *s, size_t n, size_t from);

#endif
