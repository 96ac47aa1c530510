/* test_ckpt_async.c -- a save that is written while its data changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/pool.h"
#include "ckpt/load.h"
#include "ckpt/run.h"
#include "ckpt/save.h"
#include "unit/ckpt_toy.h"

static float live[TOY_N][64];           /* what training goes on changing */

static void fill(int64_t step)
{
    for (int t = 0; t < TOY_N; t++)
        for (int64_t i = 0; i < toy_count(t); i++)
            live[t][i] = toy_value(t, i, step);
}

static int declare(struct ckpt_save *s)
{
    for (int t = 0; t < TOY_N; t++)
        TRY(ckpt_save_tensor(s, toy_tensors[t].optim ? CKPT_OPTIM : CKPT_MODEL, toy_tensors[t].name, DT_F32,
                             toy_tensors[t].n_dims, toy_tensors[t].shape, live[t]));
    return 0;
}

static size_t stage_bytes(void)
{
    struct ckpt_save *s = ckpt_save_rehearse(0, 1);
    size_t n;

    fill(0);
    assert_int_equal(declare(s), 0);
    n = ckpt_save_stage_bytes(s);
    ckpt_save_abort(s);
    return n;
}

/* Up to the start, after which the live values are those of no step. */
static int start(const char *run, int64_t step, int keep, struct ckpt_writer *w, struct ckpt_save **out)
{
    struct manifest_info info = toy_info(step);
    struct ckpt_save *s;
    int rc;

    fill(step);
    TRY(ckpt_save_begin(run, &info, 200, &s));
    ckpt_save_beside(s, w);
    /* A copy of the text is taken too. */
    char text[] = "{\"model_type\": \"toy\"}\n";
    rc = ckpt_save_file(s, "config.json", text, 22);
    memset(text, 'x', sizeof text);
    if (rc == 0)
        rc = declare(s);
    if (rc == 0)
        rc = ckpt_save_start(s, keep);
    if (rc < 0) {
        ckpt_save_abort(s);
        return rc;
    }
    ckpt_save_copied(s);
    memset(live, 0xee, sizeof live);
    *out = s;
    return 0;
}

static int finish(struct ckpt_save *s, struct ckpt_save_facts *f)
{
    int rc;

    do
        rc = ckpt_save_next(s, f);
    while (rc > 0);
    return rc;
}

struct kit { void *stage; size_t bytes; struct ckpt_writer *w; const char *run; };

static void open_kit(struct kit *k, size_t less)
{
    k->run = toy_mkdir();
    k->bytes = stage_bytes() - less;
    k->stage = malloc(k->bytes);
    memset(k->stage, 0x55, k->bytes);
    assert_int_equal(ckpt_writer_new(k->stage, k->bytes, &k->w), 0);
}

static void close_kit(struct kit *k)
{
    ckpt_writer_free(k->w);
    free(k->stage);
    toy_rmdir(k->run);
}

static void assert_same_file(const char *a, const char *b)
{
    char *pa, *pb;
    size_t na, nb;

    toy_get(a, &pa, &na);
    toy_get(b, &pb, &nb);
    assert_int_equal(na, nb);
    assert_memory_equal(pa, pb, na);
    free(pa);
    free(pb);
}

/* Every file of a step, the MANIFEST included. */
static void assert_same_step(const char *a, const char *b, const char *step)
{
    static const char *const files[] = { "config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "optim/index.json",
        "optim/optim-00001-of-00002.safetensors", "optim/optim-00002-of-00002.safetensors", "MANIFEST.json" };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_same_file(toy_path(toy_path(toy_path(a, "ckpt"), step), files[i]), toy_path(toy_path(toy_path(b, "ckpt"), step), files[i]));
}

static void what_is_overwritten_meanwhile_is_saved_as_it_was(void **state)
{
    const char *waits = toy_mkdir();
    struct ckpt_save_facts f;
    struct ckpt_save *s;
    struct kit k;

    (void)state;
    open_kit(&k, 0);
    for (int64_t step = 1; step <= 9; step++) {
        char name[32];

        assert_int_equal(toy_save(waits, step, 0), 0);
        assert_int_equal(start(k.run, step, 0, k.w, &s), 0);
        assert_int_equal(finish(s, &f), 0);
        assert_same_step(waits, k.run, ckpt_step_name(name, step));
        assert_true(f.bytes > 0 && f.write_s > 0 && f.commit_s > 0);
    }
    close_kit(&k);
    toy_rmdir(waits);
}

/* In either phase what `latest` names is whole, and the old one is not gone
 * before the new one is there. */
static void the_old_one_stays_until_the_new_one_is_there(void **state)
{
    struct ckpt_save *s;
    struct kit k;
    int64_t *steps;
    int n;

    (void)state;
    open_kit(&k, 0);
    assert_int_equal(start(k.run, 1, 1, k.w, &s), 0);
    assert_int_equal(finish(s, NULL), 0);
    for (int64_t step = 2; step < 40; step++) {
        struct arena *a = arena_new();
        int phases = 0;

        assert_int_equal(start(k.run, step, 1, k.w, &s), 0);
        /* Nothing gets a name before the caller says so. */
        ckpt_writer_wait(k.w);
        assert_int_equal(ckpt_list_steps(a, k.run, &steps, &n), 0);
        assert_int_equal(n, 1);
        assert_int_equal(steps[0], step - 1);
        for (int rc = 1; rc > 0; phases++) {
            while (ckpt_save_busy(s)) {
                struct ckpt *c;

                assert_int_equal(ckpt_open(k.run, CKPT_NEED_MANIFEST, &c), 0);
                ckpt_close(c);
            }
            rc = ckpt_save_next(s, NULL);
            assert_true(rc >= 0);
        }
        assert_int_equal(phases, 2);
        assert_int_equal(ckpt_list_steps(a, k.run, &steps, &n), 0);
        assert_int_equal(n, 1);
        assert_int_equal(steps[0], step);
        arena_free(a);
    }
    close_kit(&k);
}

static void a_stage_that_is_too_small_is_our_bug(void **state)
{
    struct ckpt_save *s;
    struct kit k;

    (void)state;
    open_kit(&k, 1);
    assert_int_equal(start(k.run, 1, 0, k.w, &s), ERR_BUG);
    assert_non_null(strstr(err_msg(), "were planned"));
    assert_false(fs_exists(toy_path(k.run, "ckpt/step-00000001.tmp")));
    close_kit(&k);
}

static void a_save_given_up_leaves_nothing_in_either_phase(void **state)
{
    struct ckpt_save *s;
    struct kit k;

    (void)state;
    open_kit(&k, 0);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(start(k.run, 1, 0, k.w, &s), 0);
        ckpt_save_abort(s);
        assert_false(fs_exists(toy_path(k.run, "ckpt/step-00000001.tmp")));
        assert_false(fs_exists(toy_path(k.run, "latest")));
    }
    close_kit(&k);
}

/* The directory goes while the thread writes: the caller is told which file. */
static void what_the_thread_fails_with_comes_from_next(void **state)
{
    struct ckpt_save *s;
    struct kit k;
    int rc;

    (void)state;
    open_kit(&k, 0);
    assert_int_equal(start(k.run, 1, 0, k.w, &s), 0);
    ckpt_writer_wait(k.w);
    assert_int_equal(fs_remove_tree(toy_path(k.run, "ckpt/step-00000001.tmp")), 0);
    rc = finish(s, NULL);
    assert_int_equal(rc, ERR_CREATE);
    assert_non_null(strstr(err_msg(), "step-00000001.tmp/model.safetensors.index.json"));
    assert_false(fs_exists(toy_path(k.run, "latest")));
    /* The writer is as good as new. */
    assert_int_equal(start(k.run, 2, 0, k.w, &s), 0);
    assert_int_equal(finish(s, NULL), 0);
    close_kit(&k);
}

/* Last, since memory that was set aside stays so. */
static void saving_beside_a_run_asks_for_no_memory(void **state)
{
    struct ckpt_save *s;
    struct kit k;

    (void)state;
    open_kit(&k, 0);
    assert_int_equal(pool_reserve(ckpt_save_memory(TOY_N)), 0);
    for (int step = 1; step < 5; step++) {
        assert_int_equal(start(k.run, step, 2, k.w, &s), 0);
        assert_int_equal(finish(s, NULL), 0);
    }
    assert_int_equal(pool_overflow(), 0);
    assert_true(pool_peak() > 0);
    close_kit(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_overwritten_meanwhile_is_saved_as_it_was),
        cmocka_unit_test(the_old_one_stays_until_the_new_one_is_there),
        cmocka_unit_test(a_stage_that_is_too_small_is_our_bug),
        cmocka_unit_test(a_save_given_up_leaves_nothing_in_either_phase),
        cmocka_unit_test(what_the_thread_fails_with_comes_from_next),
        cmocka_unit_test(saving_beside_a_run_asks_for_no_memory),
    };

    return cmocka_run_group_tests_name("ckpt_async", tests, NULL, NULL);
}
