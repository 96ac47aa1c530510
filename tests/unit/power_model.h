/* power_model.h -- a file system that forgets, when the power fails, what was
 * never synced.
 *
 * It is fed the trace of a command (fault/fault.h).  Data of a file is safe after
 * fsync(2) of the file; a name in a directory is safe after fsync(2) of that
 * directory, and of nothing else.  Between two syncs a disk may have done any part
 * of what was asked, in any order: every file and directory is written out with a
 * choice of its pending changes.  A rename happens whole or not at all. */
#ifndef UNIT_POWER_MODEL_H
#define UNIT_POWER_MODEL_H

#include <stddef.h>
#include <stdint.h>

struct power;

/* The tree at `root` as it is now, all of it safe.  Owned. */
struct power *power_new(const char *root);
void power_free(struct power *p);

/* The next record of a trace of calls below root; returns its size, 0 at the end
 * of the n bytes.  What it does not know ends the test. */
size_t power_feed(struct power *p, const char *trace, size_t n);

/* How pending changes are chosen: names are kept or lost all, or by lot; data too.
 * one >= 0 turns the choice around for that pending name alone. */
enum power_fate { POWER_LOST, POWER_KEPT, POWER_LOT };
struct power_choice { enum power_fate names, data; int one; uint64_t seed; };

/* Pending changes of names now. */
int power_pending(const struct power *p);

/* Writes the tree after a failure of the power to `to`, which is absent. */
void power_fail(const struct power *p, const struct power_choice *c, const char *to);

#endif
