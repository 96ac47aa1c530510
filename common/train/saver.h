/* saver.h -- the checkpoints of a run: written while everybody waits, or, with
 * checkpoint.async, beside the steps that follow.
 *
 * Beside: saver_save() returns at once, and the state is copied during the next
 * forward and backward, which only read it; saver_copied() comes before anything
 * changes it.  The caller asks between steps whether a rank is busy; when none is,
 * saver_advance() takes the save further, and "saved step N" is said when its
 * checkpoint is in place and not before.  One save at a time: a second one waits
 * for the first, and says so.  A light checkpoint never counts as the state being
 * saved.
 *
 * It refuses to decide when to save, and to touch the watchdog. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include "train/state.h"

struct saver;

/* t, run_dir and id are borrowed; the directory is locked.  *out is owned. */
int saver_open(struct trainer *t, const char *run_dir, const struct run_identity *id, struct saver **out);
/* Waits for a thread that still writes; its save is then lost unless
 * saver_finish() came before.  NULL is accepted. */
void saver_close(struct saver *s);

/* The step of the newest checkpoint, after one was loaded. */
void saver_has(struct saver *s, int64_t step);

/* Until nothing of the set-up goes on in the background. */
void saver_settle(struct saver *s);

/* Collective.  Saves the state of now unless that is done or in hand.  Light: the
 * model alone, unless the step has a checkpoint that is more; else whether it is a
 * major one follows from the step. */
int saver_save(struct saver *s);
int saver_save_light(struct saver *s);

/* Not collective.  Before the state is changed: waits for the copy, and returns
 * the seconds that it had to. */
double saver_copied(struct saver *s);

_Bool saver_pending(const struct saver *s);     /* a save is in hand; the same on all ranks */
_Bool saver_busy(const struct saver *s);        /* and this rank's part is not done yet */

/* Collective, when a save is in hand and no rank is busy. */
int saver_advance(struct saver *s);

/* Collective.  Waits for the save in hand; 0 when there is none. */
int saver_finish(struct saver *s);

/* What saving before the end may still take: the longest so far, and as much
 * again while one is in hand. */
double saver_reserve_s(const struct saver *s);

#endif
