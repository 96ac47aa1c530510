/* layout.h -- where parts lie: in the storage of their owner, and in the slot a
 * gathered layer goes to.
 *
 * Pure functions of a plan, the same on every rank; nothing is communicated.
 *
 * A rank keeps what it owns in flat F32 storage, in table order; one rank alone
 * has exactly the storage the table describes.  Before a layer is used its
 * weights come into a slot:
 *
 *     [ experts from efsdp rank 0 | ... 1 | ... ][ the rest from shard rank 0 | ... 1 | ... ]
 *
 * Each block is what one rank sends, in table order, so a gather with per-rank
 * counts fills each half in one piece (counts may be 0; those of the experts
 * are for the efsdp group, since a rank needs only the E/ep experts of its EP
 * rank).  Gradients go the other way from a slot of the same shape.
 *
 * Invariants: L1 every part begins on a multiple of LAYOUT_ALIGN bytes.
 * L2 parts of a slot do not overlap, blocks tile it, and each part lies in its
 * owner's block.  L3 a block of an F32 slot is byte for byte the owner's range
 * of its owned storage (padding included): it can be sent from there, and
 * reduced into there.  tests/unit/test_shard_layout.c checks all three.
 *
 * The "layers" besides 0..: LAYOUT_EMBED and LAYOUT_HEAD (final norm and head)
 * have only the second half, with the matrix whole and in row order.  A tied
 * head has the norm alone: the matrix is the embedding's. */
#ifndef SHARD_LAYOUT_H
#define SHARD_LAYOUT_H

#include "base/arena.h"
#include "base/dtype.h"
#include "shard/plan.h"

enum { LAYOUT_ALIGN = 64 };
enum { LAYOUT_EMBED = -1, LAYOUT_HEAD = -2 };   /* the numbers of model.h */

/* ---- owned storage of one rank of the shard group */

struct owned_part {
    int i_param;
    int64_t first_row, n_rows;
    int64_t offset;             /* elements from the start of the storage */
};

struct owned_range { int64_t first, n; int i_part, n_parts; };  /* elements, padding included; parts */

struct owned_layout {
    int owner;                  /* the rank */
    int n_parts;
    struct owned_part *parts;   /* table order; at most one of each parameter */
    int *of_param;              /* [params] index into parts, -1: not ours */
    int64_t n_elems;            /* storage, padding included */
    int n_layers;
    struct owned_range *experts, *rest;         /* [n_layers] */
    struct owned_range embed, head;             /* head: norm and head */
};

/* In arena a; borrows nothing from the plan. */
void layout_owned(struct arena *a, const struct plan *p, int owner, struct owned_layout *out);

/* n_elems of every rank of the shard group at once: n [efsdp * ep]. */
void layout_owned_elems(const struct plan *p, int64_t *n);

/* What this rank sends to the slot of a layer: its experts, or the rest. */
struct owned_range layout_owned_range(const struct owned_layout *o, int layer, _Bool experts);

/* ---- slot of one layer, as a rank of EP rank i_ep sees it */

struct slot_block { int64_t offset, bytes; };   /* bytes from the start of the slot */

struct slot_part {
    int i_param;
    int64_t first_row, n_rows;
    int64_t offset, bytes;      /* bytes, without padding */
    enum dtype dt;
    int owner;                  /* rank in the shard group */
};

struct slot_layout {
    int layer, i_ep;
    int n_parts;
    struct slot_part *parts;    /* ascending offset */
    int n_experts_from, n_rest_from;    /* efsdp, efsdp x ep; 0 experts blocks where there are no experts */
    struct slot_block *experts; /* [efsdp] */
    struct slot_block *rest;    /* [efsdp * ep] */
    int64_t experts_bytes;      /* of the first half, which begins at 0; the rest follows */
    int64_t bytes;              /* of the slot */
    int first_param, n_params;  /* private */
    int64_t *at;                /* private */
};

/* dt: weights and gradients of this type; LAYOUT_WEIGHTS keeps in F32 what the
 * model reads in F32 (router, selection bias), LAYOUT_GRADS has all in dt. */
enum layout_kind { LAYOUT_WEIGHTS, LAYOUT_GRADS };
void layout_slot(struct arena *a, const struct plan *p, int layer, int i_ep, enum dtype dt, enum layout_kind kind,
                 struct slot_layout *out);

/* Bytes from the start of the slot to parameter i (its row 0), -1 when the slot
 * does not hold it. */
int64_t layout_slot_at(const struct slot_layout *s, int i_param);

/* Bytes of a slot without laying it out. */
int64_t layout_slot_bytes(const struct plan *p, int layer, int i_ep, enum dtype dt, enum layout_kind kind);

/* The largest slot of layers 0.. for an EP rank: what a fixed slot must hold. */
int64_t layout_slot_max(const struct plan *p, int i_ep, enum dtype dt, enum layout_kind kind);

#endif
