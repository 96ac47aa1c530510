/* tokenize_encode.c -- moe-tokenize encode: text to token files or a token stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/units.h"
#include "base/version.h"
#include "corpus.h"
#include "tokenize.h"

enum { MAX_KEYS = 64, MAX_SHARDS = 256, MAX_JOBS = 100000 };

struct encode_opts {
    struct opt_common common;
    const char *tokenizer, *output, *against, *docs, *shard;
    struct opt_list key, on;
    struct tok_load load;
    _Bool eod, force, specials, template, slow, check;
    int64_t threads, shards;
};

#define AT(f) offsetof(struct encode_opts, f)
static const struct opt encode_table[] = {
    OPT_COMMON,
    { OPT_STR, 't', "tokenizer", "FILE", NULL, "vocabulary: tokenizer.json, tekken.json, .model or rank file", AT(tokenizer), 0, 0 },
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", AT(load.scheme), 0, 0 },
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", AT(load.specials), 0, 0 },
    { OPT_STR, 'o', "output", "PREFIX", NULL, "write PREFIX.bin, .idx and .json; else a token stream to stdout", AT(output), 0, 0 },
    { OPT_CHOICE, 0, "docs", "auto|file|line|blank|jsonl", "auto", "what is a document, and whether it stands in JSON (see the page)", AT(docs), 0, 0 },
    { OPT_LIST, 0, "key", "KEY", NULL, "JSON lines: key of the text (text); of several each gets a file", AT(key), 0, 0 },
    { OPT_LIST, 0, "on", "KIND=ACTION", NULL, "what to do about utf8, json, key, type, empty... (see the page)", AT(on), 0, 0 },
    { OPT_INT, 0, "shards", "N", "1", "deal the documents out to N token files", AT(shards), 1, MAX_SHARDS },
    { OPT_STR, 0, "shard", "I/N", NULL, "read every N-th text from the I-th on (I from 0): for job arrays", AT(shard), 0, 0 },
    { OPT_FLAG, 0, "eod", NULL, NULL, "end documents of a stream too with the end-of-document token", AT(eod), 0, 0 },
    { OPT_FLAG, 0, "specials", NULL, NULL, "names of special tokens in the text are tokens", AT(specials), 0, 0 },
    { OPT_FLAG, 0, "template", NULL, NULL, "put around each document what the vocabulary's template has", AT(template), 0, 0 },
    { OPT_FLAG, 0, "slow", NULL, NULL, "encode by the general way, without compiled splits", AT(slow), 0, 0 },
    { OPT_FLAG, 0, "check", NULL, NULL, "encode by both ways and compare; nothing is written", AT(check), 0, 0 },
    { OPT_STR, 0, "against", "PREFIX", NULL, "encode again and compare with these token files; nothing is written", AT(against), 0, 0 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace PREFIX, or write binary to a terminal", AT(force), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads, 0 for all; the output does not depend on it", AT(threads), 0, 4096 },
    OPT_END
};

struct job {
    const struct encode_opts *o;
    struct arena *arena;
    struct tok_vocab *v;
    struct corpus c;
    int shard, of;                      /* of 0: every text */
    const char *eod_token;
    const char **paths;
    int64_t *mtime_ns;
    _Bool keyed;                        /* some text is lines of JSON */
    _Bool to_file;
};

/* ---- options */

static int read_shard(struct job *j)
{
    char end;
    if (j->o->shard == NULL)
        return 0;
    if (j->o->shards > 1)
        return err_set(ERR_USAGE, "--shard takes one part of the texts, --shards deals all of them: one or the other");
    if (sscanf(j->o->shard, "%6d/%6d%c", &j->shard, &j->of, &end) != 2 || j->of < 1 || j->of > MAX_JOBS || j->shard < 0 || j->shard >= j->of)
        return err_set(ERR_USAGE, "--shard %s: expected I/N with I from 0 to N-1, such as 0/8", j->o->shard);
    return 0;
}

static int read_keys(struct job *j)
{
    const struct opt_list *l = &j->o->key;
    if (l->n > MAX_KEYS)
        return err_set(ERR_USAGE, "--key: at most %d keys", MAX_KEYS);
    for (int i = 0; i < l->n; i++) {
        if (l->n > 1 && (l->v[i][0] == '\0' || strchr(l->v[i], '/') != NULL))
            return err_set(ERR_USAGE, "--key %s: with several keys each becomes a part of a file's name", l->v[i]);
        for (int k = 0; k < i; k++)
            if (strcmp(l->v[i], l->v[k]) == 0)
                return err_set(ERR_USAGE, "--key %s is given twice", l->v[i]);
    }
    static const char *const text = "text";
    j->c.how.keys = l->n > 0 ? l->v : &text;
    j->c.how.n_keys = l->n > 0 ? l->n : 1;
    return 0;
}

static int read_how(struct job *j)
{
    tok_text_how_default(&j->c.how);
    j->c.how.docs = tokenize_docs(j->o->docs);
    TRY(tokenize_on(&j->c.how, &j->o->on));
    TRY(read_keys(j));
    return read_shard(j);
}

static enum text_docs docs_of(const struct job *j, const char *path)
{
    return j->c.how.docs != TEXT_AUTO ? j->c.how.docs : tok_text_docs_of(path);
}

/* ---- inputs */

/* A text that is missing is found before the first is read. */
static int look_at(struct job *j, int i)
{
    struct stat st;
    const char *path = j->paths[i];
    struct tokenfile_input *in = &j->c.input[i];
    in->path = (char *)(uintptr_t)path;
    j->mtime_ns[i] = -1;
    TRY(tokenize_look_at(path, &st));
    if (!S_ISREG(st.st_mode))
        return 0;
    in->bytes = (uint64_t)st.st_size;
    j->c.stored += in->bytes;
    j->mtime_ns[i] = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

static int find_inputs(struct job *j, char **argv, int argc)
{
    static char stdin_name[] = "-";
    static char *only_stdin[] = { stdin_name };
    int n = 0, n_stdin = 0, n_json = 0;
    if (argc == 0) {
        argv = only_stdin;
        argc = 1;
    }
    j->paths = arena_array(j->arena, (size_t)argc + 1, sizeof *j->paths);
    j->c.input = arena_array(j->arena, (size_t)argc + 1, sizeof *j->c.input);
    j->mtime_ns = arena_array(j->arena, (size_t)argc + 1, sizeof *j->mtime_ns);
    for (int i = j->shard; i < argc; i += j->of > 0 ? j->of : 1) {
        j->paths[n] = argv[i];
        TRY(look_at(j, n));
        n_stdin += strcmp(argv[i], "-") == 0;
        n_json += docs_of(j, argv[i]) == TEXT_JSONL;
        n++;
    }
    j->c.paths = j->paths;
    j->c.n_paths = n;
    if (n_stdin > 1)
        return err_set(ERR_USAGE, "standard input is named twice");
    j->keyed = n_json > 0;
    if (j->o->key.n > 0 && !j->keyed)
        return err_set(ERR_USAGE, "--key is for lines of JSON; no text is named like them, and --docs is not jsonl");
    if (j->o->key.n > 1 && n_json < n)
        return err_set(ERR_USAGE, "several keys, but not every text is lines of JSON");
    return 0;
}

/* ---- a token file */

/* What documents were, resolved, and the options that change the ids. */
static void describe(struct job *j, struct tokenfile_info *i)
{
    const struct encode_opts *o = j->o;
    struct arena *a = j->arena;
    char on[256];
    char *how = arena_printf(a, "%s%s%s%s", tok_text_how_text(&j->c.how, on), o->specials ? " --specials" : "", o->template ? " --template" : "",
                             o->load.scheme != NULL ? arena_printf(a, " --scheme %s", o->load.scheme) : "");
    for (int k = 0; k < o->key.n; k++)
        how = arena_printf(a, "%s --key %s", how, o->key.v[k]);
    if (o->shards > 1)
        how = arena_printf(a, "%s --shards %lld", how, (long long)o->shards);
    if (j->of > 0)
        how = arena_printf(a, "%s --shard %d/%d", how, j->shard, j->of);
    i->how = how[0] == ' ' ? how + 1 : how;
    int n_json = 0;
    for (int k = 0; k < j->c.n_paths; k++)
        n_json += docs_of(j, j->paths[k]) == TEXT_JSONL;
    i->docs = arena_strdup(a, j->c.how.docs != TEXT_AUTO ? o->docs : n_json == 0 ? "file" : n_json == j->c.n_paths ? "jsonl" : "auto");
}

static const char *counted(const struct job *j)
{
    return tokenize_counted(j->arena, &j->c.how, j->c.count);
}

static void report(const struct job *j, const struct tokenfile_info *i, int n_files)
{
    char docs[32], tokens[32], text[32], took[32], rate[32];
    double s = j->c.seconds > 1e-6 ? j->c.seconds : 1e-6;
    const char *files = n_files > 1 ? arena_printf(j->arena, "%d token files, ", n_files) : "";
    log_info("%s: %s%s document%s, %s token%s of %s, %.2f bytes a token, %s, %s/s%s", j->o->output, files, units_count(docs, i->documents),
             i->documents == 1 ? "" : "s", units_count(tokens, i->tokens), i->tokens == 1 ? "" : "s", units_bytes(text, (double)i->text_bytes),
             i->tokens > 0 ? (double)i->text_bytes / (double)i->tokens : 0.0, units_seconds(took, j->c.seconds),
             units_bytes(rate, (double)j->c.text_bytes / s), counted(j));
    if (i->documents == 0)
        log_warn("%s: the texts have no documents", j->o->output);
}

static int finish(struct job *j, const struct outputs_plan *p)
{
    struct tokenfile_counter more[TEXT_N_KINDS];
    struct tokenfile_info total;
    int n = 0, n_keys = p->n_keys;
    int64_t *invalid = arena_array(j->arena, (size_t)n_keys, sizeof *invalid);
    /* What was replaced or left out is counted for all keys together. */
    for (int k = 0; k < n_keys; k++)
        invalid[k] = j->c.invalid[k] + j->c.count[TEXT_UTF8];
    for (int k = 0; k < TEXT_N_KINDS; k++)
        if (k != TEXT_UTF8 && k != TEXT_EMPTY)
            more[n++] = (struct tokenfile_counter){ (char *)(uintptr_t)tok_text_kind_name((enum text_kind)k), j->c.count[k] };
    if (j->c.how.on[TEXT_EMPTY] == TEXT_SKIP)
        more[n++] = (struct tokenfile_counter){ (char *)(uintptr_t)"empty_left_out", j->c.count[TEXT_EMPTY] };
    TRY(outputs_finish(j->c.outputs, invalid, more, n, &total));
    report(j, &total, outputs_n_files(p));
    return 0;
}

/* A template gives a document without text tokens too. */
static int tokens_of_nothing(const struct job *j, int64_t *n)
{
    const struct tok_span nothing = { (const uint8_t *)"", 0 };
    const int32_t *ids;
    const int64_t *ends;
    uint64_t invalid = 0;
    TRY(tok_encode(j->c.e, &nothing, 1, &ids, &ends, &invalid));
    *n = ends[0] + 1;
    return 0;
}

static struct outputs_plan plan_of(const struct job *j, const char *prefix)
{
    return (struct outputs_plan){ .prefix = prefix, .keys = j->c.how.keys, .n_keys = j->c.how.n_keys, .n_shards = (int)j->o->shards,
        .shard = j->shard, .of = j->of, .mtime_ns = j->mtime_ns, .vocab_path = j->o->tokenizer, .keyed = j->keyed, .force = j->o->force,
        .n_counts = j->c.how.n_keys + TEXT_N_KINDS, .info.vocab_size = j->c.vocab_size };
}

static int encode_against(struct job *j)
{
    struct outputs_plan p = plan_of(j, j->o->against);
    char docs[32], tokens[32];
    int64_t n_docs, n_tokens;
    TRY(against_open(&p, &j->c.against));
    int rc = corpus_run(&j->c);
    if (rc == 0)
        rc = against_end(j->c.against, &n_docs, &n_tokens);
    if (rc == 0)
        log_info("%s: the same ids: %s document%s, %s token%s", p.prefix, units_count(docs, n_docs), n_docs == 1 ? "" : "s", units_count(tokens, n_tokens),
                 n_tokens == 1 ? "" : "s");
    against_close(j->c.against);
    return rc;
}

static int encode_to_file(struct job *j)
{
    struct outputs_plan p = plan_of(j, j->o->output);
    enum outputs_begun begun;
    p.info = (struct tokenfile_info){ .tool = arena_printf(j->arena, "moe-tokenize %s", moe_version), .tokenizer = tok_vocab_hash(j->v),
        .vocab_size = tok_vocab_size(j->v), .eod_id = j->c.eod, .eod_token = arena_strdup(j->arena, j->eod_token),
        .inputs = j->c.input, .n_inputs = j->c.n_paths };
    p.info.argv = opt_argv(&p.info.n_argv);
    TRY(tokens_of_nothing(j, &p.info.empty_tokens));
    describe(j, &p.info);
    TRY(outputs_open(&p, &j->c.outputs, &begun));
    int rc = 0;
    if (begun == OUTPUTS_UP_TO_DATE)
        log_info("%s: up to date", j->o->output);
    else if (begun == OUTPUTS_DONE)
        log_info("%s: an earlier run was all but done; its files are in their place now", j->o->output);
    else {
        if (begun == OUTPUTS_CONTINUED)
            log_info("%s: continuing after %d of %d inputs", j->o->output, outputs_n_done(j->c.outputs), j->c.n_paths);
        if ((rc = corpus_run(&j->c)) == 0)
            rc = finish(j, &p);
    }
    outputs_close(j->c.outputs);
    return rc;
}

static int check_options(const struct encode_opts *o, _Bool to_file)
{
    if (o->output != NULL)
        TRY(tokenize_check_prefix(o->output));
    if (o->against != NULL && (o->output != NULL || o->check))
        return err_set(ERR_USAGE, "--against writes nothing: neither --output nor --check go with it");
    if ((to_file || o->against != NULL) && o->eod)
        return err_set(ERR_USAGE, "--eod is for streams; a token file always has the end-of-document token");
    if (o->check && (o->output != NULL || o->slow))
        return err_set(ERR_USAGE, "--check writes nothing: neither --output nor --slow go with it");
    if (!to_file && o->against == NULL && (o->shards > 1 || (o->key.n > 1 && !o->check)))
        return err_set(ERR_USAGE, "a stream holds one set of documents: %s needs --output", o->shards > 1 ? "--shards" : "more than one --key");
    return 0;
}

static int make_encoders(struct job *j)
{
    const struct encode_opts *o = j->o;
    struct tok_how how = { 1, o->specials, o->template, o->slow };
    j->c.threads = tokenize_threads(o->threads);
    TRY(tok_encoder_new(j->v, &how, &j->c.e));
    how.slow = 1;
    return o->check ? tok_encoder_new(j->v, &how, &j->c.other) : 0;
}

static void talk(const struct job *j)
{
    char bytes[32];
    int64_t invalid = 0;
    if (j->o->check)
        log_info("both ways give the same ids for %s%s", units_bytes(bytes, (double)j->c.text_bytes),
                 tok_encoder_is_fast(j->c.e) ? "" : "; this vocabulary has only the slow one");
    else if (!j->to_file && counted(j)[0] != '\0')
        log_info("counted in the text: %s", counted(j) + 2);
    for (int k = 0; k < j->c.how.n_keys; k++)
        invalid += j->c.invalid[k];
    if (invalid > 0)
        log_warn("bytes that are no valid UTF-8: %lld; they are kept, as tokens of bytes", (long long)invalid);
}

static int encode_run(void *opts, int argc, char **argv)
{
    const struct encode_opts *o = opts;
    _Bool to_file = o->output != NULL && strcmp(o->output, "-") != 0;
    int rc;
    TRY(check_options(o, to_file));
    if (!to_file && !o->check && o->against == NULL)
        TRY(out_binary(o->force));
    struct job j = { .o = o, .arena = arena_new(), .to_file = to_file };
    TRY_OUT(rc, read_how(&j));
    j.c.invalid = arena_array(j.arena, (size_t)j.c.how.n_keys, sizeof *j.c.invalid);
    TRY_OUT(rc, tokenize_vocab(o->tokenizer, &o->load, &j.v));
    j.c.vocab_size = tok_vocab_size(j.v);
    j.c.eod = -1;
    if (to_file || o->eod || o->against != NULL)
        TRY_OUT(rc, tokenize_eod(j.v, &j.c.eod, &j.eod_token));
    TRY_OUT(rc, find_inputs(&j, argv, argc));
    TRY_OUT(rc, make_encoders(&j));
    TRY_OUT(rc, to_file ? encode_to_file(&j) : o->against != NULL ? encode_against(&j) : corpus_run(&j.c));
    talk(&j);
out:
    tok_encoder_free(j.c.e);
    tok_encoder_free(j.c.other);
    tok_vocab_free(j.v);
    arena_free(j.arena);
    return rc;
}

const struct opt_cmd tokenize_encode_cmd = {
    "encode", "text to token files, or to a token stream on stdout", "[options] -t FILE [-o PREFIX] [TEXT...]",
    "moe-tokenize encode -t tok.json -o data/train text/*.txt\n"
    "moe-tokenize encode -t tok.json -o data/web --shards 8 web/*.jsonl.zst\n"
    "echo 'Es war einmal' | moe-tokenize encode -t tok.json | moe-tokenize decode -t tok.json\n",
    encode_table, sizeof(struct encode_opts), 0, -1, encode_run
};
