/* table.c -- one table, three forms.
 *
 * TSV and JSON rows leave at once; only the human form is held back, because
 * its widths are known at the end. */
#include "base/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/out.h"
#include "base/units.h"

struct row { char **cell; };    /* cell NULL: a rule */

struct table {
    enum table_form form;
    const char *schema;
    const struct table_col *cols;
    int n_cols, at;             /* at: the column of the next cell */
    struct arena *arena;
    struct row *rows;
    int n_rows, cap_rows;
    struct json_out *json;
    _Bool bad;                  /* a number of this row was NaN or infinite */
};

struct table *table_begin(enum table_form form, const char *schema,
                          const struct table_col *cols, int n_cols)
{
    struct table *t = arena_must(calloc(1, sizeof *t));

    BUG_ON(n_cols < 1);
    *t = (struct table){ .form = form, .schema = schema, .cols = cols, .n_cols = n_cols, .arena = arena_new() };
    if (form == TABLE_JSON)
        t->json = json_new();
    if (form == TABLE_TSV)
        for (int i = 0; i < n_cols; i++)
            out_printf("%s%s%s", i ? "\t" : "#", cols[i].name, i + 1 == n_cols ? "\n" : "");
    return t;
}

static struct row *new_row(struct table *t)
{
    if (t->n_rows == t->cap_rows) {
        t->cap_rows = t->cap_rows ? 2 * t->cap_rows : 32;
        t->rows = arena_must(realloc(t->rows, (size_t)t->cap_rows * sizeof *t->rows));
    }
    t->rows[t->n_rows] = (struct row){ NULL };
    return &t->rows[t->n_rows++];
}

static const struct table_col *column(struct table *t)
{
    if (t->form == TABLE_JSON && t->at == 0) {
        json_reset(t->json);
        json_obj(t->json, NULL);
        json_put_str(t->json, "schema", t->schema);
    }
    return &t->cols[t->at];
}

/* Ends the cell; text is NULL in the JSON form, which has taken its value. */
static void done(struct table *t, const char *text)
{
    _Bool last = t->at + 1 == t->n_cols;

    if (t->form == TABLE_HUMAN) {
        if (t->at == 0)
            new_row(t)->cell = arena_array(t->arena, (size_t)t->n_cols, sizeof(char *));
        t->rows[t->n_rows - 1].cell[t->at] = arena_strdup(t->arena, text);
    } else if (t->form == TABLE_TSV) {
        out_printf("%s%s", text, last ? "\n" : "\t");
    } else if (last) {
        size_t n;
        if (t->bad)
            json_put_nonfinite(t->json);
        t->bad = 0;
        json_obj_end(t->json);
        const char *s = json_text(t->json, &n);
        out_write(s, n);
        out_write("\n", 1);
    }
    t->at = last ? 0 : t->at + 1;
}

/* Separators inside a text would break its row, and control characters could
 * play with the terminal. */
static const char *clean(struct table *t, const char *s)
{
    static const char special[] = "\t\n\r\\", name[] = "tnr\\";
    char *to = arena_alloc(t->arena, 2 * strlen(s) + 1), *p = to;

    for (; *s; s++) {
        const char *at = t->form == TABLE_TSV ? strchr(special, *s) : NULL;
        if (at) {
            *p++ = '\\';
            *p++ = name[at - special];
        } else {
            *p++ = (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s;
        }
    }
    return to;
}

void table_str(struct table *t, const char *s)
{
    const struct table_col *c = column(t);

    BUG_ON(c->kind != 's');
    if (t->form == TABLE_JSON) {
        json_put_str(t->json, c->name, s);
        done(t, NULL);
    } else {
        done(t, s ? clean(t, s) : "-");
    }
}

void table_int(struct table *t, int64_t v)
{
    const struct table_col *c = column(t);
    char b[32];

    BUG_ON(!strchr("ib?", c->kind));
    if (t->form == TABLE_JSON) {
        if (c->kind == '?')
            json_put_bool(t->json, c->name, v != 0);
        else
            json_put_int(t->json, c->name, v);
        done(t, NULL);
    } else if (c->kind == '?') {
        done(t, t->form == TABLE_TSV ? (v ? "true" : "false") : v ? "yes" : "no");
    } else if (t->form == TABLE_TSV) {
        snprintf(b, sizeof b, "%lld", (long long)v);
        done(t, b);
    } else {
        done(t, c->kind == 'b' ? units_bytes(b, (double)v) : units_count(b, v));
    }
}

void table_num(struct table *t, double v)
{
    const struct table_col *c = column(t);
    char b[352];                /* the largest double in full, and digits */

    BUG_ON(c->kind != 'f');
    if (t->form == TABLE_JSON) {
        json_put_num(t->json, c->name, v);
        t->bad |= !isfinite(v);
        done(t, NULL);
    } else if (t->form == TABLE_TSV) {
        done(t, units_shortest(b, v));
    } else {
        snprintf(b, sizeof b, c->digits < 0 ? "%.*g" : "%.*f", abs(c->digits), v);
        done(t, b);
    }
}

void table_none(struct table *t)
{
    const struct table_col *c = column(t);

    if (t->form == TABLE_JSON)
        json_put_null(t->json, c->name);
    done(t, "-");
}

void table_rule(struct table *t)
{
    BUG_ON(t->at != 0);
    if (t->form == TABLE_HUMAN)
        new_row(t);
}

/* Columns a text takes: code points, which is right for what we print. */
static int columns(const char *s)
{
    int n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void print_cells(const struct table *t, char *const *cell, const int *width)
{
    for (int i = 0; i < t->n_cols; i++) {
        const char *s = cell ? cell[i] : t->cols[i].title;
        int pad = width[i] - columns(s);
        _Bool left = t->cols[i].kind == 's';
        /* No blanks at the end of a line. */
        out_printf("%s%*s%s%*s", i ? "  " : "", left ? 0 : pad, "", s, left && i + 1 < t->n_cols ? pad : 0, "");
    }
    out_printf("\n");
}

static void print_human(struct table *t)
{
    int *width = arena_array(t->arena, (size_t)t->n_cols, sizeof *width);
    int total = 2 * (t->n_cols - 1);
    _Bool titled = 0;

    for (int i = 0; i < t->n_cols; i++) {
        width[i] = columns(t->cols[i].title);
        titled |= width[i] > 0;
        for (int r = 0; r < t->n_rows; r++)
            if (t->rows[r].cell && columns(t->rows[r].cell[i]) > width[i])
                width[i] = columns(t->rows[r].cell[i]);
        total += width[i];
    }
    if (titled)
        print_cells(t, NULL, width);
    for (int r = 0; r < t->n_rows; r++) {
        if (t->rows[r].cell) {
            print_cells(t, t->rows[r].cell, width);
        } else {
            for (int i = 0; i < total; i++)
                out_write("-", 1);
            out_write("\n", 1);
        }
    }
}

int table_end(struct table *t)
{
    BUG_ON(t->at != 0);
    if (t->form == TABLE_HUMAN)
        print_human(t);
    json_free(t->json);
    free(t->rows);
    arena_free(t->arena);
    free(t);
    /* A failed write is remembered there. */
    return out_flush();
}
