/* tokenize_info.c -- moe-tokenize info: what a vocabulary or token file holds. */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/out.h"
#include "base/units.h"
#include "data/tokenfile.h"
#include "tokenize.h"

struct info_opts {
    struct opt_common common;
    _Bool json;
};

static const struct opt info_table[] = {
    OPT_COMMON,
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

static int info_tokens(const char *prefix, _Bool json)
{
    struct tokenfile *t;
    struct facts f;
    int64_t longest = 0;
    int rc;
    uint64_t input_bytes = 0;
    TRY(tokenfile_open(prefix, &t));
    const struct tokenfile_info *i = tokenfile_about(t);
    if (i->tokens * i->dtype_bytes > (int64_t)TOKENFILE_VERIFY_MAX && (rc = tokenfile_verify(t)) < 0) {
        tokenfile_close(t);
        return rc;
    }
    for (int64_t d = 0; d < i->documents; d++) {
        int64_t n = tokenfile_doc_first(t, d + 1) - tokenfile_doc_first(t, d);
        longest = n > longest ? n : longest;
    }
    for (int k = 0; k < i->n_inputs; k++)
        input_bytes += i->inputs[k].bytes;
    double tokens = i->tokens > 0 ? (double)i->tokens : 1, docs = i->documents > 0 ? (double)i->documents : 1;
    facts_begin(&f, json, "moe.tokens-info/1", prefix, "token file, sizes and checksums agree with its sidecar");
    fact_int(&f, "documents", "documents", i->documents);
    fact_int(&f, "tokens", "tokens", i->tokens);
    fact_int(&f, "text_bytes", "bytes of text", i->text_bytes);
    fact_num(&f, "bytes_per_token", "bytes a token", (double)i->text_bytes / tokens);
    fact_num(&f, "tokens_per_document", "tokens a doc", (double)i->tokens / docs);
    fact_int(&f, "longest", "longest doc", longest);
    fact_int(&f, "empty", "empty docs", i->empty);
    fact_int(&f, "invalid_utf8", "invalid bytes", i->invalid_utf8);
    fact_str(&f, "docs", "document is a", i->docs);
    fact_str(&f, "dtype", "type", i->dtype_bytes == 2 ? "u16" : "i32");
    fact_int(&f, "vocab_size", "vocabulary", i->vocab_size);
    fact_int(&f, "eod", "end of document", i->eod_id);
    fact_str(&f, "tokenizer", "tokenizer", i->tokenizer.hex);
    struct hash h = tokenfile_hash(t);
    fact_str(&f, "hash", "hash", h.hex);
    fact_int(&f, "inputs", "input files", i->n_inputs);
    fact_int(&f, "input_bytes", "input bytes", (int64_t)input_bytes);
    fact_str(&f, "tool", "made by", i->tool);
    tokenfile_close(t);
    return facts_end(&f);
}

static int info_vocab(const char *path, _Bool json)
{
    struct tok_vocab *v;
    struct facts f;
    size_t n, longest = 0;
    int64_t bytes = 0;
    TRY(tok_vocab_load(path, &v));
    for (int32_t i = 0; i < tok_vocab_size(v); i++) {
        tok_vocab_bytes(v, i, &n);
        if (tok_vocab_is_special(v, i))
            continue;
        longest = n > longest ? n : longest;
        bytes += (int64_t)n;
    }
    double n_text = (double)(tok_vocab_size(v) - tok_vocab_n_specials(v));
    facts_begin(&f, json, "moe.vocab-info/1", path, "BPE vocabulary");
    fact_int(&f, "vocab_size", "tokens", tok_vocab_size(v));
    fact_int(&f, "merges", "merges", tok_vocab_n_merges(v));
    fact_int(&f, "longest", "longest, bytes", (int64_t)longest);
    fact_num(&f, "mean_bytes", "mean, bytes", (double)bytes / n_text);
    struct hash h = tok_vocab_hash(v);
    fact_str(&f, "hash", "hash", h.hex);
    if (json)
        json_arr(f.j, "special");
    for (int i = 0; i < tok_vocab_n_specials(v); i++) {
        const char *content;
        int32_t id = tok_vocab_special(v, i, &content);
        if (json) {
            json_obj(f.j, NULL);
            json_put_int(f.j, "id", id);
            json_put_str(f.j, "token", content);
            json_obj_end(f.j);
        } else {
            out_printf("  %-16s %d  %s%s\n", i == 0 ? "special tokens" : "", (int)id, content, i == 0 ? "  (ends documents)" : "");
        }
    }
    if (json)
        json_arr_end(f.j);
    tok_vocab_free(v);
    return facts_end(&f);
}

static int info_run(void *opts, int argc, char **argv)
{
    const struct info_opts *o = opts;
    struct arena *a = arena_new();
    int rc = 0;
    for (int i = 0; i < argc && rc == 0; i++) {
        _Bool tokens = fs_exists(arena_printf(a, "%s.bin", argv[i])) || fs_exists(arena_printf(a, "%s.json", argv[i]));
        rc = tokens ? info_tokens(argv[i], o->json) : info_vocab(argv[i], o->json);
    }
    arena_free(a);
    return rc;
}

const struct opt_cmd tokenize_info_cmd = {
    "info", "what a vocabulary or a token file holds, and whether it is whole", "[options] FILE|PREFIX...",
    "moe-tokenize info tok.json data/train\n"
    "moe-tokenize info --json data/train\n",
    info_table, sizeof(struct info_opts), 1, -1, info_run
};
