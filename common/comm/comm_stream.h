/* comm_stream.h -- parts as streams of bytes between two ranks, and ordered sums.
 *
 * All parts of a list that belong to one rank, joined, are a stream; a cursor
 * walks it in pieces.  Both ends of a reduction cut at the same bytes, because
 * they walk equal lists.  Knows no back end and moves nothing itself. */
#ifndef COMM_COMM_STREAM_H
#define COMM_COMM_STREAM_H

#include "comm/comm.h"

struct comm_stream_cursor {
    const struct comm_part *parts;
    int n_parts, rank;          /* parts of this rank are walked */
    int i;                      /* the part it stands in */
    int64_t at;                 /* bytes of that part already walked */
};

void comm_stream_begin(struct comm_stream_cursor *s, const struct comm_part *parts, int n_parts, int rank);
/* The next piece of at most max bytes, inside one part: its length, 0 at the
 * end.  part and offset say where it lies; they may be NULL. */
int64_t comm_stream_next(struct comm_stream_cursor *s, int64_t max, const struct comm_part **part, int64_t *offset);
int64_t comm_stream_bytes(const struct comm_part *parts, int n_parts, int rank);

/* sum[i] = src[0][i] op src[1][i] op ..., in that order, for n_bytes of wire
 * type; offset is the place in bytes of wire type inside the part sum belongs
 * to.  BF16 sums in F32.  sum may be one of the sources when the types agree. */
void comm_stream_reduce(void *sum, int64_t offset, const void *const *src, int n_src, int64_t n_bytes,
                   enum dtype wire, enum comm_op op);
/* Bytes of the type that sums of wire have; 0 for a type that is not summed. */
int64_t comm_stream_sum_size(enum dtype wire);

#endif
