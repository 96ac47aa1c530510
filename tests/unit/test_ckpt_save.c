/* test_ckpt_save.c -- what was saved is what is loaded, and nothing else is.
 *
 * test_ckpt_save save RUN STEP KEEP   saves the toy: for the fault tests
 * test_ckpt_save load RUN STEP...     reads every byte of whatever RUN opens
 *                                     as; it must be one of the steps, whole */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/pool.h"
#include "ckpt/load.h"
#include "ckpt/run.h"
#include "ckpt/save.h"
#include "ckpt/verify.h"
#include "unit/ckpt_toy.h"

/* 0 when every tensor of c is the toy of its step, bit for bit. */
static int check_toy(const struct ckpt *c, int64_t step)
{
    for (int t = 0; t < TOY_N; t++) {
        const struct ckpt_tensor *found;
        int64_t n = toy_count(t);
        float got[64];

        TRY(ckpt_need(c, toy_tensors[t].name, toy_tensors[t].n_dims, toy_tensors[t].shape, &found));
        TRY(ckpt_read_f32(c, found, 0, n, got));
        for (int64_t i = 0; i < n; i++) {
            float want = toy_value(t, i, step);

            if (memcmp(&got[i], &want, 4))
                return err_set(ERR_BUG, "%s[%d] is %g, not %g", found->name, (int)i, (double)got[i], (double)want);
        }
    }
    return 0;
}

static int load_and_check(const char *path, int64_t step)
{
    struct fs_blob b;
    struct ckpt *c;
    int rc;

    TRY(ckpt_open(path, CKPT_NEED_MANIFEST, &c));
    rc = check_toy(c, step);
    if (rc == 0)
        rc = ckpt_read_file(c, "config.json", &b);
    if (rc == 0)
        fs_blob_free(&b);
    ckpt_close(c);
    return rc;
}

static int64_t problems(const char *dir)
{
    struct ckpt_verify v = { 0 };

    assert_int_equal(ckpt_verify(dir, &v), 0);
    return v.n_problems;
}

static void keep_first(void *ctx, const char *sentence)
{
    char *first = ctx;

    if (!*first)
        snprintf(first, ERR_MSG_MAX, "%s", sentence);
}

/* The one problem that verify has with a directory. */
static void assert_problem(const char *dir, const char *want)
{
    char first[ERR_MSG_MAX] = "";
    struct ckpt_verify v = { .problem = keep_first, .ctx = first };

    assert_int_equal(ckpt_verify(dir, &v), 0);
    if (!strstr(first, want))
        print_message("# expected \"%s\", got \"%s\"\n", want, first);
    assert_non_null(strstr(first, want));
    assert_true(v.n_problems > 0);
}

static const char *const toy_files[] = {
    "config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
    "model-00003-of-00003.safetensors", "optim/index.json", "optim/optim-00001-of-00002.safetensors",
    "optim/optim-00002-of-00002.safetensors", "MANIFEST.json",
};

#define N_FILES ((int)(sizeof toy_files / sizeof *toy_files))

static void what_was_saved_is_loaded_bit_for_bit(void **state)
{
    const char *run = toy_mkdir();
    struct ckpt_verify v = { 0 };
    struct ckpt *c;

    (void)state;
    assert_int_equal(toy_save(run, 12, 0), 0);
    assert_int_equal(load_and_check(run, 12), 0);
    assert_int_equal(load_and_check(toy_path(run, "latest"), 12), 0);
    assert_int_equal(load_and_check(toy_path(run, "ckpt/step-00000012"), 12), 0);
    assert_int_equal(ckpt_verify(toy_path(run, "latest"), &v), 0);
    assert_int_equal(v.n_problems, 0);
    assert_true(v.has_manifest);
    assert_int_equal(v.n_files, N_FILES - 1);
    assert_int_equal(v.n_tensors, TOY_N);
    assert_int_equal(ckpt_open(run, 0, &c), 0);
    assert_null(ckpt_note(c));
    assert_int_equal(ckpt_kind(c), CKPT_COMPLETE);
    assert_int_equal(ckpt_manifest(c)->info.step, 12);
    assert_string_equal(ckpt_manifest(c)->info.argv[2], "a \"b\"\n");
    assert_string_equal(ckpt_manifest(c)->info.sets[0].path, "data/train");
    assert_int_equal(ckpt_manifest(c)->info.ep, 3);
    ckpt_close(c);
    toy_rmdir(run);
}

static void any_range_of_a_tensor_can_be_read(void **state)
{
    const char *run = toy_mkdir();
    const struct ckpt_tensor *t;
    struct ckpt *c;
    char all[140], some[140];

    (void)state;
    assert_int_equal(toy_save(run, 3, 0), 0);
    assert_int_equal(ckpt_open(run, 0, &c), 0);
    t = ckpt_find(c, "model.embed_tokens.weight");
    assert_int_equal(t->bytes, 140);
    assert_int_equal(ckpt_read(c, t, 0, 140, all), 0);
    for (uint64_t first = 0; first < 140; first += 13)
        for (size_t n = 0; n <= 140 - first; n += 7) {
            memset(some, 0x55, sizeof some);
            assert_int_equal(ckpt_read(c, t, first, n, some), 0);
            assert_memory_equal(some, all + first, n);
            assert_true(n == 140 || some[n] == 0x55);
        }
    assert_null(ckpt_find(c, "no such"));
    assert_int_equal(ckpt_need(c, "no such", 0, NULL, &t), ERR_DATA);
    assert_int_equal(ckpt_need(c, "lm_head.weight", 2, (int64_t[]){ 7, 5 }, &t), ERR_DATA);
    assert_non_null(strstr(err_msg(), "has the shape [5, 7], expected [7, 5]"));
    ckpt_close(c);
    toy_rmdir(run);
}

static void the_same_content_gives_the_same_bytes(void **state)
{
    const char *one = toy_mkdir(), *two = toy_mkdir();

    (void)state;
    assert_int_equal(toy_save(one, 5, 0), 0);
    assert_int_equal(toy_save(two, 4, 0), 0);
    assert_int_equal(toy_save(two, 5, 1), 0);
    for (int i = 0; i < N_FILES; i++) {
        char *a, *b;
        size_t n, m;

        toy_get(toy_path(toy_path(one, "latest"), toy_files[i]), &a, &n);
        toy_get(toy_path(toy_path(two, "latest"), toy_files[i]), &b, &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        free(a);
        free(b);
    }
    toy_rmdir(one);
    toy_rmdir(two);
}

static void keep_removes_the_oldest_and_leftovers_go(void **state)
{
    const char *run = toy_mkdir();
    struct arena *a = arena_new();
    int64_t *steps;
    int n;

    (void)state;
    for (int64_t step = 1; step <= 5; step++)
        assert_int_equal(toy_save(run, step, 3), 0);
    assert_int_equal(mkdir(toy_path(run, "ckpt/step-00000009.tmp"), 0777), 0);
    toy_put(toy_path(run, "ckpt/step-00000009.tmp/MANIFEST.json"), "x", 1);
    assert_int_equal(toy_save(run, 6, 3), 0);
    assert_false(fs_exists(toy_path(run, "ckpt/step-00000009.tmp")));
    assert_int_equal(ckpt_list_steps(a, run, &steps, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(steps[0], 4);
    assert_int_equal(steps[2], 6);
    /* Going back: the step is replaced, later ones stay. */
    assert_int_equal(toy_save(run, 5, 3), 0);
    assert_int_equal(load_and_check(run, 5), 0);
    assert_int_equal(ckpt_list_steps(a, run, &steps, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(problems(toy_path(run, "ckpt/step-00000005")), 0);
    assert_int_equal(problems(toy_path(run, "ckpt/step-00000006")), 0);
    arena_free(a);
    toy_rmdir(run);
}

/* Writes a damaged copy of one file of the checkpoint, and looks whether it is seen. */
static void assert_damage_seen(const char *dir, const char *name, const char *data, size_t n, int64_t step)
{
    int rc;

    toy_put(toy_path(dir, name), data, n);
    if (problems(dir) == 0)
        print_message("# unseen in %s\n", name);
    assert_true(problems(dir) > 0);
    /* A load may succeed when the damage is in what it does not use; then it
     * must have got the right bytes. */
    rc = load_and_check(dir, step);
    if (rc < 0 && rc != ERR_DATA)
        print_message("# %s\n", err_msg());
    assert_true(rc == 0 || rc == ERR_DATA);
}

static void every_flipped_bit_is_found(void **state)
{
    const char *run = toy_mkdir(), *dir;

    (void)state;
    assert_int_equal(toy_save(run, 7, 0), 0);
    dir = toy_path(run, "ckpt/step-00000007");
    dir = strdup(dir);
    for (int i = 0; i < N_FILES; i++) {
        char *data;
        size_t n;

        toy_get(toy_path(dir, toy_files[i]), &data, &n);
        for (size_t at = 0; at < n; at++) {
            data[at] ^= (char)(1 << at % 8);
            assert_damage_seen(dir, toy_files[i], data, n, 7);
            data[at] ^= (char)(1 << at % 8);
        }
        toy_put(toy_path(dir, toy_files[i]), data, n);
        free(data);
    }
    assert_int_equal(problems(dir), 0);
    free((void *)(uintptr_t)dir);
    toy_rmdir(run);
}

static void every_truncation_and_growth_is_found(void **state)
{
    const char *run = toy_mkdir(), *dir;

    (void)state;
    assert_int_equal(toy_save(run, 7, 0), 0);
    dir = strdup(toy_path(run, "ckpt/step-00000007"));
    for (int i = 0; i < N_FILES; i++) {
        char *data;
        size_t n;

        toy_get(toy_path(dir, toy_files[i]), &data, &n);
        for (size_t size = 0; size < n; size += size < 16 ? 1 : 5)
            /* The newline after the MANIFEST's own hash is not covered by it. */
            if (strcmp(toy_files[i], MANIFEST_NAME) || size < n - 1)
                assert_damage_seen(dir, toy_files[i], data, size, 7);
        data[n] = 'x';
        assert_damage_seen(dir, toy_files[i], data, n + 1, 7);
        assert_int_equal(unlink(toy_path(dir, toy_files[i])), 0);
        if (strcmp(toy_files[i], MANIFEST_NAME)) {
            assert_problem(dir, "No such file or directory");
            assert_problem(dir, toy_files[i]);
        }
        toy_put(toy_path(dir, toy_files[i]), data, n);
        free(data);
    }
    assert_int_equal(problems(dir), 0);
    free((void *)(uintptr_t)dir);
    toy_rmdir(run);
}

static void foreign_files_are_named(void **state)
{
    const char *run = toy_mkdir();
    char *dir;
    char *one, *other;
    size_t n, m;

    (void)state;
    assert_int_equal(toy_save(run, 1, 0), 0);
    assert_int_equal(toy_save(run, 2, 0), 0);
    dir = strdup(toy_path(run, "ckpt/step-00000002"));
    /* A shard of the step before: same names, same header. */
    toy_get(toy_path(dir, toy_files[2]), &one, &n);
    toy_get(toy_path(toy_path(run, "ckpt/step-00000001"), toy_files[2]), &other, &m);
    toy_put(toy_path(dir, toy_files[2]), other, m);
    assert_problem(dir, "model-00001-of-00003.safetensors: tensor \"model.embed_tokens.weight\": checksum differs");
    assert_int_equal(load_and_check(dir, 2), ERR_DATA);
    free(other);
    /* Another shard under its name. */
    toy_get(toy_path(dir, toy_files[3]), &other, &m);
    toy_put(toy_path(dir, toy_files[2]), other, m);
    assert_problem(dir, "model-00001-of-00003.safetensors: ");
    assert_int_equal(load_and_check(dir, 2), ERR_DATA);
    free(other);
    toy_put(toy_path(dir, toy_files[2]), one, n);
    free(one);
    /* The MANIFEST of another step. */
    toy_get(toy_path(dir, MANIFEST_NAME), &one, &n);
    toy_get(toy_path(toy_path(run, "ckpt/step-00000001"), MANIFEST_NAME), &other, &m);
    toy_put(toy_path(dir, MANIFEST_NAME), other, m);
    assert_problem(dir, "checksum differs");
    free(other);
    toy_put(toy_path(dir, MANIFEST_NAME), one, n);
    free(one);
    /* Files that nobody listed. */
    toy_put(toy_path(dir, "model-00004-of-00003.safetensors"), "x", 1);
    assert_problem(dir, "model-00004-of-00003.safetensors: not listed in MANIFEST.json");
    assert_int_equal(unlink(toy_path(dir, "model-00004-of-00003.safetensors")), 0);
    toy_put(toy_path(dir, "optim/x"), "x", 1);
    assert_problem(dir, "optim/x: not listed in MANIFEST.json");
    assert_int_equal(unlink(toy_path(dir, "optim/x")), 0);
    assert_int_equal(problems(dir), 0);
    /* A pipe under a file's name must not hold anybody up. */
    for (int i = 0; i < N_FILES; i++) {
        assert_int_equal(rename(toy_path(dir, toy_files[i]), toy_path(run, "aside")), 0);
        assert_int_equal(mkfifo(toy_path(dir, toy_files[i]), 0666), 0);
        assert_problem(dir, "not a regular file");
        assert_int_equal(load_and_check(dir, 2), ERR_DATA);
        assert_int_equal(rename(toy_path(run, "aside"), toy_path(dir, toy_files[i])), 0);
    }
    assert_int_equal(problems(dir), 0);
    free(dir);
    toy_rmdir(run);
}

/* Opens a run whose latest is broken. */
static void assert_fallback(const char *run, int64_t step, const char *why)
{
    struct ckpt *c;

    assert_int_equal(ckpt_open(run, CKPT_NEED_MANIFEST, &c), 0);
    assert_int_equal(check_toy(c, step), 0);
    assert_non_null(ckpt_note(c));
    if (!strstr(ckpt_note(c), why))
        print_message("# expected \"%s\", got \"%s\"\n", why, ckpt_note(c));
    assert_non_null(strstr(ckpt_note(c), why));
    ckpt_close(c);
    assert_int_equal(ckpt_open(run, CKPT_NO_FALLBACK, &c), ERR_DATA);
}

static void a_broken_latest_leads_to_the_newest_whole_one(void **state)
{
    static const char *const targets[] = { "/etc", "ckpt/step-00000099", "../x", "ckpt/../ckpt/step-00000001", "latest", "ckpt/step-2" };
    const char *run = toy_mkdir();
    char *latest = strdup(toy_path(run, "latest"));
    struct ckpt *c;

    (void)state;
    for (int64_t step = 1; step <= 3; step++)
        assert_int_equal(toy_save(run, step, 0), 0);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_int_equal(unlink(latest), 0);
        assert_int_equal(symlink(targets[i], latest), 0);
        assert_fallback(run, 3, i == 1 ? "points to ckpt/step-00000099, which is not there" : "does not point to a step of this run");
    }
    assert_int_equal(unlink(latest), 0);
    assert_fallback(run, 3, "No such file or directory");
    assert_int_equal(mkdir(latest, 0777), 0);
    assert_fallback(run, 3, "not a symbolic link");
    assert_int_equal(rmdir(latest), 0);
    /* The newest is damaged in a tensor, the next one lacks its MANIFEST. */
    assert_int_equal(toy_save(run, 4, 0), 0);
    assert_int_equal(unlink(toy_path(run, "ckpt/step-00000004/MANIFEST.json")), 0);
    toy_put(toy_path(run, "ckpt/step-00000003/config.json"), "{\"model_type\": \"tox\"}\n", 22);
    assert_fallback(run, 2, "step-00000004: no MANIFEST.json");
    /* Nothing whole is left. */
    for (int64_t step = 1; step <= 2; step++) {
        char name[64], step_name[32];

        snprintf(name, sizeof name, "ckpt/%s/MANIFEST.json", ckpt_step_name(step_name, step));
        assert_int_equal(truncate(toy_path(run, name), 100), 0);
    }
    assert_int_equal(ckpt_open(run, 0, &c), ERR_DATA);
    assert_non_null(strstr(err_msg(), "no checkpoint that verifies"));
    free(latest);
    toy_rmdir(run);
}

static void what_is_no_checkpoint_is_refused(void **state)
{
    const char *run = toy_mkdir();
    struct ckpt *c;

    (void)state;
    assert_int_equal(ckpt_open(toy_path(run, "none"), 0, &c), ERR_NOINPUT);
    assert_int_equal(ckpt_open(run, 0, &c), ERR_NOINPUT);
    toy_put(toy_path(run, "a.safetensors"), "\2\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(ckpt_open(run, CKPT_NEED_MANIFEST, &c), ERR_DATA);
    assert_int_equal(ckpt_open(toy_path(run, "a.safetensors"), CKPT_NEED_MANIFEST, &c), ERR_DATA);
    assert_int_equal(ckpt_open(run, 0, &c), 0);
    assert_int_equal(ckpt_kind(c), CKPT_HF_DIR);
    ckpt_close(c);
    assert_int_equal(ckpt_open(toy_path(run, "a.safetensors"), 0, &c), 0);
    assert_int_equal(ckpt_kind(c), CKPT_ONE_FILE);
    ckpt_close(c);
    toy_put(toy_path(run, "b.safetensors"), "\2\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(ckpt_open(run, 0, &c), ERR_DATA);
    assert_non_null(strstr(err_msg(), "several .safetensors files"));
    toy_rmdir(run);
}

static void room_is_checked_before_it_is_needed(void **state)
{
    const char *run = toy_mkdir();

    (void)state;
    assert_int_equal(ckpt_room(run, 1000, 10), 0);
    assert_int_equal(ckpt_room(toy_path(run, "not/yet/there"), 1000, 10), 0);
    assert_int_equal(ckpt_room(run, (uint64_t)1 << 60, 10), ERR_CREATE);
    assert_non_null(strstr(err_msg(), " of tensors and needs up to "));
    toy_rmdir(run);
}

/* The reserve stays for the rest of the process: this is the last test. */
static void saving_in_a_run_asks_for_no_memory(void **state)
{
    const char *run = toy_mkdir();

    (void)state;
    assert_int_equal(pool_reserve(ckpt_save_memory(TOY_N)), 0);
    for (int64_t step = 1; step <= 20; step++)
        assert_int_equal(toy_save(run, step, 2), 0);
    print_message("# %zu of %zu bytes\n", pool_peak(), ckpt_save_memory(TOY_N));
    assert_int_equal(pool_overflow(), 0);
    assert_int_equal(load_and_check(run, 20), 0);
    toy_rmdir(run);
}

/* ---- as a program */

static int load_one_of(const char *run, int n, char **steps)
{
    for (int i = 0; i < n; i++)
        if (load_and_check(run, atol(steps[i])) == 0) {
            printf("%s\n", steps[i]);
            return 0;
        }
    fprintf(stderr, "%s\n", err_msg());
    return 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_is_loaded_bit_for_bit),
        cmocka_unit_test(any_range_of_a_tensor_can_be_read),
        cmocka_unit_test(the_same_content_gives_the_same_bytes),
        cmocka_unit_test(keep_removes_the_oldest_and_leftovers_go),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(every_truncation_and_growth_is_found),
        cmocka_unit_test(foreign_files_are_named),
        cmocka_unit_test(a_broken_latest_leads_to_the_newest_whole_one),
        cmocka_unit_test(what_is_no_checkpoint_is_refused),
        cmocka_unit_test(room_is_checked_before_it_is_needed),
        cmocka_unit_test(saving_in_a_run_asks_for_no_memory),
    };

    if (argc > 4 && !strcmp(argv[1], "save")) {
        int rc = toy_save(argv[2], atol(argv[3]), (int)atol(argv[4]));

        if (rc < 0)
            fprintf(stderr, "%s\n", err_msg());
        return err_status(rc);
    }
    if (argc > 3 && !strcmp(argv[1], "load"))
        return load_one_of(argv[2], argc - 3, argv + 3);
    return cmocka_run_group_tests_name("ckpt_save", tests, NULL, NULL);
}
