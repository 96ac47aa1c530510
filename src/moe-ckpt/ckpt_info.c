/* ckpt_info.c -- moe-ckpt info: what it is, who made it, how large its parts are.
 *
 * Headers, MANIFEST and config.json only.  Tensors are grouped by their names
 * with the numbers taken out, so 86,000 expert matrices become three lines. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/out.h"
#include "base/units.h"

#include "ckpt_cmds.h"

struct info {
    struct opt_common common;
    _Bool json;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object", offsetof(struct info, json), 0, 0 },
    OPT_END
};

/* Tensors whose names differ only in numbers, and whose types and shapes agree. */
struct group { const char *name, *type, *shape; int64_t tensors, elements; uint64_t bytes; _Bool is_optim; };

struct facts {
    struct ckpt *c;
    struct arena *a;
    struct group *groups;       /* [n_groups] in the order of appearance */
    int n_groups;
    int64_t tensors[2], elements[2];    /* model, optimizer */
    uint64_t bytes[2];
    json_t *config;             /* config.json, or NULL */
    struct st_file *file;       /* a single file, for its __metadata__; or NULL */
};

/* "model.layers.12.mlp" becomes "model.layers.*.mlp". */
static const char *pattern(struct arena *a, const char *name)
{
    char *out = arena_alloc(a, strlen(name) + 1), *p = out;

    for (const char *s = name; *s;) {
        if ((s == name || s[-1] == '.') && isdigit((unsigned char)*s)) {
            const char *end = s + strspn(s, "0123456789");

            if (*end == '.' || !*end) {
                *p++ = '*';
                s = end;
                continue;
            }
        }
        *p++ = *s++;
    }
    return out;
}

static int by_kind(const void *pa, const void *pb)
{
    const struct group *a = pa, *b = pb;
    int c = (int)a->is_optim - (int)b->is_optim;

    if (!c) c = strcmp(a->name, b->name);
    if (!c) c = strcmp(a->type, b->type);
    if (!c) c = strcmp(a->shape, b->shape);
    return c;
}

/* Sorted, then neighbours merged. */
static void make_groups(struct facts *f)
{
    int64_t n = ckpt_n_tensors(f->c);
    struct group *g = arena_array(f->a, (size_t)n + 1, sizeof *g);

    for (int64_t i = 0; i < n; i++) {
        const struct ckpt_tensor *t = ckpt_tensor(f->c, i);
        const char *shape = ckpt_cmds_shape(f->a, t->n_dims, t->shape);

        g[i] = (struct group){ pattern(f->a, t->name), t->type, shape ? shape : "-", 1, ckpt_cmds_count(t), t->bytes, t->is_optim };
        f->tensors[t->is_optim]++;
        f->elements[t->is_optim] += g[i].elements;
        f->bytes[t->is_optim] += t->bytes;
    }
    qsort(g, (size_t)n, sizeof *g, by_kind);
    f->groups = g;
    for (int64_t i = 0; i < n; i++) {
        struct group *last = f->n_groups ? &g[f->n_groups - 1] : NULL;

        if (last && !by_kind(last, &g[i])) {
            last->tensors++;
            last->elements += g[i].elements;
            last->bytes += g[i].bytes;
        } else {
            g[f->n_groups++] = g[i];
        }
    }
}

static int load_config(struct facts *f)
{
    struct fs_blob b;
    int rc = ckpt_read_file(f->c, "config.json", &b);

    if (rc == ERR_NOINPUT)
        return 0;
    TRY(rc);
    rc = json_load_text("config.json", b.data, b.size, &f->config);
    fs_blob_free(&b);
    return rc;
}

static const char *kind_name(const struct facts *f)
{
    switch (ckpt_kind(f->c)) {
    case CKPT_COMPLETE:
        switch (ckpt_manifest(f->c)->info.kind) {
        case MANIFEST_LIGHT: return "light checkpoint";
        case MANIFEST_MAJOR: return "major checkpoint";
        default: return "checkpoint";
        }
    case CKPT_HF_DIR: return "model directory";
    default: return "safetensors file";
    }
}

/* The keys of config.json that say how large a model is, under any family's name. */
static const char *const config_keys[][4] = {
    { "layers", "num_hidden_layers" }, { "hidden", "hidden_size" }, { "heads", "num_attention_heads" },
    { "kv heads", "num_key_value_heads" }, { "experts", "num_experts", "n_routed_experts", "num_local_experts" },
    { "per token", "num_experts_per_tok" }, { "vocabulary", "vocab_size" },
};

#define N_KEYS (sizeof config_keys / sizeof *config_keys)

static _Bool config_int(const struct facts *f, size_t i, int64_t *out)
{
    for (int k = 1; k < 4 && config_keys[i][k]; k++) {
        json_t *v = json_object_get(f->config, config_keys[i][k]);

        if (json_is_integer(v)) {
            *out = json_integer_value(v);
            return 1;
        }
    }
    return 0;
}

static const char *model_type(const struct facts *f)
{
    const char *s = f->config ? json_string_value(json_object_get(f->config, "model_type")) : NULL;

    for (const char *c = s; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return NULL;        /* no name of a family, and no friend of the terminal */
    return s;
}

/* ---- for people */

static void line(const char *key, const char *value) { out_printf("%-12s %s\n", key, value); }

/* Text from a file, safe to print. */
static const char *plain(struct arena *a, const char *s)
{
    char *copy = arena_strdup(a, s);

    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return copy;
}

static void print_manifest(const struct facts *f)
{
    const struct manifest_info *m = &ckpt_manifest(f->c)->info;
    struct arena *a = f->a;
    char n[32];
    const char *args = "";

    line("step", units_count(n, m->step));
    line("tokens", units_count(n, m->tokens));
    for (int i = 0; i < m->n_argv; i++)
        args = arena_printf(a, "%s %s", args, m->argv[i]);
    line("made by", plain(a, arena_printf(a, "%s%s%s", m->tool, *args ? ":" : "", args)));
    line("run", arena_printf(a, "%s, restart %" PRId64, m->run_id.hex, m->restart));
    line("layout", arena_printf(a, "%" PRId64 "x%" PRId64 "x%" PRId64 " (replicas x efsdp x ep), %" PRId64 " thread%s, kernels %s",
                                m->replicas, m->efsdp, m->ep, m->threads, m->threads == 1 ? "" : "s", plain(a, m->kernels)));
    for (int i = 0; i < m->n_sets; i++)
        line(i ? "" : "data", arena_printf(a, "%s: %s windows", plain(a, m->sets[i].path), units_count(n, m->sets[i].windows)));
}

static void print_model(const struct facts *f)
{
    const char *s = model_type(f) ? model_type(f) : "unknown family";
    char n[32];
    int64_t v;

    for (size_t i = 0; i < N_KEYS; i++)
        if (config_int(f, i, &v))
            s = arena_printf(f->a, "%s, %s %s", s, config_keys[i][0], units_count(n, v));
    line("model", s);
}

static void print_sum(const struct facts *f, const char *key, int i)
{
    char tensors[32], elements[32], bytes[32];

    line(key, arena_printf(f->a, "%s in %s tensor%s, %s", units_count(elements, f->elements[i]),
                           units_count(tensors, f->tensors[i]), f->tensors[i] == 1 ? "" : "s", units_bytes(bytes, (double)f->bytes[i])));
}

static int print(const struct facts *f)
{
    static const struct table_col cols[] = {
        { "name", "tensors", 's', 0 }, { "count", "count", 'i', 0 }, { "dtype", "dtype", 's', 0 },
        { "shape", "shape", 's', 0 }, { "elements", "elements", 'i', 0 }, { "bytes", "size", 'b', 0 },
    };
    struct table *t;

    line("path", ckpt_path(f->c));
    line("kind", arena_printf(f->a, "%s%s", kind_name(f),
                              !ckpt_manifest(f->c) ? " (no MANIFEST.json, so no checksums)"
                              : ckpt_manifest(f->c)->info.kind == MANIFEST_LIGHT ? " (the model alone: no run can go on from it)" : ""));
    for (int i = 0; f->file && i < st_head(f->file)->n_meta; i++)
        line(i ? "" : "metadata", plain(f->a, arena_printf(f->a, "%s = %s", st_head(f->file)->meta[i].key,
                                                           st_head(f->file)->meta[i].value)));
    if (f->config)
        print_model(f);
    if (ckpt_manifest(f->c))
        print_manifest(f);
    print_sum(f, "parameters", 0);
    if (f->tensors[1])
        print_sum(f, "optimizer", 1);
    out_printf("\n");
    t = table_begin(TABLE_HUMAN, "moe.ckpt-info/1", cols, sizeof cols / sizeof *cols);
    for (int i = 0; i < f->n_groups; i++) {
        const struct group *g = &f->groups[i];

        if (i && g->is_optim && !g[-1].is_optim)
            table_rule(t);
        table_str(t, g->name);
        table_int(t, g->tensors);
        table_str(t, g->type);
        table_str(t, g->shape);
        table_int(t, g->elements);
        table_int(t, (int64_t)g->bytes);
    }
    return table_end(t);
}

/* ---- for programs */

static void put_sum(struct json_out *j, const struct facts *f, const char *key, int i)
{
    json_obj(j, key);
    json_put_int(j, "tensors", f->tensors[i]);
    json_put_int(j, "elements", f->elements[i]);
    json_put_int(j, "bytes", (int64_t)f->bytes[i]);
    json_obj_end(j);
}

static void put_manifest(struct json_out *j, const struct manifest_info *m)
{
    json_put_int(j, "step", m->step);
    json_put_int(j, "tokens", m->tokens);
    json_put_str(j, "tool", m->tool);
    json_put_str(j, "run_id", m->run_id.hex);
    json_put_int(j, "restart", m->restart);
    json_put_str(j, "config", m->config.hex);
    json_put_str(j, "plan", m->plan.hex);
    json_arr(j, "mesh");
    json_put_int(j, NULL, m->replicas);
    json_put_int(j, NULL, m->efsdp);
    json_put_int(j, NULL, m->ep);
    json_arr_end(j);
    json_put_int(j, "threads", m->threads);
    json_put_str(j, "kernels", m->kernels);
}

static int print_json(const struct facts *f)
{
    struct json_out *j = json_new();
    const char *text;
    size_t n;
    int rc;

    json_obj(j, NULL);
    json_put_str(j, "schema", "moe.ckpt-info/1");
    json_put_str(j, "path", ckpt_path(f->c));
    json_put_str(j, "kind", kind_name(f));
    json_put_bool(j, "checksums", ckpt_manifest(f->c) != NULL);
    json_put_str(j, "model_type", model_type(f));
    if (ckpt_manifest(f->c))
        put_manifest(j, &ckpt_manifest(f->c)->info);
    if (f->file) {
        json_obj(j, "metadata");
        for (int i = 0; i < st_head(f->file)->n_meta; i++)
            json_put_str(j, st_head(f->file)->meta[i].key, st_head(f->file)->meta[i].value);
        json_obj_end(j);
    }
    put_sum(j, f, "model", 0);
    put_sum(j, f, "optimizer", 1);
    json_arr(j, "groups");
    for (int i = 0; i < f->n_groups; i++) {
        const struct group *g = &f->groups[i];

        json_obj(j, NULL);
        json_put_str(j, "name", g->name);
        json_put_bool(j, "optimizer", g->is_optim);
        json_put_int(j, "count", g->tensors);
        json_put_str(j, "dtype", g->type);
        json_put_str(j, "shape", strcmp(g->shape, "-") ? g->shape : NULL);
        json_put_int(j, "elements", g->elements);
        json_put_int(j, "bytes", (int64_t)g->bytes);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
    text = json_text(j, &n);
    rc = out_write(text, n);
    if (rc == 0)
        rc = out_write("\n", 1);
    json_free(j);
    return rc;
}

static int info(void *options, int argc, char **argv)
{
    const struct info *o = options;
    struct facts f = { .a = arena_new() };
    int rc;

    (void)argc;
    TRY_OUT(rc, ckpt_cmds_open(argv[0], &f.c));
    make_groups(&f);
    TRY_OUT(rc, load_config(&f));
    if (ckpt_kind(f.c) == CKPT_ONE_FILE)
        TRY_OUT(rc, st_open(ckpt_path(f.c), &f.file));
    rc = o->json ? print_json(&f) : print(&f);
out:
    json_decref(f.config);
    st_close(f.file);
    ckpt_close(f.c);
    arena_free(f.a);
    return rc;
}

const struct opt_cmd ckpt_info_cmd = {
    "info", "show what a checkpoint is and how large its parts are", "[--json] CKPT",
    "moe-ckpt info runs/a\n"
    "moe-ckpt info --json runs/a/latest\n",
    opts, sizeof(struct info), 1, 1, info
};
