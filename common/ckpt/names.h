/* names.h -- finds one of many named things by its name.
 *
 * An index over an array of structs that hold a `const char *` somewhere; the
 * array is borrowed and must neither move nor change.  Hostile names cannot
 * make it slow: the hash is seeded anew each time. */
#ifndef CKPT_NAMES_H
#define CKPT_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct ckpt_names;

/* items: n structs of size bytes, whose name pointer stands at offset.  Fewer
 * than 2^32.  Never fails: bookkeeping memory, as in base/arena.h.  *twice is
 * the number of the first item whose name was there before, or -1. */
struct ckpt_names *ckpt_names_new(const void *items, int64_t n, size_t size, size_t offset, int64_t *twice);
void ckpt_names_free(struct ckpt_names *x);     /* NULL is accepted */

/* The number of the (first) item with that name, or -1. */
int64_t ckpt_names_find(const struct ckpt_names *x, const char *name);

#endif
