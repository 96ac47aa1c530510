/* ref_ends.c -- the two ends of a model: embedding and loss. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "dev/ref/ref_elem.h"
#include "dev/ref/ref_ops.h"
#include "dev/shape.h"

void ref_embed_fwd(struct dev *d, struct mat y, struct mat table, const int32_t *ids)
{
    double v[REF_RUN];

    (void)d;
    shape_embed(y, table, 0);
    for (int64_t t = 0; t < y.rows; t++) {
        BUG_ON(ids[t] < 0 || ids[t] >= table.rows);
        for (int64_t c = 0; c < y.cols; c += REF_RUN) {
            ref_load(v, table, ids[t], c, ref_run(c, y.cols));
            ref_store(y, t, c, ref_run(c, y.cols), v);
        }
    }
}

static _Bool seen_before(const int32_t *ids, int64_t t)
{
    for (int64_t i = 0; i < t; i++)
        if (ids[i] == ids[t])
            return 1;
    return 0;
}

/* All tokens of an id are summed at its first, so that the table is rounded
 * once; the search is quadratic, which tiny models can bear. */
void ref_embed_bwd(struct dev *d, struct mat dtable, struct mat dy, const int32_t *ids, double beta)
{
    double acc[REF_RUN], v[REF_RUN];

    (void)d;
    shape_embed(dy, dtable, beta);
    memset(acc, 0, sizeof acc);
    for (int64_t r = 0; beta == 0 && r < dtable.rows; r++)
        for (int64_t c = 0; c < dtable.cols; c += REF_RUN)
            ref_store(dtable, r, c, ref_run(c, dtable.cols), acc);
    for (int64_t t = 0; t < dy.rows; t++) {
        BUG_ON(ids[t] < 0 || ids[t] >= dtable.rows);
        if (seen_before(ids, t))
            continue;
        for (int64_t c = 0; c < dy.cols; c += REF_RUN) {
            int64_t n = ref_run(c, dy.cols);
            ref_load(acc, dtable, ids[t], c, n);
            for (int64_t u = t; u < dy.rows; u++) {
                if (ids[u] != ids[t])
                    continue;
                ref_load(v, dy, u, c, n);
                for (int64_t i = 0; i < n; i++)
                    acc[i] += v[i];
            }
            ref_store(dtable, ids[t], c, n, acc);
        }
    }
}

static double log_sum_exp(struct mat m, int64_t r)
{
    double v[REF_RUN], max = -INFINITY, sum = 0;

    for (int64_t c = 0; c < m.cols; c += REF_RUN) {
        int64_t n = ref_run(c, m.cols);
        ref_load(v, m, r, c, n);
        for (int64_t i = 0; i < n; i++)
            if (!(v[i] <= max))
                max = v[i];
    }
    for (int64_t c = 0; c < m.cols; c += REF_RUN) {
        int64_t n = ref_run(c, m.cols);
        ref_load(v, m, r, c, n);
        for (int64_t i = 0; i < n; i++)
            sum += exp(v[i] - max);
    }
    return max + log(sum);
}

void ref_xent(struct dev *d, double *nll, struct mat logits, const int32_t *targets, double scale, _Bool want_grad)
{
    double v[REF_RUN];

    (void)d;
    shape_mat(logits);
    for (int64_t r = 0; r < logits.rows; r++) {
        int32_t target = targets[r];
        double lse = 0;

        BUG_ON(target < -1 || target >= logits.cols);
        nll[r] = 0;
        if (target >= 0) {
            lse = log_sum_exp(logits, r);
            nll[r] = lse - ref_get(logits, r, target);
        }
        for (int64_t c = 0; want_grad && c < logits.cols; c += REF_RUN) {
            int64_t n = ref_run(c, logits.cols);
            ref_load(v, logits, r, c, n);
            for (int64_t i = 0; i < n; i++)
                v[i] = target < 0 ? 0 : scale * (exp(v[i] - lse) - (c + i == target));
            ref_store(logits, r, c, n, v);
        }
    }
}

void ref_sum(struct dev *d, double *out, const double *x, int64_t n)
{
    (void)d;
    BUG_ON(n < 0);
    for (int64_t i = 0; i < n;) {
        int64_t end = n - i < 4096 ? n : i + 4096;
        double sum = 0;
        for (; i < end; i++)
            sum += x[i];
        *out += sum;
    }
}
