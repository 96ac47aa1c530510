/* config.h -- strict YAML configuration from a table of keys.
 *
 * libyaml gives scalars with positions; types come from our table, so 1e-4,
 * yes and 010 mean what the field says.  Unknown and duplicate keys, aliases,
 * tags, merge keys, a second document and depth over 32 are errors; up to 20
 * errors are collected and reported together, each as
 *   file:line:col: key.path: what was expected (did you mean "hidden_size"?)
 *
 * The table lists leaves by full path ("optim.muon.lr"); sections follow from
 * the paths.  Each value remembers its origin for --print-config, whose output
 * is accepted as input. */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

enum config_kind {
    CONFIG_INT,         /* int64_t, units accepted */
    CONFIG_FLOAT,       /* double, finite */
    CONFIG_BOOL,        /* bool (C _Bool) */
    CONFIG_STR,         /* char *, in the config's memory */
    CONFIG_CHOICE,      /* int: index into the words of choices, split at '|' */
    CONFIG_INT_AUTO,    /* int64_t, the word auto is -1 */
    CONFIG_FLOATS,      /* double[item_size]: exactly so many numbers in a list */
    CONFIG_ITEMS,       /* a list of maps: struct config_items, fields in items */
};

struct config_key {
    const char *path;           /* full path, "data.seq_len"; NULL ends the table */
    enum config_kind kind;
    size_t offset;              /* in the destination struct */
    const char *def;            /* default as YAML text; NULL: must be given; "" for a string: unset (NULL) */
    double min, max;            /* inclusive, for numbers; equal: no limits */
    const char *choices;        /* CONFIG_CHOICE */
    const char *doc;            /* one line for moe-formats(5) */
    const struct config_key *items;     /* CONFIG_ITEMS: paths are the item's keys */
    size_t item_size;           /* CONFIG_ITEMS: sizeof one item; CONFIG_FLOATS: number of items */
};

struct config_items { void *v; int n; };

struct config;                  /* the parsed text with positions and origins */

/* Reads file ("-" stdin; NULL: defaults and overrides only), applies overrides
 * ("key.path=value", n of them; a list is given in YAML flow form), checks
 * against keys and fills *dest.  Everything dest points to lives until
 * config_free(); the caller zeroes it first.  Returns ERR_USAGE with all errors,
 * one a line, or ERR_NOINPUT.
 * keys under "model." may be absent when the file says  model: PATH : then
 * *model_path is that path (relative paths are relative to the file), the keys
 * under "model." are left at their defaults and the caller reads config.json. */
int config_load(const char *file, char **overrides, int n_overrides,
                const struct config_key *keys, void *dest,
                const char **model_path, struct config **out);
void config_free(struct config *c);

/* Directory of the file, against which relative paths in it are read ("." for stdin). */
const char *config_dir(const struct config *c);

/* True if the key was given in the file or as an override (not a default). */
_Bool config_given(const struct config *c, const char *path);

/* "file:line:col" of a key, or "command line", or "default": for errors that
 * concern several keys, found later.  Borrowed until the next call. */
const char *config_where(const struct config *c, const char *path);

/* YAML text of all keys in table order, nested, each leaf with its origin as a
 * comment when origins is true.  Text owned by the caller (free()). */
char *config_print(const struct config *c, _Bool origins);

/* Replaces the value shown by config_print()/config_digest() for a key, e.g.
 * after auto was resolved or a config.json was read; origin becomes note.
 * value is the plain text of a scalar, or a list in YAML flow form.  Once a key
 * under "model." is noted, the section is printed in place of  model: PATH.
 * ERR_BUG for an unknown key or a value that would not load again. */
int config_note(struct config *c, const char *path, const char *value, const char *note);

/* Hash of the printed values without origins: the identity of a configuration. */
struct hash config_digest(const struct config *c);

#endif
