/* vocab_sp.c -- SentencePiece's .model files of type BPE.
 *
 * The file is a protocol buffer; the few fields that decide ids are read by a
 * reader of a page.  Refused by name: Unigram, word and char models, a charsmap
 * (a normalizer of its own), pieces of type UNUSED, and what changes the text
 * before merging in ways not done here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/chars.h"
#include "tok/vocab_read.h"

struct field { uint32_t no, wire; uint64_t v; const uint8_t *s; size_t n; };
struct message { const char *name; const uint8_t *p, *end; };

static int varint(struct message *m, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        *out |= (uint64_t)(*m->p & 0x7f) << shift;
        if (*m->p++ < 0x80)
            return 0;
    }
    return err_set(ERR_DATA, "%s: not a SentencePiece model, or a torn one", m->name);
}

/* 1 with the next field, 0 at the end. */
static int next_field(struct message *m, struct field *f)
{
    uint64_t key, n = 0;
    if (m->p == m->end)
        return 0;
    TRY(varint(m, &key));
    f->no = (uint32_t)(key >> 3);
    f->wire = (uint32_t)(key & 7);
    if (f->wire == 0) {
        TRY(varint(m, &f->v));
        return 1;
    }
    if (f->wire == 2)
        TRY(varint(m, &n));
    else
        n = f->wire == 5 ? 4 : f->wire == 1 ? 8 : SIZE_MAX;
    if (n > (size_t)(m->end - m->p) || f->no == 0)
        return err_set(ERR_DATA, "%s: not a SentencePiece model, or a torn one", m->name);
    f->s = m->p;
    f->n = (size_t)n;
    m->p += n;
    return 1;
}

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

struct piece { struct tok_str s; float score; int type; };

static int read_piece(const char *name, struct field in, struct piece *out)
{
    struct message m = { name, in.s, in.s + in.n };
    struct field f;
    int rc;
    *out = (struct piece){ .type = NORMAL };
    while ((rc = next_field(&m, &f)) > 0) {
        if (f.no == 1 && f.wire == 2)
            out->s = (struct tok_str){ f.s, f.n };
        if (f.no == 2 && f.wire == 5) {
            uint32_t bits = (uint32_t)f.s[0] | (uint32_t)f.s[1] << 8 | (uint32_t)f.s[2] << 16 | (uint32_t)f.s[3] << 24;
            memcpy(&out->score, &bits, 4);
        }
        if (f.no == 3 && f.wire == 0)
            out->type = (int)f.v;
    }
    return rc;
}

struct spec { int64_t model_type, charsmap, suffix, byte_fallback; _Bool dummy, extra, escape; struct tok_str delimiter, name; };

static int read_spec(const char *name, struct field in, _Bool trainer, struct spec *s)
{
    struct message m = { name, in.s, in.s + in.n };
    struct field f;
    int rc;
    while ((rc = next_field(&m, &f)) > 0) {
        if (trainer && f.no == 3)
            s->model_type = (int64_t)f.v;
        else if (trainer && f.no == 24)
            s->suffix = f.v != 0;
        else if (trainer && f.no == 35)
            s->byte_fallback = f.v != 0;
        else if (!trainer && f.no == 1 && f.wire == 2)
            s->name = (struct tok_str){ f.s, f.n };
        else if (!trainer && f.no == 2 && f.wire == 2)
            s->charsmap = (int64_t)f.n;
        else if (!trainer && f.no == 3)
            s->dummy = f.v != 0;
        else if (!trainer && f.no == 4)
            s->extra = f.v != 0;
        else if (!trainer && f.no == 5)
            s->escape = f.v != 0;
    }
    return rc;
}

static int put_piece(struct tok_vocab *v, int32_t id, const struct piece *p)
{
    struct tok_buf two[2] = { 0 };
    struct tok_str s = p->s;
    uint8_t byte;
    int rc;
    if (s.n == 0 || memchr(s.s, 0, s.n) != NULL || tok_chars_valid(s.s, s.n) != s.n)
        return err_set(ERR_DATA, "%s: piece %d is empty or no text", v->name, (int)id);
    v->score[id] = p->score;
    v->key_len[id] = (uint32_t)s.n;
    uint8_t *key = arena_alloc(v->arena, s.n + 1);
    memcpy(key, s.s, s.n);
    if (p->type == UNUSED || p->type < NORMAL || p->type > BYTE)
        return err_set(ERR_DATA, "%s: piece %d: type %s is not supported", v->name, (int)id, p->type == UNUSED ? "UNUSED" : "unknown");
    if (p->type == UNKNOWN) {
        if (v->unk >= 0)
            return err_set(ERR_DATA, "%s: two pieces of type UNKNOWN", v->name);
        v->unk = id;
    }
    if (p->type == UNKNOWN || p->type == CONTROL) {
        v->special[v->n_specials++] = id;
        v->added[v->n_added++] = (struct tok_added){ .id = id, .content = (char *)key, .special = 1 };
    }
    if (p->type == NORMAL || p->type == USER_DEFINED)
        v->key[id] = key;
    if (p->type == USER_DEFINED)
        v->frozen[v->n_frozen++] = id;
    if (p->type == BYTE) {
        char name[8];
        unsigned b = 0;
        if (sscanf((char *)key, "<0x%2X>", &b) != 1 || snprintf(name, sizeof name, "<0x%02X>", b) != 6 || strcmp(name, (char *)key) != 0)
            return err_set(ERR_DATA, "%s: piece %d is of type BYTE and called \"%s\"", v->name, (int)id, (char *)key);
        v->fallback[b] = id;
        byte = (uint8_t)b;
        s = (struct tok_str){ &byte, 1 };
    } else if (p->type != UNKNOWN && p->type != CONTROL) {
        struct tok_norm t = { .kind = TOK_REPLACE, .text = { (const uint8_t *)"\xe2\x96\x81", 3 }, .with = { (const uint8_t *)" ", 1 } };
        TRY(tok_steps_normal(&t, 1, NULL, s, two, &s));
    }
    rc = tok_vocab_put(v, id, s.s, s.n, (char *)key);
    tok_buf_free(&two[0]);
    return rc;
}

static int check_spec(const struct tok_vocab *v, const struct spec *s)
{
    static const char *const kinds[] = { "", "Unigram", "BPE", "word", "char" };
    if (s->model_type != 2)
        return err_set(ERR_DATA, "%s: model type %s is not supported", v->name, s->model_type >= 0 && s->model_type < 5 ? kinds[s->model_type] : "unknown");
    if (s->charsmap > 0)
        return err_set(ERR_DATA, "%s: normalizer \"%.*s\" (a charsmap of %lld bytes) is not supported", v->name, (int)(s->name.n < 40 ? s->name.n : 40),
                       s->name.s != NULL ? (const char *)s->name.s : "", (long long)s->charsmap);
    if (v->unk < 0)
        return err_set(ERR_DATA, "%s: no piece of type UNKNOWN", v->name);
    for (int b = 0; s->byte_fallback && b < 256; b++)
        if (v->fallback[b] < 0)
            return err_set(ERR_DATA, "%s: byte 0x%02x has no piece", v->name, (unsigned)b);
    return 0;
}

static int count(const char *name, const char *text, size_t n, int64_t *pieces, struct spec *s)
{
    struct message m = { name, (const uint8_t *)text, (const uint8_t *)text + n };
    struct field f;
    int rc;
    *s = (struct spec){ .model_type = 1, .dummy = 1, .extra = 1, .escape = 1 };
    *pieces = 0;
    while ((rc = next_field(&m, &f)) > 0) {
        *pieces += f.no == 1 && f.wire == 2;
        if ((f.no == 2 || f.no == 3) && f.wire == 2)
            TRY(read_spec(name, f, f.no == 2, s));
    }
    TRY(rc);
    if (*pieces == 0 || *pieces > INT32_MAX / 2)
        return err_set(ERR_DATA, "%s: not a vocabulary of a kind known here", name);
    return 0;
}

int tok_read_sp(const char *name, const char *text, size_t n, struct tok_vocab **out)
{
    struct message m = { name, (const uint8_t *)text, (const uint8_t *)text + n };
    struct spec s;
    struct field f;
    struct piece p;
    int64_t pieces;
    int32_t id = 0;
    int rc;
    *out = NULL;
    TRY(count(name, text, n, &pieces, &s));
    struct tok_vocab *v = tok_vocab_alloc(name, (int32_t)pieces, 0, (int)pieces);
    v->n_specials = 0;
    v->format = "SentencePiece model";
    v->semantics = TOK_SCORES;
    v->char_keys = v->fuse_unk = 1;
    v->byte_fallback = s.byte_fallback;
    v->strip = s.dummy || s.extra;
    v->score = arena_array(v->arena, (size_t)pieces, sizeof *v->score);
    v->frozen = arena_array(v->arena, (size_t)pieces, sizeof *v->frozen);
    v->added = arena_array(v->arena, (size_t)pieces, sizeof *v->added);
    while ((rc = next_field(&m, &f)) > 0)
        if (f.no == 1 && f.wire == 2) {
            TRY_OUT(rc, read_piece(name, f, &p));
            TRY_OUT(rc, put_piece(v, id++, &p));
        }
    if (rc < 0)
        goto out;
    TRY_OUT(rc, check_spec(v, &s));
    v->n_norm = 1;
    v->norm = arena_array(v->arena, 1, sizeof *v->norm);
    v->norm[0] = (struct tok_norm){ .kind = TOK_SP, .left = s.dummy, .right = s.extra, .escape = s.escape, .suffix = s.suffix != 0 };
    TRY_OUT(rc, tok_vocab_finish(v));
    *out = v;
    v = NULL;
out:
    tok_vocab_free(v);
    return rc;
}
