/* tokenize_info.c -- moe-tokenize info: what a vocabulary or token file holds.
 *
 * Reads indexes and sidecars, and .bin only where it is small: whether every
 * byte of a large one is what was written is a question for verify. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/out.h"
#include "base/units.h"
#include "data/megatron.h"
#include "data/tokenfile.h"
#include "tok/encode.h"
#include "tok/vocab_convert.h"
#include "tokenize.h"

enum { SPECIALS_SHOWN = 8, BUCKETS = 65536, N_QUANTILES = 5, N_POWERS = 48 };

struct info_opts {
    struct opt_common common;
    struct tok_load load;
    _Bool json;
};

static const struct opt info_table[] = {
    OPT_COMMON,
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", offsetof(struct info_opts, load.scheme), 0, 0 },
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", offsetof(struct info_opts, load.specials), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a line", offsetof(struct info_opts, json), 0, 0 },
    OPT_END
};

/* One fact in the form asked for. */
struct facts { struct json_out *j; };

static void fact_str(struct facts *f, const char *key, const char *title, const char *v)
{
    if (f->j != NULL)
        json_put_str(f->j, key, v);
    else
        out_printf("  %-16s %s\n", title, v);
}

static void fact_int(struct facts *f, const char *key, const char *title, int64_t v)
{
    char buf[32];
    if (f->j != NULL)
        json_put_int(f->j, key, v);
    else
        out_printf("  %-16s %s\n", title, units_count(buf, v));
}

static void fact_num(struct facts *f, const char *key, const char *title, double v)
{
    if (f->j != NULL)
        json_put_num(f->j, key, v);
    else
        out_printf("  %-16s %.2f\n", title, v);
}

static void facts_begin(struct facts *f, _Bool json, const char *schema, const char *path, const char *what)
{
    f->j = json ? json_new() : NULL;
    if (json) {
        json_obj(f->j, NULL);
        json_put_str(f->j, "schema", schema);
        json_put_str(f->j, "path", path);
    } else {
        out_printf("%s: %s\n", path, what);
    }
}

static int facts_end(struct facts *f)
{
    size_t n;
    if (f->j == NULL)
        return 0;
    json_obj_end(f->j);
    const char *text = json_text(f->j, &n);
    int rc = out_write(text, n);
    json_free(f->j);
    TRY(rc);
    return out_write("\n", 1);
}

/* ---- lengths of documents */

/* Exact order statistics in two walks over the index and one table of counts
 * for each: the upper bits of the lengths, then the lower ones where a rank fell. */
struct lengths {
    int64_t n, shortest, longest;
    int64_t quantile[N_QUANTILES];              /* 10, 50, 90, 99, 99.9 % */
    int64_t docs[N_POWERS], tokens[N_POWERS];   /* of lengths from 2^i to below 2^(i+1); documents of length 0 come with 1 */
};
static const double share[N_QUANTILES] = { 0.1, 0.5, 0.9, 0.99, 0.999 };

static int64_t length_of(const struct megatron *m, int64_t d)
{
    return megatron_doc_first(m, d + 1) - megatron_doc_first(m, d);
}

static int64_t bucket_of(int64_t n)
{
    return n / BUCKETS < BUCKETS ? n / BUCKETS : BUCKETS - 1;
}

/* The bucket that holds the rank-th, which becomes the rank inside of it. */
static int64_t find(const int64_t *count, int64_t *rank)
{
    int64_t b = 0;
    for (; b < BUCKETS - 1 && count[b] < *rank; b++)
        *rank -= count[b];
    return b;
}

static void measure(const struct megatron *m, struct lengths *l)
{
    int64_t *count = arena_must(calloc((size_t)BUCKETS * (1 + N_QUANTILES), sizeof *count)), *low = count + BUCKETS;
    int64_t rank[N_QUANTILES], top[N_QUANTILES];
    *l = (struct lengths){ .n = m->n_docs };
    for (int64_t d = 0; d < m->n_docs; d++) {
        int64_t n = length_of(m, d);
        int power = n < 2 ? 0 : 63 - __builtin_clzll((unsigned long long)n);
        power = power < N_POWERS ? power : N_POWERS - 1;
        l->shortest = d == 0 || n < l->shortest ? n : l->shortest;
        l->longest = n > l->longest ? n : l->longest;
        l->docs[power]++;
        l->tokens[power] += n;
        count[bucket_of(n)]++;
        megatron_walk(m, d);
    }
    for (int q = 0; q < N_QUANTILES; q++) {
        double r = share[q] * (double)l->n;
        rank[q] = (int64_t)r + ((double)(int64_t)r < r);
        rank[q] = rank[q] < 1 ? 1 : rank[q];
        top[q] = find(count, &rank[q]);
    }
    for (int64_t d = 0; d < m->n_docs; d++) {
        int64_t n = length_of(m, d), b = bucket_of(n);
        for (int q = 0; q < N_QUANTILES; q++)
            low[q * BUCKETS + n % BUCKETS] += b == top[q];
        megatron_walk(m, d);
    }
    for (int q = 0; q < N_QUANTILES && l->n > 0; q++)
        l->quantile[q] = top[q] * BUCKETS + find(low + q * BUCKETS, &rank[q]);
    free(count);
}

static void fact_lengths(struct facts *f, const struct megatron *m, _Bool histogram)
{
    static const char *const key[] = { "p10", "median", "p90", "p99", "p999" };
    struct lengths l;
    char a[32], b[32], c[32];
    measure(m, &l);
    if (f->j == NULL) {
        out_printf("  %-16s %s to %s tokens", "lengths", units_count(a, l.shortest), units_count(b, l.longest));
        for (int q = 0; q < N_QUANTILES; q++)
            out_printf("%s%g %% up to %s", q == 0 ? "; " : ", ", 100 * share[q], units_count(a, l.quantile[q]));
        out_printf("\n");
        for (int i = 0; i < N_POWERS && histogram; i++)
            if (l.docs[i] > 0)
                out_printf("  %-16s %11s or fewer: %13s document%s %15s token%s\n", "", units_count(a, (2ll << i) - 1), units_count(b, l.docs[i]),
                           l.docs[i] == 1 ? ", " : "s,", units_count(c, l.tokens[i]), l.tokens[i] == 1 ? "" : "s");
        return;
    }
    json_put_int(f->j, "shortest", l.shortest);
    for (int q = 0; q < N_QUANTILES; q++)
        json_put_int(f->j, key[q], l.quantile[q]);
    json_put_int(f->j, "longest", l.longest);
    json_arr(f->j, "lengths");
    for (int i = 0; i < N_POWERS; i++) {
        if (l.docs[i] == 0)
            continue;
        json_obj(f->j, NULL);
        json_put_int(f->j, "below", 2ll << i);
        json_put_int(f->j, "documents", l.docs[i]);
        json_put_int(f->j, "tokens", l.tokens[i]);
        json_obj_end(f->j);
    }
    json_arr_end(f->j);
}

/* ---- token files */

/* "bad_json" as people write it. */
static const char *spaced(const char *s, char *buf, size_t size)
{
    snprintf(buf, size, "%s", s);
    for (char *p = buf; *p != '\0'; p++)
        *p = *p == '_' ? ' ' : *p;
    return buf;
}

static void fact_counters(struct facts *f, const struct tokenfile_info *i)
{
    char buf[32], name[32];
    if (f->j != NULL)
        json_obj(f->j, "counters");
    for (int k = 0; k < i->n_more; k++)
        if (f->j != NULL)
            json_put_int(f->j, i->more[k].name, i->more[k].n);
        else if (i->more[k].n > 0)
            out_printf("  %-16s %s\n", spaced(i->more[k].name, name, sizeof name), units_count(buf, i->more[k].n));
    if (f->j != NULL)
        json_obj_end(f->j);
}

/* The texts and parts, for people who ask for more; programs read the sidecar. */
static void fact_sources(struct facts *f, const struct tokenfile_info *i)
{
    char buf[32];
    if (f->j != NULL)
        return;
    for (int k = 0; k < i->n_parts; k++)
        out_printf("  %-16s %s, %s documents\n", k == 0 ? "merged from" : "", i->parts[k].path, units_count(buf, i->parts[k].documents));
    for (int k = 0; k < i->n_inputs; k++)
        out_printf("  %-16s %s, %s\n", k == 0 ? "inputs" : "", i->inputs[k].path, units_bytes(buf, (double)i->inputs[k].bytes));
    out_printf("  %-16s", "command");
    for (int k = 0; k < i->n_argv; k++)
        out_printf(" %s", i->argv[k]);
    out_printf("\n");
}

static int info_tokens(const char *prefix, const struct info_opts *o)
{
    struct tokenfile *t;
    struct facts f;
    uint64_t input_bytes = 0;
    TRY(tokenfile_open(prefix, &t));
    const struct tokenfile_info *i = tokenfile_about(t);
    _Bool large = tokenfile_megatron(t)->bytes > TOKENFILE_VERIFY_MAX;
    for (int k = 0; k < i->n_inputs; k++)
        input_bytes += i->inputs[k].bytes;
    double tokens = i->tokens > 0 ? (double)i->tokens : 1, docs = i->documents > 0 ? (double)i->documents : 1;
    facts_begin(&f, o->json, "moe.tokens-info/1", prefix, large ? "token file, sizes and index agree with its sidecar; verify compares all checksums"
                                                                : "token file, sizes and checksums agree with its sidecar");
    if (o->json)
        json_put_bool(f.j, "checksums", !large);
    fact_int(&f, "documents", "documents", i->documents);
    fact_int(&f, "tokens", "tokens", i->tokens);
    fact_int(&f, "text_bytes", "bytes of text", i->text_bytes);
    fact_num(&f, "bytes_per_token", "bytes a token", (double)i->text_bytes / tokens);
    fact_num(&f, "tokens_per_document", "tokens a doc", (double)i->tokens / docs);
    fact_lengths(&f, tokenfile_megatron(t), o->common.verbose > 0);
    fact_int(&f, "empty", "empty docs", i->empty);
    /* Of shards the first has the counts of all texts; the 0 of another would not be true of it. */
    if (!o->json && i->n_more == 0 && i->n_parts == 0 && i->how != NULL && strstr(i->how, "--shards ") != NULL)
        out_printf("  %-16s told by the first shard\n", "invalid bytes");
    else
        fact_int(&f, "invalid_utf8", "invalid bytes", i->invalid_utf8);
    fact_counters(&f, i);
    fact_str(&f, "docs", "document is a", i->docs);
    if (o->json || i->key != NULL)
        fact_str(&f, "key", "under the key", i->key);
    if (o->json || (i->how != NULL && i->how[0] != '\0'))
        fact_str(&f, "how", "options", i->how);
    fact_str(&f, "dtype", "type", i->dtype_bytes == 2 ? "u16" : "i32");
    fact_int(&f, "vocab_size", "vocabulary", i->vocab_size);
    if (o->json) {
        json_put_int(f.j, "eod", i->eod_id);
        json_put_str(f.j, "eod_token", i->eod_token);
    } else {
        out_printf("  %-16s %d  %s\n", "end of document", (int)i->eod_id, i->eod_token);
    }
    fact_str(&f, "tokenizer", "tokenizer", i->tokenizer.hex);
    struct hash h = tokenfile_hash(t);
    fact_str(&f, "hash", "hash", h.hex);
    fact_int(&f, "inputs", "input files", i->n_inputs);
    fact_int(&f, "input_bytes", "input bytes", (int64_t)input_bytes);
    if (o->json || i->n_parts > 0)
        fact_int(&f, "parts", "merged from", i->n_parts);
    fact_str(&f, "tool", "made by", i->tool);
    if (o->common.verbose > 0)
        fact_sources(&f, i);
    tokenfile_close(t);
    return facts_end(&f);
}

/* A pair without a sidecar says less, and nobody vouches for it. */
static int info_pair(const char *prefix, const struct info_opts *o)
{
    struct megatron_pair *p;
    struct facts f;
    TRY(megatron_open(prefix, &p));
    const struct megatron *m = megatron_of(p);
    int rc = megatron_check(m, NULL);
    if (rc < 0) {
        megatron_close(p);
        return rc;
    }
    int64_t tokens = (int64_t)(m->bytes / (uint64_t)m->width);
    facts_begin(&f, o->json, "moe.pair-info/1", prefix, "Megatron's pair without a sidecar; its structure is sound");
    fact_int(&f, "documents", "documents", m->n_docs);
    fact_int(&f, "sequences", "sequences", m->n_seqs);
    fact_int(&f, "tokens", "tokens", tokens);
    fact_num(&f, "tokens_per_document", "tokens a doc", m->n_docs > 0 ? (double)tokens / (double)m->n_docs : 0);
    fact_lengths(&f, m, o->common.verbose > 0);
    fact_str(&f, "dtype", "type", megatron_dtype(m->code));
    if (o->json)
        json_put_bool(f.j, "modes", m->mode != NULL);
    else if (m->mode != NULL)
        out_printf("  %-16s one a sequence\n", "modes");
    megatron_close(p);
    return facts_end(&f);
}

/* ---- vocabularies */

static void fact_specials(struct facts *f, const struct tok_vocab *v, _Bool all)
{
    int n = tok_vocab_n_specials(v), shown = f->j != NULL || all || n <= SPECIALS_SHOWN + 1 ? n : SPECIALS_SHOWN;
    if (f->j != NULL)
        json_arr(f->j, "special");
    for (int i = 0; i < shown; i++) {
        const char *content;
        int32_t id = tok_vocab_special(v, i, &content);
        if (f->j != NULL) {
            json_obj(f->j, NULL);
            json_put_int(f->j, "id", id);
            json_put_str(f->j, "token", content);
            json_obj_end(f->j);
        } else {
            out_printf("  %-16s %d  %s%s\n", i == 0 ? "special tokens" : "", (int)id, content, i == 0 ? "  (ends documents)" : "");
        }
    }
    if (f->j != NULL)
        json_arr_end(f->j);
    else if (shown < n)
        out_printf("  %-16s and %d more; -v shows them\n", "", n - shown);
}

static int fact_vocab(struct facts *f, const struct tok_vocab *v, _Bool all)
{
    static const char *const semantics[] = { "pairs of a list", "what is a token, by rank", "what is a token, by score" };
    static const char *const word[] = { "list", "ranks", "scores" };
    struct tok_encoder *e;
    struct tok_check c;
    size_t n, longest = 0;
    int64_t bytes = 0;
    struct hash h = tok_vocab_hash(v);
    TRY(tok_vocab_check(v, &c));
    TRY(tok_encoder_new(v, NULL, &e));
    _Bool fast = tok_encoder_is_fast(e), json = f->j != NULL;
    tok_encoder_free(e);
    for (int32_t i = 0; i < tok_vocab_size(v); i++) {
        if (tok_vocab_bytes(v, i, &n) == NULL || tok_vocab_is_special(v, i))
            continue;
        longest = n > longest ? n : longest;
        bytes += (int64_t)n;
    }
    int64_t text = tok_vocab_size(v) - tok_vocab_n_specials(v) - c.holes;
    fact_int(f, "vocab_size", "tokens", tok_vocab_size(v));
    fact_int(f, "merges", "merges", tok_vocab_n_merges(v));
    fact_int(f, "longest", "longest, bytes", (int64_t)longest);
    fact_num(f, "mean_bytes", "mean, bytes", text > 0 ? (double)bytes / (double)text : 0);
    fact_str(f, "format", "format", tok_vocab_format(v));
    fact_str(f, "merging", "merged is", json ? word[tok_vocab_semantics(v)] : semantics[tok_vocab_semantics(v)]);
    fact_int(f, "unused", "ids unused", c.holes);
    fact_int(f, "unreachable", "unreachable", c.unreachable);
    fact_str(f, "dtype", "token files are", tokenfile_dtype_bytes(tok_vocab_size(v)) == 2 ? "u16" : "i32");
    if (json) {
        json_put_bool(f->j, "compiled", fast);
        json_put_bool(f->j, "keeps_text", tok_vocab_keeps_text(v));
    } else {
        out_printf("  %-16s %s\n", "text is", tok_vocab_keeps_text(v) ? "kept byte for byte" : "changed: what decoding gives may differ");
        out_printf("  %-16s %s\n", "encoded", fast ? "by a compiled split" : "by the general way, which is slower");
    }
    fact_str(f, "hash", "hash", h.hex);
    fact_specials(f, v, all);
    return 0;
}

static int info_vocab(const char *path, const struct info_opts *o)
{
    struct tok_vocab *v;
    struct facts f;
    TRY(tok_vocab_load_as(path, &o->load, &v));
    facts_begin(&f, o->json, "moe.vocab-info/1", path, "BPE vocabulary");
    int rc = fact_vocab(&f, v, o->common.verbose > 0);
    tok_vocab_free(v);
    return rc < 0 ? rc : facts_end(&f);
}

static int info_one(struct arena *a, const char *name, const struct info_opts *o)
{
    _Bool bin = fs_exists(arena_printf(a, "%s.bin", name)), side = tokenize_has_sidecar(name);
    if (side)
        return info_tokens(name, o);
    if (bin && fs_exists(arena_printf(a, "%s.idx", name)))
        return info_pair(name, o);
    if (bin)
        return info_tokens(name, o);
    if (!fs_exists(name) && fs_exists(arena_printf(a, "%s.part/journal.jsonl", name)))
        return err_set(ERR_NOINPUT, "%s: not finished: %s.part is an encode under way, or one that the same command continues", name, name);
    return info_vocab(name, o);
}

static int info_run(void *opts, int argc, char **argv)
{
    const struct info_opts *o = opts;
    struct arena *a = arena_new();
    int rc = 0;
    for (int i = 0; i < argc && rc == 0; i++)
        rc = info_one(a, argv[i], o);
    arena_free(a);
    return rc;
}

const struct opt_cmd tokenize_info_cmd = {
    "info", "what a vocabulary or a token file holds, and whether it is whole", "[options] FILE|PREFIX...",
    "moe-tokenize info tok.json data/train\n"
    "moe-tokenize info --json data/train\n",
    info_table, sizeof(struct info_opts), 1, -1, info_run
};
