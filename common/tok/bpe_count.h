/* bpe_count.h -- a table of distinct pieces and how often each was seen. */
#ifndef TOK_BPE_COUNT_H
#define TOK_BPE_COUNT_H

#include <stddef.h>
#include <stdint.h>

struct tok_piece { uint64_t hash; size_t at; uint32_t n; int64_t count; };

/* Pieces in the order in which they came; zeroed is empty. */
struct tok_counts {
    struct tok_piece *piece; size_t n; int64_t cap;
    uint8_t *bytes; size_t n_bytes; int64_t cap_bytes;
    uint32_t *slot; size_t mask;        /* index + 1 */
};

int tok_counts_add(struct tok_counts *c, const uint8_t *s, size_t n, int64_t count);
int tok_counts_add_hashed(struct tok_counts *c, const uint8_t *s, size_t n, uint64_t hash, int64_t count);    /* hash: that of a tok_piece */
int tok_counts_forget(struct tok_counts *c, int64_t count);     /* pieces seen no more often than that */
void tok_counts_clear(struct tok_counts *c);                    /* empty, its memory kept */
void tok_counts_free(struct tok_counts *c);

#endif
