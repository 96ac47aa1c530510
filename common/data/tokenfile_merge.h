/* tokenfile_merge.h -- several token files as one.
 *
 * The documents of the inputs stand behind one another in the order given;
 * ids do not change, counts and offsets are of 64 bits, and memory does not
 * depend on the sizes.  What is read is held against its checksums on the way,
 * and nothing shows before all of it is written.
 *
 * A pair without a sidecar is taken when foreign is set.  With a vocabulary
 * its ids and the ends of its documents are checked and the result is a token
 * file like any other; without one nothing vouches for the ids, and the result
 * is a pair without a sidecar too. */
#ifndef DATA_TOKENFILE_MERGE_H
#define DATA_TOKENFILE_MERGE_H

#include <stdint.h>

#include "data/tokenfile_info.h"

struct tokenfile_merge_how {
    const char *const *inputs; int n_inputs;
    _Bool foreign;
    _Bool add_eod;              /* foreign documents that do not end with it get the end-of-document token */
    char *tool, **argv; int n_argv;

    /* The vocabulary; vocab_size 0: none. */
    struct hash tokenizer;
    int64_t vocab_size;
    int32_t eod_id;
    char *eod_token;
    const int32_t *byte_len;    /* [vocab_size] text bytes of each token */

    void (*progress)(void *ctx, uint64_t done, uint64_t total);     /* bytes of .bin; may be NULL */
    void *ctx;
};

struct tokenfile_merge_done {
    _Bool sidecar;
    int64_t documents, sequences, tokens, added_eod;
    const char *odd, *odd_how, *how;    /* first input that was encoded with other options than the first one; NULL: none */
    uint64_t bytes;             /* of .bin that were read */
};

/* Opens all inputs and sees whether they fit together: ERR_DATA names the first
 * that does not.  how is borrowed until the end. */
struct tokenfile_merge;
int tokenfile_merge_begin(const struct tokenfile_merge_how *how, struct tokenfile_merge **out);
void tokenfile_merge_end(struct tokenfile_merge *m);    /* NULL is accepted */

/* 1 when prefix is whole and was merged from these inputs; else 0, or an error. */
int tokenfile_merge_is_made(struct tokenfile_merge *m, const char *prefix);

/* ERR_USAGE when prefix is one of the inputs. */
int tokenfile_merge_run(struct tokenfile_merge *m, const char *prefix, struct tokenfile_merge_done *done);

#endif
