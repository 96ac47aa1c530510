/* config_tree.h -- YAML text as a tree with positions, for config.c only.
 *
 * No types: a scalar is its text.  What strict configuration has no use for
 * (anchors, aliases, tags, merge keys, a second document) is an error here. */
#ifndef BASE_CONFIG_TREE_H
#define BASE_CONFIG_TREE_H

#include <stddef.h>

#include "base/arena.h"

#define CONFIG_MAX_ERRORS 20

struct config_errors {
    struct arena *arena;
    char *line[CONFIG_MAX_ERRORS];
    int n, more;                /* more: found, but not kept */
};

enum config_node_kind { CONFIG_SCALAR, CONFIG_MAP, CONFIG_LIST, CONFIG_BAD };

struct config_node {
    enum config_node_kind kind; /* CONFIG_BAD: its error is already recorded */
    int line, col;              /* 1-based; of the value, not of its key */
    _Bool plain;                /* scalar without quotes */
    const char *text;           /* scalar */
    const char *key;            /* in a map */
    int key_line, key_col;
    struct config_node *child, *next;
};

/* Records "where: path: sentence" on one line; path "" is left out. */
void config_error(struct config_errors *e, const char *where, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The root of the first document, NULL after a syntax error (recorded in e) or
 * for an empty text.  where is the file, or whole when line and column would
 * mean nothing (fixed true). */
struct config_node *config_tree(struct config_errors *e, const char *where, _Bool fixed,
                                const char *text, size_t n);

/* "file:line:col", or where itself. */
const char *config_place(struct arena *a, const char *where, _Bool fixed, int line, int col);

#endif
