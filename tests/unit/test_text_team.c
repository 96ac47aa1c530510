/* test_text_team.c -- many threads over one text: the order is the text's, and so
 * is the failure that is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "tok/text_team.h"

enum { LINES = 20000, THREADS = 8 };

struct seen {
    int64_t next;                       /* number of the line that must come */
    int64_t sum[2 * THREADS + 1];       /* per slot, from work to take */
    int64_t bad_work, bad_take;         /* line at which to fail; -1: never */
    atomic_int busy[THREADS];
};

static int work(void *arg, int thread, int slot, const struct text_slab *b)
{
    struct seen *s = arg;
    int rc = 0;
    assert_int_equal(atomic_fetch_add(&s->busy[thread], 1), 0);
    s->sum[slot] = 0;
    for (int64_t i = 0; i < b->n_rows; i++) {
        int64_t n = strtoll((const char *)b->doc[i].s, NULL, 10);
        s->sum[slot] += n;
        if (n == s->bad_work)
            rc = err_set(ERR_DATA, "work fails at %lld", (long long)n);
    }
    atomic_fetch_sub(&s->busy[thread], 1);
    return rc;
}

static int take(void *arg, int slot, const struct text_slab *b)
{
    struct seen *s = arg;
    int64_t sum = 0;
    for (int64_t i = 0; i < b->n_rows; i++) {
        assert_int_equal(strtoll((const char *)b->doc[i].s, NULL, 10), s->next);
        if (s->next == s->bad_take)
            return err_set(ERR_IO, "take fails at %lld", (long long)s->next);
        sum += s->next++;
    }
    assert_int_equal(sum, s->sum[slot]);
    return 0;
}

static int run(const char *const *paths, int threads, struct seen *s)
{
    static const struct text_team_ops ops = { work, take };
    struct text_how how;
    struct text_source *t;
    tok_text_how_default(&how);
    how.docs = TEXT_LINE;
    how.slab_bytes = 200;
    assert_int_equal(text_source_open(paths, 2, &how, &t), 0);
    int rc = text_team_run(t, threads, &ops, s);
    text_source_close(t);
    return rc;
}

static char dir[] = "/tmp/test-team-XXXXXX";
static char path[2][64];

static void write_lines(void)
{
    char *text = malloc(LINES * 8);
    for (int f = 0; f < 2; f++) {
        size_t n = 0;
        for (int i = 0; i < LINES / 2; i++)
            n += (size_t)sprintf(text + n, "%d\n", f * LINES / 2 + i);
        snprintf(path[f], sizeof path[f], "%s/%d", dir, f);
        assert_int_equal(fs_write_file(path[f], text, n), 0);
    }
    free(text);
}

static void slabs_are_taken_in_order_by_any_number_of_threads(void **state)
{
    (void)state;
    write_lines();
    const char *paths[] = { path[0], path[1] };
    for (int threads = 1; threads <= THREADS; threads++) {
        struct seen s = { .bad_work = -1, .bad_take = -1 };
        assert_int_equal(run(paths, threads, &s), 0);
        assert_int_equal(s.next, LINES);
    }
}

static void the_failure_told_is_the_first_in_the_text(void **state)
{
    (void)state;
    write_lines();
    const char *paths[] = { path[0], "/nowhere/at/all" };
    for (int threads = 1; threads <= THREADS; threads++) {
        struct seen s = { .bad_work = LINES / 2 - 1, .bad_take = -1 };
        assert_int_equal(run(paths, threads, &s), ERR_DATA);
        assert_string_equal(err_msg(), "work fails at 9999");
        s = (struct seen){ .bad_work = 7000, .bad_take = 6000 };
        assert_int_equal(run(paths, threads, &s), ERR_IO);
        assert_string_equal(err_msg(), "take fails at 6000");
        s = (struct seen){ .bad_work = -1, .bad_take = -1 };
        assert_int_equal(run(paths, threads, &s), ERR_NOINPUT);
        assert_int_equal(s.next, LINES / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slabs_are_taken_in_order_by_any_number_of_threads),
        cmocka_unit_test(the_failure_told_is_the_first_in_the_text),
    };
    if (mkdtemp(dir) == NULL)
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    fs_remove_tree(dir);
    return rc;
}
