/* convert_map.c -- names to roles to names, and an account of every tensor.
 *
 * Both sides are parameter tables of the model; a tensor is known by its role
 * (layer, field, expert), and only the tables know what a family calls it. */
#include "ckpt/convert_map.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "ckpt/cast.h"
#include "model/families_convert.h"

#define MAX_TOLD 16

struct mapping {
    struct arena *a;
    const struct ckpt *c;
    struct convert_map *m;
    enum dtype dtype;           /* asked for */
    _Bool *used;                /* [tensors of c] */
    int n_faults;
    char text[ERR_MSG_MAX - 256];
    size_t at;
};

static void fault(struct mapping *s, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void fault(struct mapping *s, const char *name, const char *fmt, ...)
{
    char what[200];
    va_list ap;
    int k;

    if (s->n_faults++ >= MAX_TOLD)
        return;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    k = snprintf(s->text + s->at, sizeof s->text - s->at, "%s%.150s: %s", s->at ? "; " : "", name, what);
    s->at = k > 0 && s->at + (size_t)k < sizeof s->text ? s->at + (size_t)k : sizeof s->text - 1;
}

/* ---- the source of one tensor */

static void mark(struct mapping *s, const struct ckpt_tensor *t) { s->used[t - ckpt_tensor(s->c, 0)] = 1; }

static const char *shape_text(struct arena *a, const struct ckpt_tensor *t)
{
    const char *s = "";

    for (int i = 0; i < t->n_dims; i++)
        s = arena_printf(a, i ? "%sx%" PRId64 : "%s%" PRId64, s, t->shape[i]);
    return t->n_dims ? s : "scalar";
}

static _Bool type_is_ours(struct mapping *s, const struct ckpt_tensor *t)
{
    if (cast_is_float(t->dtype))
        return 1;
    fault(s, t->name, "%s; F32, BF16 or F16 was expected", t->type);
    return 0;
}

/* A tensor that stands under the name of parameter p of the input. */
static const struct ckpt_tensor *whole(struct mapping *s, const struct param *p, const char *alias)
{
    const struct ckpt_tensor *t = ckpt_find(s->c, p->name);

    if (!t && alias)
        t = ckpt_find(s->c, alias);
    if (!t) {
        fault(s, p->name, "missing");
        return NULL;
    }
    mark(s, t);
    if (t->n_dims != p->n_dims || t->shape[0] != p->rows || (p->n_dims == 2 && t->shape[1] != p->cols)) {
        if (p->n_dims == 2)
            fault(s, t->name, "%s, expected %" PRId64 "x%" PRId64, shape_text(s->a, t), p->rows, p->cols);
        else
            fault(s, t->name, "%s, expected %" PRId64, shape_text(s->a, t), p->rows);
        return NULL;
    }
    return type_is_ours(s, t) ? t : NULL;
}

/* Fused experts of a layer, under the one name that transformers gives them. */
struct fused { const struct ckpt_tensor *gate_up, *down; };

static const struct ckpt_tensor *fused_tensor(struct mapping *s, int layer, const char *what)
{
    const char *name = arena_printf(s->a, "model.layers.%d.mlp.experts.%s", layer, what);
    const struct ckpt_tensor *t = ckpt_find(s->c, name);

    return t ? t : ckpt_find(s->c, arena_printf(s->a, "%s.weight", name));
}

static _Bool fused_fits(struct mapping *s, const struct ckpt_tensor *t, int64_t rows, int64_t cols)
{
    int64_t e = s->m->in.num_experts;

    if (t->n_dims != 3 || t->shape[0] != e || t->shape[1] != rows || t->shape[2] != cols) {
        fault(s, t->name, "%s, expected %" PRId64 "x%" PRId64 "x%" PRId64 " (experts, rows, columns)", shape_text(s->a, t), e, rows, cols);
        return 0;
    }
    return type_is_ours(s, t);
}

/* True when the layer has them; then they are all that its experts come from. */
static _Bool find_fused(struct mapping *s, int layer, struct fused *f)
{
    int64_t h = s->m->in.hidden_size, i = s->m->in.moe_intermediate_size;

    f->gate_up = fused_tensor(s, layer, "gate_up_proj");
    f->down = fused_tensor(s, layer, "down_proj");
    if (!f->gate_up && !f->down)
        return 0;
    if (!f->gate_up || !f->down)
        fault(s, f->gate_up ? f->gate_up->name : f->down->name, "fused experts without their %s", f->gate_up ? "down_proj" : "gate_up_proj");
    if (f->gate_up) {
        mark(s, f->gate_up);
        if (!fused_fits(s, f->gate_up, 2 * i, h))
            f->gate_up = NULL;
    }
    if (f->down) {
        mark(s, f->down);
        if (!fused_fits(s, f->down, h, i))
            f->down = NULL;
    }
    return 1;
}

/* ---- all of them */

static void put(struct mapping *s, int i_out, const struct ckpt_tensor *from, int64_t first)
{
    const struct param *p = &s->m->table_out.v[i_out];

    s->m->items[i_out] = (struct convert_item){ p, from, first, p->rows * p->cols, DT_N };
}

/* The output's tensor i_out from the input's i_in; -1: there is none. */
static void pair(struct mapping *s, int i_out, int i_in, const char *alias)
{
    if (i_out < 0 && i_in < 0)
        return;
    if (i_in < 0) {
        put(s, i_out, NULL, 0);
        return;
    }
    const struct ckpt_tensor *t = whole(s, &s->m->table_in.v[i_in], alias);

    if (i_out >= 0)
        put(s, i_out, t, 0);
    else if (t && families_must_be_zero(&s->m->table_in.v[i_in]))
        s->m->zero[s->m->n_zero++] = t;
    else if (t)
        s->m->unused[s->m->n_unused++] = t;
}

static void map_experts(struct mapping *s, int layer, const struct fused *f)
{
    const struct convert_map *m = s->m;
    int in = m->table_in.layers[layer].experts, out = m->table_out.layers[layer].experts;
    int64_t matrix = m->in.hidden_size * m->in.moe_intermediate_size;

    for (int e = 0; e < m->in.num_experts; e++)
        for (int part = 0; part < 3; part++) {
            int k = 3 * e + part;

            if (!f)
                pair(s, out + k, in + k, NULL);
            else if (part < 2)
                put(s, out + k, f->gate_up, (2 * (int64_t)e + part) * matrix);
            else
                put(s, out + k, f->down, e * matrix);
        }
}

/* The fields of struct layer_params but the last, experts, are indices of whole tensors. */
static void map_layer(struct mapping *s, int layer)
{
    const struct layer_params *in = &s->m->table_in.layers[layer], *out = &s->m->table_out.layers[layer];
    enum { N = offsetof(struct layer_params, experts) / sizeof(int) };
    int fi[N], fo[N];
    struct fused f;
    _Bool is_fused = in->router >= 0 && find_fused(s, layer, &f);
    const char *alias = is_fused ? arena_printf(s->a, "model.layers.%d.mlp.gate.weight", layer) : NULL;

    memcpy(fi, in, sizeof fi);
    memcpy(fo, out, sizeof fo);
    for (int i = 0; i < N; i++)
        pair(s, fo[i], fi[i], fi[i] >= 0 && fi[i] == in->router ? alias : NULL);
    if (in->router >= 0)
        map_experts(s, layer, is_fused ? &f : NULL);
}

/* glm4_moe keeps multi-token prediction in layers behind the last one. */
static _Bool is_prediction(const struct model_config *m, const char *name)
{
    static const char prefix[] = "model.layers.";
    char *end;
    long layer;

    if (m->model_type != MODEL_GLM4_MOE || strncmp(name, prefix, sizeof prefix - 1) != 0)
        return 0;
    layer = strtol(name + sizeof prefix - 1, &end, 10);
    return *end == '.' && layer >= m->num_hidden_layers;
}

/* What nobody asked for. */
static void account(struct mapping *s)
{
    for (int64_t i = 0; i < ckpt_n_tensors(s->c); i++) {
        const struct ckpt_tensor *t = ckpt_tensor(s->c, i);

        if (s->used[i] || t->is_optim)
            continue;
        if (is_prediction(&s->m->in, t->name))
            s->m->unused[s->m->n_unused++] = t;
        else if (!strcmp(t->name, "lm_head.weight"))
            fault(s, t->name, "there, although config.json ties it to the embedding");
        else
            fault(s, t->name, strstr(t->name, ".experts.") ? "not used: a second layout of the experts, or no such expert" : "not used by the family");
    }
}

static void choose_types(struct mapping *s)
{
    const struct ckpt_tensor *embed = s->m->items[s->m->table_out.embed].from;

    s->m->dtype = s->dtype != DT_N ? s->dtype : embed ? embed->dtype : DT_F32;
    for (int i = 0; i < s->m->table_out.n; i++) {
        struct convert_item *it = &s->m->items[i];

        it->dtype = it->param->kind == PARAM_ROUTER_BIAS ? DT_F32 : s->dtype != DT_N ? s->dtype : it->from ? it->from->dtype : s->m->dtype;
    }
}

static int map_all(struct mapping *s)
{
    struct convert_map *m = s->m;
    size_t n = (size_t)ckpt_n_tensors(s->c) + 1;

    s->used = arena_array(s->a, n, sizeof *s->used);
    m->items = arena_array(s->a, (size_t)m->table_out.n + 1, sizeof *m->items);
    m->zero = arena_array(s->a, n, sizeof *m->zero);
    m->unused = arena_array(s->a, n, sizeof *m->unused);
    pair(s, m->table_out.embed, m->table_in.embed, NULL);
    for (int l = 0; l < m->in.num_hidden_layers; l++)
        map_layer(s, l);
    pair(s, m->table_out.norm, m->table_in.norm, NULL);
    if (!m->in.tie_word_embeddings)
        pair(s, m->table_out.head, m->table_in.head, NULL);
    account(s);
    if (s->n_faults)
        return err_set(ERR_DATA, "%s: %d tensor%s do%s not fit %s: %s%s", ckpt_path(s->c), s->n_faults, s->n_faults == 1 ? "" : "s",
                       s->n_faults == 1 ? "es" : "", model_type_name(m->in.model_type), s->text, s->n_faults > MAX_TOLD ? "; ..." : "");
    choose_types(s);
    return 0;
}

/* ---- configurations */

/* By name first: "not one of five" would not say what can be done. */
static int check_family(const char *path, const struct fs_blob *text)
{
    json_t *top;
    const char *type, *why;
    int rc = 0;

    TRY(json_load_text(path, text->data, text->size, &top));
    type = json_string_value(json_object_get(top, "model_type"));
    why = type ? convert_refusal(type) : NULL;
    if (why)
        rc = err_set(ERR_USAGE, "%s: %s", path, why);
    json_decref(top);
    return rc;
}

int convert_map_make(struct arena *a, const struct ckpt *c, int family, enum dtype dtype, struct convert_map *m)
{
    struct mapping s = { .a = a, .c = c, .m = m, .dtype = dtype };
    struct fs_blob text;
    const char *path = fs_join(a, ckpt_path(c), "config.json");
    int rc;

    memset(m, 0, sizeof *m);
    rc = ckpt_read_file(c, "config.json", &text);       /* against its hash, if it has one */
    if (rc == ERR_NOINPUT)
        return err_set(ERR_NOINPUT, "%s: no config.json, so it is not known what the tensors mean", ckpt_path(c));
    if (rc < 0)
        return rc;
    rc = check_family(path, &text);
    fs_blob_free(&text);
    if (rc < 0)
        return rc;
    TRY(model_config_read(&m->in, path, 0));
    TRY(families_convert(&m->in, family, path, &m->out));
    TRY(params_build(a, &m->in, &m->table_in));
    TRY(params_build(a, &m->out, &m->table_out));
    return map_all(&s);
}

void convert_map_fini(struct convert_map *m)
{
    model_config_fini(&m->in);
    model_config_fini(&m->out);
}
