/* test_rng.c -- Philox against its published vectors, and what is built on it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"

static void philox_gives_the_published_vectors(void **state)
{
    static const struct { uint64_t lo, hi; uint32_t k0, k1, want[4]; } t[] = {
        { 0, 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 0x85a308d3243f6a88, 0x0370734413198a2e, 0xa4093822, 0x299f31d0, { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t got[4];
        rng_block((struct rng_key){ { t[i].k0, t[i].k1 } }, t[i].lo, t[i].hi, got);
        assert_memory_equal(got, t[i].want, 16);
    }
}

static void names_and_seeds_give_different_keys(void **state)
{
    (void)state;
    struct rng_key a = rng_key(1, "x"), b = rng_key(1, "y"), c = rng_key(2, "x"), d = rng_key(1, "x");

    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
    assert_memory_equal(&a, &d, sizeof a);
    /* Seed 0 is the plain hash, so the key is the start of the printed one. */
    struct hash h = hash_bytes("data", 4);
    struct rng_key k = rng_key(0, "data");
    h.hex[16] = '\0';
    assert_int_equal(strtoull(h.hex, NULL, 16), (uint64_t)k.k[1] << 32 | k.k[0]);
}

static void uniform_stays_in_range_and_is_even(void **state)
{
    struct rng_key k = rng_key(3, "u");
    int bin[16] = { 0 };
    double chi = 0;
    (void)state;
    for (uint64_t i = 0; i < 160000; i++) {
        double u = rng_uniform(k, i);
        assert_true(u >= 0 && u < 1);
        bin[(int)(u * 16)]++;
    }
    for (int i = 0; i < 16; i++)
        chi += (bin[i] - 10000.0) * (bin[i] - 10000.0) / 10000.0;
    assert_true(chi < 40);      /* 15 degrees of freedom: once in 2000 keys */
}

static void normal_agrees_with_libm_to_the_last_digits(void **state)
{
    struct rng_key k = rng_key(4, "n");
    (void)state;
    for (uint64_t j = 0; j < 20000; j++) {
        uint32_t w[4];
        rng_block(k, j, 0, w);
        double u = (double)((((uint64_t)w[1] << 32 | w[0]) >> 11) + 1) * 0x1p-53;
        double v = (double)(((uint64_t)w[3] << 32 | w[2]) >> 11) * 0x1p-53;
        double r = sqrt(-2 * log(u)), a = 2 * acos(-1) * v;
        assert_true(fabs(rng_normal(k, 2 * j) - r * cos(a)) < 1e-14);
        assert_true(fabs(rng_normal(k, 2 * j + 1) - r * sin(a)) < 1e-14);
    }
}

static void normal_has_the_right_moments_and_tails(void **state)
{
    enum { N = 1000000 };
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    int over2 = 0, over4 = 0;
    float *v = malloc(N * sizeof *v);
    (void)state;
    rng_fill_normal(v, N, rng_key(5, "moments"), 0, 1.0);
    for (int i = 0; i < N; i++) {
        double x = v[i];
        m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
        over2 += fabs(x) > 2, over4 += fabs(x) > 4;
    }
    free(v);
    /* Five standard errors of each estimate. */
    assert_true(fabs(m1 / N) < 5 * 1e-3);
    assert_true(fabs(m2 / N - 1) < 5 * 1.42e-3);
    assert_true(fabs(m3 / N) < 5 * 3.88e-3);
    assert_true(fabs(m4 / N - 3) < 5 * 9.8e-3);
    assert_in_range(over2, 45500 - 1050, 45500 + 1050);
    assert_in_range(over4, 63 - 40, 63 + 40);
}

static void the_normal_bits_never_change(void **state)
{
    /* A change here changes every model made from a seed. */
    float v[4096];
    (void)state;
    rng_fill_normal(v, 4096, rng_key(1, "model.embed_tokens.weight"), 0, 0.02);
    assert_string_equal(hash_bytes(v, sizeof v).hex, "ceebefa0fe430980533da4828a03c9d1");
}

static void any_split_of_a_fill_gives_the_same_bits(void **state)
{
    enum { N = 200001 };
    struct rng_key k = rng_key(6, "split");
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    (void)state;
    rng_fill_normal(a, N, k, 7, 0.02);
    for (int64_t i = 0, step = 1; i < N; i += step, step = step * 3 + 1)
        rng_fill_normal(b + i, i + step < N ? step : N - i, k, 7 + (uint64_t)i, 0.02);
    assert_memory_equal(a, b, N * sizeof *a);
    for (int i = 0; i < 1000; i++)
        assert_true(a[i] == (float)(0.02 * rng_normal(k, 7 + (uint64_t)i)));
    free(a);
    free(b);
}

static void permute_is_a_bijection_for_every_small_n(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 300; n++) {
        unsigned char seen[300] = { 0 };
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = rng_permute(rng_key(n, "perm"), n, i);
            assert_true(p < n);
            assert_false(seen[p]++);
        }
    }
}

static int by_value(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

    return (a > b) - (a < b);
}

static void permute_of_a_huge_range_has_no_duplicates(void **state)
{
    enum { N = 20000 };
    static const uint64_t sizes[] = { 1u << 20, (1ull << 40) + 12345, UINT64_MAX };
    uint64_t *v = malloc(N * sizeof *v);
    (void)state;
    for (int s = 0; s < 3; s++) {
        for (uint64_t i = 0; i < N; i++) {
            v[i] = rng_permute(rng_key(9, "big"), sizes[s], i);
            assert_true(v[i] < sizes[s]);
        }
        qsort(v, N, sizeof *v, by_value);
        for (int i = 1; i < N; i++)
            assert_true(v[i] != v[i - 1]);
    }
    free(v);
}

static void permute_sends_each_index_everywhere_equally(void **state)
{
    int count[5][5] = { { 0 } };
    (void)state;
    for (uint64_t seed = 0; seed < 5000; seed++)
        for (uint64_t i = 0; i < 5; i++)
            count[i][rng_permute(rng_key(seed, "even"), 5, i)]++;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            assert_in_range(count[i][j], 1000 - 150, 1000 + 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(names_and_seeds_give_different_keys),
        cmocka_unit_test(uniform_stays_in_range_and_is_even),
        cmocka_unit_test(normal_agrees_with_libm_to_the_last_digits),
        cmocka_unit_test(normal_has_the_right_moments_and_tails),
        cmocka_unit_test(the_normal_bits_never_change),
        cmocka_unit_test(any_split_of_a_fill_gives_the_same_bits),
        cmocka_unit_test(permute_is_a_bijection_for_every_small_n),
        cmocka_unit_test(permute_of_a_huge_range_has_no_duplicates),
        cmocka_unit_test(permute_sends_each_index_everywhere_equally),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
