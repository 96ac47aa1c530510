/* ckpt_main.c -- moe-ckpt: the table of its subcommands. */
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/units.h"
#include "base/version.h"

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

struct derive_maker ckpt_cmds_maker(struct arena *a, const char *how)
{
    int n;
    char **argv = opt_argv(&n);

    return (struct derive_maker){ arena_printf(a, "moe-ckpt %s", moe_version), (const char *const *)argv, n, how };
}

void ckpt_cmds_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct ckpt_cmds_bar *bar = ctx;

    if (!bar->p)
        bar->p = progress_begin(bar->what, total, "B");
    progress_set(bar->p, done);
}

void ckpt_cmds_progress_end(struct ckpt_cmds_bar *bar)
{
    if (bar->p)
        progress_end(bar->p);
    bar->p = NULL;
}

int ckpt_cmds_written(const struct ckpt_cmds_written *w, _Bool json)
{
    static const struct table_col cols[] = {
        { "path", "path", 's', 0 }, { "how", "how", 's', 0 }, { "current", "current", '?', 0 }, { "tensors", "tensors", 'i', 0 },
        { "files", "files", 'i', 0 }, { "bytes", "bytes", 'b', 0 }, { "seconds", "seconds", 'f', 3 },
    };
    char bytes[32], rate[32], n[32];
    struct table *t;

    if (json) {
        t = table_begin(TABLE_JSON, "moe.ckpt-written/1", cols, sizeof cols / sizeof *cols);
        table_str(t, w->path);
        table_str(t, w->how);
        table_int(t, w->current);
        table_int(t, w->tensors);
        table_int(t, w->files);
        table_int(t, (int64_t)w->bytes);
        table_num(t, w->seconds);
        return table_end(t);
    }
    if (w->current)
        log_info("%s: up to date", w->path);
    else
        log_info("%s: %s: %s tensors in %d file%s, %s in %.2f s (%s/s)", w->path, w->how, units_count(n, w->tensors), (int)w->files,
                 w->files == 1 ? "" : "s", units_bytes(bytes, (double)w->bytes), w->seconds,
                 units_bytes(rate, (double)w->bytes / (w->seconds > 1e-6 ? w->seconds : 1e-6)));
    return 0;
}

int main(int argc, char **argv)
{
    const struct opt_cmd cmds[] = { ckpt_ls_cmd, ckpt_info_cmd, ckpt_verify_cmd, ckpt_cat_cmd, ckpt_diff_cmd, ckpt_convert_cmd, ckpt_gc_cmd,
                                    ckpt_reshard_cmd, ckpt_average_cmd, ckpt_pack_cmd, ckpt_unpack_cmd, ckpt_card_cmd };

    return opt_main("moe-ckpt", "look at, check, compare and rewrite checkpoints", cmds, sizeof cmds / sizeof *cmds, argc, argv);
}
