/* packing_impl.h -- blocks and chunks, for packing.c and packing_read.c only.
 *
 * Stream: 8 bytes of magic, blocks, a trailer.  A block is a head of 32 bytes
 * (little-endian) and its payload:
 *
 *    0 u8  kind          'H' the stream, 'F' a file begins, 'T' a tensor begins
 *                        in it, 'C' bytes of it, 'I' the index, last
 *    1 u8  width         bytes of an element, planes of a chunk
 *    2 u8  flags         PACKING_ROTATED, PACKING_DELTA
 *    4 u32 packed        bytes of the payload
 *    8 u32 raw           bytes they become
 *   16 u64 hash          xxh3-64 of the raw bytes ('C': before the difference)
 *   24 u64 head hash     of the 24 bytes before, seeded with the block's number
 *
 * Payloads: H, F, T: JSON.  C: for each plane a u32 (PACKING_STORED | bytes) and
 * the bytes.  I: zstd of lines "TENSOR offset number bytes", offset and number
 * those of its T block.  Trailer: u64 offset of I, u64 its number, magic. */
#ifndef CKPT_PACKING_IMPL_H
#define CKPT_PACKING_IMPL_H

#include <stddef.h>
#include <stdint.h>

#define PACKING_MAGIC "MOEPACK1"
#define PACKING_END "MOEPACKE"
#define PACKING_CHUNK ((uint32_t)1 << 20)
#define PACKING_HEAD 32
#define PACKING_TRAILER 24
#define PACKING_JSON_MAX 65536u
#define PACKING_INDEX_MAX (1u << 30)

enum { PACKING_ROTATED = 1, PACKING_DELTA = 2 };
#define PACKING_STORED 0x80000000u

struct packing_block { uint8_t kind, width, flags; uint32_t packed, raw; uint64_t hash; };

void packing_head_put(unsigned char head[PACKING_HEAD], const struct packing_block *b, uint64_t number);
/* False when it is no head of that number. */
_Bool packing_head_get(const unsigned char head[PACKING_HEAD], struct packing_block *b, uint64_t number);
uint64_t packing_hash(const void *data, size_t n);

/* One per thread; *_new never fails (bookkeeping memory). */
struct packing_codec;
struct packing_codec *packing_codec_new(void);
void packing_codec_free(struct packing_codec *c);

size_t packing_chunk_max(void);         /* payload of a chunk at most */

/* n bytes (a multiple of b->width, at most PACKING_CHUNK), base NULL or as many;
 * fills in the rest of *b, whose width and flags are given.  dst of
 * packing_chunk_max() bytes.  ERR_IO: memory. */
int packing_chunk_encode(struct packing_codec *c, const void *raw, const void *base, uint32_t n, void *dst, struct packing_block *b);
/* The reverse; dst of PACKING_CHUNK bytes.  ERR_DATA with a bare cause. */
int packing_chunk_decode(struct packing_codec *c, const void *payload, const struct packing_block *b, const void *base, void *dst);

#endif
