/* added.c -- a trie over bytes; the first byte is looked up in a table, so text
 * without a candidate is passed at the speed of reading it. */
#include "tok/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/chars.h"

/* Children of a node are a list; nodes deep in the trie have one or two. */
struct node { int32_t child, next, hit; uint8_t byte; };

struct tok_finder {
    const struct tok_added *added;
    struct node *node; int32_t n_nodes, cap;
    int32_t first[256];         /* node of the first byte, 0: none */
    int only;                   /* the first byte of all of them; -1: they differ */
    struct tok_regex *word;     /* \w, when some token is a single word */
    _Bool any[2];
};

static int32_t child_of(const struct tok_finder *f, int32_t at, uint8_t byte)
{
    int32_t i = f->node[at].child;
    while (i != 0 && f->node[i].byte != byte)
        i = f->node[i].next;
    return i;
}

static int32_t new_node(struct tok_finder *f, uint8_t byte, int32_t next)
{
    if (f->n_nodes == f->cap) {
        f->cap = 2 * f->cap + 256;
        f->node = arena_must(realloc(f->node, (size_t)f->cap * sizeof *f->node));
    }
    f->node[f->n_nodes] = (struct node){ 0, next, -1, byte };
    return f->n_nodes++;
}

/* Of two tokens that look for the same text the package takes either, by chance. */
static int insert(struct tok_finder *f, struct tok_str s, int32_t i)
{
    if (f->first[s.s[0]] == 0)
        f->first[s.s[0]] = new_node(f, s.s[0], 0);
    int32_t at = f->first[s.s[0]];
    for (size_t k = 1; k < s.n; k++) {
        int32_t c = child_of(f, at, s.s[k]);
        if (c == 0) {
            c = new_node(f, s.s[k], f->node[at].child);
            f->node[at].child = c;
        }
        at = c;
    }
    if (f->node[at].hit >= 0)
        return err_set(ERR_DATA, "added tokens %d and %d are the same text%s: not supported", (int)f->added[f->node[at].hit].id, (int)f->added[i].id,
                       strcmp(f->added[f->node[at].hit].content, f->added[i].content) != 0 ? " when normalized" : "");
    f->node[at].hit = i;
    return 0;
}

int tok_finder_new(const struct tok_added *added, const struct tok_str *text, int n, struct tok_finder **out)
{
    struct tok_finder *f = arena_must(calloc(1, sizeof *f));
    int rc = 0;
    f->added = added;
    f->only = -1;
    new_node(f, 0, 0);
    for (int i = 0; i < n && rc == 0; i++) {
        if (text[i].s == NULL || text[i].n == 0)
            continue;
        rc = insert(f, text[i], i);
        f->any[1] = 1;
        f->any[0] |= !added[i].special;
        if (rc == 0 && added[i].single_word && f->word == NULL)
            rc = tok_regex_new("added_tokens[].single_word", "\\A\\w", 4, TOK_RUST, &f->word);
    }
    if (rc < 0) {
        tok_finder_free(f);
        f = NULL;
    }
    for (int b = 0, many = 0; b < 256 && f != NULL; b++)
        if (f->first[b] != 0)
            f->only = many++ == 0 ? b : -1;
    *out = f;
    return rc;
}

void tok_finder_free(struct tok_finder *f)
{
    if (f == NULL)
        return;
    tok_regex_free(f->word);
    free(f->node);
    free(f);
}

_Bool tok_finder_any(const struct tok_finder *f, _Bool specials)
{
    return f != NULL && f->any[specials];
}

static size_t longest(const struct tok_finder *f, const uint8_t *s, size_t n, int32_t *hit)
{
    int32_t at = f->first[s[0]];
    size_t best = 0;
    for (size_t k = 1; at != 0; k++) {
        if (f->node[at].hit >= 0) {
            best = k;
            *hit = f->node[at].hit;
        }
        at = k < n ? child_of(f, at, s[k]) : 0;
    }
    return best;
}

/* 1 when the character at s is a word character. */
static int is_word(const struct tok_finder *f, struct tok_regex_mem *mem, const uint8_t *s, size_t n)
{
    struct tok_regex_walk w;
    size_t from, to;
    tok_regex_begin(&w, f->word, s, n);
    return tok_regex_next(&w, mem, &from, &to);
}

static size_t back(const uint8_t *s, size_t i)
{
    do
        i--;
    while (i > 0 && (s[i] & 0xc0) == 0x80);
    return i;
}

static int stands_alone(const struct tok_finder *f, struct tok_regex_mem *mem, const uint8_t *s, size_t n, size_t from, size_t to)
{
    int rc = 0;
    if (from > 0) {
        size_t i = back(s, from);
        rc = is_word(f, mem, s + i, from - i);
    }
    if (rc == 0 && to < n) {
        uint32_t c;
        rc = is_word(f, mem, s + to, (size_t)tok_utf8_char(s + to, n - to, &c));
    }
    return rc < 0 ? rc : !rc;
}

static void put(struct tok_finds *l, size_t from, size_t to, int32_t id)
{
    if (l->n == l->cap) {
        l->cap = 2 * l->cap + 16;
        l->v = arena_must(realloc(l->v, l->cap * sizeof *l->v));
    }
    l->v[l->n++] = (struct tok_find){ from, to, id };
}

static size_t space_before(const uint8_t *s, size_t from)
{
    uint32_t c;
    while (from > 0) {
        size_t i = back(s, from);
        if ((size_t)tok_utf8_char(s + i, from - i, &c) != from - i || !tok_char_space(c))
            break;
        from = i;
    }
    return from;
}

static size_t space_after(const uint8_t *s, size_t n, size_t to)
{
    uint32_t c;
    for (int len; to < n && (len = tok_utf8_char(s + to, n - to, &c)) > 0 && tok_char_space(c); to += (size_t)len)
        ;
    return to;
}

int tok_finder_run(const struct tok_finder *f, struct tok_regex_mem *mem, const uint8_t *s, size_t n, _Bool specials, struct tok_finds *out)
{
    size_t done = 0, len;
    int32_t hit = 0;
    int rc;
    for (size_t i = 0; i < n; i += len) {
        len = 1;
        if (f->only >= 0) {
            const uint8_t *p = memchr(s + i, f->only, n - i);
            if (p == NULL)
                break;
            i = (size_t)(p - s);
        } else if (f->first[s[i]] == 0) {
            continue;
        }
        size_t k = longest(f, s + i, n - i, &hit);
        if (k == 0)
            continue;
        len = k;
        const struct tok_added *t = &f->added[hit];
        size_t from = i, to = i + k;
        if (t->special && !specials)
            continue;
        if (t->single_word) {
            TRY(rc = stands_alone(f, mem, s, n, from, to));
            if (!rc)
                continue;
        }
        if (t->lstrip) {
            from = space_before(s, from);
            from = from < done ? done : from;
        }
        if (t->rstrip)
            to = space_after(s, n, to);
        if (done < from)
            put(out, done, from, -1);
        if (from < to)          /* else the white space before was swallowed by the token before, and this one is white space */
            put(out, from, to, t->id);
        done = to;
    }
    if (done < n)
        put(out, done, n, -1);
    return 0;
}
