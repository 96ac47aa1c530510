/* pool.h -- memory for bookkeeping that can be set aside before a run starts.
 *
 * malloc(3) by another name until pool_reserve() is called; from then on
 * requests are served from one block that was had then, so that saving a
 * checkpoint in the middle of a run asks the system for nothing.  What does not
 * fit falls through to malloc, and pool_overflow() counts it.
 *
 * For arenas, text and file buffers; the big buffers of a step are planned by
 * dev/mem.h.  Threads may call.  Not for pointers that others free(). */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

/* 16-byte aligned, not zeroed (calloc: zeroed); NULL when there is none. */
void *pool_alloc(size_t n);
void *pool_calloc(size_t count, size_t size);
void *pool_realloc(void *p, size_t n);
void pool_free(void *p);                /* NULL is accepted */

/* At least as much as all later uses hold at one time; only the first call counts.  The pages
 * are touched, so that they count from the start.  ERR_IO: no memory. */
int pool_reserve(size_t bytes);

int64_t pool_overflow(void);            /* requests since then that did not fit */
size_t pool_peak(void);                 /* most bytes in use at a time since then */

#endif
