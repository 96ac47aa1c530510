/* tokenize_convert.c -- moe-tokenize import and export: a vocabulary in another format. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "tok/vocab_convert.h"
#include "tokenize.h"

struct convert_opts {
    struct opt_common common;
    struct tok_load load;
    const char *output;
    _Bool force;
};

#define AT(f) offsetof(struct convert_opts, f)
#define CONVERT_TABLE(what) { \
    OPT_COMMON, \
    { OPT_STR, 'o', "output", "FILE", NULL, what, AT(output), 0, 0 }, \
    { OPT_STR, 0, "scheme", "NAME", NULL, "how a rank file splits text: cl100k, o200k... (see the page)", AT(load.scheme), 0, 0 }, \
    { OPT_STR, 0, "special-ids", "FILE", NULL, "special tokens of a rank file: JSON, names and ids", AT(load.specials), 0, 0 }, \
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace FILE", AT(force), 0, 0 }, \
    OPT_END \
}
static const struct opt import_table[] = CONVERT_TABLE("the tokenizer.json to write; without it only check");
static const struct opt export_table[] = CONVERT_TABLE("the rank file to write; special tokens go to FILE.json");

static int may_write(const struct convert_opts *o, const char *path)
{
    if (!o->force && fs_exists(path))
        return err_set(ERR_CREATE, "%s exists; -f replaces it", path);
    return 0;
}

static int report(const struct tok_vocab *v)
{
    struct tok_check c;
    TRY(tok_vocab_check(v, &c));
    log_info("%s: %s, %d ids, %lld of them unused; %lld entries, %lld that their own text does not give, %lld bytes beside a token of the same text",
             tok_vocab_name(v), tok_vocab_format(v), (int)tok_vocab_size(v), (long long)c.holes, (long long)c.entries, (long long)c.unreachable, (long long)c.twins);
    if (c.unreachable > 0)
        log_info("%s: the first of those is id %d", tok_vocab_name(v), (int)c.first);
    return 0;
}

/* The copy is written only when it gives the same ids. */
static int same_and_write(const struct tok_vocab *v, const char *path, const char *text, size_t n, const struct tok_load *how)
{
    struct tok_vocab *copy;
    TRY(tok_vocab_parse_as(path, text, n, how, &copy));
    int rc = tok_vocab_equal(v, copy);
    tok_vocab_free(copy);
    TRY(rc);
    return fs_write_file(path, text, n);
}

static int import_json(const struct convert_opts *o, const struct tok_vocab *v, const char *path)
{
    struct fs_blob whole = { 0 };
    char *text = NULL;
    size_t n;
    int rc;
    if (tok_vocab_semantics(v) == TOK_LIST) {   /* as it is, so that nothing is lost */
        TRY(fs_read(path, &whole));
        rc = fs_write_file(o->output, whole.data, whole.size);
        fs_blob_free(&whole);
        return rc;
    }
    TRY(tok_vocab_to_json(v, &text, &n));
    rc = same_and_write(v, o->output, text, n, NULL);
    free(text);
    return rc;
}

static int import_run(void *opts, int argc, char **argv)
{
    const struct convert_opts *o = opts;
    struct tok_vocab *v;
    int rc;
    (void)argc;
    if (o->output != NULL)
        TRY(may_write(o, o->output));
    TRY(tok_vocab_load_as(argv[0], &o->load, &v));
    TRY_OUT(rc, report(v));
    if (o->output != NULL)
        rc = import_json(o, v, argv[0]);
out:
    tok_vocab_free(v);
    return rc;
}

static int export_run(void *opts, int argc, char **argv)
{
    const struct convert_opts *o = opts;
    struct tok_vocab *v;
    struct arena *a = arena_new();
    char *text = NULL, *specials = NULL, *names;
    size_t n;
    int rc;
    (void)argc;
    if (o->output == NULL) {
        arena_free(a);
        return err_set(ERR_USAGE, "no output: give one with -o FILE");
    }
    names = arena_printf(a, "%s.json", o->output);
    if ((rc = may_write(o, o->output)) < 0 || (rc = may_write(o, names)) < 0 || (rc = tok_vocab_load_as(argv[0], &o->load, &v)) < 0) {
        arena_free(a);
        return rc;
    }
    TRY_OUT(rc, tok_vocab_to_ranks(v, &text, &n, &specials));
    TRY_OUT(rc, fs_write_file(names, specials, strlen(specials)));
    rc = fs_write_file(o->output, text, n);
out:
    free(text);
    free(specials);
    tok_vocab_free(v);
    arena_free(a);
    return rc;
}

const struct opt_cmd tokenize_import_cmd = {
    "import", "check a vocabulary of any format, and write it as tokenizer.json", "[options] [-o FILE] VOCABULARY",
    "moe-tokenize import -o tok.json tekken.json\n"
    "moe-tokenize import --scheme cl100k cl100k.tiktoken\n",
    import_table, sizeof(struct convert_opts), 1, 1, import_run
};

const struct opt_cmd tokenize_export_cmd = {
    "export", "write a vocabulary of ranks as a rank file", "[options] -o FILE VOCABULARY",
    "moe-tokenize export -o ranks.tiktoken tekken.json\n",
    export_table, sizeof(struct convert_opts), 1, 1, export_run
};
