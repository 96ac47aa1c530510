/* test_timed.c -- a clock around a device, and the step on made-up tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dev/timed.h"
#include "dev/trace.h"
#include "train/synthetic.h"
#include "train/trainer.h"

static struct dev timed(const char *name)
{
    struct dev inner, d;

    assert_int_equal(dev_open(name, NULL, &inner), 0);
    assert_int_equal(timed_open(&inner, &d), 0);
    assert_null(inner.ops);
    return d;
}

/* The table holds nothing but functions and a name. */
static void no_op_is_missing(void **state)
{
    (void)state;
    for (const char *const *name = dev_names(); *name; name++) {
        struct dev d = timed(*name), plain;
        void *a[sizeof *d.ops / sizeof(void *)], *b[sizeof *d.ops / sizeof(void *)];

        assert_int_equal(dev_open(*name, NULL, &plain), 0);
        memcpy(a, d.ops, sizeof *d.ops);
        memcpy(b, plain.ops, sizeof *plain.ops);
        for (size_t i = 0; i < sizeof a / sizeof *a; i++)
            if (b[i])
                assert_non_null(a[i]);
        assert_string_equal(d.ops->name, *name);
        dev_close(&plain);
        dev_close(&d);
    }
}

static void results_are_those_of_the_device_and_calls_are_counted(void **state)
{
    struct dev d = timed("cpu"), plain;
    float a[6] = { 1, 2, 3, 4, 5, 6 }, b[6] = { 6, 5, 4, 3, 2, 1 }, c[4], e[4];
    struct mat ma = mat(a, DT_F32, 2, 3), mb = mat(b, DT_F32, 2, 3);
    const struct timed_count *rows;

    (void)state;
    assert_int_equal(dev_open("cpu", NULL, &plain), 0);
    plain.ops->gemm(&plain, mat(e, DT_F32, 2, 2), ma, 0, mb, 1, 0);
    d.ops->zero(&d, c, sizeof c);
    d.ops->gemm(&d, mat(c, DT_F32, 2, 2), ma, 0, mb, 1, 0);
    assert_memory_equal(c, e, sizeof c);
    d.ops->gemm(&d, mat(c, DT_F32, 2, 2), ma, 0, mb, 1, 0);
    assert_int_equal(d.ops->sync(&d), 0);
    assert_int_equal(timed_counts(&d, &rows), 2);
    assert_string_equal(rows[0].op, "zero");
    assert_string_equal(rows[1].op, "gemm");
    assert_int_equal(rows[1].calls, 2);
    assert_true(rows[1].seconds > 0 && rows[1].flops == 2 * 2 * 2 * 2 * 3);
    timed_reset(&d);
    assert_int_equal(timed_counts(&d, &rows), 0);
    dev_close(&plain);
    dev_close(&d);
}

enum { SEQ = 16, N = 40 };
struct arrays { int32_t ids[N * SEQ], targets[N * SEQ], start[N * SEQ], pos[N * SEQ]; };

static struct batch batch_on(struct arrays *a)
{
    return (struct batch){ .ids = a->ids, .targets = a->targets, .doc_start = a->start, .positions = a->pos };
}

static void made_up_samples_obey_the_rules_of_real_ones(void **state)
{
    static struct arrays all, one;
    struct run_config c = { .data = { .seq_len = SEQ, .seed = 3 }, .model = { .vocab_size = 1000 } };
    struct batch b = batch_on(&all), x = batch_on(&one);
    int64_t valid = 0, starts = 0, rare = 0;

    (void)state;
    synthetic_samples(&c, 7, N, &b);
    assert_int_equal(b.n_seqs, N);
    assert_int_equal(b.seq_len, SEQ);
    for (int t = 0; t < N * SEQ; t++) {
        assert_in_range(all.ids[t], 0, 999);
        assert_int_equal(all.pos[t], t - all.start[t]);
        assert_in_range(all.start[t], t / SEQ * SEQ, t);
        _Bool ends = (t + 1) % SEQ != 0 && all.start[t + 1] == t + 1;
        if ((t + 1) % SEQ)
            assert_int_equal(all.targets[t], ends ? -1 : all.ids[t + 1]);
        valid += all.targets[t] >= 0;
        starts += all.pos[t] == 0;
        rare += all.ids[t] >= 500;
    }
    assert_true(starts > N && starts < 3 * N && rare > 0 && rare < N * SEQ / 4);
    assert_int_equal(b.n_valid, valid);
    assert_int_equal(synthetic_valid_targets(&c, 7, N), valid);
    /* A sample does not depend on where a batch begins. */
    synthetic_samples(&c, 9, 1, &x);
    assert_memory_equal(one.ids, all.ids + 2 * SEQ, SEQ * sizeof(int32_t));
    assert_memory_equal(one.targets, all.targets + 2 * SEQ, SEQ * sizeof(int32_t));
    assert_memory_equal(one.pos, all.pos + 2 * SEQ, SEQ * sizeof(int32_t));
}

static double loss_of(const struct run_config *c, _Bool timed_device)
{
    struct trainer_options o = {
        .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA | TRAINER_SYNTHETIC, .device = "cpu",
        .timed = timed_device,
    };
    struct trainer *t;
    struct step_facts f;

    assert_int_equal(trainer_open(c, &o, &t), 0);
    trainer_init(t);
    for (int i = 0; i < 2; i++)
        assert_int_equal(trainer_step(t, &f), 0);
    trainer_close(t);
    return f.loss;
}

static void a_step_on_made_up_tokens_is_the_same_with_a_clock(void **state)
{
    static char *over[] = {
        "model.model_type=glm4_moe", "model.first_k_dense_replace=0", "model.hidden_size=32", "model.num_hidden_layers=2", "model.num_attention_heads=4", "model.num_key_value_heads=2",
        "model.head_dim=8", "model.vocab_size=100", "model.num_experts=4", "model.num_experts_per_tok=2",
        "model.moe_intermediate_size=16", "data.seq_len=32", "train.micro_tokens=64", "train.tokens_per_step=128",
    };
    struct run_config c;

    (void)state;
    assert_int_equal(run_config_load(NULL, over, sizeof over / sizeof *over, &c), 0);
    double plain = loss_of(&c, 0);
    assert_true(plain > 0 && plain == loss_of(&c, 1));
    run_config_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_op_is_missing),
        cmocka_unit_test(results_are_those_of_the_device_and_calls_are_counted),
        cmocka_unit_test(made_up_samples_obey_the_rules_of_real_ones),
        cmocka_unit_test(a_step_on_made_up_tokens_is_the_same_with_a_clock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
