/* bpe_count.c -- distinct pieces in a growing hash table over one pool of bytes. */
#include "tok/bpe_count.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/grow.h"

void tok_counts_free(struct tok_counts *c)
{
    free(c->piece);
    free(c->bytes);
    free(c->slot);
    memset(c, 0, sizeof *c);
}

static int grow_slots(struct tok_counts *c)
{
    size_t size = c->slot == NULL ? 4096 : 2 * (c->mask + 1);
    uint32_t *slot = calloc(size, sizeof *slot);
    if (slot == NULL)
        return err_sys(ERR_IO, "memory for %zu pieces", size);
    for (size_t k = 0; k < c->n; k++) {
        size_t i = c->piece[k].hash & (size - 1);
        while (slot[i] != 0)
            i = (i + 1) & (size - 1);
        slot[i] = (uint32_t)k + 1;
    }
    free(c->slot);
    c->slot = slot;
    c->mask = size - 1;
    return 0;
}

static int new_piece(struct tok_counts *c, const uint8_t *s, size_t n, uint64_t hash)
{
    if (n > UINT32_MAX || c->n >= UINT32_MAX - 1)
        return err_set(ERR_DATA, "too many distinct pieces, or one of more than 4 GiB");
    TRY(grow_plain(&c->piece, &c->cap, (int64_t)c->n + 1, sizeof *c->piece, "pieces"));
    TRY(grow_plain(&c->bytes, &c->cap_bytes, (int64_t)(c->n_bytes + n), 1, "bytes of pieces"));
    memcpy(c->bytes + c->n_bytes, s, n);
    c->piece[c->n++] = (struct tok_piece){ hash, c->n_bytes, (uint32_t)n, 0 };
    c->n_bytes += n;
    return 0;
}

int tok_counts_add(struct tok_counts *c, const uint8_t *s, size_t n, int64_t count)
{
    return tok_counts_add_hashed(c, s, n, XXH3_64bits(s, n), count);
}

int tok_counts_add_hashed(struct tok_counts *c, const uint8_t *s, size_t n, uint64_t hash, int64_t count)
{
    if (2 * (c->n + 1) > c->mask)
        TRY(grow_slots(c));
    size_t i = hash & c->mask;
    for (; c->slot[i] != 0; i = (i + 1) & c->mask) {
        struct tok_piece *p = &c->piece[c->slot[i] - 1];
        if (p->hash == hash && p->n == n && memcmp(c->bytes + p->at, s, n) == 0) {
            p->count += count;
            return 0;
        }
    }
    TRY(new_piece(c, s, n, hash));
    c->slot[i] = (uint32_t)c->n;
    c->piece[c->n - 1].count = count;
    return 0;
}

void tok_counts_clear(struct tok_counts *c)
{
    if (c->slot != NULL)
        memset(c->slot, 0, (c->mask + 1) * sizeof *c->slot);
    c->n = c->n_bytes = 0;
}

int tok_counts_forget(struct tok_counts *c, int64_t count)
{
    struct tok_counts kept = { 0 };
    for (size_t i = 0; i < c->n; i++) {
        const struct tok_piece *p = &c->piece[i];
        if (p->count <= count)
            continue;
        int rc = tok_counts_add_hashed(&kept, c->bytes + p->at, p->n, p->hash, p->count);
        if (rc < 0) {
            tok_counts_free(&kept);
            return rc;
        }
    }
    tok_counts_free(c);
    *c = kept;
    return 0;
}
