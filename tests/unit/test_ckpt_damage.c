/* test_ckpt_damage.c -- bytes that are right, in the wrong place; times, links
 * and devices that mislead; and bits that flip on their way to the disk. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "ckpt/gc.h"
#include "ckpt/load.h"
#include "ckpt/packing.h"
#include "ckpt/run.h"
#include "ckpt/safetensors.h"
#include "ckpt/save.h"
#include "ckpt/verify.h"
#include "unit/ckpt_toy.h"
#include "unit/fault_rig.h"

/* ---- two tensors of five pages each, in one file */

#define ROWS 5
#define PAGE 4096
static const char *const names[] = { "model.layers.0.mlp.experts.0.gate_proj.weight", "model.layers.0.mlp.experts.0.up_proj.weight" };

static void save_pages(const char *run, int64_t step, const char *who)
{
    static float v[2][ROWS * PAGE / 4];
    int64_t shape[2] = { ROWS, PAGE / 4 };
    struct manifest_info info = toy_info(step);
    struct ckpt_save *s;

    info.run_id = hash_bytes(who, strlen(who));
    for (int t = 0; t < 2; t++)
        for (int64_t i = 0; i < ROWS * PAGE / 4; i++)
            v[t][i] = (float)(i * 2 + t) + (float)step * 0.25f + (float)strlen(who) * 0.125f;
    assert_int_equal(ckpt_save_begin(run, &info, 0, &s), 0);
    assert_int_equal(ckpt_save_file(s, "config.json", "{}", 2), 0);
    for (int t = 0; t < 2; t++)
        assert_int_equal(ckpt_save_tensor(s, CKPT_MODEL, names[t], DT_F32, 2, shape, v[t]), 0);
    assert_int_equal(ckpt_save_tensor(s, CKPT_OPTIM, "a.momentum", DT_F32, 2, shape, v[0]), 0);
    assert_int_equal(ckpt_save_write(s), 0);
    assert_int_equal(ckpt_save_commit(s, 0), 0);
}

static void keep_first(void *ctx, const char *sentence)
{
    if (!*(char *)ctx)
        snprintf(ctx, ERR_MSG_MAX, "%s", sentence);
}

/* Verify tells of it first with this, and loading every tensor fails. */
static void found(const char *dir, const char *want)
{
    char first[ERR_MSG_MAX] = "";
    struct ckpt_verify v = { .problem = keep_first, .ctx = first };
    struct ckpt *c;
    int rc;

    assert_int_equal(ckpt_verify(dir, &v), 0);
    /* Without a MANIFEST it is no checkpoint, which verify is told apart by. */
    assert_true(v.n_problems > 0 || !v.has_manifest);
    if (v.n_problems && !strstr(first, want))
        fail_msg("expected \"%s\", got \"%s\"", want, first);
    rc = ckpt_open(dir, CKPT_NEED_MANIFEST, &c);
    if (rc == 0) {
        for (int64_t i = 0; rc == 0 && i < ckpt_n_tensors(c); i++) {
            const struct ckpt_tensor *t = ckpt_tensor(c, i);
            char *buf = malloc((size_t)t->bytes + 1);

            rc = ckpt_read(c, t, 0, (size_t)t->bytes, buf);
            free(buf);
        }
        ckpt_close(c);
    }
    assert_int_equal(rc, ERR_DATA);
    assert_non_null(strstr(err_msg(), dir));
}

static void sound(const char *dir)
{
    char first[ERR_MSG_MAX] = "";
    struct ckpt_verify v = { .problem = keep_first, .ctx = first };

    assert_int_equal(ckpt_verify(dir, &v), 0);
    if (v.n_problems || !v.has_manifest)
        fail_msg("%s: %s", dir, v.n_problems ? first : "no MANIFEST");
}

static void swap(char *a, char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char x = a[i];

        a[i] = b[i];
        b[i] = x;
    }
}

static void right_bytes_in_the_wrong_place_are_found(void **state)
{
    const char *run = toy_mkdir();
    char dir[512], path[600], *data, *good;
    size_t n, head;

    (void)state;
    save_pages(run, 1, "a");
    snprintf(dir, sizeof dir, "%s/ckpt/step-00000001", run);
    snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", dir);
    toy_get(path, &data, &n);
    good = malloc(n);
    memcpy(good, data, n);
    head = n - 2 * ROWS * PAGE;
    /* A page of zeros, at every page, and one that the disk cut across two. */
    for (size_t at = head % PAGE; at + PAGE <= n; at += at < head ? PAGE - at % PAGE + head % PAGE : PAGE / 2) {
        memcpy(data, good, n);
        memset(data + at, 0, PAGE);
        toy_put(path, data, n);
        found(dir, at < head ? "" : "checksum differs");
    }
    /* Two pages of one tensor; a page of each; the tensors, whole. */
    memcpy(data, good, n);
    swap(data + head, data + head + PAGE, PAGE);
    toy_put(path, data, n);
    found(dir, "gate_proj.weight\": checksum differs");
    memcpy(data, good, n);
    swap(data + head + PAGE, data + head + ROWS * PAGE + PAGE, PAGE);
    toy_put(path, data, n);
    found(dir, "gate_proj.weight\": checksum differs");
    memcpy(data, good, n);
    swap(data + head, data + head + ROWS * PAGE, ROWS * PAGE);
    toy_put(path, data, n);
    found(dir, "gate_proj.weight\": checksum differs");
    /* All of it moved on by four bytes, by a page, and turned around. */
    for (size_t by = 4; by <= PAGE; by *= 32) {
        memcpy(data, good, head);
        memcpy(data + head + by, good + head, n - head - by);
        memcpy(data + head, good + n - by, by);
        toy_put(path, data, n);
        found(dir, "checksum differs");
        memcpy(data, good + by, n - by);
        memcpy(data + n - by, good, by);
        toy_put(path, data, n);
        found(dir, "model-00001-of-00001.safetensors: ");
    }
    toy_put(path, good, n);
    sound(dir);
    free(data);
    free(good);
    toy_rmdir(run);
}

static void files_of_another_run_or_step_are_refused(void **state)
{
    static const char *const files[] = {
        "MANIFEST.json", "model-00001-of-00001.safetensors", "optim/optim-00001-of-00001.safetensors",
    };
    const char *run = toy_mkdir(), *other = toy_mkdir();
    char dir[512], path[600], *mine, *theirs;
    size_t n, m;

    (void)state;
    save_pages(run, 1, "a");
    save_pages(run, 2, "a");
    save_pages(other, 2, "another run");
    snprintf(dir, sizeof dir, "%s/ckpt/step-00000002", run);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s/%s", dir, files[i]);
            toy_get(path, &mine, &n);
            toy_get(toy_path(k ? other : run, toy_path(k ? "ckpt/step-00000002" : "ckpt/step-00000001", files[i])), &theirs, &m);
            toy_put(path, theirs, m);
            found(dir, "checksum differs");
            toy_put(path, mine, n);
            free(mine);
            free(theirs);
        }
    /* The optimizer's file as one of the model, and the other way round. */
    for (int i = 1; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        toy_get(path, &mine, &n);
        toy_get(toy_path(dir, files[3 - i]), &theirs, &m);
        toy_put(path, theirs, m);
        found(dir, files[i]);
        toy_put(path, mine, n);
        free(mine);
        free(theirs);
    }
    sound(dir);
    toy_rmdir(run);
    toy_rmdir(other);
}

/* ---- packed */

static int unpacks(const char *path, const char *to)
{
    struct packing p = { .base = NULL };
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    assert_true(fd >= 0);
    rc = packing_read(fd, path, to, &p);
    close(fd);
    return rc;
}

static int to_file(void *ctx, const void *data, size_t n) { return fs_out_write(ctx, data, n); }

/* Every byte in turn with another bit flipped, and every place to cut it. */
static void no_byte_of_a_packed_stream_changes_unseen(void **state)
{
    const char *run = toy_mkdir();
    char path[600], out[600], *data;
    struct packing p = { .tool = "toy 1" };
    struct fs_out *f;
    struct ckpt *c;
    size_t n, each = getenv("MOE_LONG") ? 1 : 4, n_unused = 0;

    (void)state;
    snprintf(path, sizeof path, "%s/packed", run);
    snprintf(out, sizeof out, "%s/out", run);
    assert_int_equal(toy_save(run, 1, 0), 0);
    assert_int_equal(ckpt_open(run, 0, &c), 0);
    assert_int_equal(fs_out_open(path, &f), 0);
    assert_int_equal(packing_write(c, to_file, f, &p), 0);
    assert_int_equal(fs_out_commit(f), 0);
    ckpt_close(c);
    toy_get(path, &data, &n);
    for (size_t at = 0; at < n; at += each) {
        data[at] ^= (char)(1 << at % 8);
        toy_put(path, data, n);
        err_clear();
        if (unpacks(path, out) == 0) {
            /* A bit that decompression does not look at. */
            if (!rig_same(out, toy_path(run, "ckpt/step-00000001")))
                fail_msg("byte %zu of %zu: another checkpoint comes out in silence", at, n);
            assert_int_equal(fs_remove_tree(out), 0);
            n_unused++;
        } else if (err_last() != ERR_DATA || !strstr(err_msg(), path) || access(out, F_OK) == 0) {
            fail_msg("byte %zu of %zu: %s", at, n, err_msg());
        }
        data[at] ^= (char)(1 << at % 8);
    }
    for (size_t size = 0; size < n; size += each) {
        toy_put(path, data, size);
        if (unpacks(path, out) != ERR_DATA || access(out, F_OK) == 0)
            fail_msg("%zu of %zu bytes: %s", size, n, err_msg());
    }
    print_message("# %zu bits of %zu bytes change nothing\n", n_unused, n);
    assert_true(n_unused < n / each / 50);
    toy_put(path, data, n);
    assert_int_equal(unpacks(path, out), 0);
    free(data);
    toy_rmdir(run);
}

/* ---- clocks */

static void set_time(const char *path, int64_t s)
{
    struct timespec t[2] = { { s, 0 }, { s, 0 } };

    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void order_is_by_step_whatever_the_clock_says(void **state)
{
    /* Ten years back, the same for all, and after the year 2038. */
    static const int64_t base[] = { 1480000000, 1796000000, 2148000000 }, slope[] = { -1000, 0, -5 };
    struct gc_rules rules = { .keep = 1 };

    (void)state;
    for (int k = 0; k < 3; k++) {
        const char *run = toy_mkdir();
        struct arena *a = arena_new();
        struct gc_item *items;
        struct ckpt *c;
        int n;

        for (int64_t step = 8; step <= 12; step++) {
            char dir[512], name[32];

            assert_int_equal(toy_save(run, step, 0), 0);
            snprintf(dir, sizeof dir, "%s/ckpt/%s", run, ckpt_step_name(name, step));
            set_time(toy_path(dir, "MANIFEST.json"), base[k] + slope[k] * step);
            set_time(dir, base[k] + slope[k] * step);
        }
        assert_int_equal(unlink(toy_path(run, "latest")), 0);
        assert_int_equal(ckpt_open(run, CKPT_NEED_MANIFEST, &c), 0);
        assert_int_equal(ckpt_manifest(c)->info.step, 12);
        ckpt_close(c);
        assert_int_equal(gc_plan(a, run, &rules, &items, &n), 0);
        assert_int_equal(gc_apply(run, items, n), 0);
        assert_int_equal(gc_plan(a, run, &rules, &items, &n), 0);
        assert_int_equal(n, 1);
        assert_int_equal(items[0].step, 12);
        arena_free(a);
        toy_rmdir(run);
    }
}

/* ---- links and devices */

static void links_do_not_lead_a_removal_out_of_the_run(void **state)
{
    const char *run = toy_mkdir(), *away = toy_mkdir();
    struct gc_rules rules = { .keep = 1 };
    struct arena *a = arena_new();
    struct gc_item *items;
    int n;

    (void)state;
    assert_int_equal(toy_save(away, 1, 0), 0);
    assert_int_equal(toy_save(away, 2, 0), 0);
    assert_int_equal(toy_save(run, 3, 0), 0);
    /* Under the name of a save that was killed, of its files, and of a step. */
    assert_int_equal(symlink(toy_path(away, "ckpt/step-00000001"), toy_path(run, "ckpt/step-00000004.tmp")), 0);
    assert_int_equal(symlink(toy_path(away, "ckpt/step-00000001"), toy_path(run, "ckpt/step-00000009.tmp")), 0);
    assert_int_equal(symlink(toy_path(away, "ckpt"), toy_path(run, ".x.moe-tmp")), 0);
    assert_int_equal(symlink(toy_path(away, "ckpt/step-00000002"), toy_path(run, "ckpt/step-00000002")), 0);
    assert_int_equal(toy_save(run, 4, 0), 0);
    sound(toy_path(run, "ckpt/step-00000004"));
    assert_int_equal(access(toy_path(run, "ckpt/step-00000009.tmp"), F_OK), -1);
    assert_int_equal(access(toy_path(run, ".x.moe-tmp"), F_OK), -1);
    assert_int_equal(gc_plan(a, run, &rules, &items, &n), 0);
    assert_int_equal(gc_apply(run, items, n), 0);
    assert_int_equal(access(toy_path(run, "ckpt/step-00000002"), F_OK), -1);
    assert_int_equal(access(toy_path(run, "ckpt/step-00000003"), F_OK), -1);
    sound(toy_path(away, "ckpt/step-00000001"));
    sound(toy_path(away, "ckpt/step-00000002"));
    /* The step that is to be saved is there as a link: it is not written through. */
    assert_int_equal(symlink(toy_path(away, "ckpt/step-00000002"), toy_path(run, "ckpt/step-00000005")), 0);
    assert_int_equal(toy_save(run, 5, 1), 0);
    sound(toy_path(run, "ckpt/step-00000005"));
    sound(toy_path(away, "ckpt/step-00000002"));
    arena_free(a);
    toy_rmdir(run);
    toy_rmdir(away);
}

static void pipes_and_devices_are_refused_and_nobody_waits(void **state)
{
    static const char *const files[] = { "model-00001-of-00003.safetensors", "model.safetensors.index.json", "MANIFEST.json", "optim/index.json" };
    const char *run = toy_mkdir();
    char dir[512];

    (void)state;
    assert_int_equal(toy_save(run, 1, 0), 0);
    snprintf(dir, sizeof dir, "%s/ckpt/step-00000001", run);
    alarm(20);
    for (int i = 0; i < 4; i++) {
        char path[600];

        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        assert_int_equal(rename(path, toy_path(run, "aside")), 0);
        for (int k = 0; k < 4; k++) {
            if (k == 0)
                assert_int_equal(mkfifo(path, 0666), 0);
            else if (k == 1)
                assert_int_equal(mkdir(path, 0777), 0);
            else
                assert_int_equal(symlink(k == 2 ? "/dev/zero" : path, path), 0);
            found(dir, files[i]);
            assert_int_equal(k == 1 ? rmdir(path) : unlink(path), 0);
        }
        assert_int_equal(rename(toy_path(run, "aside"), path), 0);
    }
    alarm(0);
    sound(dir);
    toy_rmdir(run);
}

/* ---- hostile headers */

/* A text of n times `piece` between two others, refused with the sentence. */
static void refused(const char *before, const char *piece, int n, const char *after, const char *want, double most_s)
{
    size_t len = strlen(before), k = strlen(piece);
    char *text = malloc(len + (size_t)n * k + strlen(after) + 1);
    struct st_header *h;
    double start;

    assert_non_null(text);
    memcpy(text, before, len);
    for (int i = 0; i < n; i++)
        memcpy(text + len + (size_t)i * k, piece, k);
    strcpy(text + len + (size_t)n * k, after);
    start = clock_s();
    assert_int_equal(st_parse("f", text, strlen(text), 8, &h), ERR_DATA);
    if (!strstr(err_msg(), want))
        fail_msg("expected \"%s\", got \"%s\"", want, err_msg());
    if (clock_s() - start > most_s)
        fail_msg("%s: %.3f s", want, clock_s() - start);
    assert_true(strlen(err_msg()) < 2000);
    free(text);
}

static void deep_wide_and_endless_headers_are_refused_at_once(void **state)
{
    struct rusage before, after;

    (void)state;
    getrusage(RUSAGE_SELF, &before);
    refused("{\"a\":", "[", 100000, "", "expected '{' of an entry", 0.1);
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":", "[", 100000, "", "expected a dimension", 0.1);
    refused("{\"__metadata__\":", "{\"a\":", 100000, "", "expected a __metadata__ value", 0.1);
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1", ",1", 9999, "],\"data_offsets\":[0,1]}}", "more than 16 dimensions", 0.1);
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[", "9", 100000, "],\"data_offsets\":[0,1]}}", "over 2^53", 0.1);
    refused("{\"", "x", 1 << 20, "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "over 1024 bytes", 0.1);
    refused("{\"__metadata__\":{\"k\":\"", "\\u0041", 100000, "", "a string", 0.1);
    refused("{", " ", 10000000, "", "expected a tensor name", 0.5);
    /* A million entries of one name: the second is refused. */
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}", ",\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}", 300000,
            "}", "appears twice", 5);
    getrusage(RUSAGE_SELF, &after);
    print_message("# %ld KiB\n", after.ru_maxrss - before.ru_maxrss);
}

/* ---- between the hash and the disk */

/* Every write of a command in its turn hands on another bit than it was given:
 * the command cannot know, whoever reads must. */
static void flips_are_found(const char *name, const char *kind, int (*look)(const char *work))
{
    const struct rig_cmd *c = rig_named(name);
    const struct rig_report *r;
    long calls, n_found = 0;
    int64_t step;
    char spec[64];

    rig_template(c);
    for (long n = 1;; n++) {
        snprintf(spec, sizeof spec, "%s:%ld:FLIP", kind, n);
        rig_reset(c);
        r = rig_run(c, spec, kind, -1);
        assert_int_equal(r->signal, 0);
        calls = r->calls;
        if (calls < n)
            break;
        if (r->code == 0 && look(rig_work()) == 0)
            fail_msg("%s, %s: nobody sees it", name, spec);
        n_found++;
        /* What was there before still loads. */
        if (c->run_dir) {
            assert_int_equal(fs_remove_tree(toy_path(rig_work(), "run/ckpt/step-00000002")), 0);
            assert_int_equal(fs_symlink_replace("ckpt/step-00000001", toy_path(rig_work(), "run/latest")), 0);
            assert_int_equal(rig_sound(c, rig_work(), &step), 0);
            assert_int_equal(step, 1);
        }
    }
    assert_true(n_found > 0);
    print_message("# %s: %ld writes\n", name, n_found);
}

static int problems(const char *dir)
{
    struct ckpt_verify v = { 0 };
    int rc = ckpt_verify(dir, &v);

    return rc < 0 ? rc : (int)v.n_problems;
}

static int look_at_step(const char *work) { return problems(toy_path(work, "run/ckpt/step-00000002")); }
static int look_at_out(const char *work) { return problems(toy_path(work, "out")); }

static int look_at_pack(const char *work)
{
    assert_int_equal(rename(toy_path(work, "out"), toy_path(work, "in")), 0);
    return rig_run(rig_named("unpack"), NULL, "any", -1)->code;
}

static void a_bit_that_flips_between_hash_and_disk_is_found(void **state)
{
    (void)state;
    rig_need();
    flips_are_found("save", "pwrite", look_at_step);
    flips_are_found("convert", "pwrite", look_at_out);
    flips_are_found("reshard", "pwrite", look_at_out);
    flips_are_found("average", "pwrite", look_at_out);
    flips_are_found("unpack", "pwrite", look_at_out);
    flips_are_found("pack", "pwrite", look_at_pack);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_bytes_in_the_wrong_place_are_found),
        cmocka_unit_test(files_of_another_run_or_step_are_refused),
        cmocka_unit_test(no_byte_of_a_packed_stream_changes_unseen),
        cmocka_unit_test(order_is_by_step_whatever_the_clock_says),
        cmocka_unit_test(links_do_not_lead_a_removal_out_of_the_run),
        cmocka_unit_test(pipes_and_devices_are_refused_and_nobody_waits),
        cmocka_unit_test(deep_wide_and_endless_headers_are_refused_at_once),
        cmocka_unit_test(a_bit_that_flips_between_hash_and_disk_is_found),
    };
    int rc;

    /* Thousands of files are synced; none is to outlive this. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
    rig_enter(argc, argv);
    rc = cmocka_run_group_tests_name("ckpt_damage", tests, NULL, NULL);
    rig_leave();
    return rc;
}
