/* ckpt_card.c -- moe-ckpt card: a model card of what is known, with marks where it is not.
 *
 * Finds the run that a checkpoint lies in and hands its configuration and rows
 * to ckpt/card.h.  A card that people have worked on is never overwritten
 * unless asked. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/out.h"
#include "ckpt/card.h"
#include "ckpt/run.h"
#include "train/run_config.h"

#include "ckpt_cmds.h"

struct card_opts {
    struct opt_common common;
    const char *output, *check, *title, *hardware, *languages;
    double power, pue;
    _Bool force, json;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_STR, 'o', "output", "FILE", "-", "where to write; - is standard output", offsetof(struct card_opts, output), 0, 0 },
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace a card that is there", offsetof(struct card_opts, force), 0, 0 },
    { OPT_STR, 'c', "check", "FILE", NULL, "list what is left to fill in in this card; 1 when something is", offsetof(struct card_opts, check), 0, 0 },
    { OPT_STR, 't', "title", "TEXT", NULL, "name of the model; that of the run or folder otherwise", offsetof(struct card_opts, title), 0, 0 },
    { OPT_STR, 0, "hardware", "TEXT", NULL, "what it was trained on", offsetof(struct card_opts, hardware), 0, 0 },
    { OPT_FLOAT, 'p', "power", "W", NULL, "watts that one rank draws; without it no energy is stated", offsetof(struct card_opts, power), 1e-3, 1e9 },
    { OPT_FLOAT, 0, "pue", "X", NULL, "power usage effectiveness of the site; 1 otherwise", offsetof(struct card_opts, pue), 1, 100 },
    { OPT_STR, 'l', "languages", "LIST", NULL, "codes such as de,fr beside those in names of files", offsetof(struct card_opts, languages), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object; with --check one for each mark", offsetof(struct card_opts, json), 0, 0 },
    OPT_END
};

/* ---- what is left to fill in */

static const char *fields(struct arena *a, int n)
{
    return arena_printf(a, "%d field%s for a human to fill in", n, n == 1 ? "" : "s");
}

static int check(const struct card_opts *o, struct arena *a)
{
    static const struct table_col cols[] = { { "line", "line", 'i', 0 }, { "heading", "heading", 's', 0 }, { "what", "to fill in", 's', 0 } };
    struct card_mark *v;
    struct fs_blob b;
    struct table *t;
    int n, rc;

    TRY(fs_read(o->check, &b));
    n = card_marks(a, b.data, b.size, &v);
    fs_blob_free(&b);
    t = table_begin(o->json ? TABLE_JSON : TABLE_HUMAN, "moe.ckpt-card-mark/1", cols, sizeof cols / sizeof *cols);
    for (int i = 0; i < n; i++) {
        table_int(t, v[i].line);
        table_str(t, v[i].heading);
        table_str(t, v[i].what);
    }
    rc = table_end(t);
    log_info("%s: %s", o->check, fields(a, n));
    return rc < 0 ? rc : n ? ERR_NO : 0;
}

/* ---- the run around a checkpoint */

struct around {
    struct arena *a;
    const char *run;            /* NULL: none */
    struct run_config cfg;
    _Bool has_config;
    char *text;                 /* of the configuration; owned */
};

static const char *real(struct arena *a, const char *path)
{
    char *s = realpath(path, NULL), *copy = s ? arena_strdup(a, s) : NULL;

    free(s);
    return copy ? copy : path;
}

static int look_around(struct around *r, const struct ckpt *c, const char *operand, struct card_input *in)
{
    const char *dir = real(r->a, ckpt_path(c)), *path;

    if (ckpt_step_of(fs_base(dir)) >= 0) {
        r->run = fs_parent(r->a, fs_parent(r->a, dir));
        if (!strcmp(real(r->a, operand), r->run))
            r->run = operand;   /* as it was named */
    }
    if (!r->run)
        return 0;
    path = fs_join(r->a, r->run, "metrics.jsonl");
    in->metrics = fs_exists(path) ? path : NULL;
    path = fs_join(r->a, r->run, "config.yaml");
    if (!fs_exists(path))
        return 0;
    TRY(run_config_load(path, NULL, 0, &r->cfg));
    r->has_config = 1;
    in->config_text = r->text = config_print(r->cfg.source, 0);
    in->seq_len = r->cfg.data.seq_len;
    in->tokens_per_step = r->cfg.tokens_per_step;
    return 0;
}

static void sets_of(struct around *r, struct card_input *in)
{
    const struct data_train_item *t = r->cfg.data.train.v;
    const struct data_valid_item *v = r->cfg.data.valid.v;
    struct card_train *train;
    struct card_valid *valid;

    in->n_train = r->cfg.data.train.n;
    in->n_valid = r->cfg.data.valid.n;
    in->train = train = arena_array(r->a, (size_t)in->n_train + 1, sizeof *train);
    in->valid = valid = arena_array(r->a, (size_t)in->n_valid + 1, sizeof *valid);
    for (int i = 0; i < in->n_train; i++)
        train[i] = (struct card_train){ t[i].path, t[i].weight };
    for (int i = 0; i < in->n_valid; i++)
        valid[i] = (struct card_valid){ v[i].name, v[i].path };
}

/* The model that the command of a run names with --init. */
static const char *init_of(const struct ckpt *c)
{
    const struct manifest *m = ckpt_manifest(c);

    for (int i = 0; m && i < m->info.n_argv; i++) {
        const char *s = m->info.argv[i];

        if (!strncmp(s, "--init=", 7))
            return s + 7;
        if (!strcmp(s, "--init") && i + 1 < m->info.n_argv)
            return m->info.argv[i + 1];
    }
    return NULL;
}

/* ---- writing */

static int put(const struct card_opts *o, const char *text, size_t n, _Bool *same)
{
    struct fs_blob b;

    *same = 0;
    if (!strcmp(o->output, "-")) {
        TRY(out_write(text, n));
        return out_flush();     /* before anything is said about it */
    }
    if (fs_exists(o->output) && !o->force) {
        TRY(fs_read(o->output, &b));
        *same = b.size == n && !memcmp(b.data, text, n);
        fs_blob_free(&b);
        if (!*same)
            return err_set(ERR_CREATE, "%s: is there already, and people may have worked on it; -f replaces it", o->output);
        return 0;
    }
    return fs_write_file(o->output, text, n);
}

static int tell(const struct card_opts *o, struct arena *a, struct card *c)
{
    size_t size;
    const char *page = card_markdown(c, &size), *text = o->json ? arena_printf(a, "%s\n", card_json(c, NULL)) : page;
    struct card_mark *marks;
    _Bool same;

    TRY(put(o, text, strlen(text), &same));
    for (int i = 0; card_note(c, i); i++)
        log_warn("%s", card_note(c, i));
    log_info("%s: %s%s", strcmp(o->output, "-") ? o->output : "card", same ? "up to date, " : "", fields(a, card_marks(a, page, size, &marks)));
    return 0;
}

static int make(const struct card_opts *o, struct arena *a, const char *operand)
{
    struct around r = { .a = a };
    struct card_input in = { .hardware = o->hardware, .power_w = o->power, .pue = o->pue, .languages = o->languages };
    struct ckpt *c = NULL;
    struct card *card = NULL;
    int rc;

    TRY_OUT(rc, ckpt_cmds_open(operand, &c));
    TRY_OUT(rc, look_around(&r, c, operand, &in));
    if (r.has_config)
        sets_of(&r, &in);
    in.init = init_of(c);
    in.title = o->title ? o->title : fs_base(real(a, r.run ? r.run : ckpt_path(c)));
    TRY_OUT(rc, card_make(c, &in, &card));
    rc = tell(o, a, card);
out:
    card_free(card);
    free(r.text);
    if (r.has_config)
        run_config_fini(&r.cfg);
    ckpt_close(c);
    return rc;
}

static int card(void *options, int argc, char **argv)
{
    const struct card_opts *o = options;
    struct arena *a;
    int rc;

    if (o->check && argc)
        return err_set(ERR_USAGE, "--check looks at a card, not at %s", argv[0]);
    if (!o->check && !argc)
        return err_set(ERR_USAGE, "card: which checkpoint? CKPT or RUN, or --check FILE");
    if (o->pue > 0 && !(o->power > 0))
        return err_set(ERR_USAGE, "--pue goes with --power");
    a = arena_new();
    rc = o->check ? check(o, a) : make(o, a, argv[0]);
    arena_free(a);
    return rc;
}

const struct opt_cmd ckpt_card_cmd = {
    "card", "write a model card with what is known, marked where a human must fill in", "[-o FILE] [-p W] [options] CKPT | --check FILE",
    "moe-ckpt card -o README.md runs/a\n"
    "moe-ckpt card --hardware '8 H200' --power 700 --pue 1.2 --json runs/a\n"
    "moe-ckpt card --check README.md\n",
    opts, sizeof(struct card_opts), 0, 1, card
};
