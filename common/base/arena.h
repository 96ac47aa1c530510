/* arena.h -- host memory with a lifetime: run, step or scratch.
 *
 * An arena hands out zeroed memory that is freed all at once.  A function that
 * allocates takes the arena as its first argument, so the lifetime is the
 * caller's choice.  Arenas are for small bookkeeping: when even that cannot be
 * had the process ends with one line and status 74.  The big buffers of a step
 * are planned and carved by dev/mem.h instead. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena;

struct arena *arena_new(void);
void arena_free(struct arena *a);       /* NULL is accepted */

/* Forgets everything allocated so far; the chunks are kept for reuse. */
void arena_reset(struct arena *a);

/* 16-byte aligned, zeroed, borrowed until reset or free. */
void *arena_alloc(struct arena *a, size_t bytes);

/* As arena_alloc() for count items of size bytes; the product is checked. */
void *arena_array(struct arena *a, size_t count, size_t size);

char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* p itself; when p is NULL the process ends as above.  For bookkeeping that
 * grows by realloc. */
void *arena_must(void *p);

/* Multiplies into *out; ERR_DATA with a sentence on overflow. */
int size_mul(size_t a, size_t b, size_t *out);

#endif
