/* scheme.h -- the split expressions of well-known vocabularies by name.
 *
 * Rank files do not hold their expression, so it is named with --scheme. */
#ifndef TOK_SCHEME_H
#define TOK_SCHEME_H

/* The expression in fancy-regex syntax, as the vocabulary's own program has
 * it; NULL when there is no such scheme. */
const char *tok_scheme_find(const char *name);

/* The names, separated by ", ". */
extern const char tok_scheme_names[];

#endif
