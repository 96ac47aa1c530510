/* config_impl.h -- what the files of config share; nobody else includes it. */
#ifndef BASE_CONFIG_IMPL_H
#define BASE_CONFIG_IMPL_H

#include "base/arena.h"
#include "base/config.h"
#include "base/config_tree.h"

struct config_value {
    const char *text;           /* canonical YAML; NULL: required and not known */
    const char *origin;         /* "c.yaml:12:5", "command line", "default", a note */
    _Bool given, noted;
    _Bool failed;               /* given, with an error: not missing as well */
};

struct config {
    struct arena *arena;
    const struct config_key *keys;
    int n_keys;
    struct config_value *value; /* [n_keys] */
    const char *file;           /* for sentences; NULL when there is none */
    const char *dir;
    const char *model_text;     /* model: PATH as it was written; NULL: a section */
    const char *model_origin;
    struct config_errors errors;
    struct config_node *root;
};

/* Canonical YAML text of a string: plain where that is safe, else quoted. */
const char *config_quote(struct arena *a, const char *s);

/* " (did you mean ...)" or "" for a key of a section ("" is the top) that is
 * not in the table. */
const char *config_hint(struct arena *a, const struct config_key *keys, const char *section, const char *key);

/* True when some path of the table lies below path. */
_Bool config_is_section(const struct config_key *keys, const char *path);

#endif
