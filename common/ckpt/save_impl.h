/* save_impl.h -- what the sources of a save share; nobody else includes it. */
#ifndef CKPT_SAVE_IMPL_H
#define CKPT_SAVE_IMPL_H

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "ckpt/save.h"

struct save_tensor {
    enum ckpt_group group;
    const char *name;
    enum dtype dtype;
    int n_dims;
    int64_t *shape;
    uint64_t bytes, row_bytes;
    struct ckpt_rows *rows;     /* [n_rows], none empty unless the tensor is */
    int n_rows;
    int writer;                 /* from the plan: the rank */
    int i_file;                 /* in files[] */
    int i_in_file;              /* its number for the st_writer of that file */
    uint64_t stage_at;          /* where the writer has its copy, when there is one */
};

struct save_file {
    enum ckpt_group group;
    int writer;
    int64_t first, n;           /* its tensors: order[first ...] */
    const char *name;           /* relative to the directory */
};

/* Who writes what: the same on every rank. */
struct save_plan {
    int64_t *order;             /* [n tensors] numbers of tensors, file by file */
    struct save_file *files;    /* [n_files] model first, then by rank */
    int n_files;
};

/* Fills in writer and place of t [n], and *p, whose arrays lie in a. */
void save_plan(struct arena *a, struct save_tensor *t, int64_t n, int n_ranks, uint64_t shard_bytes, struct save_plan *p);

/* Gives each tensor of this rank its place in the copy; the bytes of all. */
uint64_t save_plan_stage(const struct save_plan *p, struct save_tensor *t, int64_t n, int rank);

/* The holder that a writer gets rows from: itself, else the nearest rank, which
 * is most often one of its own replica. */
int save_plan_sender(const struct ckpt_rows *r, int writer);
_Bool save_plan_holds(const struct ckpt_rows *r, int rank);

/* A small file that waits for the thread. */
struct save_later { const char *name; const void *data; size_t n; struct save_later *next; };

enum save_phase { SAVE_DECLARED, SAVE_WRITING, SAVE_COMMITTING };

struct ckpt_save {
    struct arena *arena;
    struct comm *comm;          /* NULL: alone */
    int rank, size;
    const char *run_dir, *ckpt_dir, *final, *temp;
    uint64_t shard_bytes;
    struct save_tensor *t;      /* [n], in the order of the calls */
    int64_t n, room;
    struct hash_stream *declared;       /* what all ranks must have declared alike */
    struct err_state kept;      /* the first failure before a collective call; code 0: none */
    struct save_plan plan;
    struct manifest m;          /* rank 0 */
    int64_t room_files;
    _Bool settled, written, has_optim;
    struct st_writer **writers; /* [plan.n_files] of files of this rank that are open */
    char *stage;                /* rows that arrive from other ranks */

    struct ckpt_writer *writer; /* NULL: the caller waits for everything */
    char *copy;                 /* what the writer writes from */
    enum save_phase phase;
    _Bool copied;               /* under the lock of the writer */
    int keep, keep_light;
    struct save_later *later, **later_end;
    char *record;               /* [n_record] of this rank */
    int64_t n_record;
    const char *all;            /* rank 0: of all ranks, and where each ends */
    const int64_t *ends;
    double busy_s;              /* what the last part of the thread took */
    struct ckpt_save_facts facts;
};

/* Collective, of which the first call counts: the ranks agree that all of them
 * declared the same tensors without an error, and the plan is made. */
int save_settle(struct ckpt_save *s);

/* Collective.  As comm_agree(); one rank keeps its code. */
int save_agree(struct ckpt_save *s, int rc);

/* For a collective call that has failed: there is no way on. */
void save_must(struct ckpt_save *s, int rc);

/* Collective.  n bytes of every rank to rank 0: *all is borrowed from the arena
 * (or p), ends [size] says where those of each rank end.  NULL on other ranks. */
void save_collect(struct ckpt_save *s, const char *p, int64_t n, const char **all, const int64_t **ends);

/* Collective.  Writes the files of this rank: rows first, then the rest. */
int save_write_files(struct ckpt_save *s);
/* Collective.  Tensors of this rank's files into s->copy: those that are split by
 * rows; and, not collective, the rest. */
void save_write_rows(struct ckpt_save *s);
void save_write_copy(struct ckpt_save *s);
/* Not collective: the files from s->copy, or what needs no other rank.  Makes
 * s->record, what rank 0 needs to know of them, in the order of the plan. */
int save_write_local(struct ckpt_save *s);
/* Takes the next file, and then each of its tensors, from the records of its
 * writer; *at moves on to end.  ERR_BUG when the record is short. */
int save_write_take_file(const char **at, const char *end, uint64_t *bytes, struct hash *head);
int save_write_take_parts(const char **at, const char *end, struct arena *a, struct st_part **parts, int *n);

/* Not collective.  Files that waited; by rank 0: the tables of what all ranks
 * wrote, then everything from the MANIFEST to the removal of old checkpoints. */
int save_put_later(struct ckpt_save *s);
int save_list_all(struct ckpt_save *s);
int save_commit_here(struct ckpt_save *s);

#endif
