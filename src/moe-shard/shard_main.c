/* shard_main.c -- moe-shard: the table of its subcommands, and what they share. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/out.h"
#include "optim/optim.h"

#include "shard_cmds.h"

int shard_open(const struct shard_input *in, int argc, char **argv, struct shard_model *out)
{
    memset(out, 0, sizeof *out);
    if (!in->config)
        return err_set(ERR_USAGE, "give the configuration with -c FILE");
    TRY(run_config_load(in->config, argv, argc, &out->cfg));
    if (in->print_config) {
        char *text = config_print(out->cfg.source, 1);
        int rc = out_write(text, strlen(text));
        free(text);
        run_config_fini(&out->cfg);
        return rc < 0 ? rc : 1;
    }
    out->arena = arena_new();
    int rc = params_build(out->arena, &out->cfg.model, &out->table);
    if (rc < 0)
        shard_close(out);
    return rc;
}

void shard_close(struct shard_model *m)
{
    run_config_fini(&m->cfg);
    arena_free(m->arena);
    m->arena = NULL;
}

static double ns_flops(const void *ctx, const struct param *p)
{
    return optim_ns_flops(p, ctx);
}

int shard_mesh_of(const struct shard_model *m, int64_t ranks, struct mesh *out)
{
    return mesh_make(m->cfg.replicas, m->cfg.efsdp, m->cfg.ep, ranks, m->cfg.model.num_experts, out);
}

int shard_plan_of(const struct shard_model *m, int64_t ranks, struct plan **out)
{
    struct plan_costs costs = { optim_state_bytes, ns_flops, &m->cfg.optim };
    struct mesh mesh;
    TRY(shard_mesh_of(m, ranks, &mesh));
    return plan_make(&m->table, &costs, run_config_plan_digest(&m->cfg), mesh, out);
}

int shard_form(_Bool json, _Bool tsv, enum table_form *out)
{
    if (json && tsv)
        return err_set(ERR_USAGE, "--json and --tsv exclude each other");
    *out = json ? TABLE_JSON : tsv ? TABLE_TSV : TABLE_HUMAN;
    return 0;
}

int main(int argc, char **argv)
{
    struct opt_cmd cmds[3];

    cmds[0] = shard_plan_cmd;
    cmds[1] = shard_count_cmd;
    cmds[2] = shard_memory_cmd;
    return opt_main("moe-shard", "who owns which parameter, and what it costs, before anything runs", cmds, 3, argc, argv);
}
