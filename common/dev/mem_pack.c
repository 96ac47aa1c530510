/* mem_pack.c -- greedy best-fit packing in several orders.
 *
 * One item after another goes into the tightest gap left by the items already
 * placed that live at the same time.  Placed items are kept by offset, so one
 * walk finds every gap.  Which order wins (large first, long-lived first, or
 * size x lifetime first) depends on the program, so all are tried. */
#include "dev/mem_pack.h"

#include <stdlib.h>

#include "base/arena.h"

enum order { BY_BYTES, BY_AREA, BY_LIFE, N_ORDERS };

struct key { double major, minor; int i; };

static size_t align_up(size_t at, size_t align)
{
    return (at + align - 1) & ~(align - 1);
}

static int by_key(const void *pa, const void *pb)
{
    const struct key *a = pa, *b = pb;

    if (a->major != b->major)
        return a->major < b->major ? 1 : -1;
    if (a->minor != b->minor)
        return a->minor < b->minor ? 1 : -1;
    return a->i < b->i ? -1 : a->i > b->i;
}

static void sort_keys(struct key *keys, const struct mem_item *items, int n, enum order order)
{
    for (int i = 0; i < n; i++) {
        double bytes = (double)items[i].bytes, life = (double)(items[i].last - items[i].first + 1);
        keys[i].i = i;
        keys[i].major = order == BY_BYTES ? bytes : order == BY_LIFE ? life : bytes * life;
        keys[i].minor = order == BY_BYTES ? life : bytes;
    }
    qsort(keys, (size_t)n, sizeof *keys, by_key);
}

/* The offset of the tightest gap for item `it` among n placed ones; *at is
 * where it goes in their order. */
static size_t best_gap(const struct mem_item *it, const struct mem_item *placed, int n, int *at)
{
    size_t free_from = 0, best = 0, best_gap_bytes = SIZE_MAX;
    _Bool found = 0;
    int lo = 0, hi = n;

    for (int i = 0; i < n; i++) {
        const struct mem_item *p = &placed[i];
        size_t start;
        if (p->last < it->first || it->last < p->first)
            continue;
        start = align_up(free_from, it->align);
        if (start + it->bytes <= p->offset && p->offset - free_from < best_gap_bytes) {
            found = 1;
            best = start;
            best_gap_bytes = p->offset - free_from;
        }
        if (p->offset + p->bytes > free_from)
            free_from = p->offset + p->bytes;
    }
    if (!found)
        best = align_up(free_from, it->align);
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (placed[mid].offset <= best)
            lo = mid + 1;
        else
            hi = mid;
    }
    *at = lo;
    return best;
}

/* Places all items in the order of keys; offset[i] gets the result. */
static size_t place(const struct key *keys, const struct mem_item *items, int n,
                    struct mem_item *placed, size_t *offset)
{
    size_t total = 0;

    for (int k = 0; k < n; k++) {
        struct mem_item it = items[keys[k].i];
        int at;
        it.offset = best_gap(&it, placed, k, &at);
        for (int j = k; j > at; j--)
            placed[j] = placed[j - 1];
        placed[at] = it;
        offset[keys[k].i] = it.offset;
        if (it.offset + it.bytes > total)
            total = it.offset + it.bytes;
    }
    return total;
}

struct edge { int64_t at; size_t bytes; _Bool begin; };

static int by_edge(const void *pa, const void *pb)
{
    const struct edge *a = pa, *b = pb;

    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (int)b->begin - (int)a->begin;       /* both ends are inclusive */
}

static size_t live_peak(const struct mem_item *items, int n, struct edge *edges)
{
    size_t live = 0, peak = 0;

    for (int i = 0; i < n; i++) {
        edges[2 * i] = (struct edge){ items[i].first, items[i].bytes, 1 };
        edges[2 * i + 1] = (struct edge){ items[i].last, items[i].bytes, 0 };
    }
    qsort(edges, 2 * (size_t)n, sizeof *edges, by_edge);
    for (int i = 0; i < 2 * n; i++) {
        live = edges[i].begin ? live + edges[i].bytes : live - edges[i].bytes;
        if (live > peak)
            peak = live;
    }
    return peak;
}

size_t mem_pack(struct mem_item *items, int n, size_t *peak)
{
    size_t count = n > 0 ? (size_t)n : 1, best = SIZE_MAX, least;
    struct key *keys = arena_must(calloc(count, sizeof *keys));
    struct mem_item *placed = arena_must(calloc(count, sizeof *placed));
    struct edge *edges = arena_must(calloc(2 * count, sizeof *edges));
    size_t *offset = arena_must(calloc(count, sizeof *offset));

    least = live_peak(items, n, edges);
    for (int o = 0; o < N_ORDERS && best > least; o++) {
        size_t total;
        sort_keys(keys, items, n, o);
        total = place(keys, items, n, placed, offset);
        if (total >= best)
            continue;
        best = total;
        for (int i = 0; i < n; i++)
            items[i].offset = offset[i];
    }
    free(keys);
    free(placed);
    free(edges);
    free(offset);
    if (peak)
        *peak = least;
    return best;
}
