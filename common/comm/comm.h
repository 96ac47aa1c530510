/* comm.h -- what ranks say to each other, as one set of calls over any back end.
 *
 * Promises
 *  1. Sums run in ascending rank order with fp32 accumulation (or better), so
 *     every rank holds the same bits, on any back end and in any chunking.
 *  2. Zero counts are legal everywhere; sizes are 64-bit; a rank with nothing to
 *     move still takes part.
 *  3. With one rank every call is a local copy through the same code.
 *  4. Only opening and splitting allocate, and comm_gather_bytes() from its arena.
 * It refuses to reorder: the collectives of all communicators are issued in one
 * program order on every rank, started ones included.  A communicator works
 * through its requests in that order; comm_progress() moves all of them.
 *
 * Not for several threads: one thread of a process calls.  comm_abort() and the
 * watchdog are the exceptions.
 *
 * Errors: ERR_ABSENT for peers or libraries that are not there, ERR_BUG for
 * counts that do not match.  An error of a collective is fatal for its
 * communicator: the caller goes to comm_abort(), never on. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

struct arena;
struct comm;
struct comm_req;

/* ---- opening */

struct comm_options {
    _Bool no_windows;       /* mpi: messages even between ranks of one node (for measuring and tests) */
    int64_t stage_bytes;    /* mpi: staging memory of a rank in one communicator; 0: 1 MiB */
};

/* Collective.  The world by back end: "self" (one rank) or "mpi".  o may be
 * NULL.  ERR_ABSENT for a back end that is not built in or does not start.  One
 * world is open at a time; after it is closed "mpi" cannot be opened again. */
int comm_open(const char *name, const struct comm_options *o, struct comm **out);
/* Collective.  Frees c; the world last, with no request left.  NULL is accepted. */
void comm_close(struct comm *c);
const char *const *comm_names(void);    /* back ends built in, NULL-terminated */

/* Collective in c; no request may be open.  Ranks of one color form a
 * communicator, ordered by (key, rank in c).  color < 0: this rank joins none and
 * gets NULL.  name stands in reports, at most 15 letters are kept. */
int comm_split(struct comm *c, int color, int key, const char *name, struct comm **out);
/* Collective in c.  The ranks of c on this node. */
int comm_split_node(struct comm *c, const char *name, struct comm **out);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
const char *comm_name(const struct comm *c);
const char *comm_backend(const struct comm *c);     /* "self", "mpi windows", "mpi messages" */
int comm_world_rank(const struct comm *c);
int comm_world_size(const struct comm *c);
const char *comm_host(const struct comm *c);
int comm_node_rank(const struct comm *c);           /* among the ranks of the world on this node */
int comm_node_size(const struct comm *c);
/* CPUs for this rank: its affinity mask, shared evenly with the ranks of the
 * node that may run on the same ones; at least 1. */
int comm_threads(const struct comm *c);
/* Bytes of buffers that all communicators of this process hold in this library;
 * what MPI allocates itself is not in it. */
int64_t comm_bytes(const struct comm *c);

/* ---- small: these return when done */

enum comm_op { COMM_SUM, COMM_MAX, COMM_MIN };

/* Collective. */
int comm_barrier(struct comm *c);
/* Collective.  v [n], in place, of F32, F64, I32 or I64.  A NaN anywhere makes
 * the maximum and the minimum NaN. */
int comm_all_reduce(struct comm *c, void *v, int64_t n, enum dtype dt, enum comm_op op);
/* Collective.  all [size][bytes]; mine may be its own place in all. */
int comm_all_gather(struct comm *c, const void *mine, int64_t bytes, void *all);
/* Collective.  As above with bytes[size], packed in rank order. */
int comm_all_gatherv(struct comm *c, const void *mine, const int64_t *bytes, void *all);
/* Collective.  p [bytes] of rank owner to all. */
int comm_broadcast(struct comm *c, int owner, void *p, int64_t bytes);
/* Collective.  Byte strings of any length to rank 0, which gets them joined in
 * rank order in *all (from a) and where each ends in ends [size]; other ranks
 * get NULL and may pass NULL for a and ends. */
int comm_gather_bytes(struct arena *a, struct comm *c, const void *p, int64_t n, char **all, int64_t *ends);

/* ---- heavy: each has a form that returns when done and one that is started */

/* A piece of a bucket.  Lists of parts, and what they point at, are borrowed
 * until the request is done. */
struct comm_part {
    int rank;               /* gather, reduce: the owner; all_to_all: the peer */
    int64_t bytes;          /* of the payload; 0 is legal */
    void *p;                /* may be NULL when bytes is 0 */
    void *sum;              /* reduce, on the owner: [n]; may be p when the types agree */
};

/* Collective.  Every part goes from its owner to all ranks: an all-gather with
 * any number of parts per owner, and the broadcast of a bucket.  rank and bytes
 * of each part are the same on all ranks; p is where it lies, or arrives. */
int comm_gather(struct comm *c, const struct comm_part *parts, int n_parts);
int comm_start_gather(struct comm *c, const struct comm_part *parts, int n_parts, struct comm_req **out);

/* Collective.  Every rank contributes p to every part; the owner gets the sum
 * over all ranks in sum.  rank and bytes are the same on all ranks.  wire is
 * the type of p: F32 or BF16 give a sum in F32; F64, I32 and I64 in their own. */
int comm_reduce(struct comm *c, const struct comm_part *parts, int n_parts, enum dtype wire);
int comm_start_reduce(struct comm *c, const struct comm_part *parts, int n_parts, enum dtype wire, struct comm_req **out);

/* Collective.  The k-th send part for a peer arrives in the peer's k-th receive
 * part for this rank, of the same bytes; empty parts do not count.  The parts for
 * the rank itself are copied.  No send part may overlap a receive part. */
int comm_all_to_all(struct comm *c, const struct comm_part *send, int n_send, const struct comm_part *recv, int n_recv);
int comm_start_all_to_all(struct comm *c, const struct comm_part *send, int n_send,
                          const struct comm_part *recv, int n_recv, struct comm_req **out);

/* A started request is ended by exactly one comm_wait(), or by the comm_test()
 * that returns 1; both set *r to NULL, and *r may be NULL before (0, 1).
 * At most COMM_MAX_REQS are open in one communicator. */
enum { COMM_MAX_REQS = 64 };
int comm_wait(struct comm_req **r);
int comm_test(struct comm_req **r);     /* 1 done, 0 not yet, or an error */
/* Moves what can be moved in all communicators of this process; called between
 * ops.  Cheap when nothing is open.  Errors show at the wait. */
void comm_progress(struct comm *c);

/* ---- failures */

/* Collective.  code is 0 or what this rank failed with (its sentence is in the
 * error record).  All ranks return the same: an error beats ERR_STOPPED and
 * ERR_INTERRUPTED, those beat 0; of several the lowest rank's.  With more than
 * one rank the sentence becomes "rank R on HOST: sentence" and stays on rank 0
 * of c only, so that one main prints it. */
int comm_agree(struct comm *c, int code);

/* Not collective.  Says "rank R on HOST: text (in all_gather of world #N, step
 * K)" on stderr and ends the processes of all ranks with the status of code, as
 * far as the launcher lets it; of several ranks of a node only the first speaks.
 * Any thread may call. */
void comm_abort(struct comm *c, int code, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

/* What this rank does now.  what: the collective it waits in, or the last one
 * when waiting is false. */
struct comm_status {
    const char *what;       /* "all_gather"; "none" before the first */
    char in[16];            /* name of the communicator */
    int64_t seq;            /* collectives issued so far; agrees between ranks in step */
    int64_t step;           /* as set by comm_set_step(); -1 before */
    _Bool waiting;
    double since_s;         /* seconds since it began to wait, or since it left */
};
void comm_status(struct comm *c, struct comm_status *out);
void comm_set_step(struct comm *c, int64_t step);

/* Starts a thread that looks every quarter of a second at the ranks of this
 * node.  When this rank has waited longer than limit_s it reports one line per
 * rank, "rank R on HOST waits S s in all_gather of world #N (step K)" or "rank R
 * on HOST has not called for S s after ...", and ends the job with 69.  report is
 * called from that thread, NULL: the log.  comm_watchdog_stop() or closing the
 * world ends it. */
int comm_watchdog_start(struct comm *c, double limit_s, void (*report)(void *ctx, const char *line), void *ctx);
void comm_watchdog_stop(struct comm *c);

/* ---- counting */

enum comm_kind {
    COMM_BARRIER, COMM_ALL_REDUCE, COMM_ALL_GATHER, COMM_BROADCAST, COMM_GATHER_BYTES,
    COMM_GATHER, COMM_REDUCE, COMM_ALL_TO_ALL, COMM_AGREE, COMM_SPLIT, COMM_N_KINDS
};
const char *comm_kind_name(enum comm_kind k);

/* Of this rank, over all communicators of the world.  sent counts a payload once
 * per rank it goes to; nothing a rank gives to itself is counted. */
struct comm_counts {
    int64_t calls[COMM_N_KINDS], sent[COMM_N_KINDS], received[COMM_N_KINDS];
    double wait_s;          /* spent inside these calls: what was not hidden behind other work */
};
void comm_counts(const struct comm *c, struct comm_counts *out);

#endif
