/* shard_cmds.h -- the subcommands of moe-shard, and what they share. */
#ifndef MOE_SHARD_SHARD_CMDS_H
#define MOE_SHARD_SHARD_CMDS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/opt.h"
#include "base/table.h"
#include "model/params.h"
#include "shard/footprint.h"
#include "shard/plan.h"
#include "train/run_config.h"

extern const struct opt_cmd shard_plan_cmd, shard_show_cmd, shard_count_cmd, shard_memory_cmd, shard_fit_cmd, shard_diff_cmd,
                            shard_check_cmd;

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

#define SHARD_PLAN(T)                                                                                             \
    { OPT_STR, 0, "plan", "FILE", NULL, "this plan instead of a new one; - is standard input", offsetof(T, plan), 0, 0 }
#define SHARD_GRAD_SLOTS(T)                                                                                       \
    { OPT_INT, 0, "grad-slots", "N", "2", "gradient slots of layers: 2 as moe-train has, or 1", offsetof(T, grad_slots), 1, 2 }
#define SHARD_DTYPE(T)                                                                                            \
    { OPT_CHOICE, 0, "dtype", "fp32|bf16", NULL, "type of activations and of weights in use", offsetof(T, dtype), 0, 0 }

/* A configuration and its parameters. */
struct shard_model {
    struct run_config cfg;
    struct arena *arena;
    struct param_table table;
    enum dtype compute, wire;   /* as the configuration says; see shard_footprint_opts() */
};

/* Reads the configuration with the operands as overrides.  Returns 1 when it
 * was only to be printed, and has been. */
int shard_open(const struct shard_input *in, int argc, char **argv, struct shard_model *out);
void shard_close(struct shard_model *m);

/* The mesh of the configuration on so many ranks (0: replicas x efsdp x ep, auto
 * is 1), and the plan that follows. */
int shard_mesh_of(const struct shard_model *m, int64_t ranks, struct mesh *out);
int shard_plan_of(const struct shard_model *m, int64_t ranks, struct plan **out);
int shard_plan_on(const struct shard_model *m, struct mesh mesh, struct plan **out);

/* The plan in a file (it must be one of this configuration, and --ranks is not
 * for it), or the one that would be made. */
int shard_plan_get(const struct shard_model *m, const char *path, int64_t ranks, struct plan **out);

/* What each rank of the shard group owns, [efsdp * ep]; owned (free()). */
struct shard_load { int64_t parts, bytes, state_bytes; double ns_flops; };
struct shard_load *shard_loads(const struct plan *p);

/* Options of the formulas from the configuration, and m->compute and m->wire;
 * dtype (NULL: none given) goes before the configuration's.  ERR_USAGE for what
 * the formulas do not know. */
int shard_footprint_opts(struct shard_model *m, const char *dtype, int64_t grad_slots, struct footprint_opts *out);

/* --json and --tsv exclude each other. */
int shard_form(_Bool json, _Bool tsv, enum table_form *out);

#endif
