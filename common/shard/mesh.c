/* mesh.c -- see mesh.h.  Refuses a mesh that leaves a rank or an expert over;
 * what it accepts needs no further check anywhere. */
#include "shard/mesh.h"

#include <stdio.h>

#include "base/err.h"

int mesh_make(int64_t replicas, int64_t efsdp, int64_t ep, int64_t world, int64_t n_experts, struct mesh *out)
{
    if (replicas < 1 || ep < 1 || (efsdp < 1 && efsdp != -1) || world < 0 || replicas > MESH_MAX_RANKS || ep > MESH_MAX_RANKS ||
        efsdp > MESH_MAX_RANKS || world > MESH_MAX_RANKS)
        return err_set(ERR_USAGE, "mesh: replicas, efsdp, ep and their product are from 1 to %d", MESH_MAX_RANKS);
    if (n_experts % ep)
        return err_set(ERR_USAGE, "mesh.ep: %lld experts cannot be divided among %lld expert-parallel ranks",
                       (long long)n_experts, (long long)ep);
    int64_t rest = replicas * ep;
    if (efsdp == -1) {
        if (world % rest)
            return err_set(ERR_USAGE, "mesh: %lld ranks are no multiple of replicas %lld x ep %lld", (long long)world,
                           (long long)replicas, (long long)ep);
        efsdp = world ? world / rest : 1;
    }
    if (rest > MESH_MAX_RANKS || rest * efsdp > MESH_MAX_RANKS)
        return err_set(ERR_USAGE, "mesh: %lldx%lldx%lld is more than %d ranks", (long long)replicas, (long long)efsdp,
                       (long long)ep, MESH_MAX_RANKS);
    if (world && rest * efsdp != world)
        return err_set(ERR_USAGE, "mesh: %lldx%lldx%lld needs %lld ranks, but there are %lld", (long long)replicas,
                       (long long)efsdp, (long long)ep, (long long)(rest * efsdp), (long long)world);
    *out = (struct mesh){ (int)replicas, (int)efsdp, (int)ep };
    return 0;
}

int mesh_parse(const char *text, struct mesh *out)
{
    int64_t v[3] = { 0 };
    const char *s = text;
    for (int i = 0; i < 3; i++) {
        int n = 0;
        if (*s == '0')
            s = "";             /* no leading zeros, no zero */
        for (; *s >= '0' && *s <= '9' && n < 9; s++, n++)
            v[i] = v[i] * 10 + (*s - '0');
        if (!n || v[i] < 1 || *s++ != (i < 2 ? 'x' : '\0'))
            return err_set(ERR_USAGE, "\"%.60s\" is no mesh; expected replicas x efsdp x ep, as in 4x96x4", text);
    }
    return mesh_make(v[0], v[1], v[2], 0, v[2], out);
}

char *mesh_text(char *buf, struct mesh m)
{
    snprintf(buf, 40, "%dx%dx%d", m.replicas, m.efsdp, m.ep);
    return buf;
}

int mesh_shard(struct mesh m) { return m.efsdp * m.ep; }
int mesh_world(struct mesh m) { return m.replicas * mesh_shard(m); }
int mesh_owner(struct mesh m, int rank) { return rank % mesh_shard(m); }

struct mesh_at mesh_at(struct mesh m, int rank)
{
    return (struct mesh_at){ rank / mesh_shard(m), mesh_owner(m, rank) / m.ep, rank % m.ep };
}

int mesh_rank(struct mesh m, struct mesh_at at)
{
    return (at.replica * m.efsdp + at.efsdp) * m.ep + at.ep;
}

struct mesh_group mesh_group(struct mesh m, enum mesh_kind kind, int rank)
{
    struct mesh_at at = mesh_at(m, rank);
    int shard = mesh_shard(m);
    BUG_ON(rank < 0 || rank >= mesh_world(m));
    switch (kind) {
    case MESH_WORLD: return (struct mesh_group){ 0, 1, mesh_world(m), rank, 0 };
    case MESH_SHARD: return (struct mesh_group){ at.replica * shard, 1, shard, rank % shard, at.replica };
    case MESH_REPLICA: return (struct mesh_group){ rank % shard, shard, m.replicas, at.replica, rank % shard };
    case MESH_EFSDP: return (struct mesh_group){ at.replica * shard + at.ep, m.ep, m.efsdp, at.efsdp, at.replica * m.ep + at.ep };
    case MESH_EP: return (struct mesh_group){ rank - at.ep, 1, m.ep, at.ep, rank / m.ep };
    case MESH_KIND_N: break;
    }
    BUG_ON("no such group");
    return (struct mesh_group){ 0 };
}

const char *mesh_kind_name(enum mesh_kind kind)
{
    static const char *const names[MESH_KIND_N] = { "world", "shard", "replica", "efsdp", "ep" };
    return names[kind];
}

int mesh_ep_of_expert(struct mesh m, int64_t n_experts, int64_t expert)
{
    return (int)(expert / (n_experts / m.ep));
}
