/* timed.h -- a clock around every op of another device.
 *
 * The device forwards each call and adds the time until it returned; what it
 * computes, asks for and refuses is what the device behind it does.  Calls, flops
 * and bytes are those of trace.h.  For moe-bench step; nothing else needs it. */
#ifndef DEV_TIMED_H
#define DEV_TIMED_H

#include <stdint.h>

#include "dev/dev.h"

struct timed_count { const char *op; int64_t calls; double seconds, flops, bytes; };

/* Takes *inner (closed with *out; cleared here) on success. */
int timed_open(struct dev *inner, struct dev *out);

/* Returns the number of rows: the ops called at least once since the last
 * reset, in the order of the table.  *out is borrowed until the next call or
 * close. */
int timed_counts(struct dev *d, const struct timed_count **out);
void timed_reset(struct dev *d);

#endif
