/* table.h -- result tables: aligned for people, --tsv and --json for programs.
 *
 * The human form may change; TSV (with a "#name<TAB>..." header line) and JSON
 * (one object per line, "schema" first, "nonfinite" last where a number was NaN or
 * infinite) do not.  Written to stdout with out.h. */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include <stdint.h>

enum table_form { TABLE_HUMAN, TABLE_TSV, TABLE_JSON };

struct table_col {
    const char *name;           /* TSV and JSON name */
    const char *title;          /* human heading */
    char kind;                  /* 's' string, 'i' integer, 'b' bytes, 'f' number, '?' bool */
    int digits;                 /* human digits after the point for 'f'; negative: so many significant ones */
};

struct table;

/* cols is borrowed until table_end(). schema: "moe.plan-count/1". */
struct table *table_begin(enum table_form form, const char *schema,
                          const struct table_col *cols, int n_cols);
/* One cell after another, in column order; the row ends by itself.  A number
 * that does not exist is table_none(); table_int() is for 'i', 'b' and '?'. */
void table_str(struct table *t, const char *s);
void table_int(struct table *t, int64_t v);
void table_num(struct table *t, double v);
void table_none(struct table *t);
/* Human form only: a rule between rows. */
void table_rule(struct table *t);
/* Prints (the human form is held back until here to align it) and frees. */
int table_end(struct table *t);

#endif
