/* config_json.c -- a model's config.json, read strictly and written so that
 * transformers 4 and 5 both load it.
 *
 * Every key of the file is looked up in the family's tables; an unknown one is
 * an error, because a key we do not know may change what the model computes.
 * Refuses scaled RoPE, sliding windows shorter than the sequences, dropout,
 * quantization and dense layers other than leading ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/units.h"
#include "model/families.h"

struct reader {
    const json_t *top;
    const struct family *fam;
    struct model_config *m;
    struct family_faults *f;
    int64_t seq_len;
};

static _Bool is_neutral(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

/* A scalar as FAMILY_ONLY compares it. */
static const char *scalar_text(const json_t *v, char buf[32])
{
    if (json_is_string(v))
        return json_string_value(v);
    if (json_is_integer(v)) {
        snprintf(buf, 32, "%lld", (long long)json_integer_value(v));
        return buf;
    }
    return json_is_boolean(v) ? (json_is_true(v) ? "true" : "false") : "";
}

static void read_int(struct reader *r, const struct family_key *k, const json_t *v, const char **given_as)
{
    if (!json_is_integer(v)) {
        families_fault(r->f, k->key, "expected an integer");
        return;
    }
    int64_t n = json_integer_value(v), had;
    if (n < 0 || n > INT32_MAX) {
        families_fault(r->f, k->key, "expected 0 to %d", INT32_MAX);
        return;
    }
    char *p = (char *)r->m + k->offset;
    memcpy(&had, p, sizeof had);
    if (*given_as && had != n)
        families_fault(r->f, k->key, "%lld, but %s is %lld", (long long)n, *given_as, (long long)had);
    *given_as = k->key;
    memcpy(p, &n, sizeof n);
}

static void read_num(struct family_faults *f, const char *key, const json_t *v, double *out)
{
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        families_fault(f, key, "expected a number");
    else
        *out = json_number_value(v);
}

static void read_table(struct reader *r)
{
    const char *key;
    json_t *v;
    /* Names under which an aliased field was given, by its offset. */
    const char *given_as[sizeof(struct model_config) / sizeof(int64_t)] = { NULL };
    json_object_foreach((json_t *)r->top, key, v) {
        const struct family_key *k = families_key(r->fam, key);
        char buf[32];
        if (!k) {
            families_fault(r->f, key, "unknown to %s; refused, because it may change what the model computes", r->fam->name);
            continue;
        }
        switch (k->kind) {
        case FAMILY_INT:
            if (!json_is_null(v))
                read_int(r, k, v, &given_as[k->offset / sizeof(int64_t)]);
            break;
        case FAMILY_NUM:
            if (!json_is_null(v)) {
                double x = 0;
                read_num(r->f, k->key, v, &x);
                memcpy((char *)r->m + k->offset, &x, sizeof x);
            }
            break;
        case FAMILY_BOOL:
            if (json_is_boolean(v)) {
                _Bool b = json_is_true(v);
                memcpy((char *)r->m + k->offset, &b, sizeof b);
            } else if (!json_is_null(v)) {
                families_fault(r->f, k->key, "expected true or false");
            }
            break;
        case FAMILY_NEUTRAL:
            if (!is_neutral(v))
                families_fault(r->f, k->key, "must be null, false or 0: %s", k->why);
            break;
        case FAMILY_ONLY:
            if (!json_is_null(v) && strcmp(scalar_text(v, buf), k->only))
                families_fault(r->f, k->key, "must be %s: %s", k->only, k->why);
            break;
        case FAMILY_BOOK:
            json_object_set(r->m->extra, key, v);
            break;
        case FAMILY_CODE:
        case FAMILY_DROP:
            break;
        }
    }
}

/* v4 has rope_theta and rope_scaling, v5 rope_parameters; a file may have all. */
static void read_rope(struct reader *r)
{
    const json_t *theta = json_object_get(r->top, "rope_theta");
    const json_t *part = json_object_get(r->top, "partial_rotary_factor");
    if (theta && !json_is_null(theta))
        read_num(r->f, "rope_theta", theta, &r->m->rope_theta);
    if (part && !json_is_null(part))
        read_num(r->f, "partial_rotary_factor", part, &r->m->partial_rotary_factor);
    static const char *const names[] = { "rope_scaling", "rope_parameters" };
    for (int i = 0; i < 2; i++) {
        const json_t *o = json_object_get(r->top, names[i]);
        if (!o || json_is_null(o))
            continue;
        if (!json_is_object(o)) {
            families_fault(r->f, names[i], "expected an object or null");
            continue;
        }
        const char *key;
        json_t *v;
        json_object_foreach((json_t *)o, key, v) {
            char path[96];
            snprintf(path, sizeof path, "%s.%.60s", names[i], key);
            if (!strcmp(key, "rope_type") || !strcmp(key, "type")) {
                if (!json_is_string(v) || strcmp(json_string_value(v), "default"))
                    families_fault(r->f, path, "\"%s\" scaling is not implemented, only \"default\"",
                                   json_is_string(v) ? json_string_value(v) : "?");
            } else if (!strcmp(key, "rope_theta") || !strcmp(key, "partial_rotary_factor")) {
                _Bool is_theta = key[0] == 'r';
                double *to = is_theta ? &r->m->rope_theta : &r->m->partial_rotary_factor, x = *to;
                const json_t *outer = is_theta ? theta : part;
                read_num(r->f, path, v, &x);
                if (outer && json_is_number(outer) && x != json_number_value(outer))
                    families_fault(r->f, path, "differs from %s at top level", key);
                *to = x;
            } else if (!is_neutral(v)) {
                families_fault(r->f, path, "unknown; refused, because it may change the rotation");
            }
        }
    }
}

/* [0, 1 .. d-1] is d leading dense layers; anything else has no name here. */
static void read_dense_layers(struct reader *r)
{
    const json_t *a = json_object_get(r->top, "mlp_only_layers");
    if (!a || json_is_null(a) || !families_key(r->fam, "mlp_only_layers"))
        return;
    if (!json_is_array(a)) {
        families_fault(r->f, "mlp_only_layers", "expected a list of layers");
        return;
    }
    size_t n = json_array_size(a);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        if (!json_is_integer(v) || json_integer_value(v) != (json_int_t)i) {
            families_fault(r->f, "mlp_only_layers", "expected leading layers in order: [0, 1, ...]");
            return;
        }
    }
    r->m->first_k_dense_replace = (int64_t)n;
}

/* A window as long as the sequences hides nothing. */
static void read_window(struct reader *r)
{
    if (!families_key(r->fam, "sliding_window"))
        return;
    const json_t *w = json_object_get(r->top, "sliding_window"), *use = json_object_get(r->top, "use_sliding_window");
    const json_t *types = json_object_get(r->top, "layer_types");
    _Bool used = families_key(r->fam, "use_sliding_window") ? json_is_true(use) && !(w && is_neutral(w)) : w && !is_neutral(w);
    if (w && !json_is_null(w) && !json_is_false(w) && !json_is_integer(w)) {
        families_fault(r->f, "sliding_window", "expected an integer or null");
        return;
    }
    if (use && !json_is_null(use) && !json_is_boolean(use))
        families_fault(r->f, "use_sliding_window", "expected true or false");
    if (used) {
        int64_t n = json_is_integer(w) ? json_integer_value(w) : 4096;
        if (!r->seq_len)
            families_fault(r->f, "sliding_window", "windowed attention is not implemented");
        else if (n < r->seq_len)
            families_fault(r->f, "sliding_window", "%lld is shorter than seq_len %lld, and windowed attention is not implemented",
                           (long long)n, (long long)r->seq_len);
    }
    if (!types || json_is_null(types))
        return;
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)types, i, v) {
        const char *s = json_is_string(v) ? json_string_value(v) : "?";
        if (strcmp(s, "full_attention") && !(used && !strcmp(s, "sliding_attention"))) {
            families_fault(r->f, "layer_types", "layer %zu is \"%s\", only full_attention is implemented", i, s);
            return;
        }
    }
}

static int family_of(const char *path, const json_t *top, const struct family **out)
{
    const json_t *v = json_object_get(top, "model_type");
    if (!json_is_string(v))
        return err_set(ERR_USAGE, "%s: model_type: expected one of %s", path, MODEL_TYPE_WORDS);
    for (int i = 0; i < MODEL_TYPE_N; i++)
        if (!strcmp(families[i].name, json_string_value(v))) {
            *out = &families[i];
            return 0;
        }
    return err_set(ERR_USAGE, "%s: model_type: \"%s\" is not one of %s", path, json_string_value(v), MODEL_TYPE_WORDS);
}

int model_config_read(struct model_config *m, const char *path, int64_t seq_len)
{
    json_t *top = NULL;
    const struct family *fam = NULL;
    struct family_faults f = { .path = path };
    int rc = 0;
    memset(m, 0, sizeof *m);
    TRY_OUT(rc, json_load_path(path, &top));
    if (!json_is_object(top)) {
        rc = err_set(ERR_DATA, "%s: expected an object", path);
        goto out;
    }
    TRY_OUT(rc, family_of(path, top, &fam));
    *m = fam->def;
    m->extra = json_object();
    struct reader r = { top, fam, m, &f, seq_len };
    const json_t *arch = json_object_get(top, "architectures"), *name = json_array_get(arch, 0);
    if (arch && !json_is_null(arch) && (!json_is_string(name) || strcmp(json_string_value(name), fam->architecture)))
        families_fault(&f, "architectures", "expected \"%s\"", fam->architecture);
    /* These follow from other sizes when absent, not from the class. */
    const json_t *kv = json_object_get(top, "num_key_value_heads");
    if (json_is_null(kv))
        m->num_key_value_heads = 0;
    if (fam == &families[MODEL_QWEN3_MOE] || fam == &families[MODEL_QWEN2_MOE])
        m->first_k_dense_replace = 0;
    read_table(&r);
    read_rope(&r);
    read_dense_layers(&r);
    read_window(&r);
    const json_t *qk = json_object_get(top, "use_qk_norm");
    if (families_key(fam, "use_qk_norm") && json_is_boolean(qk))
        m->use_qk_norm = json_is_true(qk) ? QK_NORM_HEAD : QK_NORM_NONE;
    else if (families_key(fam, "use_qk_norm") && qk && !json_is_null(qk))
        families_fault(&f, "use_qk_norm", "expected true or false");
    else if (!families_key(fam, "use_qk_norm") && qk)
        families_fault(&f, "use_qk_norm", "unknown to %s", fam->name);
    if (!f.n)
        families_check(m, &f);
    rc = families_faults_end(&f);
out:
    json_decref(top);
    if (rc < 0)
        model_config_fini(m);
    return rc;
}

static void put_value(struct json_out *j, const char *key, const json_t *v)
{
    const char *k;
    json_t *e;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        json_obj(j, key);
        json_object_foreach((json_t *)v, k, e)
            put_value(j, k, e);
        json_obj_end(j);
        break;
    case JSON_ARRAY:
        json_arr(j, key);
        json_array_foreach((json_t *)v, i, e)
            put_value(j, NULL, e);
        json_arr_end(j);
        break;
    case JSON_STRING:
        json_put_strn(j, key, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        json_put_int(j, key, json_integer_value(v));
        break;
    case JSON_REAL:
        json_put_real(j, key, json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        json_put_bool(j, key, json_is_true(v));
        break;
    default:
        json_put_null(j, key);
    }
}

static void put_family(struct json_out *j, const struct model_config *m)
{
    switch (m->model_type) {
    case MODEL_GLM4_MOE:
        json_put_int(j, "n_routed_experts", m->num_experts);
        json_put_int(j, "moe_intermediate_size", m->moe_intermediate_size);
        json_put_int(j, "n_shared_experts", m->n_shared_experts);
        json_put_int(j, "first_k_dense_replace", m->first_k_dense_replace);
        json_put_int(j, "n_group", m->n_group);
        json_put_int(j, "topk_group", m->topk_group);
        json_put_real(j, "routed_scaling_factor", m->routed_scaling_factor);
        json_put_bool(j, "use_qk_norm", m->use_qk_norm == QK_NORM_HEAD);
        json_put_int(j, "num_nextn_predict_layers", 0);
        break;
    case MODEL_QWEN3_MOE:
    case MODEL_QWEN2_MOE:
        json_put_int(j, "num_experts", m->num_experts);
        if (m->model_type == MODEL_QWEN3_MOE)
            json_put_int(j, "num_local_experts", m->num_experts);
        else
            json_put_int(j, "shared_expert_intermediate_size", m->shared_expert_intermediate_size);
        json_put_int(j, "moe_intermediate_size", m->moe_intermediate_size);
        json_put_int(j, "decoder_sparse_step", 1);
        json_arr(j, "mlp_only_layers");
        for (int64_t i = 0; i < m->first_k_dense_replace; i++)
            json_put_int(j, NULL, i);
        json_arr_end(j);
        json_put_bool(j, "use_sliding_window", 0);
        json_put_null(j, "sliding_window");
        break;
    case MODEL_MIXTRAL:
        json_put_int(j, "num_local_experts", m->num_experts);
        json_put_null(j, "sliding_window");
        break;
    case MODEL_OLMOE:
        json_put_int(j, "num_experts", m->num_experts);
        json_put_null(j, "clip_qkv");
        break;
    }
    if (!families[m->model_type].always_norm_topk)
        json_put_bool(j, "norm_topk_prob", m->norm_topk_prob);
    if (families[m->model_type].bias)
        json_put_bool(j, m->model_type == MODEL_QWEN2_MOE ? "qkv_bias" : "attention_bias", m->attention_bias);
}

char *model_config_json(const struct model_config *m, int64_t eos, int64_t seq_len)
{
    return model_config_json_typed(m, eos, seq_len, "float32");
}

char *model_config_json_typed(const struct model_config *m, int64_t eos, int64_t seq_len, const char *torch_type)
{
    const struct family *fam = &families[m->model_type];
    struct json_out *j = json_new_pretty();
    json_obj(j, NULL);
    json_arr(j, "architectures");
    json_put_str(j, NULL, fam->architecture);
    json_arr_end(j);
    json_put_str(j, "model_type", fam->name);
    json_put_int(j, "hidden_size", m->hidden_size);
    json_put_int(j, "num_hidden_layers", m->num_hidden_layers);
    json_put_int(j, "num_attention_heads", m->num_attention_heads);
    json_put_int(j, "num_key_value_heads", m->num_key_value_heads);
    json_put_int(j, "head_dim", m->head_dim);
    json_put_int(j, "vocab_size", m->vocab_size);
    json_put_int(j, "num_experts_per_tok", m->num_experts_per_tok);
    put_family(j, m);
    /* A family with dense layers wants their width even when it has none. */
    json_put_int(j, "intermediate_size", !fam->dense ? m->moe_intermediate_size :
                 m->intermediate_size ? m->intermediate_size : m->moe_intermediate_size);
    json_put_real(j, "rms_norm_eps", m->rms_norm_eps);
    json_put_real(j, "rope_theta", m->rope_theta);
    json_put_null(j, "rope_scaling");
    if (fam->partial)
        json_put_real(j, "partial_rotary_factor", m->partial_rotary_factor);
    json_obj(j, "rope_parameters");
    json_put_str(j, "rope_type", "default");
    json_put_real(j, "rope_theta", m->rope_theta);
    if (fam->partial)
        json_put_real(j, "partial_rotary_factor", m->partial_rotary_factor);
    json_obj_end(j);
    json_put_int(j, "max_position_embeddings",
                 m->max_position_embeddings > seq_len ? m->max_position_embeddings : seq_len);
    json_put_str(j, "hidden_act", "silu");
    json_put_real(j, "attention_dropout", 0);
    json_put_bool(j, "tie_word_embeddings", m->tie_word_embeddings);
    json_put_str(j, "dtype", torch_type);
    json_put_str(j, "torch_dtype", torch_type);
    /* The classes' own ids may lie beyond our vocabulary, so all three are said. */
    static const char *const ids[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
    for (int i = 0; i < 3; i++) {
        const json_t *v = json_object_get(m->extra, ids[i]);
        if (i == 1 && eos >= 0)
            json_put_int(j, ids[i], eos);
        else if (v)
            put_value(j, ids[i], v);
        else
            json_put_null(j, ids[i]);
    }
    const char *key;
    json_t *v;
    json_object_foreach(m->extra, key, v)
        if (strcmp(key, ids[0]) && strcmp(key, ids[1]) && strcmp(key, ids[2]))
            put_value(j, key, v);
    json_obj_end(j);
    size_t n;
    const char *body = json_text(j, &n);
    char *text = pool_alloc(n + 2);
    if (text) {
        memcpy(text, body, n);
        memcpy(text + n, "\n", 2);
    }
    json_free(j);
    return text;
}
