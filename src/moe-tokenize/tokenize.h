/* tokenize.h -- what the subcommands of moe-tokenize share. */
#ifndef TOKENIZE_H
#define TOKENIZE_H

#include "base/fs.h"
#include "base/opt.h"
#include "tok/text_slab.h"
#include "tok/vocab.h"

extern const struct opt_cmd tokenize_encode_cmd, tokenize_decode_cmd, tokenize_train_cmd, tokenize_info_cmd,
    tokenize_import_cmd, tokenize_export_cmd, tokenize_verify_cmd, tokenize_stats_cmd, tokenize_merge_cmd;

/* A text: mapped when it is a regular file, read otherwise; "-" is stdin. */
int tokenize_text(const char *path, struct fs_blob *out);

/* The value of --docs, and of -j (0: what OpenMP offers). */
enum text_docs tokenize_docs(const char *name);
int tokenize_threads(int64_t threads);

/* --on; and the sums of what was met, for a sentence: ", 3 blank lines (left out)" and
 * so on, "" when there was nothing. */
struct arena;
int tokenize_on(struct text_how *how, const struct opt_list *on);
const char *tokenize_counted(struct arena *a, const struct text_how *how, const int64_t count[TEXT_N_KINDS]);

/* The vocabulary named by -t; ERR_USAGE when none is. */
int tokenize_vocab(const char *path, const struct tok_load *how, struct tok_vocab **out);

/* The token that ends documents: the special token of the lowest id. */
int tokenize_eod(const struct tok_vocab *v, int32_t *id, const char **content);

/* A text can be read, as far as can be told before: missing, a directory or
 * forbidden is ERR_NOINPUT.  st (may be NULL) is set, st_mode 0 for "-". */
struct stat;
int tokenize_look_at(const char *path, struct stat *st);

/* What comes of --output as a prefix; ERR_USAGE when it is none. */
int tokenize_check_prefix(const char *prefix);

/* Both are there, and are one file. */
_Bool tokenize_same_file(const char *a, const char *b);

/* PREFIX.json is there. */
_Bool tokenize_has_sidecar(const char *prefix);

#endif
