/* trainer_blame.c -- whose number was not finite.
 *
 * Only the path that ends a run, or skips a step, comes here: every rank knows
 * that something is not finite, since sums of all ranks carry it, but not where it
 * came from. */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

struct witness { _Bool loss, grad; char host[64]; };

/* The first tensor whose squares are not finite, -1 for none. */
static int first_tensor(const struct trainer *t, const double *sq)
{
    for (int i = 0; i < t->table.n; i++)
        if (!isfinite(sq[i]))
            return i;
    return -1;
}

int trainer_blame(struct trainer *t, const struct step_facts *f, const double *sq)
{
    int n = t->opts.world ? comm_size(t->opts.world) : 1, tensor = first_tensor(t, sq), who = -1;
    struct witness mine = { .loss = !f->own_finite }, *all;
    char where[160] = "", what[600];

    /* With a loss that is not finite every gradient is broken: the loss says who. */
    if (isfinite(f->loss) && tensor >= 0)
        mine.grad = t->own.of_param[tensor] >= 0;
    if (n > 1) {
        struct arena *a = arena_new();
        snprintf(mine.host, sizeof mine.host, "%s", comm_host(t->opts.world));
        all = arena_array(a, (size_t)n, sizeof *all);
        int rc = comm_all_gather(t->opts.world, &mine, sizeof mine, all);
        for (int r = n - 1; r >= 0 && rc == 0; r--)
            if (isfinite(f->loss) ? all[r].grad : all[r].loss)
                who = r;
        if (who >= 0)
            snprintf(where, sizeof where, "%s rank %d on %s", isfinite(f->loss) ? ", owned by" : " on", who, all[who].host);
        arena_free(a);
        TRY(rc);
    }
    if (isfinite(f->loss) && tensor >= 0)
        snprintf(what, sizeof what, "gradient of \"%s\"%s", t->table.v[tensor].name, where);
    else
        snprintf(what, sizeof what, "%s%s", isfinite(f->loss) ? "gradient" : "loss", where);
    return err_set(ERR_NO, "step %lld: the %s is not finite; nothing was updated (train.nonfinite: stop)", (long long)f->step, what);
}
