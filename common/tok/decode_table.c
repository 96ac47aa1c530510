/* decode_table.c -- an entry of 16 bytes for each id.
 *
 * Nearly all tokens have at most 15 bytes, and stand in their entry with their
 * length behind them: a token costs one load, one store of 16 bytes, and the
 * next one overwrites what was too much.  Longer ones are copied from the
 * vocabulary. */
#include "tok/decode_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/vocab_store.h"

enum { ENTRY = 16, LENGTH = 15, SHORT = 15, LONG = 254, NONE = 255 };

struct tok_table {
    const struct tok_vocab *v;
    size_t longest;
    int32_t size;
    uint8_t *entry;                     /* [size][ENTRY] */
};

int tok_table_new(const struct tok_vocab *v, _Bool specials, struct tok_table **out)
{
    *out = NULL;
    if (v->no_decode != NULL)
        return err_set(ERR_DATA, "%s", v->no_decode);
    struct tok_table *t = calloc(1, sizeof *t);
    if (t != NULL)
        t->entry = calloc((size_t)v->size + 1, ENTRY);
    if (t == NULL || t->entry == NULL) {
        free(t);
        return err_sys(ERR_IO, "memory for a table of %d tokens", (int)v->size);
    }
    t->v = v;
    t->size = v->size;
    for (int32_t i = 0; i < v->size; i++) {
        size_t n;
        const uint8_t *s = tok_vocab_bytes(v, i, &n);
        uint8_t *e = t->entry + (size_t)i * ENTRY;
        if (s == NULL) {
            e[LENGTH] = NONE;
            continue;
        }
        if (!specials && tok_vocab_is_special(v, i))
            n = 0;
        t->longest = n > t->longest ? n : t->longest;
        e[LENGTH] = n > SHORT ? LONG : (uint8_t)n;
        memcpy(e, s, n > SHORT ? 0 : n);
    }
    *out = t;
    return 0;
}

void tok_table_free(struct tok_table *t)
{
    if (t == NULL)
        return;
    free(t->entry);
    free(t);
}

size_t tok_table_longest(const struct tok_table *t)
{
    return t->longest;
}

size_t tok_table_text(const struct tok_table *t, const int32_t *ids, size_t n, char *dst, size_t room, size_t *len)
{
    size_t spare = t->longest + ENTRY, i = 0;
    char *p = dst, *end = dst + (room > spare ? room - spare : 0);
    for (; i < n && p < end; i++) {
        if ((uint32_t)ids[i] >= (uint32_t)t->size)
            break;
        const uint8_t *e = t->entry + (size_t)ids[i] * ENTRY;
        memcpy(p, e, ENTRY);
        if (e[LENGTH] <= SHORT) {
            p += e[LENGTH];
        } else if (e[LENGTH] == LONG) {
            memcpy(p, t->v->bytes[ids[i]], t->v->len[ids[i]]);
            p += t->v->len[ids[i]];
        } else {
            break;
        }
    }
    *len = (size_t)(p - dst);
    return i;
}

size_t tok_table_strip(const struct tok_table *t, const char *s, size_t n)
{
    size_t k = 0;
    while (k < (size_t)t->v->strip && k < n && s[k] == ' ')
        k++;
    return k;
}

int tok_table_refuse(const struct tok_table *t, int32_t id)
{
    if (id >= 0 && id < t->size)
        return err_set(ERR_DATA, "id %d is no token of the vocabulary, whose ids end at %d", (int)id, (int)t->size - 1);
    return err_set(ERR_DATA, "id %d is beyond the vocabulary of %d tokens", (int)id, (int)t->size);
}
