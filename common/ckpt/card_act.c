/* card_act.c -- what Regulation (EU) 2024/1689 (the AI Act) asks providers of
 * general-purpose AI models to document, field by field.
 *
 * Annex XI lists the technical documentation of Article 53(1)(a); Article 53(1)
 * also asks for a copyright policy (c) and a public summary of the training
 * content (d); Article 51 draws the line of 10^25 operations.  A field holds
 * what the files tell and asks a human for the rest.  It is a form to fill in,
 * no advice on law: whether a model is a general-purpose one is not judged. */
#include <math.h>

#include "base/err.h"

#include "ckpt/card_impl.h"

#define SYSTEMIC_FLOPS 1e25
#define FIELDS_MAX 24

struct form { struct arena *a; struct card_field *v; int n; const char *part; };

static void field(struct form *f, const char *ref, const char *title, const char *fact, const char *hint)
{
    BUG_ON(f->n == FIELDS_MAX);
    f->v[f->n++] = (struct card_field){ f->part, ref, title, fact, hint };
}

static const char *architecture(const struct card *c)
{
    struct arena *a = c->arena;

    if (!c->known)
        return arena_printf(a, "%s parameters in %lld tensors; see *Architecture*.", card_text_count(a, c->elements),
                            (long long)ckpt_n_tensors(c->ckpt));
    return arena_printf(a, "Decoder-only transformer with a mixture of experts, family `%s`: %s parameters, %s of them active for a token; "
                        "see *Architecture* and *Parameters*.", model_type_name(c->cfg.model_type),
                        card_text_count(a, params_total(&c->params)), card_text_count(a, params_active(&c->params)));
}

static const char *context(const struct card *c)
{
    if (c->in->seq_len > 0)
        return arena_printf(c->arena, " Trained on windows of %lld tokens.", (long long)c->in->seq_len);
    return "";
}

static const char *modality(const struct card *c)
{
    return arena_printf(c->arena, "Text in, text out: a sequence of token ids of the model's tokenizer, and the scores of the token that comes next.%s",
                        context(c));
}

static const char *design(const struct card *c)
{
    if (!c->in->config_text)
        return NULL;
    return "Trained to give the next token of a text a high probability (cross entropy); all settings stand under *Hyper-parameters*.";
}

static const char *data(const struct card *c)
{
    struct arena *a = c->arena;
    int64_t tokens = 0, documents = 0;
    int known = 0;

    if (!c->n_train)
        return NULL;
    for (int i = 0; i < c->n_train; i++)
        if (c->train[i].side) {
            known++;
            tokens += c->train[i].side->info.tokens;
            documents += c->train[i].side->info.documents;
        }
    if (!known)
        return arena_printf(a, "%d set%s of text; see *Data*.", c->n_train, c->n_train == 1 ? "" : "s");
    return arena_printf(a, "%d set%s of text%s: %s documents, %s tokens; see *Data* for shares, hashes and languages.", c->n_train,
                        c->n_train == 1 ? "" : "s", known < c->n_train ? ", of those whose sidecars are at hand" : "",
                        card_text_count(a, documents), card_text_count(a, tokens));
}

static const char *compute(const struct card *c)
{
    struct arena *a = c->arena;
    const char *flops = c->flops > 0 ? arena_printf(a, "%.3g floating-point operations%s.", c->flops,
                                                    c->flops_measured ? "" : " by formula") : NULL;

    if (!isnan(card_hours(c)))
        return arena_printf(a, "%s%s%.4g hours of training%s; see *Training*.", flops ? flops : "", flops ? " " : "", card_hours(c),
                            c->ranks > 0 ? arena_printf(a, " on %lld rank%s", (long long)c->ranks, c->ranks == 1 ? "" : "s") : "");
    return flops;
}

static const char *energy(const struct card *c)
{
    double kwh = card_energy_kwh(c);

    return isnan(kwh) ? NULL : arena_printf(c->arena, "About %.4g kWh, estimated; the formula stands under *Training*.", kwh);
}

static const char *evaluation(const struct card *c)
{
    return c->has_rows && c->rows.n_evals ? "Loss, perplexity and bits per byte on sets of text; see *Evaluation*." : NULL;
}

static const char *threshold(const struct card *c)
{
    struct arena *a = c->arena;

    if (!(c->flops > 0))
        return NULL;
    if (c->flops > SYSTEMIC_FLOPS)
        return arena_printf(a, "%.3g operations are **above** 10^25: high-impact capabilities are presumed (Article 51(2)), section 2 "
                            "of Annex XI applies, and the Commission must be told within two weeks (Article 52(1)).", c->flops);
    return arena_printf(a, "%.3g operations are **below** 10^25: the presumption of Article 51(2) does not apply%s. The Commission may "
                        "still designate a model (Article 51(1)(b)).", c->flops,
                        c->in->init ? " to this run alone; what its starting model took is not in this number" : "");
}

/* Section 2 is for models with systemic risk. */
static void section_2(const struct card *c, struct form *f)
{
    static const char none[] = "Asked only of models with systemic risk (Article 51).";
    _Bool needed = !(c->flops > 0) || c->flops > SYSTEMIC_FLOPS || c->in->init;
    const char *fact = needed ? NULL : none;

    f->part = "Annex XI, section 2: models with systemic risk";
    field(f, "Article 51(2)", "Side of the threshold of 10^25 floating-point operations", threshold(c),
          c->flops > 0 && !c->in->init ? NULL : "cumulative operations of the training, with those of the models it began from");
    field(f, "Annex XI, section 2, 1", "Evaluation strategies and results", needed ? evaluation(c) : none,
          needed ? "criteria, metrics and protocols, and how limits of the model were looked for" : NULL);
    field(f, "Annex XI, section 2, 2", "Adversarial testing, alignment and fine-tuning", fact,
          needed ? "internal and external tests (red teaming), and what was changed after them" : NULL);
    field(f, "Annex XI, section 2, 3", "System architecture", fact,
          needed ? "the software parts, and how they feed into each other" : NULL);
}

int card_act_fields(const struct card *c, struct card_field **out)
{
    struct form f = { c->arena, arena_array(c->arena, FIELDS_MAX, sizeof *f.v), 0, NULL };
    const char *pue = energy(c);

    f.part = "Annex XI, section 1, point 1: general description";
    field(&f, "Annex XI, section 1, 1(a)", "Intended tasks, and AI systems it can become part of", NULL,
          "what the model is for, and the kinds of systems it may be built into");
    field(&f, "Annex XI, section 1, 1(b)", "Acceptable use", NULL, "the policy that users must follow, or that there is none");
    field(&f, "Annex XI, section 1, 1(c)", "Release and distribution", NULL, "date of release, and the ways the model is given out");
    field(&f, "Annex XI, section 1, 1(d)", "Architecture and number of parameters", architecture(c), NULL);
    field(&f, "Annex XI, section 1, 1(e)", "Modality and format of inputs and outputs", modality(c), NULL);
    field(&f, "Annex XI, section 1, 1(f)", "Licence", NULL, "the licence of the weights");
    f.part = "Annex XI, section 1, point 2: elements and development";
    field(&f, "Annex XI, section 1, 2(a)", "Technical means for integration",
          c->known ? arena_printf(c->arena, "Weights are safetensors files under the names of the family `%s`, which transformers loads; "
                                  "`moe-train sample` generates from them.", model_type_name(c->cfg.model_type)) : NULL,
          "instructions of use, and the infrastructure and tools that integration needs");
    field(&f, "Annex XI, section 1, 2(b)", "Design of the model and of its training", design(c),
          c->in->config_text ? "key choices with their reasons and assumptions" :
                               "training methods, what the model is optimised for, and key choices with their reasons and assumptions");
    field(&f, "Annex XI, section 1, 2(c)", "Data for training, testing and validation", data(c),
          "type and origin of the data, how it was obtained, selected and cleaned, and how unsuitable sources and biases were looked for");
    field(&f, "Annex XI, section 1, 2(d)", "Computational resources", compute(c),
          c->in->hardware && compute(c) ? NULL : c->in->hardware ? "operations and time of the training" : "the hardware, and where it stands");
    field(&f, "Annex XI, section 1, 2(e)", "Energy consumption", pue, pue ? NULL : "energy of the training in kWh, measured or estimated");
    section_2(c, &f);
    f.part = "Article 53(1): further duties of providers";
    field(&f, "Article 53(1)(b), Annex XII", "Information for those who build on the model", NULL, "where downstream providers find it");
    field(&f, "Article 53(1)(c)", "Copyright policy", NULL,
          "how Union copyright law is complied with, reservations of rights under Article 4(3) of Directive (EU) 2019/790 included");
    field(&f, "Article 53(1)(d)", "Public summary of the training content", NULL, "where it is published, on the template of the AI Office");
    *out = f.v;
    return f.n;
}
