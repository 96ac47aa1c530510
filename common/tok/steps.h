/* steps.h -- what happens to a text before the model sees it: normalizers
 * change it, pre-tokenizers cut it into pieces.
 *
 * This is the slow, general form: each step does to a string what the step of
 * that name does in the package tokenizers (or in SentencePiece), with no
 * regard to speed.  Strings are valid UTF-8. */
#ifndef TOK_STEPS_H
#define TOK_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "tok/regex.h"

struct tok_str { const uint8_t *s; size_t n; };

enum tok_norm_kind {
    TOK_NFC, TOK_NFD, TOK_NFKC, TOK_NFKD,
    TOK_PREPEND,        /* text before what is not empty */
    TOK_REPLACE,        /* each text, or match of re, by with */
    TOK_STRIP,          /* white space at the left, at the right */
    TOK_LOWERCASE,
    TOK_SP,             /* SentencePiece: left = dummy prefix, right = one space for many, suffix */
};

struct tok_norm {
    enum tok_norm_kind kind;
    struct tok_str text, with;
    struct tok_regex *re;
    _Bool left, right, suffix, escape;
};

enum tok_pre_kind { TOK_SPLIT, TOK_DIGITS, TOK_BYTELEVEL, TOK_METASPACE };
enum tok_behavior { TOK_REMOVED, TOK_ISOLATED, TOK_CONTIGUOUS, TOK_WITH_PREVIOUS, TOK_WITH_NEXT };
enum tok_prefix { TOK_NEVER, TOK_ALWAYS, TOK_FIRST };

struct tok_pre {
    enum tok_pre_kind kind;
    struct tok_regex *re;       /* SPLIT and BYTELEVEL; NULL: by text, or not at all */
    const char *expression;     /* that of re */
    struct tok_str text;        /* SPLIT: literal; METASPACE: replacement */
    enum tok_behavior behavior;
    enum tok_prefix prefix;     /* BYTELEVEL and METASPACE */
    _Bool invert, split;        /* split: METASPACE cuts, DIGITS one by one */
};

struct tok_buf { uint8_t *p; size_t n, cap; };
void tok_buf_put(struct tok_buf *b, const void *s, size_t n);
void tok_buf_free(struct tok_buf *b);

/* *out: the text after all steps, in either of the two buffers or s itself. */
int tok_steps_normal(const struct tok_norm *step, int n_steps, struct tok_regex_mem *mem, struct tok_str s,
                     struct tok_buf two[2], struct tok_str *out);

/* The length of a beginning of s that is valid UTF-8 and surely in NFC; n when all is. */
size_t tok_steps_plain(const uint8_t *s, size_t n);

/* The same of one character, after init: nothing joins over the beginning of one that is. */
enum { TOK_PLAIN_END = 0x30000 };
extern uint8_t tok_not_plain[TOK_PLAIN_END / 8];
void tok_steps_plain_init(void);
static inline _Bool tok_char_plain(uint32_t c)
{
    return c >= TOK_PLAIN_END || !(tok_not_plain[c >> 3] >> (c & 7) & 1);
}

/* first: the piece begins where the text begins. */
struct tok_piece_ref { const uint8_t *s; size_t n; _Bool first; };

struct tok_pieces { struct tok_piece_ref *v; size_t n, cap; };

/* Cuts the pieces *io anew by each step; bytes that had to change lie in a. */
int tok_steps_cut(const struct tok_pre *step, int n_steps, struct tok_regex_mem *mem, struct arena *a, struct tok_pieces *io);
void tok_pieces_put(struct tok_pieces *p, const uint8_t *s, size_t n, _Bool first);

#endif
