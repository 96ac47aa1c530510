/* vocab_read.h -- parts of reading tokenizer.json, for the files of tok/ alone.
 *
 * Errors name the file, the place and the value: what could change an id and is
 * not done here is refused, never passed over. */
#ifndef TOK_VOCAB_READ_H
#define TOK_VOCAB_READ_H

#include <jansson.h>

#include "tok/vocab_lists.h"
#include "tok/vocab_store.h"

/* ERR_DATA "name: what: VALUE is not supported". */
int tok_read_refuse(const char *name, const char *what, const json_t *value);

/* Null, false, 0, "" or not there. */
_Bool tok_read_neutral(const json_t *v);

/* Each key of o must be in known: "key", or "key!" when only neutral values are. */
int tok_read_keys(const char *name, const char *where, const json_t *o, const char *known);
int tok_read_expect(const char *name, const char *where, const json_t *o, const char *key, const char *want);

/* The formats; *out has no hash yet. */
int tok_read_json(const char *name, const json_t *rest, const struct tok_lists *l, struct tok_vocab **out);
int tok_read_tekken(const char *name, const json_t *root, struct tok_vocab **out);
int tok_read_tiktoken(const char *name, const char *text, size_t n, const struct tok_load *how, struct tok_vocab **out);
int tok_read_sp(const char *name, const char *text, size_t n, struct tok_vocab **out);

/* The four parts around the model; vocab is model.vocab. */
int tok_read_normalizer(struct tok_vocab *v, const json_t *o);
int tok_read_pre_tokenizer(struct tok_vocab *v, const json_t *o);
int tok_read_post_processor(struct tok_vocab *v, const json_t *o);
/* Also gives every token of the model its text. */
int tok_read_decoder(struct tok_vocab *v, const json_t *o);

#endif
