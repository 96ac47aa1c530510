/* schedule.c -- the learning rate over a run, and the checks of its keys.
 *
 * Step s (from 0) of a run of n steps.  Warm-up rises linearly and reaches 1 at
 * step warmup - 1.  cosine and linear fall from there to `final` at step n - 1;
 * wsd stays at 1 and falls linearly to `final` over the last `decay` steps. */
#include "optim/optim_config.h"

#include <math.h>

#include "base/err.h"

double optim_schedule(const struct optim_config *o, int64_t steps, int64_t step)
{
    if (step < o->warmup)
        return (double)(step + 1) / (double)o->warmup;

    int64_t from = o->warmup;
    switch (o->schedule) {
    case SCHEDULE_CONSTANT:
        return 1;
    case SCHEDULE_WSD:
        if (o->decay == 0 || step < steps - o->decay)
            return 1;
        from = steps - o->decay;
        break;
    default:
        break;
    }
    double x = (double)(step - from + 1) / (double)(steps - from);
    if (x > 1)
        x = 1;
    if (o->schedule == SCHEDULE_COSINE)
        return o->final + (1 - o->final) * 0.5 * (1 + cos(3.14159265358979323846 * x));
    return 1 - (1 - o->final) * x;
}

int optim_config_check(const struct optim_config *o, int64_t steps, const struct config *c)
{
    if (o->muon_scale == OPTIM_SCALE_ORIGINAL &&
        (!config_given(c, "optim.muon.lr") || !config_given(c, "optim.adamw.lr")))
        return err_set(ERR_USAGE, "%s: optim.muon.scale: original does not share its learning rate with AdamW; "
                       "give both optim.muon.lr and optim.adamw.lr", config_where(c, "optim.muon.scale"));
    if (o->warmup + (o->schedule == SCHEDULE_WSD ? o->decay : 0) > steps)
        return err_set(ERR_USAGE, "%s: optim.schedule: warmup %lld and decay %lld are longer than the %lld steps of the run",
                       config_where(c, "optim.schedule.warmup"), (long long)o->warmup,
                       o->schedule == SCHEDULE_WSD ? (long long)o->decay : 0LL, (long long)steps);
    return 0;
}
