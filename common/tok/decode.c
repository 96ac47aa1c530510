/* decode.c -- ids to text, holding back what is not yet a whole character.
 *
 * Bytes that can never become one (FF, or E2 followed by a letter) are passed
 * on as they are: the text comes back byte for byte, valid or not. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/encode.h"
#include "tok/vocab_store.h"

void tok_decode_begin(struct tok_decoder *d, const struct tok_vocab *v)
{
    memset(d, 0, sizeof *d);
    d->v = v;
    d->strip = v->strip;
}

static int append(char **buf, size_t *len, size_t *cap, const void *s, size_t n)
{
    if (*len + n + 1 > *cap) {
        size_t want = 2 * (*len + n) + 64;
        char *p = realloc(*buf, want);
        if (p == NULL)
            return err_sys(ERR_IO, "memory for the text");
        *buf = p;
        *cap = want;
    }
    memcpy(*buf + *len, s, n);
    *len += n;
    (*buf)[*len] = '\0';
    return 0;
}

/* How many bytes at the end of s may be the beginning of a character. */
static int incomplete(const char *text, size_t n)
{
    const uint8_t *s = (const uint8_t *)text;
    for (int k = 1; k <= 3 && (size_t)k <= n; k++) {
        uint8_t c = s[n - (size_t)k];
        if ((c & 0xc0) == 0x80)
            continue;
        int need = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 ? 3 : 2;
        if (c < 0xc2 || c > 0xf4 || k >= need)
            return 0;
        if (k >= 2) {           /* the second byte decides overlong, surrogate and too large */
            uint8_t b = s[n - (size_t)k + 1];
            if ((c == 0xe0 && b < 0xa0) || (c == 0xed && b >= 0xa0) || (c == 0xf0 && b < 0x90) || (c == 0xf4 && b >= 0x90))
                return 0;
        }
        return k;
    }
    return 0;
}

int tok_decode(struct tok_decoder *d, const int32_t *ids, size_t n, _Bool specials, char **buf, size_t *len, size_t *cap)
{
    size_t start = *len;
    int rc = append(buf, len, cap, d->held, (size_t)d->n_held);
    d->n_held = 0;
    if (d->v->no_decode != NULL)
        return err_set(ERR_DATA, "%s", d->v->no_decode);
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t k;
        const uint8_t *s = tok_vocab_bytes(d->v, ids[i], &k);
        if (s == NULL) {
            _Bool hole = ids[i] >= 0 && ids[i] < d->v->size;
            rc = err_set(ERR_DATA, hole ? "id %d is no token of the vocabulary, whose ids end at %d" : "id %d is beyond the vocabulary of %d tokens",
                         (int)ids[i], (int)tok_vocab_size(d->v) - hole);
            break;
        }
        if (!specials && tok_vocab_is_special(d->v, ids[i]))
            continue;
        for (; d->strip > 0 && k > 0; d->strip--, s++, k--)     /* the space that encoding put first */
            if (*s != ' ') {
                d->strip = 0;
                break;
            }
        rc = append(buf, len, cap, s, k);
    }
    if (*len > start) {
        d->n_held = incomplete(*buf + start, *len - start);
        *len -= (size_t)d->n_held;
        memcpy(d->held, *buf + *len, (size_t)d->n_held);
        (*buf)[*len] = '\0';
    }
    return rc;
}

int tok_decode_end(struct tok_decoder *d, char **buf, size_t *len, size_t *cap)
{
    int rc = append(buf, len, cap, d->held, (size_t)d->n_held);
    d->n_held = 0;
    return rc;
}
