/* shard_count.c -- moe-shard count: parameters by kind, all and at work for a token. */
#include "base/err.h"
#include "base/out.h"

#include "shard_cmds.h"

struct count_opts {
    struct shard_input in;
    _Bool json, tsv;
};

static const struct opt opts[] = {
    SHARD_INPUT(struct count_opts),
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a line", offsetof(struct count_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated values", offsetof(struct count_opts, tsv), 0, 0 },
    OPT_END
};

static int print(const struct param_table *t, enum table_form form)
{
    static const struct table_col cols[] = {
        { "kind", "kind", 's', 0 }, { "tensors", "tensors", 'i', 0 }, { "total", "parameters", 'i', 0 },
        { "active", "active", 'i', 0 },
    };
    struct { int64_t tensors, total, active; } by[PARAM_KIND_N] = { { 0, 0, 0 } };
    for (int i = 0; i < t->n; i++) {
        const struct param *p = &t->v[i];
        by[p->kind].tensors++;
        by[p->kind].total += p->rows * p->cols;
        if (p->kind != PARAM_EXPERT || p->expert < t->cfg->num_experts_per_tok)
            by[p->kind].active += p->rows * p->cols;
    }
    struct table *tab = table_begin(form, "moe.count/1", cols, 4);
    for (int k = 0; k < PARAM_KIND_N; k++) {
        if (!by[k].tensors)
            continue;
        table_str(tab, params_kind_name((enum param_kind)k));
        table_int(tab, by[k].tensors);
        table_int(tab, by[k].total);
        table_int(tab, by[k].active);
    }
    table_rule(tab);
    table_str(tab, "all");
    table_int(tab, t->n);
    table_int(tab, params_total(t));
    table_int(tab, params_active(t));
    TRY(table_end(tab));
    if (form != TABLE_HUMAN)
        return 0;
    /* One unit for the three, so that they can be compared at a glance. */
    double unit = params_total(t) >= 100000000 ? 1e9 : params_total(t) >= 100000 ? 1e6 : 1e3;
    char name = unit > 1e8 ? 'B' : unit > 1e5 ? 'M' : 'k';
    return out_printf("%.3f %c parameters, %.3f %c active for a token, %.3f %c of them in matrix products\n",
                      (double)params_total(t) / unit, name, (double)params_active(t) / unit, name,
                      (double)params_matmul(t) / unit, name);
}

static int run(void *options, int argc, char **argv)
{
    const struct count_opts *o = options;
    struct shard_model m;
    enum table_form form;
    TRY(shard_form(o->json, o->tsv, &form));
    int rc = shard_open(&o->in, argc, argv, &m);
    if (rc)
        return rc < 0 ? rc : 0;
    rc = print(&m.table, form);
    shard_close(&m);
    return rc;
}

const struct opt_cmd shard_count_cmd = {
    "count", "parameters by kind, all and active for a token", "-c FILE [--json | --tsv] [KEY=VALUE...]",
    "moe-shard count -c etc/small.yaml\n"
    "moe-shard count -c etc/small.yaml model.num_experts=32\n",
    opts, sizeof(struct count_opts), 0, -1, run
};
