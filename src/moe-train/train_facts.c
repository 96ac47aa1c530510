/* train_facts.c -- see train_facts.h.  Reads only; never waits for the run. */
#include "train_facts.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "ckpt/run.h"
#include "train/lock.h"

int train_facts_read(struct arena *a, const char *run, struct train_facts *f)
{
    struct ckpt_step *all;
    int n;

    if (!fs_is_dir(run))
        return err_set(ERR_NOINPUT, "%s: no such run", run);
    if (!fs_exists(fs_join(a, run, "heartbeat.json")))
        return err_set(ERR_NOINPUT, "%s: not a run: it has no heartbeat.json", run);
    TRY(metrics_heartbeat_read(run, &f->h));
    f->live = lock_peek(run, f->owner, sizeof f->owner);
    TRY(ckpt_list_kinds(a, run, &all, &n));
    f->steps = arena_array(a, (size_t)n + 1, sizeof *f->steps);
    f->light = arena_array(a, (size_t)n + 1, sizeof *f->light);
    f->n_steps = f->n_light = 0;
    for (int i = 0; i < n; i++)
        if (all[i].kind == MANIFEST_LIGHT)
            f->light[f->n_light++] = all[i].step;
        else
            f->steps[f->n_steps++] = all[i].step;
    /* A heartbeat that says "running" without a live owner tells of a kill. */
    f->state = strcmp(f->h.state, "running") == 0 && !f->live ? "killed" : f->h.state;
    return 0;
}

double train_facts_eta(const struct train_facts *f)
{
    if (!f->live || !(f->h.tok_s > 0) || f->h.step <= f->h.started_at)
        return NAN;
    return (double)(f->h.steps - f->h.step) * ((double)f->h.tokens / (double)f->h.step) / f->h.tok_s;
}
