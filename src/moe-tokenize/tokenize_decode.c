/* tokenize_decode.c -- moe-tokenize decode: a token stream or token file to text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/out.h"
#include "data/tokenfile.h"
#include "tok/encode.h"
#include "tokenize.h"

enum { CHUNK_IDS = 1 << 14 };

struct decode_opts {
    struct opt_common common;
    const char *tokenizer;
    struct tok_load load;
    _Bool special;
};

#define AT(f) offsetof(struct decode_opts, f)
static const struct opt decode_table[] = {
    OPT_COMMON,
    { OPT_STR, 't', "tokenizer", "FILE", NULL, "vocabulary: tokenizer.json, tekken.json, .model or rank file", AT(tokenizer), 0, 0 },
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", AT(load.scheme), 0, 0 },
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", AT(load.specials), 0, 0 },
    { OPT_FLAG, 's', "special", NULL, NULL, "write special tokens by their names", AT(special), 0, 0 },
    OPT_END
};

struct text { struct tok_decoder d; _Bool special; char *buf; size_t len, cap; };

/* Text decoded before a bad id is written all the same. */
static int decode_ids(struct text *t, const int32_t *ids, size_t n)
{
    struct err_state err;
    t->len = 0;
    int rc = tok_decode(&t->d, ids, n, t->special, &t->buf, &t->len, &t->cap);
    if (rc == 0)
        return out_write(t->buf, t->len);
    err_take(&err);
    TRY(out_write(t->buf, t->len));
    return err_put(&err);
}

/* Each read is shown at once, so that a slow producer is seen at work. */
static int decode_stream(struct text *t)
{
    static int32_t ids[CHUNK_IDS];
    size_t have = 0;
    for (;;) {
        ssize_t n = read(STDIN_FILENO, (char *)ids + have, sizeof ids - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(ERR_IO, "standard input");
        if (n == 0)
            break;
        have += (size_t)n;
        size_t whole = have / sizeof *ids;
        TRY(decode_ids(t, ids, whole));
        TRY(out_flush());
        memmove(ids, ids + whole, have % sizeof *ids);
        have %= sizeof *ids;
    }
    if (have > 0)
        return err_set(ERR_DATA, "standard input: the token stream ends inside a token: %zu of 4 bytes", have);
    return 0;
}

static int decode_file(struct text *t, const char *prefix)
{
    static int32_t ids[CHUNK_IDS];
    struct tokenfile *f;
    int rc = 0;
    TRY(tokenfile_open(prefix, &f));
    const struct tokenfile_info *i = tokenfile_about(f);
    struct hash h = tok_vocab_hash(t->d.v);
    if (!hash_eq(&i->tokenizer, &h))
        rc = err_set(ERR_DATA, "%s: encoded with another tokenizer (%s, not %s)", prefix, i->tokenizer.hex, h.hex);
    for (int64_t at = 0; at < i->tokens && rc == 0; at += CHUNK_IDS) {
        int64_t n = i->tokens - at < CHUNK_IDS ? i->tokens - at : CHUNK_IDS;
        rc = tokenfile_ids(f, at, n, ids);
        if (rc == 0)
            rc = decode_ids(t, ids, (size_t)n);
    }
    tokenfile_close(f);
    return rc;
}

static int decode_end(struct text *t)
{
    t->len = 0;
    TRY(tok_decode_end(&t->d, &t->buf, &t->len, &t->cap));
    return out_write(t->buf, t->len);
}

static int decode_run(void *opts, int argc, char **argv)
{
    const struct decode_opts *o = opts;
    struct tok_vocab *v;
    struct text t = { .special = o->special };
    TRY(tokenize_vocab(o->tokenizer, &o->load, &v));
    tok_decode_begin(&t.d, v);
    int rc = 0;
    for (int i = 0; i < argc && rc == 0; i++)
        rc = strcmp(argv[i], "-") == 0 ? decode_stream(&t) : decode_file(&t, argv[i]);
    if (argc == 0)
        rc = decode_stream(&t);
    if (rc == 0)
        rc = decode_end(&t);
    free(t.buf);
    tok_vocab_free(v);
    return rc;
}

const struct opt_cmd tokenize_decode_cmd = {
    "decode", "a token stream on stdin, or token files, to text", "[options] -t FILE [PREFIX...]",
    "moe-tokenize encode -t tok.json < text/de.txt | moe-tokenize decode -t tok.json\n"
    "moe-tokenize decode -t tok.json --special data/train | less\n",
    decode_table, sizeof(struct decode_opts), 0, -1, decode_run
};
