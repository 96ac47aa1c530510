/* test_units.c -- numbers and words as people write them. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"

static void whole_numbers_take_units_and_nothing_else(void **state)
{
    static const struct { const char *s; int64_t v; } good[] = {
        { "0", 0 }, { "42", 42 }, { "-7", -7 }, { "+7", 7 }, { "010", 10 }, { "64k", 64000 }, { "64Ki", 65536 },
        { "1M", 1000000 }, { "2Mi", 2097152 }, { "3G", 3000000000 }, { "1Gi", 1 << 30 }, { "1T", 1000000000000 },
        { "1Ti", (int64_t)1 << 40 }, { "1.5G", 1500000000 }, { "0.5Ki", 512 }, { "1e6", 1000000 }, { "-1k", -1000 },
        { "9223372036854775807", INT64_MAX }, { "-9223372036854775808", INT64_MIN },
    };
    static const char *const bad[] = { "", " 1", "1 ", "0x10", "1,000", "1_000", "k", "1.5", "1K", "1ki", "1kb", "1Ki2",
        "9223372036854775808", "9223372036854775807k", "--1", "nan", "1e400", "1e", "." };
    int64_t v;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(units_int(good[i].s, &v), 0);
        assert_true(v == good[i].v);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(units_int(bad[i], &v), ERR_USAGE);
    units_int("64K", &v);
    assert_string_equal(err_msg(), "expected a whole number (units k M G T are powers of 1000, Ki Mi Gi Ti of 1024), not \"64K\"");
}

static void numbers_are_finite_and_decimal(void **state)
{
    static const struct { const char *s; double v; } good[] = {
        { "1e-4", 1e-4 }, { "0.1", 0.1 }, { "3k", 3000 }, { "-2.5", -2.5 }, { ".5", .5 }, { "5.", 5 }, { "1E+3", 1000 }, { "2Ki", 2048 },
    };
    static const char *const bad[] = { "", "inf", "nan", "0x1p3", "1e", "1e999", "10%", "1 2", "e5", "-" };
    double v;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(units_float(good[i].s, &v), 0);
        assert_true(v == good[i].v);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(units_float(bad[i], &v), ERR_USAGE);
}

static void truth_has_six_words(void **state)
{
    _Bool b;
    (void)state;
    assert_true(units_bool("yes", &b) == 0 && b);
    assert_true(units_bool("off", &b) == 0 && !b);
    assert_int_equal(units_bool("True", &b), ERR_USAGE);
    assert_int_equal(units_bool("1", &b), ERR_USAGE);
}

static void durations_are_read_as_batch_systems_write_them(void **state)
{
    static const struct { const char *s; double v; } good[] = {
        { "90s", 90 }, { "10m", 600 }, { "2h", 7200 }, { "1h30m", 5400 }, { "1.5h", 5400 }, { "1d", 86400 },
        { "1-12:00:00", 129600 }, { "12:00:30", 43230 }, { "100:00:00", 360000 }, { "0s", 0 },
    };
    static const char *const bad[] = { "", "90", "h", "-5m", "5m1h", "5m5m", "1:2", "1:60:00", "1-24:00:00", "1-2", "10x", "12:00:00x" };
    double v;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(units_duration(good[i].s, &v), 0);
        assert_true(v == good[i].v);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(units_duration(bad[i], &v), ERR_USAGE);
}

static void sizes_counts_and_times_print_for_people(void **state)
{
    char b[32];
    (void)state;
    assert_string_equal(units_bytes(b, 812), "812 B");
    assert_string_equal(units_bytes(b, 1.5 * (1 << 30)), "1.50 GiB");
    assert_string_equal(units_bytes(b, 1048575), "1.00 MiB");
    assert_string_equal(units_bytes(b, 0), "0 B");
    assert_string_equal(units_bytes(b, NAN), "?");
    assert_string_equal(units_count(b, 1234567), "1,234,567");
    assert_string_equal(units_count(b, -1000), "-1,000");
    assert_string_equal(units_count(b, 999), "999");
    assert_string_equal(units_count(b, INT64_MIN), "-9,223,372,036,854,775,808");
    assert_string_equal(units_seconds(b, 0.984), "0.98s");
    assert_string_equal(units_seconds(b, 59.96), "1m00s");
    assert_string_equal(units_seconds(b, 125), "2m05s");
    assert_string_equal(units_seconds(b, 3720), "1h02m");
    assert_string_equal(units_seconds(b, 90000), "1d01h");
    assert_string_equal(units_seconds(b, INFINITY), "?");
}

static void shortest_text_reads_back_as_the_same_double(void **state)
{
    static const struct { double v; const char *s; } t[] = {
        { 0, "0" }, { 1, "1" }, { -1.5, "-1.5" }, { 0.1, "0.1" }, { 3e-3, "0.003" }, { 1e-6, "1e-6" }, { 1e22, "1e22" },
        { 1234.5, "1234.5" }, { 100, "100" }, { 1e15, "1000000000000000" }, { 5e-324, "5e-324" }, { 0.0001, "0.0001" },
        { 1.7976931348623157e308, "1.7976931348623157e308" }, { 0.30000000000000004, "0.30000000000000004" }, { 1.0 / 3, "0.3333333333333333" },
        { 123456789012345680.0, "1.2345678901234568e17" }, { 2.5e-9, "2.5e-9" },
    };
    char b[32];
    struct rng_key k = rng_key(1, "shortest");
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        assert_string_equal(units_shortest(b, t[i].v), t[i].s);
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t w[4];
        double v;
        rng_block(k, i, 0, w);
        memcpy(&v, w, 8);
        if (!isfinite(v))
            continue;
        assert_true(strlen(units_shortest(b, v)) < 31);
        assert_true(strtod(b, NULL) == v);
        snprintf(b, sizeof b, "%.6g", v);
        assert_true(strtod(units_shortest(b, strtod(b, NULL)), NULL) == strtod(b, NULL));
    }
}

static void distance_counts_a_swap_as_one(void **state)
{
    (void)state;
    assert_int_equal(units_distance("abc", "abc"), 0);
    assert_int_equal(units_distance("wieght", "weight"), 1);
    assert_int_equal(units_distance("", "abc"), 3);
    assert_int_equal(units_distance("kitten", "sitting"), 3);
}

static void the_nearest_word_is_what_was_meant_or_none(void **state)
{
    static const char *const w[] = { "lr", "momentum", "weight_decay", "hidden_size", "num_hidden_layers", "num_experts", "num_experts_per_tok", "steps", "eps", "ns" };
    const int n = sizeof w / sizeof *w;
    (void)state;
    assert_string_equal(units_nearest("hiden_size", w, n), "hidden_size");
    assert_string_equal(units_nearest("hidden-size", w, n), "hidden_size");
    assert_string_equal(units_nearest("Momentum", w, n), "momentum");
    assert_string_equal(units_nearest("wieght_deacy", w, n), "weight_decay");
    assert_string_equal(units_nearest("num_layers", w, n), "num_hidden_layers");
    assert_string_equal(units_nearest("num_expert", w, n), "num_experts");
    assert_string_equal(units_nearest("step", w, n), "steps");
    assert_null(units_nearest("learning_rate", w, n));
    assert_null(units_nearest("lx", w, n));
    assert_null(units_nearest("banana", w, n));
    assert_null(units_nearest("", w, n));
    assert_null(units_nearest("num", w, n));
}

static void element_types_keep_their_safetensors_names(void **state)
{
    enum dtype t;
    (void)state;
    for (int i = 0; i < DT_N; i++) {
        assert_int_equal(dtype_parse(dtype_name((enum dtype)i), &t), 0);
        assert_int_equal(t, i);
        assert_in_range(dtype_size(t), 1, 8);
    }
    assert_int_equal(dtype_parse("f32", &t), ERR_DATA);
}

static void bf16_rounds_to_nearest_even_and_keeps_nan(void **state)
{
    (void)state;
    assert_int_equal(dtype_to_bf16(1.0f), 0x3f80);
    assert_int_equal(dtype_to_bf16(0x1.01p0f), 0x3f80);         /* halfway: down to even */
    assert_int_equal(dtype_to_bf16(0x1.03p0f), 0x3f82);         /* halfway: up to even */
    assert_int_equal(dtype_to_bf16(0x1.010002p0f), 0x3f81);
    assert_int_equal(dtype_to_bf16(-FLT_MAX), 0xff80);
    assert_int_equal(dtype_to_bf16(INFINITY), 0x7f80);
    assert_true(isnan(dtype_from_bf16(dtype_to_bf16(NAN))));
    for (unsigned i = 0; i < 65536; i++) {
        float f = dtype_from_bf16((uint16_t)i);
        if (!isnan(f))
            assert_int_equal(dtype_to_bf16(f), i);
    }
}

static void f16_covers_subnormals_and_infinities(void **state)
{
    (void)state;
    assert_true(dtype_from_f16(0x3c00) == 1.0f);
    assert_true(dtype_from_f16(0xc000) == -2.0f);
    assert_true(dtype_from_f16(0x0001) == 0x1p-24f);
    assert_true(dtype_from_f16(0x03ff) == 1023 * 0x1p-24f);
    assert_true(dtype_from_f16(0x0400) == 0x1p-14f);
    assert_true(dtype_from_f16(0x7bff) == 65504.0f);
    assert_true(isinf(dtype_from_f16(0x7c00)) && isnan(dtype_from_f16(0x7e00)));
    assert_true(signbit(dtype_from_f16(0x8000)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_take_units_and_nothing_else),
        cmocka_unit_test(numbers_are_finite_and_decimal),
        cmocka_unit_test(truth_has_six_words),
        cmocka_unit_test(durations_are_read_as_batch_systems_write_them),
        cmocka_unit_test(sizes_counts_and_times_print_for_people),
        cmocka_unit_test(shortest_text_reads_back_as_the_same_double),
        cmocka_unit_test(distance_counts_a_swap_as_one),
        cmocka_unit_test(the_nearest_word_is_what_was_meant_or_none),
        cmocka_unit_test(element_types_keep_their_safetensors_names),
        cmocka_unit_test(bf16_rounds_to_nearest_even_and_keeps_nan),
        cmocka_unit_test(f16_covers_subnormals_and_infinities),
    };
    return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
