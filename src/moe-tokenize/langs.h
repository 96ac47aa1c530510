/* langs.h -- texts by language: operands LANG=FILE, and names that say it. */
#ifndef LANGS_H
#define LANGS_H

#include "base/arena.h"

struct lang_texts { const char *name; const char **path; int n; };
struct langs { struct lang_texts *v; int n; };

/* The operands by language, in the order in which languages come: "de=FILE", or the
 * name that the file's name says: de.txt, valid.de and train.de.jsonl.zst are de.
 * Without operands there is standard input. */
void langs_group(struct arena *a, int argc, char *const *argv, struct langs *out);

/* "LANG=REST" of an option: the language's number; ERR_USAGE when there is none. */
int langs_option(struct arena *a, const struct langs *l, const char *option, const char *arg, const char **rest);

/* ERR_USAGE when there are keys but no text is lines of JSON. */
int langs_check_keys(int n_keys, const char *docs, const struct lang_texts *l, int n);

/* ERR_NOINPUT names the first text that cannot be read; ERR_USAGE one that is no
 * file and cannot be read again, when that is wanted for the reason given. */
int langs_look_at(const struct langs *l, const char *again);

#endif
