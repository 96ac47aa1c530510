/* test_grow.c -- arrays that grow keep what they hold, move seldom, and are as
 * before when there is no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/pool.h"

struct item { int64_t number; char text[20]; };

enum { N = 1000 };

static void are_counted_up(const struct item *v)
{
    for (int64_t i = 0; i < N; i++)
        assert_int_equal(v[i].number, i);
}

static void items_are_kept_and_moved_ten_times_at_most(void **state)
{
    struct arena *a = arena_new();
    struct item *v[3] = { NULL };
    int64_t room[3] = { 0 };
    int moves[3] = { 0 };

    (void)state;
    for (int64_t i = 0; i < N; i++) {
        int64_t had[3];

        memcpy(had, room, sizeof had);
        assert_int_equal(grow_plain(&v[0], &room[0], i + 1, sizeof *v[0], "items"), 0);
        assert_int_equal(grow_pooled(&v[1], &room[1], i + 1, sizeof *v[1], "items"), 0);
        v[2] = grow_arena(a, v[2], &room[2], i + 1, sizeof *v[2]);
        for (int k = 0; k < 3; k++) {
            assert_true(room[k] > i && room[k] <= 2 * i + 4);
            moves[k] += room[k] != had[k];
            v[k][i] = (struct item){ i, "" };
        }
    }
    for (int k = 0; k < 3; k++) {
        are_counted_up(v[k]);
        assert_in_range(moves[k], 1, 10);
    }
    free(v[0]);
    pool_free(v[1]);
    arena_free(a);
}

static void many_at_once_fit_and_enough_room_moves_nothing(void **state)
{
    struct item *v = NULL, *before;
    int64_t room = 0;

    (void)state;
    assert_int_equal(grow_plain(&v, &room, N, sizeof *v, "items"), 0);
    assert_true(room >= N);
    memset(v, 1, N * sizeof *v);        /* all of it is ours: a sanitizer looks */
    before = v;
    assert_int_equal(grow_plain(&v, &room, room, sizeof *v, "items"), 0);
    assert_int_equal(grow_plain(&v, &room, 0, sizeof *v, "items"), 0);
    assert_ptr_equal(v, before);
    free(v);
}

static void without_memory_all_is_as_before_and_the_sentence_says_for_what(void **state)
{
    struct item *v = NULL, *before;
    int64_t room = 0, had;

    (void)state;
    assert_int_equal(grow_plain(&v, &room, 3, sizeof *v, "items"), 0);
    v[2].number = 17;
    before = v;
    had = room;
    /* More bytes than a size_t counts: a sanitizer ends a program that asks for less. */
    assert_int_equal(grow_plain(&v, &room, INT64_MAX, sizeof *v, "items"), ERR_IO);
    assert_string_equal(err_msg(), "no memory for 9223372036854775807 items");
    assert_ptr_equal(v, before);
    assert_int_equal(room, had);
    assert_int_equal(v[2].number, 17);
    free(v);
}

static void an_arena_gives_zeroed_items(void **state)
{
    struct arena *a = arena_new();
    int64_t room = 0;
    char *v = grow_arena(a, NULL, &room, 1, 1);

    (void)state;
    memset(v, 'x', (size_t)room);
    int64_t had = room;
    v = grow_arena(a, v, &room, 100, 1);
    for (int64_t i = 0; i < 100; i++)
        assert_int_equal(v[i], i < had ? 'x' : 0);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_kept_and_moved_ten_times_at_most),
        cmocka_unit_test(many_at_once_fit_and_enough_room_moves_nothing),
        cmocka_unit_test(without_memory_all_is_as_before_and_the_sentence_says_for_what),
        cmocka_unit_test(an_arena_gives_zeroed_items),
    };
    return cmocka_run_group_tests_name("grow", tests, NULL, NULL);
}
