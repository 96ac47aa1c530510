/* packing_chunk.c -- planes of bytes, each entropy coded or stored.
 *
 * zstd's search for matches only costs: there are none in weights, and higher
 * levels are slower and worse.  Level -100 with literals forced to Huffman codes
 * is twice as fast as level 1 and within 1.5 % of the entropy of the exponents.
 * Differences of checkpoints do have runs, and take level 1. */
#define ZSTD_STATIC_LINKING_ONLY        /* for ZSTD_c_literalCompressionMode */
#include "ckpt/packing_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

#include "base/arena.h"
#include "base/err.h"

#define SAMPLE ((size_t)32768)          /* of a plane, to see whether it is noise */
#define GAIN(n) ((n) - (n) / 32)        /* worth it below: 3 % */

struct packing_codec { ZSTD_CCtx *in; ZSTD_DCtx *out; unsigned char *turned, *plane; _Bool is_delta, set; };

struct packing_codec *packing_codec_new(void)
{
    struct packing_codec *c = arena_must(calloc(1, sizeof *c));

    c->turned = arena_must(malloc(PACKING_CHUNK));
    c->plane = arena_must(malloc(PACKING_CHUNK));
    return c;
}

void packing_codec_free(struct packing_codec *c)
{
    if (!c)
        return;
    ZSTD_freeCCtx(c->in);
    ZSTD_freeDCtx(c->out);
    free(c->turned);
    free(c->plane);
    free(c);
}

/* ---- heads */

static void put32(unsigned char *p, uint32_t v) { for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> 8 * i); }
static void put64(unsigned char *p, uint64_t v) { for (int i = 0; i < 8; i++) p[i] = (unsigned char)(v >> 8 * i); }

static uint64_t get(const unsigned char *p, int n)
{
    uint64_t v = 0;

    while (n--)
        v = v << 8 | p[n];
    return v;
}

uint64_t packing_hash(const void *data, size_t n) { return XXH3_64bits(data, n); }

void packing_head_put(unsigned char head[PACKING_HEAD], const struct packing_block *b, uint64_t number)
{
    memset(head, 0, PACKING_HEAD);
    head[0] = b->kind;
    head[1] = b->width;
    head[2] = b->flags;
    put32(head + 4, b->packed);
    put32(head + 8, b->raw);
    put64(head + 16, b->hash);
    put64(head + 24, XXH3_64bits_withSeed(head, 24, number));
}

_Bool packing_head_get(const unsigned char head[PACKING_HEAD], struct packing_block *b, uint64_t number)
{
    *b = (struct packing_block){ head[0], head[1], head[2], (uint32_t)get(head + 4, 4), (uint32_t)get(head + 8, 4), get(head + 16, 8) };
    return get(head + 24, 8) == XXH3_64bits_withSeed(head, 24, number);
}

/* ---- chunks */

size_t packing_chunk_max(void) { return PACKING_CHUNK + 8 * 4; }

/* The sign bit goes below the mantissa, so that the top byte is all exponent. */
static void turn(unsigned char *to, const unsigned char *from, uint32_t n, int width)
{
    if (width == 2) {
        for (uint32_t i = 0; i + 2 <= n; i += 2) {
            uint16_t v;

            memcpy(&v, from + i, 2);
            v = (uint16_t)(v << 1 | v >> 15);
            memcpy(to + i, &v, 2);
        }
    } else {
        for (uint32_t i = 0; i + 4 <= n; i += 4) {
            uint32_t v;

            memcpy(&v, from + i, 4);
            v = v << 1 | v >> 31;
            memcpy(to + i, &v, 4);
        }
    }
}

static void turn_back(unsigned char *p, uint32_t n, int width)
{
    if (width == 2) {
        for (uint32_t i = 0; i + 2 <= n; i += 2) {
            uint16_t v;

            memcpy(&v, p + i, 2);
            v = (uint16_t)(v >> 1 | v << 15);
            memcpy(p + i, &v, 2);
        }
    } else {
        for (uint32_t i = 0; i + 4 <= n; i += 4) {
            uint32_t v;

            memcpy(&v, p + i, 4);
            v = v >> 1 | v << 31;
            memcpy(p + i, &v, 4);
        }
    }
}

static void xor_bytes(unsigned char *to, const unsigned char *a, const unsigned char *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = a[i] ^ b[i];
}

static int prepare(struct packing_codec *c, _Bool is_delta)
{
    if (!c->in && !(c->in = ZSTD_createCCtx()))
        return err_set(ERR_IO, "no memory for compression");
    if (c->set && c->is_delta == is_delta)
        return 0;
    ZSTD_CCtx_setParameter(c->in, ZSTD_c_compressionLevel, is_delta ? 1 : -100);
    if (ZSTD_isError(ZSTD_CCtx_setParameter(c->in, ZSTD_c_literalCompressionMode, is_delta ? ZSTD_ps_auto : ZSTD_ps_enable)))
        ZSTD_CCtx_setParameter(c->in, ZSTD_c_compressionLevel, 1);      /* another release of the library */
    ZSTD_CCtx_setParameter(c->in, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setParameter(c->in, ZSTD_c_checksumFlag, 0);
    c->is_delta = is_delta;
    c->set = 1;
    return 0;
}

/* Bytes of the compressed plane in dst, or 0: store it. */
static size_t squeeze(struct packing_codec *c, unsigned char *dst, size_t room, size_t n)
{
    size_t k;

    if (n > 4 * SAMPLE) {       /* noise is seen by a piece of it */
        k = ZSTD_compress2(c->in, dst, room, c->plane, SAMPLE);
        if (ZSTD_isError(k) || k >= GAIN(SAMPLE))
            return 0;
    }
    k = ZSTD_compress2(c->in, dst, room, c->plane, n);
    return ZSTD_isError(k) || k >= GAIN(n) ? 0 : k;
}

int packing_chunk_encode(struct packing_codec *c, const void *raw, const void *base, uint32_t n, void *dst, struct packing_block *b)
{
    const unsigned char *from = raw;
    unsigned char *to = dst;
    size_t count = n / b->width, at = 0;

    BUG_ON(n > PACKING_CHUNK || n % b->width);
    TRY(prepare(c, base != NULL));
    b->kind = 'C';
    b->raw = n;
    b->hash = packing_hash(raw, n);
    if (base) {
        b->flags |= PACKING_DELTA;
        xor_bytes(c->turned, from, base, n);
        from = c->turned;
    } else if (b->flags & PACKING_ROTATED) {
        turn(c->turned, from, n, b->width);
        from = c->turned;
    }
    for (int p = 0; p < b->width; p++) {
        size_t k;

        for (size_t i = 0; i < count; i++)
            c->plane[i] = from[i * b->width + (size_t)p];
        k = squeeze(c, to + at + 4, count, count);
        put32(to + at, k ? (uint32_t)k : PACKING_STORED | (uint32_t)count);
        if (!k && count) {
            memcpy(to + at + 4, c->plane, count);
            k = count;
        }
        at += 4 + k;
    }
    b->packed = (uint32_t)at;
    return 0;
}

int packing_chunk_decode(struct packing_codec *c, const void *payload, const struct packing_block *b, const void *base, void *dst)
{
    const unsigned char *from = payload;
    unsigned char *to = dst;
    size_t count = b->raw / b->width, at = 0;

    if (!c->out && !(c->out = ZSTD_createDCtx()))
        return err_set(ERR_IO, "no memory for decompression");
    for (int p = 0; p < b->width; p++) {
        const unsigned char *plane;
        size_t k;

        if (b->packed - at < 4)
            return err_set(ERR_DATA, "a chunk that ends too early");
        k = (size_t)get(from + at, 4);
        at += 4;
        if ((k & ~(size_t)PACKING_STORED) > b->packed - at || (k & PACKING_STORED && (k & ~(size_t)PACKING_STORED) != count))
            return err_set(ERR_DATA, "a plane that does not fit its chunk");
        if (k & PACKING_STORED) {
            plane = from + at;
            k = count;
        } else {
            if (ZSTD_decompressDCtx(c->out, c->plane, PACKING_CHUNK, from + at, k) != count)
                return err_set(ERR_DATA, "a chunk that does not decompress");
            plane = c->plane;
        }
        for (size_t i = 0; i < count; i++)
            to[i * b->width + (size_t)p] = plane[i];
        at += k;
    }
    if (at != b->packed)
        return err_set(ERR_DATA, "a chunk with bytes left over");
    if (b->flags & PACKING_DELTA)
        xor_bytes(to, to, base, b->raw);
    else if (b->flags & PACKING_ROTATED)
        turn_back(to, b->raw, b->width);
    return packing_hash(to, b->raw) == b->hash ? 0 : err_set(ERR_DATA, "checksum differs");
}
