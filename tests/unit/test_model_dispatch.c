/* test_model_dispatch.c -- rounds: every row travels once, in expert order, and
 * any number of rounds gives the same gradients. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/dispatch.h"
#include "unit/model_rig.h"

/* A world of ranks in one process: the same counts in everybody's hands. */
struct world { struct arena *a; struct model_config c; struct dispatch d[4]; int n; };

static void open_world(struct world *w, int n, int64_t n_experts, int64_t cap)
{
    memset(w, 0, sizeof *w);
    w->a = arena_new();
    w->c = (struct model_config){ .num_hidden_layers = 1, .num_experts = n_experts };
    w->n = n;
    for (int r = 0; r < n; r++)
        dispatch_init(w->a, &w->c, n, r, 1 << 20, cap, &w->d[r]);
}

static void set_count(struct world *w, int rank, int64_t e, int32_t v)
{
    for (int r = 0; r < w->n; r++)
        dispatch_counts(&w->d[r], 0, rank)[e] = v;
}

/* Plays all rounds on lists of (source, expert, number) and checks what the
 * destinations see. */
static void play(struct world *w, int64_t max_rounds)
{
    int64_t n_e = w->c.num_experts, n_local = w->d[0].n_local, rounds = dispatch_rounds(&w->d[0], 0);
    int64_t *seen = arena_array(w->a, (size_t)(n_e * w->n), sizeof *seen);

    assert_true(rounds >= 1 && rounds <= max_rounds);
    for (int r = 0; r < w->n; r++) {
        assert_int_equal(dispatch_rounds(&w->d[r], 0), rounds);
        dispatch_layer(&w->d[r], 0);
    }
    for (int64_t k = 0; k < rounds; k++) {
        for (int r = 0; r < w->n; r++)
            dispatch_round(&w->d[r], 0, k);
        for (int to = 0; to < w->n; to++) {
            struct dispatch *d = &w->d[to];
            assert_true(d->n_recv <= d->cap && d->n_send <= d->cap);
            /* What arrives, source by source: the expert of each row. */
            int32_t arrived[4096], from_rank[4096];
            int64_t at = 0;
            for (int from = 0; from < w->n; from++) {
                assert_int_equal(w->d[from].send_n[to], d->recv_n[from]);
                const int32_t *c = dispatch_counts(d, 0, from);
                int64_t first = w->d[from].send_first[to], e = 0;
                for (int64_t i = 0; i < d->recv_n[from]; i++) {
                    int64_t row = first + i, before = 0;
                    for (e = 0; row >= before + c[e]; e++)
                        before += c[e];
                    assert_true(e / n_local == to);
                    arrived[at] = (int32_t)(e % n_local);
                    from_rank[at++] = from;
                }
            }
            assert_int_equal(at, d->n_recv);
            for (int64_t e = 0; e < n_local; e++)
                for (int32_t i = d->offsets[e]; i < d->offsets[e + 1]; i++) {
                    assert_int_equal(arrived[d->order[i]], e);
                    assert_int_equal(d->back[d->order[i]], i);
                    assert_true(i == d->offsets[e] || from_rank[d->order[i]] >= from_rank[d->order[i - 1]]);
                    assert_true(d->first_round[e] <= k);
                    if (d->first_round[e] == k)
                        seen[(to * n_local + e) * w->n] |= 1 << 30;
                    seen[(to * n_local + e) * w->n + from_rank[d->order[i]]]++;
                }
        }
    }
    for (int64_t e = 0; e < n_e; e++)
        for (int from = 0; from < w->n; from++) {
            int64_t total = 0;
            for (int s = 0; s < w->n; s++)
                total += dispatch_counts(&w->d[0], 0, s)[e];
            assert_int_equal(seen[e * w->n + from] & ~((int64_t)1 << 30), dispatch_counts(&w->d[0], 0, from)[e]);
            if (from == 0 && total)
                assert_true(seen[e * w->n] >> 30);
        }
}

static void every_row_travels_once_in_expert_order(void **state)
{
    struct rng_key key = rng_key(7, "dispatch");
    uint64_t at = 0;

    (void)state;
    for (int n = 1; n <= 4; n++)
        for (int64_t cap = n; cap <= 64; cap = cap * 3 + 1) {
            struct world w;
            open_world(&w, n, 12, cap);
            for (int r = 0; r < n; r++)
                for (int64_t e = 0; e < 12; e++) {
                    double u = rng_uniform(key, at++);
                    set_count(&w, r, e, u < 0.3 ? 0 : (int32_t)(u * 20));
                }
            play(&w, 300);
            arena_free(w.a);
        }
}

static void every_row_to_one_expert_costs_rounds_and_no_memory(void **state)
{
    struct world w;

    (void)state;
    open_world(&w, 4, 8, 64);
    for (int r = 0; r < 4; r++)
        set_count(&w, r, 5, r == 2 ? 0 : 160);      /* rank 2 has no tokens */
    assert_int_equal(dispatch_rounds(&w.d[0], 0), 10);
    play(&w, 10);
    arena_free(w.a);
    open_world(&w, 3, 6, 9);
    play(&w, 1);                                    /* nobody has a token */
    arena_free(w.a);
}

static double biggest(const struct rig *r, const char *flat, const struct param *p)
{
    double max = 0;

    for (int64_t j = 0; j < p->rows * p->cols; j++)
        max = fmax(max, fabs(rig_get(r, flat, p->offset + j)));
    return max;
}

/* One pass in F64 with each number of rounds; forced routing when given. */
static void rounds_agree(const char *name, const uint16_t *forced, int64_t n_tokens)
{
    struct rig r;
    char *want = NULL;
    double loss = 0;
    int64_t slots = 0;

    rig_open(&r, name, DT_F64, 0);
    rig_random(&r, 11, 2, n_tokens / 2);
    slots = n_tokens * r.cfg.num_experts_per_tok;
    int64_t caps[] = { 0, slots, slots - 1, slots / 3 + 1, slots / 20, 3 };
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        r.opts.rows_cap = caps[i];
        rig_model(&r);
        memset(r.g, 0xff, (size_t)r.t.n_elems * sizeof(double));
        double l = rig_train(&r, 1, NULL, forced);
        if (i == 0) {
            loss = l;
            want = arena_alloc(r.a, (size_t)r.t.n_elems * sizeof(double));
            memcpy(want, r.g, (size_t)r.t.n_elems * sizeof(double));
            continue;
        }
        assert_true(fabs(l - loss) < 1e-13 * fabs(loss));
        for (int k = 0; k < r.t.n; k++) {
            const struct param *p = &r.t.v[k];
            double max = biggest(&r, want, p);
            for (int64_t j = 0; p->optim != PARAM_NONE && j < p->rows * p->cols; j++) {
                double x = rig_get(&r, want, p->offset + j), y = rig_get(&r, r.g, p->offset + j);
                if (!(fabs(x - y) <= 1e-12 * max))
                    fail_msg("%s: %s with rows_cap %lld: %g, was %g", name, p->name, (long long)caps[i], y, x);
            }
        }
    }
    rig_close(&r);
}

static void any_number_of_rounds_gives_the_same_gradients(void **state)
{
    (void)state;
    rounds_agree("glm4_moe", NULL, 36);
    rounds_agree("qwen2_moe", NULL, 36);
    rounds_agree("mixtral", NULL, 36);
}

static void rounds_agree_when_all_tokens_want_the_same_experts(void **state)
{
    enum { N = 36, K = 2, LAYERS = 2 };
    uint16_t forced[LAYERS * N * K];

    (void)state;
    for (int i = 0; i < LAYERS * N; i++) {
        forced[i * K] = 3;
        forced[i * K + 1] = 1;
    }
    rounds_agree("mixtral", forced, N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_travels_once_in_expert_order),
        cmocka_unit_test(every_row_to_one_expert_costs_rounds_and_no_memory),
        cmocka_unit_test(any_number_of_rounds_gives_the_same_gradients),
        cmocka_unit_test(rounds_agree_when_all_tokens_want_the_same_experts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
