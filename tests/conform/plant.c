/* plant.c -- planted mistakes: they prove that the list can fail. */
#include "plant.h"

#include <math.h>

static const struct dev_ops *sound;

void plant_over(const struct dev_ops *ops)
{
    sound = ops;
}

static void short_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    if (a.rows > 1 && a.cols > 1) {
        if (ta)
            a.rows--;
        else
            a.cols--;
        if (tb)
            b.cols--;
        else
            b.rows--;
    }
    sound->gemm(d, c, a, ta, b, tb, beta);
}

static void reading_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    (void)beta;
    sound->gemm(d, c, a, ta, b, tb, 1);
}

static void spilling_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    sound->gemm(d, c, a, ta, b, tb, beta);
    if (c.dt == DT_F32 && c.ld > c.cols && c.rows)
        ((float *)c.p)[c.cols] = 0;
}

static void threaded_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta)
{
    sound->gemm(d, c, a, ta, b, tb, beta);
    if (c.dt == DT_F32 && c.rows && c.cols && d->threads == 3)
        *(float *)c.p = nextafterf(*(float *)c.p, 9);
}

static void lonely_group(struct dev *d, const struct group *g, struct mat y, struct mat x)
{
    sound->group_fwd(d, g, y, x);
    if (y.dt == DT_F32 && g->n_experts == 1 && g->offsets[1] && y.cols)
        *(float *)y.p = nextafterf(*(float *)y.p, 9);
}

static void scribbling_add(struct dev *d, struct mat y, struct mat a, struct mat b)
{
    sound->add(d, y, a, b);
    if (b.dt == DT_F32 && b.rows && b.cols)
        *(float *)b.p += 1;
}

static void borderless_attn(struct dev *d, const struct attn *a)
{
    static const int32_t zero[1024];
    struct attn b = *a;

    b.doc_start = zero;
    sound->attn_fwd(d, &b);
}

static void overrunning_attn(struct dev *d, const struct attn *a)
{
    sound->attn_fwd(d, a);
    ((char *)d->ws)[d->ws_size] = 0;
}

/* Keys of the wrong document, seen only from backward. */
static void borderless_attn_bwd(struct dev *d, const struct attn *a)
{
    static const int32_t zero[1024];
    struct attn b = *a;

    b.doc_start = zero;
    sound->attn_bwd(d, &b);
}

static void disordered_router(struct dev *d, const struct router *r)
{
    sound->router_fwd(d, r);
    for (int64_t t = 0; t < r->n_tokens && r->top_k > 1; t++) {
        uint16_t first = r->idx[t * r->top_k];
        r->idx[t * r->top_k] = r->idx[t * r->top_k + 1];
        r->idx[t * r->top_k + 1] = first;
    }
}

static void biased_router(struct dev *d, const struct router *r)
{
    struct router k = *r;

    k.bias = NULL;
    sound->router_fwd(d, &k);
}

static void forgetful_router(struct dev *d, const struct router *r)
{
    struct router k = *r;

    k.valid = NULL;
    sound->router_bwd(d, &k);
}

static void swapped_swiglu(struct dev *d, struct mat h, struct mat gate, struct mat up)
{
    sound->swiglu_fwd(d, h, up, gate);
}

static void backward_rope(struct dev *d, struct mat x, int n_heads, int head_dim, int rot_dim,
                          struct mat cos, struct mat sin, const int32_t *positions, _Bool inverse)
{
    sound->rope(d, x, n_heads, head_dim, rot_dim, cos, sin, positions, !inverse);
}

static void clearing_embed(struct dev *d, struct mat dtable, struct mat dy, const int32_t *ids, double beta)
{
    (void)beta;
    sound->embed_bwd(d, dtable, dy, ids, 0);
}

static void early_adamw(struct dev *d, const struct adamw *a)
{
    struct adamw b = *a;

    b.t++;
    sound->adamw(d, &b);
}

static void dividing_ns(struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps, double eps)
{
    (void)eps;
    sound->newton_schulz(d, x, n, coef, n_steps, 0);
}

static void lazy_ns(struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps, double eps)
{
    sound->newton_schulz(d, x, n, coef, n_steps > 1 ? n_steps - 1 : n_steps, eps);
}

/* One sum over all rows: the value is fine, its bits depend on the cut. */
static void unblocked_sumsq(struct dev *d, double *out, struct mat g)
{
    double sum = 0;

    for (int64_t r = g.rows; r-- > 0;)
        for (int64_t c = 0; c < g.cols; c++) {
            double v = (double)((const float *)g.p)[r * g.ld + c];
            sum += v * v;
        }
    (void)d;
    *out += sum;
}

#define PLANT(op, fn) static void plant_##fn(struct dev_ops *ops) { ops->op = fn; }
PLANT(gemm, short_gemm)
PLANT(gemm, reading_gemm)
PLANT(gemm, spilling_gemm)
PLANT(gemm, threaded_gemm)
PLANT(group_fwd, lonely_group)
PLANT(add, scribbling_add)
PLANT(attn_fwd, borderless_attn)
PLANT(attn_fwd, overrunning_attn)
PLANT(attn_bwd, borderless_attn_bwd)
PLANT(router_fwd, disordered_router)
PLANT(router_fwd, biased_router)
PLANT(router_bwd, forgetful_router)
PLANT(swiglu_fwd, swapped_swiglu)
PLANT(rope, backward_rope)
PLANT(embed_bwd, clearing_embed)
PLANT(adamw, early_adamw)
PLANT(newton_schulz, dividing_ns)
PLANT(newton_schulz, lazy_ns)
PLANT(sumsq, unblocked_sumsq)

const struct plant plants[] = {
    { "gemm leaves out the last term", "gemm F32 17", plant_short_gemm },
    { "gemm reads c with beta 0", "gemm F32 17", plant_reading_gemm },
    { "gemm writes between rows", "gemm F32 65", plant_spilling_gemm },
    { "gemm depends on the threads", "gemm F32 17", plant_threaded_gemm },
    { "an expert depends on its neighbours", "group even", plant_lonely_group },
    { "add changes an input", "move add scale 3x7", plant_scribbling_add },
    { "attention crosses documents", "attn two documents", plant_borderless_attn },
    { "attention overruns its scratch", "attn two documents", plant_overrunning_attn },
    { "attention gradients cross documents", "attn two documents", plant_borderless_attn_bwd },
    { "router slots are out of order", "router softmax", plant_disordered_router },
    { "router ignores the bias", "router sigmoid normalised", plant_biased_router },
    { "router gradients count masked tokens", "router softmax losses", plant_forgetful_router },
    { "gate and up are swapped", "gates F32 3x7", plant_swapped_swiglu },
    { "rope turns the other way", "rope F32 7", plant_backward_rope },
    { "embedding gradient is not added", "ends embed F32 7", plant_clearing_embed },
    { "adamw corrects for the wrong step", "optim adamw 5x7", plant_early_adamw },
    { "newton_schulz ignores eps", "newton_schulz 5x5", plant_dividing_ns },
    { "newton_schulz stops one step early", "newton_schulz 5x5", plant_lazy_ns },
    { "sumsq depends on the cut", "sumsq 65x129", plant_unblocked_sumsq },
    { .name = NULL },
};
