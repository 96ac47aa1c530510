/* json.c -- the writer; see json_load.c for reading.
 *
 * Refuses to be asked for broken JSON: a key where none may stand, or an end
 * without a beginning, is our bug and not a file on disk. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json_pull.h"
#include "base/pool.h"
#include "base/units.h"

#define MAX_DEPTH 64

struct level {
    char kind;                  /* '{' or '[' */
    _Bool any;                  /* something was written in it */
    _Bool broken;               /* a line break was, so the end takes one too */
    const char *key;            /* under which it stands, for nonfinite */
};

struct json_out {
    char *text;
    size_t n, cap;
    _Bool pretty;
    int depth;
    struct level level[MAX_DEPTH];
    struct arena *arena;        /* copies of keys */
    const char **bad;           /* keys that became null */
    int n_bad, cap_bad;
};

struct json_out *json_new(void)
{
    struct json_out *j = arena_must(pool_calloc(1, sizeof *j));

    j->arena = arena_new();
    j->cap = 512;
    j->text = arena_must(pool_alloc(j->cap));
    j->text[0] = '\0';
    return j;
}

struct json_out *json_new_pretty(void)
{
    struct json_out *j = json_new();

    j->pretty = 1;
    return j;
}

void json_free(struct json_out *j)
{
    if (!j)
        return;
    arena_free(j->arena);
    pool_free(j->bad);
    pool_free(j->text);
    pool_free(j);
}

void json_reset(struct json_out *j)
{
    j->n = 0;
    j->text[0] = '\0';
    j->depth = 0;
    j->n_bad = 0;
    arena_reset(j->arena);
}

const char *json_text(struct json_out *j, size_t *n)
{
    if (n)
        *n = j->n;
    return j->text;
}

static void add(struct json_out *j, const char *s, size_t n)
{
    if (j->cap - j->n <= n) {
        while (j->cap - j->n <= n)
            j->cap *= 2;
        j->text = arena_must(pool_realloc(j->text, j->cap));
    }
    memcpy(j->text + j->n, s, n);
    j->n += n;
    j->text[j->n] = '\0';
}

static void adds(struct json_out *j, const char *s)
{
    add(j, s, strlen(s));
}

static void new_line(struct json_out *j, int depth)
{
    adds(j, "\n");
    for (int i = 0; i < depth; i++)
        adds(j, "  ");
}

static void quoted(struct json_out *j, const char *s, size_t n)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    size_t i = 0, plain = 0;

    adds(j, "\"");
    while (i < n) {
        unsigned char c = (unsigned char)s[i];
        size_t len = json_utf8_len(s + i, n - i);
        if (len && c >= 0x20 && c != '"' && c != '\\') {
            i += len;
            continue;
        }
        add(j, s + plain, i - plain);
        char esc[8];
        const char *at = c ? strchr(from, c) : NULL;
        if (!len)
            snprintf(esc, sizeof esc, "\\ufffd");
        else if (at)
            snprintf(esc, sizeof esc, "\\%c", to[at - from]);
        else
            snprintf(esc, sizeof esc, "\\u%04x", (unsigned)c);
        adds(j, esc);
        plain = ++i;
    }
    add(j, s + plain, i - plain);
    adds(j, "\"");
}

/* The comma, the line break and the key before a value. */
static void lead(struct json_out *j, const char *key, _Bool container)
{
    struct level *top = j->depth ? &j->level[j->depth - 1] : NULL;

    BUG_ON((top && top->kind == '{') != (key != NULL));
    BUG_ON(!top && j->n > 0);
    if (!top)
        return;
    if (top->any)
        adds(j, ",");
    if (j->pretty && (top->kind == '{' || container)) {
        new_line(j, j->depth);
        top->broken = 1;
    } else if (j->pretty && top->any) {
        adds(j, " ");
    }
    top->any = 1;
    if (key) {
        quoted(j, key, strlen(key));
        adds(j, j->pretty ? ": " : ":");
    }
}

static void begin(struct json_out *j, const char *key, char kind)
{
    lead(j, key, 1);
    BUG_ON(j->depth == MAX_DEPTH);
    const char *under = key ? arena_strdup(j->arena, key) : j->depth ? j->level[j->depth - 1].key : NULL;
    j->level[j->depth++] = (struct level){ .kind = kind, .key = under };
    add(j, &kind, 1);
}

static void end(struct json_out *j, char kind)
{
    BUG_ON(!j->depth || j->level[j->depth - 1].kind != kind);
    struct level *top = &j->level[--j->depth];
    if (top->broken)
        new_line(j, j->depth);
    adds(j, kind == '{' ? "}" : "]");
}

void json_obj(struct json_out *j, const char *key) { begin(j, key, '{'); }
void json_obj_end(struct json_out *j) { end(j, '{'); }
void json_arr(struct json_out *j, const char *key) { begin(j, key, '['); }
void json_arr_end(struct json_out *j) { end(j, '['); }

void json_put_strn(struct json_out *j, const char *key, const char *s, size_t n)
{
    lead(j, key, 0);
    quoted(j, s, n);
}

void json_put_str(struct json_out *j, const char *key, const char *s)
{
    if (s)
        json_put_strn(j, key, s, strlen(s));
    else
        json_put_null(j, key);
}

void json_put_int(struct json_out *j, const char *key, int64_t v)
{
    char b[24];

    lead(j, key, 0);
    snprintf(b, sizeof b, "%lld", (long long)v);
    adds(j, b);
}

static void remember_bad(struct json_out *j, const char *key)
{
    if (!key && j->depth)
        key = j->level[j->depth - 1].key;
    if (!key)
        return;
    for (int i = 0; i < j->n_bad; i++)
        if (!strcmp(j->bad[i], key))
            return;
    if (j->n_bad == j->cap_bad) {
        j->cap_bad = j->cap_bad ? 2 * j->cap_bad : 8;
        j->bad = arena_must(pool_realloc(j->bad, (size_t)j->cap_bad * sizeof *j->bad));
    }
    j->bad[j->n_bad++] = arena_strdup(j->arena, key);
}

void json_put_num(struct json_out *j, const char *key, double v)
{
    char b[32];

    if (!isfinite(v)) {
        remember_bad(j, key);
        json_put_null(j, key);
        return;
    }
    lead(j, key, 0);
    adds(j, units_shortest(b, v));
}

void json_put_real(struct json_out *j, const char *key, double v)
{
    char b[40];

    if (!isfinite(v)) {
        json_put_num(j, key, v);
        return;
    }
    units_shortest(b, v);
    if (!b[strcspn(b, ".eE")])
        memcpy(b + strlen(b), ".0", 3);
    lead(j, key, 0);
    adds(j, b);
}

void json_put_bool(struct json_out *j, const char *key, _Bool v)
{
    lead(j, key, 0);
    adds(j, v ? "true" : "false");
}

void json_put_null(struct json_out *j, const char *key)
{
    lead(j, key, 0);
    adds(j, "null");
}

void json_put_nonfinite(struct json_out *j)
{
    json_arr(j, "nonfinite");
    for (int i = 0; i < j->n_bad; i++)
        json_put_str(j, NULL, j->bad[i]);
    json_arr_end(j);
}
