/* mem.h -- planned memory: the plan is the tape of a program, the run plays it.
 *
 * A program (a micro-batch, the optimizer, an evaluation batch, a decoding
 * step) takes and gives back buffers in an order that is a pure function of
 * the configuration.  It runs once over the trace device with the memory in
 * record mode: every take gets a size and a lifetime, nothing is touched.
 * mem_plan() packs the buffers of each program (programs never overlap in
 * time, so they share one scratch region) beside the buffers that live for the
 * run; mem_carve() makes exactly one reservation of that size.  From then on
 * take() hands out the planned addresses in the recorded order and checks
 * class, name, size and the order of takes and gives: a program that deviates
 * from its tape is our bug (it aborts, or mem_begin and mem_end return it).
 *
 * Invariants: M1 two buffers of a program share bytes only when one was given
 * back before the other was taken.  M2 after mem_seal() nothing allocates.
 * M3 mem_used() == mem_planned() after the carve, by construction of one
 * mapping; tests/unit/test_mem.c checks all three.
 *
 * Without mem_record() the memory is in plain mode: take() allocates and
 * give() frees; unit tests of the model use it. */
#ifndef DEV_MEM_H
#define DEV_MEM_H

#include <stddef.h>
#include <stdint.h>

enum mem_class {
    MEM_MASTER,         /* fp32 parameters */
    MEM_STATE,          /* momentum, exp_avg, exp_avg_sq */
    MEM_GRAD,
    MEM_TABLE,          /* RoPE, byte lengths */
    MEM_SLOT,           /* gathered weights and gradients on their way to owners */
    MEM_BATCH,          /* ids, targets, positions */
    MEM_BOUNDARY,       /* residual stream kept for backward */
    MEM_ROUTING,        /* saved indices, weights, counts */
    MEM_ACT,            /* activations of one layer */
    MEM_ROWS,           /* expert rows */
    MEM_LOGITS,         /* one chunk of logits */
    MEM_CACHE,          /* keys and values for decoding */
    MEM_OPTIM,          /* optimizer scratch */
    MEM_WS,             /* device scratch */
    MEM_SAVE,           /* a checkpoint on its way to the disk */
    MEM_CLASS_N
};

const char *mem_class_name(enum mem_class c);

struct mem;

struct mem *mem_new(void);              /* plain mode */
void mem_free(struct mem *m);

/* Record mode, before anything was taken. */
void mem_record(struct mem *m);

/* A buffer for the whole run, taken outside programs.  64-byte aligned and, in
 * the carved reservation, zero.  Recording: a fake address that must not be
 * touched.  After the carve the same set-up code runs again with the real
 * device, and its calls get the planned addresses in the recorded order, with
 * name and size checked.  ERR_IO when memory cannot be had (plain mode). */
int mem_keep(struct mem *m, enum mem_class c, const char *name, size_t bytes, void **out);

/* Programs: begin, then take and give in any order, then end (everything
 * given).  A program is recorded once and played any number of times, always
 * whole.  Taking never fails once carved; what a buffer holds when taken is
 * undefined.  ERR_BUG: a program within a program, recorded twice or unknown,
 * a buffer not given back, a tape not played to its end. */
int mem_begin(struct mem *m, const char *program);
void *mem_take(struct mem *m, enum mem_class c, const char *name, size_t bytes);
void mem_give(struct mem *m, void *p);
int mem_end(struct mem *m);

/* Packs (after recording); maps the one reservation and rewinds the tape of
 * kept buffers, so that keep() plays it; seals: every kept buffer of the tape
 * must have been played, and a later mem_keep() is our bug. */
int mem_plan(struct mem *m);
int mem_carve(struct mem *m);
int mem_seal(struct mem *m);            /* ERR_BUG names what is missing */
_Bool mem_recording(const struct mem *m);

size_t mem_planned(const struct mem *m);        /* bytes of the one reservation */
size_t mem_used(const struct mem *m);           /* bytes mapped (plain mode: allocated) */

/* For tests: taken and given-back buffers are filled with NaN patterns. */
void mem_poison(struct mem *m, _Bool on);

/* Rows of the plan for printing, in recorded order.  first_op and last_op count
 * the takes and gives of the program; offset is in the reservation, where the
 * kept buffers come first and all programs start at the same place behind. */
struct mem_row {
    enum mem_class c;
    const char *name, *program;         /* program: NULL when kept */
    size_t bytes;                       /* as asked */
    int64_t first_op, last_op;
    size_t offset;
    _Bool kept;
};
int mem_n_rows(const struct mem *m);
const struct mem_row *mem_row(const struct mem *m, int i);
size_t mem_class_bytes(const struct mem *m, enum mem_class c);  /* at its own peak */
/* The program that needs most beside the kept buffers and what it needs; NULL
 * without one. */
const char *mem_peak_program(const struct mem *m, size_t *bytes);
size_t mem_largest(const struct mem *m, const char **name);

#endif
