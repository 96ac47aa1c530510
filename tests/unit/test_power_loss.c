/* test_power_loss.c -- the power fails after any call, and takes along what was
 * not yet synced.
 *
 * The trace of a command is fed to a model of a disk (power_model.h), and after
 * each call the tree that may be found at the next start is written out: with
 * all pending changes lost; with all there; names without their data; data
 * without names; each pending name alone kept, and alone lost; and by lot, also
 * half a write.  In every one of them something whole is found, damage is never
 * taken for whole, and the same command again ends well.  After the command has
 * said that it is done, all of it is there whatever is lost. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fs.h"
#include "fault/fault.h"
#include "unit/ckpt_toy.h"
#include "unit/fault_rig.h"
#include "unit/power_model.h"

static long n_cases, n_reruns;

static const char *text(const struct power_choice *c)
{
    static const char *const fate[] = { "lost", "kept", "by lot" };
    static char buf[128];

    snprintf(buf, sizeof buf, "names %s, data %s, but name %d, seed %d", fate[c->names], fate[c->data], c->one, (int)c->seed);
    return buf;
}

/* After `calls` calls; done: the command has ended.  0, or the sentence is in
 * err_msg(). */
static int one(const struct rig_cmd *c, const struct power *p, const struct power_choice *choice, int calls, _Bool done, _Bool again)
{
    const struct rig_report *r;
    int64_t step;

    assert_int_equal(fs_remove_tree(rig_work()), 0);
    power_fail(p, choice, rig_work());
    n_cases++;
    if (rig_sound(c, rig_work(), &step) < 0)
        return err_add("%s: after %d calls, %s", c->name, calls, text(choice));
    if (done && !rig_done(c))
        return err_set(ERR_NO, "%s: it said that it was done; %s: it is not", c->name, text(choice));
    if (!again || (rig_done(c) && (!strcmp(c->name, "unpack") || !strcmp(c->name, "reshard"))))
        return 0;
    n_reruns++;
    r = rig_run(c, NULL, "any", -1);
    if (r->signal || r->code < 0)
        return err_set(ERR_NO, "%s: after %d calls, %s: again: status %d: %s", c->name, calls, text(choice), err_status(r->code), r->msg);
    /* The temporary file of a writer that is gone stays: it carries its process id. */
    if (strcmp(c->name, "pack") && !rig_same(rig_work(), rig_end(c)))
        return err_set(ERR_NO, "%s: after %d calls, %s: again: another end", c->name, calls, text(choice));
    return 0;
}

static int all(const struct rig_cmd *c, const struct power *p, int calls, _Bool done)
{
    static const enum power_fate fates[2] = { POWER_LOST, POWER_KEPT };
    int lots = getenv("MOE_LONG") ? 40 : 4, pending = power_pending(p);

    for (int names = 0; names < 2; names++)
        for (int data = 0; data < 2; data++) {
            struct power_choice choice = { fates[names], fates[data], -1, 0 };

            TRY(one(c, p, &choice, calls, done, names == data));
            for (choice.one = 0; choice.one < pending && names != data; choice.one++)
                TRY(one(c, p, &choice, calls, done, 0));
        }
    for (int i = 0; i < lots; i++) {
        struct power_choice choice = { POWER_LOT, POWER_LOT, -1, (uint64_t)(calls * 1000 + i) };

        TRY(one(c, p, &choice, calls, done, i == 0));
    }
    return 0;
}

/* The n bytes of a trace, but without its sync number `without` (-1: with all). */
static int walk(const struct rig_cmd *c, const char *trace, size_t n, int without, int *calls, int *n_syncs)
{
    struct fault_record head;
    struct power *p;
    size_t k;
    int rc;

    *calls = *n_syncs = 0;
    rig_reset(c);
    p = power_new(rig_work());
    rc = all(c, p, 0, 0);
    for (size_t at = 0; at < n && rc == 0; at += k) {
        memcpy(&head, trace + at, sizeof head);
        k = sizeof head + head.name + head.other;
        if (head.op == FAULT_SYNC && (*n_syncs)++ == without)
            continue;
        k = power_feed(p, trace + at, n - at);
        assert_true(k > 0);
        rc = all(c, p, ++*calls, 0);
    }
    if (rc == 0)
        rc = all(c, p, *calls, 1);
    /* With nothing lost the model ends where the command did. */
    if (rc == 0) {
        assert_int_equal(fs_remove_tree(rig_work()), 0);
        power_fail(p, &(struct power_choice){ POWER_KEPT, POWER_KEPT, -1, 0 }, rig_work());
        assert_true(rig_same(rig_work(), rig_end(c)));
    }
    power_free(p);
    return rc;
}

static const struct rig_cmd *traced(const char *name, char **trace, size_t *n)
{
    const struct rig_cmd *c = rig_named(name);
    const struct rig_report *r;
    char path[700];
    int fd;

    rig_template(c);
    rig_reset(c);
    snprintf(path, sizeof path, "%s.trace", rig_end(c));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    assert_true(fd >= 0);
    r = rig_run(c, NULL, "any", fd);
    close(fd);
    assert_true(r->signal == 0 && r->code == 0);
    toy_get(path, trace, n);
    assert_true(*n > 0);
    return c;
}

static void fails_anywhere_in(const char *name)
{
    long before = n_cases;
    char *trace;
    size_t n;
    int calls, n_syncs;
    const struct rig_cmd *c = traced(name, &trace, &n);

    if (walk(c, trace, n, -1, &calls, &n_syncs) < 0)
        fail_msg("%s", err_msg());
    print_message("# %s: %d calls, %ld trees\n", name, calls, n_cases - before);
    free(trace);
}

#define EACH(name) \
    static void the_power_fails_in_##name(void **state) \
    { \
        (void)state; \
        rig_need(); \
        fails_anywhere_in(#name); \
    }

EACH(save)
EACH(save_first)
EACH(save_again)
EACH(save_keep)
EACH(convert)
EACH(convert_over)
EACH(reshard)
EACH(average)
EACH(pack)
EACH(unpack)
EACH(gc)

/* A test of syncs that none of them can fail is none. */
static void a_save_without_any_one_of_its_syncs_is_found_out(void **state)
{
    char *trace;
    size_t n;
    int calls, n_syncs, unused;
    const struct rig_cmd *c;

    (void)state;
    rig_need();
    c = traced("save", &trace, &n);
    assert_int_equal(walk(c, trace, n, -1, &calls, &n_syncs), 0);
    assert_true(n_syncs > 10);
    for (int i = 0; i < n_syncs; i++)
        if (walk(c, trace, n, i, &calls, &unused) == 0)
            fail_msg("the save is sound without its sync %d of %d", i, n_syncs);
    free(trace);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_without_any_one_of_its_syncs_is_found_out),
        cmocka_unit_test(the_power_fails_in_save),
        cmocka_unit_test(the_power_fails_in_save_first),
        cmocka_unit_test(the_power_fails_in_save_again),
        cmocka_unit_test(the_power_fails_in_save_keep),
        cmocka_unit_test(the_power_fails_in_convert),
        cmocka_unit_test(the_power_fails_in_convert_over),
        cmocka_unit_test(the_power_fails_in_reshard),
        cmocka_unit_test(the_power_fails_in_average),
        cmocka_unit_test(the_power_fails_in_pack),
        cmocka_unit_test(the_power_fails_in_unpack),
        cmocka_unit_test(the_power_fails_in_gc),
    };
    int rc;

    rig_enter(argc, argv);
    rc = cmocka_run_group_tests_name("power_loss", tests, NULL, NULL);
    rig_leave();
    print_message("# %ld trees, %ld commands run again\n", n_cases, n_reruns);
    return rc;
}
