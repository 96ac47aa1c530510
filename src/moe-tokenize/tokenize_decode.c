/* tokenize_decode.c -- moe-tokenize decode: a token stream or token file to text.
 *
 * A stream is for a person or a pipe: what is whole is shown at once.  A token
 * file is read document by document, as fast as memory goes. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/out.h"
#include "data/megatron.h"
#include "data/tokenfile.h"
#include "tok/chars.h"
#include "tok/decode_table.h"
#include "tok/encode.h"
#include "tokenize.h"

enum { CHUNK_IDS = 1 << 14, BLOCK_IDS = 1 << 12, OUT_BYTES = 1 << 18 };

struct decode_opts {
    struct opt_common common;
    const char *tokenizer;
    struct tok_load load;
    const char *output, *docs, *range;
    _Bool special, foreign, force;
};

#define AT(f) offsetof(struct decode_opts, f)
static const struct opt decode_table[] = {
    OPT_COMMON,
    { OPT_STR, 't', "tokenizer", "FILE", NULL, "vocabulary: tokenizer.json, tekken.json, .model or rank file", AT(tokenizer), 0, 0 },
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", AT(load.scheme), 0, 0 },
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", AT(load.specials), 0, 0 },
    { OPT_FLAG, 's', "special", NULL, NULL, "write special tokens by their names", AT(special), 0, 0 },
    { OPT_CHOICE, 0, "docs", "file|line|blank|jsonl", "file", "how documents of a token file are told apart (see the page)", AT(docs), 0, 0 },
    { OPT_STR, 0, "range", "A-B", NULL, "only documents A to B of a token file, from 0; also A, or A-", AT(range), 0, 0 },
    { OPT_STR, 'o', "output", "FILE", NULL, "write the text of token files here, whole or not at all", AT(output), 0, 0 },
    { OPT_FLAG, 0, "foreign", NULL, NULL, "a pair without a sidecar, as Megatron writes it, is taken as it is", AT(foreign), 0, 0 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace FILE", AT(force), 0, 0 },
    OPT_END
};

struct text { struct tok_decoder d; _Bool special; char *buf; size_t len, cap; int64_t done; };      /* done: ids before */

/* Text decoded before a bad id is written all the same. */
static int decode_ids(struct text *t, const int32_t *ids, size_t n)
{
    t->len = 0;
    int rc = tok_decode(&t->d, ids, n, t->special, &t->buf, &t->len, &t->cap);
    if (rc == 0) {
        t->done += (int64_t)n;
        return out_write(t->buf, t->len);
    }
    TRY(out_write(t->buf, t->len));
    /* Which one it was is asked for only now. */
    struct tok_decoder alone;
    size_t bad = 0;
    for (tok_decode_begin(&alone, t->d.v); bad < n && tok_decode(&alone, ids + bad, 1, t->special, &t->buf, &t->len, &t->cap) == 0;)
        bad++;
    return err_add("standard input: token %lld", (long long)(t->done + (int64_t)bad));
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

/* ---- token files */

/* Where the text of documents goes; buf has room for any token beyond OUT_BYTES. */
struct sink { struct fs_out *file; char *buf; size_t len, cap; };

static int sink_flush(struct sink *k)
{
    size_t n = k->len;
    k->len = 0;
    return k->file != NULL ? fs_out_write(k->file, k->buf, n) : out_write(k->buf, n);
}

static int sink_put(struct sink *k, const char *s, size_t n)
{
    if (n > k->cap - k->len)
        TRY(sink_flush(k));
    if (n > k->cap)
        return k->file != NULL ? fs_out_write(k->file, s, n) : out_write(s, n);
    memcpy(k->buf + k->len, s, n);
    k->len += n;
    return 0;
}

struct files {
    const struct decode_opts *o;
    struct tok_table *table;
    struct sink sink, doc;              /* doc: a document that becomes a line of JSON */
    struct json_out *json;
    int64_t first, last;                /* documents asked for; last -1: to the end */
    int64_t mended;                     /* documents with bytes that JSON has no way to say */
    uint64_t touched;                   /* of the files, for megatron_touch() */
};

/* Ids [first, end) are a document, or a part of it that follows others. */
static int decode_doc(struct files *f, struct sink *k, _Bool grows, const struct megatron *m, int64_t doc, int64_t first, int64_t end)
{
    int32_t ids[BLOCK_IDS];
    const size_t spare = tok_table_longest(f->table) + 16;
    _Bool begins = 1;
    while (first < end) {
        size_t n = end - first < BLOCK_IDS ? (size_t)(end - first) : BLOCK_IDS, done = 0, len;
        megatron_ids(m, first, (int64_t)n, ids);
        megatron_touch(m, &f->touched, (int64_t)n, 0);
        while (done < n) {
            if (k->cap - k->len < 2 * spare) {
                if (!grows)
                    TRY(sink_flush(k));
                else
                    k->buf = arena_must(realloc(k->buf, k->cap = 2 * k->cap + 4 * spare));
            }
            size_t got = tok_table_text(f->table, ids + done, n - done, k->buf + k->len, k->cap - k->len, &len);
            if (got == 0) {
                (void)tok_table_refuse(f->table, ids[done]);
                return err_add("%s: document %lld, token %lld", m->bin_path, (long long)doc, (long long)(first + (int64_t)done));
            }
            size_t skip = begins ? tok_table_strip(f->table, k->buf + k->len, len) : 0;
            memmove(k->buf + k->len, k->buf + k->len + skip, skip > 0 ? len - skip : 0);
            k->len += len - skip;
            done += got;
            begins = 0;
        }
        first += (int64_t)n;
    }
    return 0;
}

static int decode_json(struct files *f, const struct megatron *m, int64_t doc, int64_t first, int64_t end)
{
    size_t n;
    f->doc.len = 0;
    TRY(decode_doc(f, &f->doc, 1, m, doc, first, end));
    f->mended += tok_chars_valid((const uint8_t *)f->doc.buf, f->doc.len) != f->doc.len;
    json_reset(f->json);
    json_obj(f->json, NULL);
    json_put_strn(f->json, "text", f->doc.len > 0 ? f->doc.buf : "", f->doc.len);
    json_obj_end(f->json);
    const char *text = json_text(f->json, &n);
    TRY(sink_put(&f->sink, text, n));
    return sink_put(&f->sink, "\n", 1);
}

static int decode_pair(struct files *f, const char *prefix, const struct megatron *m)
{
    const char *docs = f->o->docs, *between = strcmp(docs, "line") == 0 ? "\n" : strcmp(docs, "blank") == 0 ? "\n\n" : "";
    _Bool json = strcmp(docs, "jsonl") == 0;
    int64_t last = f->last < 0 ? m->n_docs - 1 : f->last;
    int rc = 0;
    if (f->first > 0 && f->first >= m->n_docs)
        return err_set(ERR_DATA, "%s: no document %lld: it has %lld, numbered from 0", prefix, (long long)f->first, (long long)m->n_docs);
    if (last >= m->n_docs)
        return err_set(ERR_DATA, "%s: no document %lld: it has %lld, numbered from 0", prefix, (long long)last, (long long)m->n_docs);
    for (int64_t d = f->first; d <= last && rc >= 0; d++) {
        int64_t first = megatron_doc_first(m, d), end = megatron_doc_first(m, d + 1);
        megatron_touch(m, &f->touched, 0, 1);
        rc = json ? decode_json(f, m, d, first, end) : decode_doc(f, &f->sink, 0, m, d, first, end);
        if (rc >= 0)
            rc = sink_put(&f->sink, between, strlen(between));
    }
    if (rc < 0 && f->sink.file == NULL && !out_gone()) {        /* what came before a bad id is shown all the same */
        struct err_state err;
        err_take(&err);
        TRY(sink_flush(&f->sink));
        return err_put(&err);
    }
    return rc < 0 ? rc : sink_flush(&f->sink);
}

static int decode_foreign(struct files *f, const char *prefix)
{
    struct megatron_pair *p;
    TRY(megatron_open(prefix, &p));
    int rc = megatron_check(megatron_of(p), NULL);
    if (rc == 0 && !megatron_holds_ids(megatron_of(p)))
        rc = err_set(ERR_DATA, "%s: dtype %s holds no ids", prefix, megatron_dtype(megatron_of(p)->code));
    if (rc == 0)
        rc = decode_pair(f, prefix, megatron_of(p));
    megatron_close(p);
    return rc;
}

static int decode_file(struct files *f, const struct tok_vocab *v, const char *prefix)
{
    struct tokenfile *t;
    if (f->o->foreign && !tokenize_has_sidecar(prefix))
        return decode_foreign(f, prefix);
    TRY(tokenfile_open(prefix, &t));
    const struct tokenfile_info *i = tokenfile_about(t);
    struct hash h = tok_vocab_hash(v);
    int rc = 0;
    if (!hash_eq(&i->tokenizer, &h))
        rc = err_set(ERR_DATA, "%s: encoded with another tokenizer (%s, not %s)", prefix, i->tokenizer.hex, h.hex);
    if (rc == 0)
        rc = decode_pair(f, prefix, tokenfile_megatron(t));
    tokenfile_close(t);
    return rc;
}

/* "A", "A-" or "A-B", documents from 0. */
static int parse_range(const char *s, int64_t *first, int64_t *last)
{
    char *end;
    *first = 0;
    *last = -1;
    if (s == NULL)
        return 0;
    errno = 0;
    *first = strtoll(s, &end, 10);
    _Bool ok = end != s && isdigit((unsigned char)s[0]);
    if (ok && *end == '\0') {
        *last = *first;
    } else if (ok && *end == '-' && isdigit((unsigned char)end[1])) {
        *last = strtoll(end + 1, &end, 10);
        ok = *end == '\0' && *last >= *first;
    } else {
        ok = ok && strcmp(end, "-") == 0;
    }
    return ok && errno == 0 ? 0 : err_set(ERR_USAGE, "--range: \"%s\": expected documents as 7, 7-9 or 7-, numbered from 0", s);
}

/* What is read cannot be what is written, whatever is forced. */
static int not_an_input(const struct decode_opts *o, int n, char **prefix)
{
    static const char *const ends[] = { ".bin", ".idx", ".json" };
    struct arena *a = arena_new();
    int rc = tokenize_same_file(o->tokenizer, o->output) ? err_set(ERR_USAGE, "%s is the vocabulary and cannot be the output", o->output) : 0;
    for (int i = 0; i < n && rc == 0; i++)
        for (int e = 0; e < 3 && rc == 0; e++)
            if (tokenize_same_file(arena_printf(a, "%s%s", prefix[i], ends[e]), o->output))
                rc = err_set(ERR_USAGE, "%s is of the token file %s and cannot be the output", o->output, prefix[i]);
    arena_free(a);
    return rc;
}

static int decode_files(const struct decode_opts *o, const struct tok_vocab *v, int n, char **prefix)
{
    struct files f = { .o = o };
    int rc;
    TRY(parse_range(o->range, &f.first, &f.last));
    if (o->range != NULL && n > 1)
        return err_set(ERR_USAGE, "--range: for one token file, not %d", n);
    if (o->output != NULL)
        TRY(not_an_input(o, n, prefix));
    if (o->output != NULL && !o->force && fs_exists(o->output))
        return err_set(ERR_CREATE, "%s exists; -f replaces it", o->output);
    TRY(tok_table_new(v, o->special, &f.table));
    f.sink.cap = OUT_BYTES + 2 * (tok_table_longest(f.table) + 16);
    f.sink.buf = arena_must(malloc(f.sink.cap));
    f.json = json_new();
    rc = o->output != NULL ? fs_out_open(o->output, &f.sink.file) : 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = strcmp(prefix[i], "-") == 0 ? err_set(ERR_USAGE, "-: a stream is decoded alone") : decode_file(&f, v, prefix[i]);
    if (f.sink.file != NULL) {
        if (rc == 0)
            rc = fs_out_commit(f.sink.file);
        else
            fs_out_abort(f.sink.file);
    }
    if (rc == 0 && f.mended > 0)
        log_warn("documents with bytes that are no valid UTF-8: %lld; JSON has U+FFFD for them", (long long)f.mended);
    tok_table_free(f.table);
    json_free(f.json);
    free(f.sink.buf);
    free(f.doc.buf);
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
    _Bool stream = argc == 0 || (argc == 1 && strcmp(argv[0], "-") == 0);
    if (stream && (o->range != NULL || o->output != NULL || o->foreign || strcmp(o->docs, "file") != 0))
        return err_set(ERR_USAGE, "--docs, --range, --foreign and --output are for token files; a stream goes to stdout as it comes");
    TRY(tokenize_vocab(o->tokenizer, &o->load, &v));
    int rc;
    if (stream) {
        tok_decode_begin(&t.d, v);
        rc = decode_stream(&t);
        if (rc == 0)
            rc = decode_end(&t);
        free(t.buf);
    } else {
        rc = decode_files(o, v, argc, argv);
    }
    tok_vocab_free(v);
    return rc;
}

const struct opt_cmd tokenize_decode_cmd = {
    "decode", "a token stream on stdin, or token files, to text", "[options] -t FILE [PREFIX...]",
    "moe-tokenize encode -t tok.json < text/de.txt | moe-tokenize decode -t tok.json\n"
    "moe-tokenize decode -t tok.json --special data/train | less\n"
    "moe-tokenize decode -t tok.json --docs jsonl --range 0-9 data/train\n",
    decode_table, sizeof(struct decode_opts), 0, -1, decode_run
};
