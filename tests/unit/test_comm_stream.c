/* test_comm_stream.c -- cursors cut alike on both ends; sums keep their order. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/comm_stream.h"

static void a_cursor_walks_the_parts_of_one_rank_and_skips_empty_ones(void **state)
{
    const struct comm_part v[] = {
        { 1, 0, NULL, NULL }, { 0, 10, NULL, NULL }, { 1, 5, NULL, NULL }, { 1, 0, NULL, NULL }, { 2, 1, NULL, NULL }, { 1, 7, NULL, NULL },
    };
    static const struct { int part; int64_t offset, n; } want[] = { { 2, 0, 4 }, { 2, 4, 1 }, { 5, 0, 4 }, { 5, 4, 3 } };
    struct comm_stream_cursor s;
    const struct comm_part *part;
    int64_t offset;

    (void)state;
    assert_int_equal(comm_stream_bytes(v, 6, 1), 12);
    assert_int_equal(comm_stream_bytes(v, 6, 3), 0);
    comm_stream_begin(&s, v, 6, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(comm_stream_next(&s, 4, &part, &offset), want[i].n);
        assert_ptr_equal(part, &v[want[i].part]);
        assert_int_equal(offset, want[i].offset);
    }
    assert_int_equal(comm_stream_next(&s, 4, &part, &offset), 0);
    assert_int_equal(comm_stream_next(&s, 4, NULL, NULL), 0);
}

/* 1e8 + 1 - 1e8 is 0 in fp32, 1e8 - 1e8 + 1 is 1: the order shows. */
static void terms_are_added_first_to_last(void **state)
{
    enum { N = 2500 };
    static float x[3][N], sum[N];
    const void *src[3] = { x[0], x[1], x[2] };

    (void)state;
    for (int i = 0; i < N; i++) {
        x[0][i] = 1e8f;
        x[1][i] = i % 2 ? 1 : -1e8f;
        x[2][i] = i % 2 ? -1e8f : 1;
    }
    comm_stream_reduce(sum, 0, src, 3, sizeof sum, DT_F32, COMM_SUM);
    for (int i = 0; i < N; i++)
        assert_true(sum[i] == (i % 2 ? 0 : 1));
    /* The result may lie on any term. */
    comm_stream_reduce(x[2], 0, src, 3, sizeof sum, DT_F32, COMM_SUM);
    assert_memory_equal(x[2], sum, sizeof sum);
}

static void bf16_is_added_in_fp32_at_the_right_place(void **state)
{
    uint16_t a[4] = { 0x4380, 0x4380, 0x3f80, 0x3f80 };         /* 256, 256, 1, 1 */
    uint16_t b[4] = { 0x3f80, 0x3f00, 0x3b80, 0x0000 };         /* 1, 0.5, 2^-8, 0 */
    float sum[8] = { 0 };
    const void *src[2] = { a, b };

    (void)state;
    comm_stream_reduce(sum, 2 * 2, src, 2, sizeof a, DT_BF16, COMM_SUM);
    assert_true(sum[1] == 0 && sum[2] == 257 && sum[3] == 256.5f && sum[4] == 1 + 0x1p-8f && sum[5] == 1 && sum[6] == 0);
}

static void integers_wrap_and_extremes_keep_nan(void **state)
{
    int64_t a = INT64_MAX, b = 1, s;
    double n[3] = { 1, NAN, 3 }, r;
    const void *two[2] = { &a, &b }, *three[3] = { &n[0], &n[1], &n[2] };

    (void)state;
    comm_stream_reduce(&s, 0, two, 2, 8, DT_I64, COMM_SUM);
    assert_true(s == INT64_MIN);
    comm_stream_reduce(&s, 0, two, 2, 8, DT_I64, COMM_MIN);
    assert_true(s == 1);
    for (int op = COMM_SUM; op <= COMM_MIN; op++) {
        comm_stream_reduce(&r, 0, three, 3, 8, DT_F64, (enum comm_op)op);
        assert_true(isnan(r));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cursor_walks_the_parts_of_one_rank_and_skips_empty_ones),
        cmocka_unit_test(terms_are_added_first_to_last),
        cmocka_unit_test(bf16_is_added_in_fp32_at_the_right_place),
        cmocka_unit_test(integers_wrap_and_extremes_keep_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
