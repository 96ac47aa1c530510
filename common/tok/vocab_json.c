/* vocab_json.c -- tokenizer.json: written in one way, read strictly.
 *
 * Reading walks every key of the parts that decide ids.  A value that would
 * change an id and that this program does not do is refused by name; nothing
 * is approximated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "tok/bytelevel.h"
#include "tok/split.h"
#include "tok/vocab.h"
#include "tok/vocab_store.h"

/* ---- writing */

static void put_bytelevel(struct json_out *j, const char *key, _Bool trim)
{
    json_obj(j, key);
    json_put_str(j, "type", "ByteLevel");
    json_put_bool(j, "add_prefix_space", 0);
    json_put_bool(j, "trim_offsets", trim);
    json_put_bool(j, "use_regex", 0);
    json_obj_end(j);
}

static void put_shown(struct json_out *j, const struct tok_vocab *v, int32_t id, char *buf)
{
    json_put_strn(j, NULL, buf, tok_bytes_show(v->bytes[id], v->len[id], buf));
}

char *tok_vocab_text(const struct tok_vocab *v, size_t *n)
{
    size_t longest = 1;
    for (int32_t i = 0; i < v->size; i++)
        if (v->len[i] > longest)
            longest = v->len[i];
    char *buf = malloc(2 * longest + 1);
    struct json_out *j = json_new_pretty();
    BUG_ON(buf == NULL);
    json_obj(j, NULL);
    json_put_str(j, "version", "1.0");
    json_put_null(j, "truncation");
    json_put_null(j, "padding");
    json_arr(j, "added_tokens");
    for (int i = 0; i < v->n_specials; i++) {
        json_obj(j, NULL);
        json_put_int(j, "id", v->special[i]);
        json_put_str(j, "content", (const char *)v->bytes[v->special[i]]);
        json_put_bool(j, "single_word", 0);
        json_put_bool(j, "lstrip", 0);
        json_put_bool(j, "rstrip", 0);
        json_put_bool(j, "normalized", 0);
        json_put_bool(j, "special", 1);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_put_null(j, "normalizer");
    json_obj(j, "pre_tokenizer");
    json_put_str(j, "type", "Sequence");
    json_arr(j, "pretokenizers");
    json_obj(j, NULL);
    json_put_str(j, "type", "Split");
    json_obj(j, "pattern");
    json_put_str(j, "Regex", tok_split_o200k);
    json_obj_end(j);
    json_put_str(j, "behavior", "Isolated");
    json_put_bool(j, "invert", 0);
    json_obj_end(j);
    put_bytelevel(j, NULL, 0);
    json_arr_end(j);
    json_obj_end(j);
    json_put_null(j, "post_processor");
    put_bytelevel(j, "decoder", 0);
    json_obj(j, "model");
    json_put_str(j, "type", "BPE");
    json_put_null(j, "dropout");
    json_put_null(j, "unk_token");
    json_put_null(j, "continuing_subword_prefix");
    json_put_null(j, "end_of_word_suffix");
    json_put_bool(j, "fuse_unk", 0);
    json_put_bool(j, "byte_fallback", 0);
    json_put_bool(j, "ignore_merges", 0);
    json_obj(j, "vocab");
    for (int32_t i = 0; i < v->size; i++) {
        if (tok_vocab_is_special(v, i)) {
            json_put_int(j, (const char *)v->bytes[i], i);
            continue;
        }
        buf[tok_bytes_show(v->bytes[i], v->len[i], buf)] = '\0';
        json_put_int(j, buf, i);
    }
    json_obj_end(j);
    json_arr(j, "merges");
    for (int64_t i = 0; i < v->n_merges; i++) {
        json_arr(j, NULL);
        put_shown(j, v, v->merges[i].a, buf);
        put_shown(j, v, v->merges[i].b, buf);
        json_arr_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
    json_obj_end(j);
    const char *text = json_text(j, n);
    char *copy = malloc(*n + 2);
    BUG_ON(copy == NULL);
    memcpy(copy, text, *n);
    if (*n == 0 || copy[*n - 1] != '\n')
        copy[(*n)++] = '\n';
    copy[*n] = '\0';
    json_free(j);
    free(buf);
    return copy;
}

/* ---- reading */

static int unsupported(const char *name, const char *what, const json_t *value)
{
    char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    int rc = err_set(ERR_DATA, "%s: %s: %.80s is not supported", name, what, text != NULL ? text : "nothing");
    free(text);
    return rc;
}

static _Bool is_neutral(const json_t *v)
{
    return v == NULL || json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) || (json_is_string(v) && json_string_length(v) == 0);
}

/* Each key of o must be in known ("key" read elsewhere, "key!" neutral). */
static int only_keys(const char *name, const char *where, const json_t *o, const char *known)
{
    const char *key;
    json_t *value;
    if (!json_is_object(o))
        return err_set(ERR_DATA, "%s: %s: expected an object", name, where);
    json_object_foreach((json_t *)o, key, value) {
        size_t n = strlen(key);
        const char *p = known;
        for (; (p = strstr(p, key)) != NULL; p++)
            if ((p == known || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0' || p[n] == '!'))
                break;
        if (p == NULL)
            return err_set(ERR_DATA, "%s: unknown key \"%s%s%s\"", name, where, where[0] != '\0' ? "." : "", key);
        if (p[n] == '!' && !is_neutral(value)) {
            char what[128];
            snprintf(what, sizeof what, "%s%s%s", where, where[0] != '\0' ? "." : "", key);
            return unsupported(name, what, value);
        }
    }
    return 0;
}

static int expect_str(const char *name, const char *where, const json_t *o, const char *key, const char *want)
{
    const json_t *v = json_object_get(o, key);
    char what[128];
    if (json_is_string(v) && strcmp(json_string_value(v), want) == 0)
        return 0;
    snprintf(what, sizeof what, "%s%s%s", where, where[0] != '\0' ? "." : "", key);
    return unsupported(name, what, v);
}

/* add_prefix_space must be false; use_regex too, unless the object only decodes. */
static int check_bytelevel(const char *name, const char *where, const json_t *o, _Bool splits)
{
    char what[128];
    TRY(only_keys(name, where, o, splits ? "type add_prefix_space! trim_offsets use_regex"
                                         : "type add_prefix_space trim_offsets use_regex"));
    TRY(expect_str(name, where, o, "type", "ByteLevel"));
    if (!splits)
        return 0;
    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? "use_regex" : "add_prefix_space";
        if (!json_is_false(json_object_get(o, key))) {
            snprintf(what, sizeof what, "%s.%s", where, key);
            return unsupported(name, what, json_object_get(o, key));
        }
    }
    return 0;
}

static int check_pre_tokenizer(const char *name, const json_t *p)
{
    const char *at = "pre_tokenizer";
    if (!json_is_object(p))
        return unsupported(name, at, p);
    TRY(expect_str(name, at, p, "type", "Sequence"));
    TRY(only_keys(name, at, p, "type pretokenizers"));
    const json_t *list = json_object_get(p, "pretokenizers");
    if (json_array_size(list) != 2)
        return unsupported(name, "pre_tokenizer.pretokenizers", list);
    const json_t *split = json_array_get(list, 0);
    TRY(expect_str(name, "pre_tokenizer.pretokenizers[0]", split, "type", "Split"));
    TRY(only_keys(name, "pre_tokenizer.pretokenizers[0]", split, "type pattern behavior invert!"));
    TRY(expect_str(name, "pre_tokenizer.pretokenizers[0]", split, "behavior", "Isolated"));
    TRY(expect_str(name, "pre_tokenizer.pretokenizers[0].pattern", json_object_get(split, "pattern"), "Regex", tok_split_o200k));
    return check_bytelevel(name, "pre_tokenizer.pretokenizers[1]", json_array_get(list, 1), 1);
}

static int check_frame(const char *name, const json_t *root, const json_t **model)
{
    if (!json_is_object(root))
        return err_set(ERR_DATA, "%s: expected an object", name);
    *model = json_object_get(root, "model");
    if (!json_is_object(*model))
        return err_set(ERR_DATA, "%s: no object \"model\": this is no tokenizer.json", name);
    TRY(expect_str(name, "model", *model, "type", "BPE"));
    if (json_object_get(root, "version") != NULL)
        TRY(expect_str(name, "", root, "version", "1.0"));
    TRY(only_keys(name, "", root, "version truncation! padding! added_tokens normalizer! pre_tokenizer post_processor decoder model"));
    TRY(only_keys(name, "model", *model, "type dropout! unk_token! continuing_subword_prefix! end_of_word_suffix! fuse_unk! byte_fallback! ignore_merges! vocab merges"));
    TRY(check_pre_tokenizer(name, json_object_get(root, "pre_tokenizer")));
    TRY(check_bytelevel(name, "decoder", json_object_get(root, "decoder"), 0));
    const json_t *post = json_object_get(root, "post_processor");
    if (!is_neutral(post))              /* a ByteLevel one moves offsets, never ids */
        TRY(check_bytelevel(name, "post_processor", post, 0));
    if (!json_is_object(json_object_get(*model, "vocab")))
        return err_set(ERR_DATA, "%s: model.vocab: expected an object", name);
    if (!json_is_array(json_object_get(*model, "merges")))
        return err_set(ERR_DATA, "%s: model.merges: expected a list", name);
    return 0;
}

static int put_token(struct tok_vocab *v, int64_t id, const uint8_t *s, size_t n, const char *shown)
{
    if (id < 0 || id >= v->size)
        return err_set(ERR_DATA, "%s: token \"%s\" has id %lld, but there are %d tokens: ids must be 0..%d without holes",
                       v->name, shown, (long long)id, (int)v->size, (int)v->size - 1);
    if (v->bytes[id] != NULL)
        return err_set(ERR_DATA, "%s: id %lld is given twice", v->name, (long long)id);
    uint8_t *p = arena_alloc(v->arena, n + 1);
    memcpy(p, s, n);
    v->bytes[id] = p;
    v->len[id] = (uint32_t)n;
    return 0;
}

static int read_added(struct tok_vocab *v, const json_t *added, const json_t *vocab)
{
    char where[64];
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *o = json_array_get(added, i), *known;
        const char *content;
        int64_t id;
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        TRY(only_keys(v->name, where, o, "id content single_word! lstrip! rstrip! normalized special"));
        TRY(json_get_int(o, v->name, "id", &id));
        TRY(json_get_str(o, v->name, "content", &content));
        if (!json_is_true(json_object_get(o, "special")))
            return unsupported(v->name, "added_tokens[].special", json_object_get(o, "special"));
        known = json_object_get(vocab, content);
        if (known != NULL && json_integer_value(known) != id)
            return err_set(ERR_DATA, "%s: \"%s\" has id %lld in added_tokens, but %lld in model.vocab", v->name, content,
                           (long long)id, (long long)json_integer_value(known));
        TRY(put_token(v, id, (const uint8_t *)content, strlen(content), content));
        v->special[i] = (int32_t)id;
    }
    return 0;
}

static int read_tokens(struct tok_vocab *v, const json_t *vocab)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value) {
        size_t n = strlen(key);
        if (!json_is_integer(value))
            return err_set(ERR_DATA, "%s: model.vocab: \"%s\": expected an integer", v->name, key);
        int64_t id = json_integer_value(value);
        if (id >= 0 && id < v->size && tok_vocab_is_special(v, (int32_t)id)) {
            if (strcmp(key, (const char *)v->bytes[id]) == 0)
                continue;
            return err_set(ERR_DATA, "%s: id %lld is given twice", v->name, (long long)id);
        }
        uint8_t *buf = arena_alloc(v->arena, n + 1);
        int64_t k = tok_bytes_read(key, n, buf);
        if (k <= 0)
            return err_set(ERR_DATA, "%s: model.vocab: \"%s\" is not written in the ByteLevel alphabet", v->name, key);
        TRY(put_token(v, id, buf, (size_t)k, key));
    }
    return 0;
}

static int part_id(const struct tok_vocab *v, const json_t *vocab, const char *s, size_t n, size_t rank, int32_t *id)
{
    const json_t *o = json_object_getn(vocab, s, n);
    if (!json_is_integer(o) || tok_vocab_is_special(v, (int32_t)json_integer_value(o)))
        return err_set(ERR_DATA, "%s: model.merges[%zu]: \"%.*s\" is not in the vocabulary", v->name, rank, (int)n, s);
    *id = (int32_t)json_integer_value(o);
    return 0;
}

/* Both spellings: ["a", "b"] and "a b". */
static int read_merge(struct tok_vocab *v, const json_t *vocab, const json_t *m, size_t rank, char **buf, size_t *cap)
{
    const char *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    if (json_array_size(m) == 2 && json_is_string(json_array_get(m, 0)) && json_is_string(json_array_get(m, 1))) {
        a = json_string_value(json_array_get(m, 0));
        b = json_string_value(json_array_get(m, 1));
        na = strlen(a);
        nb = strlen(b);
    } else if (json_is_string(m)) {
        a = json_string_value(m);
        b = strchr(a, ' ');
        na = b != NULL ? (size_t)(b - a) : 0;
        nb = b != NULL ? strlen(++b) : 0;
    }
    if (na == 0 || nb == 0 || memchr(b, ' ', nb) != NULL)
        return err_set(ERR_DATA, "%s: model.merges[%zu]: expected two tokens", v->name, rank);
    if (na + nb > *cap) {
        char *p = realloc(*buf, 2 * (na + nb));
        if (p == NULL)
            return err_sys(ERR_IO, "memory for a token");
        *buf = p;
        *cap = 2 * (na + nb);
    }
    memcpy(*buf, a, na);
    memcpy(*buf + na, b, nb);
    struct tok_merge *out = &v->merges[rank];
    TRY(part_id(v, vocab, a, na, rank, &out->a));
    TRY(part_id(v, vocab, b, nb, rank, &out->b));
    return part_id(v, vocab, *buf, na + nb, rank, &out->product);
}

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int by_pair(const void *a, const void *b)
{
    const struct tok_merge *x = a, *y = b;
    return x->a != y->a ? (x->a > y->a) - (x->a < y->a) : (x->b > y->b) - (x->b < y->b);
}

/* A pair with two ranks would merge at the one or the other, depending on the reader. */
static int check_pairs(const struct tok_vocab *v)
{
    int rc = 0;
    struct tok_merge *m = malloc(((size_t)v->n_merges + 1) * sizeof *m);
    if (m == NULL)
        return err_sys(ERR_IO, "memory for the merges");
    if (v->n_merges > 0)
        memcpy(m, v->merges, (size_t)v->n_merges * sizeof *m);
    qsort(m, (size_t)v->n_merges, sizeof *m, by_pair);
    for (int64_t i = 1; i < v->n_merges && rc == 0; i++)
        if (by_pair(&m[i - 1], &m[i]) == 0)
            rc = err_set(ERR_DATA, "%s: model.merges: the pair of ids %d and %d is given twice", v->name, (int)m[i].a, (int)m[i].b);
    free(m);
    return rc;
}

static int read_root(const char *name, const json_t *root, struct tok_vocab **out)
{
    const json_t *model = NULL, *added = json_object_get(root, "added_tokens");
    char *buf = NULL;
    size_t cap = 0, extra = 0;
    int rc;
    TRY(check_frame(name, root, &model));
    const json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const char *content = json_string_value(json_object_get(json_array_get(added, i), "content"));
        extra += content != NULL && json_object_get(vocab, content) == NULL;
    }
    size_t size = json_object_size(vocab) + extra;
    if (size > INT32_MAX / 2 || json_array_size(merges) > INT32_MAX / 2)
        return err_set(ERR_DATA, "%s: too many tokens", name);
    struct tok_vocab *v = tok_vocab_alloc(name, (int32_t)size, (int64_t)json_array_size(merges), (int)json_array_size(added));
    TRY_OUT(rc, read_added(v, added, vocab));
    TRY_OUT(rc, read_tokens(v, vocab));
    /* As many tokens as ids, none twice: so there is no hole. */
    qsort(v->special, (size_t)v->n_specials, sizeof *v->special, by_id);
    TRY_OUT(rc, tok_vocab_finish(v));
    for (size_t i = 0; i < (size_t)v->n_merges; i++)
        TRY_OUT(rc, read_merge(v, vocab, json_array_get(merges, i), i, &buf, &cap));
    TRY_OUT(rc, check_pairs(v));
    *out = v;
    v = NULL;
out:
    free(buf);
    tok_vocab_free(v);
    return rc < 0 ? rc : 0;
}

int tok_vocab_parse(const char *name, const char *text, size_t n, struct tok_vocab **out)
{
    json_t *root;
    *out = NULL;
    size_t at = 0;
    while (at < n && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    if (at == n || text[at] != '{')
        return err_set(ERR_DATA, "%s: not a tokenizer.json", name);
    TRY(json_load_text(name, text, n, &root));
    int rc = read_root(name, root, out);
    json_decref(root);
    if (rc == 0)
        (*out)->hash = hash_bytes(text, n);
    return rc;
}

int tok_vocab_load(const char *path, struct tok_vocab **out)
{
    struct fs_blob text;
    *out = NULL;
    TRY(fs_read(path, &text));
    int rc = tok_vocab_parse(path, text.data, text.size, out);
    fs_blob_free(&text);
    return rc;
}
