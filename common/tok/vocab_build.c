/* vocab_build.c -- a vocabulary out of merges, as train writes it. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "tok/bytelevel.h"
#include "tok/chars.h"
#include "tok/recipe.h"
#include "tok/vocab.h"
#include "tok/vocab_store.h"

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
