/* vocab_convert.c -- ranks and scores as a list of merges.
 *
 * A list gives every pair a place of its own; ranks give all pairs of one
 * product the same rank, and the leftmost wins.  All pairs are listed, those of
 * one product side by side.  Two of them can compete only when they overlap in
 * "abd" with ab = bd; the list then has (a, b), the left one, first.
 *
 * Products that share a score cannot be listed, but for runs of one character, as
 * Llama's and Mistral's runs of spaces are: there the leftmost pair is always the
 * one whose left part is longest. */
#include "tok/vocab_convert.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/bpe_model.h"
#include "tok/bytelevel.h"
#include "tok/chars.h"
#include "tok/chars.h"
#include "tok/slow.h"
#include "tok/vocab_json.h"
#include "tok/vocab_store.h"

struct pair { int32_t rank, product, a, b; uint32_t len_a, len_b; _Bool border; };

/* (a, b) with ab = bd competes with (b, d): when b also begins the product. */
static int by_rank(const void *x, const void *y)
{
    const struct pair *p = x, *q = y;
    if (p->rank != q->rank)
        return (p->rank > q->rank) - (p->rank < q->rank);
    if (p->product != q->product)
        return (p->product > q->product) - (p->product < q->product);
    if (p->border != q->border)
        return p->border ? -1 : 1;
    return (p->len_a > q->len_a) - (p->len_a < q->len_a);
}

static int by_left(const void *x, const void *y)
{
    const struct pair *p = x, *q = y;
    return p->len_a != q->len_a ? (p->len_a < q->len_a) - (p->len_a > q->len_a) : (p->len_b < q->len_b) - (p->len_b > q->len_b);
}

/* The length of the character that the token is a run of; 0: it is none. */
static uint32_t run_of(const struct tok_vocab *v, int32_t id)
{
    uint32_t c, n;
    if (!v->char_keys || (n = (uint32_t)tok_utf8_char(v->key[id], v->key_len[id], &c)) == 0)
        return 0;
    for (uint32_t i = n; i < v->key_len[id]; i += n)
        if (v->key_len[id] - i < n || memcmp(v->key[id] + i, v->key[id], n) != 0)
            return 0;
    return n;
}

/* The pairs p[0 .. n) have one rank. */
static int order_ties(const struct tok_vocab *v, struct pair *p, size_t n)
{
    uint32_t run = run_of(v, p[0].product);
    size_t other = 0;
    for (size_t i = 1; i < n; i++) {
        if (p[i].product == p[0].product)
            continue;
        if (run == 0 || run_of(v, p[i].product) != run || memcmp(v->key[p[i].product], v->key[p[0].product], run) != 0)
            return err_set(ERR_DATA, "%s: tokens %d and %d have the same score, which tokenizer.json cannot say", v->name, (int)p[0].product, (int)p[i].product);
        other = i;
    }
    if (other > 0)
        qsort(p, n, sizeof *p, by_left);
    return 0;
}

static int list(const struct tok_vocab *v, const struct tok_bpe *m, struct pair **out, size_t *n)
{
    const struct tok_pairs *t = tok_bpe_pairs(m);
    struct pair *p = malloc(((size_t)t->n + 1) * sizeof *p);
    size_t k = 0;
    *out = NULL;
    if (p == NULL)
        return err_sys(ERR_IO, "memory for %lld merges", (long long)t->n);
    for (uint64_t i = 0; i <= t->mask; i++) {
        if (t->slot[i].key == TOK_NO_PAIR)
            continue;
        int32_t a = (int32_t)(t->slot[i].key >> 32), b = (int32_t)(uint32_t)t->slot[i].key, c = t->slot[i].product;
        if (a >= v->size || b >= v->size) {
            free(p);
            return err_set(ERR_DATA, "%s: token %d is made of characters that are no tokens, which tokenizer.json cannot say", v->name, (int)c);
        }
        p[k++] = (struct pair){ t->slot[i].rank, c, a, b, v->key_len[a], v->key_len[b],
                                memcmp(v->key[c], v->key[b], v->key_len[b]) == 0 };
    }
    qsort(p, k, sizeof *p, by_rank);
    for (size_t i = 0, end; i < k; i = end) {
        for (end = i + 1; end < k && p[end].rank == p[i].rank; end++)
            ;
        int rc = order_ties(v, p + i, end - i);
        if (rc < 0) {
            free(p);
            return rc;
        }
    }
    *out = p;
    *n = k;
    return 0;
}

static void put_key(struct json_out *j, const struct tok_vocab *v, int32_t id, struct tok_buf *buf, _Bool as_key)
{
    buf->n = 0;
    tok_buf_put(buf, v->key[id], v->key_len[id]);
    tok_buf_put(buf, v->key[id], v->key_len[id]);
    tok_buf_put(buf, "", 1);
    if (!v->char_keys)
        buf->n = tok_bytes_show(v->key[id], v->key_len[id], (char *)buf->p);
    else
        buf->n = v->key_len[id];
    buf->p[buf->n] = '\0';
    if (as_key)
        json_put_int(j, (char *)buf->p, id);
    else
        json_put_str(j, NULL, (char *)buf->p);
}

static void put_pattern(struct json_out *j, const char *kind, const char *text)
{
    json_obj(j, "pattern");
    json_put_str(j, kind, text);
    json_obj_end(j);
}

/* In Oniguruma "$" also stands before a line feed, and {1,3}+ repeats; each ends
 * its branch, so \z and {1,3} say the same as the original. */
static int onig(const struct tok_vocab *v, struct tok_buf *out)
{
    const char *p = v->pre[0].expression;
    out->n = 0;
    for (; *p != '\0'; p++) {
        if (strncmp(p, "$|", 2) == 0) {
            tok_buf_put(out, "\\z", 2);
        } else if (strncmp(p, "{1,3}+|", 7) == 0) {
            tok_buf_put(out, "{1,3}", 5);
            p += 5;
        } else if (*p == '$' || *p == '^' || (*p == '}' && p[1] == '+' && p > v->pre[0].expression && p[-1] >= '0' && p[-1] <= '9')) {
            if (*p == '^' && p > v->pre[0].expression && p[-1] == '[') {
                tok_buf_put(out, p, 1);
                continue;
            }
            return err_set(ERR_DATA, "%s: \"%c\" in the expression means something else in tokenizer.json", v->name, *p);
        } else {
            tok_buf_put(out, p, 1);
        }
    }
    tok_buf_put(out, "", 1);
    return 0;
}

static void put_split(struct json_out *j, const char *expression)
{
    json_put_null(j, "normalizer");
    json_obj(j, "pre_tokenizer");
    json_put_str(j, "type", "Sequence");
    json_arr(j, "pretokenizers");
    json_obj(j, NULL);
    json_put_str(j, "type", "Split");
    put_pattern(j, "Regex", expression);
    json_put_str(j, "behavior", "Removed");
    json_put_bool(j, "invert", 1);
    json_obj_end(j);
    vocab_json_bytelevel(j, NULL, 1);
    json_arr_end(j);
    json_obj_end(j);
    json_put_null(j, "post_processor");
    vocab_json_bytelevel(j, "decoder", 1);
}

static void put_replace(struct json_out *j, const char *from, const char *to)
{
    json_obj(j, NULL);
    json_put_str(j, "type", "Replace");
    put_pattern(j, "String", from);
    json_put_str(j, "content", to);
    json_obj_end(j);
}

static void put_type(struct json_out *j, const char *type)
{
    json_obj(j, NULL);
    json_put_str(j, "type", type);
    json_obj_end(j);
}

static void put_sp(struct json_out *j, _Bool prefix)
{
    json_obj(j, "normalizer");
    json_put_str(j, "type", "Sequence");
    json_arr(j, "normalizers");
    if (prefix) {
        json_obj(j, NULL);
        json_put_str(j, "type", "Prepend");
        json_put_str(j, "prepend", "\xe2\x96\x81");
        json_obj_end(j);
    }
    put_replace(j, " ", "\xe2\x96\x81");
    json_arr_end(j);
    json_obj_end(j);
    json_put_null(j, "pre_tokenizer");
    json_put_null(j, "post_processor");
    json_obj(j, "decoder");
    json_put_str(j, "type", "Sequence");
    json_arr(j, "decoders");
    put_replace(j, "\xe2\x96\x81", " ");
    put_type(j, "ByteFallback");
    put_type(j, "Fuse");
    if (prefix) {
        json_obj(j, NULL);
        json_put_str(j, "type", "Strip");
        json_put_str(j, "content", " ");
        json_put_int(j, "start", 1);
        json_put_int(j, "stop", 0);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static void put_added(struct json_out *j, const struct tok_vocab *v)
{
    json_arr(j, "added_tokens");
    for (int i = 0; i < v->n_added; i++)
        vocab_json_special(j, v->added[i].id, v->added[i].content);
    json_arr_end(j);
}

static void put_model(struct json_out *j, const struct tok_vocab *v, const struct pair *p, size_t n)
{
    struct tok_buf buf = { 0 };
    _Bool sp = v->semantics == TOK_SCORES;
    char name[8];
    json_obj(j, "model");
    json_put_str(j, "type", "BPE");
    json_put_null(j, "dropout");
    json_put_str(j, "unk_token", v->unk >= 0 ? (const char *)v->bytes[v->unk] : NULL);
    json_put_null(j, "continuing_subword_prefix");
    json_put_null(j, "end_of_word_suffix");
    json_put_bool(j, "fuse_unk", v->fuse_unk);
    json_put_bool(j, "byte_fallback", v->byte_fallback);
    json_put_bool(j, "ignore_merges", v->ignore_merges);
    json_obj(j, "vocab");
    for (int i = 0; sp && i < v->n_added; i++)
        json_put_int(j, v->added[i].content, v->added[i].id);
    for (int b = 0; b < 256; b++)
        if (v->fallback[b] >= 0) {
            static const char digits[] = "0123456789ABCDEF";
            memcpy(name, "<0x00>", 7);
            name[3] = digits[b >> 4];
            name[4] = digits[b & 15];
            json_put_int(j, name, v->fallback[b]);
        }
    for (int32_t i = 0; i < v->size; i++)
        if (v->key[i] != NULL)
            put_key(j, v, i, &buf, 1);
    json_obj_end(j);
    json_arr(j, "merges");
    for (size_t i = 0; i < n; i++) {
        json_arr(j, NULL);
        put_key(j, v, p[i].a, &buf, 0);
        put_key(j, v, p[i].b, &buf, 0);
        json_arr_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
    tok_buf_free(&buf);
}

static int refuse(const struct tok_vocab *v)
{
    if (v->semantics == TOK_LIST)
        return err_set(ERR_DATA, "%s: this is a tokenizer.json already", v->name);
    if (v->n_frozen > 0)
        return err_set(ERR_DATA, "%s: token %d of type USER_DEFINED cannot be said in a tokenizer.json", v->name, (int)v->frozen[0]);
    const struct tok_norm *t = v->n_norm > 0 ? &v->norm[0] : NULL;
    if (t != NULL && (t->right || t->suffix || !t->escape))
        return err_set(ERR_DATA, "%s: %s cannot be said in a tokenizer.json", v->name,
                       t->right ? "remove_extra_whitespaces" : t->suffix ? "treat_whitespace_as_suffix" : "escape_whitespaces: false");
    return 0;
}

int tok_vocab_to_json(const struct tok_vocab *v, char **text, size_t *n)
{
    struct tok_buf expression = { 0 };
    struct tok_bpe *m = NULL;
    struct pair *p = NULL;
    size_t n_pairs = 0;
    int rc;
    *text = NULL;
    TRY(refuse(v));
    struct json_out *j = json_new_pretty();
    if (v->semantics == TOK_RANKS)
        TRY_OUT(rc, onig(v, &expression));
    TRY_OUT(rc, tok_bpe_new(v, &m));
    TRY_OUT(rc, list(v, m, &p, &n_pairs));
    json_obj(j, NULL);
    json_put_str(j, "version", "1.0");
    json_put_null(j, "truncation");
    json_put_null(j, "padding");
    put_added(j, v);
    if (v->semantics == TOK_RANKS)
        put_split(j, (char *)expression.p);
    else
        put_sp(j, v->norm[0].left);
    put_model(j, v, p, n_pairs);
    json_obj_end(j);
    const char *s = json_text(j, n);
    *text = arena_must(malloc(*n + 2));
    memcpy(*text, s, *n);
    (*text)[(*n)++] = '\n';
    (*text)[*n] = '\0';
    rc = 0;
out:
    tok_buf_free(&expression);
    tok_bpe_free(m);
    free(p);
    json_free(j);
    return rc;
}

/* ---- rank files */

static void put_base64(struct tok_buf *out, const uint8_t *s, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t x = (uint32_t)s[i] << 16 | (i + 1 < n ? (uint32_t)s[i + 1] << 8 : 0) | (i + 2 < n ? s[i + 2] : 0);
        char four[4] = { digits[x >> 18], digits[x >> 12 & 63], i + 1 < n ? digits[x >> 6 & 63] : '=', i + 2 < n ? digits[x & 63] : '=' };
        tok_buf_put(out, four, 4);
    }
}

int tok_vocab_to_ranks(const struct tok_vocab *v, char **text, size_t *n, char **specials)
{
    struct tok_buf out = { 0 };
    struct arena *a = arena_new();
    *text = *specials = NULL;
    if (v->semantics != TOK_RANKS) {
        arena_free(a);
        return err_set(ERR_DATA, "%s: a %s, which a rank file cannot say", v->name, v->semantics == TOK_LIST ? "list of merges" : "vocabulary of scores");
    }
    for (int32_t i = 0; i < v->size; i++) {
        if (v->key[i] == NULL)
            continue;
        put_base64(&out, v->key[i], v->key_len[i]);
        const char *tail = arena_printf(a, " %d\n", (int)i);
        tok_buf_put(&out, tail, strlen(tail));
    }
    struct json_out *j = json_new_pretty();
    json_obj(j, NULL);
    for (int i = 0; i < v->n_added; i++)
        json_put_int(j, v->added[i].content, v->added[i].id);
    json_obj_end(j);
    *specials = strdup(json_text(j, NULL));
    json_free(j);
    arena_free(a);
    *n = out.n;
    *text = (char *)out.p;
    return *specials != NULL ? 0 : err_sys(ERR_IO, "memory for special tokens");
}

/* ---- checks */

int tok_vocab_check(const struct tok_vocab *v, struct tok_check *out)
{
    struct tok_slow *t;
    struct tok_bpe_mem w = { 0 };
    struct tok_ids ids = { 0 };
    int rc = 0;
    *out = (struct tok_check){ .first = -1 };
    TRY(tok_slow_new(v, &t));
    const struct tok_bpe *m = tok_slow_model(t);
    for (int32_t i = 0; i < v->size && rc == 0; i++) {
        out->holes += v->bytes[i] == NULL;
        for (int b = 0; b < 256 && v->key[i] == NULL; b++)
            if (v->fallback[b] == i && b < 0x80) {
                uint8_t c = (uint8_t)b;
                out->twins += tok_bpe_find(m, &c, 1) >= 0;
            }
        if (v->key[i] == NULL || v->is_special[i])
            continue;
        ids.n = 0;
        out->entries++;
        rc = tok_bpe_run(m, &w, v->key[i], v->key_len[i], 0, &ids);
        if (rc == 0 && !(ids.n == 1 && ids.v[0] == i)) {
            out->unreachable++;
            if (out->first < 0)
                out->first = i;
        }
    }
    tok_bpe_mem_free(&w);
    free(ids.v);
    tok_slow_free(t);
    return rc;
}

struct side { struct tok_slow *t; struct tok_slow_mem *w; struct tok_ids ids; };

static int both(struct side s[2], const struct tok_vocab *a, int32_t id, const uint8_t *text, size_t n)
{
    uint64_t bad = 0;
    for (int k = 0; k < 2; k++) {
        s[k].ids.n = 0;
        TRY(tok_slow_run(s[k].t, s[k].w, text, n, 0, &s[k].ids, &bad));
    }
    if (s[0].ids.n != s[1].ids.n || (s[0].ids.n > 0 && memcmp(s[0].ids.v, s[1].ids.v, s[0].ids.n * sizeof *s[0].ids.v) != 0))
        return err_set(ERR_DATA, "%s: the text of token %d, %zu bytes of it, gives other ids in the copy", a->name, (int)id, n);
    return 0;
}

/* Repetitions are where overlapping merges compete. */
static int equal(const struct tok_vocab *a, struct side s[2])
{
    uint8_t runs[256];
    for (int32_t i = 0; i < a->size; i++) {
        if (a->bytes[i] == NULL || a->len[i] == 0 || a->is_special[i])
            continue;
        TRY(both(s, a, i, a->bytes[i], a->len[i]));
        for (size_t times = 2; times <= 64 && a->len[i] * times <= sizeof runs && (a->len[i] <= 2 || times < 4); times++) {
            for (size_t k = 0; k < times; k++)
                memcpy(runs + k * a->len[i], a->bytes[i], a->len[i]);
            TRY(both(s, a, i, runs, a->len[i] * times));
        }
    }
    return 0;
}

int tok_vocab_equal(const struct tok_vocab *a, const struct tok_vocab *b)
{
    struct side s[2] = { 0 };
    int rc;
    TRY_OUT(rc, tok_slow_new(a, &s[0].t));
    TRY_OUT(rc, tok_slow_new(b, &s[1].t));
    for (int k = 0; k < 2; k++)
        if ((s[k].w = tok_slow_mem_new()) == NULL) {
            rc = err_sys(ERR_IO, "memory for a thread");
            goto out;
        }
    rc = equal(a, s);
out:
    for (int k = 0; k < 2; k++) {
        tok_slow_mem_free(s[k].w);
        tok_slow_free(s[k].t);
        free(s[k].ids.v);
    }
    return rc;
}
