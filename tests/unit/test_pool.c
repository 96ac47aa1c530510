/* test_pool.c -- memory set aside ahead holds what is put into it, is had back
 * whole, and what does not fit is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/pool.h"

#define RESERVED ((size_t)1 << 20)

static void without_a_reserve_it_is_malloc(void **state)
{
    char *p = pool_alloc(0);

    (void)state;
    assert_non_null(p);
    p = pool_realloc(p, 100);
    assert_non_null(p);
    pool_free(p);
    pool_free(NULL);
    assert_null(pool_calloc(SIZE_MAX, 2));
    assert_int_equal(pool_overflow(), 0);
}

/* Random sizes; each piece is filled with its own byte and checked when it goes. */
static void pieces_never_touch_each_other_and_all_come_back(void **state)
{
    static struct { unsigned char *p; size_t n; } v[200];
    uint32_t x = 1;

    (void)state;
    assert_int_equal(pool_reserve(RESERVED), 0);
    assert_int_equal(pool_reserve(1), 0);
    for (int round = 0; round < 20000; round++) {
        x = x * 1664525 + 1013904223;
        int i = (int)(x >> 8) % 200;
        size_t n = (x >> 16) % 4000;

        for (size_t k = 0; k < v[i].n; k++)
            assert_int_equal(v[i].p[k], (unsigned char)i);
        if (round % 3 == 0) {
            unsigned char *q = pool_realloc(v[i].p, n);

            assert_non_null(q);
            for (size_t k = 0; k < v[i].n && k < n; k++)
                assert_int_equal(q[k], (unsigned char)i);
            v[i].p = q;
        } else {
            pool_free(v[i].p);
            v[i].p = pool_alloc(n);
        }
        v[i].n = n;
        assert_non_null(v[i].p);
        assert_int_equal((uintptr_t)v[i].p % 16, 0);
        memset(v[i].p, i, n);
    }
    for (int i = 0; i < 200; i++)
        pool_free(v[i].p);
    assert_int_equal(pool_overflow(), 0);
    /* Joined again: nearly all of it is one piece. */
    void *all = pool_alloc(RESERVED - 4096);
    assert_int_equal(pool_overflow(), 0);
    assert_true(pool_peak() >= RESERVED - 4096);
    void *more = pool_alloc(8192);
    assert_non_null(more);
    assert_int_equal(pool_overflow(), 1);
    pool_free(more);
    pool_free(all);
}

static void arenas_live_in_the_reserve(void **state)
{
    int64_t before = pool_overflow();

    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct arena *a = arena_new();

        memset(arena_alloc(a, 100000), 1, 100000);
        arena_alloc(a, 10);
        arena_free(a);
    }
    assert_int_equal(pool_overflow(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_reserve_it_is_malloc),
        cmocka_unit_test(pieces_never_touch_each_other_and_all_come_back),
        cmocka_unit_test(arenas_live_in_the_reserve),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
