/* families_convert.c -- what a family cannot say, said with zeros.
 *
 * The target's own rules (families_check) decide: a scoring function, a norm or
 * a factor that it does not have is refused there, with its reason.  Only what
 * can be expressed by zeros is bent here. */
#include "model/families_convert.h"

#include <string.h>

#include "base/err.h"
#include "model/families.h"

static void keep_extra(const struct model_config *in, const struct family *to, struct model_config *out)
{
    const char *key;
    json_t *v;

    out->extra = json_object();
    json_object_foreach(in->extra, key, v) {
        const struct family_key *k = families_key(to, key);

        if (k && k->kind == FAMILY_BOOK)
            json_object_set(out->extra, key, v);
    }
}

int families_convert(const struct model_config *in, int family, const char *path, struct model_config *out)
{
    const struct family *from = &families[in->model_type];
    const struct family *to = &families[family == MODEL_TYPE_N ? in->model_type : family];
    struct family_faults f = { .path = path };

    *out = *in;
    keep_extra(in, to, out);
    if (from == to)
        return 0;
    out->model_type = family;
    if (to->shared != from->shared) {
        out->n_shared_experts = to->shared == FAMILY_SHARED_SUM;
        out->shared_expert_intermediate_size = to->shared == FAMILY_SHARED_GATED ? in->moe_intermediate_size : 0;
        if (from->shared && to->shared)
            families_fault(&f, "model_type", "the shared expert of %s has %s gate, that of %s has %s", from->name,
                           from->shared == FAMILY_SHARED_GATED ? "a" : "no", to->name, to->shared == FAMILY_SHARED_GATED ? "one" : "none");
    }
    if (!to->bias)
        out->attention_bias = 0;
    families_check(out, &f);
    if (f.n) {
        char reasons[sizeof f.text];

        memcpy(reasons, f.text, sizeof reasons);
        return err_set(ERR_USAGE, "%s\n%s: a %s model that no %s model equals", reasons, path, from->name, to->name);
    }
    return 0;
}

_Bool families_must_be_zero(const struct param *p)
{
    static const char last[] = "down_proj.weight";
    size_t n = strlen(p->name), k = sizeof last - 1;

    if (p->kind == PARAM_SHARED)
        return n > k && !strcmp(p->name + n - k, last);
    return p->kind != PARAM_SHARED_GATE;
}
