/* config.c -- loading: walk the tree with the table, then the overrides, then
 * what is missing.
 *
 * Refuses to guess types, to let a later key win over an earlier one, and to
 * stop at the first mistake. */
#include "base/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config_impl.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/units.h"

static const char CMDLINE[] = "command line";

/* Where a conversion happens: for sentences, and for origins. */
struct place {
    struct config *c;
    const char *where;          /* file, or CMDLINE */
    _Bool fixed;                /* no line and column */
};

static const char *at(const struct place *p, const struct config_node *n)
{
    return config_place(p->c->arena, p->where, p->fixed, n->line, n->col);
}

static const char *at_key(const struct place *p, const struct config_node *n)
{
    return config_place(p->c->arena, p->where, p->fixed, n->key_line, n->key_col);
}

static const char *expected(const struct config_key *k, struct arena *a)
{
    switch (k->kind) {
    case CONFIG_INT: return "a whole number";
    case CONFIG_FLOAT: return "a number";
    case CONFIG_BOOL: return "true or false";
    case CONFIG_STR: return "a text";
    case CONFIG_CHOICE: return arena_printf(a, "one of %s", k->choices);
    case CONFIG_INT_AUTO: return "a whole number or auto";
    case CONFIG_FLOATS: return arena_printf(a, "a list of %zu numbers", k->item_size);
    case CONFIG_ITEMS: return "a list of maps";
    }
    return "";
}

static const char *name_of(enum config_node_kind kind)
{
    return kind == CONFIG_MAP ? "a section" : kind == CONFIG_LIST ? "a list" : "a single value";
}

/* Reads the text of a scalar into *to and its canonical form into *out.  The
 * sentence of a failure has no place yet. */
static int read_scalar(struct arena *a, const struct config_key *k, const char *s, _Bool plain,
                       void *to, const char **out)
{
    char b[32];
    int i;

    if (!*s && k->kind != CONFIG_STR)
        return err_set(ERR_USAGE, "expected %s, found nothing", expected(k, a));
    switch (k->kind) {
    case CONFIG_INT_AUTO:
        if (!strcmp(s, "auto")) {
            *(int64_t *)to = -1;
            *out = "auto";
            return 0;
        }
        if (units_int(s, to) < 0)
            return err_set(ERR_USAGE, "expected a whole number or auto, not \"%s\"", s);
        goto limits;
    case CONFIG_INT:
        TRY(units_int(s, to));
    limits:
        *out = arena_printf(a, "%lld", (long long)*(int64_t *)to);
        return units_range(s, (double)*(int64_t *)to, k->min, k->max);
    case CONFIG_FLOAT:
        TRY(units_float(s, to));
        *out = arena_strdup(a, units_shortest(b, *(double *)to));
        return units_range(s, *(double *)to, k->min, k->max);
    case CONFIG_BOOL:
        TRY(units_bool(s, to));
        *out = *(_Bool *)to ? "true" : "false";
        return 0;
    case CONFIG_CHOICE:
        TRY(i = units_choice(s, k->choices));
        *(int *)to = i;
        *out = arena_strdup(a, s);
        return 0;
    case CONFIG_STR:
        /* The empty text means "not set", and so do the nulls of YAML. */
        if (plain && (!strcmp(s, "null") || !strcmp(s, "~")))
            s = "";
        if (!*s && !k->def)
            return err_set(ERR_USAGE, "expected a text, found nothing");
        *(char **)to = *s ? arena_strdup(a, s) : NULL;
        *out = config_quote(a, s);
        return 0;
    case CONFIG_FLOATS:
    case CONFIG_ITEMS:
        break;
    }
    BUG_ON(1);
    return 0;
}

static void bad(const struct place *p, const char *where, const char *path)
{
    config_error(&p->c->errors, where, path, "%s", err_msg());
}

static int read_value(const struct place *p, const struct config_key *k, const struct config_node *n,
                      const char *path, void *dest, const char **out);

static int read_floats(const struct place *p, const struct config_key *k, const struct config_node *n,
                       const char *path, double *to, const char **out)
{
    struct arena *a = p->c->arena;
    const struct config_key one = { .kind = CONFIG_FLOAT, .min = k->min, .max = k->max };
    const char *text, *list = "[";
    size_t count = 0;
    int rc = 0;

    for (const struct config_node *i = n->child; i; i = i->next, count++) {
        double spare;
        if (i->kind == CONFIG_BAD) {
            rc = ERR_USAGE;
        } else if (i->kind != CONFIG_SCALAR) {
            config_error(&p->c->errors, at(p, i), path, "expected a number, not %s", name_of(i->kind));
            rc = ERR_USAGE;
        } else if (read_scalar(a, &one, i->text, i->plain, count < k->item_size ? &to[count] : &spare, &text) < 0) {
            bad(p, at(p, i), path);
            rc = ERR_USAGE;
        } else {
            list = arena_printf(a, "%s%s%s", list, count ? ", " : "", text);
        }
    }
    if (rc == 0 && count != k->item_size) {
        config_error(&p->c->errors, at(p, n), path, "expected %s, not %zu", expected(k, a), count);
        rc = ERR_USAGE;
    }
    *out = arena_printf(a, "%s]", list);
    return rc;
}

static int read_item(const struct place *p, const struct config_key *keys, const struct config_node *n,
                     const char *path, void *dest, const char **out)
{
    struct arena *a = p->c->arena;
    const char *list = "{";
    int rc = 0;

    for (const struct config_node *i = n->child; i; i = i->next) {
        const struct config_key *k = keys;
        const struct config_node *first = n->child;
        while (k->path && strcmp(k->path, i->key))
            k++;
        while (strcmp(first->key, i->key))
            first = first->next;
        const char *full = arena_printf(a, "%s.%s", path, i->key);
        if (!k->path) {
            config_error(&p->c->errors, at_key(p, i), full, "unknown key%s", config_hint(a, keys, "", i->key));
            rc = ERR_USAGE;
        } else if (first != i) {
            config_error(&p->c->errors, at_key(p, i), full, "given twice");
            rc = ERR_USAGE;
        }
    }
    for (const struct config_key *k = keys; k->path; k++) {
        const char *full = arena_printf(a, "%s.%s", path, k->path), *text = NULL;
        void *to = (char *)dest + k->offset;
        const struct config_node *i = n->child;
        BUG_ON(k->kind == CONFIG_ITEMS);
        while (i && strcmp(i->key, k->path))
            i = i->next;
        if (i) {
            if (read_value(p, k, i, full, to, &text) < 0)
                rc = ERR_USAGE;
        } else if (!k->def) {
            config_error(&p->c->errors, at(p, n), full, "missing, expected %s", expected(k, a));
            rc = ERR_USAGE;
        } else {
            BUG_ON(read_scalar(a, k, k->def, 1, to, &text) < 0);
        }
        /* What is not set and would not be by default either is left out. */
        if (text && (strcmp(text, "\"\"") || !k->def || *k->def))
            list = arena_printf(a, "%s%s%s: %s", list, list[1] ? ", " : "", k->path, text);
    }
    *out = arena_printf(a, "%s}", list);
    return rc;
}

static int read_items(const struct place *p, const struct config_key *k, const struct config_node *n,
                      const char *path, struct config_items *to, const char **out)
{
    struct arena *a = p->c->arena;
    const char *text, *list = "[";
    int count = 0, rc = 0;

    for (const struct config_node *i = n->child; i; i = i->next)
        count++;
    *to = (struct config_items){ arena_array(a, (size_t)count, k->item_size), count };
    count = 0;
    for (const struct config_node *i = n->child; i; i = i->next, count++) {
        const char *full = arena_printf(a, "%s[%d]", path, count);
        if (i->kind == CONFIG_BAD) {
            rc = ERR_USAGE;
        } else if (i->kind != CONFIG_MAP) {
            config_error(&p->c->errors, at(p, i), full, "expected a map such as {%s: ...}, not %s",
                         k->items[0].path, name_of(i->kind));
            rc = ERR_USAGE;
        } else if (read_item(p, k->items, i, full, (char *)to->v + (size_t)count * k->item_size, &text) < 0) {
            rc = ERR_USAGE;
        } else {
            list = arena_printf(a, "%s%s%s", list, count ? ", " : "", text);
        }
    }
    *out = arena_printf(a, "%s]", list);
    return rc;
}

/* Every failure is recorded here or below; the code only says that there was one. */
static int read_value(const struct place *p, const struct config_key *k, const struct config_node *n,
                      const char *path, void *dest, const char **out)
{
    _Bool list = k->kind == CONFIG_FLOATS || k->kind == CONFIG_ITEMS;

    if (n->kind == CONFIG_BAD)
        return ERR_USAGE;
    if (n->kind != (list ? CONFIG_LIST : CONFIG_SCALAR)) {
        config_error(&p->c->errors, at(p, n), path, "expected %s, not %s", expected(k, p->c->arena), name_of(n->kind));
        return ERR_USAGE;
    }
    if (k->kind == CONFIG_FLOATS)
        return read_floats(p, k, n, path, dest, out);
    if (k->kind == CONFIG_ITEMS)
        return read_items(p, k, n, path, dest, out);
    if (read_scalar(p->c->arena, k, n->text, n->plain, dest, out) < 0) {
        bad(p, at(p, n), path);
        return ERR_USAGE;
    }
    return 0;
}

static int find(const struct config *c, const char *path)
{
    for (int i = 0; i < c->n_keys; i++)
        if (!strcmp(c->keys[i].path, path))
            return i;
    return -1;
}

static void take(const struct place *p, int i, const struct config_node *n, void *dest, const char *origin)
{
    const struct config_key *k = &p->c->keys[i];
    struct config_value *v = &p->c->value[i];

    v->failed = read_value(p, k, n, k->path, (char *)dest + k->offset, &v->text) < 0;
    v->given = 1;
    v->origin = origin;
}

/* model: PATH instead of a section. */
static _Bool take_model(const struct place *p, const struct config_node *n, const char *path,
                        const char *origin, const char **model_path)
{
    if (strcmp(path, "model") || n->kind != CONFIG_SCALAR || !*n->text || !model_path)
        return 0;
    p->c->model_text = n->text;
    p->c->model_origin = origin;
    *model_path = fs_join(p->c->arena, p->c->dir, n->text);
    return 1;
}

static void walk(const struct place *p, const struct config_node *map, const char *section, void *dest,
                 const char **model_path)
{
    struct config *c = p->c;
    struct arena *a = c->arena;

    for (const struct config_node *n = map->child; n; n = n->next) {
        const char *path = arena_printf(a, "%s%s%s", section, *section ? "." : "", n->key);
        const struct config_node *first = map->child;
        while (strcmp(first->key, n->key))
            first = first->next;
        if (first != n) {
            config_error(&c->errors, at_key(p, n), path, "given twice, first in line %d", first->key_line);
            continue;
        }
        int i = strchr(n->key, '.') ? -1 : find(c, path);
        if (i >= 0) {
            take(p, i, n, dest, at(p, n));
        } else if (strchr(n->key, '.') || !config_is_section(c->keys, path)) {
            _Bool nested = strchr(n->key, '.') && find(c, path) >= 0;
            config_error(&c->errors, at_key(p, n), path, "unknown key%s",
                         nested ? " (a file nests keys: write each part on its own level, without dots)"
                                : config_hint(a, c->keys, section, n->key));
        } else if (n->kind == CONFIG_MAP) {
            walk(p, n, path, dest, model_path);
        } else if (!take_model(p, n, path, at(p, n), model_path) && n->kind != CONFIG_BAD
                   && !(n->kind == CONFIG_SCALAR && n->plain && (!*n->text || !strcmp(n->text, "~") || !strcmp(n->text, "null")))) {
            /* A section without keys is what is left when all are commented out. */
            config_error(&c->errors, at(p, n), path, "expected a section with keys, not %s", name_of(n->kind));
        }
    }
}

/* A path of the command line that names no key. */
static void refuse_override(struct config *c, const char *path)
{
    const char *dot = strrchr(path, '.');
    const char *section = dot ? arena_printf(c->arena, "%.*s", (int)(dot - path), path) : "";
    int n = (int)strcspn(path, "[");

    if (config_is_section(c->keys, path)) {
        const struct config_key *k = c->keys;
        while (strncmp(k->path, path, strlen(path)) || k->path[strlen(path)] != '.')
            k++;
        config_error(&c->errors, CMDLINE, path, "is a section, give one of its keys, such as %s=VALUE", k->path);
        return;
    }
    for (int i = 0; i < c->n_keys; i++) {
        const struct config_key *k = &c->keys[i];
        size_t len = strlen(k->path);
        if (k->kind == CONFIG_ITEMS && !strncmp(path, k->path, len) && ((int)len == n || path[len] == '.')) {
            config_error(&c->errors, CMDLINE, path, "a list is given whole, such as %s=[{%s: ...}]", k->path, k->items[0].path);
            return;
        }
    }
    config_error(&c->errors, CMDLINE, path, "unknown key%s", config_hint(c->arena, c->keys, section, dot ? dot + 1 : path));
}

static _Bool valid_utf8(const char *s)
{
    /* A state machine would be shorter to run and longer to read. */
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        int len = *p < 0x80 ? 1 : *p >= 0xc2 && *p <= 0xdf ? 2 : (*p & 0xf0) == 0xe0 ? 3 : *p >= 0xf0 && *p <= 0xf4 ? 4 : 0;
        if (!len || (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
            return 0;
        for (int i = 1; i < len; i++)
            if ((p[i] & 0xc0) != 0x80)
                return 0;
        p += len;
    }
    return 1;
}

static void override(struct config *c, const char *arg, void *dest, const char **model_path)
{
    struct place p = { c, CMDLINE, 1 };
    const char *eq = strchr(arg, '=');

    if (!eq || eq == arg) {
        config_error(&c->errors, CMDLINE, "", "expected key.path=value, not \"%s\"", arg);
        return;
    }
    const char *path = arena_printf(c->arena, "%.*s", (int)(eq - arg), arg), *text = eq + 1;
    if (!valid_utf8(arg)) {
        config_error(&c->errors, CMDLINE, "", "an override is not valid UTF-8");
        return;
    }
    int i = find(c, path);
    _Bool list = i >= 0 && (c->keys[i].kind == CONFIG_FLOATS || c->keys[i].kind == CONFIG_ITEMS);
    struct config_node scalar = { .kind = CONFIG_SCALAR, .plain = 1, .text = text, .line = 1, .col = 1 };

    if (i < 0) {
        _Bool model = !strcmp(path, "model") && config_is_section(c->keys, path);
        if (model && c->model_origin && !strcmp(c->model_origin, CMDLINE)) {
            config_error(&c->errors, CMDLINE, path, "given twice");
        } else if (!model || !take_model(&p, &scalar, path, CMDLINE, model_path)) {
            refuse_override(c, path);
        } else {
            /* The shell's directory is what a person completes paths in. */
            *model_path = arena_strdup(c->arena, text);
        }
        return;
    }
    if (c->value[i].origin == CMDLINE) {
        config_error(&c->errors, CMDLINE, path, "given twice");
        return;
    }
    if (!list) {
        take(&p, i, &scalar, dest, CMDLINE);
        return;
    }
    int before = c->errors.n;
    struct config_node *n = config_tree(&c->errors, arena_printf(c->arena, "%s: %s", CMDLINE, path), 1, text, strlen(text));
    if (n) {
        take(&p, i, n, dest, CMDLINE);
    } else {
        if (c->errors.n == before)
            config_error(&c->errors, CMDLINE, path, "expected %s, found nothing", expected(&c->keys[i], c->arena));
        c->value[i].failed = c->value[i].given = 1;
    }
}

static _Bool of_model(const char *path)
{
    return !strncmp(path, "model.", 6);
}

/* The place nearest to where a missing key should stand. */
static const char *section_place(const struct config *c, const char *path)
{
    const struct config_node *n = c->root, *found = NULL;
    const char *p = path;

    if (!c->file)
        return CMDLINE;
    while (n && n->kind == CONFIG_MAP && strchr(p, '.')) {
        size_t len = strcspn(p, ".");
        const struct config_node *i = n->child;
        while (i && (strlen(i->key) != len || strncmp(i->key, p, len)))
            i = i->next;
        if (i)
            found = i;
        n = i;
        p += len + 1;
    }
    return config_place(c->arena, c->file, 0, found ? found->key_line : 1, found ? found->key_col : 1);
}

static void defaults(struct config *c, void *dest)
{
    for (int i = 0; i < c->n_keys; i++) {
        const struct config_key *k = &c->keys[i];
        struct config_value *v = &c->value[i];
        void *to = (char *)dest + k->offset;
        v->origin = "default";
        if (!k->def)
            continue;
        if (k->kind == CONFIG_FLOATS || k->kind == CONFIG_ITEMS) {
            struct place p = { c, k->path, 1 };
            struct config_node *n = config_tree(&c->errors, k->path, 1, k->def, strlen(k->def));
            BUG_ON(!n || read_value(&p, k, n, k->path, to, &v->text) < 0);
        } else {
            BUG_ON(read_scalar(c->arena, k, k->def, 1, to, &v->text) < 0);
        }
    }
}

static void check_model(struct config *c)
{
    for (int i = 0; c->model_text && i < c->n_keys; i++) {
        const struct config_value *v = &c->value[i];
        if (!v->given || !of_model(c->keys[i].path))
            continue;
        config_error(&c->errors, v->origin, c->keys[i].path, "cannot be given as well, the model comes from %s", c->model_text);
    }
}

static void check_missing(struct config *c)
{
    for (int i = 0; i < c->n_keys; i++) {
        const struct config_key *k = &c->keys[i];
        if (k->def || c->value[i].given || (c->model_text && of_model(k->path)))
            continue;
        config_error(&c->errors, section_place(c, k->path), k->path, "missing, expected %s", expected(k, c->arena));
    }
}

static int report(const struct config *c)
{
    const struct config_errors *e = &c->errors;
    char all[ERR_MSG_MAX];
    int n = 0, i;

    if (!e->n)
        return 0;
    for (i = 0; i < e->n; i++) {
        /* Room is kept for the line that counts the rest. */
        if (n + (int)strlen(e->line[i]) > (int)sizeof all - 80)
            break;
        n += sprintf(all + n, "%s%s", i ? "\n" : "", e->line[i]);
    }
    if (e->more + e->n - i)
        sprintf(all + n, "\nand %d more errors", e->more + e->n - i);
    return err_set(ERR_USAGE, "%s", all);
}

static int load(struct config *c, const char *file, char **overrides, int n_overrides, void *dest,
                const char **model_path)
{
    struct fs_blob b = { 0 };
    _Bool broken = 0;

    if (file) {
        int rc = fs_read(file, &b);
        if (rc < 0)
            return rc == ERR_DATA ? err_set(ERR_NOINPUT, "%s: is a directory", file) : rc;
    }
    defaults(c, dest);
    if (file) {
        struct place p = { c, c->file, 0 };
        c->root = config_tree(&c->errors, c->file, 0, b.data, b.size);
        broken = !c->root && c->errors.n;
        if (c->root && c->root->kind == CONFIG_MAP)
            walk(&p, c->root, "", dest, model_path);
        else if (c->root && c->root->kind != CONFIG_BAD && !(c->root->kind == CONFIG_SCALAR && !*c->root->text))
            config_error(&c->errors, at(&p, c->root), "", "expected keys and sections, not %s", name_of(c->root->kind));
        fs_blob_free(&b);
    }
    for (int i = 0; i < n_overrides; i++)
        override(c, overrides[i], dest, model_path);
    check_model(c);
    /* After a syntax error, what is missing may stand just below it. */
    if (!broken)
        check_missing(c);
    return report(c);
}

int config_load(const char *file, char **overrides, int n_overrides,
                const struct config_key *keys, void *dest,
                const char **model_path, struct config **out)
{
    struct arena *a = arena_new();
    struct config *c = arena_alloc(a, sizeof *c);
    _Bool std = file && !strcmp(file, "-");

    *out = NULL;
    if (model_path)
        *model_path = NULL;
    c->arena = c->errors.arena = a;
    c->keys = keys;
    while (keys[c->n_keys].path)
        c->n_keys++;
    c->value = arena_array(a, (size_t)c->n_keys + 1, sizeof *c->value);
    c->file = std ? "standard input" : file ? arena_strdup(a, file) : NULL;
    c->dir = std || !file ? "." : fs_parent(a, file);
    int rc = load(c, file, overrides, n_overrides, dest, model_path);
    if (rc < 0)
        config_free(c);
    else
        *out = c;
    return rc;
}

void config_free(struct config *c)
{
    if (c)
        arena_free(c->arena);
}

const char *config_dir(const struct config *c)
{
    return c->dir;
}

_Bool config_given(const struct config *c, const char *path)
{
    int i = find(c, path);

    if (!strcmp(path, "model"))
        return c->model_text != NULL;
    return i >= 0 && c->value[i].given;
}

const char *config_where(const struct config *c, const char *path)
{
    int i = find(c, path);

    if (i < 0 && c->model_text && !strcmp(path, "model"))
        return c->model_origin;
    BUG_ON(i < 0);
    return c->value[i].origin;
}

int config_note(struct config *c, const char *path, const char *value, const char *note)
{
    union { int64_t i; double d; _Bool b; char *s; int choice; } spare;
    int i = find(c, path);

    if (i < 0)
        return err_set(ERR_BUG, "no configuration key \"%s\"", path);
    const struct config_key *k = &c->keys[i];
    struct config_value *v = &c->value[i];
    if (k->kind == CONFIG_FLOATS || k->kind == CONFIG_ITEMS) {
        v->text = arena_strdup(c->arena, value);
    } else if (read_scalar(c->arena, k, value, 0, &spare, &v->text) < 0) {
        /* What would not load again must not be printed. */
        err_add("noted value of %s", path);
        return ERR_BUG;
    }
    v->origin = arena_strdup(c->arena, note);
    v->noted = 1;
    return 0;
}
