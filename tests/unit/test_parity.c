/* test_parity.c -- how far apart two choices of experts are, and limits that
 * follow from the gradients. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "train/parity_impl.h"

static const struct router softmax = { .scoring = SCORING_SOFTMAX, .n_experts = 4, .top_k = 2, .n_group = 1, .topk_group = 1 };

static void the_same_experts_in_another_order_are_the_same_choice(void **state)
{
    const float logits[4] = { 1, 2, 3, 0 };
    const uint16_t own[2] = { 2, 1 }, followed[2] = { 1, 2 };

    (void)state;
    assert_true(parity_gap_ulps(&softmax, logits, NULL, own, followed) == 0);
}

static void a_near_tie_is_below_64_ulps_and_a_choice_is_not(void **state)
{
    const float near[4] = { 1, 1.0000001F, 3, 0 }, far[4] = { 1, 1.0001F, 3, 0 }, equal[4] = { 1, 1, 3, 0 };
    const uint16_t own[2] = { 2, 1 }, followed[2] = { 2, 0 };

    (void)state;
    assert_true(parity_gap_ulps(&softmax, near, NULL, own, followed) < 64);
    assert_true(parity_gap_ulps(&softmax, far, NULL, own, followed) > 64);
    /* A difference counts even where the scores are equal. */
    assert_true(parity_gap_ulps(&softmax, equal, NULL, own, followed) > 0);
}

static void biases_decide_like_scores(void **state)
{
    struct router r = softmax;
    const float logits[4] = { 0, 0, 3, -3 }, bias[4] = { 0, 0.01F, 0, 0 }, none[4] = { 0 };
    const uint16_t own[2] = { 2, 1 }, followed[2] = { 2, 0 };

    (void)state;
    r.scoring = SCORING_SIGMOID;
    assert_true(parity_gap_ulps(&r, logits, bias, own, followed) > 64);
    assert_true(parity_gap_ulps(&r, logits, none, own, followed) < 64);
}

static void a_tie_of_groups_is_a_tie_even_if_the_experts_in_them_are_far_apart(void **state)
{
    struct router r = softmax;
    /* Group 0 scores 0.5 + 0.5, group 1 what its two experts make together. */
    const float logits[4] = { 0, 0, 2, -2 };
    const uint16_t own[2] = { 0, 1 }, followed[2] = { 2, 3 };
    const float clear[4] = { 0, 0, 2, -3 };

    (void)state;
    r.scoring = SCORING_SIGMOID;
    r.n_group = 2;
    assert_true(parity_gap_ulps(&r, logits, NULL, own, followed) < 64);
    assert_true(parity_gap_ulps(&r, clear, NULL, own, followed) > 64);
}

static void not_a_number_is_no_tie(void **state)
{
    const float logits[4] = { NAN, 1, 3, 0 };
    const uint16_t own[2] = { 2, 1 }, followed[2] = { 2, 0 };

    (void)state;
    assert_false(parity_gap_ulps(&softmax, logits, NULL, own, followed) < 64);
}

/* One tensor of four elements under each optimizer. */
struct rig {
    struct parity v;
    struct run_config cfg;
    struct param_table table;
    struct param p;
    struct parity_step s;
    float w[4], first[4], second[4], g[4], w_after[4], g_here[4], w_here[4];
};

static void rig(struct rig *r, enum param_optim optim)
{
    *r = (struct rig){ .w = { 0.1F, -0.2F, 0.3F, 0.4F }, .g = { 1, -1, 1, 1e-7F } };
    r->cfg.optim = (struct optim_config){ .muon_momentum = 0.95, .adamw_betas = { 0.9, 0.95 }, .adamw_eps = 1e-12 };
    r->p = (struct param){ .name = "x", .kind = PARAM_SHARED, .optim = optim, .rows = 2, .cols = 2 };
    r->table = (struct param_table){ .v = &r->p, .n = 1, .cfg = &r->cfg.model };
    r->s = (struct parity_step){ .w = r->w, .first = r->first, .second = r->second, .g = r->g, .f = { .lr_adamw = 0.01, .norm = 1 } };
    for (int i = 0; i < 4; i++) {
        r->w_after[i] = r->w_here[i] = r->w[i] - 0.01F * (r->g[i] < 0 ? -1 : 1);
        r->g_here[i] = r->g[i];
    }
    r->v = (struct parity){ .cfg = &r->cfg, .table = &r->table, .g = r->g_here, .w = r->w_here };
}

static double limit(struct rig *r, double *error)
{
    return parity_update_limit(&r->v, 0, &r->s, r->w_after, 0, error);
}

static _Bool within(struct rig *r)
{
    double error, most = limit(r, &error);

    return error <= most;
}

static void equal_gradients_leave_adamw_only_rounding(void **state)
{
    struct rig r;
    double error;

    (void)state;
    rig(&r, PARAM_ADAMW);
    assert_true(limit(&r, &error) < 1e-5);
    assert_true(error == 0);
    r.w_here[0] += 1e-5F;       /* a thousandth of the step */
    assert_false(within(&r));
}

static void an_element_near_0_may_turn_over_under_adamw_and_others_may_not(void **state)
{
    struct rig r;

    (void)state;
    rig(&r, PARAM_ADAMW);
    /* Its gradient has the other sign here: so has its step. */
    r.g_here[3] = -1e-7F;
    r.w_here[3] = r.w[3] + 0.0098F;
    assert_true(within(&r));
    /* The large ones still have to agree. */
    r.w_here[3] = r.w_after[3];
    r.w_here[0] = r.w[0] + 0.02F;
    assert_false(within(&r));
}

static void newton_schulz_amplifies_what_differs_by_the_slope_at_0(void **state)
{
    struct rig r;
    double error, rounding;

    (void)state;
    rig(&r, PARAM_MUON);
    rounding = limit(&r, &error);
    r.g_here[0] += 1e-5F;       /* 1e-5 / sqrt(3) of the norm */
    double more = limit(&r, &error) - rounding, slope = pow(3.4445, 5);
    double want = slope * 1.95 * (r.g_here[0] - 1.0) / sqrt(3) / 0.7;
    assert_true(fabs(more - want) < 1e-3 * want);
}

static void what_did_not_move_may_not_move(void **state)
{
    struct rig r;
    double error;

    (void)state;
    rig(&r, PARAM_ADAMW);
    memcpy(r.w_after, r.w, sizeof r.w);
    memcpy(r.w_here, r.w, sizeof r.w);
    assert_true(limit(&r, &error) == 0 && error == 0);
    r.w_here[2] += 1e-6F;
    assert_false(within(&r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_experts_in_another_order_are_the_same_choice),
        cmocka_unit_test(a_near_tie_is_below_64_ulps_and_a_choice_is_not),
        cmocka_unit_test(biases_decide_like_scores),
        cmocka_unit_test(a_tie_of_groups_is_a_tie_even_if_the_experts_in_them_are_far_apart),
        cmocka_unit_test(not_a_number_is_no_tie),
        cmocka_unit_test(equal_gradients_leave_adamw_only_rounding),
        cmocka_unit_test(an_element_near_0_may_turn_over_under_adamw_and_others_may_not),
        cmocka_unit_test(newton_schulz_amplifies_what_differs_by_the_slope_at_0),
        cmocka_unit_test(what_did_not_move_may_not_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
