/* ref_rows.c -- ops that treat each row by itself: norms, biases, rotary
 * positions, gates. */
#include <math.h>

#include "base/err.h"
#include "dev/ref/ref_elem.h"
#include "dev/ref/ref_ops.h"
#include "dev/shape.h"

void ref_rmsnorm_fwd(struct dev *d, struct mat y, struct mat rstd, struct mat x, struct mat w, double eps)
{
    double vx[REF_RUN], vw[REF_RUN];

    (void)d;
    shape_rmsnorm_fwd(y, rstd, x, w);
    for (int64_t r = 0; r < x.rows; r++) {
        double sq = 0, inv;
        for (int64_t c = 0; c < x.cols; c += REF_RUN) {
            int64_t n = ref_run(c, x.cols);
            ref_load(vx, x, r, c, n);
            for (int64_t i = 0; i < n; i++)
                sq += vx[i] * vx[i];
        }
        inv = 1 / sqrt((x.cols ? sq / (double)x.cols : 0) + eps);
        ref_put(rstd, r, 0, inv);
        for (int64_t c = 0; c < x.cols; c += REF_RUN) {
            int64_t n = ref_run(c, x.cols);
            ref_load(vx, x, r, c, n);
            ref_load(vw, w, 0, c, n);
            for (int64_t i = 0; i < n; i++)
                vx[i] *= inv * vw[i];
            ref_store(y, r, c, n, vx);
        }
    }
}

/* With n = x rstd and g = dy w:  dx = rstd (g - n mean(g n)),  dw = sum_r dy n. */
void ref_rmsnorm_bwd(struct dev *d, struct mat dx, double beta_dx, struct mat dw, double beta_dw,
                     struct mat dy, struct mat x, struct mat w, struct mat rstd)
{
    double vx[REF_RUN], vw[REF_RUN], vdy[REF_RUN], acc[REF_RUN];

    (void)d;
    shape_rmsnorm_bwd(dx, beta_dx, dw, beta_dw, dy, x, w, rstd);
    for (int64_t c = 0; c < x.cols; c += REF_RUN) {
        int64_t n = ref_run(c, x.cols);
        for (int64_t i = 0; i < n; i++)
            acc[i] = 0;
        if (beta_dw != 0)
            ref_load(acc, dw, 0, c, n);
        for (int64_t r = 0; r < x.rows; r++) {
            double inv = ref_get(rstd, r, 0);
            ref_load(vx, x, r, c, n);
            ref_load(vdy, dy, r, c, n);
            for (int64_t i = 0; i < n; i++)
                acc[i] += vdy[i] * vx[i] * inv;
        }
        ref_store(dw, 0, c, n, acc);
    }
    for (int64_t r = 0; r < x.rows; r++) {
        double inv = ref_get(rstd, r, 0), dot = 0;
        for (int64_t c = 0; c < x.cols; c += REF_RUN) {
            int64_t n = ref_run(c, x.cols);
            ref_load(vx, x, r, c, n);
            ref_load(vw, w, 0, c, n);
            ref_load(vdy, dy, r, c, n);
            for (int64_t i = 0; i < n; i++)
                dot += vdy[i] * vw[i] * vx[i] * inv;
        }
        dot /= x.cols ? (double)x.cols : 1;
        for (int64_t c = 0; c < x.cols; c += REF_RUN) {
            int64_t n = ref_run(c, x.cols);
            ref_load(vx, x, r, c, n);
            ref_load(vw, w, 0, c, n);
            ref_load(vdy, dy, r, c, n);
            for (int64_t i = 0; i < n; i++)
                vdy[i] = inv * (vdy[i] * vw[i] - vx[i] * inv * dot);
            if (beta_dx != 0) {
                ref_load(acc, dx, r, c, n);
                for (int64_t i = 0; i < n; i++)
                    vdy[i] += acc[i];
            }
            ref_store(dx, r, c, n, vdy);
        }
    }
}

void ref_bias_fwd(struct dev *d, struct mat y, struct mat b)
{
    double vy[REF_RUN], vb[REF_RUN];

    (void)d;
    shape_bias(y, b, 0);
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t c = 0; c < y.cols; c += REF_RUN) {
            int64_t n = ref_run(c, y.cols);
            ref_load(vy, y, r, c, n);
            ref_load(vb, b, 0, c, n);
            for (int64_t i = 0; i < n; i++)
                vy[i] += vb[i];
            ref_store(y, r, c, n, vy);
        }
}

void ref_bias_bwd(struct dev *d, struct mat db, struct mat dy, double beta)
{
    double acc[REF_RUN], v[REF_RUN];

    (void)d;
    shape_bias(dy, db, beta);
    for (int64_t c = 0; c < dy.cols; c += REF_RUN) {
        int64_t n = ref_run(c, dy.cols);
        for (int64_t i = 0; i < n; i++)
            acc[i] = 0;
        if (beta != 0)
            ref_load(acc, db, 0, c, n);
        for (int64_t r = 0; r < dy.rows; r++) {
            ref_load(v, dy, r, c, n);
            for (int64_t i = 0; i < n; i++)
                acc[i] += v[i];
        }
        ref_store(db, 0, c, n, acc);
    }
}

void ref_rope(struct dev *d, struct mat x, int n_heads, int head_dim, int rot_dim,
              struct mat cos, struct mat sin, const int32_t *positions, _Bool inverse)
{
    int64_t half = rot_dim / 2;

    (void)d;
    shape_rope(x, n_heads, head_dim, rot_dim, cos, sin);
    if (!half)
        return;
    for (int64_t t = 0; t < x.rows; t++) {
        int64_t pos = positions[t];
        BUG_ON(pos < 0 || pos >= cos.rows);
        for (int64_t i = 0; i < half; i++) {
            double co = ref_get(cos, pos, i), si = ref_get(sin, pos, i);
            if (inverse)
                si = -si;
            for (int h = 0; h < n_heads; h++) {
                int64_t at = (int64_t)h * head_dim + i;
                double a = ref_get(x, t, at), b = ref_get(x, t, at + half);
                ref_put(x, t, at, a * co - b * si);
                ref_put(x, t, at + half, b * co + a * si);
            }
        }
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

void ref_swiglu_fwd(struct dev *d, struct mat h, struct mat gate, struct mat up)
{
    double g[REF_RUN], u[REF_RUN];

    (void)d;
    shape_same(h, gate);
    shape_same(h, up);
    for (int64_t r = 0; r < h.rows; r++)
        for (int64_t c = 0; c < h.cols; c += REF_RUN) {
            int64_t n = ref_run(c, h.cols);
            ref_load(g, gate, r, c, n);
            ref_load(u, up, r, c, n);
            for (int64_t i = 0; i < n; i++)
                g[i] *= sigmoid(g[i]) * u[i];
            ref_store(h, r, c, n, g);
        }
}

/* All operands of a run are read before its first store, which is what allows
 * the aliases of the contract. */
void ref_swiglu_bwd(struct dev *d, struct mat dgate, struct mat dup, struct mat hw, struct mat dw,
                    struct mat q, struct mat gate, struct mat up, struct mat w)
{
    double g[REF_RUN], u[REF_RUN], vq[REF_RUN], vh[REF_RUN];

    (void)d;
    shape_swiglu_bwd(dgate, dup, hw, dw, q, gate, up, w);
    for (int64_t r = 0; r < gate.rows; r++) {
        double wr = w.p ? ref_get(w, r, 0) : 1, dot = 0;
        for (int64_t c = 0; c < gate.cols; c += REF_RUN) {
            int64_t n = ref_run(c, gate.cols);
            ref_load(g, gate, r, c, n);
            ref_load(u, up, r, c, n);
            ref_load(vq, q, r, c, n);
            for (int64_t i = 0; i < n; i++) {
                double s = sigmoid(g[i]), silu = g[i] * s, dh = wr * vq[i];
                dot += vq[i] * silu * u[i];
                vh[i] = wr * silu * u[i];
                g[i] = dh * u[i] * s * (1 + g[i] * (1 - s));
                u[i] = dh * silu;
            }
            ref_store(dgate, r, c, n, g);
            ref_store(dup, r, c, n, u);
            ref_store(hw, r, c, n, vh);
        }
        if (w.p)
            ref_put(dw, r, 0, dot);
    }
}

void ref_sigmoid_fwd(struct dev *d, struct mat y, struct mat x)
{
    double v[REF_RUN];

    (void)d;
    shape_same(y, x);
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0; c < x.cols; c += REF_RUN) {
            int64_t n = ref_run(c, x.cols);
            ref_load(v, x, r, c, n);
            for (int64_t i = 0; i < n; i++)
                v[i] = sigmoid(v[i]);
            ref_store(y, r, c, n, v);
        }
}

void ref_sigmoid_bwd(struct dev *d, struct mat dx, struct mat dy, struct mat y)
{
    double v[REF_RUN], s[REF_RUN];

    (void)d;
    shape_same(dx, dy);
    shape_same(dx, y);
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t c = 0; c < y.cols; c += REF_RUN) {
            int64_t n = ref_run(c, y.cols);
            ref_load(v, dy, r, c, n);
            ref_load(s, y, r, c, n);
            for (int64_t i = 0; i < n; i++)
                v[i] *= s[i] * (1 - s[i]);
            ref_store(dx, r, c, n, v);
        }
}
