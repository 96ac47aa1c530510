/* ckpt_main.c -- moe-ckpt: the table of its subcommands. */
#include <string.h>

#include "base/err.h"
#include "base/log.h"

#include "ckpt_cmds.h"

int ckpt_cmds_open(const char *path, struct ckpt **out)
{
    TRY(ckpt_open(path, 0, out));
    if (ckpt_note(*out))
        log_warn("%s", ckpt_note(*out));
    return 0;
}

int ckpt_cmds_form(_Bool json, _Bool tsv, enum table_form *out)
{
    if (json && tsv)
        return err_set(ERR_USAGE, "--json and --tsv exclude each other");
    *out = json ? TABLE_JSON : tsv ? TABLE_TSV : TABLE_HUMAN;
    return 0;
}

const char *ckpt_cmds_shape(struct arena *a, int n_dims, const int64_t *shape)
{
    const char *s = NULL;

    for (int i = 0; i < n_dims; i++)
        s = s ? arena_printf(a, "%sx%lld", s, (long long)shape[i]) : arena_printf(a, "%lld", (long long)shape[i]);
    return s;
}

int64_t ckpt_cmds_count(const struct ckpt_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

int main(int argc, char **argv)
{
    const struct opt_cmd cmds[] = { ckpt_ls_cmd, ckpt_info_cmd, ckpt_verify_cmd, ckpt_cat_cmd, ckpt_diff_cmd, ckpt_convert_cmd };

    return opt_main("moe-ckpt", "look at, check, compare and convert checkpoints", cmds, sizeof cmds / sizeof *cmds, argc, argv);
}
