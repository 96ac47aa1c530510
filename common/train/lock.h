/* lock.h -- one live run per directory.
 *
 * RUN/lock holds the owner's host, pid, process start time and job id, and is
 * locked by the kernel while the owner lives, so a kill -9 never blocks the
 * next start.  Where the file system keeps no locks between hosts the owner's
 * heartbeat decides: younger than LOCK_STALE_S is alive. */
#ifndef TRAIN_LOCK_H
#define TRAIN_LOCK_H

#define LOCK_STALE_S 120

struct run_lock;

/* ERR_LOCKED names the owner.  A dead owner's lock is taken over with one line
 * of talk. */
int lock_take(const char *run_dir, struct run_lock **out);
void lock_drop(struct run_lock *l);         /* NULL is accepted */

/* For status: 1 and the owner's line when a live run holds the directory, else 0. */
int lock_peek(const char *run_dir, char *owner, int n);

#endif
