/* trace.h -- the device without data: records what a program asks for.
 *
 * Every op of the table is present, checks its shapes as ref does, touches no
 * operand, and adds to the counts.  Used for the memory plan, for --dry-run and
 * for the FLOP formula of moe-formats(5). */
#ifndef DEV_TRACE_H
#define DEV_TRACE_H

#include <stdint.h>

#include "dev/dev.h"

/* flops: 2 for each multiply-add of products (GEMMs, attention, Newton-Schulz);
 * ops without a product count 0.  Attention is counted over the pairs of a
 * causal mask without document borders, backward with one recomputation of the
 * scores (5 products for the 2 of forward).  Group ops count all rows of their
 * operands.  bytes: every operand once for each time it is read or written. */
struct trace_count { const char *op; int64_t calls; double flops, bytes; };

/* A trace device that answers takes() and ws_bytes() as `like` does; `like` is
 * borrowed until close.  sync() is always 0. */
int trace_open(const struct dev *like, struct dev *out);

int64_t trace_ops(const struct dev *d);                 /* ops so far */
/* Returns the number of rows: the ops called at least once, in the order of
 * the table.  *out is borrowed until the next op, trace_counts() or close. */
int trace_counts(const struct dev *d, const struct trace_count **out);
void trace_reset(struct dev *d);                        /* counts start again */

#endif
