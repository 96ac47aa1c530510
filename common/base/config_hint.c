/* config_hint.c -- what a person may have meant by a key that does not exist.
 *
 * The same word elsewhere in the tree beats a similar word here, a similar word
 * here beats what other trainers call it, and that beats a similar word
 * elsewhere.  No guess is better than a wild one. */
#include <string.h>

#include "base/config_impl.h"
#include "base/units.h"

#define MAX_NAMES 256

/* Names from well-known trainers, and ours. */
static const struct { const char *theirs, *ours; } names[] = {
    { "learning_rate", "lr" }, { "max_lr", "lr" }, { "wd", "weight_decay" },
    { "epsilon", "eps" }, { "adam_epsilon", "eps" }, { "max_grad_norm", "clip_norm" },
    { "grad_clip", "clip_norm" }, { "clip_grad", "clip_norm" }, { "gradient_clipping", "clip_norm" },
    { "max_steps", "steps" }, { "total_steps", "steps" }, { "train_iters", "steps" }, { "iterations", "steps" },
    { "batch_size", "tokens_per_step" }, { "global_batch_size", "tokens_per_step" },
    { "micro_batch_size", "micro_tokens" }, { "per_device_train_batch_size", "micro_tokens" },
    { "seq_length", "seq_len" }, { "sequence_length", "seq_len" }, { "max_seq_len", "seq_len" },
    { "block_size", "seq_len" }, { "context_length", "seq_len" }, { "dtype", "compute_dtype" }, { "precision", "compute_dtype" },
    { "warmup_steps", "warmup" }, { "warmup_iters", "warmup" }, { "decay_steps", "decay" }, { "lr_scheduler", "schedule" },
    { "scheduler", "schedule" }, { "save_interval", "every" }, { "save_steps", "every" }, { "eval_interval", "every" },
    { "n_layer", "num_hidden_layers" }, { "n_layers", "num_hidden_layers" }, { "num_layers", "num_hidden_layers" },
    { "n_head", "num_attention_heads" }, { "num_heads", "num_attention_heads" }, { "n_embd", "hidden_size" },
    { "d_model", "hidden_size" }, { "n_experts", "num_experts" }, { "top_k", "num_experts_per_tok" }, { "topk", "num_experts_per_tok" },
    { "dp", "replicas" }, { "expert_parallel", "ep" }, { "aux_loss_coef", "aux_coef" }, { "router_aux_loss_coef", "aux_coef" },
    { "z_loss_coef", "z_coef" }, { "keep_last", "keep" }, { "data_path", "path" }, { "tokenizer_path", "tokenizer" },
};

_Bool config_is_section(const struct config_key *keys, const char *path)
{
    size_t n = strlen(path);

    for (; keys->path; keys++)
        if (!strncmp(keys->path, path, n) && keys->path[n] == '.')
            return 1;
    return 0;
}

/* The n-th part of a path and the length of what stands before it. */
struct part { const char *at; size_t len, before; _Bool leaf; };

static _Bool part_of(const char *path, int n, struct part *out)
{
    const char *p = path;

    while (n--) {
        p = strchr(p, '.');
        if (!p)
            return 0;
        p++;
    }
    out->at = p;
    out->len = strcspn(p, ".");
    out->before = p == path ? 0 : (size_t)(p - path) - 1;
    out->leaf = !p[out->len];
    return 1;
}

static _Bool is_word(const struct part *p, const char *word)
{
    return strlen(word) == p->len && !strncmp(p->at, word, p->len);
}

/* Adds to a set of strings; the array never overflows, it just stops taking. */
static void add(struct arena *a, const char **v, int *n, const char *s, size_t len)
{
    for (int i = 0; i < *n; i++)
        if (strlen(v[i]) == len && !strncmp(v[i], s, len))
            return;
    if (*n < MAX_NAMES)
        v[(*n)++] = arena_printf(a, "%.*s", (int)len, s);
}

/* Names that may stand in a section, or anywhere when section is NULL. */
static int names_in(struct arena *a, const struct config_key *keys, const char *section, const char **v)
{
    struct part p;
    int n = 0;

    for (; keys->path; keys++)
        for (int i = 0; part_of(keys->path, i, &p); i++)
            if (!section || (strlen(section) == p.before && !strncmp(keys->path, section, p.before)))
                add(a, v, &n, p.at, p.len);
    return n;
}

/* "optim.muon or optim.adamw": the sections in which the word may stand. */
static const char *homes(struct arena *a, const struct config_key *keys, const char *word, const char *section)
{
    const char *v[MAX_NAMES], *list = NULL;
    struct part p;
    int n = 0;

    for (; keys->path; keys++)
        for (int i = 0; part_of(keys->path, i, &p); i++)
            if (is_word(&p, word))
                add(a, v, &n, keys->path, p.before);
    for (int i = 0; i < n; i++) {
        if (!strcmp(v[i], section))
            continue;
        const char *name = *v[i] ? v[i] : "the top level";
        list = list ? arena_printf(a, "%s%s%s", list, i + 1 == n ? " or " : ", ", name) : name;
    }
    return list;
}

static const char *belongs(struct arena *a, const struct config_key *keys, const char *section, const char *word)
{
    const char *where = homes(a, keys, word, section);

    if (!where)
        return NULL;
    if (!strcmp(where, "the top level"))
        return arena_printf(a, " (\"%s\" belongs at the top level)", word);
    return arena_printf(a, " (\"%s\" belongs under %s)", word, where);
}

const char *config_hint(struct arena *a, const struct config_key *keys, const char *section, const char *key)
{
    const char *v[MAX_NAMES], *found;
    int n = names_in(a, keys, section, v);

    /* The last part of a dotted key says more than the whole. */
    const char *dot = strrchr(key, '.');
    if (dot)
        key = dot + 1;
    if ((found = belongs(a, keys, section, key)))
        return found;
    if ((found = units_nearest(key, v, n)))
        return arena_printf(a, " (did you mean \"%s\"?)", found);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].theirs, key))
            continue;
        for (int j = 0; j < n; j++)
            if (!strcmp(v[j], names[i].ours))
                return arena_printf(a, " (it is called \"%s\" here)", v[j]);
        const char *where = homes(a, keys, names[i].ours, section);
        if (where)
            return arena_printf(a, " (it is called \"%s\" here and belongs under %s)", names[i].ours, where);
    }
    n = names_in(a, keys, NULL, v);
    if ((found = units_nearest(key, v, n)))
        return belongs(a, keys, section, found);
    return "";
}
