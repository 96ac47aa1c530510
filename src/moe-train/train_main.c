/* train_main.c -- moe-train: forward, backward, optimizer, checkpoints. */
#include "train_cmds.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "train/state.h"
#include "train/world.h"

/* Words before the first '=' that hold a dot, or are a top-level key, name a
 * configuration value. */
static _Bool is_override(const char *s, _Bool names)
{
    size_t n = strcspn(s, "=");

    if (!s[n] || n == 0 || fs_exists(s))
        return 0;
    if (memchr(s, '/', n))
        return 0;
    if (memchr(s, '.', n) || (n == 9 && strncmp(s, "tokenizer", n) == 0) || (n == 5 && strncmp(s, "model", n) == 0))
        return 1;
    return !names;
}

void train_split_operands(int argc, char **argv, _Bool names, int *n_over)
{
    int n = 0;

    for (int i = 0; i < argc; i++) {
        if (!is_override(argv[i], names))
            continue;
        char *s = argv[i];
        memmove(argv + n + 1, argv + n, (size_t)(i - n) * sizeof *argv);
        argv[n++] = s;
    }
    *n_over = n;
}

int train_form(_Bool json, _Bool tsv, enum table_form *out)
{
    if (json && tsv)
        return err_set(ERR_USAGE, "--json and --tsv exclude each other");
    *out = json ? TABLE_JSON : tsv ? TABLE_TSV : TABLE_HUMAN;
    return 0;
}

char *train_quoted(struct arena *a, const char *name)
{
    char *text = arena_strdup(a, "'");

    for (size_t n; (n = strcspn(name, "'")), name[n]; name += n + 1)
        text = arena_printf(a, "%s%.*s''", text, (int)n, name);
    return arena_printf(a, "%s%s'", text, name);
}

char **train_overrides(struct arena *a, int argc, char **argv, int *n, _Bool *data)
{
    char **over = arena_array(a, (size_t)argc + 1, sizeof *over);
    char *list = arena_strdup(a, "");
    int n_over;

    train_split_operands(argc, argv, 0, &n_over);
    memcpy(over, argv, (size_t)n_over * sizeof *over);
    for (int i = n_over; i < argc; i++)
        list = arena_printf(a, "%s%s{path: %s}", list, *list ? ", " : "", train_quoted(a, argv[i]));
    if (*list)
        over[n_over++] = arena_printf(a, "data.train=[%s]", list);
    if (data)
        *data = *list != '\0';
    *n = n_over;
    return over;
}

int train_open_from(const char *from, const struct run_config *c, struct trainer_options *o, unsigned ckpt_flags,
                    struct trainer **out)
{
    struct fs_blob tok = { 0 };
    struct ckpt *k = NULL;
    struct trainer *t = NULL;
    char name[4200];
    int rc;

    rc = ckpt_open(from, ckpt_flags, &k);
    if (rc == 0 && ckpt_note(k) && world_leads(o->world))
        log_warn("%s", ckpt_note(k));
    if (rc == 0)
        rc = ckpt_read_file(k, "tokenizer.json", &tok);
    TRY_OUT(rc, world_agree(o->world, rc == ERR_NOINPUT && k ? 0 : rc));
    if (tok.data) {
        snprintf(name, sizeof name, "%s/tokenizer.json", ckpt_path(k));
        o->tokenizer_name = name;
        o->tokenizer_text = tok.data;
        o->tokenizer_bytes = tok.size;
    }
    err_clear();
    TRY_OUT(rc, world_agree(o->world, trainer_open(c, o, &t)));
    TRY_OUT(rc, world_agree(o->world, state_load(t, k)));
    *out = t;
    t = NULL;
out:
    trainer_close(t);
    fs_blob_free(&tok);
    ckpt_close(k);
    return rc;
}

int main(int argc, char **argv)
{
    const struct opt_cmd cmds[] = { train_run_cmd, train_eval_cmd, train_sample_cmd, train_grad_cmd, train_verify_cmd, train_status_cmd,
                                    train_top_cmd };

    return opt_main("moe-train", "trains mixture-of-experts language models", cmds, sizeof cmds / sizeof cmds[0], argc, argv);
}
