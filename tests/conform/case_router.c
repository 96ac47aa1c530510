/* case_router.c -- choosing experts, weights, losses, and their gradients. */
#include "conform.h"

struct router_arg {
    const char *name;
    int64_t n, seq_len;
    int experts, k, groups, topk_groups;
    enum scoring scoring;
    _Bool norm, forced, bias, masked, frac;
    double scale;
    enum fill fill;             /* FILL_INT: many equal logits */
    double aux, z;
};

#define SOFT SCORING_SOFTMAX
#define SIG SCORING_SIGMOID

static const struct router_arg cases[] = {
    /* name                      n  seq   E  k  groups  scoring norm forced bias masked frac scale fill  aux  z */
    { "no tokens",               0,  4,   4, 2, 1, 1,  SOFT, 1, 0, 0, 0, 0, 1.0, FILL_UNIT, 0.5, 0.5 },
    { "one expert",              5,  4,   1, 1, 1, 1,  SOFT, 1, 0, 0, 0, 0, 1.0, FILL_UNIT, 0.5, 0.5 },
    { "softmax",                33, 11,  16, 2, 1, 1,  SOFT, 0, 0, 0, 0, 0, 1.0, FILL_UNIT, 0, 0 },
    { "softmax normalised",     33, 11,  17, 3, 1, 1,  SOFT, 1, 0, 0, 0, 0, 2.5, FILL_UNIT, 0, 0 },
    { "softmax losses",         35, 10,  16, 4, 1, 1,  SOFT, 0, 0, 0, 1, 0, 1.0, FILL_UNIT, 0.1, 0.01 },
    { "softmax batch losses",   35, 10,  13, 2, 1, 1,  SOFT, 1, 0, 0, 1, 1, 1.0, FILL_UNIT, 0.1, 0.01 },
    { "sigmoid",                33, 11,  16, 2, 1, 1,  SIG,  0, 0, 0, 0, 0, 1.5, FILL_UNIT, 0, 0 },
    { "sigmoid normalised",     33, 11,  31, 5, 1, 1,  SIG,  1, 0, 1, 0, 0, 2.5, FILL_UNIT, 0, 0 },
    { "sigmoid losses",         41, 20,  16, 2, 1, 1,  SIG,  1, 0, 1, 1, 0, 1.0, FILL_UNIT, 0.1, 0.01 },
    { "sigmoid batch losses",   41, 20,  16, 2, 1, 1,  SIG,  0, 0, 0, 1, 1, 1.0, FILL_UNIT, 0.1, 0.01 },
    { "groups",                 65, 65,  24, 4, 6, 2,  SIG,  1, 0, 1, 0, 0, 1.0, FILL_UNIT, 0, 0 },
    { "groups of one",          33, 33,   8, 3, 8, 4,  SIG,  1, 0, 1, 0, 0, 1.0, FILL_UNIT, 0, 0 },
    { "groups smaller than k",  33, 33,  12, 5, 4, 1,  SIG,  1, 0, 1, 0, 0, 1.0, FILL_UNIT, 0, 0 },
    { "groups of softmax",      33, 33,  16, 2, 4, 2,  SOFT, 1, 0, 0, 0, 0, 1.0, FILL_UNIT, 0, 0 },
    { "ties",                   65, 16,  16, 4, 1, 1,  SOFT, 1, 0, 0, 0, 0, 1.0, FILL_INT, 0.1, 0 },
    { "ties sigmoid",           65, 16,  24, 4, 1, 1,  SIG,  1, 0, 0, 0, 0, 1.0, FILL_INT, 0.1, 0 },
    { "ties in groups",         65, 16,  24, 4, 8, 3,  SIG,  1, 0, 0, 0, 0, 1.0, FILL_INT, 0, 0 },
    { "all chosen",             19, 19,   7, 7, 1, 1,  SOFT, 1, 0, 0, 0, 0, 1.0, FILL_UNIT, 0.1, 0 },
    { "forced",                 33, 11,  16, 3, 1, 1,  SOFT, 1, 1, 0, 0, 0, 2.0, FILL_UNIT, 0.1, 0.01 },
    { "forced sigmoid",         33, 11,  16, 3, 1, 1,  SIG,  1, 1, 1, 0, 0, 2.0, FILL_UNIT, 0.1, 0.01 },
    { "saturated",              33, 11,  16, 3, 1, 1,  SIG,  1, 0, 1, 0, 0, 1.0, FILL_WIDE, 0, 0 },
    { "nothing valid",          12,  4,   8, 2, 1, 1,  SOFT, 1, 0, 0, 1, 0, 1.0, FILL_UNIT, 0.1, 0.01 },
    { "many experts",          130, 65, 384, 8, 1, 1,  SIG,  1, 0, 1, 0, 0, 2.5, FILL_UNIT, 0.01, 0.001 },
};

static void fill_inputs(struct conform *c, const struct router_arg *a, struct router *r)
{
    struct mat bias = conform_in(c, DT_F32, 1, a->experts, 0, FILL_UNIT);
    uint8_t *valid = conform_alloc(c, (size_t)a->n, 1);
    double *frac = conform_alloc(c, (size_t)a->experts, sizeof *frac);
    uint16_t *idx = conform_alloc(c, (size_t)(a->n * a->k), sizeof *idx);

    for (int64_t t = 0; t < a->n; t++) {
        int first = conform_draw_int(c, 0, a->experts - 1);
        valid[t] = a->fill == FILL_UNIT && a->n != 12 && conform_draw(c) < 0.8;
        for (int s = 0; s < a->k; s++)          /* distinct experts, rising from anywhere */
            idx[t * a->k + s] = (uint16_t)((first + 2 * s) % a->experts);
    }
    for (int i = 0; i < a->experts; i++)
        frac[i] = conform_draw(c);
    if (a->bias)
        r->bias = bias.p;
    if (a->masked)
        r->valid = valid;
    if (a->frac)
        r->frac = frac;
    r->idx = idx;
}

static void router_case(struct conform *c, const void *arg)
{
    const struct router_arg *a = arg;
    double terms = a->experts + 32, aux_mag = a->aux * a->experts, z_mag = a->z * 20;
    double *losses = conform_alloc(c, 2, sizeof *losses);
    int64_t *counts = conform_alloc(c, (size_t)a->experts, sizeof *counts);
    struct router r = {
        .scoring = a->scoring, .n_experts = a->experts, .top_k = a->k, .n_group = a->groups,
        .topk_group = a->topk_groups, .norm_topk = a->norm, .forced = a->forced, .routed_scale = a->scale,
        .n_tokens = a->n, .seq_len = a->seq_len, .counts = counts,
        .logits = conform_in(c, DT_F32, a->n, a->experts, 0, a->fill),
        .w = conform_mat(c, DT_F32, a->n, a->k, 0, FILL_NAN),
        .dw = conform_in(c, DT_F32, a->n, a->k, 0, FILL_UNIT),
        .dlogits = conform_mat(c, DT_F32, a->n, a->experts, 0, FILL_NAN),
        .aux_scale = a->aux, .z_scale = a->z,
    };

    fill_inputs(c, a, &r);
    losses[0] = 3;              /* sums are added to */
    losses[1] = 5;
    counts[0] = 7;
    if (a->aux != 0)
        r.aux_sum = &losses[0];
    if (a->z != 0)
        r.z_sum = &losses[1];
    OP(c)->router_fwd(conform_dev(c), &r);
    conform_out_bits(c, r.idx, (size_t)(a->n * a->k) * sizeof *r.idx, "idx");
    conform_out_bits(c, counts, (size_t)a->experts * sizeof *counts, "counts");
    conform_out(c, r.w, tol(terms, 0x1p-100), "w");
    conform_out_double(c, losses, 2, 1, tol(terms, (double)a->n), "aux and z");
    OP(c)->router_bwd(conform_dev(c), &r);
    conform_out(c, r.dlogits, tol(terms, 4 * a->scale + 2 * aux_mag + z_mag), "dlogits");
}

/* A token's choice and weights do not depend on its neighbours. */
static void alone_case(struct conform *c, const void *arg)
{
    enum { N = 21, E = 16, K = 3 };
    struct mat logits = conform_in(c, DT_F32, N, E, 0, FILL_UNIT), w = conform_mat(c, DT_F32, N, K, 0, FILL_NAN);
    struct mat one = conform_mat(c, DT_F32, 1, K, 0, FILL_NAN);
    uint16_t *idx = conform_alloc(c, N * K, sizeof *idx), *idx1 = conform_alloc(c, K, sizeof *idx1);
    struct router r = { .scoring = SCORING_SIGMOID, .n_experts = E, .top_k = K, .n_group = 1, .topk_group = 1,
                        .norm_topk = 1, .routed_scale = 1, .n_tokens = N, .logits = logits, .idx = idx, .w = w };

    (void)arg;
    OP(c)->router_fwd(conform_dev(c), &r);
    r.n_tokens = 1;
    r.logits = mat_rows(logits, 13, 1);
    r.idx = idx1;
    r.w = one;
    OP(c)->router_fwd(conform_dev(c), &r);
    conform_same(c, one, mat_rows(w, 13, 1), "weights of token 13 alone");
    conform_out_bits(c, idx1, K * sizeof *idx1, "idx");
    conform_out(c, w, tol(E + 32, 0), "w");
}

void cases_router(struct conform_list *l)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        conform_add(l, router_case, &cases[i], "router %s", cases[i].name);
    conform_add(l, alone_case, NULL, "router a token alone");
}
