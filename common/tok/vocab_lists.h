/* vocab_lists.h -- the two long lists of a tokenizer.json, for the files of tok/ alone.
 *
 * model.vocab and model.merges are nearly all of the text; they are pulled from
 * it into tables, and only the rest becomes a tree.  Refuses tokens that appear
 * twice and merges of what is no token. */
#ifndef TOK_VOCAB_LISTS_H
#define TOK_VOCAB_LISTS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "tok/vocab.h"

struct tok_lists_key { const char *s; uint32_t n, hash; int64_t id; };  /* s: borrowed from the text; not NUL-terminated */

struct tok_lists {
    struct tok_lists_key *key;          /* [n_keys] in the order of the text */
    int64_t n_keys;
    size_t key_bytes;                   /* of all keys */
    struct tok_merge *merges;           /* [n_merges] numbers of keys, not ids */
    int64_t n_merges;
    struct tok_lists_table *table;      /* private */
};

/* *rest is the whole text but for the members of the lists: model.vocab and
 * model.merges are there, empty, when they are lists of this kind, and as they
 * are when not.  nul: U+0000 may stand in it.  text is borrowed until
 * tok_lists_free(), which is to be called whatever is returned. */
int tok_lists_read(const char *name, const char *text, size_t n, _Bool nul, struct tok_lists *l, json_t **rest);
void tok_lists_free(struct tok_lists *l);

/* The number of a key, or -1. */
int64_t tok_lists_find(const struct tok_lists *l, const char *s, size_t n);

#endif
