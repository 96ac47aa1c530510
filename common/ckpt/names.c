/* names.c -- open addressing, at most half full. */
#include "ckpt/names.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/err.h"

struct ckpt_names {
    const char *items;
    size_t size, offset, mask;
    uint64_t seed;
    uint32_t *slot;             /* [mask + 1] number + 1, or 0 */
    struct arena *arena;
};

static const char *name_of(const struct ckpt_names *x, uint32_t i)
{
    return *(const char *const *)(const void *)(x->items + (size_t)i * x->size + x->offset);
}

/* The slot that holds the name, or the free one where it would go. */
static size_t probe(const struct ckpt_names *x, const char *name)
{
    size_t i = (size_t)XXH3_64bits_withSeed(name, strlen(name), x->seed) & x->mask;

    while (x->slot[i] && strcmp(name_of(x, x->slot[i] - 1), name) != 0)
        i = (i + 1) & x->mask;
    return i;
}

struct ckpt_names *ckpt_names_new(const void *items, int64_t n, size_t size, size_t offset, int64_t *twice)
{
    struct arena *a = arena_new();
    struct ckpt_names *x = arena_alloc(a, sizeof *x);
    size_t slots = 8;
    struct timespec ts;

    BUG_ON(n < 0 || n >= (int64_t)UINT32_MAX);
    while (slots < 2 * (size_t)n)
        slots *= 2;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    *x = (struct ckpt_names){ items, size, offset, slots - 1, 0, NULL, a };
    x->seed = (uint64_t)ts.tv_nsec * UINT64_C(0x9e3779b97f4a7c15) ^ (uintptr_t)x;
    x->slot = arena_array(a, slots, sizeof *x->slot);
    *twice = -1;
    for (int64_t i = 0; i < n; i++) {
        size_t at = probe(x, name_of(x, (uint32_t)i));

        if (!x->slot[at])
            x->slot[at] = (uint32_t)i + 1;
        else if (*twice < 0)
            *twice = i;
    }
    return x;
}

void ckpt_names_free(struct ckpt_names *x)
{
    if (x)
        arena_free(x->arena);
}

int64_t ckpt_names_find(const struct ckpt_names *x, const char *name)
{
    return (int64_t)x->slot[probe(x, name)] - 1;
}
