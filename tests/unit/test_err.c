/* test_err.c -- the error record, log lines and arenas. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"

static void a_sentence_grows_outward_and_keeps_its_code(void **state)
{
    (void)state;
    err_clear();
    assert_string_equal(err_msg(), "");
    assert_int_equal(err_last(), 0);
    assert_int_equal(err_set(ERR_DATA, "row %d", 3), ERR_DATA);
    assert_int_equal(err_add("%s", "f"), ERR_DATA);
    assert_string_equal(err_msg(), "f: row 3");
    errno = ENOSPC;
    assert_int_equal(err_sys(ERR_IO, "g"), ERR_IO);
    assert_string_equal(err_msg(), "g: No space left on device");
    assert_int_equal(errno, ENOSPC);
}

static void a_long_sentence_is_cut_and_not_spilt(void **state)
{
    static char big[3 * ERR_MSG_MAX];
    (void)state;
    memset(big, 'x', sizeof big - 1);
    err_set(ERR_DATA, "%s", big);
    assert_int_equal(strlen(err_msg()), ERR_MSG_MAX - 1);
    err_add("y");
    assert_int_equal(strlen(err_msg()), ERR_MSG_MAX - 1);
    err_clear();
}

static void *in_a_thread(void *out)
{
    assert_string_equal(err_msg(), "");
    err_set(ERR_NO, "from the thread");
    err_take(out);
    return NULL;
}

static void records_belong_to_a_thread_and_can_be_moved(void **state)
{
    struct err_state s;
    pthread_t t;
    (void)state;
    err_set(ERR_DATA, "mine");
    assert_int_equal(pthread_create(&t, NULL, in_a_thread, &s), 0);
    pthread_join(t, NULL);
    assert_string_equal(err_msg(), "mine");
    assert_int_equal(err_put(&s), ERR_NO);
    assert_string_equal(err_msg(), "from the thread");
}

static void codes_lead_to_their_exit_status(void **state)
{
    (void)state;
    assert_int_equal(err_status(0), 0);
    assert_int_equal(err_status(5), 0);
    assert_int_equal(err_status(ERR_NO), 1);
    assert_int_equal(err_status(ERR_IO), 74);
    assert_int_equal(err_status(ERR_INTERRUPTED), 130);
}

static void sizes_that_overflow_are_refused(void **state)
{
    size_t n;
    (void)state;
    assert_int_equal(size_mul(3, 5, &n), 0);
    assert_int_equal(n, 15);
    assert_int_equal(size_mul(SIZE_MAX, 2, &n), ERR_DATA);
}

static void an_arena_gives_zeroed_aligned_memory_again_and_again(void **state)
{
    struct arena *a = arena_new();
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t n = 1; n < 300000; n = n * 3 + 1) {
            unsigned char *p = arena_alloc(a, n);
            assert_int_equal((uintptr_t)p % 16, 0);
            for (size_t i = 0; i < n; i++)
                if (p[i])
                    fail();
            memset(p, 0xff, n);
        }
        assert_string_equal(arena_printf(a, "%s-%d", "x", 5), "x-5");
        assert_string_equal(arena_strdup(a, ""), "");
        arena_reset(a);
    }
    arena_free(a);
    arena_free(NULL);
}

static void lines_carry_program_rank_and_level(void **state)
{
    char text[16384];
    size_t n = 0;
    int ends[2], status;
    (void)state;
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static char big[3 * ERR_MSG_MAX];
        dup2(ends[1], 2);
        log_init("moe-x", LOG_INFO);
        log_info("hello %d", 1);
        log_debug("not heard");
        log_set_rank(1, 4);
        log_warn("careful\n\033[2J\xc3\xa9");
        log_info("not from here");
        log_error("bad");
        log_init("moe-x", LOG_WARN);
        log_set_rank(0, 1);
        log_info("not now");
        memset(big, 'x', sizeof big - 1);
        log_error("%s", big);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    char *last = strstr(text, "moe-x: xxx");
    assert_non_null(last);
    assert_true(strlen(last) > ERR_MSG_MAX && text[n - 1] == '\n');
    *last = '\0';
    assert_string_equal(text, "moe-x: hello 1\nmoe-x[1]: warn: careful??[2J\xc3\xa9\nmoe-x[1]: bad\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sentence_grows_outward_and_keeps_its_code),
        cmocka_unit_test(a_long_sentence_is_cut_and_not_spilt),
        cmocka_unit_test(records_belong_to_a_thread_and_can_be_moved),
        cmocka_unit_test(codes_lead_to_their_exit_status),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(an_arena_gives_zeroed_aligned_memory_again_and_again),
        cmocka_unit_test(lines_carry_program_rank_and_level),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
