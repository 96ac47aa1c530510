/* rows.h -- reads a run's metrics.jsonl back, row by row.
 *
 * A last line without its end was torn by a crash and is passed over; any other
 * line that is no JSON object is an error with its place.  Rows of schemas that
 * were not asked for are not even parsed. */
#ifndef CKPT_ROWS_H
#define CKPT_ROWS_H

#include <jansson.h>

/* Calls fn with every row of one of the schemas ("moe.eval/1", ...; NULL ends
 * the list), in the order of the file, until it fails.  where ("FILE:LINE") and
 * row are borrowed for the call. */
int rows_each(const char *path, const char *const *schemas, int (*fn)(void *ctx, const char *where, const json_t *row), void *ctx);

#endif
