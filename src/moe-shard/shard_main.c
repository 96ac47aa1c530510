/* shard_main.c -- moe-shard: the table of its subcommands, and what they share. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/out.h"

#include "shard_cmds.h"

int shard_open(const struct shard_input *in, int argc, char **argv, struct shard_model *out)
{
    memset(out, 0, sizeof *out);
    if (!in->config)
        return err_set(ERR_USAGE, "give the configuration with -c FILE");
    TRY(run_config_load(in->config, argv, argc, &out->cfg));
    if (in->print_config) {
        char *text = config_print(out->cfg.source, 1);
        int rc = out_write(text, strlen(text));
        free(text);
        run_config_fini(&out->cfg);
        return rc < 0 ? rc : 1;
    }
    out->arena = arena_new();
    int rc = params_build(out->arena, &out->cfg.model, &out->table);
    if (rc < 0)
        shard_close(out);
    return rc;
}

void shard_close(struct shard_model *m)
{
    run_config_fini(&m->cfg);
    arena_free(m->arena);
    m->arena = NULL;
}

int shard_form(_Bool json, _Bool tsv, enum table_form *out)
{
    if (json && tsv)
        return err_set(ERR_USAGE, "--json and --tsv exclude each other");
    *out = json ? TABLE_JSON : tsv ? TABLE_TSV : TABLE_HUMAN;
    return 0;
}

int main(int argc, char **argv)
{
    struct opt_cmd cmds[] = { shard_plan_cmd, shard_show_cmd, shard_count_cmd, shard_memory_cmd, shard_fit_cmd, shard_diff_cmd,
                              shard_check_cmd };

    return opt_main("moe-shard", "who owns which parameter, and what it costs, before anything runs", cmds,
                    (int)(sizeof cmds / sizeof *cmds), argc, argv);
}
