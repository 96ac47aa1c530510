/* test_model_golden.c -- logits, loss, routing and every gradient beside
 * transformers, and proof that the comparison notices planted mistakes.
 *
 * Limits: FP32 sums of a few hundred terms against double, as a share of the
 * tensor's largest value: 1e-5 for logits, 1e-4 for gradients. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "unit/golden.h"
#include "unit/model_rig.h"

struct rig_case { struct rig r; struct golden model, answers; };

static void open_case(struct rig_case *c, const char *name, enum dtype dt)
{
    rig_open(&c->r, name, dt, 0);
    c->model = golden_open(c->r.a, name, "model.safetensors");
    c->answers = golden_open(c->r.a, name, "golden.safetensors");
    rig_golden(&c->r, &c->model, &c->answers);
    rig_model(&c->r);
}

/* max |x - y| / max |y|; 0 exactly where y is all zero. */
static double distance(const struct rig *r, const char *flat, int64_t at, const float *want, int64_t n)
{
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs(rig_get(r, flat, at + i) - (double)want[i]);
        if (!(e <= worst))
            worst = e;
        if (fabs((double)want[i]) > largest)
            largest = fabs((double)want[i]);
    }
    return largest > 0 ? worst / largest : worst > 0 ? INFINITY : worst;
}

static double logits_distance(struct rig_case *c)
{
    struct rig *r = &c->r;
    int64_t n = r->b.n_tokens, v = r->cfg.vocab_size;
    char *out = arena_array(r->a, (size_t)(n * v), 8);
    assert_int_equal(mem_begin(r->mem, "logits"), 0);
    assert_int_equal(model_logits(r->m, &r->b, NULL, mat(out, r->opts.dtype, n, v)), 0);
    assert_int_equal(mem_end(r->mem), 0);
    return distance(r, out, 0, golden_f32(r->a, &c->answers, "logits"), n * v);
}

/* The largest distance of any gradient; a name for the message. */
static double grads_distance(struct rig_case *c, const char **name)
{
    struct rig *r = &c->r;
    double worst = 0;
    int seen = 0;
    for (int i = 0; i < r->t.n; i++) {
        const struct param *p = &r->t.v[i];
        if (p->kind == PARAM_ROUTER_BIAS)
            continue;
        double e = distance(r, r->g, p->offset, golden_f32(r->a, &c->answers, arena_printf(r->a, "grad.%s", p->name)),
                            p->rows * p->cols);
        if (!(e <= worst)) {
            worst = e;
            *name = p->name;
        }
        seen++;
    }
    int want = 0;
    for (int i = 0; i < c->answers.n; i++)
        want += !strncmp(c->answers.v[i].name, "grad.", 5);
    assert_int_equal(seen, want);
    return worst;
}

static int ascending(const void *x, const void *y)
{
    return *(const uint16_t *)x - *(const uint16_t *)y;
}

static _Bool routing_agrees(struct rig_case *c)
{
    struct rig *r = &c->r;
    int64_t k = r->cfg.num_experts_per_tok;
    for (int l = 0; l < r->cfg.num_hidden_layers; l++) {
        if (!model_is_moe(&r->cfg, l))
            continue;
        const int32_t *want = golden_i32(r->a, &c->answers, arena_printf(r->a, "routing.%d", l));
        for (int64_t t = 0; t < r->b.n_tokens; t++) {
            uint16_t got[16];
            memcpy(got, model_routing(r->m, l) + t * k, (size_t)k * sizeof *got);
            qsort(got, (size_t)k, sizeof *got, ascending);
            for (int64_t s = 0; s < k; s++)
                if (got[s] != want[t * k + s])
                    return 0;
        }
    }
    return 1;
}

static void check_case(const char *name, enum dtype dt, double loss_limit)
{
    struct rig_case c;
    open_case(&c, name, dt);
    double e = logits_distance(&c);
    if (!(e < 1e-5))
        fail_msg("%s on %s: logits are off by %.1e", name, rig_device, e);
    double loss = rig_train(&c.r, 1, NULL, NULL), want = *(const double *)golden_find(&c.answers, "loss64")->data;
    if (!(fabs(loss - want) < loss_limit * want))
        fail_msg("%s: loss %.9f, expected %.9f", name, loss, want);
    const char *at = "none";
    e = grads_distance(&c, &at);
    if (!(e < 1e-4))
        fail_msg("%s on %s: the gradient of %s is off by %.1e", name, rig_device, at, e);
    assert_true(routing_agrees(&c));
    rig_close(&c.r);
}

static void logits_loss_routing_and_every_gradient_are_those_of_transformers(void **state)
{
    (void)state;
    for (const char *const *d = dev_names(); *d; d++) {
        rig_device = *d;
        for (int i = 0; golden_cases[i]; i++)
            check_case(golden_cases[i], DT_F32, 2e-6);
    }
    rig_device = "ref";
}

/* The files hold float32, so double storage cannot be nearer than that; the loss is. */
static void with_double_storage_the_loss_agrees_to_1e_12(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++)
        check_case(golden_cases[i], DT_F64, 1e-12);
}

static void an_expert_without_tokens_has_gradient_exactly_0(void **state)
{
    (void)state;
    for (const char *const *d = dev_names(); *d; d++) {
        struct rig_case c;
        rig_device = *d;
        open_case(&c, "glm4_moe", DT_F32);
        memset(c.r.g, 0xff, (size_t)c.r.t.n_elems * sizeof(float));    /* NaN */
        rig_train(&c.r, 1, NULL, NULL);
        int first = c.r.t.layers[1].experts + 3;
        for (int i = first; i < first + 3; i++)
            for (int64_t j = 0; j < c.r.t.v[i].rows * c.r.t.v[i].cols; j++)
                assert_true(rig_get(&c.r, c.r.g, c.r.t.v[i].offset + j) == 0);
        rig_close(&c.r);
    }
    rig_device = "ref";
}

/* ---- planted mistakes: an op that computes what a careless reader would */

static const struct dev_ops *right;

static void gate_up_swapped(struct dev *d, struct mat h, struct mat gate, struct mat up)
{
    right->swiglu_fwd(d, h, up, gate);
}

/* Head h reads kv head h mod n_kv instead of h / ratio: the query heads are
 * reordered, attended, and put back. */
static void kv_heads_miscounted(struct dev *d, const struct attn *a)
{
    struct attn x = *a;
    int64_t n = a->q.rows, hd = a->head_dim, ratio = a->n_heads / a->n_kv_heads;
    size_t size = (size_t)(n * a->q.cols) * sizeof(float);
    float *q = malloc(size), *o = malloc(size);
    x.q = mat(q, DT_F32, n, a->q.cols);
    x.o = mat(o, DT_F32, n, a->q.cols);
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            right->attn_fwd(d, &x);
        for (int64_t t = 0; t < n; t++)
            for (int64_t h = 0; h < a->n_heads; h++) {
                int64_t to = h % a->n_kv_heads * ratio + h / a->n_kv_heads;
                size_t bytes = (size_t)hd * sizeof(float);
                if (!pass)
                    memcpy(q + t * a->q.cols + to * hd, (float *)a->q.p + t * a->q.ld + h * hd, bytes);
                else
                    memcpy((float *)a->o.p + t * a->o.ld + h * hd, o + t * a->q.cols + to * hd, bytes);
            }
    }
    free(q);
    free(o);
}

/* Pairs (2i, 2i+1) instead of (i, i + half). */
static void rotary_interleaved(struct dev *d, struct mat x, int n_heads, int head_dim, int rot, struct mat cos, struct mat sin,
                               const int32_t *positions, _Bool inverse)
{
    float old[256];
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            right->rope(d, x, n_heads, head_dim, rot, cos, sin, positions, inverse);
        for (int64_t t = 0; t < x.rows; t++)
            for (int h = 0; h < n_heads; h++) {
                float *v = (float *)x.p + t * x.ld + h * head_dim;
                memcpy(old, v, (size_t)rot * sizeof *old);
                for (int i = 0; i < rot; i++) {
                    int split = i / 2 + i % 2 * (rot / 2);
                    v[pass ? i : split] = old[pass ? split : i];
                }
            }
    }
}

static void bias_in_the_weights(struct dev *d, const struct router *r)
{
    right->router_fwd(d, r);
    for (int64_t i = 0; i < r->n_tokens * r->top_k; i++)
        ((float *)r->w.p)[i] += (float)r->routed_scale * ((const float *)r->bias)[r->idx[i]];
}

static void scale_forgotten(struct dev *d, const struct router *r)
{
    struct router x = *r;
    x.routed_scale = 1;
    right->router_fwd(d, &x);
}

static void groups_forgotten(struct dev *d, const struct router *r)
{
    struct router x = *r;
    x.n_group = x.topk_group = 1;
    right->router_fwd(d, &x);
}

static void shared_gate_forgotten(struct dev *d, struct mat y, struct mat x)
{
    (void)d;
    (void)x;
    for (int64_t i = 0; i < y.rows; i++)
        ((float *)y.p)[i] = 1;
}

static void attention_over_a_border(struct dev *d, const struct attn *a)
{
    struct attn x = *a;
    int32_t *all = calloc((size_t)a->q.rows + 1, sizeof *all);
    x.doc_start = all;
    right->attn_fwd(d, &x);
    free(all);
}

/* The mistaken model must miss the limit of the logits by far. */
static void expect_caught(const char *name, const char *mistake, void (*plant)(struct dev_ops *))
{
    struct rig_case c;
    struct dev_ops kept;
    open_case(&c, name, DT_F32);
    kept = c.r.ops;
    right = &kept;
    plant(&c.r.ops);
    double e = logits_distance(&c);
    if (!(e > 1e-3))
        fail_msg("%s: %s went unnoticed (%.1e)", name, mistake, e);
    rig_close(&c.r);
}

static void plant_gate_up(struct dev_ops *o) { o->swiglu_fwd = gate_up_swapped; }
static void plant_kv(struct dev_ops *o) { o->attn_fwd = kv_heads_miscounted; }
static void plant_rope(struct dev_ops *o) { o->rope = rotary_interleaved; }
static void plant_bias(struct dev_ops *o) { o->router_fwd = bias_in_the_weights; }
static void plant_scale(struct dev_ops *o) { o->router_fwd = scale_forgotten; }
static void plant_groups(struct dev_ops *o) { o->router_fwd = groups_forgotten; }
static void plant_gate(struct dev_ops *o) { o->sigmoid_fwd = shared_gate_forgotten; }
static void plant_border(struct dev_ops *o) { o->attn_fwd = attention_over_a_border; }

static void planted_mistakes_in_the_forward_pass_are_caught(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        expect_caught(golden_cases[i], "gate and up swapped", plant_gate_up);
        expect_caught(golden_cases[i], "rotary halves swapped", plant_rope);
        expect_caught(golden_cases[i], "attention over a document border", plant_border);
    }
    expect_caught("glm4_moe", "kv heads miscounted", plant_kv);
    expect_caught("qwen3_moe_dense", "kv heads miscounted", plant_kv);
    expect_caught("olmoe", "kv heads miscounted", plant_kv);
    expect_caught("glm4_moe", "bias used in weights", plant_bias);
    expect_caught("glm4_moe_groups", "bias used in weights", plant_bias);
    expect_caught("glm4_moe", "scale forgotten", plant_scale);
    expect_caught("glm4_moe_groups", "groups forgotten", plant_groups);
    expect_caught("qwen2_moe", "gate of the shared expert forgotten", plant_gate);
}

static void loss_over_a_document_border_is_caught(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct rig_case c;
        open_case(&c, golden_cases[i], DT_F32);
        int64_t border = c.r.doc_start[c.r.b.n_tokens - 1] - 1;
        assert_int_equal(c.r.targets[border], -1);
        c.r.targets[border] = c.r.ids[border + 1];
        c.r.b.n_valid++;
        double loss = rig_train(&c.r, 1, NULL, NULL), want = *(const double *)golden_find(&c.answers, "loss64")->data;
        const char *at = "none";
        if (!(fabs(loss - want) > 1e-4 * want) || !(grads_distance(&c, &at) > 1e-3))
            fail_msg("%s: went unnoticed", golden_cases[i]);
        rig_close(&c.r);
    }
}

/* A mistake in backward only: logits are right, gradients are not. */
static void weighted_dy(struct dev *d, struct mat dgate, struct mat dup, struct mat hw, struct mat dw, struct mat q,
                        struct mat gate, struct mat up, struct mat w)
{
    right->swiglu_bwd(d, dgate, dup, hw, dw, q, gate, up, w);
    for (int64_t i = 0; dw.p && i < dw.rows; i++)
        ((float *)dw.p)[i] *= ((const float *)w.p)[i];
}

static void planted_mistakes_in_backward_are_caught(void **state)
{
    (void)state;
    for (int i = 0; golden_cases[i]; i++) {
        struct rig_case c;
        struct dev_ops kept;
        const char *at = "none";
        open_case(&c, golden_cases[i], DT_F32);
        kept = c.r.ops;
        right = &kept;
        c.r.ops.swiglu_bwd = weighted_dy;
        rig_train(&c.r, 1, NULL, NULL);
        if (!(grads_distance(&c, &at) > 1e-3))
            fail_msg("%s: dw with the weight in it went unnoticed", golden_cases[i]);
        rig_close(&c.r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_loss_routing_and_every_gradient_are_those_of_transformers),
        cmocka_unit_test(with_double_storage_the_loss_agrees_to_1e_12),
        cmocka_unit_test(an_expert_without_tokens_has_gradient_exactly_0),
        cmocka_unit_test(planted_mistakes_in_the_forward_pass_are_caught),
        cmocka_unit_test(loss_over_a_document_border_is_caught),
        cmocka_unit_test(planted_mistakes_in_backward_are_caught),
    };
    return cmocka_run_group_tests_name("model golden", tests, NULL, NULL);
}
