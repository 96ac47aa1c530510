/* layout.c -- see layout.h.  Refuses nothing: what could not be laid out was
 * refused when the plan was made or read. */
#include "shard/layout.h"

#include <stdlib.h>

#include "base/err.h"
#include "shard/plan_impl.h"

static int64_t align(int64_t bytes)
{
    return (bytes + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
}

static int64_t elems(const struct plan *p, const struct plan_part *x)
{
    return x->n_rows * p->t->v[x->i_param].cols;
}

static int by_param(const void *x, const void *y)
{
    const struct plan_part *a = *(const struct plan_part *const *)x, *b = *(const struct plan_part *const *)y;
    if (a->i_param != b->i_param)
        return a->i_param < b->i_param ? -1 : 1;
    return a->first_row < b->first_row ? -1 : a->first_row > b->first_row;
}

static int by_owner(const void *x, const void *y)
{
    const struct plan_part *a = *(const struct plan_part *const *)x, *b = *(const struct plan_part *const *)y;
    return a->owner != b->owner ? (a->owner < b->owner ? -1 : 1) : by_param(x, y);
}

/* ---- owned storage */

/* The range a parameter's part belongs to. */
static struct owned_range *range_of(const struct plan *p, struct owned_layout *o, int i_param)
{
    const struct param *v = &p->t->v[i_param];
    if (v->layer >= 0)
        return v->kind == PARAM_EXPERT ? &o->experts[v->layer] : &o->rest[v->layer];
    return i_param == p->t->embed ? &o->embed : &o->head;
}

void layout_owned(struct arena *a, const struct plan *p, int owner, struct owned_layout *out)
{
    struct owned_layout o = { .owner = owner, .n_layers = (int)p->t->cfg->num_hidden_layers };
    for (int64_t i = 0; i < p->n; i++)
        o.n_parts += p->parts[i].owner == owner;
    const struct plan_part **mine = malloc(((size_t)o.n_parts + 1) * sizeof *mine);
    arena_must(mine);
    for (int64_t i = 0, n = 0; i < p->n; i++)
        if (p->parts[i].owner == owner)
            mine[n++] = &p->parts[i];
    qsort(mine, (size_t)o.n_parts, sizeof *mine, by_param);

    o.parts = arena_array(a, (size_t)o.n_parts + 1, sizeof *o.parts);
    o.of_param = arena_array(a, (size_t)p->t->n, sizeof *o.of_param);
    o.experts = arena_array(a, (size_t)o.n_layers, sizeof *o.experts);
    o.rest = arena_array(a, (size_t)o.n_layers, sizeof *o.rest);
    for (int i = 0; i < p->t->n; i++)
        o.of_param[i] = -1;
    for (int i = 0; i < o.n_parts; i++) {
        const struct plan_part *x = mine[i];
        int64_t n = align(elems(p, x) * (int64_t)sizeof(float)) / (int64_t)sizeof(float);
        struct owned_range *r = range_of(p, &o, x->i_param);
        if (!r->n_parts++) {
            r->first = o.n_elems;
            r->i_part = i;
        }
        r->n += n;
        BUG_ON(o.of_param[x->i_param] >= 0);
        o.of_param[x->i_param] = i;
        o.parts[i] = (struct owned_part){ x->i_param, x->first_row, x->n_rows, o.n_elems };
        o.n_elems += n;
    }
    free(mine);
    *out = o;
}

struct owned_range layout_owned_range(const struct owned_layout *o, int layer, _Bool experts)
{
    if (layer >= 0)
        return experts ? o->experts[layer] : o->rest[layer];
    return experts ? (struct owned_range){ 0 } : layer == LAYOUT_EMBED ? o->embed : o->head;
}

void layout_owned_elems(const struct plan *p, int64_t *n)
{
    for (int r = 0; r < mesh_shard(p->mesh); r++)
        n[r] = 0;
    for (int64_t i = 0; i < p->n; i++)
        n[p->parts[i].owner] += align(elems(p, &p->parts[i]) * (int64_t)sizeof(float)) / (int64_t)sizeof(float);
}

/* ---- slots */

static int64_t layer_order(int layer) { return layer < 0 ? INT64_MAX : layer; }

/* Parts are sorted by layer: [*from, *to). */
static void parts_of_layer(const struct plan *p, int layer, int64_t *from, int64_t *to)
{
    for (int end = 0; end < 2; end++) {
        int64_t lo = 0, hi = p->n, want = layer_order(layer);
        while (lo < hi) {
            int64_t mid = lo + (hi - lo) / 2, at = layer_order(p->t->v[p->parts[mid].i_param].layer);
            if (at < want || (end && at == want))
                lo = mid + 1;
            else
                hi = mid;
        }
        *(end ? to : from) = lo;
    }
}

static _Bool belongs(const struct plan *p, const struct slot_layout *s, int i_param)
{
    const struct param_table *t = p->t;
    const struct param *v = &t->v[i_param];
    if (s->layer >= 0)
        return v->kind != PARAM_EXPERT || mesh_ep_of_expert(p->mesh, t->cfg->num_experts, v->expert) == s->i_ep;
    return s->layer == LAYOUT_EMBED ? i_param == t->embed : i_param != t->embed;
}

/* What the model reads in F32 whatever it computes in. */
static enum dtype type_of(const struct param *v, enum dtype dt, enum layout_kind kind)
{
    return kind == LAYOUT_WEIGHTS && (v->kind == PARAM_ROUTER || v->kind == PARAM_ROUTER_BIAS) ? DT_F32 : dt;
}

/* One half: the parts of xs, sorted by owner; blocks of ranks first, first + stride... */
static void fill(struct slot_layout *s, const struct plan *p, const struct plan_part **xs, int64_t n,
                 struct slot_block *blocks, int n_blocks, int first, int stride, enum dtype dt, enum layout_kind kind)
{
    int64_t i = 0;
    for (int b = 0; b < n_blocks; b++) {
        blocks[b].offset = s->bytes;
        for (; i < n && xs[i]->owner == first + b * stride; i++) {
            const struct param *v = &p->t->v[xs[i]->i_param];
            enum dtype of = type_of(v, dt, kind);
            int64_t bytes = elems(p, xs[i]) * (int64_t)dtype_size(of);
            s->parts[s->n_parts++] = (struct slot_part){
                xs[i]->i_param, xs[i]->first_row, xs[i]->n_rows, s->bytes, bytes, of, xs[i]->owner
            };
            if (!xs[i]->first_row)
                s->at[xs[i]->i_param - s->first_param] = s->bytes;
            s->bytes += align(bytes);
        }
        blocks[b].bytes = s->bytes - blocks[b].offset;
    }
    BUG_ON(i != n);
}

void layout_slot(struct arena *a, const struct plan *p, int layer, int i_ep, enum dtype dt, enum layout_kind kind,
                 struct slot_layout *out)
{
    struct slot_layout s = { .layer = layer, .i_ep = i_ep, .first_param = INT32_MAX };
    struct mesh m = p->mesh;
    int64_t from, to, n[2] = { 0 };
    int last = -1;
    parts_of_layer(p, layer, &from, &to);
    const struct plan_part **half[2];
    for (int h = 0; h < 2; h++)
        half[h] = arena_must(malloc(((size_t)(to - from) + 1) * sizeof *half[h]));
    for (int64_t i = from; i < to; i++) {
        const struct plan_part *x = &p->parts[i];
        if (!belongs(p, &s, x->i_param))
            continue;
        int h = p->t->v[x->i_param].kind != PARAM_EXPERT;
        half[h][n[h]++] = x;
        s.first_param = x->i_param < s.first_param ? x->i_param : s.first_param;
        last = x->i_param > last ? x->i_param : last;
    }
    s.n_params = last - s.first_param + 1;
    s.parts = arena_array(a, (size_t)(n[0] + n[1]) + 1, sizeof *s.parts);
    s.at = arena_array(a, (size_t)s.n_params, sizeof *s.at);
    for (int i = 0; i < s.n_params; i++)
        s.at[i] = -1;
    s.n_experts_from = n[0] ? m.efsdp : 0;
    s.n_rest_from = mesh_shard(m);
    s.experts = arena_array(a, (size_t)s.n_experts_from + 1, sizeof *s.experts);
    s.rest = arena_array(a, (size_t)s.n_rest_from, sizeof *s.rest);
    for (int h = 0; h < 2; h++)
        qsort(half[h], (size_t)n[h], sizeof *half[h], by_owner);
    fill(&s, p, half[0], n[0], s.experts, s.n_experts_from, i_ep, m.ep, dt, kind);
    s.experts_bytes = s.bytes;
    fill(&s, p, half[1], n[1], s.rest, s.n_rest_from, 0, 1, dt, kind);
    free(half[0]);
    free(half[1]);
    *out = s;
}

int64_t layout_slot_at(const struct slot_layout *s, int i_param)
{
    int i = i_param - s->first_param;
    return i < 0 || i >= s->n_params ? -1 : s->at[i];
}

int64_t layout_slot_bytes(const struct plan *p, int layer, int i_ep, enum dtype dt, enum layout_kind kind)
{
    int64_t from, to, n = 0;
    struct slot_layout s = { .layer = layer, .i_ep = i_ep };
    parts_of_layer(p, layer, &from, &to);
    for (int64_t i = from; i < to; i++)
        if (belongs(p, &s, p->parts[i].i_param))
            n += align(elems(p, &p->parts[i]) * (int64_t)dtype_size(type_of(&p->t->v[p->parts[i].i_param], dt, kind)));
    return n;
}

int64_t layout_slot_max(const struct plan *p, int i_ep, enum dtype dt, enum layout_kind kind)
{
    int64_t max = 0;
    for (int l = 0; l < p->t->cfg->num_hidden_layers; l++) {
        int64_t n = layout_slot_bytes(p, l, i_ep, dt, kind);
        max = n > max ? n : max;
    }
    return max;
}
