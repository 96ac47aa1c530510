/* config_print.c -- the effective configuration as YAML that loads again.
 *
 * Values are printed in canonical form, so that two files that mean the same
 * print, and hash, the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config_impl.h"
#include "base/pool.h"

struct text { char *s; size_t n, cap; };

static void add(struct text *t, const char *s)
{
    size_t n = strlen(s);

    if (t->cap - t->n <= n) {
        t->cap = 2 * (t->cap + n) + 256;
        t->s = arena_must(pool_realloc(t->s, t->cap));
    }
    memcpy(t->s + t->n, s, n + 1);
    t->n += n;
}

/* One code point of valid UTF-8. */
static unsigned code_point(const unsigned char *s, int *len)
{
    if (s[0] < 0x80) {
        *len = 1;
        return s[0];
    }
    if (s[0] < 0xe0) {
        *len = 2;
        return (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    }
    if (s[0] < 0xf0) {
        *len = 3;
        return (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    }
    *len = 4;
    return (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
}

/* What YAML takes for a line break, or refuses to read at all. */
static _Bool needs_escape(unsigned c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff;
}

const char *config_quote(struct arena *a, const char *s)
{
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./";
    static const char rest[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-@=";

    if (*s && strchr(first, *s) && s[strspn(s, rest)] == '\0' && strcmp(s, "null") && strncmp(s, "...", 3))
        return arena_strdup(a, s);
    char *to = arena_alloc(a, 6 * strlen(s) + 3), *p = to;
    *p++ = '"';
    for (int len; *s; s += len) {
        unsigned c = code_point((const unsigned char *)s, &len);
        if (needs_escape(c)) {
            p += sprintf(p, "\\u%04x", c);
            continue;
        }
        if (c == '"' || c == '\\')
            *p++ = '\\';
        memcpy(p, s, (size_t)len);
        p += len;
    }
    *p++ = '"';
    *p = '\0';
    return to;
}

static void indent(struct text *t, int depth)
{
    for (int i = 0; i < depth; i++)
        add(t, "  ");
}

static void leaf(struct text *t, const char *name, const char *value, const char *origin, int depth)
{
    indent(t, depth);
    add(t, name);
    add(t, ": ");
    add(t, value);
    if (origin) {
        /* A file may have a line break in its name; a comment may not. */
        char *copy = arena_must(strdup(origin));
        for (char *p = copy; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                *p = '?';
        add(t, "  # ");
        add(t, copy);
        free(copy);
    }
    add(t, "\n");
}

static _Bool model_noted(const struct config *c)
{
    for (int i = 0; i < c->n_keys; i++)
        if (c->value[i].noted && !strncmp(c->keys[i].path, "model.", 6))
            return 1;
    return 0;
}

/* Prints the keys below the first n bytes of path; each name once, at its first
 * place in the table. */
static void section(const struct config *c, struct text *t, const char *path, size_t n, int depth, _Bool origins)
{
    for (int i = 0; i < c->n_keys; i++) {
        const char *p = c->keys[i].path;
        if (strncmp(p, path, n) || (n && p[n] != '.'))
            continue;
        const char *name = p + n + (n > 0);
        size_t len = strcspn(name, "."), whole = (size_t)(name - p) + len;
        if (!name[len]) {
            if (c->value[i].text)
                leaf(t, name, c->value[i].text, origins ? c->value[i].origin : NULL, depth);
            continue;
        }
        _Bool seen = 0;
        for (int j = 0; j < i && !seen; j++)
            seen = !strncmp(c->keys[j].path, p, whole) && c->keys[j].path[whole] == '.';
        if (seen)
            continue;
        if (!depth && c->model_text && len == 5 && !strncmp(name, "model", 5) && !model_noted(c)) {
            leaf(t, "model", config_quote(c->arena, c->model_text), origins ? c->model_origin : NULL, 0);
            continue;
        }
        indent(t, depth);
        add(t, arena_printf(c->arena, "%.*s:\n", (int)len, name));
        section(c, t, p, whole, depth + 1, origins);
    }
}

/* The digest is wanted at every save of a run, so nothing of the making may
 * stay behind in the arena of the configuration.  Owned (pool_free). */
static char *text_of(const struct config *c, _Bool origins)
{
    struct config scratch = *c;
    struct text t = { 0 };

    scratch.arena = arena_new();
    add(&t, "");
    section(&scratch, &t, "", 0, 0, origins);
    arena_free(scratch.arena);
    return t.s;
}

char *config_print(const struct config *c, _Bool origins)
{
    char *s = text_of(c, origins), *copy = arena_must(strdup(s));

    pool_free(s);
    return copy;
}

struct hash config_digest(const struct config *c)
{
    char *s = text_of(c, 0);
    struct hash h = hash_bytes(s, strlen(s));

    pool_free(s);
    return h;
}
