/* tokenfile.h -- token files: PREFIX.bin, PREFIX.idx and the sidecar PREFIX.json.
 *
 * .bin/.idx are Megatron v1 (little endian):
 *   .idx  "MMIDIDX\0\0", u64 1, u8 dtype code, u64 S, u64 S+1, i32 length[S],
 *         i64 byte offset[S], i64 document[S+1] = 0..S
 *   .bin  the ids back to back, u16 when vocab_size < 65,500, else i32
 * One sequence per document; the last token of every document is the
 * end-of-document token and counts in its length, so no length is 0.
 *
 * The writer shows nothing before everything is written, and the sidecar last.
 * The reader believes nothing: sizes, lengths, offsets and the recorded hash
 * of .idx are checked at open, the hashes of .bin too up to
 * TOKENFILE_VERIFY_MAX bytes, and every id when it is read. */
#ifndef DATA_TOKENFILE_H
#define DATA_TOKENFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "data/tokenfile_info.h"

/* ---- writing */
struct tokenfile_writer;

/* The strings of info up to docs, and inputs, are borrowed until commit; counts
 * are the writer's own.  dtype_bytes 0: chosen from vocab_size. */
int tokenfile_create(const char *prefix, const struct tokenfile_info *info,
                     struct tokenfile_writer **out);
/* Adds ids to the current document.  ERR_DATA when an id is not below vocab_size. */
int tokenfile_append(struct tokenfile_writer *w, const int32_t *ids, size_t n);
/* Adds EOD and closes the document, whose text had text_bytes bytes. */
int tokenfile_end_doc(struct tokenfile_writer *w, uint64_t text_bytes);
/* Puts .bin, .idx and .json in their place and frees w whatever happens.
 * done (may be NULL) gets the final counts: only its numbers are set. */
int tokenfile_commit(struct tokenfile_writer *w, int64_t invalid_utf8, struct tokenfile_info *done);
void tokenfile_abort(struct tokenfile_writer *w);       /* NULL is accepted */

/* For threads that prepare documents: ids as the file has them, each checked. */
int tokenfile_dtype_bytes(int64_t vocab_size);          /* what create chooses: 2 or 4 */
int tokenfile_pack(int64_t vocab_size, int dtype_bytes, const int32_t *ids, size_t n, void *to);
/* n documents of length[n] tokens, EOD included, packed one behind another.  The
 * first continues the document that is open; open: the last is not at its end. */
int tokenfile_append_packed(struct tokenfile_writer *w, const void *packed, const int64_t *length, int64_t n, _Bool open, uint64_t text_bytes);
int64_t tokenfile_written(const struct tokenfile_writer *w);    /* tokens of finished documents */
int64_t *tokenfile_empty(struct tokenfile_writer *w);           /* documents without text, for who knows better than their lengths tell */

/* A part is a token file under way that outlives its writer: PART.bin and
 * PART.idx stay where they are when the writer is aborted or killed, and are
 * continued from a mark.  Marks are taken between documents; bin is borrowed. */
struct tokenfile_mark {
    int64_t documents, tokens, text_bytes, empty;
    struct hash *bin; int n_bin;        /* of the whole chunks so far */
    struct hash tail;                   /* of the bytes behind them */
};
/* from NULL: from the beginning.  ERR_DATA when the files are not what the mark says. */
int tokenfile_part_open(const char *part, const struct tokenfile_info *info, const struct tokenfile_mark *from, struct tokenfile_writer **out);
int tokenfile_part_mark(struct tokenfile_writer *w, struct tokenfile_mark *m);  /* all so far is on the disk */
/* Makes PART.bin, .idx and .json whole and durable and frees w whatever happens. */
int tokenfile_part_seal(struct tokenfile_writer *w, int64_t invalid_utf8, struct tokenfile_counter *more, int n_more, struct tokenfile_info *done);
/* Moves the three to PREFIX, or those that were not moved yet. */
int tokenfile_place(const char *part, const char *prefix);

/* ---- reading */
struct tokenfile;

/* ERR_NOINPUT when prefix is the name of one of the three files, as a person who
 * completes file names gives it. */
int tokenfile_named(const char *prefix);
int tokenfile_open(const char *prefix, struct tokenfile **out);
/* As open, but .bin is not read at all: for a caller that will. */
int tokenfile_open_index(const char *prefix, struct tokenfile **out);
/* The hashes of .bin, which open leaves out when it is large. */
int tokenfile_verify(const struct tokenfile *f);
void tokenfile_forget(const struct tokenfile *f);       /* as fs_blob_forget() */
void tokenfile_close(struct tokenfile *f);              /* NULL is accepted */
const struct tokenfile_info *tokenfile_about(const struct tokenfile *f);
struct sidecar;
const struct sidecar *tokenfile_recorded(const struct tokenfile *f);
struct megatron;
const struct megatron *tokenfile_megatron(const struct tokenfile *f);
const char *tokenfile_prefix(const struct tokenfile *f);

/* Only the sidecar: for the rule "up to date".  tokenfile_info_free() it.
 * ERR_NOINPUT when there is none. */
int tokenfile_sidecar(const char *prefix, struct tokenfile_info **out);
void tokenfile_info_free(struct tokenfile_info *i);

/* Hash of the recorded hashes: the identity of the tokens, without reading them. */
struct hash tokenfile_hash(const struct tokenfile *f);

/* Ids [first, first + n) into dst; ERR_DATA when one is not in the vocabulary. */
int tokenfile_ids(const struct tokenfile *f, int64_t first, int64_t n, int32_t *dst);

/* The document that holds token t, and the first token of document d
 * (d == documents: the number of tokens). */
int64_t tokenfile_doc_of(const struct tokenfile *f, int64_t t);
int64_t tokenfile_doc_first(const struct tokenfile *f, int64_t d);

#endif
