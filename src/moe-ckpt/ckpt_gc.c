/* ckpt_gc.c -- moe-ckpt gc: removes checkpoints of a run that no rule keeps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/units.h"
#include "ckpt/gc.h"
#include "train/lock.h"

#include "ckpt_cmds.h"

struct gc { struct opt_common common; struct gc_rules rules; _Bool dry_run, json, tsv; };

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_INT, 'k', "keep", "N", NULL, "keep the newest N, light ones not counted; needed", offsetof(struct gc, rules.keep), 1, 1e9 },
    { OPT_INT, 0, "light", "N", "-1", "keep the newest N light ones; -1: as many as --keep", offsetof(struct gc, rules.light), -1, 1e9 },
    { OPT_INT, 0, "every", "M", NULL, "keep every step that M divides", offsetof(struct gc, rules.every), 1, 1e15 },
    { OPT_INT, 0, "best", "N", NULL, "keep the N with the lowest metric", offsetof(struct gc, rules.best), 1, 1e9 },
    { OPT_CHOICE, 0, "metric", "loss|ppl|bits_per_byte", "loss", "what --best compares, of the evaluations", offsetof(struct gc, rules.metric), 0, 0 },
    { OPT_STR, 0, "set", "NAME", NULL, "the validation set of the metric; all are averaged otherwise", offsetof(struct gc, rules.set), 0, 0 },
    { OPT_FLAG, 'n', "dry-run", NULL, NULL, "remove nothing, show what would go", offsetof(struct gc, dry_run), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object per checkpoint", offsetof(struct gc, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated columns", offsetof(struct gc, tsv), 0, 0 },
    OPT_END
};

static const struct table_col cols[] = {
    { "step", "step", 'i', 0 }, { "bytes", "size", 'b', 0 }, { "metric", "metric", 'f', 4 }, { "keep", "keep", '?', 0 },
    { "why", "why", 's', 0 }, { "path", "path", 's', 0 }, { "kind", "kind", 's', 0 },
};

static int print(const struct gc *o, enum table_form form, const struct gc_item *items, int n)
{
    struct table *t = table_begin(form, "moe.ckpt-gc/1", cols, sizeof cols / sizeof *cols);

    (void)o;
    for (int i = 0; i < n; i++) {
        table_int(t, items[i].step);
        table_int(t, (int64_t)items[i].bytes);
        if (isnan(items[i].value))
            table_none(t);
        else
            table_num(t, items[i].value);
        table_int(t, items[i].keep);
        if (items[i].why)
            table_str(t, items[i].why);
        else
            table_none(t);
        table_str(t, items[i].dir);
        table_str(t, manifest_kind_name(items[i].kind));
    }
    return table_end(t);
}

static int collect(struct gc *o, enum table_form form, struct arena *a, const char *run)
{
    struct gc_item *items;
    uint64_t bytes = 0;
    char text[32];
    int n, n_gone = 0;

    TRY(gc_plan(a, run, &o->rules, &items, &n));
    for (int i = 0; i < n; i++)
        if (!items[i].keep) {
            bytes += items[i].bytes;
            n_gone++;
        }
    if (!o->dry_run)
        TRY(gc_apply(run, items, n));
    TRY(print(o, form, items, n));
    log_info("%s: %d of %d checkpoint%s %s, %s", run, n_gone, n, n == 1 ? "" : "s", o->dry_run ? "would go" : "removed",
             units_bytes(text, (double)bytes));
    return 0;
}

static int gc(void *options, int argc, char **argv)
{
    struct gc *o = options;
    struct run_lock *lock = NULL;
    struct arena *a;
    enum table_form form;
    int rc = 0;

    (void)argc;
    TRY(ckpt_cmds_form(o->json, o->tsv, &form));
    if (!o->rules.keep)
        return err_set(ERR_USAGE, "how many to keep? --keep N");
    if (!o->rules.best && o->rules.set)
        return err_set(ERR_USAGE, "--set goes with --best");
    a = arena_new();
    if (!o->dry_run && fs_is_dir(fs_join(a, argv[0], "ckpt")))
        rc = lock_take(argv[0], &lock);
    if (rc == 0)
        rc = collect(o, form, a, argv[0]);
    lock_drop(lock);
    arena_free(a);
    return rc;
}

const struct opt_cmd ckpt_gc_cmd = {
    "gc", "remove checkpoints of a run that no rule keeps", "-k N [--light N] [--every M] [--best N] [-n] [options] RUN",
    "moe-ckpt gc --dry-run --keep 3 runs/a\n"
    "moe-ckpt gc --keep 3 --every 10k --best 2 runs/a\n",
    opts, sizeof(struct gc), 1, 1, gc
};
