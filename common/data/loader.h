/* loader.h -- batches as a pure function of (seed, step).
 *
 * A set is its token stream.  Window i of a set holds S = seq_len inputs
 * [i S, (i+1) S) and one look-ahead token; there are (tokens - 1) / S windows,
 * the rest at the end is dropped.  A training set gives its windows in the
 * order of a keyed permutation of (seed, set, epoch); several sets are mixed so
 * that after n samples each set's count is within 1 of its share.  Samples are
 * numbered through the whole run: step k of a run with B samples a step takes
 * [k B, (k+1) B), whichever rank asks.  So there is no state to save.
 *
 * Documents are cut at windows: positions restart and attention begins anew at
 * the start of a window and of a document.  Token t has the target t+1 when both
 * are in one document, else none: the end-of-document token has no target, but
 * is one.
 *
 * Nothing is allocated after loader_open().  Not for use by two threads at once. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stdint.h>

#include "base/hash.h"
#include "data/data_config.h"

/* What the tokenizer says; byte_len[vocab_size] (text bytes of each token, 0 for
 * special ones) is borrowed until close and may be NULL: text_bytes is then 0. */
struct loader_vocab {
    struct hash hash;
    int64_t vocab_size;
    const int32_t *byte_len;
};

/* A flattened micro-batch: T = n_seqs * seq_len tokens.  The caller owns the
 * arrays, each of (at least) T items; any of them may be NULL and is skipped. */
struct batch {
    int64_t n_seqs, seq_len;    /* set by the loader */
    int32_t *ids;               /* [T] */
    int32_t *targets;           /* [T]; -1: none */
    int32_t *doc_start;         /* [T] index in the batch of the first token that token t may see */
    int32_t *positions;         /* [T] t - doc_start[t] */
    int64_t n_valid;            /* set by the loader: targets >= 0 */
    int64_t text_bytes;         /* set by the loader: text bytes of the targets, special tokens 0.
                                   bits per byte = sum of nll / ln 2 / text_bytes */
};

struct loader;

enum { LOADER_TRAIN = 1, LOADER_VALID = 2 };    /* which lists to open */

/* c and its strings are borrowed until close.  vocab NULL: hashes are not
 * compared (and text_bytes is 0).  Errors: a set's own (tokenfile_open), another
 * tokenizer or vocab_size (ERR_DATA), "seq_len 256 is longer than the 120 tokens
 * of data/train" (ERR_DATA), no set to train on (ERR_USAGE). */
int loader_open(const struct data_config *c, const struct loader_vocab *vocab, int what,
                struct loader **out);
void loader_close(struct loader *l);                    /* NULL is accepted */

/* ---- training */
/* Samples first .. first+n-1 of the run. */
int loader_samples(struct loader *l, int64_t first, int64_t n, struct batch *b);

/* Valid targets of these samples, from the document index alone: the divisor
 * of the loss of a global batch, known before its first forward. */
int loader_valid_targets(struct loader *l, int64_t first, int64_t n, int64_t *out);

/* Where sample n comes from. */
struct loader_where { int set; int64_t epoch, window; };
int loader_where(struct loader *l, int64_t sample, struct loader_where *out);

/* For MANIFEST and status: set i's path, hash and windows. */
struct loader_set { const char *name, *path; struct hash hash; int64_t windows, tokens, documents, text_bytes; };
int loader_n_train(const struct loader *l);
struct loader_set loader_train_set(const struct loader *l, int i);
/* Epochs of set i that are behind sample n (a real number). */
double loader_epochs(struct loader *l, int i, int64_t sample);

/* ---- evaluation: windows in file order */
int loader_n_valid_sets(const struct loader *l);
struct loader_set loader_valid_set(const struct loader *l, int i);
int loader_valid_windows(struct loader *l, int i_set, int64_t first, int64_t n, struct batch *b);

#endif
