/* cpu_rows.c -- moving, element-wise and row-wise ops: each is one kernel over
 * pieces of rows.  A row is computed whole by one thread; sums over rows go
 * through a fixed number of parts that are added in order. */
#include <string.h>

#include "base/err.h"
#include "dev/cpu/cpu_ops.h"
#include "dev/shape.h"

#define NS_PER_BYTE 0.04
#define NS_PER_EXP 0.4
/* Flat operands are handed out in runs of this many elements. */
enum { RUN = 4096 };

/* --- flat: up to four operands of one shape -------------------------------- */

struct flat;
typedef void (*flat_fn)(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v);

struct flat {
    struct mat m[4];
    const struct cpu_kern *k;
    flat_fn fn;
    _Bool whole;                /* operands have no gaps: one long row */
    double s;
    const struct adamw *adamw;
    double g_scale, mu;
    _Bool nesterov;
};

static void flat_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct flat *f = arg;
    int64_t runs = cpu_max(1, cpu_ceil(f->m[0].cols, RUN)), total = f->m[0].rows * f->m[0].cols;
    float *p[4] = { f->m[0].p, f->m[1].p, f->m[2].p, f->m[3].p };

    (void)thread;
    for (int64_t i = first; i < end; i++) {
        int64_t r = f->whole ? 0 : i / runs, c = f->whole ? i * RUN : i % runs * RUN;
        int64_t n = cpu_min(RUN, (f->whole ? total : f->m[0].cols) - c);
        f->fn(f, n, p[0] + r * f->m[0].ld + c, p[1] ? p[1] + r * f->m[1].ld + c : NULL,
              p[2] ? p[2] + r * f->m[2].ld + c : NULL, p[3] ? p[3] + r * f->m[3].ld + c : NULL);
    }
}

static void flat_run(struct dev *d, struct flat *f, flat_fn fn, double ns_per_element)
{
    int64_t rows = f->m[0].rows, cols = f->m[0].cols;

    if (!rows || !cols)
        return;
    f->k = cpu_kern(d);
    f->fn = fn;
    f->whole = 1;
    for (int i = 0; i < 4; i++)
        f->whole &= !f->m[i].p || rows == 1 || f->m[i].ld == cols;
    int64_t n = f->whole ? cpu_ceil(rows * cols, RUN) : rows * cpu_ceil(cols, RUN);
    cpu_for(d, n, ns_per_element * (double)(f->whole ? RUN : cpu_min(RUN, cols)), flat_task, f);
}

static void copy_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    (void)f, (void)c, (void)v;
    memcpy(a, b, (size_t)n * sizeof *a);
}

static void add_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    (void)v;
    f->k->add(a, b, c, n);
}

static void scale_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    (void)b, (void)c, (void)v;
    f->k->scale(a, (float)f->s, n);
}

static void swiglu_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    (void)v;
    f->k->swiglu_fwd(a, b, c, n);
}

static void sigmoid_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    (void)c, (void)v;
    f->k->sigmoid_fwd(a, b, n);
}

static void sigmoid_bwd_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    (void)v;
    f->k->sigmoid_bwd(a, b, c, n);
}

static void adamw_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    f->k->adamw(a, b, c, v, n, f->adamw);
}

static void momentum_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    (void)v;
    f->k->muon_momentum(a, b, c, n, f->g_scale, f->mu, f->nesterov);
}

static void apply_fn(const struct flat *f, int64_t n, float *a, float *b, float *c, float *v)
{
    (void)c, (void)v;
    f->k->muon_apply(a, b, n, f->mu, f->s);
}

static void zero_task(void *arg, int64_t first, int64_t end, int thread)
{
    (void)thread;
    memset((char *)arg + first, 0, (size_t)(end - first));
}

void cpu_zero(struct dev *d, void *p, size_t bytes)
{
    cpu_for(d, (int64_t)bytes, NS_PER_BYTE / 2, zero_task, p);
}

struct bytes { char *dst; const char *src; };

static void copy_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct bytes *b = arg;

    (void)thread;
    memcpy(b->dst + first, b->src + first, (size_t)(end - first));
}

void cpu_copy(struct dev *d, void *dst, const void *src, size_t bytes)
{
    cpu_for(d, (int64_t)bytes, NS_PER_BYTE, copy_task, &(struct bytes){ dst, src });
}

static double element(const void *p, enum dtype dt, int64_t i)
{
    switch (dt) {
    case DT_F64: return ((const double *)p)[i];
    case DT_BF16: return (double)dtype_from_bf16(((const uint16_t *)p)[i]);
    default: return (double)((const float *)p)[i];
    }
}

/* Conversions serve files and tests on this device, so they are plain. */
void cpu_cast(struct dev *d, struct mat dst, struct mat src)
{
    shape_same(dst, src);
    if (dst.dt == DT_F32 && src.dt == DT_F32) {
        flat_run(d, &(struct flat){ .m = { dst, src } }, copy_fn, 8 * NS_PER_BYTE);
        return;
    }
    BUG_ON(dst.dt != DT_F32 && dst.dt != DT_F64 && dst.dt != DT_BF16);
    BUG_ON(src.dt != DT_F32 && src.dt != DT_F64 && src.dt != DT_BF16);
    for (int64_t r = 0; r < dst.rows; r++)
        for (int64_t c = 0; c < dst.cols; c++) {
            double v = element(src.p, src.dt, r * src.ld + c);
            int64_t at = r * dst.ld + c;
            if (dst.dt == DT_F64)
                ((double *)dst.p)[at] = v;
            else if (dst.dt == DT_F32)
                ((float *)dst.p)[at] = (float)v;
            else
                ((uint16_t *)dst.p)[at] = dtype_to_bf16((float)v);
        }
}

void cpu_add(struct dev *d, struct mat y, struct mat a, struct mat b)
{
    shape_same(y, a);
    shape_same(y, b);
    flat_run(d, &(struct flat){ .m = { y, a, b } }, add_fn, 12 * NS_PER_BYTE);
}

void cpu_scale(struct dev *d, struct mat y, double s)
{
    shape_mat(y);
    flat_run(d, &(struct flat){ .m = { y }, .s = s }, scale_fn, 8 * NS_PER_BYTE);
}

void cpu_swiglu_fwd(struct dev *d, struct mat h, struct mat gate, struct mat up)
{
    shape_same(h, gate);
    shape_same(h, up);
    flat_run(d, &(struct flat){ .m = { h, gate, up } }, swiglu_fn, 12 * NS_PER_BYTE + NS_PER_EXP);
}

void cpu_sigmoid_fwd(struct dev *d, struct mat y, struct mat x)
{
    shape_same(y, x);
    flat_run(d, &(struct flat){ .m = { y, x } }, sigmoid_fn, 8 * NS_PER_BYTE + NS_PER_EXP);
}

void cpu_sigmoid_bwd(struct dev *d, struct mat dx, struct mat dy, struct mat y)
{
    shape_same(dx, y);
    shape_same(dy, y);
    flat_run(d, &(struct flat){ .m = { dx, dy, y } }, sigmoid_bwd_fn, 12 * NS_PER_BYTE);
}

void cpu_adamw(struct dev *d, const struct adamw *a)
{
    shape_adamw(a);
    flat_run(d, &(struct flat){ .m = { a->w, a->m, a->v, a->g }, .adamw = a }, adamw_fn, 28 * NS_PER_BYTE);
}

void cpu_muon_momentum(struct dev *d, struct mat u, struct mat m, struct mat g, double g_scale, double mu, _Bool nesterov)
{
    shape_momentum(u, m, g);
    flat_run(d, &(struct flat){ .m = { u, m, g }, .g_scale = g_scale, .mu = mu, .nesterov = nesterov },
             momentum_fn, 16 * NS_PER_BYTE);
}

void cpu_muon_apply(struct dev *d, struct mat w, struct mat u, double lr, double ratio, double decay)
{
    shape_same(w, u);
    flat_run(d, &(struct flat){ .m = { w, u }, .mu = 1 - lr * decay, .s = lr * ratio }, apply_fn, 12 * NS_PER_BYTE);
}

/* --- rows ------------------------------------------------------------------ */

struct rows {
    const struct cpu_kern *k;
    struct mat y, x, w, rstd, dy, dx, q, up;
    double eps;
    _Bool add;
    float *parts;               /* [CPU_PARTS][cols] */
    int64_t part_rows;
    int n_heads, head_dim, half;
    struct mat cos, sin;
    const int32_t *positions;
    float sign;
};

static void rmsnorm_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct rows *a = arg;
    int64_t n = end - first;

    (void)thread;
    a->k->rmsnorm_fwd(mat_rows(a->y, first, n), mat_rows(a->rstd, first, n), mat_rows(a->x, first, n), a->w, a->eps);
}

void cpu_rmsnorm_fwd(struct dev *d, struct mat y, struct mat rstd, struct mat x, struct mat w, double eps)
{
    shape_rmsnorm_fwd(y, rstd, x, w);
    cpu_for(d, x.rows, 8 * NS_PER_BYTE * (double)x.cols + 20, rmsnorm_task,
            &(struct rows){ .k = cpu_kern(d), .y = y, .rstd = rstd, .x = x, .w = w, .eps = eps });
}

/* Rows are cut into at most CPU_PARTS runs by their number alone. */
static int64_t part_rows(int64_t rows)
{
    return cpu_max(16, cpu_ceil(rows, CPU_PARTS));
}

static void add_parts(struct dev *d, struct mat dst, double beta, int64_t rows, int64_t per_part)
{
    const struct cpu_kern *k = cpu_kern(d);
    const float *parts = d->ws;
    float *y = dst.p;

    if (beta == 0)
        memset(y, 0, (size_t)dst.cols * sizeof *y);
    for (int64_t p = 0; p * per_part < rows; p++)
        k->add(y, y, parts + p * dst.cols, dst.cols);
}

static void rmsnorm_bwd_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct rows *a = arg;

    (void)thread;
    for (int64_t p = first; p < end; p++) {
        int64_t r = p * a->part_rows, n = cpu_min(a->part_rows, a->x.rows - r);
        float *dw = a->parts + p * a->x.cols;
        memset(dw, 0, (size_t)a->x.cols * sizeof *dw);
        a->k->rmsnorm_bwd(mat_rows(a->dx, r, n), a->add, dw, mat_rows(a->dy, r, n), mat_rows(a->x, r, n), a->w,
                          mat_rows(a->rstd, r, n));
    }
}

void cpu_rmsnorm_bwd(struct dev *d, struct mat dx, double beta_dx, struct mat dw, double beta_dw,
                     struct mat dy, struct mat x, struct mat w, struct mat rstd)
{
    int64_t per = part_rows(x.rows);

    shape_rmsnorm_bwd(dx, beta_dx, dw, beta_dw, dy, x, w, rstd);
    if (!x.cols)
        return;
    BUG_ON(x.rows && d->ws_size < (size_t)(cpu_ceil(x.rows, per) * x.cols) * sizeof(float));
    cpu_for(d, cpu_ceil(x.rows, per), 16 * NS_PER_BYTE * (double)(x.cols * per), rmsnorm_bwd_task,
            &(struct rows){ .k = cpu_kern(d), .dx = dx, .add = beta_dx != 0, .dy = dy, .x = x, .w = w, .rstd = rstd,
                            .parts = d->ws, .part_rows = per });
    add_parts(d, dw, beta_dw, x.rows, per);
}

static void bias_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct rows *a = arg;

    (void)thread;
    for (int64_t r = first; r < end; r++)
        a->k->add(cpu_row(a->y, r), cpu_row(a->y, r), a->w.p, a->y.cols);
}

void cpu_bias_fwd(struct dev *d, struct mat y, struct mat b)
{
    shape_bias(y, b, 0);
    cpu_for(d, y.rows, 8 * NS_PER_BYTE * (double)y.cols + 5, bias_task, &(struct rows){ .k = cpu_kern(d), .y = y, .w = b });
}

static void bias_bwd_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct rows *a = arg;

    (void)thread;
    for (int64_t p = first; p < end; p++) {
        int64_t r = p * a->part_rows, last = cpu_min(r + a->part_rows, a->dy.rows);
        float *db = a->parts + p * a->dy.cols;
        memset(db, 0, (size_t)a->dy.cols * sizeof *db);
        for (; r < last; r++)
            a->k->add(db, db, cpu_row(a->dy, r), a->dy.cols);
    }
}

void cpu_bias_bwd(struct dev *d, struct mat db, struct mat dy, double beta)
{
    int64_t per = part_rows(dy.rows);

    shape_bias(dy, db, beta);
    if (!dy.cols)
        return;
    BUG_ON(dy.rows && d->ws_size < (size_t)(cpu_ceil(dy.rows, per) * dy.cols) * sizeof(float));
    cpu_for(d, cpu_ceil(dy.rows, per), 4 * NS_PER_BYTE * (double)(dy.cols * per), bias_bwd_task,
            &(struct rows){ .k = cpu_kern(d), .dy = dy, .parts = d->ws, .part_rows = per });
    add_parts(d, db, beta, dy.rows, per);
}

static void rope_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct rows *a = arg;

    (void)thread;
    for (int64_t t = first; t < end; t++) {
        BUG_ON(a->positions[t] < 0 || a->positions[t] >= a->cos.rows);
        a->k->rope(cpu_row(a->x, t), a->n_heads, a->head_dim, a->half, cpu_row(a->cos, a->positions[t]),
                   cpu_row(a->sin, a->positions[t]), a->sign);
    }
}

void cpu_rope(struct dev *d, struct mat x, int n_heads, int head_dim, int rot_dim,
              struct mat cos, struct mat sin, const int32_t *positions, _Bool inverse)
{
    shape_rope(x, n_heads, head_dim, rot_dim, cos, sin);
    if (!rot_dim)
        return;
    cpu_for(d, x.rows, 8 * NS_PER_BYTE * n_heads * rot_dim + 10, rope_task,
            &(struct rows){ .k = cpu_kern(d), .x = x, .n_heads = n_heads, .head_dim = head_dim, .half = rot_dim / 2,
                            .cos = cos, .sin = sin, .positions = positions, .sign = inverse ? -1.0f : 1.0f });
}

/* y: dgate, dx: dup, x: hw, rstd: dw, dy: gate. */
static void swiglu_bwd_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct rows *a = arg;

    (void)thread;
    for (int64_t r = first; r < end; r++) {
        float dw = a->k->swiglu_bwd(cpu_row(a->y, r), cpu_row(a->dx, r), cpu_row(a->x, r), cpu_row(a->q, r), cpu_row(a->dy, r),
                                    cpu_row(a->up, r), a->w.p ? *cpu_row(a->w, r) : 1.0f, a->q.cols);
        if (a->w.p)
            *cpu_row(a->rstd, r) = dw;
    }
}

void cpu_swiglu_bwd(struct dev *d, struct mat dgate, struct mat dup, struct mat hw, struct mat dw,
                    struct mat q, struct mat gate, struct mat up, struct mat w)
{
    shape_swiglu_bwd(dgate, dup, hw, dw, q, gate, up, w);
    cpu_for(d, q.rows, (24 * NS_PER_BYTE + NS_PER_EXP) * (double)q.cols + 20, swiglu_bwd_task,
            &(struct rows){ .k = cpu_kern(d), .y = dgate, .dx = dup, .x = hw, .rstd = dw, .q = q, .dy = gate, .up = up, .w = w });
}

/* --- sums of squares -------------------------------------------------------- */

enum { SUMSQ_ROWS = 64 };

struct squares { const struct cpu_kern *k; struct mat g; int64_t base; double *sums; };

static void sumsq_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct squares *a = arg;

    (void)thread;
    for (int64_t b = first; b < end; b++) {
        int64_t r = (a->base + b) * SUMSQ_ROWS, last = cpu_min(r + SUMSQ_ROWS, a->g.rows);
        double s = 0;
        for (; r < last; r++)
            s += a->k->sumsq(cpu_row(a->g, r), a->g.cols);
        a->sums[b] = s;
    }
}

void cpu_sumsq(struct dev *d, double *out, struct mat g)
{
    int64_t blocks = cpu_ceil(g.rows, SUMSQ_ROWS);
    double *sums = ((struct cpu *)d->self)->sums;

    shape_mat(g);
    for (int64_t base = 0; base < blocks; base += CPU_SUMS) {
        int64_t n = cpu_min(CPU_SUMS, blocks - base);
        cpu_for(d, n, 4 * NS_PER_BYTE * SUMSQ_ROWS * (double)g.cols + 1, sumsq_task,
                &(struct squares){ .k = cpu_kern(d), .g = g, .base = base, .sums = sums });
        for (int64_t b = 0; b < n; b++)
            *out += sums[b];
    }
}
