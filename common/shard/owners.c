/* owners.c -- see owners.h for the rules.  Refuses nothing: a mesh comes from
 * mesh_make().  A linear search for the least loaded rank is enough, because
 * only the few matrices outside the experts are placed by it. */
#include "shard/owners.h"

#include <stdlib.h>

struct load { double ns_flops; int64_t bytes; };

struct item {
    int first, n;               /* parameters: one matrix, or the small ones of a layer */
    struct load cost;
};

struct owners {
    const struct param_table *t;
    const struct plan_costs *costs;
    struct mesh m;
    int *owner;
    struct load *load;          /* [shard] */
    struct item *items;
    int n_items;
};

static struct load cost_of(const struct owners *o, int i)
{
    const struct param *p = &o->t->v[i];
    return (struct load){
        o->costs->ns_flops(o->costs->ctx, p), p->rows * p->cols * (int64_t)sizeof(float) + o->costs->state_bytes(p)
    };
}

static void give(struct owners *o, int i, int to)
{
    struct load c = cost_of(o, i);
    o->owner[i] = to;
    o->load[to].ns_flops += c.ns_flops;
    o->load[to].bytes += c.bytes;
}

static _Bool is_split(const struct param *p) { return p->kind == PARAM_EMBED || p->kind == PARAM_HEAD; }
static _Bool is_small(const struct param *p) { return p->layer >= 0 && p->kind != PARAM_EXPERT && p->optim != PARAM_MUON; }

void owners_rows(int64_t rows, int n_ranks, int rank, int64_t *first, int64_t *n)
{
    int64_t blocks = (rows + PLAN_ROW_BLOCK - 1) / PLAN_ROW_BLOCK;
    int64_t a = blocks * rank / n_ranks * PLAN_ROW_BLOCK, b = blocks * (rank + 1) / n_ranks * PLAN_ROW_BLOCK;
    b = b < rows ? b : rows;
    *first = a;
    *n = a < b ? b - a : 0;
}

static void split(struct owners *o, int i)
{
    const struct param *p = &o->t->v[i];
    int64_t bytes = cost_of(o, i).bytes / p->rows;
    o->owner[i] = -1;
    for (int r = 0; r < mesh_shard(o->m); r++) {
        int64_t first, n;
        owners_rows(p->rows, mesh_shard(o->m), r, &first, &n);
        o->load[r].bytes += n * bytes;
    }
}

/* Who has row 0 of a split parameter: ranks before it may have none. */
static int first_owner(const struct owners *o, int i)
{
    int64_t first, n = 0;
    int r = -1;
    while (!n)
        owners_rows(o->t->v[i].rows, mesh_shard(o->m), ++r, &first, &n);
    return r;
}

static void place_experts(struct owners *o)
{
    const struct model_config *c = o->t->cfg;
    int64_t local = c->num_experts / o->m.ep, dealt = 0;
    for (int l = 0; l < c->num_hidden_layers; l++) {
        int gate = o->t->layers[l].experts;
        if (gate < 0)
            continue;
        for (int64_t e = 0; e < c->num_experts; e++) {
            int i_efsdp = (int)((dealt + e % local) % o->m.efsdp);
            int to = i_efsdp * o->m.ep + mesh_ep_of_expert(o->m, c->num_experts, e);
            for (int i = 0; i < 3; i++)
                give(o, gate + 3 * (int)e + i, to);
        }
        dealt += local;
    }
}

/* The parameters of a layer stand together in the table, and its small ones
 * need not: an item of them covers the layer and skips what is not small. */
static void collect(struct owners *o)
{
    for (int i = 0; i < o->t->n; i++) {
        const struct param *p = &o->t->v[i];
        struct item *last = o->n_items ? &o->items[o->n_items - 1] : NULL;
        if (p->layer < 0 || p->kind == PARAM_EXPERT)
            continue;
        struct load c = cost_of(o, i);
        if (!is_small(p)) {
            o->items[o->n_items++] = (struct item){ i, 1, c };
            continue;
        }
        struct item *small = NULL;
        for (struct item *x = last; x && x >= o->items && o->t->v[x->first].layer == p->layer && !small; x--)
            if (is_small(&o->t->v[x->first]))
                small = x;
        if (!small) {
            small = &o->items[o->n_items++];
            *small = (struct item){ i, 0, { 0, 0 } };
        }
        small->n = i + 1 - small->first;
        small->cost.bytes += c.bytes;
    }
}

static int longest_first(const void *x, const void *y)
{
    const struct item *a = x, *b = y;
    if (a->cost.ns_flops != b->cost.ns_flops)
        return a->cost.ns_flops > b->cost.ns_flops ? -1 : 1;
    if (a->cost.bytes != b->cost.bytes)
        return a->cost.bytes > b->cost.bytes ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

static _Bool lighter(const struct load *a, const struct load *b, _Bool by_flops)
{
    if (by_flops && a->ns_flops != b->ns_flops)
        return a->ns_flops < b->ns_flops;
    return a->bytes < b->bytes;
}

static void place(struct owners *o, const struct item *x)
{
    int to = 0;
    for (int r = 1; r < mesh_shard(o->m); r++)
        if (lighter(&o->load[r], &o->load[to], x->cost.ns_flops > 0))
            to = r;
    _Bool small = is_small(&o->t->v[x->first]);
    for (int i = x->first; i < x->first + x->n; i++)
        if (!small || is_small(&o->t->v[i]))
            give(o, i, to);
}

void owners_map(struct arena *a, const struct param_table *t, const struct plan_costs *costs, struct mesh m, int *owner)
{
    struct owners o = { .t = t, .costs = costs, .m = m, .owner = owner };
    o.load = arena_array(a, (size_t)mesh_shard(m), sizeof *o.load);
    int n = 0;
    for (int i = 0; i < t->n; i++)
        n += t->v[i].layer >= 0 && t->v[i].kind != PARAM_EXPERT;
    o.items = arena_array(a, (size_t)n + 1, sizeof *o.items);
    for (int i = 0; i < t->n; i++)
        if (is_split(&t->v[i]))
            split(&o, i);
    place_experts(&o);
    give(&o, t->norm, first_owner(&o, t->head));
    collect(&o);
    qsort(o.items, (size_t)o.n_items, sizeof *o.items, longest_first);
    for (int i = 0; i < o.n_items; i++)
        place(&o, &o.items[i]);
}
