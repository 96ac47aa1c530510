/* trace.h -- the device without data: records what a program asks for.
 *
 * Every op of the table is present, checks its shapes as ref does, touches no
 * operand, and adds to the counts.  Used for the memory plan, for --dry-run and
 * for the FLOP formula of moe-formats(5). */
#ifndef DEV_TRACE_H
#define DEV_TRACE_H

#include <stdint.h>

#include "dev/dev.h"

struct trace_count { const char *op; int64_t calls; double flops, bytes; };

/* A trace device that answers takes() and ws_bytes() as `like` does. */
int trace_open(const struct dev *like, struct dev *out);

int64_t trace_ops(const struct dev *d);                 /* ops so far */
int trace_counts(const struct dev *d, const struct trace_count **out);  /* rows; borrowed */

#endif
