/* footprint.c -- see footprint.h.  The lists of buffers follow model/attention.c,
 * moe.c, experts.c and loss.c; the test against the trace says when they no
 * longer do. */
#include "shard/footprint.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "shard/layout.h"
#include "shard/sharing.h"

static const struct { const char *name; _Bool kept; } classes[FOOT_CLASS_N] = {
    [FOOT_MASTER] = { "master", 1 }, [FOOT_STATE] = { "state", 1 }, [FOOT_GRAD] = { "grad", 1 },
    [FOOT_GATHER] = { "gather", 1 }, [FOOT_GRAD_SLOT] = { "grad_slot", 1 }, [FOOT_WIRE] = { "wire", 1 },
    [FOOT_TABLE] = { "table", 1 }, [FOOT_BATCH] = { "batch", 1 }, [FOOT_BOUNDARY] = { "boundary", 1 },
    [FOOT_ROUTING] = { "routing", 1 }, [FOOT_ACT] = { "act", 0 }, [FOOT_ROWS] = { "rows", 0 }, [FOOT_LOGITS] = { "logits", 0 },
    [FOOT_STAGE] = { "stage", 1 }, [FOOT_WS] = { "ws", 1 },
    [FOOT_SAVE] = { "save", 1 },
};

const char *footprint_class_name(enum foot_class c) { return classes[c].name; }
_Bool footprint_is_kept(enum foot_class c) { return classes[c].kept; }

/* layers: elements of elems that belong to layers; shared_state: of state where
 * replicas share the steps; block: of the widest piece that is reduced to the rank. */
struct rank_base { int64_t elems, layers, state, shared_state, largest, block, ws; double ns_flops; };

/* Of one EP rank: its largest slot, and all its slots together. */
struct ep_base { int64_t slot, grad_slot; double layers, wire; };

struct footprint_base {
    const struct param_table *t;
    const struct model_config *c;
    struct mesh m;
    enum dtype compute, wire;
    int64_t embed, head, ends;  /* slots; both of gradients */
    double ends_wire;           /* gradients of both, as they travel */
    struct rank_base *ranks;    /* [efsdp * ep] */
    struct ep_base *eps;        /* [ep] */
};

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t footprint_rows(const struct model_config *c, struct mesh m, const struct footprint_opts *o)
{
    /* All ranks of an EP group send T k rows and take as many when balanced. */
    int64_t share = o->micro_tokens * c->num_experts_per_tok, cap = o->rows_cap;
    if (m.ep == 1 && (cap < 1 || cap > share))
        return share;
    if (cap < 1)
        cap = (int64_t)(1.15 * (double)share);
    return max64(1, cap / m.ep) * m.ep;
}

/* ---- phases: what one pass takes beside what is kept */

struct phases {
    const struct footprint_opts *o;
    const struct model_config *c;
    struct mesh m;
    int64_t t, b;               /* tokens; bytes of an activation */
    int64_t act[FOOT_CLASS_N];  /* each class at its peak */
    int64_t peak;
    const char *name;
};

static void phase(struct phases *f, const char *name, int64_t act, int64_t rows, int64_t logits)
{
    f->act[FOOT_ACT] = max64(f->act[FOOT_ACT], act);
    f->act[FOOT_ROWS] = max64(f->act[FOOT_ROWS], rows);
    f->act[FOOT_LOGITS] = max64(f->act[FOOT_LOGITS], logits);
    if (act + rows + logits > f->peak) {
        f->peak = act + rows + logits;
        f->name = name;
    }
}

static int64_t shared_width(const struct model_config *c)
{
    return c->shared_expert_intermediate_size ? c->shared_expert_intermediate_size : c->n_shared_experts * c->moe_intermediate_size;
}

static _Bool has_moe(const struct model_config *c) { return c->first_k_dense_replace < c->num_hidden_layers; }

/* Buffers of the attention half that backward reads. */
static int64_t attention_kept(const struct phases *f)
{
    const struct model_config *c = f->c;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    int64_t n = f->b * (2 * c->hidden_size + 2 * q + 2 * kv) + 4 * (1 + c->num_attention_heads);
    if (c->use_qk_norm)
        n += f->b * (q + kv) +
             4 * (c->use_qk_norm == QK_NORM_HEAD ? c->num_attention_heads + c->num_key_value_heads : 2);
    return f->t * n;
}

/* And those of the expert half or the dense MLP, rows apart. */
static int64_t mlp_kept(const struct phases *f, _Bool moe)
{
    const struct model_config *c = f->c;
    int64_t n = f->b * c->hidden_size + 4;
    if (!moe)
        return f->t * (n + f->b * 2 * c->intermediate_size);
    n += 4 * c->num_experts + f->b * 2 * shared_width(c);
    if (f->b != 4)
        n += 4 * c->hidden_size;        /* the router reads F32 */
    if (c->model_type == MODEL_QWEN2_MOE)
        n += 4;
    return f->t * n;
}

static void passes(struct phases *f, int64_t rows)
{
    const struct model_config *c = f->c;
    int64_t h = c->hidden_size, i = c->moe_intermediate_size, q = c->num_attention_heads * c->head_dim;
    int64_t kv = c->num_key_value_heads * c->head_dim, k = f->o->boundary_every, x = f->t * h * f->b;
    _Bool alone = f->m.ep == 1, resident = alone && rows == f->t * c->num_experts_per_tok;
    int64_t layers = c->num_hidden_layers, dense = c->first_k_dense_replace < layers ? c->first_k_dense_replace : layers;
    int64_t attn = attention_kept(f), before = 0, row_kept = 0, all_rows = 0;

    if (!k && resident)
        row_kept = rows * f->b * (h + 2 * i);
    for (int moe = 0; moe < 2; moe++) {
        if (moe ? !has_moe(c) : !dense)
            continue;
        int64_t mlp = mlp_kept(f, moe), of_kind = moe ? layers - dense : dense;
        /* Beside the last layer of its kind: everything of the layers before it, or
         * the residual stream inside a segment. */
        before = k ? (k - 1) * x : (of_kind - 1) * (attn + mlp) + (moe ? dense * (attn + mlp_kept(f, 0)) : 0);
        all_rows = moe ? (of_kind - 1) * row_kept : 0;
        int64_t here = before + attn + mlp;
        /* The hidden layer of the dense MLP or the shared expert. */
        int64_t width = f->t * f->b * (moe ? shared_width(c) : c->intermediate_size), hidden = width;
        int64_t fwd_rows = 0, bwd_rows = 0, bwd = here + 2 * x;
        if (moe) {
            hidden += c->model_type == MODEL_QWEN2_MOE ? x : 0;
            fwd_rows = rows * f->b * (2 * h + 3 * i) + (alone ? 0 : rows * f->b * h);
            bwd_rows = alone ? rows * (f->b * (2 * h + 3 * i) + 8) : rows * f->b * (3 * (2 * h + 16) + 3 * i);
            bwd += f->t * 4 * c->num_experts;
        }
        /* Forward has the layer's output beside its input; the shared expert's hidden layer is gone before rows are taken. */
        phase(f, "forward", here + x + (moe ? 0 : hidden), all_rows + fwd_rows, 0);
        phase(f, "forward", here + x + hidden, all_rows + row_kept, 0);
        phase(f, "evaluation", attn + mlp + 2 * x + hidden, 0, 0);
        phase(f, "backward of the experts", bwd, all_rows + bwd_rows, 0);
        phase(f, "backward of the MLP", bwd - (moe ? f->t * 4 * c->num_experts : 0) + width, all_rows + row_kept, 0);
        phase(f, "backward of attention", before + attn + x + f->t * f->b * (2 * q + 2 * kv + h), all_rows, 0);
    }
    int64_t chunk = f->o->loss_chunk < f->t ? f->o->loss_chunk : f->t;
    phase(f, "loss", 2 * x + (k ? 0 : before + attn + mlp_kept(f, has_moe(c))), k ? 0 : all_rows + row_kept,
          chunk * (f->b * (c->vocab_size + 2 * h) + 4) + 8 * f->t);
}

/* ---- what is kept */

static int64_t boundary_bytes(const struct phases *f)
{
    int64_t k = f->o->boundary_every ? f->o->boundary_every : 1;
    return (f->c->num_hidden_layers + k - 1) / k * f->t * f->c->hidden_size * f->b;
}

static int64_t routing_bytes(const struct phases *f, int64_t rows)
{
    const struct model_config *c = f->c;
    int64_t slots = f->t * c->num_experts_per_tok, layers = c->num_hidden_layers;
    int64_t moe = c->first_k_dense_replace < layers ? layers - c->first_k_dense_replace : 0;
    int64_t n = moe * slots * (2 + 4) + 3 * 8 * layers * c->num_experts;
    if (moe)
        n += (f->o->boundary_every ? 1 : moe) * (2 * 4 * slots + 4 * (c->num_experts + 1)) + 4 * slots;
    return n + (f->m.ep > 1 ? 2 * 4 * rows : 0);
}

/* Of one matrix: itself in the wanted shape, the Gram matrix and its polynomial. */
static int64_t ns_bytes(const struct param *p)
{
    int64_t s = p->rows < p->cols ? p->rows : p->cols;
    return 4 * (p->rows * p->cols + 2 * s * s);
}

static void open_ranks(struct footprint_base *b, const struct plan *p)
{
    int n = mesh_shard(b->m), piece = -1;
    int64_t *v = arena_must(calloc((size_t)n, sizeof *v));
    layout_owned_elems(p, v);
    for (int r = 0; r < n; r++) {
        b->ranks[r].elems = v[r];
        v[r] = 0;
    }
    /* What is reduced in one piece (experts or the rest of a layer, an end) comes
     * together, or nearly so: v is what each rank has had of the two halves. */
    int64_t *half[2] = { v, arena_must(calloc((size_t)n, sizeof *v)) };
    for (int64_t i = 0; i < plan_n_parts(p); i++) {
        const struct plan_part *x = plan_part(p, i);
        const struct param *q = &b->t->v[x->i_param];
        struct rank_base *r = &b->ranks[x->owner];
        int64_t *mine = half[q->kind == PARAM_EXPERT];
        int now = q->layer >= 0 ? q->layer : (int)b->c->num_hidden_layers + (x->i_param == b->t->embed);
        for (int h = 0; h < 2 && now != piece; h++)
            memset(half[h], 0, (size_t)n * sizeof *v);
        piece = now;
        mine[x->owner] += (x->n_rows * q->cols + 15) / 16 * 16;
        r->layers += q->layer >= 0 ? x->n_rows * q->cols : 0;
        r->state += x->state_bytes;
        r->largest = max64(r->largest, x->bytes + x->state_bytes);
        r->block = max64(r->block, mine[x->owner]);
        r->ns_flops += x->ns_flops;
        if (q->optim == PARAM_MUON)
            r->ws = max64(r->ws, ns_bytes(q));
    }
    free(half[0]);
    free(half[1]);
}

static void open_shared(struct footprint_base *b, const struct plan *p)
{
    int64_t n = plan_n_parts(p), r = b->m.replicas;
    struct arena *a = arena_new();
    int *of = arena_array(a, (size_t)n + 1, sizeof *of);
    int64_t *state = arena_array(a, (size_t)(mesh_shard(b->m) * r), sizeof *state);

    sharing_replica(a, p, of);
    for (int64_t i = 0; i < n; i++) {
        const struct plan_part *x = plan_part(p, i);
        int64_t *s = &state[x->owner * r + of[i]];
        *s += x->state_bytes;
        b->ranks[x->owner].shared_state = max64(b->ranks[x->owner].shared_state, *s);
    }
    arena_free(a);
}

struct footprint_base *footprint_open(const struct plan *p, enum dtype compute, enum dtype wire)
{
    struct footprint_base *b = arena_must(calloc(1, sizeof *b));
    b->t = plan_table(p);
    b->c = b->t->cfg;
    b->m = plan_mesh(p);
    b->compute = compute;
    b->wire = wire;
    b->ranks = arena_must(calloc((size_t)mesh_shard(b->m), sizeof *b->ranks));
    b->eps = arena_must(calloc((size_t)b->m.ep, sizeof *b->eps));
    open_ranks(b, p);
    open_shared(b, p);
    b->embed = layout_slot_bytes(p, LAYOUT_EMBED, 0, compute, LAYOUT_WEIGHTS);
    b->head = layout_slot_bytes(p, LAYOUT_HEAD, 0, compute, LAYOUT_WEIGHTS);
    b->ends = layout_slot_bytes(p, LAYOUT_EMBED, 0, DT_F32, LAYOUT_GRADS) + layout_slot_bytes(p, LAYOUT_HEAD, 0, DT_F32, LAYOUT_GRADS);
    b->ends_wire = (double)b->ends / 4 * (double)dtype_size(wire);
    for (int e = 0; e < b->m.ep; e++)
        for (int l = 0; l < b->c->num_hidden_layers; l++) {
            int64_t weights = layout_slot_bytes(p, l, e, compute, LAYOUT_WEIGHTS), grads = layout_slot_bytes(p, l, e, DT_F32, LAYOUT_GRADS);
            struct ep_base *x = &b->eps[e];
            x->slot = max64(x->slot, weights);
            x->grad_slot = max64(x->grad_slot, grads);
            x->layers += (double)weights;
            x->wire += (double)grads / 4 * (double)dtype_size(wire);
        }
    return b;
}

void footprint_close(struct footprint_base *b)
{
    if (!b)
        return;
    free(b->ranks);
    free(b->eps);
    free(b);
}

double footprint_ns_flops(const struct footprint_base *b)
{
    double most = 0;
    for (int r = 0; r < mesh_shard(b->m); r++)
        most = b->ranks[r].ns_flops > most ? b->ranks[r].ns_flops : most;
    return most;
}

/* What does not depend on the owner, for one EP rank. */
static struct footprint common_part(const struct footprint_base *b, const struct footprint_opts *o, int i_ep)
{
    const struct model_config *c = b->c;
    struct phases f = { .o = o, .c = c, .m = b->m, .t = o->micro_tokens, .b = (int64_t)dtype_size(b->compute) };
    struct footprint r = { .phase = "" };
    int64_t rows = footprint_rows(c, b->m, o), x = f.t * c->hidden_size * f.b;
    passes(&f, rows);
    memcpy(r.device, f.act, sizeof r.device);
    r.phase = f.name;
    /* Alone and in F32 the weights are used where they are. */
    if (mesh_shard(b->m) > 1 || b->compute != DT_F32)
        r.device[FOOT_GATHER] = 2 * b->eps[i_ep].slot + b->embed + b->head;
    if (mesh_shard(b->m) > 1)
        r.device[FOOT_GRAD_SLOT] = o->grad_slots * b->eps[i_ep].grad_slot + b->ends +
                                   (o->grad_slots == 1 && has_moe(c) ? 12 * c->hidden_size * c->moe_intermediate_size : 0);
    r.device[FOOT_TABLE] = 4 * o->seq_len * model_rot_dim(c) + 3 * 8;
    r.device[FOOT_BATCH] = f.t * (4 * 4 + 1 + 8);
    r.device[FOOT_ROUTING] = routing_bytes(&f, rows);
    (o->boundaries_on_host ? r.host : r.device)[FOOT_BOUNDARY] = boundary_bytes(&f);
    if (o->boundaries_on_host)
        r.device[FOOT_STAGE] += 2 * x;
    r.device_bytes = f.peak;
    return r;
}

void footprint_ranks(const struct footprint_base *b, const struct footprint_opts *o, struct footprint *out)
{
    int n = mesh_shard(b->m);
    for (int r = 0; r < n; r++)
        out[r] = r < b->m.ep ? common_part(b, o, r) : out[r - b->m.ep];
    for (int r = 0; r < n; r++) {
        const struct rank_base *x = &b->ranks[r];
        struct footprint *f = &out[r];
        int64_t *home = o->state_on_host ? f->host : f->device;
        home[FOOT_MASTER] = 4 * x->elems;
        home[FOOT_STATE] = o->split_replicas ? x->shared_state : x->state;
        f->device[FOOT_GRAD] = 4 * x->elems;
        if (n > 1)
            f->device[FOOT_WIRE] = 4 * x->block;
        f->device[FOOT_WS] = x->ws;
        if (o->save_beside)
            f->host[FOOT_SAVE] = (4 * x->elems + x->state) / b->m.replicas;
        if (o->state_on_host)
            f->device[FOOT_STAGE] += 2 * x->largest;
    }
    for (int r = 0; r < n; r++)
        for (int c = 0; c < FOOT_CLASS_N; c++) {
            out[r].device_bytes += classes[c].kept ? out[r].device[c] : 0;
            out[r].host_bytes += out[r].host[c];
        }
}

/* ---- traffic */

/* How often backward gathers the layers: once, and once more those inside a segment. */
static double gathers_bwd(const struct model_config *c, int boundary_every)
{
    int64_t n = c->num_hidden_layers, k = boundary_every > 1 ? boundary_every : 1;
    return (double)(n + n - (n + k - 1) / k) / (double)n;
}

void footprint_traffic(const struct footprint_base *b, const struct footprint_opts *o, struct traffic *out)
{
    const struct model_config *c = b->c;
    struct mesh m = b->m;
    int64_t most = 0, least = INT64_MAX, least_layers = INT64_MAX;
    double layers = 0, grads = 0, size = (double)dtype_size(b->compute), wire = (double)dtype_size(b->wire);
    struct traffic w = { 0, 0, 0, 0, 0 };
    for (int r = 0; r < mesh_shard(m); r++) {
        most = max64(most, b->ranks[r].elems);
        least = b->ranks[r].elems < least ? b->ranks[r].elems : least;
        least_layers = b->ranks[r].layers < least_layers ? b->ranks[r].layers : least_layers;
    }
    for (int e = 0; e < m.ep; e++) {
        layers = b->eps[e].layers > layers ? b->eps[e].layers : layers;
        grads = b->eps[e].wire > grads ? b->eps[e].wire : grads;
    }
    double again = gathers_bwd(c, o->boundary_every) - 1;
    if (mesh_shard(m) > 1) {
        /* An untied embedding is not gathered again. */
        w.gather_fwd = layers + (double)(b->embed + b->head) - size * (double)least;
        w.gather_bwd = (1 + again) * (layers - size * (double)least_layers);
        w.reduce = grads + b->ends_wire - wire * (double)least;
    }
    w.replicas = 2.0 * (m.replicas - 1) / m.replicas * (double)most * 4;
    if (m.ep > 1 && has_moe(c)) {
        double h = (double)c->hidden_size, moe = (double)(c->num_hidden_layers - c->first_k_dense_replace);
        double slots = (double)(o->micro_tokens * c->num_experts_per_tok) * (m.ep - 1) / m.ep;
        w.dispatch = moe * slots * size * (2 * h * (1 + again) + (2 * h + 16) + (h + 16));
    }
    w.gather_bwd = w.gather_bwd > 0 ? w.gather_bwd : 0;
    *out = w;
}
