/* tokenize_verify.c -- moe-tokenize verify: the answer is yes (0) or no (1).
 *
 * Damage is the answer here, not an accident: every problem is one line on
 * stderr and the status is 1.  Refuses to call a pair whole that nothing
 * vouches for, unless its structure is all that is asked. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/problems.h"
#include "base/table.h"
#include "base/units.h"
#include "data/tokenfile_check.h"
#include "tokenize.h"


struct verify_opts {
    struct opt_common common;
    const char *tokenizer;
    struct tok_load load;
    _Bool structure, json, tsv;
    int64_t threads;
};

#define AT(f) offsetof(struct verify_opts, f)
static const struct opt verify_table[] = {
    OPT_COMMON,
    { OPT_STR, 't', "tokenizer", "FILE", NULL, "the vocabulary: its hash, its ids and the bytes of text must agree too", AT(tokenizer), 0, 0 },
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", AT(load.scheme), 0, 0 },
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", AT(load.specials), 0, 0 },
    { OPT_FLAG, 's', "structure", NULL, NULL, "no checksums: sizes and the index, and with -t the ids", AT(structure), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object per token file", AT(json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated columns", AT(tsv), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads, 0 for all; the output does not depend on it", AT(threads), 0, 4096 },
    OPT_END
};

static const struct table_col cols[] = {
    { "prefix", "token file", 's', 0 },
    { "ok", "ok", '?', 0 },
    { "checksums", "checksums", '?', 0 },
    { "problems", "problems", 'i', 0 },
    { "documents", "documents", 'i', 0 },
    { "sequences", "sequences", 'i', 0 },
    { "tokens", "tokens", 'i', 0 },
    { "text_bytes", "text", 'b', 0 },
    { "without_eod", "without EOD", 'i', 0 },
    { "eod_inside", "EOD inside", 'i', 0 },
    { "bytes", "bytes", 'b', 0 },
    { "seconds", "seconds", 'f', 3 },
};

static void count_or_none(struct table *t, _Bool known, int64_t v)
{
    if (known)
        table_int(t, v);
    else
        table_none(t);
}

static void row(struct table *t, const char *prefix, const struct tokenfile_check *c, _Bool ok, double seconds)
{
    table_str(t, prefix);
    table_int(t, ok);
    table_int(t, c->has_sidecar && !c->structure_only);
    table_int(t, c->n_problems);
    table_int(t, c->documents);
    table_int(t, c->sequences);
    table_int(t, c->tokens);
    count_or_none(t, c->text_bytes >= 0, c->text_bytes);
    count_or_none(t, c->ids_read && c->has_eod, c->no_eod);
    count_or_none(t, c->ids_read && c->has_eod, c->eod_inside);
    table_int(t, (int64_t)c->bytes);
    table_num(t, seconds);
}

static void sentence(const char *prefix, const struct tokenfile_check *c, double seconds)
{
    char bytes[32], rate[32], docs[32], tokens[32];
    _Bool sums = c->has_sidecar && !c->structure_only;
    out_printf("%s: %s: %s document%s, %s token%s", prefix, sums ? "ok" : "structure is sound",
               units_count(docs, c->documents), c->documents == 1 ? "" : "s", units_count(tokens, c->tokens), c->tokens == 1 ? "" : "s");
    if (c->ids_read && c->has_eod && c->no_eod > 0)
        out_printf(", %s of the documents without the end-of-document token", units_count(docs, c->no_eod));
    if (c->ids_read && c->has_eod && c->eod_inside > 0)
        out_printf(", %s end-of-document token%s inside documents", units_count(docs, c->eod_inside), c->eod_inside == 1 ? "" : "s");
    if (!sums)
        out_printf("; no checksums were compared\n");
    else
        out_printf(", %s checked in %.2f s (%s/s)\n", units_bytes(bytes, (double)c->bytes), seconds,
                   units_bytes(rate, (double)c->bytes / (seconds > 1e-6 ? seconds : 1e-6)));
}

static int one(const struct verify_opts *o, const struct tokenfile_check *with, const char *prefix, struct table *table)
{
    struct problems told = { 0 };
    struct tokenfile_check c = *with;
    double start = clock_s();
    c.problem = problems_add;
    c.progress = problems_progress;
    c.ctx = &told;
    int rc = tokenfile_check(prefix, &c);
    problems_progress_end(&told);
    TRY(rc);
    _Bool ok = c.n_problems == 0 && (c.has_sidecar || o->structure);
    if (table != NULL)
        row(table, prefix, &c, ok, clock_s() - start);
    else if (ok)
        sentence(prefix, &c, clock_s() - start);
    if (c.n_problems == 1)
        return err_set(ERR_NO, "%s", told.first);
    if (c.n_problems > 1)
        return err_set(ERR_NO, "%s: damaged: %lld problems", prefix, (long long)c.n_problems);
    if (ok)
        return 0;
    return err_set(ERR_NO, "%s: structure is sound, but no checksums (no %s.json); --structure accepts that", prefix, prefix);
}

static int with_vocab(const struct verify_opts *o, struct tok_vocab **v, struct tokenfile_check *c)
{
    const char *name;
    c->eod_id = -1;
    if (o->tokenizer == NULL)
        return 0;
    TRY(tok_vocab_load_as(o->tokenizer, &o->load, v));
    c->tokenizer = tok_vocab_hash(*v);
    c->vocab_size = tok_vocab_size(*v);
    c->byte_len = tok_vocab_text_bytes(*v);
    c->keeps_text = tok_vocab_keeps_text(*v);
    if (tok_vocab_n_specials(*v) > 0)
        c->eod_id = tok_vocab_special(*v, 0, &name);
    return 0;
}

static int verify_run(void *opts, int argc, char **argv)
{
    const struct verify_opts *o = opts;
    struct tok_vocab *v = NULL;
    struct tokenfile_check with = { .structure_only = o->structure, .threads = (int)o->threads };
    struct err_state last = { 0 };
    struct table *table = NULL;
    int worst = 0;
    if (o->json && o->tsv)
        return err_set(ERR_USAGE, "--json and --tsv exclude each other");
    TRY(with_vocab(o, &v, &with));
    if (o->json || o->tsv)
        table = table_begin(o->json ? TABLE_JSON : TABLE_TSV, "moe.tokens-verify/1", cols, sizeof cols / sizeof *cols);
    for (int i = 0; i < argc; i++) {
        if (one(o, &with, argv[i], table) >= 0)
            continue;
        if (worst != 0)
            log_error("%s", last.msg);
        err_take(&last);        /* main prints the last one */
        if (worst == 0 || worst == ERR_NO)
            worst = last.code;  /* what kept us from an answer outweighs the answer no */
    }
    tok_vocab_free(v);
    if (table != NULL)
        TRY(table_end(table));
    return worst != 0 ? err_set(worst, "%s", last.msg) : 0;
}

const struct opt_cmd tokenize_verify_cmd = {
    "verify", "check every byte and every id of token files", "[-s] [-t FILE] [--json | --tsv] PREFIX...",
    "moe-tokenize verify data/train\n"
    "moe-tokenize verify -t tok.json data/train data/valid\n"
    "moe-tokenize verify --structure megatron/train\n",
    verify_table, sizeof(struct verify_opts), 1, -1, verify_run
};
