/* packing.h -- checkpoints as one compressed stream, and back, byte for byte.
 *
 * A packed stream holds every file of a checkpoint or model directory.  Tensors
 * are cut into chunks of 1 MiB; the sign of floats is turned to the low end, the
 * bytes of equal weight are put together, and each such plane is compressed with
 * entropy coding alone, or stored where that gains nothing: sign and mantissa of
 * trained weights are noise, their exponents are not.  With a base, an earlier
 * checkpoint, the difference of the bits is packed instead.
 *
 * Writing and reading need no seek, so both go through pipes; an index at the
 * end finds one tensor in a regular file.  Each chunk carries the hash of what it
 * becomes, each block one of its own head and place: what would come out another
 * way, bytes lost, moved or put in are an error that names the file. */
#ifndef CKPT_PACKING_H
#define CKPT_PACKING_H

#include <stddef.h>
#include <stdint.h>

#include "ckpt/load.h"

/* Where packed bytes go, in order. */
typedef int packing_sink(void *ctx, const void *data, size_t n);

struct packing {
    const struct ckpt *base;    /* NULL: none.  Needs a MANIFEST */
    const char *tool;
    void (*progress)(void *ctx, uint64_t done, uint64_t total);         /* bytes unpacked; may be NULL */
    void *ctx;

    /* Results. */
    uint64_t raw_bytes, packed_bytes;
    int64_t n_files, n_tensors;
};

/* Everything that c is made of, read with its hashes if it has any.  ERR_DATA:
 * damage, or a base without a tensor in common; ERR_USAGE: the base has no
 * MANIFEST. */
int packing_write(const struct ckpt *c, packing_sink *sink, void *sink_ctx, struct packing *p);

/* The directory `to`, which must not exist or be empty, appears whole or not at
 * all.  fd: the stream, from its start; name stands in errors.  ERR_USAGE when
 * the stream needs a base and p->base is none or another one. */
int packing_read(int fd, const char *name, const char *to, struct packing *p);

/* One tensor of a packed regular file, its bytes to the sink.  ERR_NO: not in it. */
int packing_tensor(const char *path, const char *tensor, packing_sink *sink, void *sink_ctx, struct packing *p);

#endif
