/* vocab.c -- a vocabulary in memory: built from merges, asked for tokens. */
#include "tok/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/bytelevel.h"
#include "tok/chars.h"
#include "tok/recipe.h"
#include "tok/vocab_store.h"

struct tok_vocab *tok_vocab_alloc(const char *name, int32_t size, int64_t n_merges, int n_specials)
{
    struct arena *a = arena_new();
    struct tok_vocab *v = arena_alloc(a, sizeof *v);
    v->arena = a;
    v->name = arena_strdup(a, name);
    v->format = "tokenizer.json";
    v->size = size;
    v->n_merges = n_merges;
    v->n_specials = n_specials;
    v->unk = -1;
    v->bytes = arena_array(a, (size_t)size, sizeof *v->bytes);
    v->len = arena_array(a, (size_t)size, sizeof *v->len);
    v->key = arena_array(a, (size_t)size, sizeof *v->key);
    v->key_len = arena_array(a, (size_t)size, sizeof *v->key_len);
    v->text_bytes = arena_array(a, (size_t)size, sizeof *v->text_bytes);
    v->is_special = arena_array(a, (size_t)size, 1);
    v->merges = arena_array(a, (size_t)n_merges, sizeof *v->merges);
    v->special = arena_array(a, (size_t)n_specials, sizeof *v->special);
    for (int i = 0; i < 256; i++)
        v->byte_id[i] = v->fallback[i] = -1;
    return v;
}

void tok_vocab_free(struct tok_vocab *v)
{
    if (v == NULL)
        return;
    for (int i = 0; i < v->n_norm; i++)
        tok_regex_free(v->norm[i].re);
    for (int i = 0; i < v->n_pre; i++)
        tok_regex_free(v->pre[i].re);
    arena_free(v->arena);
}

int tok_vocab_put(struct tok_vocab *v, int64_t id, const uint8_t *s, size_t n, const char *shown)
{
    if (id < 0 || id >= v->size)
        return err_set(ERR_DATA, "%s: token \"%.60s\" has id %lld, which is out of range", v->name, shown, (long long)id);
    if (v->bytes[id] != NULL)
        return err_set(ERR_DATA, "%s: id %lld is given twice", v->name, (long long)id);
    uint8_t *p = arena_alloc(v->arena, n + 1);
    memcpy(p, s, n);
    v->bytes[id] = p;
    v->len[id] = (uint32_t)n;
    return 0;
}

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The token that ends documents comes first: that of the lowest id, unless its
 * name says that it begins, fills or stands for the unknown, and another one's
 * that it ends. */
static void end_first(struct tok_vocab *v)
{
    static const char *const no_end[] = { "<s>", "<unk>", "<pad>", "<bos>", "[PAD]", "[UNK]", "[BOS]", "<|startoftext|>", "<|begin_of_text|>",
                                          ("<\xef\xbd\x9c" "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>") };
    static const char *const end[] = { TOK_EOD, "<|end_of_text|>", ("<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
                                       "</s>", "<eos>", "[EOS]" };
    size_t i = 0;
    int32_t id;
    if (v->n_specials == 0)
        return;
    while (i < sizeof no_end / sizeof *no_end && strcmp((const char *)v->bytes[v->special[0]], no_end[i]) != 0)
        i++;
    if (i == sizeof no_end / sizeof *no_end)
        return;
    for (i = 0; i < sizeof end / sizeof *end; i++)
        for (int k = 1; k < v->n_specials; k++)
            if (strcmp((const char *)v->bytes[id = v->special[k]], end[i]) == 0) {
                memmove(v->special + 1, v->special, (size_t)k * sizeof *v->special);
                v->special[0] = id;
                return;
            }
}

int tok_vocab_finish(struct tok_vocab *v)
{
    qsort(v->special, (size_t)v->n_specials, sizeof *v->special, by_id);
    end_first(v);
    for (int32_t i = 0; i < v->size; i++)
        v->text_bytes[i] = (int32_t)v->len[i];
    for (int i = 0; i < v->n_specials; i++) {
        v->text_bytes[v->special[i]] = 0;
        v->is_special[v->special[i]] = 1;
    }
    for (int32_t i = 0; i < v->size; i++)
        if (v->byte_level && v->text_bytes[i] == 1 && v->key[i] != NULL)
            v->byte_id[v->bytes[i][0]] = i;
    return 0;
}

/* Products that exist already keep their id.  They are found in a table of
 * hashes of the tokens' bytes, open addressing, ids + 1. */
struct names { int32_t *slot; size_t mask; };

static uint64_t name_hash(const uint8_t *s, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ s[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static int32_t *name_slot(const struct names *t, const struct tok_vocab *v, const uint8_t *s, size_t n)
{
    size_t i = name_hash(s, n) & t->mask;
    for (; t->slot[i] != 0; i = (i + 1) & t->mask) {
        int32_t id = t->slot[i] - 1;
        if (v->len[id] == n && memcmp(v->bytes[id], s, n) == 0)
            break;
    }
    return &t->slot[i];
}

static void add_token(struct tok_vocab *v, int32_t id, const uint8_t *s, size_t n)
{
    uint8_t *p = arena_alloc(v->arena, n + 1);
    memcpy(p, s, n);
    v->bytes[id] = p;
    v->len[id] = (uint32_t)n;
    char *shown = arena_alloc(v->arena, 2 * n + 1);
    v->key[id] = (uint8_t *)shown;
    v->key_len[id] = (uint32_t)tok_bytes_show(s, n, shown);
}

static void add_special(struct tok_vocab *v, int32_t id, const char *content, struct tok_added *out)
{
    char *copy = arena_strdup(v->arena, content);
    v->bytes[id] = v->key[id] = (uint8_t *)copy;
    v->len[id] = v->key_len[id] = (uint32_t)strlen(copy);
    *out = (struct tok_added){ .id = id, .content = copy, .special = 1 };
}

/* A special token stands in the file as it is, all others in the ByteLevel
 * alphabet; the two must not meet. */
static int check_special(const char *const *specials, int i)
{
    const char *s = specials[i];
    size_t n = strlen(s);
    uint32_t cp;
    int len;
    for (size_t k = 0; k < n; k += (size_t)len)
        if ((len = tok_utf8_char((const uint8_t *)s + k, n - k, &cp)) == 0 || cp < ' ')
            return err_set(ERR_USAGE, "special token %d is no printable UTF-8", i + 1);
    if (n == 0)
        return err_set(ERR_USAGE, "special token %d is empty", i + 1);
    for (int k = 0; k < i; k++)
        if (strcmp(specials[k], s) == 0)
            return err_set(ERR_USAGE, "special token \"%s\" is given twice", s);
    return 0;
}

static int check_learned(const struct names *t, struct tok_vocab *v)
{
    for (int i = 0; i < v->n_specials; i++) {
        const char *s = (const char *)v->bytes[v->special[i]];
        uint8_t *buf = arena_alloc(v->arena, strlen(s) + 1);
        int64_t n = tok_bytes_read(s, strlen(s), buf);
        if (n > 0 && *name_slot(t, v, buf, (size_t)n) != 0)
            return err_set(ERR_DATA, "special token \"%s\" is also a token learned from the text; choose a name that no text holds", s);
    }
    return 0;
}

int tok_vocab_build(const char *const *specials, int n_specials,
                    struct tok_merge *merges, int64_t n_merges, struct tok_vocab **out)
{
    return tok_vocab_build_as(NULL, specials, n_specials, merges, n_merges, out);
}

int tok_vocab_build_as(const struct tok_recipe *r, const char *const *specials, int n_specials,
                       struct tok_merge *merges, int64_t n_merges, struct tok_vocab **out)
{
    struct names t = { NULL, 1023 };
    uint8_t *buf = NULL;
    size_t cap = 0;
    int rc = 0;
    *out = NULL;
    for (int i = 0; i < n_specials; i++)
        TRY(check_special(specials, i));
    if (n_merges > INT32_MAX - 256 - n_specials)
        return err_set(ERR_USAGE, "a vocabulary of more than %d tokens", INT32_MAX);
    struct tok_vocab *v = tok_vocab_alloc("vocabulary", (int32_t)(256 + n_specials + n_merges), n_merges, n_specials);
    while (t.mask < 3u * (size_t)v->size)
        t.mask = t.mask * 2 + 1;
    t.slot = arena_array(v->arena, t.mask + 1, sizeof *t.slot);
    v->size = 0;
    v->n_added = n_specials;
    v->added = arena_array(v->arena, (size_t)n_specials, sizeof *v->added);
    TRY_OUT(rc, tok_vocab_recipe_steps(v, r));
    for (int i = 0; i < 256; i++) {
        uint8_t b = tok_byte_of_order(i);
        add_token(v, v->size, &b, 1);
        *name_slot(&t, v, &b, 1) = ++v->size;
    }
    for (int i = 0; i < n_specials; i++) {
        add_special(v, v->size, specials[i], &v->added[i]);
        v->special[i] = v->size++;
    }
    for (int64_t i = 0; i < n_merges; i++) {
        struct tok_merge *m = &merges[i];
        if (m->a < 0 || m->a >= v->size || m->b < 0 || m->b >= v->size) {
            rc = err_set(ERR_DATA, "merge %lld names a token that is not there yet", (long long)i);
            goto out;
        }
        size_t na = v->len[m->a], nb = v->len[m->b];
        if (na + nb > cap) {
            cap = 2 * (na + nb);
            free(buf);
            if ((buf = malloc(cap)) == NULL) {
                rc = err_sys(ERR_IO, "memory for a token");
                goto out;
            }
        }
        memcpy(buf, v->bytes[m->a], na);
        memcpy(buf + na, v->bytes[m->b], nb);
        int32_t *slot = name_slot(&t, v, buf, na + nb);
        if (*slot == 0) {
            add_token(v, v->size, buf, na + nb);
            *slot = ++v->size;
        }
        m->product = *slot - 1;
        v->merges[i] = *m;
    }
    TRY_OUT(rc, check_learned(&t, v));
    TRY_OUT(rc, tok_vocab_finish(v));
    size_t n;
    char *text = tok_vocab_text(v, &n);
    v->hash = hash_bytes(text, n);
    free(text);
    *out = v;
    v = NULL;
out:
    free(buf);
    tok_vocab_free(v);
    return rc;
}

int32_t tok_vocab_size(const struct tok_vocab *v)
{
    return v->size;
}

int64_t tok_vocab_n_merges(const struct tok_vocab *v)
{
    return v->n_merges;
}

const struct tok_merge *tok_vocab_merges(const struct tok_vocab *v)
{
    return v->merges;
}

int32_t tok_vocab_byte_id(const struct tok_vocab *v, uint8_t byte)
{
    return v->byte_id[byte];
}

const uint8_t *tok_vocab_bytes(const struct tok_vocab *v, int32_t id, size_t *n)
{
    if (id < 0 || id >= v->size)
        return NULL;
    *n = v->len[id];
    return v->bytes[id];
}

const int32_t *tok_vocab_text_bytes(const struct tok_vocab *v)
{
    return v->text_bytes;
}

_Bool tok_vocab_is_special(const struct tok_vocab *v, int32_t id)
{
    return id >= 0 && id < v->size && v->is_special[id];
}

int tok_vocab_n_specials(const struct tok_vocab *v)
{
    return v->n_specials;
}

int32_t tok_vocab_special(const struct tok_vocab *v, int i, const char **content)
{
    *content = (const char *)v->bytes[v->special[i]];
    return v->special[i];
}

int tok_vocab_find_special(const struct tok_vocab *v, const char *content, int32_t *id)
{
    for (int i = 0; i < v->n_specials; i++)
        if (strcmp((const char *)v->bytes[v->special[i]], content) == 0) {
            *id = v->special[i];
            return 0;
        }
    return err_set(ERR_DATA, "%s has no special token \"%s\"", v->name, content);
}

struct hash tok_vocab_hash(const struct tok_vocab *v)
{
    return v->hash;
}

const char *tok_vocab_name(const struct tok_vocab *v)
{
    return v->name;
}

_Bool tok_vocab_keeps_text(const struct tok_vocab *v)
{
    _Bool keeps = v->byte_level && v->n_norm == 0 && v->strip == 0 && !v->gaps;
    for (int b = 0; b < 256 && keeps; b++)
        keeps = v->byte_id[b] >= 0;
    for (int i = 0; i < v->n_pre && keeps; i++)
        keeps = (v->pre[i].kind != TOK_SPLIT || v->pre[i].behavior != TOK_REMOVED) && v->pre[i].prefix == TOK_NEVER && v->pre[i].kind != TOK_METASPACE;
    for (int i = 0; i < v->n_added && keeps; i++)
        keeps = !v->added[i].lstrip && !v->added[i].rstrip;
    return keeps;
}

int32_t tok_vocab_unknown(const struct tok_vocab *v)
{
    return v->unk;
}

enum tok_semantics tok_vocab_semantics(const struct tok_vocab *v)
{
    return v->semantics;
}

const char *tok_vocab_format(const struct tok_vocab *v)
{
    return v->format;
}
