/* ref_attn.c -- attention inside documents, one query and head at a time.
 *
 * Keys and values of one kv head stand in scratch memory as double; scores
 * exist for one query only.  The backward op recomputes the softmax instead of
 * reading o and lse, so that it depends on their rounding in no way. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "dev/ref/ref_elem.h"
#include "dev/ref/ref_ops.h"
#include "dev/shape.h"

struct attn_ws {
    double *k, *v, *dk, *dv;    /* [nk][head_dim] */
    double *p, *dp;             /* [nk] */
    double *q, *o, *dq, *go;    /* [head_dim] */
};

static size_t ws_doubles(int64_t nk, int64_t head_dim)
{
    return (size_t)(4 * nk * head_dim + 2 * nk + 4 * head_dim);
}

size_t ref_attn_ws(const struct dev_limits *lim)
{
    return ws_doubles(lim->max_rows, lim->head_dim) * sizeof(double);
}

static struct attn_ws carve(struct dev *d, const struct attn *a)
{
    int64_t nk = a->k.rows, hd = a->head_dim;
    double *at = d->ws;
    struct attn_ws s;

    BUG_ON(d->ws_size < ws_doubles(nk, hd) * sizeof(double));
    s.k = at, at += nk * hd;
    s.v = at, at += nk * hd;
    s.dk = at, at += nk * hd;
    s.dv = at, at += nk * hd;
    s.p = at, at += nk;
    s.dp = at, at += nk;
    s.q = at, at += hd;
    s.o = at, at += hd;
    s.dq = at, at += hd;
    s.go = at;
    return s;
}

static void load_kv(const struct attn_ws *s, const struct attn *a, int h)
{
    int64_t hd = a->head_dim;

    for (int64_t j = 0; j < a->k.rows; j++) {
        ref_load(s->k + j * hd, a->k, j, h * hd, hd);
        ref_load(s->v + j * hd, a->v, j, h * hd, hd);
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Loads query i of head h, fills p over its keys [*lo, *hi) and returns lse. */
static double softmax(const struct attn_ws *s, const struct attn *a, int64_t i, int h, int64_t *lo, int64_t *hi)
{
    int64_t hd = a->head_dim;
    double max = -INFINITY, sum = 0;

    *lo = a->doc_start[i];
    *hi = a->k.rows - a->q.rows + i + 1;
    BUG_ON(*lo < 0 || *lo >= *hi);
    ref_load(s->q, a->q, i, h * hd, hd);
    for (int64_t j = *lo; j < *hi; j++) {
        s->p[j] = a->scale * dot(s->q, s->k + j * hd, hd);
        if (!(s->p[j] <= max))
            max = s->p[j];
    }
    for (int64_t j = *lo; j < *hi; j++)
        sum += s->p[j] = exp(s->p[j] - max);
    for (int64_t j = *lo; j < *hi; j++)
        s->p[j] /= sum;
    return max + log(sum);
}

void ref_attn_fwd(struct dev *d, const struct attn *a)
{
    int64_t hd = a->head_dim;
    int per_kv = a->n_heads / a->n_kv_heads;
    struct attn_ws s;

    shape_attn(a, 0);
    if (!a->q.rows)
        return;
    s = carve(d, a);
    for (int h = 0; h < a->n_heads; h++) {
        if (h % per_kv == 0)
            load_kv(&s, a, h / per_kv);
        for (int64_t i = 0; i < a->q.rows; i++) {
            int64_t lo, hi;
            ref_put(a->lse, i, h, softmax(&s, a, i, h, &lo, &hi));
            memset(s.o, 0, (size_t)hd * sizeof *s.o);
            for (int64_t j = lo; j < hi; j++)
                for (int64_t c = 0; c < hd; c++)
                    s.o[c] += s.p[j] * s.v[j * hd + c];
            ref_store(a->o, i, h * hd, hd, s.o);
        }
    }
}

/* dv = p^T do;  dp = do v^T;  ds = p (dp - sum p dp);  dq = scale ds k;  dk = scale ds^T q. */
static void query_bwd(const struct attn_ws *s, const struct attn *a, int64_t i, int h)
{
    int64_t hd = a->head_dim, lo, hi;
    double mean = 0;

    softmax(s, a, i, h, &lo, &hi);
    ref_load(s->go, a->do_, i, h * hd, hd);
    memset(s->dq, 0, (size_t)hd * sizeof *s->dq);
    for (int64_t j = lo; j < hi; j++) {
        s->dp[j] = dot(s->go, s->v + j * hd, hd);
        mean += s->p[j] * s->dp[j];
    }
    for (int64_t j = lo; j < hi; j++) {
        double ds = a->scale * s->p[j] * (s->dp[j] - mean);
        for (int64_t c = 0; c < hd; c++) {
            s->dq[c] += ds * s->k[j * hd + c];
            s->dk[j * hd + c] += ds * s->q[c];
            s->dv[j * hd + c] += s->p[j] * s->go[c];
        }
    }
    ref_store(a->dq, i, h * hd, hd, s->dq);
}

void ref_attn_bwd(struct dev *d, const struct attn *a)
{
    int64_t nk = a->k.rows, hd = a->head_dim;
    int per_kv = a->n_heads / a->n_kv_heads;
    struct attn_ws s;

    shape_attn(a, 1);
    if (!nk)
        return;
    s = carve(d, a);
    for (int g = 0; g < a->n_kv_heads; g++) {
        load_kv(&s, a, g);
        memset(s.dk, 0, (size_t)(2 * nk * hd) * sizeof *s.dk);  /* dv follows dk */
        for (int h = g * per_kv; h < (g + 1) * per_kv; h++)
            for (int64_t i = 0; i < a->q.rows; i++)
                query_bwd(&s, a, i, h);
        for (int64_t j = 0; j < nk; j++) {
            ref_store(a->dk, j, g * hd, hd, s.dk + j * hd);
            ref_store(a->dv, j, g * hd, hd, s.dv + j * hd);
        }
    }
}
