/* against.h -- token files that are there, held against what texts give now. */
#ifndef AGAINST_H
#define AGAINST_H

#include "outputs.h"

struct against;

/* Opens the files that the plan names; a pair without a sidecar will do.  The plan
 * is borrowed until close. */
int against_open(const struct outputs_plan *plan, struct against **out);
void against_close(struct against *g);          /* NULL is accepted */

/* As outputs_add(): ERR_NO names the first document and token that are not the
 * same, in the order of the text. */
int against_add(struct against *g, const struct outputs_rows *rows, int64_t n_rows, _Bool open);

/* Everything was added: ERR_NO when a file has more. */
int against_end(struct against *g, int64_t *documents, int64_t *tokens);

#endif
