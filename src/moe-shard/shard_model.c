/* shard_model.c -- plans, loads and options that follow from a configuration. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "optim/optim.h"

#include "shard_cmds.h"

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
    struct mesh mesh;
    TRY(shard_mesh_of(m, ranks, &mesh));
    return shard_plan_on(m, mesh, out);
}

int shard_plan_on(const struct shard_model *m, struct mesh mesh, struct plan **out)
{
    struct plan_costs costs = { optim_state_bytes, ns_flops, &m->cfg.optim };
    return plan_make(&m->table, &costs, run_config_plan_digest(&m->cfg), mesh, out);
}

int shard_plan_get(const struct shard_model *m, const char *path, int64_t ranks, struct plan **out)
{
    struct hash config = run_config_plan_digest(&m->cfg);
    if (!path)
        return shard_plan_of(m, ranks, out);
    if (ranks)
        return err_set(ERR_USAGE, "--ranks and --plan exclude each other");
    return plan_load(path, &m->table, config, out);
}

struct shard_load *shard_loads(const struct plan *p)
{
    struct shard_load *load = arena_must(calloc((size_t)mesh_shard(plan_mesh(p)), sizeof *load));
    for (int64_t i = 0; i < plan_n_parts(p); i++) {
        const struct plan_part *x = plan_part(p, i);
        struct shard_load *l = &load[x->owner];
        l->parts++;
        l->bytes += x->bytes;
        l->state_bytes += x->state_bytes;
        l->ns_flops += x->ns_flops;
    }
    return load;
}

int shard_footprint_opts(struct shard_model *m, const char *dtype, int64_t grad_slots, struct footprint_opts *out)
{
    enum { GATHER_AUTO, GATHER_FP32, GATHER_BF16 };
    const struct run_config *c = &m->cfg;
    m->wire = c->grad_dtype ? DT_BF16 : DT_F32;
    m->compute = (dtype ? !strcmp(dtype, "bf16") : c->compute_dtype == COMPUTE_BF16) ? DT_BF16 : DT_F32;
    if (c->seqs_per_gather > 1)
        return err_set(ERR_USAGE, "%s: mesh.seqs_per_gather: memory is known for 1 only", config_where(c->source, "mesh.seqs_per_gather"));
    if (c->gather_dtype != GATHER_AUTO && c->gather_dtype != (m->compute == DT_BF16 ? GATHER_BF16 : GATHER_FP32))
        return err_set(ERR_USAGE, "%s: mesh.gather_dtype: memory is known for weights that travel in the type they are used in only",
                       config_where(c->source, "mesh.gather_dtype"));
    *out = (struct footprint_opts){
        .micro_tokens = c->micro_tokens, .seq_len = c->data.seq_len, .loss_chunk = c->loss_chunk,
        .grad_slots = (int)grad_slots, .boundary_every = (int)c->boundary_every, .rows_cap = c->rows_cap,
        .state_on_host = c->state_home != 0, .boundaries_on_host = c->boundary_home != 0,
        .save_beside = c->ckpt_async,
        .split_replicas = c->split_replicas,
    };
    return 0;
}
