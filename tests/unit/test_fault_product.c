/* test_fault_product.c -- every call of every kind fails, for every command.
 *
 * For each command of fault_rig.c, each kind of call and each way to fail, the
 * N-th call fails, N = 1, 2, ... until the command runs through undisturbed; and
 * the process is killed before, and in the middle of, each call that changes a
 * file.  Whatever happened then: what was whole before is whole, the sentence
 * names the file and the cause, what is left is known as a temporary, and the
 * same command again ends as if nothing had happened.
 *
 * Memory fails too: at every request with MOE_LONG, else at some forty of them. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/fs.h"
#include "unit/ckpt_toy.h"
#include "unit/fault_rig.h"

enum { WRITES = 1, READS = 2, NAMES = 4 };      /* what a kind of call does */

static const struct { const char *kind; int what; } kinds[] = {
    { "open", WRITES | READS | NAMES }, { "close", WRITES | READS }, { "read", READS }, { "pread", READS }, { "mmap", READS }, { "write", WRITES },
    { "pwrite", WRITES }, { "fsync", WRITES }, { "rename", WRITES | NAMES }, { "mkdir", WRITES | NAMES }, { "unlink", WRITES | NAMES },
    { "symlink", WRITES | NAMES }, { "ftruncate", WRITES }, { "fallocate", WRITES },
};

/* To which kinds of calls it happens. */
static const struct { const char *word; int error, what; _Bool later; } actions[] = {
    { "EIO", EIO, WRITES | READS, 0 }, { "EIO", EIO, WRITES | READS, 1 }, { "EINTR", EINTR, WRITES | READS, 0 }, { "EAGAIN", EAGAIN, READS, 0 },
    { "ENOSPC", ENOSPC, WRITES, 0 }, { "ENOSPC", ENOSPC, WRITES, 1 }, { "EDQUOT", EDQUOT, WRITES, 0 }, { "ESTALE", ESTALE, WRITES | READS, 0 },
    { "EACCES", EACCES, NAMES, 0 }, { "EROFS", EROFS, NAMES, 1 }, { "EMFILE", EMFILE, NAMES, 0 },
    { "SHORT", 0, WRITES | READS, 0 }, { "SHORT", 0, WRITES | READS, 1 }, { "FULL", ENOSPC, WRITES, 1 },
};

static long n_cases;

static _Bool is(const char *a, const char *b) { return !strcmp(a, b); }

static _Bool moves(const char *kind) { return is(kind, "read") || is(kind, "pread") || is(kind, "write") || is(kind, "pwrite"); }

/* Calls that are made again when they were interrupted, or moved less than all. */
static _Bool is_retried(const char *kind) { return moves(kind) || is(kind, "fallocate"); }

/* Of a command that has ended or was killed; the sentence says what is wrong. */
static int judge(const struct rig_cmd *c, const struct rig_report *r, const char *kind, int error, _Bool later)
{
    int64_t step;
    int n, rc;

    if (r->signal && r->signal != SIGKILL)
        return err_set(ERR_NO, "died of signal %d", r->signal);
    if (!r->signal && r->code < 0) {
        int status = err_status(r->code);

        if (status != 73 && status != 74)
            return err_set(ERR_NO, "status %d: %s", status, r->msg);
        if (!error || (!later && error == EINTR && is_retried(kind)))
            return err_set(ERR_NO, "is not made again: %s", r->msg);
        if (is(kind, "malloc"))
            return rig_sound(c, rig_work(), &step);
        if (!strstr(r->msg, rig_work()) || !strstr(r->msg, strerror(error)) || strchr(r->msg, '\n'))
            return err_set(ERR_NO, "the sentence does not name file and cause: %s", r->msg);
    }
    TRY(rig_sound(c, rig_work(), &step));
    if (!r->signal && r->code == 0 && !rig_same(rig_work(), rig_end(c)))
        return err_set(ERR_NO, "success, and another end");
    n = rig_leftovers(c);
    TRY(n);
    /* What an error leaves is only what could not be removed. */
    if (n && !r->signal && !is(kind, "unlink") && !(later && is(kind, "open")) && !rig_done(c))
        return err_set(ERR_NO, "%d temporaries are left", n);
    /* Again, undisturbed.  These two do not replace what is there whole. */
    if ((is(c->name, "unpack") || is(c->name, "reshard")) && rig_done(c))
        return 0;
    r = rig_run(c, NULL, kind, -1);
    if (r->signal || r->code < 0)
        return err_set(ERR_NO, "again: signal %d, status %d: %s", r->signal, err_status(r->code), r->msg);
    /* A file that a killed writer left carries its process id: nobody else's
     * business, and a name that every sweep knows. */
    rc = rig_leftovers(c);
    if (rc > 0 && !is(c->name, "pack"))
        return err_set(ERR_NO, "again: %d temporaries are left", rc);
    if (rc == 0 && !rig_same(rig_work(), rig_end(c)))
        return err_set(ERR_NO, "again: another end");
    return 0;
}

/* Returns the number of calls that the command made. */
static long one(const struct rig_cmd *c, const char *kind, long n, const char *action, int error, _Bool later)
{
    struct rig_report r;
    char spec[64];

    if (is(action, "FULL"))     /* at some byte of the write, as disks are */
        snprintf(spec, sizeof spec, "%s:%ld:SHORT,%s:%ld+:ENOSPC", kind, n, kind, n + 1);
    else
        snprintf(spec, sizeof spec, "%s:%ld%s:%s", kind, n, later ? "+" : "", action);
    rig_reset(c);
    r = *rig_run(c, spec, kind, -1);
    n_cases++;
    if (judge(c, &r, kind, error, later) < 0)
        fail_msg("%s, %s: %s", c->name, spec, err_msg());
    return r.signal ? n : r.calls;
}

/* Up to the one past the last, which meets nothing. */
static void every(const struct rig_cmd *c, const char *kind, const char *action, int error, _Bool later)
{
    for (long n = 1; one(c, kind, n, action, error, later) >= n; n++)
        ;
}

/* A storm of signals: every second call is interrupted, moves half, or both. */
static void storm(const struct rig_cmd *c)
{
    static const char *const specs[] = {
        "read:2*:EINTR,pread:2*:EINTR,write:2*:EINTR,pwrite:2*:EINTR,fallocate:2*:EINTR",
        "read:2*:EINTR,read:3*:SHORT,pread:2*:EINTR,pread:3*:SHORT,write:2*:EINTR,write:3*:SHORT,pwrite:2*:EINTR,pwrite:3*:SHORT",
    };

    for (int i = 0; i < 2; i++) {
        const struct rig_report *r;

        rig_reset(c);
        r = rig_run(c, specs[i], "any", -1);
        n_cases++;
        if (r->signal || r->code < 0 || !rig_same(rig_work(), rig_end(c)))
            fail_msg("%s, %s: signal %d, status %d, %s", c->name, specs[i], r->signal, err_status(r->code), r->msg);
    }
}

/* Small requests end the process, with the sentence on its standard error. */
static void starve(const struct rig_cmd *c)
{
    long total, stride;

    rig_reset(c);
    total = rig_run(c, NULL, "malloc", -1)->calls;
    assert_true(total > 10);
    stride = getenv("MOE_LONG") ? 1 : 1 + total / 40;
    for (long n = 1; n <= total; n += stride)
        one(c, "malloc", n, "ENOMEM", ENOMEM, 0);
}

static void product(const struct rig_cmd *c)
{
    long before = n_cases;

    rig_template(c);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t a = 0; a < sizeof actions / sizeof *actions; a++) {
            /* Half of a call there is only where bytes move. */
            if (!(kinds[k].what & actions[a].what) || (is(actions[a].word, "SHORT") && !moves(kinds[k].kind)) ||
                (is(actions[a].word, "FULL") && !is(kinds[k].kind, "write") && !is(kinds[k].kind, "pwrite")))
                continue;
            every(c, kinds[k].kind, actions[a].word, actions[a].error, actions[a].later);
        }
    storm(c);
    starve(c);
    every(c, "any", "KILL", 0, 0);
    every(c, "write", "TORN", 0, 0);
    every(c, "pwrite", "TORN", 0, 0);
    print_message("# %s: %ld cases\n", c->name, n_cases - before);
}

#define EACH(name) \
    static void whatever_fails_in_##name(void **state) \
    { \
        (void)state; \
        rig_need(); \
        product(rig_named(#name)); \
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
EACH(load)
EACH(verify)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_fails_in_save),
        cmocka_unit_test(whatever_fails_in_save_first),
        cmocka_unit_test(whatever_fails_in_save_again),
        cmocka_unit_test(whatever_fails_in_save_keep),
        cmocka_unit_test(whatever_fails_in_convert),
        cmocka_unit_test(whatever_fails_in_convert_over),
        cmocka_unit_test(whatever_fails_in_reshard),
        cmocka_unit_test(whatever_fails_in_average),
        cmocka_unit_test(whatever_fails_in_pack),
        cmocka_unit_test(whatever_fails_in_unpack),
        cmocka_unit_test(whatever_fails_in_gc),
        cmocka_unit_test(whatever_fails_in_load),
        cmocka_unit_test(whatever_fails_in_verify),
    };
    int rc;

    rig_enter(argc, argv);
    rc = cmocka_run_group_tests_name("fault_product", tests, NULL, NULL);
    rig_leave();
    print_message("# %ld cases\n", n_cases);
    return rc;
}
