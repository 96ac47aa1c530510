/* test_ref_ends.c -- routing of rows, embedding and loss. */
#include "refcheck.h"

#include <math.h>
#include <string.h>

enum { N = 7, K = 2, E = 5, W = 3 };

static uint16_t idx[N * K] = { 4, 0, 2, 4, 0, 2, 4, 2, 0, 4, 2, 0, 0, 4 };      /* experts 1 and 3 are empty */

struct maps { struct route_map m; int32_t row_of[N * K], token_of[N * K], offsets[E + 1]; };

static void sort_rows(struct maps *k)
{
    struct dev *d = refcheck_dev();

    k->m = (struct route_map){ N, K, E, idx, k->row_of, k->token_of, k->offsets };
    d->ops->route_sort(d, &k->m);
}

static void rows_are_sorted_by_expert_token_slot(void **state)
{
    struct maps k;
    int row = 0;

    (void)state;
    sort_rows(&k);
    for (int e = 0; e < E; e++) {
        assert_int_equal(k.offsets[e], row);
        for (int i = 0; i < N * K; i++)
            if (idx[i] == e) {
                assert_int_equal(k.row_of[i], row);
                assert_int_equal(k.token_of[row], i / K);
                row++;
            }
    }
    assert_int_equal(k.offsets[E], N * K);
    refcheck_done();
}

struct combine_ctx { struct maps k; struct mat ys, w, y, dy, x, xs; };

static double combine_loss(void *arg)
{
    struct combine_ctx *c = arg;
    struct dev *d = refcheck_dev();

    d->ops->rows_combine(d, c->y, c->ys, c->w, c->k.row_of, 0, K, 0);
    return refcheck_dot(c->y, c->dy);
}

static double gather_loss(void *arg)
{
    struct combine_ctx *c = arg;
    struct dev *d = refcheck_dev();

    d->ops->rows_gather(d, c->xs, c->x, c->k.token_of);
    return refcheck_dot(c->xs, c->ys);
}

/* d ys = w dy by row, d w = ys . dy by slot, and gathering is undone by an
 * unweighted combine. */
static void gather_and_combine_are_transposes(void **state)
{
    struct dev *d = refcheck_dev();
    struct combine_ctx c = { .ys = refcheck_mat(N * K, W), .w = refcheck_mat(N, K), .y = refcheck_nan(N, W),
                             .dy = refcheck_mat(N, W), .x = refcheck_mat(N, W), .xs = refcheck_nan(N * K, W) };
    struct mat dys = refcheck_nan(N * K, W), dw = refcheck_nan(N, K), wr = refcheck_nan(N * K, 1);
    struct mat dwr = refcheck_nan(N * K, 1), dx = refcheck_nan(N, W), none = { .p = NULL };

    (void)state;
    sort_rows(&c.k);
    d->ops->rows_gather(d, dys, c.dy, c.k.token_of);
    d->ops->slots_to_rows(d, wr, c.w, c.k.row_of, 0);
    for (int r = 0; r < N * K; r++) {
        *refcheck_at(dwr, r, 0) = refcheck_dot(mat_rows(dys, r, 1), mat_rows(c.ys, r, 1));
        for (int i = 0; i < W; i++)
            *refcheck_at(dys, r, i) *= *refcheck_at(wr, r, 0);
    }
    d->ops->rows_to_slots(d, dw, dwr, c.k.row_of, 0);
    refcheck_grad("dys", c.ys, dys, combine_loss, &c);
    refcheck_grad("dw", c.w, dw, combine_loss, &c);
    d->ops->rows_combine(d, dx, c.ys, none, c.k.row_of, 0, K, 0);
    refcheck_grad("dx", c.x, dx, gather_loss, &c);
    refcheck_done();
}

static void combine_row_by_row_is_a_weighted_add(void **state)
{
    struct dev *d = refcheck_dev();
    struct mat y = refcheck_mat(N, W), old = refcheck_zero(N, W), x = refcheck_mat(N, W), w = refcheck_mat(N, 1);

    (void)state;
    d->ops->cast(d, old, y);
    d->ops->rows_combine(d, y, x, w, NULL, 0, 1, 1);
    for (int r = 0; r < N; r++)
        for (int i = 0; i < W; i++)
            refcheck_near("y", *refcheck_at(y, r, i),
                          *refcheck_at(old, r, i) + *refcheck_at(w, r, 0) * *refcheck_at(x, r, i), 1e-15);
    refcheck_done();
}

enum { VOCAB = 6 };

static const int32_t ids[N] = { 3, 0, 3, 5, 3, 0, 2 };

struct embed_ctx { struct mat table, y, dy; };

static double embed_loss(void *arg)
{
    struct embed_ctx *c = arg;
    struct dev *d = refcheck_dev();

    d->ops->embed_fwd(d, c->y, c->table, ids);
    return refcheck_dot(c->y, c->dy);
}

static void embedding_gradient_matches_differences(void **state)
{
    struct dev *d = refcheck_dev();
    struct embed_ctx c = { refcheck_mat(VOCAB, W), refcheck_nan(N, W), refcheck_mat(N, W) };
    struct mat dt = refcheck_nan(VOCAB, W);

    (void)state;
    d->ops->embed_bwd(d, dt, c.dy, ids, 0);
    refcheck_grad("dtable", c.table, dt, embed_loss, &c);
    assert_true(*refcheck_at(dt, 1, 0) == 0);
    d->ops->embed_bwd(d, dt, c.dy, ids, 1);
    d->ops->scale(d, dt, 0.5);
    refcheck_grad("dtable twice", c.table, dt, embed_loss, &c);
    refcheck_done();
}

static const int32_t targets[N] = { 3, -1, 0, 5, 5, -1, 1 };

struct xent_ctx { struct mat logits, work; double nll[N]; };

static double xent_loss(void *arg)
{
    struct xent_ctx *c = arg;
    struct dev *d = refcheck_dev();
    double sum = 0;

    d->ops->cast(d, c->work, c->logits);
    d->ops->xent(d, c->nll, c->work, targets, 0, 0);
    d->ops->sum(d, &sum, c->nll, N);
    return 0.3 * sum;
}

static void cross_entropy_gradient_matches_differences(void **state)
{
    struct dev *d = refcheck_dev();
    struct xent_ctx c = { .logits = refcheck_mat(N, VOCAB), .work = refcheck_nan(N, VOCAB) };
    struct mat grad = refcheck_zero(N, VOCAB);
    double nll[N];

    (void)state;
    d->ops->cast(d, grad, c.logits);
    d->ops->xent(d, nll, grad, targets, 0.3, 1);
    refcheck_grad("dlogits", c.logits, grad, xent_loss, &c);
    xent_loss(&c);
    for (int r = 0; r < N; r++) {
        double sum = 0;
        for (int v = 0; v < VOCAB; v++)
            sum += exp(*refcheck_at(c.logits, r, v));
        refcheck_near("nll", c.nll[r], targets[r] < 0 ? 0 : log(sum) - *refcheck_at(c.logits, r, targets[r]), 1e-13);
        assert_true(nll[r] == c.nll[r]);
    }
    refcheck_done();
}

static void large_logits_do_not_overflow(void **state)
{
    struct dev *d = refcheck_dev();
    struct mat m = refcheck_zero(2, 3);
    const int32_t t[2] = { 0, 1 };
    double nll[2];

    (void)state;
    *refcheck_at(m, 0, 0) = 1e5;
    *refcheck_at(m, 1, 0) = 1e5;
    d->ops->xent(d, nll, m, t, 1, 1);
    refcheck_near("hit", nll[0], 0, 1e-12);
    refcheck_near("miss", nll[1], 1e5, 1e-6);
    refcheck_near("gradient", *refcheck_at(m, 1, 1), -1, 1e-12);
    refcheck_done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_sorted_by_expert_token_slot),
        cmocka_unit_test(gather_and_combine_are_transposes),
        cmocka_unit_test(combine_row_by_row_is_a_weighted_add),
        cmocka_unit_test(embedding_gradient_matches_differences),
        cmocka_unit_test(cross_entropy_gradient_matches_differences),
        cmocka_unit_test(large_logits_do_not_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
