/* shard_check.c -- moe-shard check: every tensor has one owner, and how even the load is. */
#include <stdlib.h>

#include "base/err.h"
#include "base/out.h"
#include "base/units.h"

#include "shard_cmds.h"

struct check_opts {
    struct shard_input in;
    const char *plan;
    int64_t ranks;
    double limit;
    _Bool json, tsv;
};

static const struct opt opts[] = {
    SHARD_INPUT(struct check_opts),
    SHARD_RANKS(struct check_opts),
    SHARD_PLAN(struct check_opts),
    { OPT_FLOAT, 0, "limit", "X", "0", "status 1 when a max/mean is above; 0: none is", offsetof(struct check_opts, limit), 0, 1e9 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a line", offsetof(struct check_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated values", offsetof(struct check_opts, tsv), 0, 0 },
    OPT_END
};

enum { PARTS, BYTES, STATE, BOTH, FLOPS, N_WHAT };

static double load_of(const struct shard_load *x, int what)
{
    return what == PARTS ? (double)x->parts : what == BYTES ? (double)x->bytes : what == STATE ? (double)x->state_bytes
         : what == BOTH ? (double)(x->bytes + x->state_bytes) : x->ns_flops;
}

static int print(const struct plan *p, enum table_form form, double *worst)
{
    static const char *const names[N_WHAT] = { "parts", "bytes", "state_bytes", "bytes_and_state", "ns_flops" };
    static const struct table_col cols[] = {
        { "what", "of a rank", 's', 0 }, { "min", "least", 'f', 0 }, { "mean", "mean", 'f', 0 }, { "max", "most", 'f', 0 },
        { "max_mean", "max/mean", 'f', 4 },
    };
    int n = mesh_shard(plan_mesh(p));
    struct shard_load *load = shard_loads(p);
    struct table *t = table_begin(form, "moe.plan-check/1", cols, 5);
    *worst = 0;
    for (int k = 0; k < N_WHAT; k++) {
        double min = load_of(&load[0], k), max = min, sum = 0;
        for (int r = 0; r < n; r++) {
            double v = load_of(&load[r], k);
            min = v < min ? v : min;
            max = v > max ? v : max;
            sum += v;
        }
        double ratio = sum > 0 ? max / (sum / n) : 1;
        *worst = k != PARTS && ratio > *worst ? ratio : *worst;
        table_str(t, names[k]);
        table_num(t, min);
        table_num(t, sum / n);
        table_num(t, max);
        table_num(t, ratio);
    }
    free(load);
    return table_end(t);
}

static int run(void *options, int argc, char **argv)
{
    const struct check_opts *o = options;
    struct shard_model m;
    struct plan *p = NULL;
    enum table_form form;
    double worst;
    char n[2][32], mesh[40];
    TRY(shard_form(o->json, o->tsv, &form));
    int rc = shard_open(&o->in, argc, argv, &m);
    if (rc)
        return rc < 0 ? rc : 0;
    TRY_OUT(rc, shard_plan_get(&m, o->plan, o->ranks, &p));
    TRY_OUT(rc, plan_check(p, o->plan ? o->plan : "plan"));
    TRY_OUT(rc, print(p, form, &worst));
    if (form == TABLE_HUMAN)
        TRY_OUT(rc, out_printf("mesh %s: each of %s tensors has one owner in every replica, %s parts in all\n",
                               mesh_text(mesh, plan_mesh(p)), units_count(n[0], m.table.n), units_count(n[1], plan_n_parts(p))));
    if (o->limit > 0 && worst > o->limit)
        rc = err_set(ERR_NO, "the most loaded rank has %.3f times the mean, more than %g", worst, o->limit);
out:
    plan_free(p);
    shard_close(&m);
    return rc;
}

const struct opt_cmd shard_check_cmd = {
    "check", "proof that every tensor has one owner, and the imbalance",
    "-c FILE [--ranks N | --plan FILE] [--limit X] [--json | --tsv] [KEY=VALUE...]",
    "moe-shard check -c etc/europa-952b.yaml\n"
    "moe-shard check -c etc/small.yaml --ranks 4 --limit 1.5\n",
    opts, sizeof(struct check_opts), 0, -1, run
};
