/* grow.h -- arrays that become longer, in each kind of host memory.
 *
 * An array is a pointer and the number of items there is room for, NULL and 0 at
 * first.  When it must grow its room at least doubles, so that a thousand items
 * added one by one are moved ten times.  It refuses to shrink, and leaves how many
 * items are in use to its owner.  New items are not zeroed, but in an arena. */
#ifndef BASE_GROW_H
#define BASE_GROW_H

#include <stddef.h>
#include <stdint.h>

struct arena;

/* v with room for at least n items of size bytes: itself, or a copy in the arena,
 * which keeps the old ones too; for arrays that stay short. */
void *grow_arena(struct arena *a, void *v, int64_t *room, int64_t n, size_t size);

/* The same by realloc(3).  v is the address of the owner's pointer.  ERR_IO when
 * there is no memory, "no memory for N WHAT"; pointer and room are then as before. */
static inline int grow_plain(void *v, int64_t *room, int64_t n, size_t size, const char *what);

/* The same by pool_realloc() of base/pool.h. */
static inline int grow_pooled(void *v, int64_t *room, int64_t n, size_t size, const char *what);

/* Called by these when the room is too small; never by others. */
int grow_plain_now(void *v, int64_t *room, int64_t n, size_t size, const char *what);
int grow_pooled_now(void *v, int64_t *room, int64_t n, size_t size, const char *what);

static inline int grow_plain(void *v, int64_t *room, int64_t n, size_t size, const char *what)
{
    return n <= *room ? 0 : grow_plain_now(v, room, n, size, what);
}

static inline int grow_pooled(void *v, int64_t *room, int64_t n, size_t size, const char *what)
{
    return n <= *room ? 0 : grow_pooled_now(v, room, n, size, what);
}

#endif
