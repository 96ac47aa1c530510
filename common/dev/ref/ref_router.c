/* ref_router.c -- choosing experts, their weights, and the way back to logits.
 *
 * A token's scores are computed in double.  Selection compares them as stored
 * in stat precision, because ties are decided there; weights and losses use
 * the double. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "dev/ref/ref_elem.h"
#include "dev/ref/ref_ops.h"
#include "dev/shape.h"

struct token {                  /* scratch of one token, [E] each */
    double *score;              /* softmax or sigmoid */
    double *soft;               /* softmax, for the z loss */
    double *sel;                /* selection score; -inf once chosen */
    double *grad;               /* d loss / d score, then / d logit */
    double *share;              /* aux factor of an expert in this sequence */
    double *psum;               /* sum of p over the valid tokens of the sequence */
    double lse;                 /* log sum exp(logits) */
    double total;               /* sum of the sigmoid scores; 1 for softmax */
};

enum { N_ROWS = 6 };

size_t ref_router_ws(const struct dev_limits *lim)
{
    return (size_t)(N_ROWS * lim->max_cols) * sizeof(double);
}

static struct token carve(struct dev *d, int64_t n_experts)
{
    double *at = d->ws;

    BUG_ON(d->ws_size < (size_t)(N_ROWS * n_experts) * sizeof(double));
    return (struct token){
        .score = at, .soft = at + n_experts, .sel = at + 2 * n_experts,
        .grad = at + 3 * n_experts, .share = at + 4 * n_experts, .psum = at + 5 * n_experts,
    };
}

static void scores(struct token *k, const struct router *r, int64_t t)
{
    int n = r->n_experts;
    double max = -INFINITY, sum = 0;

    ref_load(k->score, r->logits, t, 0, n);
    for (int i = 0; i < n; i++)
        if (!(k->score[i] <= max))
            max = k->score[i];
    for (int i = 0; i < n; i++)
        sum += k->soft[i] = exp(k->score[i] - max);
    k->lse = max + log(sum);
    for (int i = 0; i < n; i++)
        k->soft[i] /= sum;
    k->total = 1;
    if (r->scoring == SCORING_SOFTMAX) {
        memcpy(k->score, k->soft, (size_t)n * sizeof *k->score);
        return;
    }
    k->total = 0;
    for (int i = 0; i < n; i++)
        k->total += k->score[i] = 1 / (1 + exp(-k->score[i]));
}

/* The first largest of v[0..n); entries of -inf are never taken before others. */
static int argmax(const double *v, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

/* Puts 0 where a group is not among the best.  Uses grad as group scores. */
static void mask_groups(struct token *k, const struct router *r)
{
    int size = r->n_experts / r->n_group;
    double *group = k->grad;

    for (int g = 0; g < r->n_group; g++) {
        const double *v = k->sel + g * size;
        int a = argmax(v, size), b = -1;
        for (int i = 0; i < size; i++)
            if (i != a && (b < 0 || v[i] > v[b]))
                b = i;
        group[g] = ref_round(r->logits.dt, v[a] + (b < 0 ? 0 : v[b]));
    }
    for (int n = 0; n < r->topk_group; n++)
        group[argmax(group, r->n_group)] = -INFINITY;
    for (int g = 0; g < r->n_group; g++)
        if (group[g] != -INFINITY)
            memset(k->sel + g * size, 0, (size_t)size * sizeof *k->sel);
}

static void choose(struct token *k, const struct router *r, uint16_t *idx)
{
    const float *bias = r->bias;

    for (int i = 0; i < r->n_experts; i++) {
        double s = ref_round(r->logits.dt, k->score[i]);
        k->sel[i] = bias ? ref_round(r->logits.dt, s + (double)bias[i]) : s;
    }
    if (r->n_group > 1)
        mask_groups(k, r);
    for (int s = 0; s < r->top_k; s++) {
        int best = argmax(k->sel, r->n_experts);
        idx[s] = (uint16_t)best;
        k->sel[best] = -INFINITY;
    }
}

/* The divisor of the weights of a token. */
static double divisor(const struct token *k, const struct router *r, const uint16_t *idx)
{
    double sum = 0;

    if (!r->norm_topk)
        return 1;
    for (int s = 0; s < r->top_k; s++)
        sum += k->score[idx[s]];
    return r->scoring == SCORING_SIGMOID ? sum + 1e-20 : sum;
}

static _Bool is_valid(const struct router *r, int64_t t)
{
    return !r->valid || r->valid[t];
}

/* Fills share[] for the sequence that starts at t0: the factor of p in the aux
 * sum.  Returns the end of the sequence.  With frac the whole batch is one. */
static int64_t sequence(struct token *k, const struct router *r, int64_t t0)
{
    int64_t end = r->n_tokens, n_valid = 0;

    if (r->frac) {
        for (int i = 0; i < r->n_experts; i++)
            k->share[i] = r->n_experts * r->frac[i];
        return end;
    }
    if (end - t0 > r->seq_len)
        end = t0 + r->seq_len;
    memset(k->share, 0, (size_t)r->n_experts * sizeof *k->share);
    for (int64_t t = t0; t < end; t++) {
        if (!is_valid(r, t))
            continue;
        n_valid++;
        for (int s = 0; s < r->top_k; s++)
            k->share[r->idx[t * r->top_k + s]] += 1;
    }
    for (int i = 0; n_valid && i < r->n_experts; i++)
        k->share[i] *= (double)r->n_experts / ((double)r->top_k * (double)n_valid);
    return end;
}

static double aux_of(struct token *k, const struct router *r, int64_t t0, int64_t *end)
{
    double aux = 0;

    *end = sequence(k, r, t0);
    memset(k->psum, 0, (size_t)r->n_experts * sizeof *k->psum);
    for (int64_t t = t0; t < *end; t++) {
        if (!is_valid(r, t))
            continue;
        scores(k, r, t);
        for (int i = 0; i < r->n_experts; i++)
            k->psum[i] += k->score[i] / k->total;
    }
    for (int i = 0; i < r->n_experts; i++)
        aux += k->share[i] * k->psum[i];
    return aux;
}

void ref_router_fwd(struct dev *d, const struct router *r)
{
    struct token k;
    double z = 0, aux = 0;

    shape_router(r, 0);
    k = carve(d, r->n_experts);
    for (int64_t t = 0; t < r->n_tokens; t++) {
        uint16_t *idx = r->idx + t * r->top_k;
        double div;

        scores(&k, r, t);
        if (!r->forced)
            choose(&k, r, idx);
        div = divisor(&k, r, idx);
        for (int s = 0; s < r->top_k; s++) {
            BUG_ON(idx[s] >= r->n_experts);
            ref_put(r->w, t, s, r->routed_scale * k.score[idx[s]] / div);
            if (r->counts)
                r->counts[idx[s]]++;
        }
        if (is_valid(r, t))
            z += k.lse * k.lse;
    }
    for (int64_t t = 0, end; r->aux_sum && t < r->n_tokens; t = end)
        aux += aux_of(&k, r, t, &end);
    if (r->aux_sum)
        *r->aux_sum += aux;
    if (r->z_sum)
        *r->z_sum += z;
}

/* grad: d loss / d score through the weights of the chosen. */
static void weights_bwd(struct token *k, const struct router *r, int64_t t)
{
    const uint16_t *idx = r->idx + t * r->top_k;
    double div = divisor(k, r, idx), mean = 0;

    memset(k->grad, 0, (size_t)r->n_experts * sizeof *k->grad);
    if (r->norm_topk)
        for (int s = 0; s < r->top_k; s++)
            mean += ref_get(r->dw, t, s) * k->score[idx[s]] / div;
    for (int s = 0; s < r->top_k; s++)
        k->grad[idx[s]] += r->routed_scale * (ref_get(r->dw, t, s) - mean) / div;
}

/* Adds aux_scale times the gradient of the aux sum.  For sigmoid scores,
 * p_i = s_i / S, so d/ds_i = (f_i - sum_j f_j p_j) / S. */
static void aux_bwd(struct token *k, const struct router *r)
{
    double mean = 0;

    if (r->scoring == SCORING_SIGMOID)
        for (int i = 0; i < r->n_experts; i++)
            mean += k->share[i] * k->score[i] / k->total;
    for (int i = 0; i < r->n_experts; i++)
        k->grad[i] += r->aux_scale * (k->share[i] - mean) / k->total;
}

/* grad: from d / d score to d / d logit. */
static void scores_bwd(struct token *k, const struct router *r)
{
    double mean = 0;

    if (r->scoring == SCORING_SIGMOID) {
        for (int i = 0; i < r->n_experts; i++)
            k->grad[i] *= k->score[i] * (1 - k->score[i]);
        return;
    }
    for (int i = 0; i < r->n_experts; i++)
        mean += k->grad[i] * k->score[i];
    for (int i = 0; i < r->n_experts; i++)
        k->grad[i] = k->score[i] * (k->grad[i] - mean);
}

void ref_router_bwd(struct dev *d, const struct router *r)
{
    struct token k;
    int64_t end = 0;

    shape_router(r, 1);
    k = carve(d, r->n_experts);
    for (int64_t t = 0; t < r->n_tokens; t++) {
        if (t == end)
            end = r->aux_scale != 0 ? sequence(&k, r, t) : r->n_tokens;
        scores(&k, r, t);
        weights_bwd(&k, r, t);
        if (r->aux_scale != 0 && is_valid(r, t))
            aux_bwd(&k, r);
        scores_bwd(&k, r);
        if (r->z_scale != 0 && is_valid(r, t))
            for (int i = 0; i < r->n_experts; i++)
                k.grad[i] += r->z_scale * 2 * k.lse * k.soft[i];
        ref_store(r->dlogits, t, 0, r->n_experts, k.grad);
    }
}
