/* tokenize_train.c -- moe-tokenize train: a vocabulary from text. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/progress.h"
#include "base/units.h"
#include "tok/bpe_train.h"
#include "langs.h"
#include "tokenize.h"
#include "train_texts.h"

struct train_opts {
    struct opt_common common;
    int64_t vocab_size, min_frequency, max_word, memory, digits, reserved, sample_bytes, parity_after, parity_window, threads;
    const char *output, *eod, *scheme, *split, *docs;
    struct opt_list special, weight, dev, key, on;
    _Bool nfc, parity, force;
};

#define AT(f) offsetof(struct train_opts, f)
static const struct opt train_table[] = {
    OPT_COMMON,
    { OPT_INT, 0, "vocab-size", "N", NULL, "tokens of the vocabulary, bytes and special tokens included", AT(vocab_size), 257, 16777216 },
    { OPT_STR, 'o', "output", "FILE", NULL, "the tokenizer.json to write, - for stdout", AT(output), 0, 0 },
    { OPT_STR, 0, "scheme", "NAME", NULL, "how text is split: o200k, llama3, qwen2... (see the page) [o200k]", AT(scheme), 0, 0 },
    { OPT_STR, 0, "split", "REGEX", NULL, "split by an expression of your own instead", AT(split), 0, 0 },
    { OPT_INT, 0, "digits", "N", "0", "numbers that a piece holds at most, 0 for what the split has", AT(digits), 0, 9 },
    { OPT_FLAG, 0, "nfc", NULL, NULL, "bring text to Unicode's form NFC, here and when it is encoded", AT(nfc), 0, 0 },
    { OPT_INT, 0, "min-frequency", "N", "2", "merge no pair that is seen less often", AT(min_frequency), 1, 9e15 },
    { OPT_INT, 0, "max-word", "BYTES", "1024", "cut longer pieces, 0 to keep them", AT(max_word), 0, 1 << 30 },
    { OPT_STR, 0, "eod", "TOKEN", TOK_EOD, "name of the end-of-document token", AT(eod), 0, 0 },
    { OPT_LIST, 0, "special", "TOKEN", NULL, "another special token; may be given several times", AT(special), 0, 0 },
    { OPT_INT, 0, "reserved", "N", "0", "special tokens <|reserved_0|>... for later use", AT(reserved), 0, 1000000 },
    { OPT_CHOICE, 0, "docs", "auto|file|line|blank|jsonl", "auto", "what is a document, and whether it stands in JSON (see the page)", AT(docs), 0, 0 },
    { OPT_LIST, 0, "key", "KEY", NULL, "JSON lines: a key whose strings are texts (text)", AT(key), 0, 0 },
    { OPT_LIST, 0, "on", "KIND=ACTION", NULL, "what to do about utf8, json, key, type, empty... (see the page)", AT(on), 0, 0 },
    { OPT_LIST, 0, "weight", "LANG=W", NULL, "count what the texts of a language hold W times, such as 2.5", AT(weight), 0, 0 },
    { OPT_INT, 0, "sample-bytes", "N", "0", "learn from about N bytes of each language, 0 for all", AT(sample_bytes), 0, 9e15 },
    { OPT_INT, 0, "memory", "BYTES", "0", "forget rare pieces where the tables would be larger, 0 for no bound", AT(memory), 0, 9e15 },
    { OPT_FLAG, 0, "parity", NULL, NULL, "let each merge serve the language that is worst off", AT(parity), 0, 0 },
    { OPT_LIST, 0, "dev", "LANG=FILE", NULL, "parallel text that says who is worst off; one of each language", AT(dev), 0, 0 },
    { OPT_INT, 0, "parity-after", "N", "0", "make the first N merges by frequency", AT(parity_after), 0, 16777216 },
    { OPT_INT, 0, "parity-window", "N", "0", "of N merges a language gets twice its share at most, 0 for no limit", AT(parity_window), 0, 1000000 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace FILE", AT(force), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads, 0 for all; the output does not depend on it", AT(threads), 0, 4096 },
    OPT_END
};

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

static void tell(const struct train_opts *o, const struct langs *l, const struct tok_train_stats *s)
{
    char share[32];
    if (s->taken < s->bytes)
        log_info("learned from a sample of %s", units_bytes(share, (double)s->taken));
    if (s->cut > 0)
        log_info("pieces that were cut because they are longer than %lld bytes (--max-word): %lld", (long long)o->max_word, (long long)s->cut);
    if (s->forgotten > 0)
        log_warn("rare pieces were forgotten to stay within --memory: a piece seen %lld times or less may be missing, and no count is short by more",
                 (long long)s->forgotten);
    if (s->invalid > 0)
        log_warn("bytes that are no valid UTF-8: %llu; they were learned from as bytes", (unsigned long long)s->invalid);
    for (int i = 0; o->parity && i < l->n; i++) {
        const struct tok_train_lang *x = &s->lang[i];
        if (x->dev_tokens > 0)
            log_debug("%s: %lld merges were chosen for it; its development text is %lld tokens", l->v[i].name, (long long)x->merges, (long long)x->dev_tokens);
        else
            log_debug("%s: %lld merges were chosen for it; its text is %.3f bytes a token", l->v[i].name, (long long)x->merges,
                      x->tokens > 0 ? (double)x->taken / (double)x->tokens : 0.0);
    }
}

static int put_vocab(const struct train_opts *o, const struct tok_vocab *v, const struct tok_train_stats *s)
{
    size_t n;
    char *text = tok_vocab_text(v, &n), distinct[32], bytes[32], tokens[32];
    _Bool up_to_date = 0;
    int rc = strcmp(o->output, "-") == 0 ? out_write(text, n) : put_file(o, text, n, &up_to_date);
    free(text);
    if (rc < 0)
        return rc;
    if (up_to_date)
        log_info("%s: up to date", o->output);
    else
        log_info("%s: %s tokens from %s of text, %s distinct pieces", strcmp(o->output, "-") == 0 ? "standard output" : o->output,
                 units_count(tokens, tok_vocab_size(v)), units_bytes(bytes, (double)s->bytes), units_count(distinct, s->distinct));
    return 0;
}

static int learn(struct arena *a, const struct train_opts *o, const struct langs *l, const struct train_texts *x, struct tok_trainer *t)
{
    struct tok_vocab *v;
    struct tok_train_stats s;
    struct progress *p = progress_begin("merge pairs", (uint64_t)o->vocab_size, "tokens");
    int rc = tok_trainer_run(t, tick, p, &v, &s);
    progress_end(p);
    if (rc < 0)
        return rc;
    rc = put_vocab(o, v, &s);
    const char *counted = tokenize_counted(a, &x->how, x->count);
    if (rc == 0 && counted[0] != '\0')
        log_info("counted in the text: %s", counted + 2);
    if (rc == 0)
        tell(o, l, &s);
    tok_vocab_free(v);
    return rc;
}

/* ---- what is asked for */

static void name_specials(struct arena *a, const struct train_opts *o, struct tok_train_how *how)
{
    const char **s = arena_array(a, (size_t)(1 + o->special.n + o->reserved), sizeof *s);
    s[how->n_specials++] = o->eod;
    for (int i = 0; i < o->special.n; i++)
        s[how->n_specials++] = o->special.v[i];
    for (int i = 0; i < (int)o->reserved; i++)
        s[how->n_specials++] = arena_printf(a, "<|reserved_%d|>", i);
    how->specials = s;
}

/* "2.5" is 2500 thousandths. */
static int read_weight(const char *option, const char *s, int64_t *w)
{
    char *end;
    double x = strtod(s, &end) * TOK_WEIGHT_ONE;
    if (end == s || *end != '\0' || !(x >= 1 && x <= 1e9) || (double)(int64_t)x != x)
        return err_set(ERR_USAGE, "--weight %s: a weight is from 0.001 to 1000000, with three decimals at most", option);
    *w = (int64_t)x;
    return 0;
}

static int read_weights(struct arena *a, const struct train_opts *o, const struct langs *l, struct tok_train_how *how)
{
    if (o->weight.n == 0)
        return 0;
    int64_t *w = arena_array(a, (size_t)l->n, sizeof *w);
    _Bool *given = arena_array(a, (size_t)l->n, sizeof *given);
    for (int i = 0; i < l->n; i++)
        w[i] = TOK_WEIGHT_ONE;
    for (int i = 0; i < o->weight.n; i++) {
        const char *rest;
        int k = langs_option(a, l, "--weight", o->weight.v[i], &rest);
        TRY(k);
        if (given[k])
            return err_set(ERR_USAGE, "--weight %s: the language has a weight already", o->weight.v[i]);
        given[k] = 1;
        TRY(read_weight(o->weight.v[i], rest, &w[k]));
    }
    how->weight = w;
    return 0;
}

/* The texts cannot be had again when one of them is replaced. */
static int not_a_text(const struct train_opts *o, const struct langs *l)
{
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < l->v[i].n; k++)
            if (tokenize_same_file(l->v[i].path[k], o->output))
                return err_set(ERR_USAGE, "%s is one of the texts and cannot be the output", o->output);
    return 0;
}

static int check_parity(const struct train_opts *o, const struct langs *l)
{
    if (!o->parity && (o->dev.n > 0 || o->parity_after > 0 || o->parity_window > 0))
        return err_set(ERR_USAGE, "--dev, --parity-after and --parity-window belong to --parity");
    if (o->parity && o->parity_after >= o->vocab_size - 256 && o->parity_after > 0)
        return err_set(ERR_USAGE, "--parity-after %lld leaves no merge to --parity: a vocabulary of %lld tokens has fewer than %lld", (long long)o->parity_after,
                       (long long)o->vocab_size, (long long)o->vocab_size - 255);
    if (o->parity && o->weight.n > 0 && o->parity_after == 0)
        return err_set(ERR_USAGE, "--weight counts in merges by frequency, and --parity makes none without --parity-after");
    if (o->parity && l->n < 2)
        return err_set(ERR_USAGE, "--parity needs the texts of two languages or more, as LANG=FILE or files called LANG.txt");
    return 0;
}

/* A language without text is never worse off than another. */
static int all_have_text(const struct train_opts *o, const struct langs *l, const struct tok_trainer *t)
{
    for (int i = 0; i < l->n && o->parity; i++)
        if (tok_trainer_langs(t)[i].bytes == 0)
            return err_set(ERR_DATA, "--parity: the texts of %s are empty", l->v[i].name);
    return 0;
}

static const char *again(const struct train_opts *o)
{
    return o->sample_bytes > 0 ? "--sample-bytes reads twice" : NULL;
}

static int plan_texts(struct arena *a, const struct train_opts *o, const struct langs *l, struct train_texts *x)
{
    size_t n = (size_t)o->dev.n;
    for (int i = 0; i < l->n; i++)
        n += (size_t)l->v[i].n;
    x->path = arena_array(a, n, sizeof *x->path);
    x->lang = arena_array(a, n, sizeof *x->lang);
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < l->v[i].n; k++, x->n++) {
            x->path[x->n] = l->v[i].path[k];
            x->lang[x->n] = o->parity || o->weight.n > 0 || o->sample_bytes > 0 ? i : 0;
        }
    x->first_dev = x->n;
    for (int i = 0; i < o->dev.n; i++, x->n++) {
        int k = langs_option(a, l, "--dev", o->dev.v[i], &x->path[x->n]);
        TRY(k);
        x->lang[x->n] = k;
        const struct langs dev = { &(struct lang_texts){ NULL, &x->path[x->n], 1 }, 1 };
        TRY(langs_look_at(&dev, again(o)));
    }
    for (int i = 0, n_stdin = 0; i < x->n; i++)
        if (strcmp(x->path[i], "-") == 0 && n_stdin++ > 0)
            return err_set(ERR_USAGE, "standard input is named twice");
    tok_text_how_default(&x->how);
    TRY(tokenize_on(&x->how, &o->on));
    x->how.docs = tokenize_docs(o->docs);
    x->how.keys = o->key.v;
    x->how.n_keys = o->key.n;
    x->threads = tokenize_threads(o->threads);
    return 0;
}

static int train(struct arena *a, const struct train_opts *o, int argc, char **argv)
{
    struct tok_train_how how = { (int32_t)o->vocab_size, o->min_frequency, NULL, 0, { o->scheme, o->split, (int)o->digits, o->nfc },
                                 o->max_word, (uint64_t)o->memory, (uint64_t)o->sample_bytes, 1, NULL, o->parity, o->parity_after, (int)o->parity_window };
    struct train_texts x = { 0 };
    struct tok_trainer *t;
    struct langs l;
    langs_group(a, argc, argv, &l);
    TRY(check_parity(o, &l));
    TRY(langs_check_keys(o->key.n, o->docs, l.v, l.n));
    TRY(langs_look_at(&l, again(o)));
    TRY(not_a_text(o, &l));
    name_specials(a, o, &how);
    TRY(read_weights(a, o, &l, &how));
    TRY(plan_texts(a, o, &l, &x));
    if (x.n > 0 && (o->parity || o->weight.n > 0 || o->sample_bytes > 0))
        how.n_langs = l.n;
    TRY(tok_trainer_new(&how, &t));
    int rc = train_texts_read(&x, t);
    if (rc == 0)
        rc = all_have_text(o, &l, t);
    if (rc == 0)
        rc = learn(a, o, &l, &x, t);
    tok_trainer_free(t);
    return rc;
}

static int train_run(void *opts, int argc, char **argv)
{
    const struct train_opts *o = opts;
    if (o->vocab_size == 0)
        return err_set(ERR_USAGE, "no size: give one with --vocab-size N");
    if (o->output == NULL || o->output[0] == '\0')
        return err_set(ERR_USAGE, "no output: give one with -o tok.json");
    struct arena *a = arena_new();
    int rc = train(a, o, argc, argv);
    arena_free(a);
    return rc;
}

const struct opt_cmd tokenize_train_cmd = {
    "train", "learn a byte-level BPE vocabulary from text", "[options] --vocab-size N -o FILE [[LANG=]TEXT...]",
    "moe-tokenize train --vocab-size 8192 -o tok.json text/*.txt\n"
    "moe-tokenize train --vocab-size 32000 --parity --scheme llama3 -o tok.json de=a.jsonl.zst mt=b.txt\n",
    train_table, sizeof(struct train_opts), 0, -1, train_run
};
