/* recipe.h -- how the text of a new vocabulary is cut: a split by name or by
 * expression, numbers, NFC. */
#ifndef TOK_RECIPE_H
#define TOK_RECIPE_H

#include "tok/vocab.h"

struct tok_recipe {
    const char *scheme;         /* one of tok_recipe_names; NULL: o200k */
    const char *expression;     /* instead: an expression in the syntax of tokenizer.json */
    int digits;                 /* numbers that a piece holds at most, 1 to 9; 0: as the split has it */
    _Bool nfc;                  /* text is brought to NFC first */
};

extern const char tok_recipe_names[];

/* As tok_vocab_build() with these steps; r NULL: o200k.  ERR_USAGE: an unknown name, an
 * expression that cannot be read, or digits where the split has no such part. */
int tok_vocab_build_as(const struct tok_recipe *r, const char *const *specials, int n_specials,
                       struct tok_merge *merges, int64_t n_merges, struct tok_vocab **out);

#endif
