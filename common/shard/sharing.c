/* sharing.c -- see sharing.h. */
#include "shard/sharing.h"

#include <stdlib.h>
#include <string.h>

struct item { const struct plan_part *part; int64_t i; };
struct load { double flops; int64_t bytes; };

static int longest_first(const void *x, const void *y)
{
    const struct item *a = x, *b = y;

    if (a->part->owner != b->part->owner)
        return a->part->owner < b->part->owner ? -1 : 1;
    if (a->part->ns_flops != b->part->ns_flops)
        return a->part->ns_flops > b->part->ns_flops ? -1 : 1;
    if (a->part->bytes != b->part->bytes)
        return a->part->bytes > b->part->bytes ? -1 : 1;
    return a->i < b->i ? -1 : a->i > b->i;
}

static _Bool lighter(const struct load *a, const struct load *b)
{
    return a->flops != b->flops ? a->flops < b->flops : a->bytes < b->bytes;
}

void sharing_replica(struct arena *a, const struct plan *p, int *replica)
{
    int n_replicas = plan_mesh(p).replicas;
    int64_t n = plan_n_parts(p);
    struct item *items = arena_array(a, (size_t)n + 1, sizeof *items);
    struct load *load = arena_array(a, (size_t)n_replicas, sizeof *load);

    for (int64_t i = 0; i < n; i++)
        items[i] = (struct item){ plan_part(p, i), i };
    qsort(items, (size_t)n, sizeof *items, longest_first);
    for (int64_t i = 0; i < n; i++) {
        const struct plan_part *x = items[i].part;
        int to = 0;
        if (i == 0 || items[i - 1].part->owner != x->owner)
            memset(load, 0, (size_t)n_replicas * sizeof *load);
        for (int r = 1; r < n_replicas; r++)
            if (x->ns_flops > 0 ? lighter(&load[r], &load[to]) : load[r].bytes < load[to].bytes)
                to = r;
        load[to].flops += x->ns_flops;
        load[to].bytes += x->bytes + x->state_bytes;
        replica[items[i].i] = to;
    }
}
