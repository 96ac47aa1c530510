/* plan_costs.h -- what the owner map must know about parameters beside the table. */
#ifndef SHARD_PLAN_COSTS_H
#define SHARD_PLAN_COSTS_H

#include <stdint.h>

#include "model/params.h"

enum { PLAN_ROW_BLOCK = 64 };   /* row splits fall on multiples of it: the norm is summed in such blocks */

/* What a parameter costs; shard/ must not see optim/, so the caller says. */
struct plan_costs {
    int64_t (*state_bytes)(const struct param *p);
    double (*ns_flops)(const void *ctx, const struct param *p);
    const void *ctx;
};

#endif
