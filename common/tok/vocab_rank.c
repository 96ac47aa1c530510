/* vocab_rank.c -- vocabularies of ranks: tiktoken's files and tekken.json.
 *
 * Two neighbours merge when their bytes together are a token, the token of the
 * lowest rank first.  Text that the expression does not match is dropped, as
 * tiktoken drops it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "tok/scheme.h"
#include "tok/vocab_read.h"

static int digit64(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Strict: whole groups, padding only at the end, no left-over bits.  dst has
 * room for 3 n / 4 bytes; returns their number or -1. */
static int64_t read_base64(const char *s, size_t n, uint8_t *dst)
{
    int64_t k = 0;
    if (n == 0 || n % 4 != 0)
        return -1;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t v = 0;
        int pad = 0;
        for (size_t j = i; j < i + 4; j++) {
            int d = digit64((uint8_t)s[j]);
            if (s[j] == '=' && i + 4 == n && j >= i + 2) {
                pad++;
                d = 0;
            } else if (d < 0 || pad > 0) {
                return -1;
            }
            v = v << 6 | (uint32_t)d;
        }
        for (int j = 0; j < 3 - pad; j++)
            dst[k++] = (uint8_t)(v >> (16 - 8 * j));
        if ((v & ((1u << 8 * pad) - 1)) != 0)
            return -1;
    }
    return k;
}

static int put_rank(struct tok_vocab *v, int64_t id, const char *s, size_t n, struct tok_buf *buf)
{
    buf->n = 0;
    tok_buf_put(buf, s, n);
    int64_t k = read_base64(s, n, buf->p);
    if (k <= 0)
        return err_set(ERR_DATA, "%s: token %lld is no base64: \"%.*s\"", v->name, (long long)id, n < 60 ? (int)n : 60, s);
    TRY(tok_vocab_put(v, id, buf->p, (size_t)k, "?"));
    v->key[id] = v->bytes[id];
    v->key_len[id] = v->len[id];
    return 0;
}

/* tiktoken refuses such a vocabulary at the first text that needs the byte. */
static int check_bytes(const struct tok_vocab *v)
{
    for (int b = 0; b < 256; b++)
        if (v->byte_id[b] < 0)
            return err_set(ERR_DATA, "%s: byte 0x%02x has no token", v->name, (unsigned)b);
    return 0;
}

static int set_split(struct tok_vocab *v, const char *where, const char *expression, size_t n)
{
    v->n_pre = 1;
    v->pre = arena_array(v->arena, 1, sizeof *v->pre);
    v->pre[0] = (struct tok_pre){ .kind = TOK_SPLIT, .behavior = TOK_REMOVED, .invert = 1,
                                .expression = arena_strdup(v->arena, expression) };
    v->gaps = 1;
    return tok_regex_new(where, expression, n, TOK_RUST, &v->pre[0].re);
}

/* The whole piece is looked up first, which ranks alone would not give for the
 * few tokens that no merge reaches. */
static void set_ranks(struct tok_vocab *v, const char *format)
{
    v->format = format;
    v->semantics = TOK_RANKS;
    v->byte_level = v->ignore_merges = 1;
}

static int put_special(struct tok_vocab *v, int64_t id, const char *content)
{
    TRY(tok_vocab_put(v, id, (const uint8_t *)content, strlen(content), content));
    v->special[v->n_specials++] = (int32_t)id;
    v->added[v->n_added++] = (struct tok_added){ .id = (int32_t)id, .content = (const char *)v->bytes[id], .special = 1 };
    return 0;
}

/* ---- rank files of tiktoken */

struct line { const char *s; size_t n; int64_t rank; };

static int next_line(const char *name, const char **p, const char *end, int no, struct line *out)
{
    const char *nl = memchr(*p, '\n', (size_t)(end - *p)), *stop = nl != NULL ? nl : end, *at = *p;
    out->s = at;
    while (at < stop && *at != ' ')
        at++;
    out->n = (size_t)(at - out->s);
    out->rank = 0;
    const char *digits = ++at;
    while (at < stop && *at >= '0' && *at <= '9' && out->rank < INT32_MAX / 2)
        out->rank = out->rank * 10 + (*at++ - '0');
    if (at < stop && *at == '\r')
        at++;
    if (digits >= stop || at != stop || at == digits)
        return err_set(ERR_DATA, "%s: line %d: expected a token in base64, a space and its rank", name, no);
    *p = nl != NULL ? nl + 1 : end;
    return 0;
}

/* {"<|endoftext|>": 100257, ...} */
static int read_specials(const char *path, json_t **out)
{
    const char *key;
    json_t *value;
    TRY(json_load_path(path, out));
    json_object_foreach(*out, key, value)
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= INT32_MAX / 2 || key[0] == '\0') {
            json_decref(*out);
            return err_set(ERR_DATA, "%s: \"%s\": expected an id", path, key);
        }
    if (!json_is_object(*out)) {
        json_decref(*out);
        return err_set(ERR_DATA, "%s: expected an object of special tokens and their ids", path);
    }
    return 0;
}

static int fill_tiktoken(struct tok_vocab *v, const char *text, size_t n, const char *path, const json_t *specials)
{
    struct tok_buf buf = { 0 };
    struct line l;
    const char *p = text, *end = text + n, *key;
    json_t *value;
    int rc = 0;
    for (int no = 1; p < end && rc == 0; no++) {
        if ((rc = next_line(v->name, &p, end, no, &l)) == 0)
            rc = put_rank(v, l.rank, l.s, l.n, &buf);
    }
    tok_buf_free(&buf);
    TRY(rc);
    v->added = arena_array(v->arena, json_object_size(specials), sizeof *v->added);
    json_object_foreach((json_t *)specials, key, value) {
        int64_t id = json_integer_value(value);
        if (v->bytes[id] != NULL)
            return err_set(ERR_DATA, "%s: \"%.60s\" has id %lld, which is another token's already", path, key, (long long)id);
        TRY(put_special(v, id, key));
    }
    return 0;
}

int tok_read_tiktoken(const char *name, const char *text, size_t n, const struct tok_load *how, struct tok_vocab **out)
{
    const char *p = text, *end = text + n, *key, *expression = how->scheme != NULL ? tok_scheme_find(how->scheme) : NULL;
    json_t *specials = NULL, *value;
    struct line l;
    int64_t top = -1;
    int rc, lines = 0;
    *out = NULL;
    if (expression == NULL && how->scheme != NULL)
        return err_set(ERR_USAGE, "--scheme %s: expected one of %s", how->scheme, tok_scheme_names);
    if (expression == NULL)
        return err_set(ERR_USAGE, "%s is a rank file, which does not say how text is split: name it with --scheme (%s)", name, tok_scheme_names);
    while (p < end) {
        TRY(next_line(name, &p, end, ++lines, &l));
        top = l.rank > top ? l.rank : top;
    }
    if (how->specials != NULL)
        TRY(read_specials(how->specials, &specials));
    json_object_foreach(specials, key, value)
        top = json_integer_value(value) > top ? json_integer_value(value) : top;
    if (top > 2 * (int64_t)lines + (1 << 20)) {
        json_decref(specials);
        return err_set(ERR_DATA, "%s: an id of %lld in a vocabulary of %d tokens", name, (long long)top, lines);
    }
    struct tok_vocab *v = tok_vocab_alloc(name, (int32_t)top + 1, 0, (int)json_object_size(specials));
    v->n_specials = 0;
    set_ranks(v, "tiktoken");
    TRY_OUT(rc, fill_tiktoken(v, text, n, how->specials, specials));
    TRY_OUT(rc, set_split(v, how->scheme, expression, strlen(expression)));
    TRY_OUT(rc, tok_vocab_finish(v));
    TRY_OUT(rc, check_bytes(v));
    *out = v;
    v = NULL;
out:
    json_decref(specials);
    tok_vocab_free(v);
    return rc;
}

/* ---- tekken.json */

/* What mistral-common takes where a file of a version before 11 lists none. */
static const char *const old_specials[] = {
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
};

static int tekken_specials(struct tok_vocab *v, const json_t *list, const char *version, int64_t n)
{
    char name[32], at[256];
    size_t given = 0;
    v->added = arena_array(v->arena, (size_t)n, sizeof *v->added);
    if (json_is_array(list)) {
        given = json_array_size(list);
        for (size_t i = 0; i < given && (int64_t)i < n; i++) {
            const char *s;
            int64_t rank;
            snprintf(at, sizeof at, "%.200s: special_tokens[%zu]", v->name, i);
            TRY(json_get_int(json_array_get(list, i), at, "rank", &rank));
            TRY(json_get_str(json_array_get(list, i), at, "token_str", &s));
            if (rank >= n)
                return err_set(ERR_DATA, "%s: special_tokens: rank %lld of %lld", v->name, (long long)rank, (long long)n);
            TRY(put_special(v, rank, s));
        }
    } else {
        if (strcmp(version, "v1") != 0 && strcmp(version, "v2") != 0 && strcmp(version, "v3") != 0 && strcmp(version, "v7") != 0)
            return err_set(ERR_DATA, "%s: no special_tokens in a file of version %s", v->name, version);
        given = sizeof old_specials / sizeof *old_specials;
        for (size_t i = 0; i < given && (int64_t)i < n; i++)
            TRY(put_special(v, (int64_t)i, old_specials[i]));
    }
    if ((int64_t)given > n)
        return err_set(ERR_DATA, "%s: %zu special tokens where config.default_num_special_tokens is %lld", v->name, given, (long long)n);
    for (int64_t i = (int64_t)given; i < n; i++) {
        snprintf(name, sizeof name, "<SPECIAL_%lld>", (long long)i);
        TRY(put_special(v, i, name));
    }
    return 0;
}

static int tekken_tokens(struct tok_vocab *v, const json_t *vocab, int64_t specials)
{
    struct tok_buf buf = { 0 };
    char at[256];
    int rc = 0;
    for (size_t i = 0; i < json_array_size(vocab) && rc == 0; i++) {
        const json_t *o = json_array_get(vocab, i);
        const char *s;
        int64_t rank;
        snprintf(at, sizeof at, "%.200s: vocab[%zu]", v->name, i);
        if ((rc = json_get_int(o, at, "rank", &rank)) == 0 && (rc = json_get_str(o, at, "token_bytes", &s)) == 0 &&
            rank >= 0 && rank < v->size - specials)
            rc = put_rank(v, rank + specials, s, strlen(s), &buf);
    }
    tok_buf_free(&buf);
    for (int32_t i = 0; i < v->size && rc == 0; i++)
        if (v->bytes[i] == NULL)
            rc = err_set(ERR_DATA, "%s: no token of rank %lld", v->name, (long long)(i - specials));
    return rc;
}

int tok_read_tekken(const char *name, const json_t *root, struct tok_vocab **out)
{
    const json_t *config = json_object_get(root, "config"), *vocab = json_object_get(root, "vocab");
    const char *pattern, *version = "";
    char where[256];
    int64_t size, specials;
    int rc;
    *out = NULL;
    snprintf(where, sizeof where, "%.200s: config", name);
    TRY(json_get_str(config, where, "pattern", &pattern));
    TRY(json_get_int(config, where, "default_vocab_size", &size));
    TRY(json_get_int(config, where, "default_num_special_tokens", &specials));
    TRY(json_opt_str(config, where, "version", &version));
    if (specials < 0 || size < specials || size - specials > (int64_t)json_array_size(vocab) || specials > 1 << 20)
        return err_set(ERR_DATA, "%s: config: %lld tokens and %lld special ones of %zu", name, (long long)size, (long long)specials, json_array_size(vocab));
    struct tok_vocab *v = tok_vocab_alloc(name, (int32_t)size, 0, (int)specials);
    v->n_specials = 0;
    set_ranks(v, "tekken.json");
    snprintf(where, sizeof where, "%.200s: config.pattern", name);
    TRY_OUT(rc, tekken_specials(v, json_object_get(root, "special_tokens"), version, specials));
    TRY_OUT(rc, tekken_tokens(v, vocab, specials));
    TRY_OUT(rc, set_split(v, where, pattern, strlen(pattern)));
    TRY_OUT(rc, tok_vocab_finish(v));
    TRY_OUT(rc, check_bytes(v));
    *out = v;
    v = NULL;
out:
    tok_vocab_free(v);
    return rc;
}
