/* ref_optim.c -- norms and optimizer steps. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "dev/ref/ref_elem.h"
#include "dev/ref/ref_ops.h"
#include "dev/shape.h"

enum { SUMSQ_ROWS = 64 };

void ref_sumsq(struct dev *d, double *out, struct mat g)
{
    double v[REF_RUN];

    (void)d;
    shape_mat(g);
    for (int64_t r = 0; r < g.rows;) {
        int64_t end = g.rows - r < SUMSQ_ROWS ? g.rows : r + SUMSQ_ROWS;
        double sum = 0;
        for (; r < end; r++)
            for (int64_t c = 0; c < g.cols; c += REF_RUN) {
                int64_t n = ref_run(c, g.cols);
                ref_load(v, g, r, c, n);
                for (int64_t i = 0; i < n; i++)
                    sum += v[i] * v[i];
            }
        *out += sum;
    }
}

void ref_adamw(struct dev *d, const struct adamw *a)
{
    double w[REF_RUN], m[REF_RUN], v[REF_RUN], g[REF_RUN];
    double bc1 = 1 - pow(a->beta1, (double)a->t), bc2 = 1 - pow(a->beta2, (double)a->t);

    (void)d;
    shape_adamw(a);
    for (int64_t r = 0; r < a->w.rows; r++)
        for (int64_t c = 0; c < a->w.cols; c += REF_RUN) {
            int64_t n = ref_run(c, a->w.cols);
            ref_load(w, a->w, r, c, n);
            ref_load(m, a->m, r, c, n);
            ref_load(v, a->v, r, c, n);
            ref_load(g, a->g, r, c, n);
            for (int64_t i = 0; i < n; i++) {
                double gi = a->g_scale * g[i];
                m[i] += (1 - a->beta1) * (gi - m[i]);
                v[i] = a->beta2 * v[i] + (1 - a->beta2) * gi * gi;
                w[i] *= 1 - a->lr * a->decay;
                w[i] -= a->lr * (m[i] / bc1) / (sqrt(v[i] / bc2) + a->eps);
            }
            ref_store(a->w, r, c, n, w);
            ref_store(a->m, r, c, n, m);
            ref_store(a->v, r, c, n, v);
        }
}

void ref_muon_momentum(struct dev *d, struct mat u, struct mat m, struct mat g, double g_scale, double mu,
                       _Bool nesterov)
{
    double vm[REF_RUN], vg[REF_RUN];

    (void)d;
    shape_momentum(u, m, g);
    for (int64_t r = 0; r < g.rows; r++)
        for (int64_t c = 0; c < g.cols; c += REF_RUN) {
            int64_t n = ref_run(c, g.cols);
            ref_load(vm, m, r, c, n);
            ref_load(vg, g, r, c, n);
            for (int64_t i = 0; i < n; i++) {
                double sg = (1 - mu) * g_scale * vg[i];
                vm[i] = mu * vm[i] + sg;
                vg[i] = nesterov ? sg + mu * vm[i] : vm[i];
            }
            ref_store(m, r, c, n, vm);
            ref_store(u, r, c, n, vg);
        }
}

struct ns_ws { double *x, *y, *a, *b; };        /* [s][l] x2, [s][s] x2, s <= l */

static size_t ns_doubles(int64_t rows, int64_t cols)
{
    int64_t s = rows < cols ? rows : cols;

    return (size_t)(2 * rows * cols + 2 * s * s);
}

size_t ref_optim_ws(const struct dev_limits *lim)
{
    return ns_doubles(lim->ns_rows, lim->ns_cols) * sizeof(double);
}

/* y = a x + (b (x x^T) + c (x x^T)^2) x */
static void ns_step(const struct ns_ws *w, int64_t s, int64_t l, struct ns_coef k)
{
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t c = 0; c < l; c++)
                sum += w->x[i * l + c] * w->x[j * l + c];
            w->a[i * s + j] = w->a[j * s + i] = sum;
        }
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < s; j++) {
            double sum = 0;
            for (int64_t c = 0; c < s; c++)
                sum += w->a[i * s + c] * w->a[j * s + c];       /* symmetric */
            w->b[i * s + j] = k.b * w->a[i * s + j] + k.c * sum;
        }
    for (int64_t i = 0; i < s; i++) {
        for (int64_t c = 0; c < l; c++)
            w->y[i * l + c] = k.a * w->x[i * l + c];
        for (int64_t j = 0; j < s; j++)
            for (int64_t c = 0; c < l; c++)
                w->y[i * l + c] += w->b[i * s + j] * w->x[j * l + c];
    }
}

static void orthogonalise(const struct ns_ws *ws, struct mat m, const struct ns_coef *coef, int n_steps, double eps)
{
    _Bool tall = m.rows > m.cols;
    int64_t s = tall ? m.cols : m.rows, l = tall ? m.rows : m.cols;
    struct ns_ws w = *ws;
    double norm = 0;

    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < l; j++) {
            double v = tall ? ref_get(m, j, i) : ref_get(m, i, j);
            w.x[i * l + j] = v;
            norm += v * v;
        }
    norm = sqrt(norm);
    if (norm < eps)
        norm = eps;
    for (int64_t i = 0; norm > 0 && i < s * l; i++)
        w.x[i] /= norm;
    for (int k = 0; k < n_steps; k++) {
        double *x = w.x;
        ns_step(&w, s, l, coef[k]);
        w.x = w.y;
        w.y = x;
    }
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < l; j++)
            ref_put(m, tall ? j : i, tall ? i : j, w.x[i * l + j]);
}

void ref_newton_schulz(struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps, double eps)
{
    struct ns_ws w;
    int64_t size, s;

    shape_newton_schulz(x, n, coef, n_steps);
    if (!n || !x[0].rows || !x[0].cols)
        return;
    BUG_ON(d->ws_size < ns_doubles(x[0].rows, x[0].cols) * sizeof(double));
    size = x[0].rows * x[0].cols;
    s = x[0].rows < x[0].cols ? x[0].rows : x[0].cols;
    w.x = d->ws;
    w.y = w.x + size;
    w.a = w.y + size;
    w.b = w.a + s * s;
    for (int i = 0; i < n; i++)
        orthogonalise(&w, x[i], coef, n_steps, eps);
}

void ref_muon_apply(struct dev *d, struct mat w, struct mat u, double lr, double ratio, double decay)
{
    double vw[REF_RUN], vu[REF_RUN];

    (void)d;
    shape_same(w, u);
    for (int64_t r = 0; r < w.rows; r++)
        for (int64_t c = 0; c < w.cols; c += REF_RUN) {
            int64_t n = ref_run(c, w.cols);
            ref_load(vw, w, r, c, n);
            ref_load(vu, u, r, c, n);
            for (int64_t i = 0; i < n; i++)
                vw[i] = vw[i] * (1 - lr * decay) - lr * ratio * vu[i];
            ref_store(w, r, c, n, vw);
        }
}
