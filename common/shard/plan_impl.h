/* plan_impl.h -- what the sources of a plan share.  Private to shard/. */
#ifndef SHARD_PLAN_IMPL_H
#define SHARD_PLAN_IMPL_H

#include "shard/plan.h"

#define PLAN_COLUMNS "#name\tkind\tlayer\texpert\toptim\trows\tcols\tfirst_row\tn_rows\towner\tbytes\tstate_bytes\tns_flops\n"

struct plan {
    const struct param_table *t;
    struct plan_part *parts;
    int64_t n;
    struct mesh mesh;
    struct hash config;
    struct hash lines;          /* of a plan that was read; empty: not yet made */
};

/* By layer (those of no layer last), name, first row. */
void plan_sort(struct plan *p);

/* A number, or "-" where there is none (negative). */
char *plan_number(char buf[32], int v);

#endif
