/* ckpt_ls.c -- moe-ckpt ls: one line per tensor.
 *
 * Headers only: no tensor byte is read, however large the checkpoint is. */
#include <fnmatch.h>
#include <string.h>

#include "base/err.h"

#include "ckpt_cmds.h"

struct ls {
    struct opt_common common;
    _Bool all, json, tsv;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'a', "all", NULL, NULL, "optimizer tensors too", offsetof(struct ls, all), 0, 0 },
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
};

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
    struct arena *a;
    struct ckpt *c;
    struct table *table;
    enum table_form form;
    int64_t shown = 0;
    int rc;

    TRY(ckpt_cmds_form(o->json, o->tsv, &form));
    TRY(ckpt_cmds_open(argv[0], &c));
    a = arena_new();
    table = table_begin(form, "moe.ckpt-ls/1", cols, sizeof cols / sizeof *cols);
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
    }
    rc = table_end(table);
    if (rc == 0 && argc > 1 && !shown)
        rc = err_set(ERR_NO, "%s: no tensor has such a name", ckpt_path(c));
    arena_free(a);
    ckpt_close(c);
    return rc;
}

const struct opt_cmd ckpt_ls_cmd = {
    "ls", "list the tensors of a checkpoint", "[-a] [--json | --tsv] CKPT [PATTERN...]",
    "moe-ckpt ls runs/a\n"
    "moe-ckpt ls runs/a '*.layers.0.*'\n"
    "moe-ckpt ls --tsv hf/ | awk -F'\\t' '{ n += $5 } END { print n }'\n",
    opts, sizeof(struct ls), 1, -1, ls
};
