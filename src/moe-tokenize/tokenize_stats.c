/* tokenize_stats.c -- moe-tokenize stats: what vocabularies make of languages.
 *
 * Every vocabulary reads every text once, a slab at a time.  Refuses to guess:
 * a parity is only told against the language that was named. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/progress.h"
#include "tok/encode.h"
#include "tok/text_source.h"
#include "tok/vocab_convert.h"
#include "tokenize.h"
#include "tokenize_stats.h"

struct stats_opts {
    struct opt_common common;
    struct opt_list tokenizer, key, on;
    struct tok_load load;
    const char *base, *docs;
    _Bool json, tsv;
    int64_t threads;
};

#define AT(f) offsetof(struct stats_opts, f)
static const struct opt stats_table[] = {
    OPT_COMMON,
    { OPT_LIST, 't', "tokenizer", "FILE", NULL, "a vocabulary; may be given several times", AT(tokenizer), 0, 0 },
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", AT(load.scheme), 0, 0 },
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", AT(load.specials), 0, 0 },
    { OPT_STR, 0, "base", "LANG", NULL, "texts are parallel: compare their tokens with this language's", AT(base), 0, 0 },
    { OPT_CHOICE, 0, "docs", "auto|file|line|blank|jsonl", "auto", "what is a document, and whether it stands in JSON (see the page)", AT(docs), 0, 0 },
    { OPT_LIST, 0, "key", "KEY", NULL, "JSON lines: a key whose strings are texts (text)", AT(key), 0, 0 },
    { OPT_LIST, 0, "on", "KIND=ACTION", NULL, "what to do about utf8, json, key, type, empty... (see the page)", AT(on), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a row: by language, then by vocabulary", AT(json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "the same as two tables of tab-separated columns", AT(tsv), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads, 0 for all; the output does not depend on it", AT(threads), 0, 4096 },
    OPT_END
};

/* ---- names */

/* models/qwen3/tokenizer.json and qwen3.tokenizer.json are qwen3. */
static const char *vocab_name(struct arena *a, const char *path)
{
    char *name = arena_strdup(a, fs_base(path)), *dot = strchr(name, '.');
    if (dot != NULL && dot != name)
        *dot = '\0';
    if (strcmp(name, "tokenizer") == 0 || strcmp(name, "tekken") == 0) {
        const char *dir = fs_base(fs_parent(a, path));
        return strcmp(dir, ".") == 0 || dir[0] == '\0' ? name : dir;
    }
    return name;
}

static void name_vocabs(struct arena *a, struct stats *s, const struct opt_list *paths)
{
    for (int i = 0; i < s->n_vocabs; i++)
        s->vocab[i].name = vocab_name(a, paths->v[i]);
    for (int i = 0; i < s->n_vocabs; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(s->vocab[i].name, s->vocab[k].name) == 0) {
                s->vocab[i].name = paths->v[i];
                s->vocab[k].name = paths->v[k];
            }
}

/* ---- reading */

/* One vocabulary at its work. */
struct reader { struct tok_encoder *e; struct tok_meter *meter; struct progress *p; uint64_t done; int64_t count[TEXT_N_KINDS]; };

static size_t cut(const void *e, const uint8_t *s, size_t n, size_t from)
{
    return tok_encoder_cut(e, s, n, from);
}

/* A text that is no lines of JSON has no keys. */
static int measure_slab(struct reader *r, const struct text_slab *b, int n_keys, struct stats_cell *to)
{
    const int32_t *ids;
    const int64_t *ends;
    uint64_t invalid = 0;
    int64_t n = b->n_rows * (b->docs == TEXT_JSONL ? n_keys : 1), begin = 0;
    TRY(tok_encode_on(r->e, !b->begins_doc, b->doc, n, &ids, &ends, &invalid));
    to->invalid += (int64_t)invalid;
    for (int64_t i = 0; i < n; begin = ends[i++])
        tok_meter_add(r->meter, b->doc[i].s, b->doc[i].n, ids + begin, ends[i] - begin, i + 1 < n || b->ends_doc, &to->m);
    return 0;
}

static int measure_lang(struct reader *r, const struct text_how *how, const struct lang_texts *l, struct stats_cell *to)
{
    struct text_source *t;
    struct text_slab *b = text_slab_new();
    int rc = b == NULL ? err_sys(ERR_IO, "memory for text") : 0;
    TRY(rc);
    if ((rc = text_source_open(l->path, l->n, how, &t)) < 0) {
        text_slab_free(b);
        return rc;
    }
    while (rc == 0 && text_source_read(t, b) > 0) {
        if ((rc = text_source_parse(t, b)) < 0 || (rc = text_source_take(t, b)) < 0)
            break;
        rc = measure_slab(r, b, text_source_n_keys(t), to);
        progress_set(r->p, r->done + text_source_stored(t));
    }
    r->done += text_source_stored(t);
    for (int k = 0; k < TEXT_N_KINDS; k++)
        r->count[k] += text_source_counts(t)[k];
    text_source_close(t);
    text_slab_free(b);
    return rc;
}

static int measure_vocab(const struct stats_opts *o, struct arena *a, struct stats *s, int i, struct progress *p, uint64_t *done)
{
    struct tok_vocab *v;
    struct tok_how how = { .threads = (int)o->threads };
    struct reader r = { .p = p, .done = *done };
    struct text_how text;
    struct stats_vocab *to = &s->vocab[i];
    struct tok_check check;
    int rc;
    TRY(tok_vocab_load_as(o->tokenizer.v[i], &o->load, &v));
    struct hash h = tok_vocab_hash(v);
    int32_t size = tok_vocab_size(v);
    to->hash = arena_strdup(a, h.hex);
    to->size = size;
    uint8_t *seen = arena_alloc(a, (size_t)size + 1);
    r.meter = tok_meter_new(v);
    to->entries = tok_meter_entries(r.meter);
    TRY_OUT(rc, tok_vocab_check(v, &check));
    to->unreachable = check.unreachable;
    TRY_OUT(rc, tok_encoder_new(v, &how, &r.e));
    tok_text_how_default(&text);
    TRY_OUT(rc, tokenize_on(&text, &o->on));
    text.docs = tokenize_docs(o->docs);
    text.keys = (const char *const *)o->key.v;
    text.n_keys = o->key.n;
    text.slab_bytes = (size_t)8 << 20;
    text.cut = cut;
    text.cut_arg = r.e;
    for (int l = 0; l < s->n_langs && rc >= 0; l++) {
        struct stats_cell *c = &s->cell[i * s->n_langs + l];
        tok_meter_reset(r.meter);
        rc = measure_lang(&r, &text, &s->lang[l], c);
        c->used = tok_meter_used(r.meter);
        for (int32_t id = 0; id < size; id++)
            seen[id] |= (uint8_t)(tok_meter_seen(r.meter, id));
        if (rc >= 0 && i > 0 && (c->m.bytes != s->cell[l].m.bytes || c->m.words != s->cell[l].m.words))
            rc = err_set(ERR_DATA, "the texts of %s changed while they were read", s->lang[l].name);
    }
    if (text.on[TEXT_EMPTY] == TEXT_KEEP)
        r.count[TEXT_EMPTY] = 0;        /* nothing is all that they add */
    const char *counted = tokenize_counted(a, &text, r.count);
    if (rc >= 0 && i == 0 && counted[0] != '\0')
        log_info("counted in the text: %s", counted + 2);
    for (int32_t id = 0; id < size; id++)
        to->used += seen[id] && !tok_vocab_is_special(v, id);
out:
    *done = r.done;
    tok_encoder_free(r.e);
    tok_meter_free(r.meter);
    tok_vocab_free(v);
    return rc;
}

static int measure_all(const struct stats_opts *o, struct arena *a, struct stats *s)
{
    uint64_t total = 0, done = 0, size;
    int rc = 0;
    for (int l = 0; l < s->n_langs; l++)
        for (int k = 0; k < s->lang[l].n; k++)
            total += strcmp(s->lang[l].path[k], "-") != 0 && fs_file_size(s->lang[l].path[k], &size) == 0 ? size : 0;
    err_clear();
    struct progress *p = progress_begin("measure", total * (uint64_t)s->n_vocabs, "B");
    for (int i = 0; i < s->n_vocabs && rc >= 0; i++)
        rc = measure_vocab(o, a, s, i, p, &done);
    progress_end(p);
    return rc;
}

static int find_base(struct stats *s, const char *name)
{
    s->base = -1;
    for (int l = 0; l < s->n_langs && name != NULL; l++)
        if (strcmp(s->lang[l].name, name) == 0)
            s->base = l;
    if (name == NULL || s->base >= 0)
        return 0;
    return err_set(ERR_USAGE, "--base %s: no text of that language; the first of %d is called %s", name, s->n_langs, s->lang[0].name);
}

/* Without a token nothing has a parity to it. */
static int base_has_tokens(const struct stats *s)
{
    if (s->base < 0 || s->cell[s->base].m.tokens > 0)
        return 0;
    return err_set(ERR_DATA, "--base %s: its texts are empty, so there is nothing to compare with", s->lang[s->base].name);
}

static int check_opts(const struct stats_opts *o, const struct stats *s)
{
    if (o->json && o->tsv)
        return err_set(ERR_USAGE, "--json and --tsv exclude each other");
    if (o->tokenizer.n == 0)
        return err_set(ERR_USAGE, "no vocabulary: give one or more with -t tok.json");
    for (int l = 0, n_stdin = 0; l < s->n_langs; l++)
        for (int k = 0; k < s->lang[l].n; k++) {
            n_stdin += strcmp(s->lang[l].path[k], "-") == 0;
            if (n_stdin > 1)
                return err_set(ERR_USAGE, "standard input is named twice");
        }
    return langs_check_keys(o->key.n, o->docs, s->lang, s->n_langs);
}

static int stats_run(void *opts, int argc, char **argv)
{
    const struct stats_opts *o = opts;
    struct arena *a = arena_new();
    struct stats s = { 0 };
    int rc;
    struct langs langs;
    langs_group(a, argc, argv, &langs);
    s.lang = langs.v;
    s.n_langs = langs.n;
    TRY_OUT(rc, check_opts(o, &s));
    TRY_OUT(rc, find_base(&s, o->base));
    s.n_vocabs = o->tokenizer.n;
    TRY_OUT(rc, langs_look_at(&langs, s.n_vocabs > 1 ? arena_printf(a, "each of %d vocabularies reads it", s.n_vocabs) : NULL));
    s.vocab = arena_array(a, (size_t)s.n_vocabs, sizeof *s.vocab);
    s.cell = arena_array(a, (size_t)s.n_vocabs * (size_t)s.n_langs, sizeof *s.cell);
    name_vocabs(a, &s, &o->tokenizer);
    TRY_OUT(rc, measure_all(o, a, &s));
    TRY_OUT(rc, base_has_tokens(&s));
    for (int l = 0; l < s.n_langs; l++)
        if (s.cell[l].invalid > 0)
            log_warn("%s: bytes that are no valid UTF-8: %lld; they are measured as bytes", s.lang[l].name, (long long)s.cell[l].invalid);
    rc = tokenize_stats_print(&s, o->json ? TABLE_JSON : o->tsv ? TABLE_TSV : TABLE_HUMAN);
out:
    arena_free(a);
    return rc;
}

const struct opt_cmd tokenize_stats_cmd = {
    "stats", "tokens a word, parity and more, by language, for several vocabularies", "[options] -t FILE [-t FILE...] [[LANG=]TEXT...]",
    "moe-tokenize stats -t tok.json text/*.txt\n"
    "moe-tokenize stats --base en -t tok.json -t other.json text/*.txt\n",
    stats_table, sizeof(struct stats_opts), 0, -1, stats_run
};
