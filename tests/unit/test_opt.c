/* test_opt.c -- option parsing, its sentences, and the whole of main(). */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/opt.h"
#include "base/out.h"
#include "base/version.h"

struct opts {
    struct opt_common common;
    _Bool force;
    int64_t steps;
    double rate;
    const char *output, *form;
    struct opt_list input;
};

static const struct opt table[] = {
    OPT_COMMON,
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace the output", offsetof(struct opts, force), 0, 0 },
    { OPT_INT, 's', "steps", "N", "100", "steps to take", offsetof(struct opts, steps), 1, 1e6 },
    { OPT_FLOAT, 'r', "rate", "X", NULL, "the rate", offsetof(struct opts, rate), 0, INFINITY },
    { OPT_STR, 'o', "output", "FILE", "-", "write to FILE", offsetof(struct opts, output), 0, 0 },
    { OPT_CHOICE, 0, "form", "human|tsv|json", "human", "form of the table", offsetof(struct opts, form), 0, 0 },
    { OPT_LIST, 'i', "input", "FILE", NULL, "read FILE too", offsetof(struct opts, input), 0, 0 },
    OPT_END
};

/* A command that does what its first operand says, for the tests of main(). */
static int act(void *opts, int argc, char **argv)
{
    (void)opts;
    if (argc == 0)
        return out_printf("ran\n");
    if (!strcmp(argv[0], "flood")) {
        for (int i = 0; i < 1000000; i++)
            TRY(out_printf("line %d\n", i));
        return err_set(ERR_BUG, "the flood was not stopped");
    }
    if (!strcmp(argv[0], "no"))
        return ERR_NO;
    if (!strcmp(argv[0], "two"))
        return err_set(ERR_USAGE, "one\ntwo");
    if (!strcmp(argv[0], "silent"))
        return 0;
    out_printf("partial\n");
    return err_set(ERR_DATA, "%s: spoilt", argv[0]);
}

static const struct opt_cmd cmds[] = {
    { "run", "does it", "[options] [FILE...]", "moe-x run a.txt\nmoe-x run -o b.txt - <a.txt", table, sizeof(struct opts), 0, -1, act },
    { "eval", "measures it", "[options] FILE", "", table, sizeof(struct opts), 1, 1, act },
};

static struct opts got;
static char *args[32];

/* Splits a line at blanks into args and parses it for command c. */
static int parse(int c, const char *line)
{
    static char text[512];
    int n = 0;

    opt_free(&cmds[c], &got);
    snprintf(text, sizeof text, "prog %s", line);
    for (char *w = strtok(text, " "); w; w = strtok(NULL, " "))
        args[n++] = w;
    args[n] = NULL;
    err_clear();
    return opt_parse(&cmds[c], &got, n, args);
}

static void defaults_hold_when_nothing_is_given(void **state)
{
    (void)state;
    assert_int_equal(parse(0, ""), 0);
    assert_int_equal(got.steps, 100);
    assert_string_equal(got.output, "-");
    assert_string_equal(got.form, "human");
    assert_true(got.rate == 0 && !got.force && got.input.n == 0);
}

static void every_spelling_of_an_option_is_understood(void **state)
{
    (void)state;
    assert_int_equal(parse(0, "--steps=5 --rate 1e-3 -ofile -f --form tsv a b"), 2);
    assert_int_equal(got.steps, 5);
    assert_true(got.rate == 1e-3 && got.force);
    assert_string_equal(got.output, "file");
    assert_string_equal(got.form, "tsv");
    assert_string_equal(args[0], "a");
    assert_string_equal(args[1], "b");
    assert_int_equal(parse(0, "a -fvs 1k -v b --verbose"), 2);
    assert_true(got.force && got.common.verbose == 3 && got.steps == 1000);
    assert_string_equal(args[1], "b");
    assert_int_equal(parse(0, "-ix -i y --input=z"), 0);
    assert_int_equal(got.input.n, 3);
    assert_string_equal(got.input.v[2], "z");
    assert_int_equal(parse(0, "--output= "), 0);
    assert_string_equal(got.output, "");
    assert_int_equal(parse(0, "-o - -s Ki"), ERR_USAGE);
}

static void operands_keep_their_order_and_may_look_like_options_after_two_dashes(void **state)
{
    (void)state;
    assert_int_equal(parse(0, "- -f -- -f --steps"), 3);
    assert_string_equal(args[0], "-");
    assert_string_equal(args[1], "-f");
    assert_string_equal(args[2], "--steps");
}

static void mistakes_name_the_option_and_what_was_expected(void **state)
{
    static const struct { int cmd; const char *line, *want; } t[] = {
        { 0, "--stpes 3", "unknown option --stpes (did you mean --steps?)" },
        { 0, "--step 3", "unknown option --step (did you mean --steps?)" },
        { 0, "--banana", "unknown option --banana" },
        { 0, "--output_file=x", "unknown option --output_file" },
        { 0, "-x", "unknown option -x" },
        { 0, "-F", "unknown option -F (did you mean -f, --force?)" },
        { 0, "-Z", "unknown option -Z" },
        { 0, "-steps", "--steps: expected a whole number (units k M G T are powers of 1000, Ki Mi Gi Ti of 1024), not \"teps\"" },
        { 0, "-h=1", "unknown option -=" },
        { 0, "--steps", "--steps needs a value: N" },
        { 0, "--steps --force", "--steps needs a value: N" },
        { 0, "-o -f", "--output needs a value: FILE" },
        { 0, "--steps 0", "--steps: 0 is out of range, expected 1 to 1000000" },
        { 0, "--steps 2M", "--steps: 2M is out of range, expected 1 to 1000000" },
        { 0, "--rate -1", "--rate: -1 is too small, expected at least 0" },
        { 0, "--rate fast", "--rate: expected a number, not \"fast\"" },
        { 0, "--form tvs", "--form: expected human, tsv or json, not \"tvs\" (did you mean \"tsv\"?)" },
        { 0, "--form xml", "--form: expected human, tsv or json, not \"xml\"" },
        { 0, "--form=", "--form: expected human, tsv or json, not \"\"" },
        { 0, "--force=yes", "--force takes no value" },
        { 0, "-s 1 --steps 2", "--steps is given twice" },
        { 0, "-f -f", "--force is given twice" },
        { 0, "-q -v", "--quiet and --verbose exclude each other" },
        { 1, "", "missing operand, expected [options] FILE" },
        { 1, "a b", "unexpected operand \"b\"" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(parse(t[i].cmd, t[i].line), ERR_USAGE);
        assert_string_equal(err_msg(), t[i].want);
    }
}

static void help_is_given_even_if_operands_are_missing(void **state)
{
    (void)state;
    assert_int_equal(parse(1, "--help"), 0);
    assert_true(got.common.help);
}

static char out_text[65536], err_text[8192];

static void slurp(const char *path, char *to, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = fread(to, 1, size - 1, f);

    to[n] = '\0';
    fclose(f);
}

/* Runs opt_main() in a child; how: 0 to files, 1 stdout is /dev/full, 2 closed,
 * 3 a pipe whose reader is gone.  Returns the exit status, or minus the signal. */
static int run(int how, int n_cmds, const char *line)
{
    char dir[] = "/tmp/moe-opt-XXXXXX", out[64], err[64], text[512];
    char *v[32] = { "moe-x" };
    int n = 1, status, ends[2];

    assert_non_null(mkdtemp(dir));
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(err, sizeof err, "%s/err", dir);
    snprintf(text, sizeof text, "%s", line);
    for (char *w = strtok(text, " "); w; w = strtok(NULL, " "))
        v[n++] = w;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(open(err, O_WRONLY | O_CREAT, 0600), 2);
        if (how == 0)
            dup2(open(out, O_WRONLY | O_CREAT, 0600), 1);
        if (how == 1)
            dup2(open("/dev/full", O_WRONLY), 1);
        if (how == 2)
            close(1);
        if (how == 3 && pipe(ends) == 0) {
            dup2(ends[1], 1);
            close(ends[0]);
        }
        err_clear();
        _exit(opt_main("moe-x", "tests things", cmds, n_cmds, n, v));
    }
    waitpid(pid, &status, 0);
    out_text[0] = '\0';
    if (how == 0)
        slurp(out, out_text, sizeof out_text);
    slurp(err, err_text, sizeof err_text);
    unlink(out);
    unlink(err);
    rmdir(dir);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void main_prints_one_line_and_leaves_with_the_right_status(void **state)
{
    (void)state;
    assert_int_equal(run(0, 2, "bad.bin"), 65);
    assert_string_equal(err_text, "moe-x: bad.bin: spoilt\n");
    assert_string_equal(out_text, "partial\n");
    assert_int_equal(run(0, 2, "run no"), 1);
    assert_string_equal(err_text, "");
    assert_int_equal(run(0, 2, "two"), 2);
    assert_string_equal(err_text, "moe-x: one\nmoe-x: two\n");
    assert_int_equal(run(0, 2, ""), 0);
    assert_string_equal(out_text, "ran\n");
}

static void usage_errors_say_where_help_is_on_the_same_line(void **state)
{
    (void)state;
    assert_int_equal(run(0, 2, "eval --bogus"), 2);
    assert_string_equal(err_text, "moe-x: unknown option --bogus (try 'moe-x eval --help')\n");
    assert_int_equal(run(0, 1, "--bogus"), 2);
    assert_string_equal(err_text, "moe-x: unknown option --bogus (try 'moe-x --help')\n");
    assert_int_equal(run(0, 2, "eval --a\nb"), 2);
    assert_string_equal(err_text, "moe-x: unknown option --a?b (try 'moe-x eval --help')\n");
    assert_int_equal(run(0, 2, "evla x"), 2);
    assert_string_equal(err_text, "moe-x: unknown subcommand \"evla\" (did you mean eval?) (try 'moe-x --help')\n");
}

static void help_begins_with_examples_and_fits_a_screen(void **state)
{
    int lines = 0;
    (void)state;
    assert_int_equal(run(0, 2, "run --help"), 0);
    assert_string_equal(err_text, "");
    assert_true(!strncmp(out_text, "Examples:\n  moe-x run a.txt\n", 28));
    assert_non_null(strstr(out_text, "Usage: moe-x run [options] [FILE...]\n  does it\n"));
    assert_non_null(strstr(out_text, "  -s, --steps N              steps to take [100]\n"));
    assert_non_null(strstr(out_text, "      --form human|tsv|json  form of the table [human]\n"));
    for (char *s = out_text; *s; s++)
        lines += *s == '\n';
    assert_in_range(lines, 10, 24);
    assert_int_equal(run(0, 2, "-h"), 0);
    assert_non_null(strstr(out_text, "  moe-x run   does it (the default)\n  moe-x eval  measures it\n"));
    assert_int_equal(run(0, 1, "-h"), 0);
    assert_non_null(strstr(out_text, "Usage: moe-x [options] [FILE...]\n"));
}

static void version_names_the_parts(void **state)
{
    char want[4096];
    (void)state;
    snprintf(want, sizeof want, "moe-x %s\n%s\n", moe_version, moe_parts);
    assert_int_equal(run(0, 2, "-V"), 0);
    assert_string_equal(out_text, want);
    assert_int_equal(run(0, 2, "eval --version"), 0);
    assert_string_equal(out_text, want);
}

static void the_option_table_is_printed_for_programs(void **state)
{
    (void)state;
    assert_int_equal(run(0, 2, "--print-options"), 0);
    assert_non_null(strstr(out_text, "#command\tletter\tname\targument\tdefault\thelp\nrun\t\t\t[options] [FILE...]\t\tdoes it\nrun\th\thelp\t\t\tprint this help\n"));
    assert_non_null(strstr(out_text, "\neval\ts\tsteps\tN\t100\tsteps to take\n"));
    assert_non_null(strstr(out_text, "\neval\t\tform\thuman|tsv|json\thuman\tform of the table\n"));
}

static void a_full_standard_output_is_status_74(void **state)
{
    (void)state;
    assert_int_equal(run(1, 2, ""), 74);
    assert_string_equal(err_text, "moe-x: standard output: No space left on device\n");
    assert_int_equal(run(1, 2, "flood"), 74);
    assert_string_equal(err_text, "moe-x: standard output: No space left on device\n");
    assert_int_equal(run(1, 2, "-h"), 74);
}

static void a_closed_standard_output_matters_only_if_written_to(void **state)
{
    (void)state;
    assert_int_equal(run(2, 2, ""), 74);
    assert_string_equal(err_text, "moe-x: standard output: Bad file descriptor\n");
    assert_int_equal(run(2, 2, "silent"), 0);
    assert_string_equal(err_text, "");
}

static void a_reader_that_left_ends_the_work_quietly(void **state)
{
    (void)state;
    assert_int_equal(run(3, 2, "flood"), 0);
    assert_string_equal(err_text, "");
    /* A real failure is still one. */
    assert_int_equal(run(3, 2, "bad.bin"), 65);
    assert_string_equal(err_text, "moe-x: bad.bin: spoilt\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold_when_nothing_is_given),
        cmocka_unit_test(every_spelling_of_an_option_is_understood),
        cmocka_unit_test(operands_keep_their_order_and_may_look_like_options_after_two_dashes),
        cmocka_unit_test(mistakes_name_the_option_and_what_was_expected),
        cmocka_unit_test(help_is_given_even_if_operands_are_missing),
        cmocka_unit_test(main_prints_one_line_and_leaves_with_the_right_status),
        cmocka_unit_test(usage_errors_say_where_help_is_on_the_same_line),
        cmocka_unit_test(help_begins_with_examples_and_fits_a_screen),
        cmocka_unit_test(version_names_the_parts),
        cmocka_unit_test(the_option_table_is_printed_for_programs),
        cmocka_unit_test(a_full_standard_output_is_status_74),
        cmocka_unit_test(a_closed_standard_output_matters_only_if_written_to),
        cmocka_unit_test(a_reader_that_left_ends_the_work_quietly),
    };
    int rc = cmocka_run_group_tests_name("opt", tests, NULL, NULL);
    opt_free(&cmds[0], &got);
    return rc;
}
