/* megatron.h -- Megatron's indexed data set, whoever wrote it.
 *
 *   .idx  "MMIDIDX\0\0", u64 1, u8 dtype code, u64 S sequences, u64 D,
 *         i32 length[S] in ids, i64 offset[S] in bytes of .bin,
 *         i64 document[D]: the first sequence of each document, and S at the
 *         end; perhaps i8 mode[S]
 *   .bin  the ids back to back
 * Little endian throughout.  What a token file of ours promises beyond this is
 * in tokenfile.h.  Nothing is believed: the view checks every size before it
 * hands out a pointer, megatron_check() the whole index. */
#ifndef DATA_MEGATRON_H
#define DATA_MEGATRON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/fs.h"

enum { MEGATRON_U8 = 1, MEGATRON_I8, MEGATRON_I16, MEGATRON_I32, MEGATRON_I64, MEGATRON_F64, MEGATRON_F32, MEGATRON_U16, MEGATRON_HEADER = 34 };

/* Pointers go into the two blobs, unaligned, and are borrowed with them. */
struct megatron {
    const char *idx_path, *bin_path;    /* for sentences, borrowed */
    int code, width;                    /* dtype and bytes of an id */
    int64_t n_seqs, n_docs;             /* n_docs: D - 1 */
    const char *length, *offset, *document;
    const char *mode;                   /* [n_seqs]; NULL: none */
    const char *ids; uint64_t bytes;    /* .bin */
    const struct fs_blob *idx, *bin;    /* borrowed */
};

/* ERR_DATA: it does not begin like an index, has another version or type, or
 * its size is not what its counts need. */
int megatron_view(struct megatron *m, const char *idx_path, const struct fs_blob *idx, const char *bin_path, const struct fs_blob *bin);

/* The same, of PREFIX.idx and PREFIX.bin, mapped: ERR_NOINPUT when one of them is
 * not there.  A sidecar is not looked for. */
struct megatron_pair;
int megatron_open(const char *prefix, struct megatron_pair **out);
const struct megatron *megatron_of(const struct megatron_pair *p);
void megatron_forget(const struct megatron_pair *p);    /* as fs_blob_forget() */
void megatron_close(struct megatron_pair *p);           /* NULL is accepted */

/* As fs_blob_forget() of both.  Who walks over a whole index or all ids does so
 * now and then, so that what is resident does not grow with the files: after
 * MEGATRON_SWEEP entries, or when so many bytes of them were touched. */
enum { MEGATRON_SWEEP = 1 << 20, MEGATRON_TOUCHED = 32 << 20, MEGATRON_ENTRY = 20 };
void megatron_let_go(const struct megatron *m);

static inline void megatron_walk(const struct megatron *m, int64_t i)
{
    if ((i & (MEGATRON_SWEEP - 1)) == MEGATRON_SWEEP - 1)
        megatron_let_go(m);
}

static inline void megatron_touch(const struct megatron *m, uint64_t *touched, int64_t ids, int64_t entries)
{
    if ((*touched += (uint64_t)(ids * m->width + entries * MEGATRON_ENTRY)) < MEGATRON_TOUCHED)
        return;
    megatron_let_go(m);
    *touched = 0;
}

/* Sequences stand behind one another and fill .bin; documents ascend from 0 to
 * the number of sequences.  ERR_DATA names the first place where not; *tokens
 * (may be NULL) is the sum of the lengths before it. */
int megatron_check(const struct megatron *m, int64_t *tokens);

/* "u16"; NULL when code is none of the eight. */
const char *megatron_dtype(int code);
/* False for floating point, which holds no ids. */
_Bool megatron_holds_ids(const struct megatron *m);

/* Ids [first, first + n) of .bin; what does not fit in 31 bits becomes -1. */
void megatron_ids(const struct megatron *m, int64_t first, int64_t n, int32_t *dst);

static inline int32_t megatron_length(const struct megatron *m, int64_t s)
{
    int32_t v;
    memcpy(&v, m->length + 4 * s, 4);
    return v;
}

static inline int64_t megatron_offset(const struct megatron *m, int64_t s)
{
    int64_t v;
    memcpy(&v, m->offset + 8 * s, 8);
    return v;
}

static inline int64_t megatron_document(const struct megatron *m, int64_t d)
{
    int64_t v;
    memcpy(&v, m->document + 8 * d, 8);
    return v;
}

/* First id of document d of an index that was checked; d may be n_docs. */
static inline int64_t megatron_doc_first(const struct megatron *m, int64_t d)
{
    int64_t s = megatron_document(m, d);
    return s == m->n_seqs ? (int64_t)(m->bytes / (uint64_t)m->width) : megatron_offset(m, s) / m->width;
}

#endif
