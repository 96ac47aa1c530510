/* fault_rig.h -- the commands whose every call is made to fail, and what must
 * hold afterwards whatever happened.
 *
 * Each command is the function behind a subcommand of moe-ckpt (or a save of
 * moe-train) on a model of 20 tensors, in a directory of its own.  A test makes
 * that directory from a template, runs the command in a child with the fault
 * library armed, and looks at what is left. */
#ifndef UNIT_FAULT_RIG_H
#define UNIT_FAULT_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct rig_cmd {
    const char *name;
    void (*prepare)(const char *dir);   /* makes the template */
    int (*run)(const char *dir);        /* the command; an error code */
    const char *run_dir;        /* relative: a RUN in which something whole must be found, or NULL */
    const char *out;            /* relative: what it writes besides, absent or whole, or NULL */
    const char *kept;           /* relative: stays as it is, byte for byte */
};

/* From fault.h, in this program. */
extern void (*rig_plan)(const char *spec, const char *dir);
extern long (*rig_count)(const char *kind);
extern void (*rig_trace)(int fd);

/* First in main(): starts this program again with the fault library before it,
 * takes the name of a test from the command line, and makes the directory of all
 * that follows: in memory if there is such a place, else in TMPDIR; fresh, without
 * links in its path.  rig_leave() removes it.  Where no library can be loaded,
 * both do nothing more and rig_need() skips the test it is called in, with the
 * reason. */
void rig_enter(int argc, char **argv);
void rig_need(void);
void rig_leave(void);

const struct rig_cmd *rig_named(const char *name);      /* the test fails when there is none */

/* Where a command works, as it begins, and as it ends undisturbed; made by
 * rig_template(), static. */
const char *rig_work(void);
const char *rig_begin(const struct rig_cmd *c);
const char *rig_end(const struct rig_cmd *c);
void rig_template(const struct rig_cmd *c);

/* rig_work() as the command finds it. */
void rig_reset(const struct rig_cmd *c);

void rig_copy(const char *from, const char *to);        /* a tree; `to` is absent */

/* Both trees have the same names, links and bytes, or both are absent. */
_Bool rig_same(const char *a, const char *b);

/* What a child did. */
struct rig_report {
    int signal;                 /* that killed it; 0: it ended */
    int code;                   /* of the command */
    long calls;                 /* of the kind */
    char msg[ERR_MSG_MAX];
};

/* The command in rig_work(), in a child, with a fault (NULL: none); trace: a file
 * for its trace or -1.  The report is static. */
const struct rig_report *rig_run(const struct rig_cmd *c, const char *spec, const char *kind, int trace);

/* 0 when dir holds what must hold after anything: what is kept is the same, the
 * output is absent or as before or as at the end, and the run opens, without
 * falling back, as a step whose every value is right, beside steps that verify.
 * *step: of the run, else 0.  The sentence is in err_msg(). */
int rig_sound(const struct rig_cmd *c, const char *dir, int64_t *step);

/* The last rename of the command is done: only removals were to come. */
_Bool rig_done(const struct rig_cmd *c);

/* Temporaries below rig_work(); -1 with a sentence when there is a name that is no
 * temporary and neither there at the beginning nor at the end. */
int rig_leftovers(const struct rig_cmd *c);

#endif
