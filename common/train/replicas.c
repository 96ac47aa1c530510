/* replicas.c -- see replicas.h. */
#include "train/replicas.h"

#include "base/err.h"

struct replicas {
    const struct param_table *t;
    const struct owned_layout *own;
    struct comm *c;
    const int *step_of;         /* NULL: not split */
    struct owned_layout stepped;
    struct comm_part *parts;    /* [own->n_parts] of the bucket at hand */
};

static _Bool split(const struct replicas *r) { return r->c && r->step_of; }

/* Biases of the selection have no gradient: every replica moves them alike. */
static _Bool trained(const struct replicas *r, int i_part)
{
    return r->t->v[r->own->parts[i_part].i_param].optim != PARAM_NONE;
}

struct replicas *replicas_new(struct arena *a, const struct param_table *t, const struct owned_layout *own, struct comm *c,
                              const int *step_of)
{
    struct replicas *r = arena_alloc(a, sizeof *r);

    r->t = t;
    r->own = own;
    r->c = c;
    r->step_of = step_of;
    r->stepped = *own;
    if (!split(r))
        return r;
    r->parts = arena_array(a, (size_t)own->n_parts + 1, sizeof *r->parts);
    r->stepped.parts = arena_array(a, (size_t)own->n_parts + 1, sizeof *r->stepped.parts);
    r->stepped.of_param = arena_array(a, (size_t)t->n, sizeof *r->stepped.of_param);
    r->stepped.n_parts = 0;
    for (int i = 0; i < t->n; i++)
        r->stepped.of_param[i] = -1;
    for (int i = 0; i < own->n_parts; i++)
        if (step_of[i] == comm_rank(c)) {
            r->stepped.of_param[own->parts[i].i_param] = r->stepped.n_parts;
            r->stepped.parts[r->stepped.n_parts++] = own->parts[i];
        }
    return r;
}

const struct owned_layout *replicas_stepped(const struct replicas *r)
{
    return split(r) ? &r->stepped : r->own;
}

/* ---- buckets: layers, embedding, head */

static int n_buckets(const struct replicas *r) { return r->own->n_layers + 2; }

static int list(const struct replicas *r, struct owned_range range, float *flat, int n)
{
    for (int i = range.i_part; i < range.i_part + range.n_parts; i++) {
        const struct owned_part *p = &r->own->parts[i];
        float *at = flat ? flat + p->offset : NULL;
        if (trained(r, i))
            r->parts[n++] = (struct comm_part){ .rank = r->step_of[i], .p = at, .sum = at,
                                                .bytes = p->n_rows * r->t->v[p->i_param].cols * (int64_t)sizeof(float) };
    }
    return n;
}

/* The parts of a bucket; -1 where we own nothing of it, and so do our
 * counterparts in the other replicas. */
static int bucket(const struct replicas *r, int b, float *flat)
{
    int layer = b < r->own->n_layers ? b : b == r->own->n_layers ? LAYOUT_EMBED : LAYOUT_HEAD;
    struct owned_range rest = layout_owned_range(r->own, layer, 0), experts = { 0 };

    if (layer >= 0)
        experts = layout_owned_range(r->own, layer, 1);
    if (rest.n_parts + experts.n_parts == 0)
        return -1;
    return list(r, rest, flat, list(r, experts, flat, 0));
}

int replicas_n_buckets(const struct replicas *r)
{
    int n = 0;

    for (int b = 0; split(r) && b < n_buckets(r); b++)
        n += bucket(r, b, NULL) >= 0;
    return n;
}

int replicas_sum(struct replicas *r, struct dev *d, float *grads)
{
    if (!r->c)
        return 0;
    TRY(d->ops->sync(d));
    if (!split(r))
        return comm_all_reduce(r->c, grads, r->own->n_elems, DT_F32, COMM_SUM);
    for (int b = 0; b < n_buckets(r); b++) {
        int n = bucket(r, b, grads);
        if (n >= 0)
            TRY(comm_reduce(r->c, r->parts, n, DT_F32));
    }
    return 0;
}

/* One replica at most has something for a tensor's rows here, so nothing is
 * rounded, and what the shard group then sums is what it would sum unsplit. */
int replicas_squares(struct replicas *r, double *sq, int64_t n)
{
    return split(r) ? comm_all_reduce(r->c, sq, n, DT_F64, COMM_SUM) : 0;
}

int replicas_spread(struct replicas *r, struct dev *d, float *master)
{
    if (!split(r))
        return 0;
    TRY(d->ops->sync(d));
    for (int b = 0; b < n_buckets(r); b++) {
        int n = bucket(r, b, master);
        if (n >= 0)
            TRY(comm_gather(r->c, r->parts, n));
    }
    return 0;
}
