/* tokenize_merge.c -- moe-tokenize merge: several token files as one. */
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/units.h"
#include "base/version.h"
#include "data/tokenfile_merge.h"
#include "tokenize.h"

struct merge_opts {
    struct opt_common common;
    const char *tokenizer, *output;
    struct tok_load load;
    _Bool foreign, eod, force;
};

#define AT(f) offsetof(struct merge_opts, f)
static const struct opt merge_table[] = {
    OPT_COMMON,
    { OPT_STR, 'o', "output", "PREFIX", NULL, "write PREFIX.bin, .idx and .json", AT(output), 0, 0 },
    { OPT_STR, 't', "tokenizer", "FILE", NULL, "the vocabulary of the ids; foreign pairs need it for a sidecar", AT(tokenizer), 0, 0 },
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", AT(load.scheme), 0, 0 },
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", AT(load.specials), 0, 0 },
    { OPT_FLAG, 0, "foreign", NULL, NULL, "take pairs without a sidecar, as Megatron writes them", AT(foreign), 0, 0 },
    { OPT_FLAG, 0, "eod", NULL, NULL, "end foreign documents that lack it with the end-of-document token", AT(eod), 0, 0 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace PREFIX", AT(force), 0, 0 },
    OPT_END
};

struct bar { struct progress *p; };

static void progress(void *ctx, uint64_t done, uint64_t total)
{
    struct bar *b = ctx;
    if (b->p == NULL)
        b->p = progress_begin("merge", total, "B");
    progress_set(b->p, done);
}

static int may_create(struct tokenfile_merge *m, const char *prefix, _Bool *up_to_date)
{
    static const char *const ends[] = { ".json", ".bin", ".idx" };
    struct arena *a = arena_new();
    int rc = tokenfile_merge_is_made(m, prefix);
    *up_to_date = rc == 1;
    for (int i = 0; i < 3 && rc == 0; i++) {
        char *path = arena_printf(a, "%s%s", prefix, ends[i]);
        if (fs_exists(path))
            rc = err_set(ERR_CREATE, i == 0 ? "%s exists and was not made from these inputs; -f replaces it"
                                            : "%s exists without a sidecar; -f replaces it", path);
    }
    arena_free(a);
    return rc < 0 ? rc : 0;
}

static void report(const char *prefix, int n, const struct tokenfile_merge_done *d, double seconds)
{
    char docs[32], tokens[32], bytes[32], rate[32];
    log_info("%s: %s document%s, %s token%s from %d token file%s, %s in %.2f s (%s/s)", prefix, units_count(docs, d->documents), d->documents == 1 ? "" : "s",
             units_count(tokens, d->tokens), d->tokens == 1 ? "" : "s", n, n == 1 ? "" : "s", units_bytes(bytes, (double)d->bytes), seconds,
             units_bytes(rate, (double)d->bytes / (seconds > 1e-6 ? seconds : 1e-6)));
    if (d->added_eod > 0)
        log_info("%s: %s document%s got an end-of-document token", prefix, units_count(docs, d->added_eod), d->added_eod == 1 ? "" : "s");
    if (d->odd != NULL && d->sidecar)
        log_warn("%s was encoded with other options than what is before it: \"%s\", not \"%s\"", d->odd, d->odd_how, d->how);
    if (!d->sidecar)
        log_warn("%s: no sidecar is written: which vocabulary the ids are of, what ends documents and the bytes of text are unknown; -t tells", prefix);
}

static int merge_all(const struct merge_opts *o, const struct tokenfile_merge_how *how, struct bar *bar)
{
    struct tokenfile_merge *m;
    struct tokenfile_merge_done done;
    _Bool up_to_date = 0;
    double start = clock_s();
    TRY(tokenfile_merge_begin(how, &m));
    int rc = o->force ? 0 : may_create(m, o->output, &up_to_date);
    if (rc == 0 && !up_to_date)
        rc = tokenfile_merge_run(m, o->output, &done);
    if (bar->p != NULL)
        progress_end(bar->p);
    if (rc == 0 && up_to_date)
        log_info("%s: up to date", o->output);
    else if (rc == 0)
        report(o->output, how->n_inputs, &done, clock_s() - start);
    tokenfile_merge_end(m);
    return rc;
}

static int merge_run(void *opts, int argc, char **argv)
{
    const struct merge_opts *o = opts;
    struct tok_vocab *v = NULL;
    struct arena *a;
    struct bar bar = { NULL };
    const char *eod;
    int rc = 0;
    if (o->output == NULL)
        return err_set(ERR_USAGE, "no output: give one with -o PREFIX");
    TRY(tokenize_check_prefix(o->output));
    if (o->eod && (!o->foreign || o->tokenizer == NULL))
        return err_set(ERR_USAGE, "--eod is for foreign pairs and needs their vocabulary: --foreign -t tok.json");
    a = arena_new();
    struct tokenfile_merge_how how = { .inputs = (const char *const *)argv, .n_inputs = argc, .foreign = o->foreign, .add_eod = o->eod,
        .tool = arena_printf(a, "moe-tokenize %s", moe_version), .progress = progress, .ctx = &bar };
    how.argv = opt_argv(&how.n_argv);
    if (o->tokenizer != NULL) {
        TRY_OUT(rc, tok_vocab_load_as(o->tokenizer, &o->load, &v));
        TRY_OUT(rc, tokenize_eod(v, &how.eod_id, &eod));
        how.eod_token = arena_strdup(a, eod);
        how.tokenizer = tok_vocab_hash(v);
        how.vocab_size = tok_vocab_size(v);
        how.byte_len = tok_vocab_text_bytes(v);
    }
    rc = merge_all(o, &how, &bar);
out:
    tok_vocab_free(v);
    arena_free(a);
    return rc;
}

const struct opt_cmd tokenize_merge_cmd = {
    "merge", "several token files as one", "[options] -o PREFIX PREFIX...",
    "moe-tokenize merge -o data/all data/train data/more\n"
    "moe-tokenize merge --foreign -t tok.json -o data/mine megatron/a megatron/b\n",
    merge_table, sizeof(struct merge_opts), 1, -1, merge_run
};
