/* footprint.h -- bytes a rank needs, by formula, for any mesh.
 *
 * The exact plan of a process comes from running its step over the trace device
 * (train/trainer.h).  This is the estimate for ranks that no process here can
 * trace: it adds up the same buffers the step takes, phase by phase, and for one
 * rank it agrees with the trace (tests/shard.bats).  What it assumes:
 *  - two slots for gathered layers (one in use, one arriving), and one each for
 *    embedding and head;
 *  - grad_slots F32 gradient slots for layers, and one each for embedding and head;
 *    2 is what train/fsdp.h has, 1 is enough once an expert's gradients leave as
 *    soon as they are done (they then stand beside the slot);
 *  - the widest block a rank owns of a layer, where a reduction lands (gradients
 *    that travel in bf16 are narrowed where they lie);
 *  - expert rows in rounds of rows_cap, three packed buffers in backward;
 *  - what is at home in host memory passes through two staging buffers;
 *  - a save beside training copies a rank's even share of what its owner has in
 *    all replicas, wherever row splits put it.
 * Refuses to guess what libraries take (MPI, NCCL, BLAS): add a reserve. */
#ifndef SHARD_FOOTPRINT_H
#define SHARD_FOOTPRINT_H

#include "base/dtype.h"
#include "shard/plan.h"

enum foot_class {
    FOOT_MASTER, FOOT_STATE, FOOT_GRAD,         /* F32, of what the rank owns */
    FOOT_GATHER,        /* slots of weights */
    FOOT_GRAD_SLOT,     /* gradients of the layer at work */
    FOOT_WIRE,          /* gradients that arrive at their owner */
    FOOT_TABLE, FOOT_BATCH, FOOT_BOUNDARY, FOOT_ROUTING,
    FOOT_ACT, FOOT_ROWS, FOOT_LOGITS,           /* each at its own peak; phases share memory */
    FOOT_STAGE,         /* between host and device */
    FOOT_WS,            /* Newton-Schulz of the largest owned matrix */
    FOOT_SAVE,          /* what a rank writes of a checkpoint; always in host memory */
    FOOT_CLASS_N
};

struct footprint_opts {
    int64_t micro_tokens, seq_len, loss_chunk;
    int grad_slots;             /* 1 or 2 */
    int boundary_every;         /* 0: every activation is kept */
    int64_t rows_cap;           /* -1: 1.15 x the balanced share, alone all rows */
    _Bool state_on_host, boundaries_on_host;
    _Bool save_beside;          /* checkpoint.async */
    _Bool split_replicas;       /* state of what a replica steps only (sharing.h); the replica that has most */
};

struct footprint {
    int64_t device[FOOT_CLASS_N], host[FOOT_CLASS_N];
    int64_t device_bytes;       /* kept classes and the largest phase */
    int64_t host_bytes;
    const char *phase;          /* the one that needs most beside what is kept */
};

/* What follows from the plan alone, worked out once for many options.  compute:
 * weights in slots and activations, DT_F32 or DT_BF16; wire: gradients between
 * ranks.  The plan is borrowed; the result is owned. */
struct footprint_base;
struct footprint_base *footprint_open(const struct plan *p, enum dtype compute, enum dtype wire);
void footprint_close(struct footprint_base *b);         /* NULL is accepted */

/* out [efsdp * ep]: every rank of a shard group. */
void footprint_ranks(const struct footprint_base *b, const struct footprint_opts *o, struct footprint *out);

/* Rows of an expert buffer: rows_cap as it works out, a multiple of ep. */
int64_t footprint_rows(const struct model_config *c, struct mesh m, const struct footprint_opts *o);

const char *footprint_class_name(enum foot_class c);
/* True for what lives for the run, false for what a phase takes. */
_Bool footprint_is_kept(enum foot_class c);

/* ---- bytes that travel: one rank, one micro-batch (replicas: one step), balanced routing */

struct traffic {
    double gather_fwd, gather_bwd;      /* weights received */
    double reduce;              /* gradients sent to owners */
    double replicas;            /* owned gradients summed over replicas, in F32: 2 (R-1)/R of them */
    double dispatch;            /* expert rows sent to other ranks of the EP group */
};

/* Newton-Schulz of the rank that has most of it. */
double footprint_ns_flops(const struct footprint_base *b);

/* The rank with the most; owners differ by little. */
void footprint_traffic(const struct footprint_base *b, const struct footprint_opts *o, struct traffic *out);

#endif
