/* merge.c -- pairs in a hash table; merging by scan and by heap. */
#include "tok/merge.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"

enum { HUGE_PAGE = 2 << 20 };

void *tok_pages_new(size_t bytes)
{
    if (bytes < HUGE_PAGE) {
        void *small = aligned_alloc(64, (bytes + 63) / 64 * 64);
        return small != NULL ? memset(small, 0, bytes) : NULL;
    }
    /* So much that it begins at a large page, and what is before and behind is given back. */
    const size_t all = bytes + HUGE_PAGE;
    uint8_t *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE,
                 used = (bytes + page - 1) / page * page;
    if (before > 0)
        munmap(p, before);
    if (all - before > used)
        munmap(p + before + used, all - before - used);
    madvise(p + before, used, MADV_HUGEPAGE);   /* a wish */
    return p + before;
}

void tok_pages_free(void *p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (p != NULL && bytes >= HUGE_PAGE)
        munmap(p, (bytes + page - 1) / page * page);
    else
        free(p);
}

static void see(struct tok_pairs *t, uint64_t key)
{
    uint64_t i = key * 0x9e3779b97f4a7c15u >> (t->shift - 4);
    t->seen[i >> 6] |= (uint64_t)1 << (i & 63);
}

static int rehash(struct tok_pairs *t, int bits)
{
    struct tok_pairs old = *t;
    size_t n = (size_t)1 << bits;
    struct tok_pair *slot = tok_pages_new(n * sizeof *slot);
    uint64_t *seen = tok_pages_new(n / 4 * sizeof *seen);
    if (slot == NULL || seen == NULL) {
        tok_pages_free(slot, n * sizeof *slot);
        tok_pages_free(seen, n / 4 * sizeof *seen);
        return err_sys(ERR_IO, "memory for %zu pairs", n);
    }
    for (size_t i = 0; i < n; i++)
        slot[i] = (struct tok_pair){ TOK_NO_PAIR, 0, 0 };
    t->slot = slot;
    t->seen = seen;
    t->mask = n - 1;
    t->shift = 64 - bits;
    for (uint64_t k = 0; old.slot != NULL && k <= old.mask; k++) {
        if (old.slot[k].key == TOK_NO_PAIR)
            continue;
        see(t, old.slot[k].key);
        uint64_t i = old.slot[k].key * 0x9e3779b97f4a7c15u >> t->shift;
        while (slot[i].key != TOK_NO_PAIR)
            i = (i + 1) & t->mask;
        slot[i] = old.slot[k];
    }
    tok_pairs_free(&old);
    return 0;
}

int tok_pairs_reserve(struct tok_pairs *t, int64_t n)
{
    int bits = 4;
    while ((int64_t)5 << bits < 8 * n)
        bits++;
    if (t->slot != NULL && t->mask + 1 >= (uint64_t)1 << bits)
        return 0;
    return rehash(t, bits);
}

int tok_pairs_add(struct tok_pairs *t, int32_t a, int32_t b, int32_t rank, int32_t product, _Bool keep)
{
    uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b, i;
    TRY(tok_pairs_reserve(t, t->n + 1));
    for (i = key * 0x9e3779b97f4a7c15u >> t->shift; t->slot[i].key != TOK_NO_PAIR; i = (i + 1) & t->mask)
        if (t->slot[i].key == key) {
            if (!keep)
                t->slot[i] = (struct tok_pair){ key, rank, product };
            return 0;
        }
    t->slot[i] = (struct tok_pair){ key, rank, product };
    see(t, key);
    t->n++;
    return 0;
}

void tok_pairs_free(struct tok_pairs *t)
{
    tok_pages_free(t->slot, (t->mask + 1) * sizeof *t->slot);
    tok_pages_free(t->seen, (t->mask + 1) / 4 * sizeof *t->seen);
    *t = (struct tok_pairs){ 0 };
}

/* The pair's rank and product travel with the left symbol, so a merge asks for
 * two pairs anew and a scan reads one array. */
size_t tok_merge_scan(const struct tok_pairs *t, int32_t *ids, size_t n)
{
    int32_t rank[TOK_SCAN_MAX], product[TOK_SCAN_MAX];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct tok_pair *p = tok_pairs_find(t, ids[i], ids[i + 1]);
        rank[i] = p != NULL ? p->rank : INT32_MAX;
        product[i] = p != NULL ? p->product : 0;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == INT32_MAX)
            break;
        ids[best] = product[best];
        size_t tail = n - best - 2;
        memmove(ids + best + 1, ids + best + 2, tail * sizeof *ids);
        if (tail > 0) {
            memmove(rank + best + 1, rank + best + 2, (tail - 1) * sizeof *rank);
            memmove(product + best + 1, product + best + 2, (tail - 1) * sizeof *product);
        }
        n--;
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct tok_pair *p = tok_pairs_find(t, ids[i], ids[i + 1]);
            rank[i] = p != NULL ? p->rank : INT32_MAX;
            product[i] = p != NULL ? p->product : 0;
        }
    }
    return n;
}

/* A binary heap of rank << 32 | position: its order is the order of merging. */
static void sift_up(uint64_t *h, size_t i)
{
    uint64_t x = h[i];
    for (; i > 0 && h[(i - 1) / 2] > x; i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = x;
}

static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && h[c + 1] < h[c])
            c++;
        if (h[c] >= x)
            break;
        h[i] = h[c];
    }
    h[i] = x;
}

void tok_merge_mem_free(struct tok_merge_mem *w)
{
    free(w->prev);
    free(w->next);
    free(w->heap);
    *w = (struct tok_merge_mem){ 0 };
}

static int grow(struct tok_merge_mem *w, size_t n)
{
    if (n <= w->cap)
        return 0;
    if (n > INT32_MAX)
        return err_set(ERR_DATA, "a piece of %zu bytes without a place to cut it is too long", n);
    size_t cap = n < 4096 ? 4096 : n + n / 2;
    void *b = realloc(w->prev, cap * sizeof *w->prev);
    if (b != NULL)
        w->prev = b;
    void *c = realloc(w->next, cap * sizeof *w->next);
    if (c != NULL)
        w->next = c;
    void *d = realloc(w->heap, 3 * cap * sizeof *w->heap);
    if (d != NULL)
        w->heap = d;
    if (b == NULL || c == NULL || d == NULL)
        return err_sys(ERR_IO, "memory for a piece of %zu bytes", n);
    w->cap = cap;
    return 0;
}

/* A merge removes one pair entry and adds at most two, so 3 n entries suffice.
 * An entry is stale when the pair at its position has another rank now.  (Were
 * it of the same rank, it would be the same text at the same place, hence the
 * same pair.)  A symbol that was merged away is marked by next = -1. */
int tok_merge_heap(const struct tok_pairs *t, struct tok_merge_mem *w, int32_t *ids, size_t n, size_t *n_out)
{
    TRY(grow(w, n));
    int32_t *prev = w->prev, *next = w->next, last = (int32_t)n;
    uint64_t *h = w->heap;
    size_t n_heap = 0, k = 0;
    for (int32_t i = 0; i < last; i++) {
        prev[i] = i - 1;
        next[i] = i + 1;
    }
    for (int32_t i = 0; i + 1 < last; i++) {
        const struct tok_pair *p = tok_pairs_find(t, ids[i], ids[i + 1]);
        if (p != NULL)
            h[n_heap++] = (uint64_t)(uint32_t)p->rank << 32 | (uint32_t)i;
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        sift_down(h, n_heap, i);
    while (n_heap > 0) {
        uint64_t top = h[0];
        int32_t i = (int32_t)(uint32_t)top, j = next[i];
        h[0] = h[--n_heap];
        if (n_heap > 0)
            sift_down(h, n_heap, 0);
        if (j < 0 || j == last)
            continue;
        const struct tok_pair *p = tok_pairs_find(t, ids[i], ids[j]);
        if (p == NULL || (uint32_t)p->rank != top >> 32)
            continue;
        ids[i] = p->product;
        next[i] = next[j];
        next[j] = -1;
        if (next[i] != last)
            prev[next[i]] = i;
        for (int side = 0; side < 2; side++) {
            int32_t a = side == 0 ? prev[i] : i;
            if (a < 0 || next[a] == last || (p = tok_pairs_find(t, ids[a], ids[next[a]])) == NULL)
                continue;
            h[n_heap] = (uint64_t)(uint32_t)p->rank << 32 | (uint32_t)a;
            sift_up(h, n_heap++);
        }
    }
    for (int32_t i = 0; i != last && n > 0; i = next[i])
        ids[k++] = ids[i];
    *n_out = k;
    return 0;
}
