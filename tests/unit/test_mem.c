/* test_mem.c -- the three invariants of planned memory, on small and random
 * programs, with brute force as the judge. */
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "dev/mem.h"
#include "dev/mem_pack.h"

static uint32_t next(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* The names of a random program's buffers must outlive both passes. */
enum { N_TAKES = 120, N_LIVE = 24 };

struct live { unsigned char *p; size_t bytes; unsigned char mark; };

/* A program as a pure function of its seed.  With touch each buffer is filled
 * with its own mark when taken and checked when given back. */
static void random_program(struct mem *m, uint32_t seed, _Bool touch)
{
    struct live live[N_LIVE];
    int n = 0, taken = 0;

    while (taken < N_TAKES || n) {
        _Bool take = taken < N_TAKES && n < N_LIVE && (!n || next(&seed) % 2);
        if (take) {
            size_t bytes = next(&seed) % 8 ? next(&seed) % 5000 : next(&seed) % (3u << 20);
            struct live l = { mem_take(m, MEM_ACT, "x", bytes), bytes, (unsigned char)(taken + 1) };
            if (touch)
                memset(l.p, l.mark, l.bytes);
            live[n++] = l;
            taken++;
        } else {
            int i = (int)(next(&seed) % (uint32_t)n);
            for (size_t b = 0; touch && b < live[i].bytes; b++)
                if (live[i].p[b] != live[i].mark)
                    fail_msg("byte %zu of a live buffer changed", b);
            mem_give(m, live[i].p);
            live[i] = live[--n];
        }
    }
}

static void set_up(struct mem *m)
{
    static const size_t sizes[] = { 1, 0, 100, 5000, (2u << 20) + 1, 64 };
    void *p;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(mem_keep(m, MEM_MASTER, "kept", sizes[i], &p), 0);
}

static void run_programs(struct mem *m, uint32_t seed, _Bool touch)
{
    assert_int_equal(mem_begin(m, "one"), 0);
    random_program(m, seed, touch);
    assert_int_equal(mem_end(m), 0);
    assert_int_equal(mem_begin(m, "two"), 0);
    random_program(m, seed + 1, touch);
    assert_int_equal(mem_end(m), 0);
}

static struct mem *carved(uint32_t seed)
{
    struct mem *m = mem_new();

    mem_record(m);
    set_up(m);
    run_programs(m, seed, 0);
    assert_int_equal(mem_plan(m), 0);
    assert_int_equal(mem_carve(m), 0);
    set_up(m);
    assert_int_equal(mem_seal(m), 0);
    return m;
}

static _Bool may_meet(const struct mem_row *a, const struct mem_row *b)
{
    if (a->kept || b->kept)
        return 1;
    if (strcmp(a->program, b->program) != 0)
        return 0;
    return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

static void m1_live_buffers_share_no_byte(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 12; seed++) {
        struct mem *m = carved(seed);
        int n = mem_n_rows(m);
        assert_int_equal(n, 6 + 2 * N_TAKES);
        for (int i = 0; i < n; i++) {
            const struct mem_row *a = mem_row(m, i);
            assert_true(a->offset % 64 == 0);
            assert_true(a->offset + a->bytes <= mem_planned(m));
            for (int j = 0; j < i; j++) {
                const struct mem_row *b = mem_row(m, j);
                if (may_meet(a, b) && a->bytes && b->bytes)
                    assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
            }
        }
        run_programs(m, seed, 1);
        mem_free(m);
    }
}

static void m2_playing_a_sealed_tape_allocates_nothing(void **state)
{
    struct mem *m = carved(5);
    size_t heap = mallinfo2().uordblks, mapped = mallinfo2().hblkhd;
    void *p;

    (void)state;
    for (int k = 0; k < 3; k++)
        run_programs(m, 5, 1);
    assert_int_equal(mallinfo2().uordblks, heap);
    assert_int_equal(mallinfo2().hblkhd, mapped);
    assert_int_equal(mem_keep(m, MEM_MASTER, "late", 8, &p), ERR_BUG);
    mem_free(m);
}

static void m3_used_equals_planned(void **state)
{
    struct mem *m = mem_new();

    (void)state;
    mem_record(m);
    set_up(m);
    run_programs(m, 9, 0);
    assert_int_equal(mem_plan(m), 0);
    assert_int_equal(mem_used(m), 0);
    assert_int_equal(mem_carve(m), 0);
    assert_true(mem_planned(m) > 0);
    assert_int_equal(mem_used(m), mem_planned(m));
    mem_free(m);
}

static void kept_buffers_come_zeroed_and_in_recorded_order(void **state)
{
    struct mem *m = mem_new();
    void *a, *b, *fake;

    (void)state;
    mem_record(m);
    assert_true(mem_recording(m));
    assert_int_equal(mem_keep(m, MEM_STATE, "a", 100, &fake), 0);
    assert_int_equal(mem_keep(m, MEM_GRAD, "b", 200, &fake), 0);
    assert_int_equal(mem_plan(m), 0);
    assert_int_equal(mem_carve(m), 0);
    assert_int_equal(mem_keep(m, MEM_GRAD, "b", 200, &b), ERR_BUG);
    assert_int_equal(mem_keep(m, MEM_STATE, "a", 101, &a), ERR_BUG);
    assert_int_equal(mem_keep(m, MEM_STATE, "a", 100, &a), 0);
    assert_int_equal(mem_seal(m), ERR_BUG);             /* b is still missing */
    assert_int_equal(mem_keep(m, MEM_GRAD, "b", 200, &b), 0);
    assert_int_equal(mem_seal(m), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((char *)a)[i], 0);
    assert_true((char *)b >= (char *)a + 100);
    mem_free(m);
}

static void programs_share_one_scratch_region(void **state)
{
    struct mem *m = mem_new();
    size_t peak;

    (void)state;
    mem_record(m);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(mem_begin(m, k ? "large" : "small"), 0);
        mem_give(m, mem_take(m, MEM_ACT, "x", k ? 10 << 20 : 1 << 20));
        assert_int_equal(mem_end(m), 0);
    }
    assert_int_equal(mem_plan(m), 0);
    assert_int_equal(mem_planned(m), 10 << 20);
    assert_string_equal(mem_peak_program(m, &peak), "large");
    assert_int_equal(peak, 10 << 20);
    mem_free(m);
}

static void deviation_kinds(struct mem *m, int kind)
{
    void *a, *b;

    mem_begin(m, "p");
    a = mem_take(m, MEM_ACT, "a", 10);
    if (kind == 0)
        mem_take(m, MEM_ACT, "b", 21);          /* another size */
    if (kind == 1)
        mem_take(m, MEM_ACT, "c", 20);          /* another name */
    if (kind == 2)
        mem_give(m, a);                         /* given too early */
    b = mem_take(m, MEM_ACT, "b", 20);
    if (kind == 3)
        mem_give(m, b);                         /* in the wrong order */
    mem_give(m, a);
    mem_give(m, b);
    if (kind == 4)
        mem_take(m, MEM_ACT, "d", 10);          /* one more */
}

static void a_program_that_leaves_its_tape_aborts(void **state)
{
    struct mem *m = mem_new();

    (void)state;
    mem_record(m);
    deviation_kinds(m, -1);
    assert_int_equal(mem_end(m), 0);
    assert_int_equal(mem_plan(m), 0);
    assert_int_equal(mem_carve(m), 0);
    deviation_kinds(m, -1);
    assert_int_equal(mem_end(m), 0);
    for (int kind = 0; kind < 5; kind++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGABRT, SIG_DFL);           /* cmocka catches it */
            if (!freopen("/dev/null", "w", stderr))
                _exit(1);
            deviation_kinds(m, kind);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    mem_free(m);
}

static void misuse_is_reported_as_our_bug(void **state)
{
    struct mem *m = mem_new();
    void *p;

    (void)state;
    mem_record(m);
    assert_int_equal(mem_carve(m), ERR_BUG);
    assert_int_equal(mem_seal(m), ERR_BUG);
    assert_int_equal(mem_begin(m, "a"), 0);
    assert_int_equal(mem_begin(m, "b"), ERR_BUG);
    assert_int_equal(mem_keep(m, MEM_ACT, "k", 1, &p), ERR_BUG);
    assert_int_equal(mem_plan(m), ERR_BUG);
    p = mem_take(m, MEM_ACT, "x", 1);
    assert_int_equal(mem_end(m), ERR_BUG);
    assert_non_null(strstr(err_msg(), "\"x\" not given back"));
    (void)p;
    mem_free(m);

    m = mem_new();
    mem_record(m);
    assert_int_equal(mem_begin(m, "a"), 0);
    mem_give(m, mem_take(m, MEM_ACT, "x", 1));
    assert_int_equal(mem_end(m), 0);
    assert_int_equal(mem_begin(m, "a"), ERR_BUG);
    assert_int_equal(mem_plan(m), 0);
    assert_int_equal(mem_carve(m), 0);
    assert_int_equal(mem_begin(m, "b"), ERR_BUG);
    assert_int_equal(mem_begin(m, "a"), 0);
    assert_int_equal(mem_end(m), ERR_BUG);              /* tape not played */
    mem_free(m);
}

static void plain_mode_allocates_and_frees(void **state)
{
    struct mem *m = mem_new();
    unsigned char *a;
    void *k;

    (void)state;
    mem_poison(m, 1);
    assert_int_equal(mem_keep(m, MEM_GRAD, "k", 100, &k), 0);
    assert_int_equal(((char *)k)[99], 0);
    assert_int_equal(mem_begin(m, "p"), 0);
    a = mem_take(m, MEM_ACT, "a", 1000);
    assert_int_equal(a[0], 0xff);
    assert_int_equal(mem_end(m), ERR_BUG);
    mem_give(m, a);
    assert_int_equal(mem_begin(m, "p"), 0);
    assert_int_equal(mem_end(m), 0);
    assert_int_equal(mem_used(m), 128);
    mem_free(m);
}

static void a_given_back_buffer_is_poisoned(void **state)
{
    struct mem *m = mem_new();
    unsigned char *a;

    (void)state;
    mem_record(m);
    assert_int_equal(mem_begin(m, "p"), 0);
    mem_give(m, mem_take(m, MEM_ACT, "a", 10));
    assert_int_equal(mem_end(m), 0);
    assert_int_equal(mem_plan(m), 0);
    assert_int_equal(mem_carve(m), 0);
    mem_poison(m, 1);
    assert_int_equal(mem_begin(m, "p"), 0);
    a = mem_take(m, MEM_ACT, "a", 10);
    memset(a, 1, 10);
    mem_give(m, a);
    assert_int_equal(a[9], 0xff);
    mem_free(m);
}

static void nested_lifetimes_pack_to_the_peak(void **state)
{
    struct mem_item items[64];
    size_t peak, total;

    (void)state;
    /* A stack: item i lives in [i, 127 - i]; then one after another. */
    for (int i = 0; i < 64; i++)
        items[i] = (struct mem_item){ .bytes = 64 * (size_t)(1 + i % 7), .align = 64, .first = i, .last = 127 - i };
    total = mem_pack(items, 64, &peak);
    assert_int_equal(total, peak);
    for (int i = 0; i < 64; i++)
        items[i].first = items[i].last = i;
    total = mem_pack(items, 64, &peak);
    assert_int_equal(total, 64 * 7);
    assert_int_equal(mem_pack(items, 0, &peak), 0);
    assert_int_equal(peak, 0);
}

static void classes_report_their_own_peak(void **state)
{
    struct mem *m = mem_new();
    const char *name;
    void *a, *b;

    (void)state;
    mem_record(m);
    mem_keep(m, MEM_GRAD, "g", 64, &a);
    mem_begin(m, "p");
    a = mem_take(m, MEM_ACT, "a", 128);
    b = mem_take(m, MEM_GRAD, "b", 640);
    mem_give(m, a);
    mem_give(m, mem_take(m, MEM_ACT, "c", 192));
    mem_give(m, b);
    mem_end(m);
    assert_int_equal(mem_plan(m), 0);
    assert_int_equal(mem_class_bytes(m, MEM_ACT), 192);
    assert_int_equal(mem_class_bytes(m, MEM_GRAD), 704);
    assert_int_equal(mem_class_bytes(m, MEM_WS), 0);
    assert_int_equal(mem_largest(m, &name), 640);
    assert_string_equal(name, "b");
    assert_string_equal(mem_class_name(MEM_WS), "ws");
    mem_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(m1_live_buffers_share_no_byte),
        cmocka_unit_test(m2_playing_a_sealed_tape_allocates_nothing),
        cmocka_unit_test(m3_used_equals_planned),
        cmocka_unit_test(kept_buffers_come_zeroed_and_in_recorded_order),
        cmocka_unit_test(programs_share_one_scratch_region),
        cmocka_unit_test(a_program_that_leaves_its_tape_aborts),
        cmocka_unit_test(misuse_is_reported_as_our_bug),
        cmocka_unit_test(plain_mode_allocates_and_frees),
        cmocka_unit_test(a_given_back_buffer_is_poisoned),
        cmocka_unit_test(nested_lifetimes_pack_to_the_peak),
        cmocka_unit_test(classes_report_their_own_peak),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
