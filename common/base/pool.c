/* pool.c -- first fit in one block, neighbours joined while looking.
 *
 * There are some hundred pieces at most, since arenas ask for 64 KiB at a time:
 * a list that is walked is enough, and cannot go wrong in interesting ways. */
#include "base/pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* In front of every piece; a piece follows another without a gap. */
struct piece { size_t size; _Alignas(16) size_t used; };        /* size: with this header */

#define HEAD sizeof(struct piece)
#define SMALLEST (HEAD + 32)            /* a rest below this stays with its piece */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *block;
static size_t block_bytes, in_use, peak;
static int64_t overflow;

static _Bool is_ours(const void *p)
{
    return block && (const char *)p >= block && (const char *)p < block + block_bytes;
}

static struct piece *head_of(void *p) { return (struct piece *)(void *)((char *)p - HEAD); }

static struct piece *after(struct piece *p)
{
    char *next = (char *)p + p->size;

    return next < block + block_bytes ? (struct piece *)(void *)next : NULL;
}

static void join(struct piece *p)
{
    for (struct piece *n = after(p); n && !n->used; n = after(p))
        p->size += n->size;
}

/* n of at least 1; NULL when nothing fits. */
static void *take(size_t n)
{
    size_t size = (n + HEAD + 15) / 16 * 16;

    for (struct piece *p = (struct piece *)(void *)block; p; p = after(p)) {
        if (p->used)
            continue;
        join(p);
        if (p->size < size)
            continue;
        if (p->size - size >= SMALLEST) {
            struct piece *rest = (struct piece *)(void *)((char *)p + size);

            rest->size = p->size - size;
            rest->used = 0;
            p->size = size;
        }
        p->used = 1;
        in_use += p->size;
        if (in_use > peak)
            peak = in_use;
        return (char *)p + HEAD;
    }
    return NULL;
}

void *pool_alloc(size_t n)
{
    void *p = NULL;

    if (!block)
        return malloc(n ? n : 1);
    pthread_mutex_lock(&lock);
    if (n < block_bytes)
        p = take(n ? n : 1);
    overflow += !p;
    pthread_mutex_unlock(&lock);
    return p ? p : malloc(n ? n : 1);
}

void *pool_calloc(size_t count, size_t size)
{
    size_t n;
    void *p;

    if (__builtin_mul_overflow(count, size, &n))
        return NULL;
    p = pool_alloc(n);
    if (p)
        memset(p, 0, n);
    return p;
}

void *pool_realloc(void *p, size_t n)
{
    size_t had;
    void *q;

    if (!p)
        return pool_alloc(n);
    if (!is_ours(p))
        return realloc(p, n ? n : 1);
    had = head_of(p)->size - HEAD;
    if (n <= had)
        return p;
    q = pool_alloc(n);
    if (q) {
        memcpy(q, p, had);
        pool_free(p);
    }
    return q;
}

void pool_free(void *p)
{
    if (!is_ours(p)) {
        free(p);
        return;
    }
    pthread_mutex_lock(&lock);
    BUG_ON(!head_of(p)->used);
    head_of(p)->used = 0;
    in_use -= head_of(p)->size;
    pthread_mutex_unlock(&lock);
}

int pool_reserve(size_t bytes)
{
    struct piece *all;
    size_t n = (bytes + 4095) / 4096 * 4096;

    if (block)
        return 0;
    if (n < bytes || !(block = aligned_alloc(64, n)))
        return err_set(ERR_IO, "no memory for %zu bytes of bookkeeping", bytes);
    memset(block, 0, n);
    block_bytes = n;
    all = (struct piece *)(void *)block;
    all->size = n;
    return 0;
}

int64_t pool_overflow(void) { return overflow; }
size_t pool_peak(void) { return peak; }
