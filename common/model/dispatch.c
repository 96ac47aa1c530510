/* dispatch.c -- see dispatch.h.  Pure integer arithmetic on the host: every rank
 * computes the whole exchange from the same counts, so nothing is agreed twice. */
#include "model/dispatch.h"

#include "base/err.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

void dispatch_init(struct arena *a, const struct model_config *c, int n_ranks, int rank, int64_t n_rows, int64_t cap,
                   struct dispatch *d)
{
    size_t n = (size_t)n_ranks;

    BUG_ON(n_ranks < 1 || c->num_experts % n_ranks);
    *d = (struct dispatch){ .n_ranks = n_ranks, .rank = rank, .n_experts = c->num_experts,
                            .n_local = c->num_experts / n_ranks };
    /* Alone, more room than there are rows is room for nothing. */
    if (n_ranks == 1 && (cap == 0 || cap > n_rows))
        cap = n_rows;
    d->per_pair = max64(1, cap / n_ranks);
    d->cap = d->per_pair * n_ranks;
    d->resident = n_ranks == 1 && d->cap >= n_rows;
    d->counts = arena_array(a, (size_t)c->num_hidden_layers * n * (size_t)c->num_experts, sizeof *d->counts);
    d->send_first = arena_array(a, n, sizeof *d->send_first);
    d->send_n = arena_array(a, n, sizeof *d->send_n);
    d->recv_n = arena_array(a, n, sizeof *d->recv_n);
    d->offsets = arena_array(a, (size_t)d->n_local + 1, sizeof *d->offsets);
    d->start = arena_array(a, n * ((size_t)d->n_local + 1), sizeof *d->start);
    d->first_round = arena_array(a, (size_t)d->n_local, sizeof *d->first_round);
    if (d->resident)
        return;
    d->order = arena_array(a, (size_t)d->cap, sizeof *d->order);
    d->back = arena_array(a, (size_t)d->cap, sizeof *d->back);
}

int32_t *dispatch_counts(const struct dispatch *d, int layer, int rank)
{
    return d->counts + ((int64_t)layer * d->n_ranks + rank) * d->n_experts;
}

/* Rows that rank `from` has for the experts of rank `to`. */
static int64_t pair_rows(const struct dispatch *d, int layer, int from, int to)
{
    const int32_t *c = dispatch_counts(d, layer, from) + to * d->n_local;
    int64_t n = 0;

    for (int64_t e = 0; e < d->n_local; e++)
        n += c[e];
    return n;
}

int64_t dispatch_rounds(const struct dispatch *d, int layer)
{
    int64_t most = 0;

    if (d->resident)
        return 1;
    for (int from = 0; from < d->n_ranks; from++)
        for (int to = 0; to < d->n_ranks; to++)
            most = max64(most, pair_rows(d, layer, from, to));
    return max64(1, (most + d->per_pair - 1) / d->per_pair);
}

void dispatch_layer(struct dispatch *d, int layer)
{
    for (int64_t e = 0; e < d->n_local; e++)
        d->first_round[e] = INT32_MAX;
    for (int from = 0; from < d->n_ranks; from++) {
        const int32_t *c = dispatch_counts(d, layer, from) + d->rank * d->n_local;
        int64_t *start = d->start + from * (d->n_local + 1);
        start[0] = 0;
        for (int64_t e = 0; e < d->n_local; e++) {
            start[e + 1] = start[e] + c[e];
            if (c[e])
                d->first_round[e] = (int32_t)min64(d->first_round[e], start[e] / d->per_pair);
        }
    }
    for (int64_t e = 0; e < d->n_local; e++)
        if (d->first_round[e] == INT32_MAX)
            d->first_round[e] = 0;
}

/* Rows of my expert e that a rank sends me when it sends [lo, hi) of its list. */
static int64_t in_round(const struct dispatch *d, int from, int64_t e, int64_t lo, int64_t hi)
{
    const int64_t *start = d->start + from * (d->n_local + 1);

    return max64(0, min64(start[e + 1], hi) - max64(start[e], lo));
}

/* Received rows come by source, each source's in expert order; they are wanted
 * by expert, each expert's in source order. */
static void put_in_order(struct dispatch *d, int64_t lo, int64_t hi)
{
    int64_t block = 0;

    for (int from = 0; from < d->n_ranks; from++) {
        int64_t row = block;
        for (int64_t e = 0; e < d->n_local; e++) {
            int64_t n = in_round(d, from, e, lo, hi), to = d->offsets[e];
            for (int other = 0; other < from; other++)
                to += in_round(d, other, e, lo, hi);
            for (int64_t i = 0; i < n; i++, row++, to++) {
                d->order[to] = (int32_t)row;
                d->back[row] = (int32_t)to;
            }
        }
        block = row;
    }
}

void dispatch_round(struct dispatch *d, int layer, int64_t round)
{
    int64_t lo = round * d->per_pair, hi = lo + d->per_pair, at = 0;

    d->n_send = d->n_recv = 0;
    for (int to = 0; to < d->n_ranks; to++) {
        int64_t n = pair_rows(d, layer, d->rank, to);
        d->send_first[to] = at + min64(n, lo);
        d->send_n[to] = max64(0, min64(n, hi) - lo);
        d->n_send += d->send_n[to];
        at += n;
        d->recv_n[to] = max64(0, min64(d->start[to * (d->n_local + 1) + d->n_local], hi) - lo);
        d->n_recv += d->recv_n[to];
    }
    d->offsets[0] = 0;
    for (int64_t e = 0; e < d->n_local; e++) {
        int64_t n = 0;
        for (int from = 0; from < d->n_ranks; from++)
            n += in_round(d, from, e, lo, hi);
        d->offsets[e + 1] = d->offsets[e] + (int32_t)n;
    }
    put_in_order(d, lo, hi);
}
