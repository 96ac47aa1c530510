/* added.h -- added tokens, found in text before anything else happens to it.
 *
 * The longest token at the leftmost place wins; the cost does not depend on
 * how many there are.  A special token is found only when it is asked for,
 * and then, as in the package tokenizers, one that is not asked for still hides
 * what lies inside it. */
#ifndef TOK_ADDED_H
#define TOK_ADDED_H

#include <stddef.h>
#include <stdint.h>

#include "tok/regex.h"
#include "tok/steps.h"

struct tok_added {
    int32_t id;
    const char *content;
    _Bool single_word, lstrip, rstrip, normalized, special;
};

struct tok_finder;

/* text[i] is what to look for (its own content, or that normalized) for added[i];
 * those for which it is NULL are left out.  Both are borrowed until free.  ERR_DATA
 * names two that are the same. */
int tok_finder_new(const struct tok_added *added, const struct tok_str *text, int n, struct tok_finder **out);
void tok_finder_free(struct tok_finder *f);
/* True when something could be found (with specials, or without). */
_Bool tok_finder_any(const struct tok_finder *f, _Bool specials);

/* Stretches in order: id >= 0 is a token, -1 is text.  Those of tokens with
 * lstrip or rstrip contain the white space around them. */
struct tok_find { size_t from, to; int32_t id; };
struct tok_finds { struct tok_find *v; size_t n, cap; };

/* Appends the stretches of s to *out. */
int tok_finder_run(const struct tok_finder *f, struct tok_regex_mem *mem, const uint8_t *s, size_t n, _Bool specials, struct tok_finds *out);

#endif
