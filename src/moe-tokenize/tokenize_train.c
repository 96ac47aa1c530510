/* tokenize_train.c -- moe-tokenize train: a vocabulary from text. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/progress.h"
#include "base/units.h"
#include "tok/bpe_train.h"
#include "tokenize.h"

struct train_opts {
    struct opt_common common;
    int64_t vocab_size, min_frequency, threads;
    const char *output, *eod;
    struct opt_list special;
    _Bool force;
};

#define AT(f) offsetof(struct train_opts, f)
static const struct opt train_table[] = {
    OPT_COMMON,
    { OPT_INT, 0, "vocab-size", "N", NULL, "tokens of the vocabulary, bytes and special tokens included", AT(vocab_size), 257, 16777216 },
    { OPT_STR, 'o', "output", "FILE", NULL, "the tokenizer.json to write, - for stdout", AT(output), 0, 0 },
    { OPT_INT, 0, "min-frequency", "N", "2", "merge no pair that is seen less often", AT(min_frequency), 1, 9e15 },
    { OPT_STR, 0, "eod", "TOKEN", TOK_EOD, "name of the end-of-document token", AT(eod), 0, 0 },
    { OPT_LIST, 0, "special", "TOKEN", NULL, "another special token; may be given several times", AT(special), 0, 0 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace FILE", AT(force), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads, 0 for all; the output does not depend on it", AT(threads), 0, 4096 },
    OPT_END
};

static int count_texts(struct tok_trainer *t, char **paths, int n)
{
    static char stdin_name[] = "-";
    static char *only_stdin[] = { stdin_name };
    uint64_t total = 0, done = 0, size;
    int rc = 0;
    if (n == 0) {
        paths = only_stdin;
        n = 1;
    }
    for (int i = 0; i < n; i++)
        total += strcmp(paths[i], "-") != 0 && fs_file_size(paths[i], &size) == 0 ? size : 0;
    err_clear();
    struct progress *p = progress_begin("count pieces", total, "B");
    for (int i = 0; i < n && rc == 0; i++) {
        struct fs_blob text;
        if ((rc = tokenize_text(paths[i], &text)) < 0)
            break;
        rc = tok_trainer_add(t, (const uint8_t *)text.data, text.size);
        if (rc < 0)
            rc = err_add("%s", paths[i]);
        progress_set(p, done += text.size);
        fs_blob_free(&text);
    }
    progress_end(p);
    return rc;
}

static void tick(void *arg, int64_t tokens)
{
    progress_set(arg, (uint64_t)tokens);
}

/* A vocabulary does not record its texts, so "made from the same inputs" is
 * seen by making it again: the same text of the file is up to date. */
static int put_file(const struct train_opts *o, const char *text, size_t n, _Bool *up_to_date)
{
    struct fs_blob old;
    *up_to_date = 0;
    if (fs_exists(o->output) && !o->force) {
        TRY(fs_read(o->output, &old));
        *up_to_date = old.size == n && memcmp(old.data, text, n) == 0;
        fs_blob_free(&old);
        return *up_to_date ? 0 : err_set(ERR_CREATE, "%s exists and was not made from these inputs; -f replaces it", o->output);
    }
    return fs_write_file(o->output, text, n);
}

static int put_vocab(const struct train_opts *o, const struct tok_vocab *v, const struct tok_train_stats *s)
{
    size_t n;
    char *text = tok_vocab_text(v, &n), distinct[32], bytes[32];
    _Bool up_to_date = 0;
    int rc = strcmp(o->output, "-") == 0 ? out_write(text, n) : put_file(o, text, n, &up_to_date);
    free(text);
    if (rc < 0)
        return rc;
    if (up_to_date)
        log_info("%s: up to date", o->output);
    else
        log_info("%s: %d tokens from %s of text, %s distinct pieces", o->output, (int)tok_vocab_size(v),
                 units_bytes(bytes, (double)s->bytes), units_count(distinct, s->distinct));
    if (s->invalid > 0)
        log_warn("%llu bytes are no valid UTF-8; they were learned from as bytes", (unsigned long long)s->invalid);
    return 0;
}

static int learn(const struct train_opts *o, struct tok_trainer *t)
{
    struct tok_vocab *v;
    struct tok_train_stats s;
    const char **special = malloc(((size_t)o->special.n + 1) * sizeof *special);
    BUG_ON(special == NULL);
    special[0] = o->eod;
    for (int i = 0; i < o->special.n; i++)
        special[i + 1] = o->special.v[i];
    struct progress *p = progress_begin("merge pairs", (uint64_t)o->vocab_size, "tokens");
    int rc = tok_trainer_run(t, (int32_t)o->vocab_size, o->min_frequency, special, o->special.n + 1, tick, p, &v, &s);
    progress_end(p);
    if (rc == 0) {
        rc = put_vocab(o, v, &s);
        tok_vocab_free(v);
    }
    free(special);
    return rc;
}

static int train_run(void *opts, int argc, char **argv)
{
    const struct train_opts *o = opts;
    if (o->vocab_size == 0)
        return err_set(ERR_USAGE, "no size: give one with --vocab-size N");
    if (o->output == NULL || o->output[0] == '\0')
        return err_set(ERR_USAGE, "no output: give one with -o tok.json");
    struct tok_trainer *t = tok_trainer_new((int)o->threads);
    int rc = count_texts(t, argv, argc);
    if (rc == 0)
        rc = learn(o, t);
    tok_trainer_free(t);
    return rc;
}

const struct opt_cmd tokenize_train_cmd = {
    "train", "learn a byte-level BPE vocabulary from text", "[options] --vocab-size N -o FILE [TEXT...]",
    "moe-tokenize train --vocab-size 8192 -o tok.json text/*.txt\n",
    train_table, sizeof(struct train_opts), 0, -1, train_run
};
