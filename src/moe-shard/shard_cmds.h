/* shard_cmds.h -- the subcommands of moe-shard, and what they share. */
#ifndef MOE_SHARD_SHARD_CMDS_H
#define MOE_SHARD_SHARD_CMDS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/opt.h"
#include "base/table.h"
#include "model/params.h"
#include "shard/plan.h"
#include "train/run_config.h"

extern const struct opt_cmd shard_plan_cmd, shard_count_cmd, shard_memory_cmd;

/* First members of every options struct: which configuration. */
struct shard_input {
    struct opt_common common;
    const char *config;
    _Bool print_config;
};
#define SHARD_INPUT(T)                                                                                            \
    OPT_COMMON,                                                                                                   \
    { OPT_STR, 'c', "config", "FILE", NULL, "the configuration of the run, - for standard input", offsetof(T, in.config), 0, 0 }, \
    { OPT_FLAG, 0, "print-config", NULL, NULL, "print the configuration with the origin of each value, and stop", \
      offsetof(T, in.print_config), 0, 0 }

#define SHARD_RANKS(T)                                                                                            \
    { OPT_INT, 0, "ranks", "N", "0", "ranks of the run; 0: as many as the mesh says", offsetof(T, ranks), 0, MESH_MAX_RANKS }

/* A configuration and its parameters. */
struct shard_model {
    struct run_config cfg;
    struct arena *arena;
    struct param_table table;
};

/* Reads the configuration with the operands as overrides.  Returns 1 when it
 * was only to be printed, and has been. */
int shard_open(const struct shard_input *in, int argc, char **argv, struct shard_model *out);
void shard_close(struct shard_model *m);

/* The mesh of the configuration on so many ranks (0: replicas x efsdp x ep, auto
 * is 1), and the plan that follows. */
int shard_mesh_of(const struct shard_model *m, int64_t ranks, struct mesh *out);
int shard_plan_of(const struct shard_model *m, int64_t ranks, struct plan **out);

/* --json and --tsv exclude each other. */
int shard_form(_Bool json, _Bool tsv, enum table_form *out);

#endif
