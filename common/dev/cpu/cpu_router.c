/* cpu_router.c -- choosing experts, their weights, and the way back to logits.
 *
 * Scores are computed in double and compared as F32, which is what decides
 * ties: a device that took another exponential here could choose another
 * expert.  The number of experts is small, so this costs little.  Sums over a
 * sequence run in token order inside one task; the sequences are added in
 * order.  Much reads as in ref and is written again on purpose: conform holds
 * one against the other, and a slip in shared code would be in both. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "dev/cpu/cpu_ops.h"
#include "dev/shape.h"

struct token {                  /* scratch of one thread, [E] each */
    double *score;              /* softmax or sigmoid */
    double *soft;               /* e^(logit - max) / sum, for softmax and the z loss */
    double *sel;                /* selection score; -inf once chosen */
    double *grad;               /* group scores; then d loss / d score, d logit */
    double *share;              /* aux factor of an expert in this sequence */
    double *psum;               /* sum of p over the valid tokens of the sequence */
    double lse, total;
};

enum { N_ROWS = 6 };

struct routing {
    const struct router *r;
    double *scratch;
    double *aux, *z;            /* [sequences]; NULL: not wanted */
    int64_t per_seq;            /* tokens of a sequence */
};

size_t cpu_router_ws(const struct dev *d, const struct dev_limits *lim)
{
    return (size_t)(d->threads * N_ROWS * lim->max_cols + 2 * lim->max_rows) * sizeof(double);
}

static struct token token_of(const struct routing *q, int thread)
{
    int64_t n = q->r->n_experts;
    double *at = q->scratch + thread * N_ROWS * n;

    return (struct token){ at, at + n, at + 2 * n, at + 3 * n, at + 4 * n, at + 5 * n, 0, 1 };
}

static void token_scores(struct token *k, const struct router *r, int64_t t, _Bool want_soft)
{
    const float *x = cpu_row(r->logits, t);
    int n = r->n_experts;
    double max = -INFINITY, sum = 0;

    k->total = 1;
    if (r->scoring == SCORING_SIGMOID) {
        k->total = 0;
        for (int i = 0; i < n; i++)
            k->total += k->score[i] = 1 / (1 + exp(-(double)x[i]));
        if (!want_soft)
            return;
    }
    for (int i = 0; i < n; i++)
        if (!((double)x[i] <= max))
            max = (double)x[i];
    for (int i = 0; i < n; i++)
        sum += k->soft[i] = exp((double)x[i] - max);
    k->lse = max + log(sum);
    for (int i = 0; i < n; i++)
        k->soft[i] /= sum;
    if (r->scoring == SCORING_SOFTMAX)
        memcpy(k->score, k->soft, (size_t)n * sizeof *k->score);
}

static int first_largest(const double *v, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

static void mask_groups(struct token *k, const struct router *r)
{
    int size = r->n_experts / r->n_group;
    double *group = k->grad;

    for (int g = 0; g < r->n_group; g++) {
        const double *v = k->sel + g * size;
        int a = first_largest(v, size), b = -1;
        for (int i = 0; i < size; i++)
            if (i != a && (b < 0 || v[i] > v[b]))
                b = i;
        group[g] = (double)(float)(v[a] + (b < 0 ? 0 : v[b]));
    }
    for (int n = 0; n < r->topk_group; n++)
        group[first_largest(group, r->n_group)] = -INFINITY;
    for (int g = 0; g < r->n_group; g++)
        if (group[g] != -INFINITY)
            memset(k->sel + g * size, 0, (size_t)size * sizeof *k->sel);
}

static void choose(struct token *k, const struct router *r, uint16_t *idx)
{
    const float *bias = r->bias;

    for (int i = 0; i < r->n_experts; i++) {
        float s = (float)k->score[i];
        k->sel[i] = (double)(bias ? (float)((double)s + (double)bias[i]) : s);
    }
    if (r->n_group > 1)
        mask_groups(k, r);
    for (int s = 0; s < r->top_k; s++) {
        int best = first_largest(k->sel, r->n_experts);
        idx[s] = (uint16_t)best;
        k->sel[best] = -INFINITY;
    }
}

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

static void choose_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct routing *q = arg;
    const struct router *r = q->r;
    struct token k = token_of(q, thread);

    for (int64_t t = first; t < end; t++) {
        uint16_t *idx = r->idx + t * r->top_k;
        token_scores(&k, r, t, 0);
        if (!r->forced)
            choose(&k, r, idx);
        for (int s = 0; s < r->top_k; s++)
            BUG_ON(idx[s] >= r->n_experts);
        double div = divisor(&k, r, idx);
        for (int s = 0; s < r->top_k; s++)
            cpu_row(r->w, t)[s] = (float)(r->routed_scale * k.score[idx[s]] / div);
    }
}

/* Fills share[] for the tokens [t0, end) of one sequence. */
static void sequence_share(struct token *k, const struct router *r, int64_t t0, int64_t end)
{
    int64_t n_valid = 0;

    if (r->frac) {
        for (int i = 0; i < r->n_experts; i++)
            k->share[i] = r->n_experts * r->frac[i];
        return;
    }
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
}

static void losses_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct routing *q = arg;
    const struct router *r = q->r;
    struct token k = token_of(q, thread);

    for (int64_t s = first; s < end; s++) {
        int64_t t0 = s * q->per_seq, t1 = cpu_min(t0 + q->per_seq, r->n_tokens);
        double aux = 0, z = 0;
        if (q->aux)
            sequence_share(&k, r, t0, t1);
        memset(k.psum, 0, (size_t)r->n_experts * sizeof *k.psum);
        for (int64_t t = t0; t < t1; t++) {
            if (!is_valid(r, t))
                continue;
            token_scores(&k, r, t, q->z != NULL);
            z += k.lse * k.lse;
            for (int i = 0; i < r->n_experts; i++)
                k.psum[i] += k.score[i] / k.total;
        }
        for (int i = 0; q->aux && i < r->n_experts; i++)
            aux += k.share[i] * k.psum[i];
        if (q->aux)
            q->aux[s] = aux;
        if (q->z)
            q->z[s] = z;
    }
}

/* A sequence, or 256 tokens where sequences mean nothing. */
static struct routing routing_of(struct dev *d, const struct router *r, _Bool by_sequence)
{
    BUG_ON(r->n_tokens && d->ws_size < (size_t)(d->threads * N_ROWS * r->n_experts) * sizeof(double));
    return (struct routing){ .r = r, .scratch = d->ws, .per_seq = by_sequence ? r->seq_len : 256 };
}

void cpu_router_fwd(struct dev *d, const struct router *r)
{
    shape_router(r, 0);
    struct routing q = routing_of(d, r, r->aux_sum && !r->frac);
    double ns = 15.0 * r->n_experts;

    cpu_for(d, r->n_tokens, ns, choose_task, &q);
    for (int64_t i = 0; r->counts && i < r->n_tokens * r->top_k; i++)
        r->counts[r->idx[i]]++;
    if ((!r->aux_sum && !r->z_sum) || !r->n_tokens)
        return;
    int64_t n_seq = cpu_ceil(r->n_tokens, q.per_seq);
    double *at = q.scratch + (int64_t)d->threads * N_ROWS * r->n_experts;
    BUG_ON(d->ws_size < (size_t)(at + 2 * n_seq - q.scratch) * sizeof(double));
    q.aux = r->aux_sum ? at : NULL;
    q.z = r->z_sum ? at + n_seq : NULL;
    cpu_for(d, n_seq, ns * (double)q.per_seq, losses_task, &q);
    for (int64_t s = 0; s < n_seq; s++) {
        if (q.aux)
            *r->aux_sum += q.aux[s];
        if (q.z)
            *r->z_sum += q.z[s];
    }
}

/* grad: d loss / d score through the weights of the chosen. */
static void weights_bwd(struct token *k, const struct router *r, int64_t t)
{
    const uint16_t *idx = r->idx + t * r->top_k;
    const float *dw = cpu_row(r->dw, t);
    double div = divisor(k, r, idx), mean = 0;

    memset(k->grad, 0, (size_t)r->n_experts * sizeof *k->grad);
    for (int s = 0; r->norm_topk && s < r->top_k; s++)
        mean += (double)dw[s] * k->score[idx[s]] / div;
    for (int s = 0; s < r->top_k; s++)
        k->grad[idx[s]] += r->routed_scale * ((double)dw[s] - mean) / div;
}

/* For sigmoid scores p_i = s_i / S, so d/ds_i = (f_i - sum_j f_j p_j) / S. */
static void aux_bwd(struct token *k, const struct router *r)
{
    double mean = 0;

    for (int i = 0; r->scoring == SCORING_SIGMOID && i < r->n_experts; i++)
        mean += k->share[i] * k->score[i] / k->total;
    for (int i = 0; i < r->n_experts; i++)
        k->grad[i] += r->aux_scale * (k->share[i] - mean) / k->total;
}

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

static void bwd_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct routing *q = arg;
    const struct router *r = q->r;
    struct token k = token_of(q, thread);

    for (int64_t s = first; s < end; s++) {
        int64_t t0 = s * q->per_seq, t1 = cpu_min(t0 + q->per_seq, r->n_tokens);
        if (r->aux_scale != 0)
            sequence_share(&k, r, t0, t1);
        for (int64_t t = t0; t < t1; t++) {
            float *out = cpu_row(r->dlogits, t);
            token_scores(&k, r, t, r->z_scale != 0);
            weights_bwd(&k, r, t);
            if (r->aux_scale != 0 && is_valid(r, t))
                aux_bwd(&k, r);
            scores_bwd(&k, r);
            if (r->z_scale != 0 && is_valid(r, t))
                for (int i = 0; i < r->n_experts; i++)
                    k.grad[i] += r->z_scale * 2 * k.lse * k.soft[i];
            for (int i = 0; i < r->n_experts; i++)
                out[i] = (float)k.grad[i];
        }
    }
}

void cpu_router_bwd(struct dev *d, const struct router *r)
{
    shape_router(r, 1);
    struct routing q = routing_of(d, r, r->aux_scale != 0 && !r->frac);

    cpu_for(d, cpu_ceil(r->n_tokens, q.per_seq), 20.0 * r->n_experts * (double)q.per_seq, bwd_task, &q);
}
