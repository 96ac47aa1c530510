/* regex.h -- expressions of other engines, run by PCRE2 with the same result.
 *
 * tokenizer.json speaks Oniguruma (Ruby syntax), tiktoken and tekken speak
 * Rust's fancy-regex.  The pattern is read and written anew: \s is White_Space
 * and not PCRE2's set, scripts are scripts and not extensions, "$" means what
 * it means there, {1,3}+ is possessive in one and not in the other, [A&&[^B]]
 * becomes a look-ahead.  A construct whose meaning might differ is refused by
 * name; nothing is passed on unread.
 *
 * Matching has limits: a catastrophic pattern ends with ERR_DATA and the place
 * in the text instead of never. */
#ifndef TOK_REGEX_H
#define TOK_REGEX_H

#include <stddef.h>
#include <stdint.h>

struct tok_regex;

enum tok_dialect { TOK_ONIG, TOK_RUST };

/* where names the place of the pattern in a file, for errors. */
int tok_regex_new(const char *where, const char *pattern, size_t n, enum tok_dialect d, struct tok_regex **out);
void tok_regex_free(struct tok_regex *re);

/* The pattern as PCRE2 reads it; owned by the caller. */
int tok_regex_translate(const char *where, const char *pattern, size_t n, enum tok_dialect d, char **out);

/* Memory of one thread for any number of expressions; NULL when there is none. */
struct tok_regex_mem;
struct tok_regex_mem *tok_regex_mem_new(void);
void tok_regex_mem_free(struct tok_regex_mem *m);

/* The walk over all matches in s, which is valid UTF-8, as find_iter() of those
 * engines has it: an empty match right after a match is none.  Returns 1 with
 * [*from, *to), 0 after the last. */
struct tok_regex_walk { const struct tok_regex *re; const uint8_t *s; size_t n, pos, last; };
void tok_regex_begin(struct tok_regex_walk *w, const struct tok_regex *re, const uint8_t *s, size_t n);
int tok_regex_next(struct tok_regex_walk *w, struct tok_regex_mem *m, size_t *from, size_t *to);

/* The general categories as the expressions see them (Lu Lt, Ll, Lm Lo, M, N, P S),
 * for kind[c - from] of the characters c of [from, to). */
enum tok_kind { TOK_KIND_REST, TOK_KIND_UPPER, TOK_KIND_LOWER, TOK_KIND_LETTER, TOK_KIND_MARK, TOK_KIND_NUMBER, TOK_KIND_SIGN };
void tok_regex_kinds(uint32_t from, uint32_t to, uint8_t *kind);

#endif
