/* grow.c -- see grow.h.
 *
 * The owner's pointer is read and written as bytes: a pointer to any other type
 * may not be accessed as a void *. */
#include "base/grow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/pool.h"

#define LEAST 4

static int64_t next_room(int64_t room, int64_t n)
{
    int64_t twice = room > INT64_MAX / 2 ? INT64_MAX : 2 * room;

    if (n < LEAST)
        n = LEAST;
    return n > twice ? n : twice;
}

void *grow_arena(struct arena *a, void *v, int64_t *room, int64_t n, size_t size)
{
    int64_t had = *room;
    void *longer;

    if (n <= had)
        return v;
    *room = next_room(had, n);
    longer = arena_array(a, (size_t)*room, size);
    return had ? memcpy(longer, v, (size_t)had * size) : longer;
}

static int grow(void *v, int64_t *room, int64_t n, size_t size, const char *what, void *(*resize)(void *, size_t))
{
    int64_t more = next_room(*room, n);
    void *p, *longer;
    size_t bytes;

    memcpy(&p, v, sizeof p);
    longer = __builtin_mul_overflow(more, size, &bytes) ? NULL : resize(p, bytes);
    if (!longer)
        return err_set(ERR_IO, "no memory for %" PRId64 " %s", more, what);
    memcpy(v, &longer, sizeof longer);
    *room = more;
    return 0;
}

int grow_plain_now(void *v, int64_t *room, int64_t n, size_t size, const char *what)
{
    return grow(v, room, n, size, what, realloc);
}

int grow_pooled_now(void *v, int64_t *room, int64_t n, size_t size, const char *what)
{
    return grow(v, room, n, size, what, pool_realloc);
}
