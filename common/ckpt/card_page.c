/* card_page.c -- the card as a Markdown page with the front matter of the Hub. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/units.h"

#include "ckpt/card_impl.h"

#define ADD(...) card_text_add(c->text, __VA_ARGS__)

static void mark(struct card *c, const char *hint) { ADD("**" CARD_MARK ": %s**", hint); }

static const char *plain(const struct card *c, const char *s) { return card_text_plain(c->arena, s); }
static const char *count(const struct card *c, int64_t n) { return card_text_count(c->arena, n); }

static void row(struct card *c, const char *key, const char *value) { ADD("| %s | %s |\n", key, value); }
static void row_count(struct card *c, const char *key, int64_t n)
{
    if (n > 0)
        row(c, key, count(c, n));
}

static void head(struct card *c, const char *title) { ADD("\n## %s\n\n", title); }
static void two_columns(struct card *c) { ADD("| | |\n| --- | --- |\n"); }

/* A number that may not exist. */
static const char *num(const struct card *c, double v, const char *fmt_unit)
{
    return isfinite(v) ? arena_printf(c->arena, "%.4g%s", v, fmt_unit) : "-";
}

/* Hours, unless they are too few to be read. */
static const char *hours_text(const struct card *c, double h)
{
    return h >= 0.01 ? arena_printf(c->arena, "%.4g h", h) : arena_printf(c->arena, "%.4g s", 3600 * h);
}

/* ---- front matter */

static const char *family(const struct card *c)
{
    return c->known ? model_type_name(c->cfg.model_type) : NULL;
}

static void front_matter(struct card *c)
{
    ADD("---\n# " CARD_MARK ": the licence, by its name on the Hub; license_name and license_link beside \"other\"\nlicense: other\n");
    if (c->n_langs) {
        ADD("language:\n");
        for (int i = 0; i < c->n_langs; i++)
            ADD("- \"%s\"\n", c->langs[i].code);         /* no is a truth value elsewhere */
    } else {
        ADD("# " CARD_MARK ": language: [de, fr], the languages of the training text\n");
    }
    if (c->config)
        ADD("library_name: transformers\n");
    ADD("pipeline_tag: text-generation\ntags:\n- moe-tools\n");
    if (family(c))
        ADD("- moe\n- %s\n", family(c));
    ADD("---\n");
}

static void opening(struct card *c)
{
    ADD("\n# %s\n\n", plain(c, c->in->title));
    if (family(c))
        ADD("A language model with a mixture of experts, of the family `%s`: %s parameters, %s of them active for a token.\n", family(c),
            count(c, params_total(&c->params)), count(c, params_active(&c->params)));
    else
        ADD("A model of %s parameters.\n", count(c, c->elements));
    ADD("Facts on this page were read from the files of the checkpoint%s; what no file can tell is marked.\n\n",
        c->has_rows ? " and the rows of its run" : "");
    mark(c, "what the model is, who made it, and how to reach them");
    ADD("\n");
}

/* ---- the model */

/* Families that are not known here keep their numbers under these names. */
static void raw_architecture(struct card *c)
{
    static const char *const keys[] = {
        "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "num_experts",
        "n_routed_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "intermediate_size", "vocab_size",
        "max_position_embeddings",
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(c->config, keys[i]);

        if (json_is_integer(v))
            row(c, plain(c, keys[i]), count(c, json_integer_value(v)));
        else if (json_is_string(v))
            row(c, plain(c, keys[i]), plain(c, json_string_value(v)));
    }
}

static void architecture(struct card *c)
{
    static const char *const norms[] = { "none", "per head", "over the whole projection" };
    const struct model_config *m = &c->cfg;
    char bytes[32];

    head(c, "Architecture");
    two_columns(c);
    if (c->known) {
        row(c, "Family", family(c));
        row(c, "Layers", m->first_k_dense_replace ? arena_printf(c->arena, "%" PRId64 ", the first %" PRId64 " of them without experts",
                                                                m->num_hidden_layers, m->first_k_dense_replace) : count(c, m->num_hidden_layers));
        row_count(c, "Hidden size", m->hidden_size);
        row(c, "Attention", arena_printf(c->arena, "%" PRId64 " heads of %" PRId64 ", %" PRId64 " for keys and values; norm of queries and keys: %s",
                                         m->num_attention_heads, m->head_dim, m->num_key_value_heads, norms[m->use_qk_norm]));
        row(c, "Experts", arena_printf(c->arena, "%" PRId64 " in a layer, %" PRId64 " for a token, %" PRId64 " wide", m->num_experts,
                                       m->num_experts_per_tok, m->moe_intermediate_size));
        if (m->n_shared_experts || m->shared_expert_intermediate_size)
            row(c, "Shared experts", m->shared_expert_intermediate_size ?
                arena_printf(c->arena, "1, %" PRId64 " wide", m->shared_expert_intermediate_size) : count(c, m->n_shared_experts));
        if (m->first_k_dense_replace)
            row_count(c, "Width of the layers without experts", m->intermediate_size);
        row_count(c, "Vocabulary", m->vocab_size);
        row(c, "Rotary positions", arena_printf(c->arena, "base %.10g, %.4g of each head", m->rope_theta, m->partial_rotary_factor));
        row(c, "Output matrix", m->tie_word_embeddings ? "that of the embedding" : "its own");
        row_count(c, "Positions at most (config.json)", m->max_position_embeddings);
    } else if (c->config) {
        raw_architecture(c);
    }
    row_count(c, "Context in training", c->in->seq_len);
    row(c, "Weights", arena_printf(c->arena, "%s, %s", plain(c, c->types), units_bytes(bytes, (double)c->bytes)));
}

static void parameters(struct card *c)
{
    const struct param_table *t = &c->params;
    int64_t total[PARAM_KIND_N] = { 0 }, active[PARAM_KIND_N] = { 0 };

    head(c, "Parameters");
    if (!c->known) {
        ADD("%s in all tensors. Those active for a token are not counted: %s.\n", count(c, c->elements), plain(c, c->unknown_why));
        return;
    }
    for (int i = 0; i < t->n; i++) {
        const struct param *p = &t->v[i];

        total[p->kind] += p->rows * p->cols;
        if (p->kind != PARAM_EXPERT || p->expert < c->cfg.num_experts_per_tok)
            active[p->kind] += p->rows * p->cols;
    }
    ADD("| Kind | All | Active for a token |\n| --- | ---: | ---: |\n");
    for (int k = 0; k < PARAM_KIND_N; k++)
        if (total[k])
            ADD("| %s | %s | %s |\n", plain(c, params_kind_name((enum param_kind)k)), count(c, total[k]), count(c, active[k]));
    ADD("| **all** | **%s** | **%s** |\n", count(c, params_total(t)), count(c, params_active(t)));
    ADD("\n%s of the active ones take part in matrix products: all but the input embedding, norms and biases.\n", count(c, params_matmul(t)));
    if (c->elements != params_total(t))
        ADD("The files hold %s elements; what is not in the table above (layers of multi-token prediction, for one) is not counted there.\n",
            count(c, c->elements));
}

/* ---- the training */

static void flops(struct card *c)
{
    const struct model_config *m = &c->cfg;
    const struct card_rows *r = &c->rows;

    ADD("\n### Operations\n\n");
    if (!(c->flops > 0)) {
        mark(c, "floating-point operations of the training; the number of tokens is not in the files");
        ADD("\n");
        return;
    }
    ADD("%.4g floating-point operations%s.\n", c->flops,
        c->flops_measured ? ", the sum over the rows of the run" : c->flops_upper ? " by formula, an upper bound" : " by formula");
    if (c->flops_measured && r->redone + r->skipped)
        ADD("Each step once: %.4g; the rest are rows of steps that came again after a restart (%" PRId64 ") or were skipped (%" PRId64 ").\n",
            r->flops, r->redone, r->skipped);
    if (c->known)
        ADD("\nFormula, forward and backward: 6 N T + 12 L H d P, with N = %" PRId64 " active parameters in matrix products, "
            "T tokens%s, L = %" PRId64 " layers, H = %" PRId64 " heads of d = %" PRId64 ", and P pairs of a token and one that it attends to. "
            "Recomputed activations are not counted.\n", params_matmul(&c->params),
            c->tokens >= 0 ? arena_printf(c->arena, " = %" PRId64, c->tokens) : "", m->num_hidden_layers, m->num_attention_heads, m->head_dim);
    if (c->flops_upper)
        ADD("P is taken as T (S + 1) / 2 with S = %" PRId64 ", as if no document ended inside a window.\n", c->in->seq_len);
    if (c->flops_no_attention)
        ADD("The length of the windows is not known, so P is left out.\n");
}

static void hours(struct card *c)
{
    const struct card_rows *r = &c->rows;

    ADD("\n### Time\n\n");
    if (!c->has_rows) {
        mark(c, "hours of training; there are no rows of a run");
        ADD("\n");
        return;
    }
    ADD("%s: %s of steps, %s of evaluation, %s of saving; %s to %s.", hours_text(c, card_hours(c)), hours_text(c, r->step_s / 3600),
        hours_text(c, r->eval_s / 3600), hours_text(c, r->ckpt_s / 3600), plain(c, r->first), plain(c, r->last));
    if (c->ranks > 0)
        ADD(" Times %" PRId64 " rank%s: %.4g rank-hours.", c->ranks, c->ranks == 1 ? "" : "s", card_hours(c) * (double)c->ranks);
    ADD("\n");
    ADD("Steps that a restart did again (%" PRId64 ") count twice as time and once as tokens; start-up and waiting are in no row.\n", r->redone);
    if (c->step >= 0 && r->steps < c->step)
        ADD("Only %" PRId64 " of %" PRId64 " steps have a row.\n", r->steps, c->step);
    if (r->later)
        ADD("%" PRId64 " rows after step %" PRId64 " are not counted.\n", r->later, c->step);
}

static void energy(struct card *c)
{
    double kwh = card_energy_kwh(c);

    ADD("\n### Energy\n\n");
    if (isnan(kwh)) {
        ADD("Not stated: %s.\n", !(c->in->power_w > 0) ? "the power of a rank was not given" :
            !(c->ranks > 0) ? "the number of ranks is not in the files" : "there are no hours");
        return;
    }
    ADD("%.4g kWh, an estimate: power x ranks x hours x PUE / 1000 = %.6g W x %" PRId64 " x %.4g h x %.4g / 1000.\n", kwh, c->in->power_w,
        c->ranks, card_hours(c), c->in->pue > 0 ? c->in->pue : 1);
    ADD("The power of a rank was given by hand%s.\n", c->in->pue > 0 ? ", as was the PUE (power usage effectiveness of the site)" :
        "; no PUE (power usage effectiveness of the site) was given, so 1 stands for it");
}

static void training(struct card *c)
{
    const struct manifest_info *m = c->manifest ? &c->manifest->info : NULL;

    head(c, "Training");
    if (m) {
        two_columns(c);
        row(c, "Steps", count(c, m->step));
        row(c, "Tokens", count(c, m->tokens));
        row_count(c, "Tokens of a step", c->in->tokens_per_step);
        row(c, "Restarts", count(c, m->restart));
        if (c->derived)
            row(c, "Layout", "not in the files: this directory was made by moe-ckpt from a checkpoint");
        else
            row(c, "Layout", arena_printf(c->arena, "%" PRId64 " rank%s (%" PRId64 "x%" PRId64 "x%" PRId64
                                          ", replicas x efsdp x ep), %" PRId64 " thread%s each, kernels %s", c->ranks, c->ranks == 1 ? "" : "s",
                                          m->replicas, m->efsdp, m->ep, m->threads, m->threads == 1 ? "" : "s", plain(c, m->kernels)));
        if (c->in->init)
            row(c, "Began from", arena_printf(c->arena, "%s, whose own training is in none of the numbers here", plain(c, c->in->init)));
        ADD("\n");
    }
    ADD("Hardware: ");
    if (c->in->hardware)
        ADD("%s\n", plain(c, c->in->hardware));
    else {
        mark(c, "processors or accelerators, how many of them, and where they stand");
        ADD("\n");
    }
    flops(c);
    hours(c);
    energy(c);
}

/* ---- the data */

static void set_row(struct card *c, const struct card_set *s)
{
    const struct tokenfile_info *f = s->side ? &s->side->info : NULL;
    const char *seen = s->samples >= 0 && c->in->seq_len > 0 ? count(c, s->samples * c->in->seq_len) : "-";

    ADD("| %s | %s | %s | %s | %s | ", plain(c, s->path), f ? count(c, f->documents) : "-", f ? count(c, f->tokens) : "-",
        f ? count(c, f->text_bytes) : "-", s->windows > 0 ? count(c, s->windows) : "-");
    ADD("%s | %s | %s | %s |\n", s->share >= 0 ? arena_printf(c->arena, "%.4g %%", 100 * s->share) : "-", seen,
        s->samples >= 0 && s->windows > 0 ? num(c, (double)s->samples / (double)s->windows, "") : "-", s->hash.hex[0] ? s->hash.hex : "-");
}

static void language_rows(struct card *c)
{
    ADD("\n| Language | | Bytes of text | Share | Tokens |\n| --- | --- | ---: | ---: | ---: |\n");
    for (int i = 0; i < c->n_langs; i++) {
        const struct card_lang *l = &c->langs[i];
        const char *name = card_data_language(l->code);

        ADD("| %s | %s | ", l->code, name ? name : "");
        if (l->bytes)
            ADD("%s | %.4g %% | %s%s |\n", count(c, l->bytes), 100 * (double)l->bytes / (double)c->text_bytes_all, l->estimated ? "about " : "",
                count(c, (int64_t)llround(l->tokens)));
        else
            ADD("- | - | - |\n");
    }
    if (c->text_bytes < c->text_bytes_all)
        ADD("| - | not told by a name of a file | %s | %.4g %% | - |\n", count(c, c->text_bytes_all - c->text_bytes),
            100 * (double)(c->text_bytes_all - c->text_bytes) / (double)c->text_bytes_all);
    ADD("\nLanguages are those in the names of the files that were encoded%s. Shares are of bytes before training; tokens with \"about\" are "
        "those of a mixed set, shared out by bytes.\n", c->in->languages ? ", and those that were given by hand" : "");
}

static _Bool is_trained(const struct card *c, const struct card_set *s)
{
    for (int i = 0; i < c->n_train; i++)
        if (s->hash.hex[0] ? hash_eq(&s->hash, &c->train[i].hash) : !strcmp(s->path, c->train[i].path))
            return 1;
    return 0;
}

static void data(struct card *c)
{
    head(c, "Data");
    if (!c->n_train) {
        mark(c, "the data that the model was trained on; the files do not name it");
        ADD("\n");
        return;
    }
    ADD("| Set | Documents | Tokens | Bytes of text | Windows | Share of samples | Tokens trained on | Passes | Hash |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
    for (int i = 0; i < c->n_train; i++)
        set_row(c, &c->train[i]);
    if (c->n_langs)
        language_rows(c);
    if (!c->n_valid)
        return;
    ADD("\nFor evaluation:\n\n| Name | Set | Documents | Tokens | Bytes of text | Hash |\n"
        "| --- | --- | ---: | ---: | ---: | --- |\n");
    for (int i = 0; i < c->n_valid; i++) {
        const struct card_set *s = &c->valid[i];
        const struct tokenfile_info *f = s->side ? &s->side->info : NULL;

        ADD("| %s | %s%s | %s | %s | %s | %s |\n", plain(c, s->name), plain(c, s->path), is_trained(c, s) ? ", **also trained on**" : "", f ? count(c, f->documents) : "-",
            f ? count(c, f->tokens) : "-", f ? count(c, f->text_bytes) : "-", s->hash.hex[0] ? s->hash.hex : "-");
    }
}

static void tokenizer(struct card *c)
{
    head(c, "Tokenizer");
    if (!c->has_tokenizer)
        ADD("None beside the weights.\n");
    else if (c->tokenizer_size)
        ADD("`tokenizer.json`: %s tokens, xxh3-128 %s.\n", count(c, c->tokenizer_size), c->tokenizer.hex);
    else
        ADD("`tokenizer.json`: xxh3-128 %s.\n", c->tokenizer.hex);
}

/* Text of a file in a block of code. */
static void block(struct card *c, const char *kind, const char *text)
{
    const char *s = card_text_clean(c->arena, text), *fence = card_text_fence(c->arena, s);
    size_t n = strlen(s);

    ADD("%s%s\n%s%s%s\n", fence, kind, s, n && s[n - 1] == '\n' ? "" : "\n", fence);
}

static void settings(struct card *c)
{
    head(c, "Hyper-parameters");
    if (c->in->config_text) {
        ADD("The configuration that the run was begun with:\n\n");
        block(c, "yaml", c->in->config_text);
    } else {
        mark(c, "optimizer, schedule, batch size, precision; the configuration of the run is not at hand");
        ADD("\n");
    }
}

static void evaluation(struct card *c)
{
    head(c, "Evaluation");
    if (c->has_rows && c->rows.n_evals) {
        ADD("| Set | Step | Tokens | Loss | Perplexity | Bits per byte |\n| --- | ---: | ---: | ---: | ---: | ---: |\n");
        for (int i = 0; i < c->rows.n_evals; i++) {
            const struct card_eval *e = &c->rows.evals[i];

            ADD("| %s | %s | %s | %s | %s | %s |\n", plain(c, e->set), count(c, e->step), count(c, e->tokens), num(c, e->loss, ""),
                num(c, e->ppl, ""), num(c, e->bits_per_byte, ""));
        }
        ADD("\nLoss in nats per token; on the sets for evaluation under *Data*.\n\n");
    }
    mark(c, "results on tasks, and the known limits and risks of the model");
    ADD("\n");
}

static const char *quoted(struct arena *a, const char *s)
{
    char *out, *p;

    if (*s && !s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./=:,+@%")])
        return s;
    out = p = arena_alloc(a, 4 * strlen(s) + 3);
    *p++ = '\'';
    for (; *s; s++) {
        if (*s == '\'') {
            memcpy(p, "'\\''", 4);
            p += 4;
        } else {
            *p++ = *s == '\n' ? '?' : *s;
        }
    }
    *p = '\'';
    return out;
}

static void provenance(struct card *c)
{
    const struct manifest_info *m = c->manifest ? &c->manifest->info : NULL;
    struct card_text line = { 0 };

    head(c, "Where the files come from");
    if (!m) {
        ADD("There is no MANIFEST.json: nothing vouches for the bytes of these files, nor says who made them.\n");
        return;
    }
    two_columns(c);
    row(c, "Made by", plain(c, m->tool));
    row(c, "Run", m->run_id.hex);
    row(c, "Configuration", m->config.hex);
    row(c, c->derived ? "Recipe" : "Plan", m->plan.hex);
    row(c, "MANIFEST.json", c->manifest->self.hex);
    ADD("\nHashes are xxh3-128; `moe-ckpt verify` compares every byte with them. The command:\n\n");
    for (int i = 0; i < m->n_argv; i++)
        card_text_add(&line, "%s%s", i ? " " : "", quoted(c->arena, m->argv[i]));
    block(c, "sh", line.s ? line.s : "");
    card_text_free(&line);
}

static void act(struct card *c)
{
    struct card_field *v;
    int n = card_act_fields(c, &v);

    head(c, "Technical documentation under the EU AI Act");
    ADD("The fields that Regulation (EU) 2024/1689 asks of providers of general-purpose AI models, filled in from the files where they tell. "
        "A form, no advice on law; whether the model is a general-purpose one is for its provider to judge.\n");
    for (int i = 0; i < n; i++) {
        if (!i || v[i].part != v[i - 1].part)
            ADD("\n### %s\n\n", v[i].part);
        ADD("- **%s** (%s). %s", v[i].title, v[i].ref, v[i].fact ? v[i].fact : "");
        if (v[i].hint) {
            ADD("%s", v[i].fact ? " " : "");
            mark(c, v[i].hint);
        }
        ADD("\n");
    }
}

const char *card_markdown(struct card *c, size_t *n)
{
    if (!c->text->n) {
        front_matter(c);
        opening(c);
        architecture(c);
        parameters(c);
        training(c);
        data(c);
        tokenizer(c);
        settings(c);
        evaluation(c);
        provenance(c);
        act(c);
    }
    if (n)
        *n = c->text->n;
    return c->text->s;
}
