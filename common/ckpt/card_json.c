/* card_json.c -- the facts of a card as one JSON object, schema moe.ckpt-card/1. */
#include <math.h>

#include "ckpt/card_impl.h"

static void put_count(struct json_out *j, const char *key, int64_t n, _Bool known)
{
    if (known)
        json_put_int(j, key, n);
    else
        json_put_null(j, key);
}

static void put_model(struct json_out *j, const struct card *c)
{
    const struct model_config *m = &c->cfg;

    json_put_str(j, "model_type", c->known ? model_type_name(m->model_type) : json_string_value(json_object_get(c->config, "model_type")));
    if (c->known) {
        json_obj(j, "architecture");
        json_put_int(j, "num_hidden_layers", m->num_hidden_layers);
        json_put_int(j, "first_k_dense_replace", m->first_k_dense_replace);
        json_put_int(j, "hidden_size", m->hidden_size);
        json_put_int(j, "num_attention_heads", m->num_attention_heads);
        json_put_int(j, "num_key_value_heads", m->num_key_value_heads);
        json_put_int(j, "head_dim", m->head_dim);
        json_put_int(j, "num_experts", m->num_experts);
        json_put_int(j, "num_experts_per_tok", m->num_experts_per_tok);
        json_put_int(j, "moe_intermediate_size", m->moe_intermediate_size);
        json_put_int(j, "vocab_size", m->vocab_size);
        put_count(j, "max_position_embeddings", m->max_position_embeddings, m->max_position_embeddings > 0);
        json_obj_end(j);
    } else {
        json_put_null(j, "architecture");
    }
    json_obj(j, "parameters");
    json_put_int(j, "in_files", c->elements);
    put_count(j, "total", c->known ? params_total(&c->params) : 0, c->known);
    put_count(j, "active", c->known ? params_active(&c->params) : 0, c->known);
    put_count(j, "matmul", c->known ? params_matmul(&c->params) : 0, c->known);
    json_put_str(j, "not_counted", c->unknown_why);
    json_obj_end(j);
    json_put_str(j, "dtypes", c->types);
    json_put_int(j, "bytes", (int64_t)c->bytes);
    if (c->has_tokenizer) {
        json_obj(j, "tokenizer");
        json_put_str(j, "hash", c->tokenizer.hex);
        put_count(j, "size", c->tokenizer_size, c->tokenizer_size > 0);
        json_obj_end(j);
    } else {
        json_put_null(j, "tokenizer");
    }
}

static void put_training(struct json_out *j, const struct card *c)
{
    const struct card_rows *r = &c->rows;

    json_obj(j, "training");
    put_count(j, "step", c->step, c->step >= 0);
    put_count(j, "tokens", c->tokens, c->tokens >= 0);
    put_count(j, "tokens_per_step", c->in->tokens_per_step, c->in->tokens_per_step > 0);
    put_count(j, "seq_len", c->in->seq_len, c->in->seq_len > 0);
    put_count(j, "ranks", c->ranks, c->ranks > 0);
    put_count(j, "threads", c->manifest ? c->manifest->info.threads : 0, c->manifest && !c->derived);
    json_put_str(j, "kernels", c->manifest && !c->derived ? c->manifest->info.kernels : NULL);
    json_put_str(j, "init", c->in->init);
    json_put_str(j, "hardware", c->in->hardware);
    json_put_num(j, "flops", c->flops > 0 ? c->flops : NAN);
    json_put_str(j, "flops_by", c->flops_measured ? "rows" : c->flops_upper ? "formula, upper bound" : c->flops > 0 ? "formula without attention" : NULL);
    json_put_num(j, "flops_once", c->has_rows ? r->flops : NAN);
    put_count(j, "rows_steps", r->steps, c->has_rows);
    put_count(j, "rows_redone", r->redone, c->has_rows);
    put_count(j, "rows_skipped", r->skipped, c->has_rows);
    put_count(j, "rows_later", r->later, c->has_rows);
    json_put_num(j, "step_s", c->has_rows ? r->step_s : NAN);
    json_put_num(j, "eval_s", c->has_rows ? r->eval_s : NAN);
    json_put_num(j, "ckpt_s", c->has_rows ? r->ckpt_s : NAN);
    json_put_num(j, "hours", card_hours(c));
    json_put_num(j, "power_w", c->in->power_w > 0 ? c->in->power_w : NAN);
    json_put_num(j, "pue", c->in->pue > 0 ? c->in->pue : NAN);
    json_put_num(j, "energy_kwh", card_energy_kwh(c));
    json_obj_end(j);
}

static void put_sets(struct json_out *j, const char *key, const struct card_set *v, int n, int64_t seq_len)
{
    json_arr(j, key);
    for (int i = 0; i < n; i++) {
        const struct card_set *s = &v[i];
        const struct tokenfile_info *f = s->side ? &s->side->info : NULL;

        json_obj(j, NULL);
        if (s->name)
            json_put_str(j, "name", s->name);
        json_put_str(j, "path", s->path);
        json_put_str(j, "hash", s->hash.hex[0] ? s->hash.hex : NULL);
        put_count(j, "documents", f ? f->documents : 0, f != NULL);
        put_count(j, "tokens", f ? f->tokens : 0, f != NULL);
        put_count(j, "text_bytes", f ? f->text_bytes : 0, f != NULL);
        if (!s->name) {
            put_count(j, "windows", s->windows, s->windows > 0);
            json_put_num(j, "share", s->share >= 0 ? s->share : NAN);
            put_count(j, "tokens_trained", s->samples * seq_len, s->samples >= 0 && seq_len > 0);
        }
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void put_languages(struct json_out *j, const struct card *c)
{
    json_arr(j, "languages");
    for (int i = 0; i < c->n_langs; i++) {
        const struct card_lang *l = &c->langs[i];

        json_obj(j, NULL);
        json_put_str(j, "code", l->code);
        put_count(j, "bytes", l->bytes, l->bytes > 0);
        json_put_num(j, "share", l->bytes ? (double)l->bytes / (double)c->text_bytes_all : NAN);
        put_count(j, "tokens", (int64_t)llround(l->tokens), l->bytes > 0);
        json_put_bool(j, "estimated", l->estimated);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void put_evaluation(struct json_out *j, const struct card *c)
{
    json_arr(j, "evaluation");
    for (int i = 0; i < c->rows.n_evals; i++) {
        const struct card_eval *e = &c->rows.evals[i];

        json_obj(j, NULL);
        json_put_str(j, "set", e->set);
        json_put_int(j, "step", e->step);
        json_put_int(j, "tokens", e->tokens);
        json_put_num(j, "loss", e->loss);
        json_put_num(j, "ppl", e->ppl);
        json_put_num(j, "bits_per_byte", e->bits_per_byte);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void put_provenance(struct json_out *j, const struct card *c)
{
    const struct manifest_info *m = c->manifest ? &c->manifest->info : NULL;

    if (!m) {
        json_put_null(j, "provenance");
        return;
    }
    json_obj(j, "provenance");
    json_put_str(j, "tool", m->tool);
    json_arr(j, "argv");
    for (int i = 0; i < m->n_argv; i++)
        json_put_str(j, NULL, m->argv[i]);
    json_arr_end(j);
    json_put_str(j, "run_id", m->run_id.hex);
    json_put_int(j, "restart", m->restart);
    json_put_str(j, "config", m->config.hex);
    json_put_str(j, "plan", m->plan.hex);
    json_put_str(j, "manifest", c->manifest->self.hex);
    json_obj_end(j);
}

static void put_act(struct json_out *j, const struct card *c)
{
    struct card_field *v;
    int n = card_act_fields(c, &v);

    json_arr(j, "ai_act");
    for (int i = 0; i < n; i++) {
        json_obj(j, NULL);
        json_put_str(j, "ref", v[i].ref);
        json_put_str(j, "title", v[i].title);
        json_put_str(j, "fact", v[i].fact);
        json_put_str(j, "to_fill", v[i].hint);
        json_obj_end(j);
    }
    json_arr_end(j);
}

/* The marks are those of the page, so both forms agree on what is missing. */
static void put_marks(struct json_out *j, struct card *c)
{
    struct card_mark *v;
    size_t size;
    const char *page = card_markdown(c, &size);
    int n = card_marks(c->arena, page, size, &v);

    json_arr(j, "to_fill");
    for (int i = 0; i < n; i++) {
        json_obj(j, NULL);
        json_put_str(j, "heading", v[i].heading);
        json_put_str(j, "what", v[i].what);
        json_obj_end(j);
    }
    json_arr_end(j);
}

const char *card_json(struct card *c, size_t *n)
{
    if (!c->json) {
        struct json_out *j = c->json = json_new();

        json_obj(j, NULL);
        json_put_str(j, "schema", "moe.ckpt-card/1");
        json_put_str(j, "title", c->in->title);
        json_put_str(j, "path", ckpt_path(c->ckpt));
        put_model(j, c);
        put_training(j, c);
        put_sets(j, "data", c->train, c->n_train, c->in->seq_len);
        put_sets(j, "held_out", c->valid, c->n_valid, 0);
        put_languages(j, c);
        put_evaluation(j, c);
        json_put_str(j, "configuration", c->in->config_text);
        put_provenance(j, c);
        put_act(j, c);
        put_marks(j, c);
        json_obj_end(j);
    }
    return json_text(c->json, n);
}
