/* train_eval.c -- moe-train eval: loss, perplexity and bits per byte of held-out sets. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/table.h"
#include "train_cmds.h"
#include "train/metrics.h"

struct eval_opts {
    struct opt_common common;
    const char *config, *from, *device;
    int64_t threads, batches;
    _Bool json, tsv;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_STR, 0, "from", "PATH", NULL, "run, checkpoint or Hugging Face directory", offsetof(struct eval_opts, from), 0, 0 },
    { OPT_STR, 'c', "config", "FILE", NULL, "configuration instead of the one of the run", offsetof(struct eval_opts, config), 0, 0 },
    TRAIN_DEVICE_OPTS(struct eval_opts),
    { OPT_INT, 'n', "batches", "N", "0", "micro-batches of each set; 0: all", offsetof(struct eval_opts, batches), 0, 1e15 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a set", offsetof(struct eval_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated", offsetof(struct eval_opts, tsv), 0, 0 },
    OPT_END
};

/* data.valid=[...] from operands NAME=PREFIX or PREFIX (named after its last part). */
static char *valid_override(struct arena *a, char **v, int n)
{
    char *text = arena_strdup(a, "data.valid=[");

    if (n == 0)
        return NULL;
    for (int i = 0; i < n; i++) {
        const char *eq = strchr(v[i], '='), *path = eq ? eq + 1 : v[i];
        const char *name = eq ? arena_printf(a, "%.*s", (int)(eq - v[i]), v[i]) : fs_base(path);
        text = arena_printf(a, "%s%s{name: %s, path: %s}", text, i ? ", " : "", train_quoted(a, name), train_quoted(a, path));
    }
    return arena_printf(a, "%s]", text);
}

static void put_row(struct table *t, int64_t step, const struct eval_facts *e)
{
    table_int(t, step);
    table_str(t, e->set);
    table_int(t, e->tokens);
    table_num(t, metrics_eval_loss(e));
    table_num(t, exp(metrics_eval_loss(e)));
    if (e->text_bytes)
        table_num(t, metrics_bits_per_byte(e));
    else
        table_none(t);
}

static int evaluate(struct trainer *t, const struct eval_opts *o, enum table_form form)
{
    static const struct table_col cols[] = {
        { "step", "step", 'i', 0 }, { "set", "set", 's', 0 }, { "tokens", "tokens", 'i', 0 }, { "loss", "loss", 'f', 4 },
        { "ppl", "perplexity", 'f', 2 }, { "bits_per_byte", "bits per byte", 'f', 4 },
    };
    struct eval_facts all = { .set = "all" };
    int n = loader_n_valid_sets(t->loader), rc = 0;

    if (n == 0)
        return err_set(ERR_USAGE, "no set to evaluate: give token files, or data.valid in the configuration");
    struct table *tab = table_begin(form, "moe.eval/1", cols, 6);
    for (int i = 0; i < n && rc >= 0; i++) {
        struct eval_facts e;
        rc = trainer_eval(t, i, o->batches, &e);
        if (rc < 0)
            break;
        put_row(tab, t->step, &e);
        all.nll += e.nll;
        all.tokens += e.tokens;
        all.text_bytes += e.text_bytes;
    }
    if (rc >= 0 && n > 1 && form == TABLE_HUMAN) {
        table_rule(tab);
        put_row(tab, t->step, &all);
    }
    int end = table_end(tab);
    if (rc >= 0 && !isfinite(all.nll))
        return err_set(ERR_NO, "the loss is not finite");
    return rc < 0 ? rc : end;
}

static int run(void *p, int argc, char **argv)
{
    struct eval_opts *o = p;
    struct arena *a = arena_new();
    struct run_config c = { 0 };
    struct trainer *t = NULL;
    enum table_form form;
    int n_over, n_all, rc;

    train_split_operands(argc, argv, 1, &n_over);
    n_all = n_over;
    char **over = arena_array(a, (size_t)argc + 1, sizeof *over);
    memcpy(over, argv, (size_t)n_over * sizeof *over);
    char *valid = valid_override(a, argv + n_over, argc - n_over);
    if (valid)
        over[n_all++] = valid;
    if (!o->from) {
        rc = err_set(ERR_USAGE, "no model: --from PATH");
        goto out;
    }
    TRY_OUT(rc, train_form(o->json, o->tsv, &form));
    TRY_OUT(rc, run_config_from(o->from, o->config, over, n_all, &c));
    struct trainer_options to = { .what = TRAINER_MODEL | TRAINER_VALID, .device = o->device, .threads = (int)o->threads };
    TRY_OUT(rc, train_open_from(o->from, &c, &to, 0, &t));
    rc = evaluate(t, o, form);
out:
    trainer_close(t);
    run_config_fini(&c);
    arena_free(a);
    return rc;
}

const struct opt_cmd train_eval_cmd = {
    .name = "eval", .summary = "loss and bits per byte of held-out sets",
    .synopsis = "--from PATH [options] [key.path=value ...] [[NAME=]DATA ...]",
    .examples = "moe-train eval --from runs/a de=data/valid.de fr=data/valid.fr",
    .opts = opts, .opts_size = sizeof(struct eval_opts), .min_operands = 0, .max_operands = -1, .run = run,
};
