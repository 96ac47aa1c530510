/* ckpt_ls.c -- moe-ckpt ls: one line per tensor.
 *
 * Headers only: no tensor byte is read, however large the checkpoint is. */
#include <fnmatch.h>
#include <string.h>

#include "base/err.h"
#include "model/params.h"
#include "shard/plan.h"

#include "ckpt_cmds.h"

struct ls {
    struct opt_common common;
    _Bool all, json, tsv;
    const char *plan;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'a', "all", NULL, NULL, "optimizer tensors too", offsetof(struct ls, all), 0, 0 },
    { OPT_STR, 0, "plan", "FILE", NULL, "a column with the ranks that own each tensor in this plan", offsetof(struct ls, plan), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object per tensor", offsetof(struct ls, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated columns", offsetof(struct ls, tsv), 0, 0 },
    OPT_END
};

static const struct table_col cols[] = {
    { "name", "tensor", 's', 0 },
    { "dtype", "dtype", 's', 0 },
    { "shape", "shape", 's', 0 },
    { "elements", "elements", 'i', 0 },
    { "bytes", "size", 'b', 0 },
    { "file", "file", 's', 0 },
    { "owner", "owner", 's', 0 },               /* with --plan */
};

#define N_COLS (sizeof cols / sizeof *cols)

/* ---- owners */

struct owners {
    struct model_config model;
    struct param_table table;
    struct plan *plan;
    const char **text;          /* [table.n] "0", "0-3"; NULL: no part */
    int *last;                  /* [table.n] the highest so far */
};

static void add_owner(struct arena *a, struct owners *o, const struct plan_part *p)
{
    const char *text = o->text[p->i_param];
    int last = o->last[p->i_param];

    if (text && p->owner == last)
        return;
    if (!text)
        o->text[p->i_param] = arena_printf(a, "%d", p->owner);
    else if (p->owner == last + 1 && strrchr(text, '-') && !strchr(strrchr(text, '-'), ','))
        o->text[p->i_param] = arena_printf(a, "%.*s-%d", (int)(strrchr(text, '-') - text), text, p->owner);
    else
        o->text[p->i_param] = arena_printf(a, p->owner == last + 1 ? "%s-%d" : "%s,%d", text, p->owner);
    o->last[p->i_param] = p->owner;
}

/* The digest of the configuration in the second line of a plan. */
static int plan_config(const char *path, struct hash *out)
{
    static const char lead[] = "# config ";
    struct fs_blob text;
    const char *at;
    char hex[33];

    TRY(fs_read(path, &text));
    at = memchr(text.data, '\n', text.size);
    if (at && strlen(at + 1) > sizeof lead + 31 && !strncmp(at + 1, lead, sizeof lead - 1)) {
        memcpy(hex, at + sizeof lead, 32);
        hex[32] = '\0';
    } else {
        hex[0] = '\0';
    }
    fs_blob_free(&text);
    return hash_parse(hex, out) ? 0 : err_set(ERR_DATA, "%s: not a plan", path);
}

/* The plan must be the one the checkpoint was saved under: the hash of its lines
 * says so, whatever configuration it names. */
static int read_owners(struct arena *a, const struct ckpt *c, const char *path, struct owners *o)
{
    const struct manifest *m = ckpt_manifest(c);
    struct fs_blob text;
    struct hash is, config;

    if (!m)
        return err_set(ERR_DATA, "%s: no MANIFEST.json, so no plan to compare %s with", ckpt_path(c), path);
    TRY(ckpt_read_file(c, "config.json", &text));       /* against its hash */
    fs_blob_free(&text);
    TRY(model_config_read(&o->model, fs_join(a, ckpt_path(c), "config.json"), 0));
    TRY(params_build(a, &o->model, &o->table));
    TRY(plan_config(path, &config));
    TRY(plan_load(path, &o->table, config, &o->plan));
    is = plan_hash(o->plan);
    if (!hash_eq(&is, &m->info.plan))
        return err_set(ERR_DATA, "%s: not the plan of %s (%s, MANIFEST.json says %s)", path, ckpt_path(c), is.hex, m->info.plan.hex);
    o->text = arena_array(a, (size_t)o->table.n + 1, sizeof *o->text);
    o->last = arena_array(a, (size_t)o->table.n + 1, sizeof *o->last);
    for (int64_t i = 0; i < plan_n_parts(o->plan); i++)
        add_owner(a, o, plan_part(o->plan, i));
    return 0;
}

/* Optimizer tensors lie with their parameter: NAME.momentum, NAME.exp_avg ... */
static const char *owner_of(struct arena *a, const struct owners *o, const struct ckpt_tensor *t)
{
    const char *dot = strrchr(t->name, '.');
    int i = params_find(&o->table, t->is_optim && dot ? arena_printf(a, "%.*s", (int)(dot - t->name), t->name) : t->name);

    return i < 0 ? NULL : o->text[i];
}

static _Bool wanted(const struct ckpt_tensor *t, _Bool all, char **patterns, int n)
{
    if (t->is_optim && !all)
        return 0;
    for (int i = 0; i < n; i++)
        if (fnmatch(patterns[i], t->name, 0) == 0)
            return 1;
    return n == 0;
}

static int ls(void *options, int argc, char **argv)
{
    const struct ls *o = options;
    struct owners owners = { 0 };
    struct arena *a;
    struct ckpt *c;
    struct table *table;
    enum table_form form;
    int64_t shown = 0;
    int rc;

    TRY(ckpt_cmds_form(o->json, o->tsv, &form));
    TRY(ckpt_cmds_open(argv[0], &c));
    a = arena_new();
    if (o->plan)
        TRY_OUT(rc, read_owners(a, c, o->plan, &owners));
    table = table_begin(form, "moe.ckpt-ls/1", cols, o->plan ? N_COLS : N_COLS - 1);
    for (int64_t i = 0; i < ckpt_n_tensors(c); i++) {
        const struct ckpt_tensor *t = ckpt_tensor(c, i);
        const char *shape = ckpt_cmds_shape(a, t->n_dims, t->shape);

        if (!wanted(t, o->all, argv + 1, argc - 1))
            continue;
        shown++;
        table_str(table, t->name);
        table_str(table, t->type);
        if (shape)
            table_str(table, shape);
        else
            table_none(table);
        table_int(table, ckpt_cmds_count(t));
        table_int(table, (int64_t)t->bytes);
        table_str(table, t->file);
        if (o->plan && owner_of(a, &owners, t))
            table_str(table, owner_of(a, &owners, t));
        else if (o->plan)
            table_none(table);
    }
    rc = table_end(table);
    if (rc == 0 && argc > 1 && !shown)
        rc = err_set(ERR_NO, "%s: no tensor has such a name", ckpt_path(c));
out:
    plan_free(owners.plan);
    model_config_fini(&owners.model);
    arena_free(a);
    ckpt_close(c);
    return rc;
}

const struct opt_cmd ckpt_ls_cmd = {
    "ls", "list the tensors of a checkpoint", "[-a] [--plan FILE] [--json | --tsv] CKPT [PATTERN...]",
    "moe-ckpt ls runs/a\n"
    "moe-ckpt ls runs/a '*.layers.0.*'\n"
    "moe-ckpt ls --tsv hf/ | awk -F'\\t' '{ n += $5 } END { print n }'\n",
    opts, sizeof(struct ls), 1, -1, ls
};
