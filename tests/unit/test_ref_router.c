/* test_ref_router.c -- selection rules, weights, losses; gradients against
 * finite differences with the routing forced. */
#include "refcheck.h"

#include <math.h>
#include <string.h>

enum { N = 11, MAX_E = 12, MAX_K = 4 };

struct ctx { struct router r; double aux, z, want_aux, want_z; };

static uint8_t valid[N] = { 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0 };
static double frac[MAX_E] = { 0.1, 0.3, 0, 0.2, 0.05, 0.1, 0.05, 0.2, 0.1, 0.4, 0.1, 0 };
static float bias[MAX_E] = { 0.3f, -0.1f, 0.2f, 0, 0.5f, -0.4f, 0.1f, 0, 0.2f, -0.2f, 0.3f, 0.1f };

static struct router make(enum scoring scoring, int experts, int k, _Bool norm)
{
    return (struct router){
        .scoring = scoring, .n_experts = experts, .top_k = k, .n_group = 1, .topk_group = 1, .norm_topk = norm,
        .routed_scale = 1.7, .n_tokens = N, .seq_len = 4, .logits = refcheck_mat(N, experts),
        .idx = refcheck_alloc(N * MAX_K, sizeof(uint16_t)), .w = refcheck_nan(N, k), .dw = refcheck_mat(N, k),
        .dlogits = refcheck_nan(N, experts),
    };
}

static double router_loss(void *arg)
{
    struct ctx *k = arg;
    struct dev *d = refcheck_dev();

    k->aux = k->z = 0;
    d->ops->router_fwd(d, &k->r);
    return refcheck_dot(k->r.w, k->r.dw) + k->want_aux * k->aux + k->want_z * k->z;
}

static void check_gradient(const char *what, struct router r, double aux, double z)
{
    struct dev *d = refcheck_dev();
    struct ctx k = { .r = r, .want_aux = aux, .want_z = z };

    k.r.aux_sum = &k.aux;
    k.r.z_sum = &k.z;
    router_loss(&k);                    /* chooses once */
    k.r.forced = 1;
    k.r.aux_scale = aux;
    k.r.z_scale = z;
    d->ops->router_bwd(d, &k.r);
    refcheck_grad(what, k.r.logits, k.r.dlogits, router_loss, &k);
}

static void gradients_match_differences(void **state)
{
    (void)state;
    for (int kind = 0; kind < 32; kind++) {
        struct router r = make(kind & 1 ? SCORING_SIGMOID : SCORING_SOFTMAX, 12, 3, kind & 2);
        if (kind & 4)
            r.valid = valid;
        if (kind & 8)
            r.frac = frac;
        if (kind & 16) {
            r.n_group = 4;
            r.topk_group = 2;
            r.bias = bias;
        }
        check_gradient("weights", r, 0, 0);
        check_gradient("balance", r, 0.3, 0);
        check_gradient("z", r, 0, 0.2);
        check_gradient("all", r, 0.3, 0.2);
        refcheck_done();
    }
}

static void tiny_and_empty_routers_have_gradients(void **state)
{
    struct router r;

    (void)state;
    check_gradient("one expert", make(SCORING_SOFTMAX, 1, 1, 1), 0.3, 0.2);
    check_gradient("all chosen", make(SCORING_SIGMOID, 4, 4, 1), 0.3, 0.2);
    r = make(SCORING_SOFTMAX, 4, 2, 1);
    r.n_tokens = 0;
    r.logits.rows = r.w.rows = r.dw.rows = r.dlogits.rows = 0;
    check_gradient("no token", r, 0.3, 0.2);
    refcheck_done();
}

/* The best unbiased choice by brute force over the definition. */
static void weights_are_unbiased_scores_of_the_best_biased(void **state)
{
    struct dev *d = refcheck_dev();
    struct router r = make(SCORING_SIGMOID, 9, 3, 1);
    int64_t counts[9] = { 0 }, total = 0;

    (void)state;
    r.bias = bias;
    r.counts = counts;
    d->ops->router_fwd(d, &r);
    for (int t = 0; t < N; t++) {
        double sum = 0, last = INFINITY;
        for (int s = 0; s < 3; s++) {
            int e = r.idx[t * 3 + s], better = 0;
            double mine = 1 / (1 + exp(-*refcheck_at(r.logits, t, e))) + (double)bias[e];
            for (int i = 0; i < 9; i++)
                better += 1 / (1 + exp(-*refcheck_at(r.logits, t, i))) + (double)bias[i] > mine;
            assert_int_equal(better, s);
            assert_true(mine <= last);
            last = mine;
            sum += 1 / (1 + exp(-*refcheck_at(r.logits, t, e)));
        }
        for (int s = 0; s < 3; s++) {
            double score = 1 / (1 + exp(-*refcheck_at(r.logits, t, r.idx[t * 3 + s])));
            refcheck_near("w", *refcheck_at(r.w, t, s), 1.7 * score / sum, 1e-12);
        }
    }
    for (int i = 0; i < 9; i++)
        total += counts[i];
    assert_int_equal(total, 3 * N);
    refcheck_done();
}

static void set_row(struct mat m, int64_t r, const double *v)
{
    for (int64_t c = 0; c < m.cols; c++)
        *refcheck_at(m, r, c) = v[c];
}

static void expect_idx(const struct router *r, int64_t t, int a, int b, int c)
{
    assert_int_equal(r->idx[t * r->top_k], a);
    assert_int_equal(r->idx[t * r->top_k + 1], b);
    if (r->top_k > 2)
        assert_int_equal(r->idx[t * r->top_k + 2], c);
}

static void ties_go_to_the_lower_index(void **state)
{
    static const double rows[3][6] = { { 0, 0, 0, 0, 0, 0 }, { 1, 2, 2, 1, 2, 2 }, { 0, 1, 0, 1, 0, 3 } };
    struct dev *d = refcheck_dev();
    struct router r = make(SCORING_SOFTMAX, 6, 3, 0);

    (void)state;
    for (int t = 0; t < 3; t++)
        set_row(r.logits, t, rows[t]);
    d->ops->router_fwd(d, &r);
    expect_idx(&r, 0, 0, 1, 2);
    expect_idx(&r, 1, 1, 2, 4);
    expect_idx(&r, 2, 5, 1, 3);
    refcheck_done();
}

/* With sigmoid scores s(-2) = 0.12, s(0) = 0.5, s(2) = 0.88. */
static void groups_count_their_two_best(void **state)
{
    static const double rows[3][6] = {
        { 2, -2, 0, 0.5, -2, -2 },      /* sums 1.00, 1.12, 0.24: group 1 beats the best single expert */
        { 0, 0, 0, 0, 0, 0 },           /* a tie of groups goes to the first */
        { -2, -2, 2, -2, 2, -1 },       /* group 2 */
    };
    static const float low[4] = { -1, -1, -2, -2 };
    struct dev *d = refcheck_dev();
    struct router r = make(SCORING_SIGMOID, 6, 2, 0);

    (void)state;
    r.n_group = 3;
    r.topk_group = 1;
    for (int t = 0; t < 3; t++)
        set_row(r.logits, t, rows[t]);
    d->ops->router_fwd(d, &r);
    expect_idx(&r, 0, 3, 2, 0);
    expect_idx(&r, 1, 0, 1, 0);
    expect_idx(&r, 2, 4, 5, 0);

    /* Masked groups count as 0.0, not -inf: group 0 stays, but all its biased
     * scores are below 0, so the experts of the masked group win. */
    set_row(r.logits, 0, (const double[6]){ -9, -9, -9, -9, -9, -9 });
    r.bias = low;
    r.n_experts = 4;
    r.n_group = 2;
    r.logits.cols = r.dlogits.cols = 4;
    d->ops->router_fwd(d, &r);
    expect_idx(&r, 0, 2, 3, 0);
    refcheck_done();
}

static void losses_follow_their_formulas(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct dev *d = refcheck_dev();
        _Bool sigmoid = kind & 1, batch = kind & 2;
        struct router r = make(sigmoid ? SCORING_SIGMOID : SCORING_SOFTMAX, 5, 2, 1);
        double aux = 100, z = 10, want_aux = 100, want_z = 10;
        r.valid = valid;
        r.frac = batch ? frac : NULL;
        r.aux_sum = &aux;
        r.z_sum = &z;
        d->ops->router_fwd(d, &r);
        for (int s = 0; s < N; s += 4) {
            double c[5] = { 0 }, p[5] = { 0 }, n = 0;
            for (int t = s; t < N && t < s + 4; t++) {
                double e[5], sum = 0, lse = 0;
                if (!valid[t])
                    continue;
                n++;
                for (int i = 0; i < 5; i++) {
                    double x = *refcheck_at(r.logits, t, i);
                    e[i] = sigmoid ? 1 / (1 + exp(-x)) : exp(x);
                    sum += e[i];
                    lse += exp(x);
                }
                for (int i = 0; i < 5; i++)
                    p[i] += e[i] / sum;
                for (int k = 0; k < 2; k++)
                    c[r.idx[2 * t + k]]++;
                want_z += log(lse) * log(lse);
            }
            for (int i = 0; i < 5 && n > 0; i++)
                want_aux += 5 * (batch ? frac[i] : c[i] / (2 * n)) * p[i];
        }
        refcheck_near("aux", aux, want_aux, 1e-11);
        refcheck_near("z", z, want_z, 1e-11);
        refcheck_done();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(tiny_and_empty_routers_have_gradients),
        cmocka_unit_test(weights_are_unbiased_scores_of_the_best_biased),
        cmocka_unit_test(ties_go_to_the_lower_index),
        cmocka_unit_test(groups_count_their_two_best),
        cmocka_unit_test(losses_follow_their_formulas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
