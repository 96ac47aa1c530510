/* arena.c -- a list of chunks; requests larger than a chunk get their own. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/pool.h"

#define CHUNK_BYTES ((size_t)64 * 1024)

struct chunk {
    struct chunk *next;
    size_t size, used;
    _Alignas(16) unsigned char data[];
};

struct arena {
    struct chunk *head;         /* the chunk being filled */
    struct chunk *spare;        /* kept by arena_reset() */
};

void *arena_must(void *p)
{
    if (!p) {
        fputs("moe: out of memory for bookkeeping\n", stderr);
        _Exit(74);
    }
    return p;
}

struct arena *arena_new(void)
{
    return arena_must(pool_calloc(1, sizeof(struct arena)));
}

static void free_list(struct chunk *c)
{
    while (c) {
        struct chunk *next = c->next;
        pool_free(c);
        c = next;
    }
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    free_list(a->head);
    free_list(a->spare);
    pool_free(a);
}

void arena_reset(struct arena *a)
{
    while (a->head) {
        struct chunk *c = a->head;
        a->head = c->next;
        c->next = a->spare;
        a->spare = c;
    }
}

static struct chunk *chunk_for(struct arena *a, size_t bytes)
{
    struct chunk **at = &a->spare;

    while (*at && (*at)->size < bytes)
        at = &(*at)->next;
    if (*at) {
        struct chunk *c = *at;
        *at = c->next;
        c->used = 0;
        return c;
    }
    size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct chunk *c = arena_must(pool_alloc(sizeof *c + size));
    c->size = size;
    c->used = 0;
    return c;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        arena_must(NULL);
    bytes = (bytes + 15) & ~(size_t)15;
    if (!a->head || a->head->size - a->head->used < bytes) {
        struct chunk *c = chunk_for(a, bytes);
        c->next = a->head;
        a->head = c;
    }
    void *p = a->head->data + a->head->used;
    a->head->used += bytes;
    return memset(p, 0, bytes);
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        arena_must(NULL);
    return arena_alloc(a, count * size);
}

char *arena_strdup(struct arena *a, const char *s)
{
    size_t n = strlen(s) + 1;

    return memcpy(arena_alloc(a, n), s, n);
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        n = 0;
    char *s = arena_alloc(a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

int size_mul(size_t a, size_t b, size_t *out)
{
    if (__builtin_mul_overflow(a, b, out))
        return err_set(ERR_DATA, "size %zu x %zu does not fit in memory", a, b);
    return 0;
}
