/* vocab_read.c -- tokenizer.json: the model and the added tokens.
 *
 * Ids are those of the file, holes included.  Vocabularies that are no BPE
 * (Unigram, WordPiece, WordLevel) and options that make ids random or are not
 * done here are refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "tok/bytelevel.h"
#include "tok/vocab_read.h"

/* The most ids a file may claim for the tokens it has: an id far beyond them is
 * a slip, not a hole. */
enum { HOLES_MAX = 1 << 20 };

int tok_read_refuse(const char *name, const char *what, const json_t *value)
{
    char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    int rc = text != NULL ? err_set(ERR_DATA, "%s: %s: %.80s is not supported", name, what, text) : err_set(ERR_DATA, "%s: %s is missing", name, what);
    free(text);
    return rc;
}

_Bool tok_read_neutral(const json_t *v)
{
    return v == NULL || json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) || (json_is_string(v) && json_string_length(v) == 0);
}

int tok_read_keys(const char *name, const char *where, const json_t *o, const char *known)
{
    const char *key;
    json_t *value;
    if (!json_is_object(o))
        return err_set(ERR_DATA, "%s: %s: expected an object", name, where);
    json_object_foreach((json_t *)o, key, value) {
        size_t n = strlen(key);
        const char *p = known;
        for (; n > 0 && (p = strstr(p, key)) != NULL; p++)
            if ((p == known || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0' || p[n] == '!'))
                break;
        if (n == 0 || p == NULL)
            return err_set(ERR_DATA, "%s: unknown key \"%s%s%s\"", name, where, where[0] != '\0' ? "." : "", key);
        if (p[n] == '!' && !tok_read_neutral(value)) {
            char what[160];
            snprintf(what, sizeof what, "%s%s%s", where, where[0] != '\0' ? "." : "", key);
            return tok_read_refuse(name, what, value);
        }
    }
    return 0;
}

int tok_read_expect(const char *name, const char *where, const json_t *o, const char *key, const char *want)
{
    const json_t *v = json_object_get(o, key);
    char what[160];
    if (json_is_string(v) && strcmp(json_string_value(v), want) == 0)
        return 0;
    snprintf(what, sizeof what, "%s%s%s", where, where[0] != '\0' ? "." : "", key);
    return tok_read_refuse(name, what, v);
}

/* Files of before 2020 do not name the type of their model. */
static int check_frame(const char *name, const json_t *root, const json_t **model)
{
    if (!json_is_object(root))
        return err_set(ERR_DATA, "%s: expected an object", name);
    *model = json_object_get(root, "model");
    if (!json_is_object(*model))
        return err_set(ERR_DATA, "%s: no object \"model\": this is no tokenizer.json", name);
    if (json_object_get(*model, "type") != NULL || json_object_get(*model, "merges") == NULL)
        TRY(tok_read_expect(name, "model", *model, "type", "BPE"));
    if (json_object_get(root, "version") != NULL)
        TRY(tok_read_expect(name, "", root, "version", "1.0"));
    TRY(tok_read_keys(name, "", root, "version truncation! padding! added_tokens normalizer pre_tokenizer post_processor decoder model"));
    TRY(tok_read_keys(name, "model", *model, "type dropout! unk_token continuing_subword_prefix! end_of_word_suffix! fuse_unk byte_fallback ignore_merges vocab merges"));
    if (!json_is_object(json_object_get(*model, "vocab")))
        return err_set(ERR_DATA, "%s: model.vocab: expected an object", name);
    if (!json_is_array(json_object_get(*model, "merges")))
        return err_set(ERR_DATA, "%s: model.merges: expected a list", name);
    const json_t *added = json_object_get(root, "added_tokens");
    if (added != NULL && !json_is_null(added) && !json_is_array(added))
        return err_set(ERR_DATA, "%s: added_tokens: expected a list", name);
    return 0;
}

static int read_one_added(struct tok_vocab *v, const json_t *o, size_t i, const struct tok_lists *l, struct tok_added *out)
{
    const char *content;
    char where[48];
    int64_t id;
    static const char *const flags[] = { "single_word", "lstrip", "rstrip", "normalized", "special" };
    _Bool on[5] = { 0 };
    snprintf(where, sizeof where, "added_tokens[%zu]", i);
    TRY(tok_read_keys(v->name, where, o, "id content single_word lstrip rstrip normalized special"));
    const char *at = arena_printf(v->arena, "%s: %s", v->name, where);
    TRY(json_get_int(o, at, "id", &id));
    TRY(json_get_str(o, at, "content", &content));
    for (int k = 0; k < 5; k++)
        TRY(json_opt_bool(o, at, flags[k], &on[k]));
    if (content[0] == '\0')
        return err_set(ERR_DATA, "%s: a token without content", at);
    int64_t known = tok_lists_find(l, content, strlen(content));
    if (known >= 0 && l->key[known].id != id)
        return err_set(ERR_DATA, "%s: \"%s\" has id %lld in added_tokens, but %lld in model.vocab", v->name, content,
                       (long long)id, (long long)l->key[known].id);
    TRY(tok_vocab_put(v, id, (const uint8_t *)content, strlen(content), content));
    *out = (struct tok_added){ (int32_t)id, (const char *)v->bytes[id], on[0], on[1], on[2], on[3], on[4] };
    if (on[4])
        v->special[v->n_specials++] = (int32_t)id;
    return 0;
}

static int read_added(struct tok_vocab *v, const json_t *added, const struct tok_lists *l)
{
    size_t n = json_array_size(added);
    v->added = arena_array(v->arena, n, sizeof *v->added);
    for (size_t i = 0; i < n; i++)
        TRY(read_one_added(v, json_array_get(added, i), i, l, &v->added[v->n_added++]));
    return 0;
}

static int read_keys(struct tok_vocab *v, const struct tok_lists *l)
{
    uint8_t *p = arena_alloc(v->arena, l->key_bytes + (size_t)l->n_keys);
    for (int64_t i = 0; i < l->n_keys; i++) {
        const struct tok_lists_key *k = &l->key[i];
        int64_t id = k->id;
        if (id < 0 || id >= v->size)
            return err_set(ERR_DATA, "%s: token \"%.*s\" has id %lld, which is out of range", v->name, (int)(k->n < 60 ? k->n : 60), k->s, (long long)id);
        if (v->key[id] != NULL || (v->bytes[id] != NULL && (v->len[id] != k->n || memcmp(k->s, v->bytes[id], k->n) != 0)))
            return err_set(ERR_DATA, "%s: id %lld is given twice", v->name, (long long)id);
        if (k->n == 0)
            return err_set(ERR_DATA, "%s: model.vocab: a token without text", v->name);
        memcpy(p, k->s, k->n);
        v->key_len[id] = k->n;
        v->key[id] = p;
        p += k->n + 1;
    }
    return 0;
}

static int read_options(struct tok_vocab *v, const json_t *model, const struct tok_lists *l)
{
    const json_t *unk = json_object_get(model, "unk_token");
    int64_t k = -1;
    const char *at = arena_printf(v->arena, "%s: model", v->name);
    TRY(json_opt_bool(model, at, "fuse_unk", &v->fuse_unk));
    TRY(json_opt_bool(model, at, "byte_fallback", &v->byte_fallback));
    TRY(json_opt_bool(model, at, "ignore_merges", &v->ignore_merges));
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        k = tok_lists_find(l, name, strlen(name));
        v->fallback[b] = k >= 0 ? (int32_t)l->key[k].id : -1;
    }
    if (unk == NULL || json_is_null(unk))
        return 0;
    if (!json_is_string(unk))
        return tok_read_refuse(v->name, "model.unk_token", unk);
    k = tok_lists_find(l, json_string_value(unk), json_string_length(unk));
    v->unk = k >= 0 ? (int32_t)l->key[k].id : -1;
    return 0;
}

/* A token for what is unknown that is no token: tokenizers stops at the first text that
 * needs it, and there may be none. */
static int check_unknown(const struct tok_vocab *v, const json_t *unk)
{
    _Bool bytes = v->byte_level, falls = v->byte_fallback;
    if (!json_is_string(unk) || v->unk >= 0)
        return 0;
    for (int b = 0; b < 256; b++) {
        bytes &= v->byte_id[b] >= 0;
        falls &= v->fallback[b] >= 0;
    }
    return bytes || falls ? 0 : err_set(ERR_DATA, "%s: model.unk_token: \"%.60s\" is not in model.vocab", v->name, json_string_value(unk));
}

/* Ids with holes: what is put around a text must be there. */
static int check_template(const struct tok_vocab *v)
{
    for (int i = 0; i < v->n_before + v->n_after; i++) {
        int32_t id = i < v->n_before ? v->before[i] : v->after[i - v->n_before];
        if (v->bytes[id] == NULL)
            return err_set(ERR_DATA, "%s: post_processor: id %d is no token", v->name, (int)id);
    }
    return 0;
}

static void read_merges(struct tok_vocab *v, const struct tok_lists *l)
{
    for (int64_t i = 0; i < l->n_merges; i++) {
        const struct tok_merge *m = &l->merges[i];
        v->merges[i] = (struct tok_merge){ (int32_t)l->key[m->a].id, (int32_t)l->key[m->b].id, (int32_t)l->key[m->product].id };
    }
}

static int ids_needed(const char *name, const struct tok_lists *l, const json_t *added, int64_t *out)
{
    int64_t top = -1, n = l->n_keys + (int64_t)json_array_size(added);
    for (int64_t i = 0; i < l->n_keys; i++)
        top = l->key[i].id > top ? l->key[i].id : top;
    for (size_t i = 0; i < json_array_size(added); i++) {
        int64_t id = json_integer_value(json_object_get(json_array_get(added, i), "id"));
        top = id > top ? id : top;
    }
    if (top >= n + HOLES_MAX || top >= INT32_MAX / 2)
        return err_set(ERR_DATA, "%s: an id of %lld in a vocabulary of %lld tokens", name, (long long)top, (long long)n);
    *out = top + 1;
    return 0;
}

int tok_read_json(const char *name, const json_t *root, const struct tok_lists *l, struct tok_vocab **out)
{
    const json_t *model = NULL, *added = json_object_get(root, "added_tokens");
    int64_t size = 0;
    int rc;
    TRY(check_frame(name, root, &model));
    TRY(ids_needed(name, l, added, &size));
    struct tok_vocab *v = tok_vocab_alloc(name, (int32_t)size, l->n_merges, (int)json_array_size(added));
    v->n_specials = 0;
    v->char_keys = 1;
    TRY_OUT(rc, read_added(v, added, l));
    TRY_OUT(rc, read_keys(v, l));
    TRY_OUT(rc, read_options(v, model, l));
    TRY_OUT(rc, tok_read_normalizer(v, json_object_get(root, "normalizer")));
    TRY_OUT(rc, tok_read_pre_tokenizer(v, json_object_get(root, "pre_tokenizer")));
    TRY_OUT(rc, tok_read_post_processor(v, json_object_get(root, "post_processor")));
    TRY_OUT(rc, tok_read_decoder(v, json_object_get(root, "decoder")));
    TRY_OUT(rc, tok_vocab_finish(v));
    TRY_OUT(rc, check_template(v));
    TRY_OUT(rc, check_unknown(v, json_object_get(model, "unk_token")));
    read_merges(v, l);
    *out = v;
    v = NULL;
out:
    tok_vocab_free(v);
    return rc < 0 ? rc : 0;
}
