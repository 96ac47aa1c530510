/* ref_route.c -- rows by expert, and the way back to tokens. */
#include <string.h>

#include "base/err.h"
#include "dev/ref/ref_elem.h"
#include "dev/ref/ref_ops.h"
#include "dev/shape.h"

/* Counting sort.  offsets first serve as cursors, then move up by one place. */
void ref_route_sort(struct dev *d, const struct route_map *m)
{
    int64_t n = m->n_tokens * m->top_k;

    (void)d;
    shape_route_sort(m);
    memset(m->offsets, 0, (size_t)(m->n_experts + 1) * sizeof *m->offsets);
    for (int64_t i = 0; i < n; i++) {
        BUG_ON(m->idx[i] >= m->n_experts);
        m->offsets[m->idx[i] + 1]++;
    }
    for (int e = 0; e < m->n_experts; e++)
        m->offsets[e + 1] += m->offsets[e];
    for (int64_t i = 0; i < n; i++) {
        int32_t row = m->offsets[m->idx[i]]++;
        m->row_of[i] = row;
        m->token_of[row] = (int32_t)(i / m->top_k);
    }
    memmove(m->offsets + 1, m->offsets, (size_t)m->n_experts * sizeof *m->offsets);
    m->offsets[0] = 0;
}

void ref_rows_gather(struct dev *d, struct mat xs, struct mat x, const int32_t *token_of)
{
    double v[REF_RUN];

    (void)d;
    shape_gather(xs, x);
    for (int64_t r = 0; r < xs.rows; r++) {
        BUG_ON(token_of[r] < 0 || token_of[r] >= x.rows);
        for (int64_t c = 0; c < x.cols; c += REF_RUN) {
            ref_load(v, x, token_of[r], c, ref_run(c, x.cols));
            ref_store(xs, r, c, ref_run(c, x.cols), v);
        }
    }
}

void ref_rows_combine(struct dev *d, struct mat y, struct mat ys, struct mat w, const int32_t *row_of,
                      int64_t first, int top_k, double beta)
{
    double acc[REF_RUN], v[REF_RUN];

    (void)d;
    shape_combine(y, ys, w, row_of, top_k, beta);
    for (int64_t t = 0; t < y.rows; t++)
        for (int64_t c = 0; c < y.cols; c += REF_RUN) {
            int64_t n = ref_run(c, y.cols);
            memset(acc, 0, sizeof acc);
            if (beta != 0)
                ref_load(acc, y, t, c, n);
            for (int s = 0; s < top_k; s++) {
                int64_t row = row_of ? row_of[t * top_k + s] - first : t;
                double ws = w.p ? ref_get(w, t, s) : 1;
                if (row < 0 || row >= ys.rows)
                    continue;
                ref_load(v, ys, row, c, n);
                for (int64_t i = 0; i < n; i++)
                    acc[i] += ws * v[i];
            }
            ref_store(y, t, c, n, acc);
        }
}

void ref_slots_to_rows(struct dev *d, struct mat wr, struct mat w, const int32_t *row_of, int64_t first)
{
    (void)d;
    shape_slots(w, wr);
    for (int64_t t = 0; t < w.rows; t++)
        for (int64_t s = 0; s < w.cols; s++) {
            int64_t row = row_of[t * w.cols + s] - first;
            if (row >= 0 && row < wr.rows)
                ref_put(wr, row, 0, ref_get(w, t, s));
        }
}

void ref_rows_to_slots(struct dev *d, struct mat w, struct mat wr, const int32_t *row_of, int64_t first)
{
    (void)d;
    shape_slots(w, wr);
    for (int64_t t = 0; t < w.rows; t++)
        for (int64_t s = 0; s < w.cols; s++) {
            int64_t row = row_of[t * w.cols + s] - first;
            if (row >= 0 && row < wr.rows)
                ref_put(w, t, s, ref_get(wr, row, 0));
        }
}
