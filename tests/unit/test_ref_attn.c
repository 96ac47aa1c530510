/* test_ref_attn.c -- attention against the textbook formula with an explicit
 * mask, and its gradients against finite differences. */
#include "refcheck.h"

#include <math.h>
#include <string.h>

struct shape { int64_t nq, nk; int heads, kv, dim; int32_t starts[8]; };

static const struct shape shapes[] = {
    { 1, 1, 1, 1, 1, { 0 } },
    { 7, 7, 2, 2, 3, { 0 } },
    { 7, 7, 4, 1, 3, { 0, 0, 0, 3, 3, 3, 3 } },         /* two documents */
    { 5, 5, 8, 1, 2, { 0, 1, 1, 3, 3 } },
    { 6, 6, 4, 2, 5, { 0, 1, 2, 3, 4, 5 } },            /* documents of one token */
    { 2, 6, 2, 1, 4, { 1, 1 } },                        /* more keys than queries */
};

static struct attn make(const struct shape *s)
{
    int64_t qc = (int64_t)s->heads * s->dim, kc = (int64_t)s->kv * s->dim;

    return (struct attn){
        .q = refcheck_mat(s->nq, qc), .k = refcheck_mat(s->nk, kc), .v = refcheck_mat(s->nk, kc),
        .o = refcheck_nan(s->nq, qc), .lse = refcheck_nan(s->nq, s->heads), .doc_start = s->starts,
        .n_heads = s->heads, .n_kv_heads = s->kv, .head_dim = s->dim, .scale = 0.7,
        .do_ = refcheck_mat(s->nq, qc), .dq = refcheck_nan(s->nq, qc), .dk = refcheck_nan(s->nk, kc),
        .dv = refcheck_nan(s->nk, kc),
    };
}

/* p of query i and key j under head h, from the definition; 0 where masked. */
static double prob(const struct attn *a, int64_t i, int64_t j, int h, double *lse)
{
    int64_t j0 = a->k.rows - a->q.rows, at = (int64_t)(h / (a->n_heads / a->n_kv_heads)) * a->head_dim;
    double sum = 0, mine = 0;

    for (int64_t u = a->doc_start[i]; u <= j0 + i; u++) {
        double s = 0;
        for (int c = 0; c < a->head_dim; c++)
            s += *refcheck_at(a->q, i, (int64_t)h * a->head_dim + c) * *refcheck_at(a->k, u, at + c);
        s = exp(a->scale * s);
        sum += s;
        if (u == j)
            mine = s;
    }
    *lse = log(sum);
    return mine / sum;
}

static void output_is_softmax_over_the_visible_keys(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        struct dev *d = refcheck_dev();
        struct attn a = make(&shapes[n]);
        d->ops->attn_fwd(d, &a);
        for (int64_t i = 0; i < a.q.rows; i++)
            for (int h = 0; h < a.n_heads; h++)
                for (int c = 0; c < a.head_dim; c++) {
                    int64_t at = (int64_t)(h / (a.n_heads / a.n_kv_heads)) * a.head_dim + c;
                    double want = 0, lse = 0;
                    for (int64_t j = 0; j < a.k.rows; j++)
                        want += prob(&a, i, j, h, &lse) * *refcheck_at(a.v, j, at);
                    refcheck_near("o", *refcheck_at(a.o, i, (int64_t)h * a.head_dim + c), want, 1e-12);
                    refcheck_near("lse", *refcheck_at(a.lse, i, h), lse, 1e-12);
                }
        refcheck_done();
    }
}

static double attn_loss(void *arg)
{
    struct attn *a = arg;
    struct dev *d = refcheck_dev();

    d->ops->attn_fwd(d, a);
    return refcheck_dot(a->o, a->do_);
}

static void gradients_match_differences(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        struct dev *d = refcheck_dev();
        struct attn a = make(&shapes[n]);
        d->ops->attn_fwd(d, &a);
        d->ops->attn_bwd(d, &a);
        refcheck_grad("dq", a.q, a.dq, attn_loss, &a);
        refcheck_grad("dk", a.k, a.dk, attn_loss, &a);
        refcheck_grad("dv", a.v, a.dv, attn_loss, &a);
        refcheck_done();
    }
}

static void no_token_is_fine_and_unseen_keys_get_zero(void **state)
{
    static const struct shape none = { 0, 0, 2, 1, 4, { 0 } };
    struct dev *d = refcheck_dev();
    struct attn a = make(&none);

    (void)state;
    d->ops->attn_fwd(d, &a);
    d->ops->attn_bwd(d, &a);
    a = make(&shapes[5]);               /* key 0 lies before the document */
    d->ops->attn_fwd(d, &a);
    d->ops->attn_bwd(d, &a);
    for (int c = 0; c < 4; c++) {
        assert_true(*refcheck_at(a.dk, 0, c) == 0);
        assert_true(*refcheck_at(a.dv, 0, c) == 0);
    }
    refcheck_done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_softmax_over_the_visible_keys),
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(no_token_is_fine_and_unseen_keys_get_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
