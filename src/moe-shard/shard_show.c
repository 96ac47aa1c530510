/* shard_show.c -- moe-shard show: a plan by rank, or where one tensor lies. */
#include <stdlib.h>

#include "base/err.h"
#include "base/out.h"

#include "shard_cmds.h"

struct show_opts {
    struct shard_input in;
    const char *plan, *tensor;
    int64_t ranks, rank;
    _Bool json, tsv;
};

static const struct opt opts[] = {
    SHARD_INPUT(struct show_opts),
    SHARD_RANKS(struct show_opts),
    SHARD_PLAN(struct show_opts),
    { OPT_INT, 0, "rank", "R", "-1", "the parts that this rank owns", offsetof(struct show_opts, rank), -1, MESH_MAX_RANKS },
    { OPT_STR, 0, "tensor", "NAME", NULL, "the ranks that own this tensor", offsetof(struct show_opts, tensor), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a line", offsetof(struct show_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated values", offsetof(struct show_opts, tsv), 0, 0 },
    OPT_END
};

static int every_rank(const struct plan *p, enum table_form form)
{
    static const struct table_col cols[] = {
        { "rank", "rank", 'i', 0 }, { "replica", "replica", 'i', 0 }, { "efsdp", "efsdp", 'i', 0 }, { "ep", "ep", 'i', 0 },
        { "parts", "parts", 'i', 0 }, { "bytes", "master", 'b', 0 }, { "state_bytes", "state", 'b', 0 },
        { "ns_flops", "Newton-Schulz", 'f', 0 },
    };
    struct mesh m = plan_mesh(p);
    struct shard_load *load = shard_loads(p);
    struct table *t = table_begin(form, "moe.plan-rank/1", cols, 8);
    for (int r = 0; r < mesh_world(m); r++) {
        struct mesh_at at = mesh_at(m, r);
        const struct shard_load *x = &load[mesh_owner(m, r)];
        table_int(t, r);
        table_int(t, at.replica);
        table_int(t, at.efsdp);
        table_int(t, at.ep);
        table_int(t, x->parts);
        table_int(t, x->bytes);
        table_int(t, x->state_bytes);
        table_num(t, x->ns_flops);
    }
    free(load);
    return table_end(t);
}

static int one_rank(const struct plan *p, int64_t rank, enum table_form form)
{
    static const struct table_col cols[] = {
        { "name", "tensor", 's', 0 }, { "kind", "kind", 's', 0 }, { "optim", "optim", 's', 0 }, { "first_row", "first row", 'i', 0 },
        { "n_rows", "rows", 'i', 0 }, { "cols", "cols", 'i', 0 }, { "bytes", "master", 'b', 0 }, { "state_bytes", "state", 'b', 0 },
    };
    const struct param_table *table = plan_table(p);
    if (rank >= plan_world(p))
        return err_set(ERR_USAGE, "--rank %lld: there are %d ranks, from 0", (long long)rank, plan_world(p));
    struct table *t = table_begin(form, "moe.plan-part/1", cols, 8);
    for (int64_t i = 0; i < plan_n_parts(p); i++) {
        const struct plan_part *x = plan_part(p, i);
        const struct param *v = &table->v[x->i_param];
        if (x->owner != mesh_owner(plan_mesh(p), (int)rank))
            continue;
        table_str(t, v->name);
        table_str(t, params_kind_name(v->kind));
        table_str(t, params_optim_name(v->optim));
        table_int(t, x->first_row);
        table_int(t, x->n_rows);
        table_int(t, v->cols);
        table_int(t, x->bytes);
        table_int(t, x->state_bytes);
    }
    return table_end(t);
}

static int one_tensor(const struct plan *p, const char *name, enum table_form form)
{
    static const struct table_col cols[] = {
        { "first_row", "first row", 'i', 0 }, { "n_rows", "rows", 'i', 0 }, { "replica", "replica", 'i', 0 },
        { "rank", "rank", 'i', 0 }, { "owner", "owner", 'i', 0 }, { "efsdp", "efsdp", 'i', 0 }, { "ep", "ep", 'i', 0 },
        { "bytes", "master", 'b', 0 },
    };
    int i_param = params_find(plan_table(p), name);
    struct mesh m = plan_mesh(p);
    if (i_param < 0)
        return err_set(ERR_USAGE, "--tensor: \"%.200s\" is no parameter of this model", name);
    struct table *t = table_begin(form, "moe.plan-owner/1", cols, 8);
    for (int64_t i = 0; i < plan_n_parts(p); i++) {
        const struct plan_part *x = plan_part(p, i);
        for (int r = 0; r < m.replicas && x->i_param == i_param; r++) {
            struct mesh_at at = mesh_at(m, r * mesh_shard(m) + x->owner);
            table_int(t, x->first_row);
            table_int(t, x->n_rows);
            table_int(t, r);
            table_int(t, mesh_rank(m, at));
            table_int(t, x->owner);
            table_int(t, at.efsdp);
            table_int(t, at.ep);
            table_int(t, x->bytes);
        }
    }
    return table_end(t);
}

static int run(void *options, int argc, char **argv)
{
    const struct show_opts *o = options;
    struct shard_model m;
    struct plan *p = NULL;
    enum table_form form;
    TRY(shard_form(o->json, o->tsv, &form));
    if (o->tensor && o->rank >= 0)
        return err_set(ERR_USAGE, "--rank and --tensor exclude each other");
    int rc = shard_open(&o->in, argc, argv, &m);
    if (rc)
        return rc < 0 ? rc : 0;
    TRY_OUT(rc, shard_plan_get(&m, o->plan, o->ranks, &p));
    rc = o->tensor ? one_tensor(p, o->tensor, form) : o->rank >= 0 ? one_rank(p, o->rank, form) : every_rank(p, form);
out:
    plan_free(p);
    shard_close(&m);
    return rc;
}

const struct opt_cmd shard_show_cmd = {
    "show", "what each rank owns, or who owns a tensor",
    "-c FILE [--ranks N | --plan FILE] [--rank R | --tensor NAME] [--json | --tsv] [KEY=VALUE...]",
    "moe-shard show -c etc/small.yaml --ranks 4 mesh.ep=2\n"
    "moe-shard show -c etc/small.yaml --ranks 4 mesh.ep=2 --rank 3\n"
    "moe-shard show -c etc/small.yaml --ranks 4 --tensor lm_head.weight\n",
    opts, sizeof(struct show_opts), 0, -1, run
};
