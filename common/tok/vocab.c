/* vocab.c -- a vocabulary in memory: asked for its tokens. */
#include "tok/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/bytelevel.h"
#include "tok/chars.h"
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

/* A literal space is a token of one byte, too, but not what that byte is looked up by. */
static _Bool is_byte(const struct tok_vocab *v, int32_t id)
{
    uint8_t b[4];
    return !v->char_keys || (v->key_len[id] <= 2 && tok_bytes_read((const char *)v->key[id], v->key_len[id], b) == 1);
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
        if (v->byte_level && v->text_bytes[i] == 1 && v->key[i] != NULL && is_byte(v, i))
            v->byte_id[v->bytes[i][0]] = i;
    return 0;
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

/* An added token that merging yields too, for other bytes than those of its content: one
 * called U+00E9 where that stands for the byte E9. */
static _Bool is_two(const struct tok_vocab *v, int32_t id)
{
    for (size_t i = 0, len; v->char_keys && v->key[id] != NULL && i < v->key_len[id]; i += len) {
        uint32_t c;
        if ((len = (size_t)tok_utf8_char(v->key[id] + i, v->key_len[id] - i, &c)) == 0)
            return 0;
        if (c >= 0x80 && tok_char_byte(c) >= 0)
            return 1;
    }
    return 0;
}

_Bool tok_vocab_keeps_text(const struct tok_vocab *v)
{
    _Bool keeps = v->byte_level && v->n_norm == 0 && v->strip == 0 && !v->gaps;
    for (int b = 0; b < 256 && keeps; b++)
        keeps = v->byte_id[b] >= 0;
    for (int i = 0; i < v->n_pre && keeps; i++)
        keeps = (v->pre[i].kind != TOK_SPLIT || v->pre[i].behavior != TOK_REMOVED) && v->pre[i].prefix == TOK_NEVER && v->pre[i].kind != TOK_METASPACE;
    for (int i = 0; i < v->n_added && keeps; i++)
        keeps = !v->added[i].lstrip && !v->added[i].rstrip && !is_two(v, v->added[i].id);
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
