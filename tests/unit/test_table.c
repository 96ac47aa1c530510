/* test_table.c -- one table in three forms, progress and sparklines. */
#include <fcntl.h>
#include <math.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/out.h"
#include "base/progress.h"
#include "base/table.h"

static char text[65536];

/* What act() writes to the descriptor, in a child whose descriptor is a pipe. */
static const char *written(int fd, void (*act)(void))
{
    int ends[2], status;
    size_t n = 0;

    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], fd);
        close(ends[0]);
        close(ends[1]);
        act();
        _exit(out_close() == 0 ? 0 : 1);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    return text;
}

static const struct table_col cols[] = {
    { "name", "name", 's', 0 }, { "count", "count", 'i', 0 }, { "bytes", "size", 'b', 0 },
    { "rate", "rate", 'f', 2 }, { "ok", "ok", '?', 0 }, { "note", "note", 's', 0 },
};

static void fill(enum table_form form)
{
    struct table *t = table_begin(form, "moe.test/1", cols, 6);

    table_str(t, "a");
    table_int(t, 1234567);
    table_int(t, 1 << 20);
    table_num(t, 0.125);
    table_int(t, 1);
    table_str(t, "x");
    table_rule(t);
    table_str(t, "l\xc3\xa4nger\tcut\n");
    table_none(t);
    table_int(t, 3);
    table_num(t, NAN);
    table_int(t, 0);
    table_str(t, "\\");
    if (table_end(t) < 0)
        _exit(2);
}

static void human(void) { fill(TABLE_HUMAN); }
static void tsv(void) { fill(TABLE_TSV); }
static void json(void) { fill(TABLE_JSON); }

static void people_get_aligned_columns(void **state)
{
    (void)state;
    assert_string_equal(written(1, human),
        "name             count      size  rate   ok  note\n"
        "a            1,234,567  1.00 MiB  0.12  yes  x\n"
        "-------------------------------------------------\n"
        "l\xc3\xa4nger?cut?          -       3 B   nan   no  \\\n");
}

static void tsv_has_a_header_and_escapes_its_separators(void **state)
{
    (void)state;
    assert_string_equal(written(1, tsv),
        "#name\tcount\tbytes\trate\tok\tnote\n"
        "a\t1234567\t1048576\t0.125\ttrue\tx\n"
        "l\xc3\xa4nger\\tcut\\n\t-\t3\tnan\tfalse\t\\\\\n");
}

static void json_has_one_object_a_line_with_the_schema_first(void **state)
{
    (void)state;
    assert_string_equal(written(1, json),
        "{\"schema\":\"moe.test/1\",\"name\":\"a\",\"count\":1234567,\"bytes\":1048576,\"rate\":0.125,\"ok\":true,\"note\":\"x\"}\n"
        "{\"schema\":\"moe.test/1\",\"name\":\"l\xc3\xa4nger\\tcut\\n\",\"count\":null,\"bytes\":3,\"rate\":null,\"ok\":false,\"note\":\"\\\\\",\"nonfinite\":[\"rate\"]}\n");
}

static void run_progress(void)
{
    struct progress *p = progress_begin("work", 100, "tokens");

    for (uint64_t i = 0; i <= 100; i++)
        progress_set(p, i);
    progress_end(p);
}

static void progress_is_silent_off_a_terminal(void **state)
{
    (void)state;
    assert_string_equal(written(2, run_progress), "");
}

/* The same on a terminal, by way of a pseudo-terminal with a width. */
static const char *on_terminal(int width, const char *variable)
{
    struct winsize w = { 24, (unsigned short)width, 0, 0 };
    int master;
    size_t n = 0;

    fflush(NULL);
    pid_t pid = forkpty(&master, NULL, NULL, &w);
    if (pid < 0)
        return NULL;
    if (pid == 0) {
        setenv("TERM", "xterm", 1);
        setenv(variable, "0", 1);
        run_progress();
        log_info("done");
        _exit(0);
    }
    for (ssize_t got; (got = read(master, text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    close(master);
    waitpid(pid, NULL, 0);
    return text;
}

static void progress_redraws_only_where_a_person_looks(void **state)
{
    (void)state;
    const char *s = on_terminal(80, "MOE_TEST");
    if (!s) {
        puts("skip: no pseudo-terminal here");
        skip();
    }
    assert_true(!strncmp(s, "\rwork   0%  0 of 100 tokens", 27));
    assert_non_null(strstr(s, "\r\033[Kmoe: done\r\n"));
    assert_string_equal(on_terminal(0, "MOE_TEST"), "moe: done\r\n");
    assert_string_equal(on_terminal(80, "OMPI_COMM_WORLD_RANK"), "moe: done\r\n");
}

static void sparklines_follow_the_values(void **state)
{
    static const double v[] = { 0, 1, 2, 3, 4, 5, 6, 7 }, flat[] = { 2, 2 }, odd[] = { 0, NAN, 1 };
    char b[64];
    (void)state;
    setenv("LC_ALL", "C", 1);
    assert_string_equal(progress_spark(b, v, 8, 8), "_.-~=+*#");
    assert_string_equal(progress_spark(b, v, 8, 4), "_-+#");
    assert_string_equal(progress_spark(b, v, 8, 20), "_.-~=+*#");
    assert_string_equal(progress_spark(b, flat, 2, 8), "~~");
    assert_string_equal(progress_spark(b, odd, 3, 8), "_!#");
    assert_string_equal(progress_spark(b, v, 0, 8), "");
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    assert_string_equal(progress_spark(b, v, 8, 8), "▁▂▃▄▅▆▇█");
    unsetenv("LC_ALL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(people_get_aligned_columns),
        cmocka_unit_test(tsv_has_a_header_and_escapes_its_separators),
        cmocka_unit_test(json_has_one_object_a_line_with_the_schema_first),
        cmocka_unit_test(progress_is_silent_off_a_terminal),
        cmocka_unit_test(progress_redraws_only_where_a_person_looks),
        cmocka_unit_test(sparklines_follow_the_values),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
