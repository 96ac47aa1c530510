/* shard_diff.c -- moe-shard diff: the rows that have another owner in another plan. */
#include <string.h>

#include "base/err.h"
#include "base/out.h"
#include "base/units.h"

#include "shard_cmds.h"

struct diff_opts {
    struct shard_input in;
    int64_t ranks;
    _Bool json, tsv;
};

static const struct opt opts[] = {
    SHARD_INPUT(struct diff_opts),
    SHARD_RANKS(struct diff_opts),
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a line", offsetof(struct diff_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated values", offsetof(struct diff_opts, tsv), 0, 0 },
    OPT_END
};

/* Both plans are sorted alike, so the parts of a tensor come together; rows are
 * walked to the nearer border of the two. */
static int print(const struct plan *a, const struct plan *b, enum table_form form, int64_t *n_moved, int64_t *bytes_moved)
{
    static const struct table_col cols[] = {
        { "name", "tensor", 's', 0 }, { "first_row", "first row", 'i', 0 }, { "n_rows", "rows", 'i', 0 },
        { "owner_a", "owner", 'i', 0 }, { "owner_b", "other owner", 'i', 0 }, { "bytes", "master", 'b', 0 },
    };
    const struct param_table *t = plan_table(a);
    struct table *tab = table_begin(form, "moe.plan-diff/1", cols, 6);
    int64_t i = 0, j = 0, row = 0;
    while (i < plan_n_parts(a)) {
        const struct plan_part *x = plan_part(a, i), *y = plan_part(b, j);
        int64_t x_end = x->first_row + x->n_rows, y_end = y->first_row + y->n_rows, end = x_end < y_end ? x_end : y_end;
        BUG_ON(x->i_param != y->i_param);
        if (x->owner != y->owner) {
            int64_t bytes = (end - row) * t->v[x->i_param].cols * (int64_t)sizeof(float);
            table_str(tab, t->v[x->i_param].name);
            table_int(tab, row);
            table_int(tab, end - row);
            table_int(tab, x->owner);
            table_int(tab, y->owner);
            table_int(tab, bytes);
            ++*n_moved;
            *bytes_moved += bytes;
        }
        i += end == x_end;
        j += end == y_end;
        row = end == t->v[x->i_param].rows ? 0 : end;
    }
    return table_end(tab);
}

static int compare(const struct plan *a, const struct plan *b, enum table_form form)
{
    int64_t n = 0, bytes = 0;
    char text[2][32], mesh[2][40];
    TRY(print(a, b, form, &n, &bytes));
    mesh_text(mesh[0], plan_mesh(a));
    mesh_text(mesh[1], plan_mesh(b));
    if (form == TABLE_HUMAN)
        TRY(out_printf("mesh %s and %s: %s parts with %s of master weights have another owner\n", mesh[0], mesh[1],
                       units_count(text[0], n), units_bytes(text[1], (double)bytes)));
    return n || strcmp(mesh[0], mesh[1]) ? ERR_NO : 0;
}

static int run(void *options, int argc, char **argv)
{
    const struct diff_opts *o = options;
    struct shard_model m;
    struct plan *p[2] = { NULL, NULL };
    enum table_form form;
    int n_plans = 0;
    while (n_plans < argc && !strchr(argv[argc - 1 - n_plans], '='))
        n_plans++;
    TRY(shard_form(o->json, o->tsv, &form));
    if (n_plans < 1 || n_plans > 2)
        return err_set(ERR_USAGE, "give one plan (to compare with that of the configuration) or two, after any KEY=VALUE");
    int rc = shard_open(&o->in, argc - n_plans, argv, &m);
    if (rc)
        return rc < 0 ? rc : 0;
    for (int i = 0; i < n_plans; i++)
        TRY_OUT(rc, plan_load_any(argv[argc - n_plans + i], &m.table, &p[i]));
    if (n_plans == 1)
        TRY_OUT(rc, shard_plan_of(&m, o->ranks, &p[1]));
    rc = compare(p[0], p[1], form);
out:
    plan_free(p[0]);
    plan_free(p[1]);
    shard_close(&m);
    return rc;
}

const struct opt_cmd shard_diff_cmd = {
    "diff", "the rows that have another owner in another plan", "-c FILE [--ranks N] [--json | --tsv] [KEY=VALUE...] PLAN [PLAN]",
    "moe-shard diff -c etc/small.yaml old.tsv new.tsv\n"
    "moe-shard diff -c etc/small.yaml --ranks 8 old.tsv\n",
    opts, sizeof(struct diff_opts), 0, -1, run
};
