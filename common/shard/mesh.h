/* mesh.h -- the ranks of a run as a box: replicas x efsdp x ep.
 *
 * World = replicas x shard, shard = efsdp x ep; ep is innermost, so that with
 * ranks numbered node by node an expert-parallel group lies inside a node.
 * Everything here is arithmetic on three integers: nothing talks, nothing is
 * allocated.  Meshes are written replicas x efsdp x ep everywhere: 4x96x4. */
#ifndef SHARD_MESH_H
#define SHARD_MESH_H

#include <stdint.h>

enum { MESH_MAX_RANKS = 1 << 24 };

struct mesh { int replicas, efsdp, ep; };       /* each at least 1 */

/* Where a rank stands. */
struct mesh_at { int replica, efsdp, ep; };

/* The sets of ranks that talk to each other; every rank is in one of each. */
enum mesh_kind {
    MESH_WORLD,
    MESH_SHARD,         /* one copy of the model: a replica's efsdp x ep ranks; owners are numbered in it */
    MESH_REPLICA,       /* the ranks that own the same parts, one in each replica */
    MESH_EFSDP,         /* the ranks of one replica that hold the same E/ep experts of a layer */
    MESH_EP,            /* the ranks that exchange tokens */
    MESH_KIND_N
};

/* A group: member i is rank first + i * stride of the world.  me is the
 * caller's place in it; colour numbers the groups of the kind from 0, so that
 * (colour, me) are the arguments of a split of the world. */
struct mesh_group { int first, stride, size, me, colour; };

/* efsdp -1 is what is left of world: world / (replicas x ep), or 1 when world is
 * 0 (not known).  n_experts is checked against ep.  ERR_USAGE in one sentence:
 * the product is not world, a rank would be left over, experts that ep does not
 * divide, or more than MESH_MAX_RANKS. */
int mesh_make(int64_t replicas, int64_t efsdp, int64_t ep, int64_t world, int64_t n_experts, struct mesh *out);

/* "2x96x4", whole text; ERR_USAGE.  Experts are not known here. */
int mesh_parse(const char *text, struct mesh *out);
/* "2x96x4" into buf of at least 40 bytes; returns buf. */
char *mesh_text(char *buf, struct mesh m);

int mesh_world(struct mesh m);
int mesh_shard(struct mesh m);          /* ranks of a shard group */

/* rank of the world <-> place; rank is i_replica * shard + i_efsdp * ep + i_ep. */
struct mesh_at mesh_at(struct mesh m, int rank);
int mesh_rank(struct mesh m, struct mesh_at at);
/* A rank's number in its shard group, i_efsdp * ep + i_ep: what plans call owner. */
int mesh_owner(struct mesh m, int rank);

struct mesh_group mesh_group(struct mesh m, enum mesh_kind kind, int rank);
const char *mesh_kind_name(enum mesh_kind kind);        /* "world" "shard" "replica" "efsdp" "ep" */

/* The EP rank where expert e of any layer lives: blocks of n_experts / ep. */
int mesh_ep_of_expert(struct mesh m, int64_t n_experts, int64_t expert);

#endif
