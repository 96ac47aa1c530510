/* tokenize_encode.c -- moe-tokenize encode: text to a token file or a token stream. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/progress.h"
#include "base/units.h"
#include "base/version.h"
#include "data/tokenfile.h"
#include "tok/docs.h"
#include "tok/encode.h"
#include "tokenize.h"

/* Text encoded at a time: bounds the memory for ids to four times as much. */
enum { SLAB_BYTES = 16 << 20 };

struct encode_opts {
    struct opt_common common;
    const char *tokenizer, *output, *docs;
    struct tok_load load;
    _Bool eod, force, specials, template, slow, check;
    int64_t threads;
};

#define AT(f) offsetof(struct encode_opts, f)
static const struct opt encode_table[] = {
    OPT_COMMON,
    { OPT_STR, 't', "tokenizer", "FILE", NULL, "vocabulary: tokenizer.json, tekken.json, .model or rank file", AT(tokenizer), 0, 0 },
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", AT(load.scheme), 0, 0 },
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", AT(load.specials), 0, 0 },
    { OPT_STR, 'o', "output", "PREFIX", NULL, "write PREFIX.bin, .idx and .json; else a token stream to stdout", AT(output), 0, 0 },
    { OPT_CHOICE, 0, "docs", "file|line|blank", "file", "what is a document: a file, a line, lines up to a blank one", AT(docs), 0, 0 },
    { OPT_FLAG, 0, "eod", NULL, NULL, "end documents of a stream too with the end-of-document token", AT(eod), 0, 0 },
    { OPT_FLAG, 0, "specials", NULL, NULL, "names of special tokens in the text are tokens", AT(specials), 0, 0 },
    { OPT_FLAG, 0, "template", NULL, NULL, "put around each document what the vocabulary's template has", AT(template), 0, 0 },
    { OPT_FLAG, 0, "slow", NULL, NULL, "encode by the general way, without compiled splits", AT(slow), 0, 0 },
    { OPT_FLAG, 0, "check", NULL, NULL, "encode by both ways and compare; nothing is written", AT(check), 0, 0 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace PREFIX, or write binary to a terminal", AT(force), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads, 0 for all; the output does not depend on it", AT(threads), 0, 4096 },
    OPT_END
};

struct job {
    const struct encode_opts *o;
    struct tok_vocab *v;
    struct tok_encoder *e, *other;      /* other: the slow way, with --check */
    struct tokenfile_writer *w;         /* NULL: stdout */
    int32_t eod;
    const char *eod_token;
    struct fs_blob *text;               /* [n] */
    struct tokenfile_input *input;      /* [n] */
    int n;
    uint64_t total, done, invalid;
    struct progress *progress;
    /* the slab: spans, and for each the size of the document that ends with it, or -1 */
    struct tok_span *span;
    int64_t *ends_doc;
    size_t n_spans, cap_spans, slab_bytes;
};

static int emit(struct job *j, const int32_t *ids, size_t n, int64_t ends_doc)
{
    if (j->w != NULL) {
        TRY(tokenfile_append(j->w, ids, n));
        return ends_doc < 0 ? 0 : tokenfile_end_doc(j->w, (uint64_t)ends_doc);
    }
    TRY(out_write(ids, n * sizeof *ids));
    return ends_doc >= 0 && j->o->eod ? out_write(&j->eod, sizeof j->eod) : 0;
}

/* Names the first text, and in it the first id, that differs. */
static int compare(struct job *j, const int32_t *ids, const int64_t *ends)
{
    const int32_t *ids2;
    const int64_t *ends2;
    int64_t begin = 0;
    uint64_t invalid = 0;
    TRY(tok_encode(j->other, j->span, (int64_t)j->n_spans, &ids2, &ends2, &invalid));
    for (size_t i = 0; i < j->n_spans; begin = ends[i++])
        for (int64_t k = begin; k < ends[i] || k < ends2[i]; k++)
            if (k >= ends[i] || k >= ends2[i] || ids[k] != ids2[k])
                return err_set(ERR_NO, "the two ways differ in a stretch of %zu bytes, at its token %lld", j->span[i].n, (long long)(k - begin));
    return 0;
}

static int flush_slab(struct job *j)
{
    const int32_t *ids;
    const int64_t *ends;
    int64_t begin = 0;
    TRY(tok_encode(j->e, j->span, (int64_t)j->n_spans, &ids, &ends, &j->invalid));
    if (j->other != NULL)
        TRY(compare(j, ids, ends));
    for (size_t i = 0; i < j->n_spans && j->other == NULL; i++) {
        TRY(emit(j, ids + begin, (size_t)(ends[i] - begin), j->ends_doc[i]));
        begin = ends[i];
    }
    j->done += j->slab_bytes;
    progress_set(j->progress, j->done);
    j->n_spans = j->slab_bytes = 0;
    return 0;
}

static int add_span(struct job *j, struct tok_span s, int64_t ends_doc)
{
    if (j->n_spans == j->cap_spans) {
        size_t cap = 2 * j->cap_spans + 1024;
        struct tok_span *a = realloc(j->span, cap * sizeof *a);
        if (a != NULL)
            j->span = a;
        int64_t *b = realloc(j->ends_doc, cap * sizeof *b);
        if (b != NULL)
            j->ends_doc = b;
        if (a == NULL || b == NULL)
            return err_sys(ERR_IO, "memory for %zu documents", cap);
        j->cap_spans = cap;
    }
    j->span[j->n_spans] = s;
    j->ends_doc[j->n_spans++] = ends_doc;
    j->slab_bytes += s.n;
    return j->slab_bytes >= SLAB_BYTES || j->n_spans >= SLAB_BYTES / 64 ? flush_slab(j) : 0;
}

static int encode_doc(struct job *j, struct tok_span doc)
{
    size_t pos = 0;
    while (doc.n - pos > SLAB_BYTES) {
        size_t end = tok_encoder_cut(j->e, doc.s, doc.n, pos + SLAB_BYTES);
        if (end == doc.n)
            break;
        TRY(add_span(j, (struct tok_span){ doc.s + pos, end - pos }, -1));
        pos = end;
    }
    return add_span(j, (struct tok_span){ doc.s + pos, doc.n - pos }, (int64_t)doc.n);
}

static enum tok_docs_mode docs_mode(const char *name)
{
    return strcmp(name, "line") == 0 ? TOK_DOCS_LINE : strcmp(name, "blank") == 0 ? TOK_DOCS_BLANK : TOK_DOCS_FILE;
}

static int encode_all(struct job *j)
{
    j->progress = progress_begin("encode", j->total, "B");
    int rc = 0;
    for (int i = 0; i < j->n && rc == 0; i++) {
        struct tok_docs d;
        struct tok_span doc;
        tok_docs_begin(&d, docs_mode(j->o->docs), j->text[i].data, j->text[i].size);
        while (rc == 0 && tok_docs_next(&d, &doc))
            rc = encode_doc(j, doc);
        if (rc < 0)
            rc = err_add("%s", j->input[i].path);
    }
    if (rc == 0)
        rc = flush_slab(j);
    progress_end(j->progress);
    return rc;
}

static int open_inputs(struct job *j, char **paths, int n)
{
    static char stdin_name[] = "-";
    static char *only_stdin[] = { stdin_name };
    if (n == 0) {
        paths = only_stdin;
        n = 1;
    }
    j->text = calloc((size_t)n, sizeof *j->text);
    j->input = calloc((size_t)n, sizeof *j->input);
    BUG_ON(j->text == NULL || j->input == NULL);
    for (; j->n < n; j->n++) {
        TRY(tokenize_text(paths[j->n], &j->text[j->n]));
        j->input[j->n].path = paths[j->n];
        j->input[j->n].bytes = j->text[j->n].size;
        j->total += j->text[j->n].size;
    }
    return 0;
}

/* ---- a token file */

/* 1 when PREFIX was made from the same inputs in the same way and is whole. */
static int is_up_to_date(const struct job *j)
{
    struct tokenfile *f;
    if (tokenfile_open(j->o->output, &f) < 0) {
        err_clear();
        return 0;
    }
    const struct tokenfile_info *i = tokenfile_about(f);
    struct hash h = tok_vocab_hash(j->v);
    _Bool same = hash_eq(&i->tokenizer, &h) && i->eod_id == j->eod && strcmp(i->docs, j->o->docs) == 0 && i->n_inputs == j->n;
    for (int k = 0; k < j->n && same; k++)
        same = i->inputs[k].bytes == j->input[k].bytes && hash_eq(&i->inputs[k].hash, &j->input[k].hash);
    tokenfile_close(f);
    return same;
}

static int may_create(const struct job *j, _Bool *up_to_date)
{
    struct arena *a = arena_new();
    static const char *const ends[] = { ".json", ".bin", ".idx" };
    int rc = 0;
    *up_to_date = 0;
    for (int i = 0; i < 3 && rc == 0; i++) {
        char *path = arena_printf(a, "%s%s", j->o->output, ends[i]);
        if (!fs_exists(path))
            continue;
        if (i == 0 && is_up_to_date(j)) {
            *up_to_date = 1;
            break;
        }
        rc = err_set(ERR_CREATE, i == 0 ? "%s exists and was not made from these inputs; -f replaces it"
                                        : "%s exists without a sidecar; -f replaces it", path);
    }
    arena_free(a);
    return rc;
}

/* The sidecar's name is also that of a vocabulary called PREFIX.json. */
static int spare_vocab(const struct job *j)
{
    struct stat a, b;
    struct arena *mem = arena_new();
    char *path = arena_printf(mem, "%s.json", j->o->output);
    int rc = 0;
    if (stat(path, &a) == 0 && stat(j->o->tokenizer, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        rc = err_set(ERR_CREATE, "%s is the vocabulary; the sidecar of %s would replace it", path, j->o->output);
    arena_free(mem);
    return rc;
}

static void report(const struct job *j, const struct tokenfile_info *i)
{
    char docs[32], tokens[32], text[32];
    log_info("%s: %s document%s, %s token%s of %s, %.2f bytes a token", j->o->output, units_count(docs, i->documents),
             i->documents == 1 ? "" : "s", units_count(tokens, i->tokens), i->tokens == 1 ? "" : "s", units_bytes(text, (double)i->text_bytes),
             i->tokens > 0 ? (double)i->text_bytes / (double)i->tokens : 0.0);
}

static int encode_to_file(struct job *j)
{
    _Bool up_to_date;
    struct tokenfile_info done;
    struct arena *a = arena_new();
    int rc;
    for (int i = 0; i < j->n; i++)
        j->input[i].hash = hash_bytes(j->text[i].data, j->text[i].size);
    TRY_OUT(rc, spare_vocab(j));
    if (!j->o->force) {
        TRY_OUT(rc, may_create(j, &up_to_date));
        if (up_to_date) {
            log_info("%s: up to date", j->o->output);
            goto out;
        }
    }
    struct tokenfile_info i = { .tool = arena_printf(a, "moe-tokenize %s", moe_version),
        .tokenizer = tok_vocab_hash(j->v), .vocab_size = tok_vocab_size(j->v), .eod_id = j->eod,
        .eod_token = arena_strdup(a, j->eod_token), .docs = arena_strdup(a, j->o->docs), .inputs = j->input, .n_inputs = j->n };
    i.argv = opt_argv(&i.n_argv);
    TRY_OUT(rc, tokenfile_create(j->o->output, &i, &j->w));
    if ((rc = encode_all(j)) < 0) {
        tokenfile_abort(j->w);
        goto out;
    }
    TRY_OUT(rc, tokenfile_commit(j->w, (int64_t)j->invalid, &done));
    report(j, &done);
    rc = 0;
out:
    arena_free(a);
    return rc;
}

static int encode_run(void *opts, int argc, char **argv)
{
    const struct encode_opts *o = opts;
    struct job j = { .o = o };
    _Bool to_file = o->output != NULL && strcmp(o->output, "-") != 0;
    int rc;
    if (o->output != NULL && o->output[0] == '\0')
        return err_set(ERR_USAGE, "--output: expected a prefix");
    if (to_file && o->eod)
        return err_set(ERR_USAGE, "--eod is for streams; a token file always has the end-of-document token");
    if (o->check && (o->output != NULL || o->slow))
        return err_set(ERR_USAGE, "--check writes nothing: neither --output nor --slow go with it");
    if (!to_file && !o->check)
        TRY(out_binary(o->force));
    TRY(tokenize_vocab(o->tokenizer, &o->load, &j.v));
    if (to_file || o->eod)
        TRY_OUT(rc, tokenize_eod(j.v, &j.eod, &j.eod_token));
    TRY_OUT(rc, open_inputs(&j, argv, argc));
    struct tok_how how = { (int)o->threads, o->specials, o->template, o->slow };
    TRY_OUT(rc, tok_encoder_new(j.v, &how, &j.e));
    if (o->check) {
        how.slow = 1;
        TRY_OUT(rc, tok_encoder_new(j.v, &how, &j.other));
    }
    TRY_OUT(rc, to_file ? encode_to_file(&j) : encode_all(&j));
    if (o->check)
        log_info("both ways give the same ids for %llu bytes%s", (unsigned long long)j.done,
                 tok_encoder_is_fast(j.e) ? "" : "; this vocabulary has only the slow one");
    if (j.invalid > 0)
        log_warn("%llu bytes are no valid UTF-8; they are kept, as tokens of bytes", (unsigned long long)j.invalid);
out:
    for (int i = 0; i < j.n; i++)
        fs_blob_free(&j.text[i]);
    free(j.text);
    free(j.input);
    free(j.span);
    free(j.ends_doc);
    tok_encoder_free(j.e);
    tok_encoder_free(j.other);
    tok_vocab_free(j.v);
    return rc;
}

const struct opt_cmd tokenize_encode_cmd = {
    "encode", "text to a token file, or to a token stream on stdout", "[options] -t FILE [-o PREFIX] [TEXT...]",
    "moe-tokenize encode -t tok.json -o data/train text/*.txt\n"
    "echo 'Es war einmal' | moe-tokenize encode -t tok.json | moe-tokenize decode -t tok.json\n",
    encode_table, sizeof(struct encode_opts), 0, -1, encode_run
};
