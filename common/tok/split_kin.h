/* split_kin.h -- the compiled splits, found by their exact expression.
 *
 * Each gives the pieces of its expression (as the engine of its dialect has
 * them) on any text; bytes that are no UTF-8 are pieces as in split.h. */
#ifndef TOK_SPLIT_KIN_H
#define TOK_SPLIT_KIN_H

#include <stddef.h>
#include <stdint.h>

#include "tok/regex.h"
#include "tok/steps.h"

/* Which of the expressions it is kin to: with a word in either case, without, and the
 * two that stand alone; words behind their spaces; FORM_OTHER has no way but next(). */
enum tok_split_form { TOK_FORM_PLAIN, TOK_FORM_CASED, TOK_FORM_GPT2, TOK_FORM_DEEPSEEK, TOK_FORM_SPACE, TOK_FORM_OTHER };

struct tok_split {
    const char *name;
    /* The end of the piece at pos < n; calls as for tok_split_next(). */
    size_t (*next)(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad);
    int digits;                 /* numbers a piece holds at most */
    _Bool line_cut;             /* a visible character after a line feed begins a piece */
    _Bool slash;                /* "/" may follow a line feed in one piece */
    _Bool end_space;            /* white space that ends the text is one piece */
    enum tok_split_form form;
    _Bool marks;                /* marks are as letters are */
    _Bool tail;                 /* words in either case end with 's, 'll ... */
    _Bool apart;                /* ideographs are pieces of their own */
    _Bool each, lines;          /* SPACE: each space begins a piece; CR and LF are pieces */
};

/* The split that these steps are, without ByteLevel at their end; NULL: none. */
const struct tok_split *tok_split_find(const struct tok_pre *pre, int n, enum tok_dialect d);

/* The single expressions that are known, with a dialect of each; NULL after the last. */
const char *tok_split_known(int i, enum tok_dialect *d);

/* next() of FORM_SPACE: spaces (and "▁") and what follows up to the next ones.  s is valid UTF-8. */
size_t tok_split_space_next(const struct tok_split *k, const uint8_t *s, size_t n, size_t pos, uint64_t *bad);

/* As tok_split_cut(). */
size_t tok_split_kin_cut(const struct tok_split *k, const uint8_t *s, size_t n, size_t from);

#endif
