/* gc.c -- rules to verdicts, verdicts to removals. */
#include "ckpt/gc.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/grow.h"
#include "base/json.h"
#include "ckpt/rows.h"
#include "ckpt/run.h"
#include "ckpt/verify.h"

/* ---- metrics */

struct sum { int64_t step; const char *set; double value; };    /* the last row of a set at a step */

struct rows { struct sum *v; int n; int64_t room; };

static void note_row(struct arena *a, struct rows *r, int64_t step, const char *set, double value)
{
    for (int i = r->n - 1; i >= 0; i--)
        if (r->v[i].step == step && !strcmp(r->v[i].set, set)) {
            r->v[i].value = value;      /* the step came again after a restart */
            return;
        }
    r->v = grow_arena(a, r->v, &r->room, r->n + 1, sizeof *r->v);
    r->v[r->n++] = (struct sum){ step, arena_strdup(a, set), value };
}

static const struct gc_item *at_step(const struct gc_item *items, int n, int64_t step)
{
    for (int i = 0; i < n; i++)
        if (items[i].step == step)
            return &items[i];
    return NULL;
}

struct reading { struct arena *a; const struct gc_rules *rules; struct gc_item *items; int n; struct rows rows; };

static int read_row(void *ctx, const char *where, const json_t *o)
{
    struct reading *r = ctx;
    int64_t step;
    const char *set;
    double value = NAN;

    TRY(json_get_int(o, where, "step", &step));
    TRY(json_get_str(o, where, "set", &set));
    TRY(json_opt_num(o, where, r->rules->metric, &value));      /* null: not finite */
    if (at_step(r->items, r->n, step) && (!r->rules->set || !strcmp(r->rules->set, set)))
        note_row(r->a, &r->rows, step, set, value);
    return 0;
}

static int read_metrics(struct arena *a, const char *path, const struct gc_rules *rules, struct gc_item *items, int n)
{
    static const char *const evals[] = { "moe.eval/1", NULL };
    struct reading r = { a, rules, items, n, { 0 } };
    int found = 0;

    TRY(rows_each(path, evals, read_row, &r));
    for (int i = 0; i < n; i++) {
        double total = 0;
        int count = 0;

        for (int k = 0; k < r.rows.n; k++)
            if (r.rows.v[k].step == items[i].step) {
                total += r.rows.v[k].value;
                count++;
            }
        items[i].value = count ? total / count : NAN;
        found += isfinite(items[i].value);
    }
    return found ? 0 : err_set(ERR_DATA, "%s: no %s of an evaluation%s%s at a step that has a checkpoint", path, rules->metric,
                               rules->set ? " of " : "", rules->set ? rules->set : "");
}

/* ---- verdicts */

static uint64_t tree_bytes(struct arena *a, const char *path)
{
    struct stat sb;
    char **names;
    uint64_t sum = 0;
    int n;

    if (lstat(path, &sb) < 0)
        return 0;
    if (!S_ISDIR(sb.st_mode))
        return (uint64_t)sb.st_size;
    if (fs_list(a, path, &names, &n) < 0)
        return 0;
    for (int i = 0; i < n; i++)
        sum += tree_bytes(a, fs_join(a, path, names[i]));
    return sum;
}

static void keep(struct gc_item *it, const char *why)
{
    it->keep = 1;
    if (!it->why)
        it->why = why;
}

/* The lowest values; of equal ones the newer. */
static void keep_best(struct gc_item *items, int n, int64_t best)
{
    for (int64_t k = 0; k < best; k++) {
        int at = -1;

        for (int i = 0; i < n; i++) {
            _Bool taken = items[i].why && !strcmp(items[i].why, "best");

            if (!taken && isfinite(items[i].value) && (at < 0 || items[i].value <= items[at].value))
                at = i;
        }
        if (at < 0)
            return;
        items[at].keep = 1;
        items[at].why = "best";
    }
}

int gc_plan(struct arena *a, const char *run_dir, const struct gc_rules *rules, struct gc_item **items, int *n)
{
    struct gc_item *v;
    struct ckpt_step *steps;
    int64_t newer[2] = { 0, 0 }, limit[2] = { rules->keep, rules->light < 0 ? rules->keep : rules->light };
    char name[32], latest[64];
    ssize_t len = readlink(fs_join(a, run_dir, "latest"), latest, sizeof latest - 1);

    if (!fs_is_dir(run_dir)) {
        errno = fs_exists(run_dir) ? ENOTDIR : ENOENT;
        return err_sys(ERR_NOINPUT, "%s", run_dir);
    }
    TRY(ckpt_list_kinds(a, run_dir, &steps, n));
    if (!*n)
        return err_set(ERR_NOINPUT, "%s: no checkpoint of a run", run_dir);
    latest[len > 0 ? len : 0] = '\0';
    v = *items = arena_array(a, (size_t)*n, sizeof *v);
    for (int i = 0; i < *n; i++) {
        v[i].step = steps[i].step;
        v[i].kind = steps[i].kind;
        v[i].dir = fs_join(a, fs_join(a, run_dir, "ckpt"), ckpt_step_name(name, steps[i].step));
        v[i].bytes = tree_bytes(a, v[i].dir);
        v[i].value = NAN;
    }
    if (rules->best > 0) {
        TRY(read_metrics(a, fs_join(a, run_dir, "metrics.jsonl"), rules, v, *n));
        keep_best(v, *n, rules->best);
    }
    for (int i = *n - 1; i >= 0; i--) {
        if (newer[v[i].kind == MANIFEST_LIGHT]++ < limit[v[i].kind == MANIFEST_LIGHT])
            keep(&v[i], "newest");
        if (!strcmp(latest, arena_printf(a, "ckpt/%s", ckpt_step_name(name, v[i].step))))
            keep(&v[i], "latest");
        if (v[i].kind == MANIFEST_MAJOR)
            keep(&v[i], "major");
        if (rules->every > 0 && v[i].step % rules->every == 0)
            keep(&v[i], "every");
    }
    return 0;
}

struct told { char first[ERR_MSG_MAX]; };

static void problem(void *ctx, const char *sentence)
{
    struct told *t = ctx;

    if (!t->first[0])
        memcpy(t->first, sentence, strlen(sentence) + 1);
}

int gc_apply(const char *run_dir, const struct gc_item *items, int n)
{
    struct told told = { "" };
    struct ckpt_verify v = { .problem = problem, .ctx = &told };
    int newest = n - 1;
    _Bool any = 0;

    for (int i = 0; i < n; i++)
        any |= !items[i].keep;
    while (newest >= 0 && !(items[newest].keep && items[newest].kind != MANIFEST_LIGHT))
        newest--;
    if (newest < 0)             /* there are light ones alone */
        newest = n - 1;
    while (newest >= 0 && !items[newest].keep)
        newest--;
    if (any && newest >= 0) {
        TRY(ckpt_verify(items[newest].dir, &v));
        if (v.n_problems)
            return err_set(ERR_DATA, "%s; nothing was removed, since the newest checkpoint that would stay is damaged", told.first);
    }
    TRY(ckpt_sweep(run_dir));
    for (int i = 0; i < n; i++)
        if (!items[i].keep)
            TRY(ckpt_remove(items[i].dir));
    return 0;
}
