/* bench.h -- the subcommands of moe-bench, and the list of ops to time. */
#ifndef MOE_BENCH_BENCH_H
#define MOE_BENCH_BENCH_H

#include "base/arena.h"
#include "base/opt.h"
#include "dev/dev.h"

extern const struct opt_cmd bench_op_cmd, bench_step_cmd, bench_io_cmd;

/* The shape of a model and a batch: what sizes the operands of every op. */
struct bench_dims {
    const char *name;
    int64_t t, seq;             /* tokens, tokens of a sequence */
    int64_t h, heads, kv, hd;   /* hidden size, query and kv heads, head_dim */
    int64_t e, k, i;            /* experts, top_k, expert hidden size */
    int64_t v, chunk;           /* vocabulary, tokens of a chunk of logits */
    int64_t n_ns;               /* matrices of newton_schulz */
};

/* One op on one size, ready to run any number of times. */
struct bench_job {
    struct dev *d;
    struct bench_dims dim;
    struct arena *arena;        /* owns the operands */
    int variant;
    char size[64];              /* the operands in words: "4096x256 x 256x256" */
    double flops;               /* 0: bound by memory */
    double bytes;               /* read and written, each operand once */
    struct mat m[10];
    int32_t *ids, *row_of, *token_of, *offsets;
    uint16_t *idx;
    void **w;
    double *nll;
    struct group group;
    struct attn attn;
    struct router router;
    struct adamw adamw;
    struct mat *list;
};

struct bench_case {
    const char *name;
    int variant;
    void (*setup)(struct bench_job *j);
    void (*run)(struct bench_job *j);
};

extern const struct bench_case bench_cases[];
extern const int bench_n_cases;

/* What the ops of these sizes may ask of scratch memory. */
struct dev_limits bench_limits(const struct bench_dims *dim);

#endif
