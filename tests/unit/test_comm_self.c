/* test_comm_self.c -- one rank: every call is a copy, and mistakes are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "comm/comm.h"

static int set_up(void **state)
{
    return comm_open("self", NULL, (struct comm **)state);
}

static int tear_down(void **state)
{
    comm_close(*state);
    return 0;
}

static void a_back_end_that_is_not_built_in_is_absent(void **state)
{
    struct comm *c;

    (void)state;
    assert_int_equal(comm_open("pigeon", NULL, &c), ERR_ABSENT);
    assert_null(c);
    assert_non_null(strstr(err_msg(), "\"pigeon\""));
}

static void one_rank_sums_and_gathers_its_own(void **state)
{
    struct comm *c = *state;
    uint16_t half[3] = { 0x3f80, 0x4000, 0xbf80 };      /* 1, 2, -1 */
    float sum[3], f[2] = { 1.5f, -0.0f };
    int64_t n = 7, ends[1];
    struct arena *a = arena_new();
    char *all;

    assert_int_equal(comm_size(c), 1);
    assert_int_equal(comm_all_reduce(c, f, 2, DT_F32, COMM_SUM), 0);
    assert_true(f[0] == 1.5f && 1 / f[1] < 0);
    assert_int_equal(comm_all_reduce(c, &n, 1, DT_I64, COMM_MAX), 0);
    assert_int_equal(n, 7);
    struct comm_part part = { 0, sizeof half, half, sum };
    assert_int_equal(comm_reduce(c, &part, 1, DT_BF16), 0);
    assert_true(sum[0] == 1 && sum[1] == 2 && sum[2] == -1);
    assert_int_equal(comm_gather_bytes(a, c, "abc", 3, &all, ends), 0);
    assert_string_equal(all, "abc");
    assert_int_equal(ends[0], 3);
    arena_free(a);
}

static void what_a_rank_sends_itself_is_copied_part_by_part(void **state)
{
    struct comm *c = *state;
    char from[] = "abcdefg", to[8] = "";
    struct comm_part s[] = { { 0, 3, from, NULL }, { 0, 0, NULL, NULL }, { 0, 4, from + 3, NULL } };
    struct comm_part r[] = { { 0, 3, to, NULL }, { 0, 4, to + 3, NULL } };
    struct comm_req *q;

    assert_int_equal(comm_start_all_to_all(c, s, 3, r, 2, &q), 0);
    assert_int_equal(comm_test(&q), 1);
    assert_null(q);
    assert_int_equal(comm_wait(&q), 0);
    assert_string_equal(to, from);
    r[1].bytes = 1;
    assert_int_equal(comm_start_all_to_all(c, s, 3, r, 2, &q), ERR_BUG);
}

static void counts_name_what_was_called_and_nothing_moved(void **state)
{
    struct comm *c = *state;
    struct comm_counts k;
    struct comm_status s;
    double v = 1;

    comm_set_step(c, 3);
    assert_int_equal(comm_all_reduce(c, &v, 1, DT_F64, COMM_SUM), 0);
    comm_counts(c, &k);
    assert_int_equal(k.calls[COMM_ALL_REDUCE], 1);
    assert_int_equal(k.sent[COMM_ALL_REDUCE] + k.received[COMM_ALL_REDUCE], 0);
    comm_status(c, &s);
    assert_string_equal(s.what, "all_reduce");
    assert_string_equal(s.in, "world");
    assert_int_equal(s.seq, 1);
    assert_int_equal(s.step, 3);
    assert_false(s.waiting);
}

static void wrong_ranks_and_types_are_our_bug(void **state)
{
    struct comm *c = *state;
    struct comm_part part = { 1, 4, NULL, NULL };
    int16_t x = 0;

    assert_int_equal(comm_gather(c, &part, 1), ERR_BUG);
    assert_int_equal(comm_all_reduce(c, &x, 1, DT_I16, COMM_SUM), ERR_BUG);
    part.rank = 0;
    assert_int_equal(comm_reduce(c, &part, 1, DT_F16), ERR_BUG);
}

static void agreement_of_one_keeps_its_sentence(void **state)
{
    struct comm *c = *state;

    assert_int_equal(comm_agree(c, 0), 0);
    assert_int_equal(comm_agree(c, err_set(ERR_IO, "disk full")), ERR_IO);
    assert_string_equal(err_msg(), "disk full");
}

static void a_rank_without_a_color_joins_nothing(void **state)
{
    struct comm *c = *state, *sub;

    assert_int_equal(comm_split(c, -1, 0, "none", &sub), 0);
    assert_null(sub);
    assert_int_equal(comm_split(c, 2, 0, "a name that is far too long", &sub), 0);
    assert_int_equal(comm_size(sub), 1);
    assert_string_equal(comm_name(sub), "a name that is ");
    assert_int_equal(comm_barrier(sub), 0);
    comm_close(sub);
    assert_int_equal(comm_split_node(c, "node", &sub), 0);
    comm_close(sub);
}

int main(void)
{
#define EACH(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(a_back_end_that_is_not_built_in_is_absent),
        EACH(one_rank_sums_and_gathers_its_own),
        EACH(what_a_rank_sends_itself_is_copied_part_by_part),
        EACH(counts_name_what_was_called_and_nothing_moved),
        EACH(wrong_ranks_and_types_are_our_bug),
        EACH(agreement_of_one_keeps_its_sentence),
        EACH(a_rank_without_a_color_joins_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
