/* run_config.c -- the table of a run's configuration and the rules between keys. */
#include "train/run_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "model/model.h"

#define AT(m) offsetof(struct run_config, m)

/* The rows of the sections that other modules own are copied in once, since C
 * cannot splice arrays of another file into an initialiser. */
static const struct config_key own_keys[] = {
    { "init.seed", CONFIG_INT, AT(init_seed), "1", 0, 9007199254740992.0, NULL,
      "seed of the initial weights", NULL, 0 },
    { "init.std", CONFIG_FLOAT, AT(init_std), "0.02", 0, 10, NULL,
      "standard deviation of the initial matrices", NULL, 0 },
    { "tokenizer", CONFIG_STR, AT(tokenizer), "", 0, 0, NULL,
      "tokenizer.json of the data; copied into checkpoints", NULL, 0 },
    DATA_CONFIG_KEYS(struct run_config, data),
    { "train.steps", CONFIG_INT, AT(steps), "1000", 1, 1e15, NULL, "optimizer steps of the whole run", NULL, 0 },
    { "train.tokens_per_step", CONFIG_INT, AT(tokens_per_step), "4096", 1, 1e12, NULL,
      "tokens of one step over all ranks; accumulation follows from it", NULL, 0 },
    { "train.micro_tokens", CONFIG_INT, AT(micro_tokens), "4096", 1, 1e9, NULL,
      "tokens of one pass of a rank; a multiple of seq_len", NULL, 0 },
    { "train.compute_dtype", CONFIG_CHOICE, AT(compute_dtype), "fp32", 0, 0, "fp32|bf16|auto",
      "arithmetic of activations and matrix products", NULL, 0 },
    { "train.nonfinite", CONFIG_CHOICE, AT(nonfinite), "stop", 0, 0, "stop|skip",
      "what a loss or gradient that is not finite does", NULL, 0 },
    { "train.loss_chunk", CONFIG_INT, AT(loss_chunk), "1024", 1, 1e9, NULL,
      "tokens whose logits exist at one time", NULL, 0 },
    { "router.aux_coef", CONFIG_FLOAT, AT(aux_coef), "0", 0, 1e6, NULL, "weight of the balance loss", NULL, 0 },
    { "router.aux_scope", CONFIG_CHOICE, AT(aux_scope), "sequence", 0, 0, "sequence|batch",
      "counts of the balance loss: of a sequence, or of the last step", NULL, 0 },
    { "router.z_coef", CONFIG_FLOAT, AT(z_coef), "0", 0, 1e6, NULL, "weight of the router z-loss", NULL, 0 },
    { "router.bias_rate", CONFIG_FLOAT, AT(bias_rate), "1e-3", 0, 10, NULL,
      "step of the selection bias, where the family has one", NULL, 0 },
    OPTIM_CONFIG_KEYS(struct run_config, optim),
    { "memory.boundary_every", CONFIG_INT, AT(boundary_every), "1", 0, 1e6, NULL,
      "layers per kept boundary; 0 keeps every activation and computes none again", NULL, 0 },
    { "memory.state_home", CONFIG_CHOICE, AT(state_home), "device", 0, 0, "device|host",
      "where master weights and optimizer state live", NULL, 0 },
    { "memory.boundary_home", CONFIG_CHOICE, AT(boundary_home), "device", 0, 0, "device|host",
      "where boundaries wait for backward", NULL, 0 },
    { "mesh.replicas", CONFIG_INT, AT(replicas), "1", 1, 1e6, NULL, "data-parallel replicas", NULL, 0 },
    { "mesh.efsdp", CONFIG_INT_AUTO, AT(efsdp), "auto", 1, 1e6, NULL, "ranks that share one expert-parallel slice", NULL, 0 },
    { "mesh.ep", CONFIG_INT, AT(ep), "1", 1, 1e6, NULL, "expert-parallel ranks", NULL, 0 },
    { "mesh.rows_cap", CONFIG_INT_AUTO, AT(rows_cap), "auto", 1, 1e12, NULL, "expert rows a rank takes in one round", NULL, 0 },
    { "mesh.grad_dtype", CONFIG_CHOICE, AT(grad_dtype), "fp32", 0, 0, "fp32|bf16", "gradients on their way to owners, summed in fp32", NULL, 0 },
    { "mesh.split_replicas", CONFIG_BOOL, AT(split_replicas), "false", 0, 0, NULL,
      "replicas share the optimizer's work", NULL, 0 },
    { "mesh.seqs_per_gather", CONFIG_INT, AT(seqs_per_gather), "1", 1, 1e6, NULL,
      "sequences that pass through a gathered layer", NULL, 0 },
    { "mesh.gather_dtype", CONFIG_CHOICE, AT(gather_dtype), "auto", 0, 0, "auto|fp32|bf16|fp8", "weights between ranks", NULL, 0 },
    { "checkpoint.every", CONFIG_INT, AT(ckpt_every), "100", 0, 1e15, NULL,
      "steps between checkpoints; 0 saves at the end only", NULL, 0 },
    { "checkpoint.keep", CONFIG_INT, AT(ckpt_keep), "3", 0, 1e9, NULL,
      "newest checkpoints to keep, light ones not counted; 0 keeps all", NULL, 0 },
    { "checkpoint.major_every", CONFIG_INT, AT(ckpt_major_every), "0", 0, 1e15, NULL,
      "steps between checkpoints that are kept for good; 0: none", NULL, 0 },
    { "checkpoint.light_every", CONFIG_INT, AT(ckpt_light_every), "0", 0, 1e15, NULL,
      "steps between checkpoints of the model alone; 0: none", NULL, 0 },
    { "checkpoint.light_keep", CONFIG_INT, AT(ckpt_light_keep), "3", 0, 1e9, NULL,
      "newest light checkpoints to keep; 0 keeps all", NULL, 0 },
    { "checkpoint.async", CONFIG_BOOL, AT(ckpt_async), "false", 0, 0, NULL, "save while training goes on, from a copy in planned memory", NULL, 0 },
    { "eval.every", CONFIG_INT, AT(eval_every), "50", 0, 1e15, NULL, "steps between evaluations; 0: none", NULL, 0 },
    { "eval.batches", CONFIG_INT, AT(eval_batches), "16", 0, 1e15, NULL,
      "micro-batches of each set in an evaluation during training; 0: all", NULL, 0 },
};

#define N_OWN (sizeof own_keys / sizeof own_keys[0])
#define MAX_KEYS 128

static const struct config_key *all_keys(void)
{
    static struct config_key keys[MAX_KEYS];
    int n = 0;

    for (const struct config_key *k = model_config_keys; k->path; k++) {
        keys[n] = *k;
        keys[n++].offset += AT(model);
    }
    for (size_t i = 0; i < N_OWN; i++)
        keys[n++] = own_keys[i];
    BUG_ON(n >= MAX_KEYS);
    keys[n] = (struct config_key){ 0 };
    return keys;
}

const struct config_key *run_config_keys(void)
{
    return all_keys();
}

/* Collects sentences of several failed rules into one error. */
struct faults { char text[ERR_MSG_MAX]; size_t n; };

static void fault(struct faults *f, const struct config *c, const char *key, const char *what)
{
    int k = snprintf(f->text + f->n, sizeof f->text - f->n, "%s%s: %s: %s", f->n ? "\n" : "",
                     config_where(c, key), key, what);
    if (k > 0)
        f->n = f->n + (size_t)k < sizeof f->text ? f->n + (size_t)k : sizeof f->text - 1;
}

static void check_later_stages(const struct run_config *r, const struct config *c, struct faults *f)
{
    if (r->compute_dtype == COMPUTE_BF16)
        fault(f, c, "train.compute_dtype", "bf16 is not built into this version; fp32 or auto");
    if (r->state_home != 0)
        fault(f, c, "memory.state_home", "host is not built into this version; device");
    if (r->boundary_home != 0)
        fault(f, c, "memory.boundary_home", "host is not built into this version; device");
    if (r->seqs_per_gather > 1)
        fault(f, c, "mesh.seqs_per_gather", "more than 1 is not built into this version");
    if (r->gather_dtype > 1)
        fault(f, c, "mesh.gather_dtype", "not built into this version; auto or fp32");
}

int run_config_check_built(const struct run_config *r)
{
    struct faults f = { .n = 0 };
    check_later_stages(r, r->source, &f);
    return f.n ? err_set(ERR_USAGE, "%s", f.text) : 0;
}

/* 64k is 64,000; where a power of two was likely meant, say so. */
static const char *ki_hint(int64_t v, char buf[64])
{
    int64_t k = v / 1000;

    buf[0] = '\0';
    if (v % 1000 == 0 && k > 1 && (k & (k - 1)) == 0)
        snprintf(buf, 64, " (did you mean %lldKi = %lld?)", (long long)k, (long long)k * 1024);
    return buf;
}

static void check_rules(const struct run_config *r, const struct config *c, struct faults *f)
{
    char what[256], h[2][64];

    if (r->micro_tokens % r->data.seq_len) {
        snprintf(what, sizeof what, "%lld%s is not a multiple of data.seq_len %lld%s", (long long)r->micro_tokens,
                 ki_hint(r->micro_tokens, h[0]), (long long)r->data.seq_len, ki_hint(r->data.seq_len, h[1]));
        fault(f, c, "train.micro_tokens", what);
    }
    if (r->tokens_per_step % r->micro_tokens) {
        snprintf(what, sizeof what, "%lld%s is not a multiple of train.micro_tokens %lld%s",
                 (long long)r->tokens_per_step, ki_hint(r->tokens_per_step, h[0]), (long long)r->micro_tokens,
                 ki_hint(r->micro_tokens, h[1]));
        fault(f, c, "train.tokens_per_step", what);
    }
    if (r->boundary_every > r->model.num_hidden_layers)
        fault(f, c, "memory.boundary_every", "larger than the number of layers");
}

int run_config_load(const char *file, char **overrides, int n_overrides, struct run_config *out)
{
    struct run_config r = { 0 };
    struct faults f = { .n = 0 };
    const char *model_path = NULL;
    int rc;

    TRY(config_load(file, overrides, n_overrides, all_keys(), &r, &model_path, &r.source));
    if (model_path) {
        char note[300];
        TRY_OUT(rc, model_config_read(&r.model, model_path, r.data.seq_len));
        snprintf(note, sizeof note, "%s", model_path);
        TRY_OUT(rc, model_config_show(&r.model, r.source, 1, note));
    } else {
        TRY_OUT(rc, model_config_finish(&r.model, r.source));
    }
    if (r.tokenizer && !r.tokenizer[0])
        r.tokenizer = NULL;
    check_rules(&r, r.source, &f);
    if (f.n) {
        rc = err_set(ERR_USAGE, "%s", f.text);
        goto out;
    }
    TRY_OUT(rc, data_config_check(&r.data));
    TRY_OUT(rc, optim_config_check(&r.optim, r.steps, r.source));
    if (r.compute_dtype == COMPUTE_AUTO)
        TRY_OUT(rc, config_note(r.source, "train.compute_dtype", "fp32", "auto"));
    *out = r;
    return 0;
out:
    run_config_fini(&r);
    return rc;
}

int run_config_from(const char *from, const char *file, char **overrides, int n_overrides, struct run_config *out)
{
    struct arena *a = arena_new();
    char *path = NULL;
    int rc;

    for (size_t i = 0; !file && i < 2; i++) {
        path = i ? arena_printf(a, "%s/../../config.yaml", from) : arena_printf(a, "%s/config.yaml", from);
        if (fs_exists(path))
            file = path;
    }
    if (file) {
        rc = run_config_load(file, overrides, n_overrides, out);
        goto out;
    }
    path = arena_printf(a, "%s/config.json", from);
    if (!fs_exists(path)) {
        rc = err_set(ERR_NOINPUT, fs_exists(from) ? "%s: neither a run nor a model directory" : "%s: no such directory", from);
        goto out;
    }
    char **all = arena_array(a, (size_t)n_overrides + 3, sizeof *all);
    all[0] = arena_printf(a, "model=%s", path);
    all[1] = arena_strdup(a, "data.seq_len=1024");
    all[2] = arena_strdup(a, "train.micro_tokens=1024");
    for (int i = 0; i < n_overrides; i++)
        all[3 + i] = overrides[i];
    rc = run_config_load(NULL, all, n_overrides + 3, out);
out:
    arena_free(a);
    return rc;
}

void run_config_fini(struct run_config *c)
{
    if (!c)
        return;
    model_config_fini(&c->model);
    config_free(c->source);
    c->source = NULL;
}

/* The text of one key in a printed configuration: "key: value" lines with two
 * spaces of indent a level, as config_print() writes them. */
struct line { char path[256], value[512]; };

static const char *next_line(const char *at, struct line *l, char stack[8][96])
{
    while (*at) {
        const char *end = strchr(at, '\n');
        size_t n = end ? (size_t)(end - at) : strlen(at);
        size_t indent = strspn(at, " ");
        const char *colon = memchr(at, ':', n);
        const char *from = at;
        at = end ? end + 1 : at + n;
        if (!colon || from[indent] == '#' || indent / 2 >= 8)
            continue;
        size_t key_n = (size_t)(colon - from) - indent;
        snprintf(stack[indent / 2], 96, "%.*s", (int)key_n, from + indent);
        if (colon + 1 >= from + n)
            continue;           /* a section */
        int k = 0;
        l->path[0] = '\0';
        for (size_t i = 0; i <= indent / 2; i++)
            k += snprintf(l->path + k, sizeof l->path - (size_t)k, "%s%s", i ? "." : "", stack[i]);
        snprintf(l->value, sizeof l->value, "%.*s", (int)(from + n - colon - 2), colon + 2);
        return at;
    }
    return NULL;
}

static const char *value_of(const char *text, const char *path, struct line *l)
{
    char stack[8][96];

    for (const char *at = text; (at = next_line(at, l, stack));)
        if (strcmp(l->path, path) == 0)
            return l->value;
    return "(unset)";
}

/* Keys that decide which parameters there are, who owns them and what they cost. */
static _Bool is_planned(const char *path)
{
    return strncmp(path, "model.", 6) == 0 || strncmp(path, "mesh.", 5) == 0 || strcmp(path, "optim.muon.ns") == 0 ||
           strcmp(path, "optim.muon.split") == 0;
}

struct hash run_config_plan_digest(const struct run_config *c)
{
    char *text = config_print(c->source, 0);
    struct hash_stream *h = hash_begin();
    char stack[8][96];
    struct line l;

    for (const char *at = text; (at = next_line(at, &l, stack));)
        if (is_planned(l.path)) {
            hash_add(h, l.path, strlen(l.path) + 1);
            hash_add(h, l.value, strlen(l.value) + 1);
        }
    free(text);
    return hash_end(h);
}

/* Keys whose change makes another model or another order of the data. */
static _Bool is_identity(const char *path)
{
    static const char *const fixed[] = { "data.train", "data.seq_len", "data.seed", "train.tokens_per_step",
                                         "init.seed", "init.std" };

    if (strncmp(path, "model.", 6) == 0 || strcmp(path, "model") == 0)
        return 1;
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (strcmp(path, fixed[i]) == 0)
            return 1;
    return 0;
}

int run_config_compare(const struct run_config *now, const struct run_config *was, struct arena *a, char **notes)
{
    char *text = config_print(now->source, 0), *old = config_print(was->source, 0);
    char stack[8][96];
    struct line l, o;
    int rc = 0;

    *notes = arena_strdup(a, "");
    for (const char *at = text; rc == 0 && (at = next_line(at, &l, stack));) {
        const char *v = value_of(old, l.path, &o);
        if (strcmp(v, l.value) == 0)
            continue;
        if (is_identity(l.path))
            rc = err_set(ERR_USAGE, "%s: %s: %s, but the run was begun with %s; use another RUN directory",
                         config_where(now->source, l.path), l.path, l.value, v);
        else
            *notes = arena_printf(a, "%s%s%s: %s, was %s", *notes, **notes ? "\n" : "", l.path, l.value, v);
    }
    free(text);
    free(old);
    return rc;
}
