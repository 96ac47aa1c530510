/* vocab_parts.c -- tokenizer.json: normalizer, pre-tokenizer, post-processor and decoder.
 *
 * Each is one object or a Sequence of them; a Sequence is read as the list it
 * is.  What is not in the list of what steps.h does is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "tok/bytelevel.h"
#include "tok/vocab_read.h"

enum { STEPS_MAX = 64 };

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static struct tok_str own(struct tok_vocab *v, const char *s)
{
    return (struct tok_str){ (uint8_t *)arena_strdup(v->arena, s), strlen(s) };
}

static const char *type_of(const json_t *o)
{
    const char *s = json_string_value(json_object_get(o, "type"));
    return s != NULL ? s : "";
}

/* The one reader of a kind of step is called for each object of a Sequence. */
typedef int read_step(struct tok_vocab *v, const char *where, const json_t *o);

static int each(struct tok_vocab *v, const char *where, const char *list, const json_t *o, read_step *read, int depth)
{
    if (o == NULL || json_is_null(o))
        return 0;
    if (strcmp(type_of(o), "Sequence") != 0)
        return read(v, where, o);
    const json_t *l = json_object_get(o, list);
    char known[64], at[160];
    snprintf(known, sizeof known, "type %s", list);
    TRY(tok_read_keys(v->name, where, o, known));
    if (!json_is_array(l) || depth > 8)
        return err_set(ERR_DATA, "%s: %s.%s: expected a list", v->name, where, list);
    for (size_t i = 0; i < json_array_size(l); i++) {
        snprintf(at, sizeof at, "%.100s.%s[%zu]", where, list, i);
        TRY(each(v, at, list, json_array_get(l, i), read, depth + 1));
    }
    return 0;
}

/* {"String": s} or {"Regex": s}. */
static int pattern(struct tok_vocab *v, const char *where, const json_t *o, struct tok_str *text, struct tok_regex **re)
{
    char at[200];
    const json_t *p = json_object_get(o, "pattern"), *s = json_object_get(p, "String"), *r = json_object_get(p, "Regex");
    snprintf(at, sizeof at, "%s: %s.pattern", v->name, where);
    if (json_object_size(p) != 1 || !json_is_string(s != NULL ? s : r))
        return err_set(ERR_DATA, "%s: expected {\"String\": ...} or {\"Regex\": ...}", at);
    if (s == NULL)
        return tok_regex_new(at, json_string_value(r), json_string_length(r), TOK_ONIG, re);
    if (json_string_length(s) == 0)
        return err_set(ERR_DATA, "%s: an empty text", at);
    *text = own(v, json_string_value(s));
    return 0;
}

static const char *place(struct tok_vocab *v, const char *where)
{
    return arena_printf(v->arena, "%s: %s", v->name, where);
}

static int get_bool(struct tok_vocab *v, const char *where, const json_t *o, const char *key, _Bool *out)
{
    return json_opt_bool(o, place(v, where), key, out);
}

static int read_norm(struct tok_vocab *v, const char *where, const json_t *o)
{
    static const char *const forms[] = { "NFC", "NFD", "NFKC", "NFKD" };
    struct tok_norm *t = &v->norm[v->n_norm];
    const char *type = type_of(o), *s;
    if (v->n_norm == STEPS_MAX)
        return err_set(ERR_DATA, "%s: %s: too many steps", v->name, where);
    *t = (struct tok_norm){ 0 };
    for (int k = 0; k < 4; k++)
        if (strcmp(type, forms[k]) == 0) {
            t->kind = (enum tok_norm_kind)k;
            v->n_norm++;
            return tok_read_keys(v->name, where, o, "type");
        }
    if (strcmp(type, "Prepend") == 0) {
        t->kind = TOK_PREPEND;
        TRY(tok_read_keys(v->name, where, o, "type prepend"));
        TRY(json_get_str(o, place(v, where), "prepend", &s));
        t->text = own(v, s);
    } else if (strcmp(type, "Replace") == 0) {
        t->kind = TOK_REPLACE;
        TRY(tok_read_keys(v->name, where, o, "type pattern content"));
        TRY(json_get_str(o, place(v, where), "content", &s));
        t->with = own(v, s);
        TRY(pattern(v, where, o, &t->text, &t->re));
    } else if (strcmp(type, "Strip") == 0) {
        t->kind = TOK_STRIP;
        TRY(tok_read_keys(v->name, where, o, "type strip_left strip_right"));
        t->left = t->right = 1;
        TRY(get_bool(v, where, o, "strip_left", &t->left));
        TRY(get_bool(v, where, o, "strip_right", &t->right));
    } else if (strcmp(type, "Lowercase") == 0) {
        t->kind = TOK_LOWERCASE;
        TRY(tok_read_keys(v->name, where, o, "type"));
    } else {
        return tok_read_refuse(v->name, where, o);
    }
    v->n_norm++;
    return 0;
}

int tok_read_normalizer(struct tok_vocab *v, const json_t *o)
{
    v->norm = arena_array(v->arena, STEPS_MAX, sizeof *v->norm);
    return each(v, "normalizer", "normalizers", o, read_norm, 0);
}

static int read_behavior(struct tok_vocab *v, const char *where, const json_t *o, struct tok_pre *t)
{
    static const char *const names[] = { "Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext" };
    const char *s;
    int k = 0;
    TRY(json_get_str(o, place(v, where), "behavior", &s));
    while (k < 5 && strcmp(s, names[k]) != 0)
        k++;
    if (k == 5)
        return err_set(ERR_DATA, "%s: %s.behavior: \"%.60s\" is not supported", v->name, where, s);
    t->behavior = (enum tok_behavior)k;
    return 0;
}

static int read_split(struct tok_vocab *v, const char *where, const json_t *o, struct tok_pre *t)
{
    t->kind = TOK_SPLIT;
    TRY(tok_read_keys(v->name, where, o, "type pattern behavior invert"));
    TRY(read_behavior(v, where, o, t));
    TRY(get_bool(v, where, o, "invert", &t->invert));
    TRY(pattern(v, where, o, &t->text, &t->re));
    if (t->re != NULL)
        t->expression = arena_strdup(v->arena, json_string_value(json_object_get(json_object_get(o, "pattern"), "Regex")));
    return 0;
}

/* ASCII's and that of Unicode 8, which the package has tables of. */
#define PUNCTUATION "(?![\\x{61d}\\x{9fd}-\\x{a76}\\x{c77}-\\x{c84}\\x{1b4e}\\x{1b4f}\\x{1b7d}-\\x{1b7f}\\x{2e43}-\\x{2e7f}\\x{10ead}-\\x{10f89}" \
        "\\x{1144b}-\\x{1145d}\\x{11660}-\\x{116b9}\\x{1183b}-\\x{11fff}\\x{12ff1}\\x{12ff2}\\x{16d6d}-\\x{16fe2}\\x{1e5ff}\\x{1e95e}\\x{1e95f}])" \
        "[\\p{P}$+<=>^`|~\\x{166d}\\x{111c9}]"

/* Splits by expressions that have names of their own. */
static int read_named(struct tok_vocab *v, const char *where, const json_t *o, struct tok_pre *t)
{
    static const struct { const char *type, *expression; _Bool keep; } named[] = {
        { "Whitespace", "\\w+|[^\\w\\s]+", 1 },
        { "WhitespaceSplit", "\\s", 0 },
        { "Punctuation", PUNCTUATION, 0 },
    };
    size_t k = 0;
    while (k < 3 && strcmp(type_of(o), named[k].type) != 0)
        k++;
    if (k == 3)
        return tok_read_refuse(v->name, where, o);
    t->kind = TOK_SPLIT;
    t->invert = named[k].keep;
    TRY(tok_read_keys(v->name, where, o, k == 2 ? "type behavior" : "type"));
    if (k == 2 && json_object_get(o, "behavior") == NULL)
        t->behavior = TOK_ISOLATED;
    else if (k == 2)
        TRY(read_behavior(v, where, o, t));
    else
        t->behavior = TOK_REMOVED;
    return tok_regex_new(place(v, where), named[k].expression, strlen(named[k].expression), TOK_RUST, &t->re);
}

static int read_bytelevel(struct tok_vocab *v, const char *where, const json_t *o, struct tok_pre *t)
{
    _Bool prefix = 1, regex = 1;
    t->kind = TOK_BYTELEVEL;
    TRY(tok_read_keys(v->name, where, o, "type add_prefix_space trim_offsets use_regex"));
    TRY(get_bool(v, where, o, "add_prefix_space", &prefix));
    TRY(get_bool(v, where, o, "use_regex", &regex));
    t->prefix = prefix ? TOK_ALWAYS : TOK_NEVER;
    if (!regex)
        return 0;
    t->expression = gpt2;
    return tok_regex_new(place(v, where), gpt2, strlen(gpt2), TOK_ONIG, &t->re);
}

static int read_metaspace(struct tok_vocab *v, const char *where, const json_t *o, struct tok_pre *t)
{
    const char *s = "\xe2\x96\x81", *scheme = NULL;
    _Bool old = 1;
    t->kind = TOK_METASPACE;
    t->split = 1;
    TRY(tok_read_keys(v->name, where, o, "type replacement str_rep prepend_scheme add_prefix_space split"));
    TRY(json_opt_str(o, place(v, where), "replacement", &s));
    TRY(json_opt_str(o, place(v, where), "prepend_scheme", &scheme));
    TRY(get_bool(v, where, o, "add_prefix_space", &old));
    TRY(get_bool(v, where, o, "split", &t->split));
    t->text = own(v, s);
    if (t->text.n == 0)
        return tok_read_refuse(v->name, where, o);
    if (scheme == NULL)
        scheme = old ? "always" : "never";
    else if (!old && strcmp(scheme, "never") != 0)
        return tok_read_refuse(v->name, where, o);
    t->prefix = strcmp(scheme, "always") == 0 ? TOK_ALWAYS : strcmp(scheme, "first") == 0 ? TOK_FIRST : TOK_NEVER;
    if (t->prefix == TOK_NEVER && strcmp(scheme, "never") != 0)
        return tok_read_refuse(v->name, where, o);
    /* First are all pieces that come from the beginning of the raw text: which these are is
     * not known behind steps that take text away there, or that add some and then cut. */
    for (int k = 0; t->prefix == TOK_FIRST && k < v->n_norm; k++)
        if (v->norm[k].kind == TOK_STRIP || v->norm[k].kind == TOK_REPLACE || v->n_pre > 0)
            return tok_read_refuse(v->name, where, o);
    for (int k = 0; t->prefix == TOK_FIRST && k < v->n_pre; k++)
        if (v->pre[k].prefix != TOK_NEVER)
            return tok_read_refuse(v->name, where, o);
    return 0;
}

static int read_pre(struct tok_vocab *v, const char *where, const json_t *o)
{
    struct tok_pre *t = &v->pre[v->n_pre];
    const char *type = type_of(o);
    int rc = 0;
    if (v->n_pre == STEPS_MAX)
        return err_set(ERR_DATA, "%s: %s: too many steps", v->name, where);
    *t = (struct tok_pre){ 0 };
    if (strcmp(type, "Split") == 0) {
        rc = read_split(v, where, o, t);
    } else if (strcmp(type, "ByteLevel") == 0) {
        rc = read_bytelevel(v, where, o, t);
    } else if (strcmp(type, "Metaspace") == 0) {
        rc = read_metaspace(v, where, o, t);
    } else if (strcmp(type, "Digits") == 0) {
        t->kind = TOK_DIGITS;
        TRY(tok_read_keys(v->name, where, o, "type individual_digits"));
        rc = get_bool(v, where, o, "individual_digits", &t->split);
    } else {
        rc = read_named(v, where, o, t);
    }
    v->n_pre++;
    return rc;
}

int tok_read_pre_tokenizer(struct tok_vocab *v, const json_t *o)
{
    v->pre = arena_array(v->arena, STEPS_MAX, sizeof *v->pre);
    TRY(each(v, "pre_tokenizer", "pretokenizers", o, read_pre, 0));
    v->byte_level = v->n_pre > 0 && v->pre[v->n_pre - 1].kind == TOK_BYTELEVEL;
    return 0;
}

/* ---- what the template puts around a text */

static int read_template(struct tok_vocab *v, const char *where, const json_t *o)
{
    char at[200];
    const json_t *single = json_object_get(o, "single"), *tokens = json_object_get(o, "special_tokens");
    _Bool seen = 0;
    snprintf(at, sizeof at, "%s.single", where);
    TRY(tok_read_keys(v->name, where, o, "type single pair special_tokens"));
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *x = json_array_get(single, i), *s = json_object_get(x, "SpecialToken");
        const char *id = json_string_value(json_object_get(s, "id"));
        const char *text = json_string_value(json_object_get(json_object_get(x, "Sequence"), "id"));
        if (text != NULL && strcmp(text, "A") == 0 && !seen) {
            seen = 1;
            continue;
        }
        const json_t *ids = id != NULL ? json_object_get(json_object_get(tokens, id), "ids") : NULL;
        if (!json_is_array(ids))
            return tok_read_refuse(v->name, at, single);
        for (size_t k = 0; k < json_array_size(ids); k++) {
            int64_t n = json_integer_value(json_array_get(ids, k));
            int32_t **list = seen ? &v->after : &v->before;
            int *count = seen ? &v->n_after : &v->n_before;
            if (!json_is_integer(json_array_get(ids, k)) || n < 0 || n >= v->size || *count == STEPS_MAX)
                return tok_read_refuse(v->name, at, single);
            if (*list == NULL)
                *list = arena_array(v->arena, STEPS_MAX, sizeof **list);
            (*list)[(*count)++] = (int32_t)n;
        }
    }
    return seen ? 0 : tok_read_refuse(v->name, at, single);
}

/* One token before a text and one behind it: ["</s>", 2]. */
static int read_pair(struct tok_vocab *v, const char *where, const json_t *o)
{
    static const char *const keys[] = { "cls", "sep" };
    int32_t **list[] = { &v->before, &v->after };
    for (int k = 0; k < 2; k++) {
        const json_t *pair = json_object_get(o, keys[k]), *id = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= v->size)
            return tok_read_refuse(v->name, where, o);
        *list[k] = arena_array(v->arena, 1, sizeof **list[k]);
        **list[k] = (int32_t)json_integer_value(id);
    }
    v->n_before = v->n_after = 1;
    return 0;
}

static int read_post(struct tok_vocab *v, const char *where, const json_t *o)
{
    if (strcmp(type_of(o), "ByteLevel") == 0)           /* moves offsets, never ids */
        return tok_read_keys(v->name, where, o, "type add_prefix_space trim_offsets use_regex");
    if (strcmp(type_of(o), "TemplateProcessing") == 0 && v->n_before + v->n_after == 0)
        return read_template(v, where, o);
    if (strcmp(type_of(o), "RobertaProcessing") == 0 && v->n_before + v->n_after == 0) {
        TRY(tok_read_keys(v->name, where, o, "type sep cls trim_offsets add_prefix_space"));
        return read_pair(v, where, o);
    }
    if (strcmp(type_of(o), "BertProcessing") == 0 && v->n_before + v->n_after == 0) {
        TRY(tok_read_keys(v->name, where, o, "type sep cls"));
        return read_pair(v, where, o);
    }
    return tok_read_refuse(v->name, where, o);
}

int tok_read_post_processor(struct tok_vocab *v, const json_t *o)
{
    return each(v, "post_processor", "processors", o, read_post, 0);
}

/* ---- texts of tokens */

struct decoder { struct tok_vocab *v; _Bool bytes, fallback, fused; struct tok_str from[8], to[8]; int n; };

/* Returns false for what only a decoder of its own kind could do. */
static _Bool decode_step(struct decoder *d, const json_t *o)
{
    const char *type = type_of(o);
    const json_t *text = json_object_get(json_object_get(o, "pattern"), "String"), *with = json_object_get(o, "content");
    if (strcmp(type, "ByteLevel") == 0 && d->n == 0 && !d->fallback && !d->fused)
        return d->bytes = 1;
    if (strcmp(type, "Replace") == 0 && !d->fused && !d->fallback && !d->bytes && json_string_length(text) > 0 && json_is_string(with) && d->n < 8) {
        d->from[d->n] = own(d->v, json_string_value(text));
        d->to[d->n++] = own(d->v, json_string_value(with));
        return 1;
    }
    if (strcmp(type, "ByteFallback") == 0 && !d->fused && !d->bytes)
        return d->fallback = 1;
    if (strcmp(type, "Fuse") == 0)
        return d->fused = 1;
    if (strcmp(type, "Strip") == 0 && d->fused && json_is_string(with) && strcmp(json_string_value(with), " ") == 0 &&
        json_integer_value(json_object_get(o, "stop")) == 0 && d->v->strip == 0) {
        d->v->strip = (int)json_integer_value(json_object_get(o, "start"));
        return 1;
    }
    return 0;
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* s is the token as the decoder gets it. */
static int put_text(struct decoder *d, int32_t id, struct tok_str s, _Bool bytes, struct tok_buf two[2])
{
    struct tok_vocab *v = d->v;
    const char *shown = (const char *)s.s;
    struct tok_regex_mem *none = NULL;
    if (bytes) {
        two[0].n = 0;
        tok_buf_put(&two[0], s.s, s.n);
        int64_t n = tok_bytes_read((const char *)s.s, s.n, two[0].p);
        if (n > 0)
            s = (struct tok_str){ two[0].p, (size_t)n };
    }
    for (int k = 0; k < d->n; k++) {
        struct tok_norm t = { .kind = TOK_REPLACE, .text = d->from[k], .with = d->to[k] };
        TRY(tok_steps_normal(&t, 1, none, s, &two[k & 1], &s));
    }
    uint8_t byte;
    if (d->fallback && s.n == 6 && memcmp(s.s, "<0x", 3) == 0 && s.s[5] == '>' && hex(s.s[3]) >= 0 && hex(s.s[4]) >= 0) {
        byte = (uint8_t)(hex(s.s[3]) * 16 + hex(s.s[4]));
        s = (struct tok_str){ &byte, 1 };
    }
    v->bytes[id] = NULL;
    return tok_vocab_put(v, id, s.s, s.n, shown);
}

/* An added token is what it was found as, never a map of bytes; special ones keep their names. */
static int put_added(struct decoder *d, const struct tok_added *a, struct tok_regex_mem *mem, struct tok_buf two[2])
{
    struct tok_vocab *v = d->v;
    struct tok_str s = { (const uint8_t *)a->content, strlen(a->content) };
    if (a->special)
        return 0;
    if (a->normalized && v->n_norm > 0) {
        TRY(tok_steps_normal(v->norm, v->n_norm, mem, s, two, &s));
        s.s = memcpy(arena_alloc(v->arena, s.n + 1), s.s, s.n);
    }
    return put_text(d, a->id, s, 0, two);
}

int tok_read_decoder(struct tok_vocab *v, const json_t *o)
{
    struct decoder d = { .v = v };
    struct tok_buf two[3] = { 0 };
    const json_t *list = json_object_get(o, "decoders");
    _Bool ok = 1, sequence = strcmp(type_of(o), "Sequence") == 0;
    int rc = 0;
    for (size_t i = 0; ok && i < (sequence ? json_array_size(list) : 1); i++)
        ok = decode_step(&d, sequence ? json_array_get(list, i) : o);
    if (!ok) {
        char *text = o != NULL ? json_dumps(o, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        v->no_decode = arena_printf(v->arena, "%s: decoder: %.80s is not supported", v->name, text != NULL ? text : "null");
        free(text);
    }
    /* Training and encoding count text by the tokens' bytes all the same. */
    if (!ok)
        d = (struct decoder){ .v = v, .bytes = v->byte_level };
    struct tok_regex_mem *mem = tok_regex_mem_new();
    if (mem == NULL)
        rc = err_sys(ERR_IO, "memory for normalizers");
    for (int32_t i = 0; i < v->size && rc == 0; i++)
        if (v->key[i] != NULL && v->bytes[i] == NULL)
            rc = put_text(&d, i, (struct tok_str){ v->key[i], v->key_len[i] }, d.bytes, two);
    for (int i = 0; i < v->n_added && rc == 0; i++)
        rc = put_added(&d, &v->added[i], mem, two);
    tok_regex_mem_free(mem);
    for (int k = 0; k < 3; k++)
        tok_buf_free(&two[k]);
    return rc;
}
