/* safetensors.h -- one safetensors file or stream: parsed strictly, read by
 * pread, written with a hash of every 64 MiB.
 *
 * The header parser is our own, linear, and makes no intermediate tree.  It
 * refuses everything the format forbids and everything the format leaves open:
 * duplicate names (also when they differ only by an escape), unknown or missing
 * fields, numbers in any form but plain digits below 2^53, names that are empty,
 * hold a control character, '/' or more than 1,024 bytes, padding other than
 * spaces, gaps, overlaps, bytes after the last tensor, more than 16 dimensions.
 * Data is never mapped: a file that shrinks while it is read is an error, not a
 * signal.  Values are not looked at: NaN is data.
 *
 * Errors: ERR_DATA "FILE: what is wrong at byte N" for content, ERR_NOINPUT for
 * what is not there, ERR_IO for the rest. */
#ifndef CKPT_SAFETENSORS_H
#define CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/hash.h"

#define ST_PART_BYTES ((uint64_t)64 << 20)      /* a part of a tensor that has its own hash */
#define ST_HEADER_MAX 100000000u                /* bytes of header text, both ways */
#define ST_MAX_DIMS 16
#define ST_NAME_MAX 1024

struct st_tensor {
    const char *name;
    const char *type;           /* "F32": the name in the file */
    enum dtype dtype;           /* DT_N: a type of the format that we only list and copy */
    int n_dims;                 /* 0: a scalar */
    const int64_t *shape;       /* [n_dims] */
    uint64_t begin, end;        /* bytes within the data */
};

struct st_meta { const char *key, *value; };

struct st_header {
    struct st_tensor *tensors;  /* [n_tensors] in the order of their bytes */
    int64_t n_tensors;
    struct st_meta *meta;       /* [n_meta] the __metadata__ strings, in file order */
    int n_meta;
    uint64_t data_start;        /* 8 + N */
    uint64_t data_bytes;
    struct ckpt_names *names;   /* private: names to tensors */
    void *memory;               /* private */
};

/* The JSON text of a header, n bytes without the leading length word.
 * data_bytes: what follows it, or -1 when that is not known (a stream).
 * where names the file in errors.  *out is owned (st_header_free). */
int st_parse(const char *where, const char *text, size_t n, int64_t data_bytes, struct st_header **out);
void st_header_free(struct st_header *h);

const struct st_tensor *st_find(const struct st_header *h, const char *name);   /* or NULL */
const char *st_meta_get(const struct st_header *h, const char *key);            /* or NULL */
int64_t st_count(const struct st_tensor *t);    /* elements */

/* Bits of one element of a type of the format; 0 when it is no such type. */
int st_type_bits(const char *type);

/* The static text of the type that is spelled by n bytes; NULL when there is none. */
const char *st_type_name(const char *s, size_t n);

/* ---- a regular file */

struct st_file;

/* Opens, reads and checks the header, and closes nothing until st_close(). */
int st_open(const char *path, struct st_file **out);
void st_close(struct st_file *f);
const struct st_header *st_head(const struct st_file *f);
struct hash st_head_hash(const struct st_file *f);      /* of the first 8 + N bytes */
uint64_t st_file_bytes(const struct st_file *f);

/* Bytes [first, first + n) of a tensor.  Threads may share f. */
int st_read(const struct st_file *f, const struct st_tensor *t, uint64_t first, size_t n, void *dst);

/* ---- a stream: standard input, a pipe.  Everything comes once, in order. */

struct st_stream;

/* fd is borrowed; name stands in errors ("standard input").  No tensor bytes yet is fine. */
int st_stream_open(int fd, const char *name, struct st_stream **out);
const struct st_header *st_stream_head(const struct st_stream *s);

/* The next n bytes of data: tensors lie one after another in header order. */
int st_stream_read(struct st_stream *s, void *dst, size_t n);

/* ERR_DATA unless the stream ends here, all data read.  Frees nothing. */
int st_stream_end(struct st_stream *s);
void st_stream_close(struct st_stream *s);

/* ---- writing: declare every tensor, begin, put the bytes, end */

struct st_part { uint64_t begin, end; struct hash hash; };      /* bytes of the tensor */

struct st_writer;
struct st_writer *st_writer_new(void);
void st_writer_free(struct st_writer *w);       /* an unfinished file is removed; NULL is accepted */

/* Strings are copied.  Metadata appears in the order of the calls. */
int st_writer_meta(struct st_writer *w, const char *key, const char *value);

/* Returns the tensor's number (0, 1, ... in the order of the calls).  The bytes
 * lie in that order too, except that wider elements come first, so that every
 * tensor is aligned to its element.  ERR_BUG for a name that the parser above
 * would refuse. */
int st_writer_add(struct st_writer *w, const char *name, enum dtype dtype, int n_dims, const int64_t *shape);

/* One more border between parts, besides every 64 MiB; before begin. */
void st_writer_cut(struct st_writer *w, int i_tensor, uint64_t byte);

/* Bytes of the finished file. */
uint64_t st_writer_bytes(struct st_writer *w);

/* Writes the header.  In the file form path must not exist (it lies in a
 * directory that is renamed when whole), the space is reserved at once, and the
 * order of the bytes is free.  In the stream form bytes must come in file
 * order; st_writer_next() is the number of the tensor whose turn it is, -1 at
 * the end.  fd is borrowed; standard output goes through base/out.h. */
int st_writer_begin(struct st_writer *w, const char *path);
int st_writer_begin_stream(struct st_writer *w, int fd, const char *name);
/* As st_writer_begin() for a file outside: appears under its name, durable, at
 * st_writer_end(), or not at all. */
int st_writer_begin_replace(struct st_writer *w, const char *path);
int st_writer_next(const struct st_writer *w);

/* Bytes [first, first + n) of a tensor.  Each part is filled front to back;
 * different parts may come in any order, and one call may span parts. */
int st_writer_put(struct st_writer *w, int i_tensor, uint64_t first, const void *data, size_t n);

/* Flush, fsync, close.  ERR_BUG when a byte of some tensor was never put. */
int st_writer_end(struct st_writer *w);

/* After st_writer_end(), borrowed until st_writer_free(). */
struct hash st_writer_head_hash(const struct st_writer *w);
const struct st_part *st_writer_parts(const struct st_writer *w, int i_tensor, int *n);

#endif
