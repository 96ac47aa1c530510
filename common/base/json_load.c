/* json_load.c -- strict loading and typed look-ups.
 *
 * Sentences name the place; text quoted from a damaged file is made printable
 * and kept on one line. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"

static int load(const char *name, const char *text, size_t n, size_t flags, json_t **out)
{
    json_error_t e;
    size_t blank = 0;

    while (blank < n && strchr(" \t\r\n", text[blank]) && text[blank])
        blank++;
    if (blank == n)
        return err_set(ERR_DATA, "%s: empty, expected JSON", name);
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES | flags, &e);
    if (!j) {
        for (char *p = e.text; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                *p = ' ';
        return err_set(ERR_DATA, "%s:%d:%d: %s", name, e.line < 1 ? 1 : e.line, e.column < 1 ? 1 : e.column, e.text);
    }
    *out = j;
    return 0;
}

int json_load_text(const char *name, const char *text, size_t n, json_t **out)
{
    return load(name, text, n, 0, out);
}

int json_load_nul(const char *name, const char *text, size_t n, json_t **out)
{
    return load(name, text, n, JSON_ALLOW_NUL, out);
}

int json_load_path(const char *path, json_t **out)
{
    struct fs_blob b;

    TRY(fs_read(path, &b));
    int rc = json_load_text(!strcmp(path, "-") ? "standard input" : path, b.data, b.size, out);
    fs_blob_free(&b);
    return rc;
}

static int find(const json_t *o, const char *where, const char *key, _Bool must, const json_t **out)
{
    if (!json_is_object(o))
        return err_set(ERR_DATA, "%s: expected an object with the key \"%s\"", where, key);
    *out = json_object_get(o, key);
    if (*out && json_is_null(*out) && !must)
        *out = NULL;
    if (!*out && must)
        return err_set(ERR_DATA, "%s: \"%s\" is missing", where, key);
    return 0;
}

static int wrong(const char *where, const char *key, const char *what)
{
    return err_set(ERR_DATA, "%s: \"%s\": expected %s", where, key, what);
}

static int look_int(const json_t *o, const char *where, const char *key, _Bool must, int64_t *out)
{
    const json_t *v = NULL;

    TRY(find(o, where, key, must, &v));
    if (!v)
        return 0;
    if (!json_is_integer(v))
        return wrong(where, key, "an integer");
    *out = json_integer_value(v);
    return 0;
}

static int look_num(const json_t *o, const char *where, const char *key, _Bool must, double *out)
{
    const json_t *v = NULL;

    TRY(find(o, where, key, must, &v));
    if (!v)
        return 0;
    if (!json_is_number(v))
        return wrong(where, key, "a number");
    *out = json_number_value(v);
    return 0;
}

static int look_str(const json_t *o, const char *where, const char *key, _Bool must, const char **out)
{
    const json_t *v = NULL;

    TRY(find(o, where, key, must, &v));
    if (!v)
        return 0;
    if (!json_is_string(v))
        return wrong(where, key, "a string");
    *out = json_string_value(v);
    return 0;
}

static int look_bool(const json_t *o, const char *where, const char *key, _Bool must, _Bool *out)
{
    const json_t *v = NULL;

    TRY(find(o, where, key, must, &v));
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return wrong(where, key, "true or false");
    *out = json_is_true(v);
    return 0;
}

int json_get_int(const json_t *o, const char *where, const char *key, int64_t *out) { return look_int(o, where, key, 1, out); }
int json_get_num(const json_t *o, const char *where, const char *key, double *out) { return look_num(o, where, key, 1, out); }
int json_get_str(const json_t *o, const char *where, const char *key, const char **out) { return look_str(o, where, key, 1, out); }
int json_get_bool(const json_t *o, const char *where, const char *key, _Bool *out) { return look_bool(o, where, key, 1, out); }
int json_opt_int(const json_t *o, const char *where, const char *key, int64_t *out) { return look_int(o, where, key, 0, out); }
int json_opt_num(const json_t *o, const char *where, const char *key, double *out) { return look_num(o, where, key, 0, out); }
int json_opt_str(const json_t *o, const char *where, const char *key, const char **out) { return look_str(o, where, key, 0, out); }
int json_opt_bool(const json_t *o, const char *where, const char *key, _Bool *out) { return look_bool(o, where, key, 0, out); }
