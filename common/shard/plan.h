/* plan.h -- who owns which part of every parameter, as moe-formats(5) has it.
 *
 * A plan is a pure function of the parameter table and the mesh; its hash is
 * the hash of its lines.  Written as TSV, read back strictly: a plan that names
 * an unknown parameter, leaves one out, or covers a row twice or not at all is
 * ERR_DATA; one made for another configuration is ERR_USAGE. */
#ifndef SHARD_PLAN_H
#define SHARD_PLAN_H

#include <stdint.h>

#include "base/hash.h"
#include "model/params.h"
#include "shard/mesh.h"
#include "shard/plan_costs.h"

struct plan_part {
    int i_param;
    int64_t first_row, n_rows;
    int owner;                  /* rank in the shard group */
    int64_t bytes, state_bytes; /* fp32 master; optimizer state */
    double ns_flops;
};

struct plan;

/* *out is owned (plan_free).  t is borrowed as long as the plan.  The owner map
 * is described in owners.h; m comes from mesh_make() with the table's experts. */
int plan_make(const struct param_table *t, const struct plan_costs *costs, struct hash config, struct mesh m, struct plan **out);
/* path "-" is standard input.  The mesh is that of the file; its owners may
 * differ from plan_make()'s where a gather does not care. */
int plan_load(const char *path, const struct param_table *t, struct hash config, struct plan **out);
/* Made for whatever configuration of this model. */
int plan_load_any(const char *path, const struct param_table *t, struct plan **out);
/* What plan_load() checks beyond the lines: every row has exactly one owner, and
 * what a gather relies on.  ERR_DATA names plan (name) and tensor. */
int plan_check(const struct plan *p, const char *name);
void plan_free(struct plan *p);

int64_t plan_n_parts(const struct plan *p);
const struct plan_part *plan_part(const struct plan *p, int64_t i);    /* by layer, then name */
int plan_world(const struct plan *p);           /* replicas x efsdp x ep */
struct mesh plan_mesh(const struct plan *p);
const struct param_table *plan_table(const struct plan *p);
struct hash plan_hash(const struct plan *p);

/* The TSV text; owned by the caller (free()). */
char *plan_text(const struct plan *p, size_t *n);

#endif
