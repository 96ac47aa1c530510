/* parity_limits.c -- how far two layouts may differ, and why.
 *
 * With the routing forced, two layouts compute the same real numbers: what
 * differs is the order in which fp32 sums are added.  u = 2^-24 is the rounding
 * of one operation.
 *
 * Sums.  Rounding errors of n additions are as good as independent, so that the
 * relative error of a sum stays below lambda u sqrt(n) with a probability of
 * 1 - 2 exp(-lambda^2 / 2) for each number (Higham and Mary, A new approach to
 * probabilistic rounding error analysis, 2019).  lambda = 8 leaves 2e-14, less
 * than one false alarm in 10^13 numbers.
 *
 * Gradients.  Numbers pass forward and backward through sums of lengths d_1,
 * d_2, ...: two for each product of matrices, attention, combine and head.
 * Independent again, their errors add as roots: sqrt(2 sum d).  A weight's
 * gradient is at last a sum over the tokens T of the step:
 *
 *     limit = 8 u (sqrt(T) + sqrt(2 sum d)), of the largest value of the tensor.
 *
 * The norm of all gradients carries the relative error of its terms, so it has
 * the same limit.  A bf16 wire rounds what each micro-batch contributes by up to
 * 2^-9 of it, a standard deviation of 2^-9 / sqrt(3).  Of n contributions as good
 * as independent, both the sum and its error are sqrt(n) times those of one:
 * lambda 2^-9 / sqrt(3) more.
 *
 * Loss.  A mean over T tokens whose errors are as good as independent: theirs
 * divided by sqrt(T), and one rounding: 8 u sqrt(1 + sum d / T).  The balance and
 * z losses are means over tokens too.
 *
 * Updates amplify, so their limits start from the difference of the gradients
 * that was found, tensor by tensor; that of the gradients has its own limit.
 *
 *   Muon.  Newton-Schulz maps each singular value by an odd polynomial.  Its
 *   steepest place is 0, where the slope is the product A of the first
 *   coefficients (485 for jordan: 3.4445^5); an odd function of a matrix moves
 *   by no more than its steepest slope times the move of its argument, in the
 *   Frobenius norm.  The argument has norm 1.  Relative to it, a difference e of
 *   gradients is at most (1 + momentum) e (nesterov adds (1 - mu) g to mu times
 *   a momentum that holds (1 - mu) g itself), and the products of the iteration
 *   round by 8 u sqrt(rows + cols).  The result has at least one singular value
 *   of 0.7 or more:  A ((1 + momentum) e + 8 u sqrt(rows + cols)) / 0.7.
 *
 *   AdamW.  An update is the quotient of two moments, at the first step nothing
 *   but the sign of the gradient: an element near 0 may turn over.  So the
 *   update of every element is computed from the first layout's moments for its
 *   gradient, for one that is larger and one that is smaller by the largest
 *   difference found in the tensor, and for 0 if that lies between: it may move
 *   by as much as these do.
 *
 *   Both: a weight is rounded twice on its way, in each layout: 2 u |w|.
 *
 * Routing.  Scores carry the rounding of the router's sums: a layout may choose
 * otherwise where the scores are less than 64 ulps apart. */
#include "train/parity_impl.h"

#include <math.h>

#include "base/err.h"

static const double U = 0x1p-24, LAMBDA = 8, SMALLEST_SV = 0.7;

static double sum_lengths(const struct parity *v)
{
    const struct run_config *c = v->cfg;
    const struct model_config *m = &c->model;
    double heads = (double)(m->num_attention_heads * m->head_dim), h = (double)m->hidden_size;
    /* Norms, q k v and scores; then values, o. */
    double attention = 2 * h + (double)m->head_dim + (double)c->data.seq_len + heads;
    /* A token's way through the experts: norm, gate and up, down, combine, router. */
    double shared = (double)(m->n_shared_experts * m->moe_intermediate_size + m->shared_expert_intermediate_size);
    double moe = 3 * h + (double)(m->moe_intermediate_size + m->num_experts_per_tok) + shared;
    double dense = 2 * h + (double)m->intermediate_size;
    double sum = 2 * h + (double)m->vocab_size;

    for (int l = 0; l < m->num_hidden_layers; l++)
        sum += attention + (model_is_moe(m, l) ? moe : dense);
    return sum;
}

double parity_loss_limit(const struct parity *v)
{
    return LAMBDA * U * sqrt(1 + sum_lengths(v) / (double)v->cfg->tokens_per_step);
}

double parity_gradient_limit(const struct parity *v)
{
    double limit = LAMBDA * U * (sqrt((double)v->cfg->tokens_per_step) + sqrt(2 * sum_lengths(v)));

    /* grad_dtype: 0 fp32, 1 bf16. */
    return v->cfg->grad_dtype ? limit + LAMBDA * 0x1p-9 / sqrt(3) : limit;
}

/* The relative difference of gradients, of the worst block that is orthogonalised
 * alone. */
static double block_error(const struct parity *v, const struct param *p, const float *g, const float *was)
{
    const struct model_config *m = &v->cfg->model;
    _Bool heads = p->kind == PARAM_ATTN && v->cfg->optim.muon_split == OPTIM_SPLIT_HEAD;
    /* Heads of o are blocks of columns. */
    _Bool by_cols = heads && &v->table->v[v->table->layers[p->layer].o] == p;
    int64_t len = !heads ? p->rows : m->head_dim, n = !heads ? 1 : (by_cols ? p->cols : p->rows) / len;
    double worst = 0;

    for (int64_t b = 0; b < n; b++) {
        int64_t r0 = by_cols ? 0 : b * len, r1 = by_cols ? p->rows : r0 + len;
        int64_t c0 = by_cols ? b * len : 0, c1 = by_cols ? c0 + len : p->cols;
        double d = 0, s = 0;
        for (int64_t r = r0; r < r1; r++)
            for (int64_t c = c0; c < c1; c++) {
                double x = was[r * p->cols + c], e = g[r * p->cols + c] - x;
                d += e * e;
                s += x * x;
            }
        if (d > 0)
            worst = fmax(worst, sqrt(d / s));
    }
    return worst;
}

static double muon_limit(const struct parity *v, const struct param *p, const float *g, const float *was)
{
    const struct optim_config *o = &v->cfg->optim;
    const struct ns_coef *coef;
    int n = optim_ns_coefs(o->muon_ns, &coef);
    double slope = 1, e = block_error(v, p, g, was);

    for (int i = 0; i < n; i++)
        slope *= coef[i].a;
    return slope * ((1 + o->muon_momentum) * e + LAMBDA * U * sqrt((double)(p->rows + p->cols))) / SMALLEST_SV;
}

/* An element of AdamW: its moments before the step. */
struct element { double m, v; };

static double adamw_direction(const struct optim_config *o, struct element x, double g, double bias1, double bias2)
{
    double b1 = o->adamw_betas[0], b2 = o->adamw_betas[1];
    double m = b1 * x.m + (1 - b1) * g, v = b2 * x.v + (1 - b2) * g * g;

    return m / bias1 / (sqrt(v / bias2) + o->adamw_eps);
}

/* Norm of what each element may move by, learning rate included. */
static double adamw_reach(const struct parity *v, int64_t n, const struct parity_step *s, int64_t at, double scale_error)
{
    const struct optim_config *o = &v->cfg->optim;
    double t = (double)v->step + 1, bias1 = 1 - pow(o->adamw_betas[0], t), bias2 = 1 - pow(o->adamw_betas[1], t);
    double lr = s->f.lr_adamw, scale, delta = 0, reach = 0;
    _Bool clipped;

    scale = optim_clip(o, s->f.norm, &clipped);
    for (int64_t i = 0; i < n; i++)
        delta = fmax(delta, fabs((double)v->g[at + i] - s->g[at + i]));
    for (int64_t i = 0; i < n; i++) {
        struct element x = { s->first[at + i], s->second[at + i] };
        double g = scale * s->g[at + i], d = scale * delta + fabs(g) * scale_error;
        double here = adamw_direction(o, x, g, bias1, bias2), most = 0;
        double places[3] = { g - d, g + d, 0 };
        for (int k = 0; k < (fabs(g) < d ? 3 : 2); k++)
            most = fmax(most, fabs(adamw_direction(o, x, places[k], bias1, bias2) - here));
        /* The formula itself is a dozen roundings. */
        most += 16 * U * fabs(here);
        reach += lr * lr * most * most;
    }
    return sqrt(reach);
}

double parity_update_limit(const struct parity *v, int i_param, const struct parity_step *s, const float *w_after,
                           double scale_error, double *error)
{
    const struct param *p = &v->table->v[i_param];
    int64_t n = p->rows * p->cols, at = p->offset;
    double diff = 0, update = 0, w = 0;

    for (int64_t i = at; i < at + n; i++) {
        double d = (double)v->w[i] - w_after[i], x = (double)w_after[i] - s->w[i];
        diff += d * d;
        update += x * x;
        w += (double)w_after[i] * w_after[i];
    }
    if (update == 0) {
        /* Nothing moved, so nothing may. */
        *error = diff == 0 ? 0 : INFINITY;
        return 0;
    }
    *error = sqrt(diff / update);
    double rounding = 2 * U * sqrt(w / update);
    if (p->optim == PARAM_MUON)
        return muon_limit(v, p, v->g + at, s->g + at) + rounding;
    return adamw_reach(v, n, s, at, scale_error) / sqrt(update) + rounding;
}

/* ---- routing */

static double ulp_of(double x)
{
    int e;

    frexp(x, &e);
    return ldexp(1, e - 24);
}

/* Selection scores in double, from the logits the layout has. */
static void selection(const struct router *r, const float *logits, const float *bias, double *score, double *sel)
{
    double max = -INFINITY, sum = 0;

    for (int e = 0; e < r->n_experts; e++)
        max = fmax(max, logits[e]);
    for (int e = 0; e < r->n_experts; e++)
        sum += score[e] = exp(logits[e] - max);
    for (int e = 0; e < r->n_experts; e++) {
        score[e] = r->scoring == SCORING_SOFTMAX ? score[e] / sum : 1 / (1 + exp(-(double)logits[e]));
        sel[e] = score[e] + (bias ? bias[e] : 0);
    }
}

/* The sum of the two best of each group, as op.h has it. */
static void group_scores(const struct router *r, const double *sel, double *group)
{
    int per = r->n_experts / r->n_group;

    for (int g = 0; g < r->n_group; g++) {
        double a = -INFINITY, b = -INFINITY;
        for (int e = g * per; e < (g + 1) * per; e++) {
            double x = sel[e];
            b = x > a ? a : fmax(b, x);
            a = fmax(a, x);
        }
        group[g] = per == 1 ? a : a + b;
    }
}

static _Bool holds(const uint16_t *idx, int k, int e)
{
    for (int i = 0; i < k; i++)
        if (idx[i] == e)
            return 1;
    return 0;
}

static double apart(double hi, double lo, double scale)
{
    return fabs(hi - lo) / ulp_of(fmax(scale, fmax(fabs(hi), fabs(lo))));
}

/* If the followed choice has an expert of a group that the own one left out, the
 * tie was one of groups: how far that group was from being taken. */
static double group_gap(const struct router *r, const double *sel, const uint16_t *own, const uint16_t *followed, double *group)
{
    int per = r->n_experts / r->n_group, n_better;
    double gap = 0;

    group_scores(r, sel, group);
    for (int i = 0; i < r->top_k; i++) {
        int g = followed[i] / per;
        if (holds(own, r->top_k, followed[i]))
            continue;
        double last = INFINITY;     /* the worst of the groups that were taken */
        n_better = 0;
        for (int j = 0; j < r->n_group; j++)
            if (group[j] > group[g] || (group[j] == group[g] && j < g)) {
                n_better++;
                int rank = 0;
                for (int k = 0; k < r->n_group; k++)
                    rank += group[k] > group[j] || (group[k] == group[j] && k < j);
                if (rank < r->topk_group)
                    last = fmin(last, group[j]);
            }
        if (n_better >= r->topk_group)
            gap = fmax(gap, apart(last, group[g], 0));
    }
    return gap;
}

double parity_gap_ulps(const struct router *r, const float *logits, const float *bias, const uint16_t *own,
                       const uint16_t *followed)
{
    struct arena *a;
    double hi = -INFINITY, lo = INFINITY, hi_score = 0, lo_score = 0, gap = 0;
    int k = r->top_k;
    _Bool same = 1;

    for (int i = 0; i < k; i++)
        same = same && holds(followed, k, own[i]);
    if (same)
        return 0;
    a = arena_new();
    double *score = arena_array(a, (size_t)r->n_experts, sizeof *score), *sel = arena_array(a, (size_t)r->n_experts, sizeof *sel);
    selection(r, logits, bias, score, sel);
    if (r->n_group > 1)
        gap = group_gap(r, sel, own, followed, arena_array(a, (size_t)r->n_group, sizeof(double)));
    if (gap == 0) {
        for (int i = 0; i < k; i++) {
            if (!holds(followed, k, own[i]) && sel[own[i]] > hi) {
                hi = sel[own[i]];
                hi_score = score[own[i]];
            }
            if (!holds(own, k, followed[i]) && sel[followed[i]] < lo) {
                lo = sel[followed[i]];
                lo_score = score[followed[i]];
            }
        }
        gap = apart(hi, lo, fmax(hi_score, lo_score));
    }
    arena_free(a);
    /* A difference is never no difference. */
    return fmax(gap, 0x1p-10);
}
