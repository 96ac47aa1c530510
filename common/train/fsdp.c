/* fsdp.c -- see fsdp.h. */
#include "train/fsdp.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { SLOT_A, SLOT_B, SLOT_EMBED, SLOT_HEAD, N_SLOTS };
#define NO_LAYER (-100)
#define MAX_PROGRAMS 8
#define TAPE_MAX 4096

/* A place for the weights, or the gradients, of one layer. */
struct slot {
    char *p;
    int layer;                  /* whose weights are in it or on the way; NO_LAYER */
    _Bool in_use;               /* between gather and release */
    struct comm_req *experts, *rest;    /* under way; NULL: arrived */
    struct comm_part *parts;    /* of the two requests */
};

struct tape { const char *program; int *layers, n; };
struct fsdp_tapes { struct tape v[MAX_PROGRAMS]; int n; };

struct fsdp {
    const struct param_table *t;
    const struct owned_layout *own;
    struct fsdp_comms c;
    int n_efsdp, n_shard;
    struct dev *dev;
    struct mem *mem;
    enum dtype wire;            /* of gradients */
    float *master, *grads;
    struct slot_layout *weights, *wgrads;       /* [layers + 2]: embed, head last */
    struct slot w[N_SLOTS], g[N_SLOTS];
    float *sum;                 /* where a reduction lands that is added, not written */
    _Bool add;                  /* this micro-batch adds to the owned gradients */
    struct fsdp_tapes *tapes;
    struct tape *playing;
    int at;
};

static _Bool alone(const struct fsdp *f) { return f->n_shard == 1; }

static int index_of(const struct fsdp *f, int layer)
{
    int n = (int)f->t->cfg->num_hidden_layers;

    return layer == LAYOUT_EMBED ? n : layer == LAYOUT_HEAD ? n + 1 : layer;
}

/* ---- set-up */

static int keep_slot(struct fsdp *f, struct slot *s, enum mem_class c, const char *name, int64_t bytes, struct arena *a)
{
    s->layer = NO_LAYER;
    s->parts = arena_array(a, (size_t)(f->n_efsdp + f->n_shard), sizeof *s->parts);
    return mem_keep(f->mem, c, name, (size_t)bytes, (void **)&s->p);
}

static int64_t widest(const struct owned_layout *o)
{
    int64_t n = o->embed.n > o->head.n ? o->embed.n : o->head.n;

    for (int l = 0; l < o->n_layers; l++) {
        n = o->experts[l].n > n ? o->experts[l].n : n;
        n = o->rest[l].n > n ? o->rest[l].n : n;
    }
    return n;
}

struct fsdp_tapes *fsdp_tapes_new(struct arena *a)
{
    struct fsdp_tapes *t = arena_alloc(a, sizeof *t);

    for (int i = 0; i < MAX_PROGRAMS; i++)
        t->v[i].layers = arena_array(a, TAPE_MAX, sizeof(int));
    return t;
}

int fsdp_new(struct arena *a, const struct plan *p, const struct owned_layout *own, int i_ep, const struct fsdp_comms *comms,
             struct fsdp_tapes *tapes, struct dev *dev, struct mem *mem, enum dtype wire, float *master, float *grads,
             struct fsdp **out)
{
    static const char *const names[N_SLOTS] = { "layer slot 0", "layer slot 1", "embedding slot", "head slot" };
    static const char *const gnames[N_SLOTS] = { "layer gradient slot 0", "layer gradient slot 1", "embedding gradient slot",
                                                 "head gradient slot" };
    struct fsdp *f = arena_alloc(a, sizeof *f);
    struct mesh m = plan_mesh(p);
    int n = (int)plan_table(p)->cfg->num_hidden_layers;

    f->t = plan_table(p);
    f->own = own;
    f->c = *comms;
    f->n_efsdp = m.efsdp;
    f->n_shard = mesh_shard(m);
    f->tapes = tapes;
    f->dev = dev;
    f->mem = mem;
    f->wire = wire;
    f->master = master;
    f->grads = grads;
    *out = f;
    if (alone(f))
        return 0;
    f->weights = arena_array(a, (size_t)n + 2, sizeof *f->weights);
    f->wgrads = arena_array(a, (size_t)n + 2, sizeof *f->wgrads);
    for (int i = 0; i < n + 2; i++) {
        int layer = i < n ? i : i == n ? LAYOUT_EMBED : LAYOUT_HEAD;
        layout_slot(a, p, layer, i_ep, DT_F32, LAYOUT_WEIGHTS, &f->weights[i]);
        layout_slot(a, p, layer, i_ep, DT_F32, LAYOUT_GRADS, &f->wgrads[i]);
    }
    for (int i = 0; i < N_SLOTS; i++) {
        int64_t bytes = i < SLOT_EMBED ? layout_slot_max(p, i_ep, DT_F32, LAYOUT_WEIGHTS) : f->weights[n + i - SLOT_EMBED].bytes;
        TRY(keep_slot(f, &f->w[i], MEM_SLOT, names[i], bytes, a));
        if (!grads)
            continue;
        bytes = i < SLOT_EMBED ? layout_slot_max(p, i_ep, DT_F32, LAYOUT_GRADS) : f->wgrads[n + i - SLOT_EMBED].bytes;
        TRY(keep_slot(f, &f->g[i], MEM_SLOT, gnames[i], bytes, a));
    }
    if (grads)
        return mem_keep(mem, MEM_SLOT, "reduced gradients to be added", (size_t)widest(own) * sizeof(float), (void **)&f->sum);
    return 0;
}

/* ---- weights */

/* The parts of one half of a slot: block i belongs to rank i of its group and
 * is, on that rank, a range of its own storage. */
static int list_parts(const struct slot_layout *l, const struct slot *s, _Bool experts, struct comm_part *out)
{
    const struct slot_block *b = experts ? l->experts : l->rest;
    int n = experts ? l->n_experts_from : l->n_rest_from;

    for (int i = 0; i < n; i++)
        out[i] = (struct comm_part){ .rank = i, .bytes = b[i].bytes, .p = s->p + b[i].offset };
    return n;
}

static struct owned_range range_of(const struct fsdp *f, int layer, _Bool experts)
{
    return layout_owned_range(f->own, layer, experts);
}

static void own_block(struct fsdp *f, const struct slot_layout *l, struct slot *s, _Bool experts, const struct comm *c)
{
    struct owned_range r = range_of(f, l->layer, experts);
    const struct slot_block *b = experts ? l->experts : l->rest;

    if (r.n)
        f->dev->ops->copy(f->dev, s->p + b[comm_rank(c)].offset, f->master + r.first, (size_t)r.n * sizeof(float));
}

static int start_gather(struct fsdp *f, struct slot *s, int layer)
{
    const struct slot_layout *l = &f->weights[index_of(f, layer)];
    struct comm_part *rest = s->parts + f->n_efsdp;

    BUG_ON(s->in_use || s->experts || s->rest);
    s->layer = layer;
    if (mem_recording(f->mem))
        return 0;
    if (l->n_experts_from > 1) {
        own_block(f, l, s, 1, f->c.efsdp);
        TRY(f->dev->ops->sync(f->dev));
        TRY(comm_start_gather(f->c.efsdp, s->parts, list_parts(l, s, 1, s->parts), &s->experts));
    } else if (l->n_experts_from == 1) {
        /* The experts of this EP rank are all its own. */
        struct owned_range r = range_of(f, layer, 1);
        f->dev->ops->copy(f->dev, s->p + l->experts[0].offset, f->master + r.first, (size_t)r.n * sizeof(float));
    }
    own_block(f, l, s, 0, f->c.shard);
    TRY(f->dev->ops->sync(f->dev));
    return comm_start_gather(f->c.shard, rest, list_parts(l, s, 0, rest), &s->rest);
}

static int arrive(struct slot *s)
{
    TRY(comm_wait(&s->experts));
    return comm_wait(&s->rest);
}

static struct slot *holder(struct fsdp *f, int layer)
{
    if (layer == LAYOUT_EMBED || layer == LAYOUT_HEAD) {
        struct slot *s = &f->w[layer == LAYOUT_EMBED ? SLOT_EMBED : SLOT_HEAD];
        return s->layer == layer ? s : NULL;
    }
    for (int i = SLOT_A; i <= SLOT_B; i++)
        if (f->w[i].layer == layer)
            return &f->w[i];
    return NULL;
}

/* A slot to gather a layer into; NULL when none is free to be overwritten. */
static struct slot *place_for(struct fsdp *f, int layer, int but_keep)
{
    if (layer == LAYOUT_EMBED || layer == LAYOUT_HEAD)
        return &f->w[layer == LAYOUT_EMBED ? SLOT_EMBED : SLOT_HEAD];
    for (int i = SLOT_A; i <= SLOT_B; i++)
        if (!f->w[i].in_use && (f->w[i].layer == NO_LAYER || f->w[i].layer != but_keep))
            return &f->w[i];
    return NULL;
}

/* Issues the next gather of the program that is not there yet, if there is
 * room: one layer ahead. */
static int prefetch(struct fsdp *f, int now)
{
    for (int i = f->at; i < f->playing->n; i++) {
        int next = f->playing->layers[i];
        if (holder(f, next))
            continue;
        struct slot *s = place_for(f, next, now);
        /* A layer that is used before then must not be thrown out. */
        for (int j = f->at; s && j < i; j++)
            if (f->playing->layers[j] == s->layer)
                s = NULL;
        return s ? start_gather(f, s, next) : 0;
    }
    return 0;
}

static int gather(void *ctx, int layer, int pass)
{
    struct fsdp *f = ctx;
    struct slot *s;

    (void)pass;
    if (alone(f))
        return 0;
    if (mem_recording(f->mem)) {
        struct tape *t = f->playing;
        BUG_ON(t->n == TAPE_MAX);
        t->layers[t->n++] = layer;
        return 0;
    }
    BUG_ON(f->at >= f->playing->n || f->playing->layers[f->at] != layer);
    f->at++;
    if (!(s = holder(f, layer))) {
        s = place_for(f, layer, NO_LAYER);
        BUG_ON(!s);
        TRY(start_gather(f, s, layer));
    }
    TRY(arrive(s));
    s->in_use = 1;
    return prefetch(f, layer);
}

static int release(void *ctx, int layer, int pass)
{
    struct fsdp *f = ctx;

    (void)pass;
    if (alone(f) || mem_recording(f->mem))
        return 0;
    struct slot *s = holder(f, layer);
    BUG_ON(!s || !s->in_use);
    s->in_use = 0;
    comm_progress(f->c.shard);
    return 0;
}

static int layer_of(const struct fsdp *f, int i_param)
{
    const struct param *p = &f->t->v[i_param];

    if (i_param == f->t->embed)
        return LAYOUT_EMBED;
    return p->layer >= 0 ? p->layer : LAYOUT_HEAD;
}

static const void *weight(void *ctx, int i_param)
{
    struct fsdp *f = ctx;

    if (alone(f))
        return f->master + f->own->parts[f->own->of_param[i_param]].offset;
    int layer = layer_of(f, i_param);
    struct slot *s = holder(f, layer);
    if (mem_recording(f->mem))
        s = &f->w[SLOT_A];
    BUG_ON(!s);
    return s->p + layout_slot_at(&f->weights[index_of(f, layer)], i_param);
}

/* ---- gradients */

static struct slot *grad_slot(struct fsdp *f, int layer)
{
    return &f->g[layer == LAYOUT_EMBED ? SLOT_EMBED : layer == LAYOUT_HEAD ? SLOT_HEAD : layer & 1];
}

static void *grad(void *ctx, int i_param)
{
    struct fsdp *f = ctx;

    if (alone(f))
        return f->grads + f->own->parts[f->own->of_param[i_param]].offset;
    int layer = layer_of(f, i_param);
    return grad_slot(f, layer)->p + layout_slot_at(&f->wgrads[index_of(f, layer)], i_param);
}

/* n floats at p become n BF16 at p.  Piece [k, 2k) lands on [k/2, k), which has
 * been read, so no second buffer is needed and each piece may run on any number of
 * threads. */
static void narrow(struct fsdp *f, char *p, int64_t n)
{
    for (int64_t at = 0, k = 1; at < n; at += k, k = at) {
        int64_t m = k < n - at ? k : n - at;
        f->dev->ops->cast(f->dev, mat(p + 2 * at, DT_BF16, 1, m), mat(p + 4 * at, DT_F32, 1, m));
    }
}

/* One half of a slot as it travels; its blocks move together in a narrow one. */
static int wire_parts(struct fsdp *f, struct slot *s, const struct slot_layout *l, _Bool experts, struct comm_part *parts)
{
    int n = list_parts(l, s, experts, parts);
    char *p = experts ? s->p : s->p + l->experts_bytes;
    int64_t bytes = experts ? l->experts_bytes : l->bytes - l->experts_bytes;

    if (f->wire == DT_F32)
        return n;
    narrow(f, p, bytes / 4);
    for (int i = 0; i < n; i++) {
        parts[i].p = p + ((char *)parts[i].p - p) / 2;
        parts[i].bytes /= 2;
    }
    return n;
}

static int start_half(struct fsdp *f, struct slot *s, const struct slot_layout *l, _Bool experts, struct comm *c,
                      struct comm_part *parts, struct comm_req **req)
{
    struct owned_range r = range_of(f, l->layer, experts);
    int n = wire_parts(f, s, l, experts, parts);

    TRY(f->dev->ops->sync(f->dev));
    parts[comm_rank(c)].sum = f->add ? (void *)f->sum : (void *)(f->grads + r.first);
    TRY(comm_start_reduce(c, parts, n, f->wire, req));
    if (!f->add)
        return 0;
    /* The sum lies in shared scratch, so it is fetched at once. */
    TRY(comm_wait(req));
    struct mat g = mat(f->grads + r.first, DT_F32, 1, r.n);
    f->dev->ops->add(f->dev, g, g, mat(f->sum, DT_F32, 1, r.n));
    return 0;
}

static int reduce(void *ctx, int layer)
{
    struct fsdp *f = ctx;

    if (alone(f) || mem_recording(f->mem))
        return 0;
    const struct slot_layout *l = &f->wgrads[index_of(f, layer)];
    struct slot *s = grad_slot(f, layer);
    s->layer = layer;
    if (l->n_experts_from > 1) {
        TRY(start_half(f, s, l, 1, f->c.efsdp, s->parts, &s->experts));
    } else if (l->n_experts_from == 1) {
        struct owned_range r = range_of(f, layer, 1);
        struct mat own = mat(f->grads + r.first, DT_F32, 1, r.n), here = mat(s->p + l->experts[0].offset, DT_F32, 1, r.n);
        if (f->add)
            f->dev->ops->add(f->dev, own, own, here);
        else
            f->dev->ops->copy(f->dev, own.p, here.p, (size_t)r.n * sizeof(float));
    }
    TRY(start_half(f, s, l, 0, f->c.shard, s->parts + f->n_efsdp, &s->rest));
    /* The next layer down writes the other slot: what left it must be gone. */
    return layer >= 0 ? arrive(&f->g[!(layer & 1)]) : 0;
}

/* ---- programs */

struct model_io fsdp_io(struct fsdp *f)
{
    return (struct model_io){ .ctx = f, .gather = gather, .release = release, .reduce = reduce, .weight = weight, .grad = grad };
}

static struct tape *find_tape(struct fsdp *f, const char *program)
{
    for (int i = 0; i < f->tapes->n; i++)
        if (strcmp(f->tapes->v[i].program, program) == 0)
            return &f->tapes->v[i];
    return NULL;
}

int fsdp_begin(struct fsdp *f, const char *program)
{
    if (alone(f))
        return 0;
    f->at = 0;
    f->playing = find_tape(f, program);
    if (!f->playing) {
        BUG_ON(!mem_recording(f->mem) || f->tapes->n == MAX_PROGRAMS);
        f->playing = &f->tapes->v[f->tapes->n++];
        f->playing->program = program;
    }
    /* What the last micro-batch reduces must have left before slots are written. */
    for (int i = 0; f->grads && i < N_SLOTS; i++)
        TRY(arrive(&f->g[i]));
    return 0;
}

_Bool fsdp_first(struct fsdp *f, _Bool first_of_step)
{
    f->add = !first_of_step;
    return alone(f) ? first_of_step : 1;
}

int fsdp_finish(struct fsdp *f)
{
    for (int i = 0; !alone(f) && i < N_SLOTS; i++)
        TRY(arrive(&f->g[i]));
    return 0;
}

void fsdp_stale(struct fsdp *f)
{
    for (int i = 0; i < N_SLOTS; i++) {
        BUG_ON(f->w[i].in_use || f->w[i].experts || f->w[i].rest);
        f->w[i].layer = NO_LAYER;
    }
}
