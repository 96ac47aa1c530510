/* optim.c -- see optim.h.  Matrices of one shape form a bucket, so that a
 * device can run their Newton-Schulz iterations side by side; the result of a
 * matrix does not depend on the company it keeps (dev.h). */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* One orthogonalised block: a whole matrix, or one head of it. */
struct block { int i_part; int64_t row, rows, col, cols; };

struct bucket { int64_t rows, cols; int first, n; };    /* blocks [first, first + n) */

struct optim {
    const struct param_table *t;
    const struct optim_config *cfg;
    struct dev *dev;
    const struct owned_layout *own;
    float *first, *second;      /* momentum or exp_avg; exp_avg_sq */
    int64_t *first_at, *second_at;      /* [parts] element offsets, -1: none */
    struct block *blocks;
    int n_blocks;
    struct bucket *buckets;
    int n_buckets;
    struct mat *mats;           /* [n_blocks]: the views handed to the device */
    double *sq;                 /* [params]: sum of squares per tensor */
};

static const struct param *param_of(const struct optim *o, int i_part)
{
    return &o->t->v[o->own->parts[i_part].i_param];
}

static int64_t padded(const struct optim *o, int i_part)
{
    return (o->own->parts[i_part].n_rows * param_of(o, i_part)->cols + 15) & ~(int64_t)15;
}

/* Heads of q, k, v are blocks of rows; those of o are blocks of columns. */
static int blocks_of(const struct optim *o, int i, struct block *out)
{
    const struct param *p = param_of(o, i);
    const struct model_config *m = o->t->cfg;

    if (o->cfg->muon_split == OPTIM_SPLIT_NONE || p->kind != PARAM_ATTN) {
        if (out)
            out[0] = (struct block){ i, 0, p->rows, 0, p->cols };
        return 1;
    }
    const struct layer_params *l = &o->t->layers[p->layer];
    _Bool is_o = o->own->parts[i].i_param == l->o;
    int64_t n = (is_o ? p->cols : p->rows) / m->head_dim;
    for (int64_t h = 0; out && h < n; h++)
        out[h] = is_o ? (struct block){ i, 0, p->rows, h * m->head_dim, m->head_dim }
                      : (struct block){ i, h * m->head_dim, m->head_dim, 0, p->cols };
    return (int)n;
}

static int by_shape(const void *x, const void *y)
{
    const struct block *a = x, *b = y;

    if (a->rows != b->rows)
        return a->rows < b->rows ? -1 : 1;
    if (a->cols != b->cols)
        return a->cols < b->cols ? -1 : 1;
    if (a->i_part != b->i_part)
        return a->i_part < b->i_part ? -1 : 1;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return a->col < b->col ? -1 : a->col > b->col;
}

static void make_buckets(struct optim *o, struct arena *a)
{
    for (int i = 0; i < o->own->n_parts; i++)
        if (param_of(o, i)->optim == PARAM_MUON)
            o->n_blocks += blocks_of(o, i, NULL);
    o->blocks = arena_array(a, (size_t)o->n_blocks + 1, sizeof *o->blocks);
    o->mats = arena_array(a, (size_t)o->n_blocks + 1, sizeof *o->mats);
    int at = 0;
    for (int i = 0; i < o->own->n_parts; i++)
        if (param_of(o, i)->optim == PARAM_MUON)
            at += blocks_of(o, i, o->blocks + at);
    qsort(o->blocks, (size_t)o->n_blocks, sizeof *o->blocks, by_shape);

    o->buckets = arena_array(a, (size_t)o->n_blocks + 1, sizeof *o->buckets);
    for (int b = 0; b < o->n_blocks; b++) {
        struct bucket *last = o->n_buckets ? &o->buckets[o->n_buckets - 1] : NULL;
        if (!last || last->rows != o->blocks[b].rows || last->cols != o->blocks[b].cols) {
            last = &o->buckets[o->n_buckets++];
            *last = (struct bucket){ o->blocks[b].rows, o->blocks[b].cols, b, 0 };
        }
        last->n++;
    }
}

int optim_new(struct arena *a, const struct param_table *t, const struct owned_layout *own, const struct optim_config *cfg,
              struct dev *dev, struct mem *mem, struct optim **out)
{
    struct optim *o = arena_alloc(a, sizeof *o);
    int64_t n_first = 0, n_second = 0;

    o->t = t;
    o->cfg = cfg;
    o->dev = dev;
    o->own = own;
    o->first_at = arena_array(a, (size_t)own->n_parts, sizeof *o->first_at);
    o->second_at = arena_array(a, (size_t)own->n_parts, sizeof *o->second_at);
    o->sq = arena_array(a, (size_t)t->n + 1, sizeof *o->sq);
    for (int i = 0; i < own->n_parts; i++) {
        const struct param *p = param_of(o, i);
        o->first_at[i] = o->second_at[i] = -1;
        if (p->optim == PARAM_NONE)
            continue;
        BUG_ON(p->optim == PARAM_MUON && own->parts[i].n_rows != p->rows);
        o->first_at[i] = n_first;
        n_first += padded(o, i);
        if (p->optim == PARAM_ADAMW) {
            o->second_at[i] = n_second;
            n_second += padded(o, i);
        }
    }
    make_buckets(o, a);
    TRY(mem_keep(mem, MEM_STATE, "momentum or exp_avg", (size_t)n_first * sizeof(float), (void **)&o->first));
    TRY(mem_keep(mem, MEM_STATE, "exp_avg_sq", (size_t)n_second * sizeof(float), (void **)&o->second));
    dev->ops->zero(dev, o->first, (size_t)n_first * sizeof(float));
    dev->ops->zero(dev, o->second, (size_t)n_second * sizeof(float));
    *out = o;
    return 0;
}

int optim_states(const struct optim *o, int i, struct optim_state out[2])
{
    if (o->first_at[i] < 0)
        return 0;
    _Bool muon = param_of(o, i)->optim == PARAM_MUON;
    out[0] = (struct optim_state){ muon ? "momentum" : "exp_avg", o->first + o->first_at[i] };
    if (muon)
        return 1;
    out[1] = (struct optim_state){ "exp_avg_sq", o->second + o->second_at[i] };
    return 2;
}

int64_t optim_state_bytes(const struct param *p)
{
    int64_t n = p->rows * p->cols * (int64_t)sizeof(float);

    return p->optim == PARAM_MUON ? n : p->optim == PARAM_ADAMW ? 2 * n : 0;
}

double optim_ns_flops(const struct param *p, const struct optim_config *cfg)
{
    const struct ns_coef *coef;

    if (p->optim != PARAM_MUON)
        return 0;
    double s = (double)(p->rows < p->cols ? p->rows : p->cols), l = (double)(p->rows < p->cols ? p->cols : p->rows);
    /* x x^T and B x: 2 s^2 l each; (x x^T)^2: 2 s^3 (notes of torch.optim.Muon). */
    return optim_ns_coefs(cfg->muon_ns, &coef) * (4 * s * s * l + 2 * s * s * s);
}

/* Part i in flat storage laid out as own says. */
static struct mat view(const struct optim *o, int i, float *flat)
{
    const struct owned_part *w = &o->own->parts[i];

    return mat(flat + w->offset, DT_F32, w->n_rows, param_of(o, i)->cols);
}

static struct mat state(const struct optim *o, int i, float *flat, const int64_t *at)
{
    return mat(flat + at[i], DT_F32, o->own->parts[i].n_rows, param_of(o, i)->cols);
}

int optim_squares(struct optim *o, const float *grads, double **sq)
{
    struct dev *d = o->dev;

    memset(o->sq, 0, (size_t)o->t->n * sizeof *o->sq);
    for (int i = 0; i < o->own->n_parts; i++)
        if (param_of(o, i)->optim != PARAM_NONE)
            d->ops->sumsq(d, &o->sq[o->own->parts[i].i_param], view(o, i, (float *)(uintptr_t)grads));
    *sq = o->sq;
    return d->ops->sync(d);
}

double optim_norm(const struct optim *o, const double *sq)
{
    double total = 0;

    for (int i = 0; i < o->t->n; i++)
        total += sq[i];
    return sqrt(total);
}

double optim_clip(const struct optim_config *cfg, double norm, _Bool *clipped)
{
    double f = cfg->clip_norm > 0 ? cfg->clip_norm / (norm + 1e-6) : 1;

    *clipped = f < 1;
    return f < 1 ? f : 1;
}

static double muon_ratio(const struct optim_config *cfg, int64_t rows, int64_t cols)
{
    if (cfg->muon_scale == OPTIM_SCALE_ORIGINAL)
        return sqrt(rows > cols ? (double)rows / (double)cols : 1);
    return 0.2 * sqrt((double)(rows > cols ? rows : cols));
}

/* Block j of a bucket in flat storage. */
static struct mat block_view(const struct optim *o, const struct block *x, float *flat)
{
    int64_t ld = param_of(o, x->i_part)->cols;

    return (struct mat){ flat + o->own->parts[x->i_part].offset + x->row * ld + x->col, DT_F32, x->rows, x->cols, ld };
}

/* Matrices that lie one behind the other are, element by element, one long row,
 * which a device shares out better than hundreds of short ones. */
static struct mat as_row(struct mat m)
{
    return mat(m.p, m.dt, 1, m.rows * m.cols);
}

static _Bool join(struct mat *row, struct mat next)
{
    if ((float *)row->p + row->cols != next.p)
        return 0;
    row->cols += next.rows * next.cols;
    row->ld = row->cols;
    return 1;
}

static _Bool is_muon(const struct optim *o, int i)
{
    return i < o->own->n_parts && param_of(o, i)->optim == PARAM_MUON;
}

static void momentum(struct optim *o, float *grads, double g_scale)
{
    for (int i = 0, next; i < o->own->n_parts; i = next) {
        next = i + 1;
        if (!is_muon(o, i))
            continue;
        struct mat g = as_row(view(o, i, grads)), m = as_row(state(o, i, o->first, o->first_at)), both;
        /* Both must go on together. */
        for (both = m; is_muon(o, next) && join(&both, state(o, next, o->first, o->first_at)); next++) {
            if (!join(&g, view(o, next, grads)))
                break;
            m = both;
        }
        o->dev->ops->muon_momentum(o->dev, g, m, g, g_scale, o->cfg->muon_momentum, o->cfg->muon_nesterov);
    }
}

/* A part that was orthogonalised whole. */
static _Bool is_whole(const struct optim *o, int i)
{
    return is_muon(o, i) && blocks_of(o, i, NULL) == 1;
}

static double part_ratio(const struct optim *o, int i)
{
    return muon_ratio(o->cfg, param_of(o, i)->rows, param_of(o, i)->cols);
}

static void apply_whole(struct optim *o, float *master, float *grads, double lr)
{
    for (int i = 0, next; i < o->own->n_parts; i = next) {
        next = i + 1;
        if (!is_whole(o, i))
            continue;
        struct mat w = as_row(view(o, i, master)), u = as_row(view(o, i, grads)), both;
        _Bool decay = param_of(o, i)->decay;
        double ratio = part_ratio(o, i);
        for (both = w; is_whole(o, next) && param_of(o, next)->decay == decay && part_ratio(o, next) == ratio &&
                       join(&both, view(o, next, master)); next++) {
            if (!join(&u, view(o, next, grads)))
                break;
            w = both;
        }
        o->dev->ops->muon_apply(o->dev, w, u, lr, ratio, decay ? o->cfg->muon_weight_decay : 0);
    }
}

static void step_muon(struct optim *o, float *master, float *grads, double lr_factor, double g_scale)
{
    const struct optim_config *c = o->cfg;
    const struct ns_coef *coef;
    int n_coef = optim_ns_coefs(c->muon_ns, &coef);
    struct dev *d = o->dev;

    momentum(o, grads, g_scale);
    for (int b = 0; b < o->n_buckets; b++) {
        const struct bucket *k = &o->buckets[b];
        for (int j = k->first; j < k->first + k->n; j++)
            o->mats[j] = block_view(o, &o->blocks[j], grads);
        d->ops->newton_schulz(d, o->mats + k->first, k->n, coef, n_coef, 1e-7);
        for (int j = k->first; j < k->first + k->n; j++) {
            const struct block *x = &o->blocks[j];
            if (!is_whole(o, x->i_part))
                d->ops->muon_apply(d, block_view(o, x, master), o->mats[j], c->muon_lr * lr_factor,
                                   muon_ratio(c, x->rows, x->cols),
                                   param_of(o, x->i_part)->decay ? c->muon_weight_decay : 0);
        }
    }
    apply_whole(o, master, grads, c->muon_lr * lr_factor);
}

int optim_step(struct optim *o, float *master, float *grads, int64_t t, double lr_factor, double g_scale)
{
    const struct optim_config *c = o->cfg;
    struct dev *d = o->dev;

    step_muon(o, master, grads, lr_factor, g_scale);
    for (int i = 0; i < o->own->n_parts; i++) {
        const struct param *p = param_of(o, i);
        if (p->optim != PARAM_ADAMW)
            continue;
        struct adamw a = {
            .w = view(o, i, master), .g = view(o, i, grads),
            .m = state(o, i, o->first, o->first_at), .v = state(o, i, o->second, o->second_at),
            .g_scale = g_scale, .lr = c->adamw_lr * lr_factor,
            .beta1 = c->adamw_betas[0], .beta2 = c->adamw_betas[1], .eps = c->adamw_eps,
            .decay = p->decay ? c->adamw_weight_decay : 0, .t = t,
        };
        d->ops->adamw(d, &a);
    }
    return d->ops->sync(d);
}

int optim_ns_coefs(int ns, const struct ns_coef **out)
{
    static const struct ns_coef jordan[5] = {
        { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 },
        { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 },
    };
    static const struct ns_coef you[5] = {
        { 4.0848, -6.8946, 2.9270 }, { 3.9505, -6.3029, 2.6377 }, { 3.7418, -5.5913, 2.3037 },
        { 2.8769, -3.1427, 1.2046 }, { 2.8366, -3.0525, 1.2012 },
    };
    /* Polar Express (arXiv 2505.16932) with the safety factor s = 1.01 folded
     * in: a/s, b/s^3, c/s^5. */
    static struct ns_coef polar[5];
    static const double polar_raw[5][3] = {
        { 8.2872, -23.5959, 17.3004 }, { 4.1071, -2.9478, 0.5448 }, { 3.9487, -2.9089, 0.5518 },
        { 3.3184, -2.4885, 0.5100 }, { 2.3007, -1.6689, 0.4188 },
    };
    /* The Polar Express of microsoft/dion divides by 1.02 norm; that factor is
     * folded in likewise. */
    static struct ns_coef dion[5];
    static const double dion_raw[5][3] = {
        { 8.1566, -22.4833, 15.8788 }, { 4.0429, -2.8089, 0.5000 }, { 3.8917, -2.7725, 0.5061 },
        { 3.2858, -2.3681, 0.4645 }, { 2.3465, -1.7098, 0.4232 },
    };
    static const struct ns_coef deepseek[10] = {
        { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 },
        { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 },
        { 3.4445, -4.7750, 2.0315 }, { 3.4445, -4.7750, 2.0315 }, { 2, -1.5, 0.5 }, { 2, -1.5, 0.5 },
    };
    static const struct ns_coef cubic5[5] = {
        { 3.3657, -3.3421, 0 }, { 2.5744, -1.4957, 0 }, { 2.5369, -1.4313, 0 },
        { 2.4419, -1.2764, 0 }, { 2.2230, -0.9631, 0 },
    };
    double s = 1.01;

    for (int i = 0; i < 5; i++) {
        polar[i] = (struct ns_coef){ polar_raw[i][0] / s, polar_raw[i][1] / (s * s * s),
                                     polar_raw[i][2] / (s * s * s * s * s) };
        double f = i == 0 ? 1.02 : 1;
        dion[i] = (struct ns_coef){ dion_raw[i][0] / f, dion_raw[i][1] / (f * f * f),
                                    dion_raw[i][2] / (f * f * f * f * f) };
    }
    switch (ns) {
    case 0: *out = jordan; return 5;
    case 1: *out = you; return 5;
    case 2: *out = polar; return 5;
    case 3: *out = dion; return 5;
    case 4: *out = deepseek; return 10;
    case 5: *out = cubic5; return 5;
    default: BUG_ON(1);
    }
}

void optim_bias_update(float *bias, const int64_t *counts, int n, double rate)
{
    int64_t total = 0;
    double shift = 0;

    for (int e = 0; e < n; e++)
        total += counts[e];
    /* sign(mean - count) in integers: count * n against the total. */
    for (int e = 0; e < n; e++)
        shift += (double)((total > counts[e] * n) - (total < counts[e] * n));
    shift /= n;
    for (int e = 0; e < n; e++) {
        double sign = (double)((total > counts[e] * n) - (total < counts[e] * n));
        bias[e] = (float)((double)bias[e] + rate * (sign - shift));
    }
}
