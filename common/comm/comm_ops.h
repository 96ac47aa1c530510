/* comm_ops.h -- what comm.c and the back ends share; nobody else includes it.
 *
 * comm.c builds every collective from two things a back end can do: share a few
 * bytes of each rank with all, and run one request made of parts.  A back end
 * holds the state of one request and one share at a time for each communicator;
 * comm.c keeps them in order, waits, counts and reports. */
#ifndef COMM_COMM_OPS_H
#define COMM_COMM_OPS_H

#include <stdatomic.h>

#include "base/hash.h"
#include "comm/comm.h"

enum {
    COMM_SHARE_MAX = 1024,      /* bytes of one rank in a share */
    COMM_HOST_MAX = 64,
    COMM_CPU_WORDS = 16,        /* of 64 CPUs each: what a cpu_set_t holds */
};

/* What step() found: COMM_DONE also when nothing was left to move. */
enum comm_moved { COMM_IDLE, COMM_MOVED, COMM_DONE };

struct comm_req {
    struct comm *c;
    enum comm_kind kind;        /* COMM_GATHER, COMM_REDUCE or COMM_ALL_TO_ALL */
    enum comm_op op;            /* reduce */
    enum dtype wire;            /* reduce */
    const struct comm_part *send, *recv;        /* the same list but for all_to_all */
    int n_send, n_recv;
    enum comm_kind label;       /* the call it belongs to, for counts and reports */
    int64_t seq;
    _Bool used, begun, done;
    int rc;
    struct comm_req *next;
};

/* One row per rank of the node, in memory that all of them see.  The writer
 * makes version odd while it writes. */
struct comm_row {
    _Atomic int64_t version;
    _Atomic int32_t pid;        /* 0: not there yet, or gone in good order */
    _Atomic int32_t rank;       /* in the world */
    _Atomic int32_t kind, waiting;
    _Atomic int64_t seq, step, at_ns;           /* CLOCK_MONOTONIC, one clock per node */
    _Atomic uint64_t in[2];     /* name of the communicator, 16 bytes */
    _Atomic uint64_t cpus[COMM_CPU_WORDS];      /* the affinity mask */
    char pad[56];
};

/* The memory of a node: how it ends, then the rows. */
struct comm_board {
    _Atomic int32_t claimed;    /* a rank is about to say why all are to leave */
    _Atomic int32_t status;     /* has said it: 0, or the exit status all leave with */
    char pad[120];
    struct comm_row rows[];
};

/* What all communicators of a process share. */
struct comm_world {
    struct comm *world;         /* head of the list of communicators */
    struct comm_options options;
    int rank, size, node_rank, node_size;
    char host[COMM_HOST_MAX];
    struct comm_board *board;   /* [node_size] rows */
    _Bool watch_pids;           /* ranks of the node see each other's processes */
    int64_t seq, step, bytes;
    struct comm_counts counts;
    int64_t entered_ns;         /* when the call that runs now began */
    int64_t checked_ns;         /* when the peers were last looked at */
    struct hash told;           /* of the sentence that was agreed last */
    void *watchdog;
    void *self;                 /* of the back end */
};

struct comm {
    const struct comm_ops *ops;
    struct comm_world *w;
    struct comm *next;
    int rank, size;
    char name[16];
    void *self;                 /* of the back end */
    char *share;                /* [size][COMM_SHARE_MAX] */
    const void **srcs;          /* [size]: places of the terms of a sum */
    struct comm_part *parts;    /* [size]: the parts of calls that make their own */
    struct comm_req *head, **tail;
    struct comm_req reqs[COMM_MAX_REQS];
};

/* Rows and board are cleared by whoever makes them.  A back end fills rank and
 * size of a communicator and self; of a world also rank, size, node_rank,
 * node_size, host, board and watch_pids. */
struct comm_ops {
    const char *name;
    /* Collective.  color < 0: out->size stays 0.  by_node: color is ignored. */
    int (*split)(struct comm *c, int color, int key, _Bool by_node, struct comm *out);
    void (*close)(struct comm *c);
    void (*close_world)(struct comm_world *w);
    /* all [size][n] gets mine of every rank; mine and all stay until done.
     * share_test: COMM_DONE when it is. */
    int (*share_start)(struct comm *c, const void *mine, int64_t n, void *all);
    int (*share_test)(struct comm *c);
    /* The oldest request: comm.c has already served the rank's own parts but
     * for reduce, where the own contribution takes its turn. */
    int (*begin)(struct comm *c, struct comm_req *r);
    int (*step)(struct comm *c, struct comm_req *r);
    /* Ends all processes of the job; may return when the launcher is slow. */
    void (*abort)(struct comm_world *w, int status);
};

/* A world of one back end: fills w and world but for what comm.c fills. */
int comm_self_open(struct comm_world *w, struct comm *world);
int comm_mpi_open(struct comm_world *w, struct comm *world);
_Bool comm_mpi_built_in(void);

/* comm_fail.c: ends this process at once when the job is ending or a rank of
 * the node has died; whoever waits calls it now and then. */
void comm_check_peers(struct comm_world *w);
/* Ends the job without a word, for a rank that leaves and has said why. */
void comm_end(struct comm_world *w, int status) __attribute__((noreturn));
void comm_row_begin(struct comm *c);
void comm_row_set(struct comm *c, enum comm_kind kind, int64_t seq, _Bool waiting);
/* comm.c */
int comm_share(struct comm *c, const void *mine, int64_t n, void *all);
void comm_enter(struct comm *c, enum comm_kind kind);
int comm_leave(struct comm *c, enum comm_kind kind, int rc);
int64_t comm_now_ns(void);

#endif
