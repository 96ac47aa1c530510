/* cpu_ends.c -- the two ends of a model: embedding and loss; and rows by
 * expert, which move in the same way. */
#include <string.h>

#include "base/err.h"
#include "dev/cpu/cpu_ops.h"
#include "dev/shape.h"

#define NS_PER_BYTE 0.04

struct ends {
    const struct cpu_kern *k;
    struct mat y, x, w;
    const int32_t *ids;
    int top_k;
    double beta, scale;
    double *nll;
    _Bool want_grad;
    int64_t slice, first;
};

static void gather_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct ends *a = arg;

    (void)thread;
    for (int64_t r = first; r < end; r++) {
        BUG_ON(a->ids[r] < 0 || a->ids[r] >= a->x.rows);
        memcpy(cpu_row(a->y, r), cpu_row(a->x, a->ids[r]), (size_t)a->y.cols * sizeof(float));
    }
}

static void gather(struct dev *d, struct mat y, struct mat x, const int32_t *ids)
{
    if (y.cols)
        cpu_for(d, y.rows, 8 * NS_PER_BYTE * (double)y.cols + 5, gather_task, &(struct ends){ .y = y, .x = x, .ids = ids });
}

void cpu_rows_gather(struct dev *d, struct mat xs, struct mat x, const int32_t *token_of)
{
    shape_mat(xs);
    shape_mat(x);
    BUG_ON(xs.cols != x.cols);
    gather(d, xs, x, token_of);
}

void cpu_embed_fwd(struct dev *d, struct mat y, struct mat table, const int32_t *ids)
{
    shape_embed(y, table, 0);
    gather(d, y, table, ids);
}

/* One task is a slice of columns over all tokens: token order is kept and no
 * two threads meet in a row. */
static void embed_bwd_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct ends *a = arg;
    int64_t c = first * a->slice, n = cpu_min(end * a->slice, a->y.cols) - c;

    (void)thread;
    for (int64_t r = 0; a->beta == 0 && r < a->y.rows; r++)
        memset(cpu_row(a->y, r) + c, 0, (size_t)n * sizeof(float));
    for (int64_t t = 0; t < a->x.rows; t++) {
        BUG_ON(a->ids[t] < 0 || a->ids[t] >= a->y.rows);
        float *y = cpu_row(a->y, a->ids[t]) + c;
        a->k->add(y, y, cpu_row(a->x, t) + c, n);
    }
}

void cpu_embed_bwd(struct dev *d, struct mat dtable, struct mat dy, const int32_t *ids, double beta)
{
    shape_embed(dy, dtable, beta);
    if (!dy.cols)
        return;
    int64_t slice = cpu_max(32, cpu_ceil(cpu_ceil(dy.cols, d->threads), 32) * 32);
    double rows = (double)dy.rows * 3 + (beta == 0 ? (double)dtable.rows : 0);
    cpu_for(d, cpu_ceil(dy.cols, slice), 4 * NS_PER_BYTE * (double)slice * rows, embed_bwd_task,
            &(struct ends){ .k = cpu_kern(d), .y = dtable, .x = dy, .ids = ids, .beta = beta, .slice = slice });
}

static void combine_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct ends *a = arg;

    (void)thread;
    for (int64_t t = first; t < end; t++) {
        float *y = cpu_row(a->y, t);
        _Bool fresh = a->beta == 0;
        for (int s = 0; s < a->top_k; s++) {
            int64_t row = a->ids ? a->ids[t * a->top_k + s] - a->first : t;
            float w = a->w.p ? cpu_row(a->w, t)[s] : 1.0f;
            if (row < 0 || row >= a->x.rows)
                continue;
            if (fresh)
                a->k->scale_to(y, w, cpu_row(a->x, row), a->y.cols);
            else
                a->k->axpy(y, w, cpu_row(a->x, row), a->y.cols);
            fresh = 0;
        }
        if (fresh)
            memset(y, 0, (size_t)a->y.cols * sizeof *y);
    }
}

void cpu_rows_combine(struct dev *d, struct mat y, struct mat ys, struct mat w, const int32_t *row_of, int64_t first, int top_k, double beta)
{
    shape_combine(y, ys, w, row_of, top_k, beta);
    cpu_for(d, y.rows, NS_PER_BYTE * 4 * (double)y.cols * (top_k + 2), combine_task,
            &(struct ends){ .k = cpu_kern(d), .y = y, .x = ys, .w = w, .ids = row_of, .first = first, .top_k = top_k, .beta = beta });
}

/* A few bytes a slot: not worth a team. */
void cpu_slots_to_rows(struct dev *d, struct mat wr, struct mat w, const int32_t *row_of, int64_t first)
{
    (void)d;
    shape_slots(w, wr);
    for (int64_t t = 0; t < w.rows; t++)
        for (int64_t s = 0; s < w.cols; s++) {
            int64_t row = row_of[t * w.cols + s] - first;
            if (row >= 0 && row < wr.rows)
                *cpu_row(wr, row) = cpu_row(w, t)[s];
        }
}

void cpu_rows_to_slots(struct dev *d, struct mat w, struct mat wr, const int32_t *row_of, int64_t first)
{
    (void)d;
    shape_slots(w, wr);
    for (int64_t t = 0; t < w.rows; t++)
        for (int64_t s = 0; s < w.cols; s++) {
            int64_t row = row_of[t * w.cols + s] - first;
            if (row >= 0 && row < wr.rows)
                cpu_row(w, t)[s] = *cpu_row(wr, row);
        }
}

/* Counting sort; offsets serve as cursors, then move up by one place. */
void cpu_route_sort(struct dev *d, const struct route_map *m)
{
    (void)d;
    shape_route_sort(m);
    memset(m->offsets, 0, (size_t)(m->n_experts + 1) * sizeof *m->offsets);
    int64_t n = m->n_tokens * m->top_k;
    for (int64_t i = 0; i < n; i++) {
        BUG_ON(m->idx[i] >= m->n_experts);
        m->offsets[m->idx[i] + 1]++;
    }
    for (int e = 0; e < m->n_experts; e++)
        m->offsets[e + 1] += m->offsets[e];
    for (int64_t t = 0, i = 0; t < m->n_tokens; t++)
        for (int s = 0; s < m->top_k; s++, i++) {
            int32_t row = m->offsets[m->idx[i]]++;
            m->row_of[i] = row;
            m->token_of[row] = (int32_t)t;
        }
    memmove(m->offsets + 1, m->offsets, (size_t)m->n_experts * sizeof *m->offsets);
    m->offsets[0] = 0;
}

/* The row is read once for its maximum, once for e^x, which takes its place,
 * and once to scale it: two of the three from cache. */
static void xent_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct ends *a = arg;
    int64_t n = a->x.cols;

    (void)thread;
    for (int64_t r = first; r < end; r++) {
        float *x = cpu_row(a->x, r), max;
        int32_t target = a->ids[r];
        BUG_ON(target < -1 || target >= n);
        a->nll[r] = 0;
        if (target < 0) {
            if (a->want_grad)
                memset(x, 0, (size_t)n * sizeof *x);
            continue;
        }
        double xt = (double)x[target], sum;
        double lse = a->k->log_sum_exp(x, a->want_grad ? x : NULL, &max, &sum, n);
        a->nll[r] = lse - xt;
        if (a->want_grad) {
            float hit = x[target];
            a->k->scale(x, (float)(a->scale / sum), n);
            x[target] = (float)(a->scale * ((double)hit / sum - 1));
        }
    }
}

void cpu_xent(struct dev *d, double *nll, struct mat logits, const int32_t *targets, double scale, _Bool want_grad)
{
    shape_mat(logits);
    cpu_for(d, logits.rows, 0.8 * (double)logits.cols + 30, xent_task,
            &(struct ends){ .k = cpu_kern(d), .x = logits, .ids = targets, .nll = nll, .scale = scale, .want_grad = want_grad });
}

void cpu_sum(struct dev *d, double *out, const double *x, int64_t n)
{
    (void)d;
    for (int64_t i = 0; i < n;) {
        int64_t end = cpu_min(n, i + 4096);
        double s = 0;
        for (; i < end; i++)
            s += x[i];
        *out += s;
    }
}
