/* test_trace.c -- the device without data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dev/trace.h"

/* Not memory: a touch would end the test. */
static struct mat nowhere(int64_t rows, int64_t cols)
{
    return mat((void *)(uintptr_t)64, DT_F32, rows, cols);
}

static void ops_are_counted_and_operands_untouched(void **state)
{
    struct dev like, d;
    const struct trace_count *rows;
    struct ns_coef coef[5] = { { 0, 0, 0 } };
    struct mat x[2] = { nowhere(10, 30), nowhere(10, 30) };

    (void)state;
    assert_int_equal(dev_open("ref", NULL, &like), 0);
    assert_int_equal(trace_open(&like, &d), 0);
    d.ops->gemm(&d, nowhere(3, 5), nowhere(3, 7), 0, nowhere(5, 7), 1, 0);
    d.ops->gemm(&d, nowhere(3, 5), nowhere(3, 7), 0, nowhere(5, 7), 1, 1);
    d.ops->newton_schulz(&d, x, 2, coef, 5, 1e-7);
    d.ops->zero(&d, (void *)(uintptr_t)64, 100);
    assert_int_equal(trace_ops(&d), 4);
    assert_int_equal(trace_counts(&d, &rows), 3);
    assert_string_equal(rows[0].op, "zero");
    assert_true(rows[0].bytes == 100 && rows[0].flops == 0);
    assert_string_equal(rows[1].op, "gemm");
    assert_int_equal(rows[1].calls, 2);
    assert_true(rows[1].flops == 2 * 2 * 3 * 5 * 7);
    assert_true(rows[1].bytes == 4 * (2 * (21 + 35) + 3 * 15));
    assert_true(rows[2].flops == 2 * 5 * (4 * 100 * 30 + 2 * 1000));
    trace_reset(&d);
    assert_int_equal(trace_ops(&d), 0);
    assert_int_equal(trace_counts(&d, &rows), 0);
    dev_close(&d);
    dev_close(&like);
}

static void it_answers_as_the_device_it_stands_for(void **state)
{
    static const struct dev_limits lim = { .max_rows = 10, .max_cols = 10, .n_heads = 2, .head_dim = 4,
                                           .ns_rows = 8, .ns_cols = 8 };

    (void)state;
    for (const char *const *name = dev_names(); *name; name++) {
        struct dev like, d;
        assert_int_equal(dev_open(*name, NULL, &like), 0);
        assert_int_equal(trace_open(&like, &d), 0);
        assert_int_equal(d.ops->ws_bytes(&d, &lim), like.ops->ws_bytes(&like, &lim));
        for (int dt = 0; dt < DT_N; dt++)
            assert_int_equal(d.ops->takes((enum dtype)dt), like.ops->takes((enum dtype)dt));
        assert_int_equal(d.ops->sync(&d), 0);
        dev_close(&d);
        dev_close(&like);
    }
}

static void an_unknown_device_is_absent(void **state)
{
    struct dev d;

    (void)state;
    assert_int_equal(dev_open("abacus", NULL, &d), -69);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_counted_and_operands_untouched),
        cmocka_unit_test(it_answers_as_the_device_it_stands_for),
        cmocka_unit_test(an_unknown_device_is_absent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
