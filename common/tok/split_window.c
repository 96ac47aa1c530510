/* split_window.c -- the pieces of a few thousand bytes at once, by bits.
 *
 * split_kin.c finds the end of one piece from its beginning; here all
 * beginnings of 64 bytes are found together, from masks of classes, with a few
 * dozen operations and no branch per piece.  The rules are the same ones, seen
 * from the other side: each line below says which bytes begin a piece.
 *
 * What is rare is not known here: bytes that are no UTF-8, scripts without case
 * under an expression that asks for case, ideographs where they are apart.  A
 * window with such a thing is left to the other way. */
#include "tok/split_window.h"

#include <pthread.h>
#include <string.h>

#include "tok/split_class.h"
#include "tok/split_mask.h"

enum { N_BLOCKS = TOK_WINDOW_MAX / 64 };

/* What a class (split_class.h) means to an expression. */
enum { M_LETTER = 1, M_UPPER = 2, M_NUMBER = 4, M_SPACE = 8, M_OTHER = 16, M_ODD = 32 };

struct window {
    const struct tok_split *k;
    const uint8_t *s;
    size_t n, n_blocks;
    _Bool plain;
    struct tok_block block[N_BLOCKS + 2];       /* block[0] is empty, and so is the one after the last */
    uint64_t start[N_BLOCKS + 2];               /* of pieces; parallel to block */
};

static uint8_t meaning(enum tok_split_form form, _Bool marks, _Bool many_digits, uint8_t class)
{
    const uint8_t letters = marks ? LETTER | IN_U | IN_W : LETTER;
    _Bool cased = form == TOK_FORM_CASED;
    if (class == STOP || (cased && (class & (IN_U | IN_W)) == (IN_U | IN_W)))
        return M_ODD;
    if (class & NUMBER)         /* the few that are not ASCII are not counted by bits */
        return many_digits ? M_ODD : M_NUMBER;
    if (class & SPACE)
        return M_SPACE;
    if (class & letters)
        return cased && class & IN_U ? M_LETTER | M_UPPER : M_LETTER;
    return form == TOK_FORM_DEEPSEEK && !(class & SIGN) ? M_ODD : M_OTHER;
}

static uint8_t meanings[TOK_FORM_SPACE][2][2][256];
static pthread_once_t meanings_once = PTHREAD_ONCE_INIT;

static void make_meanings(void)
{
    tok_class_init();
    tok_steps_plain_init();
    for (int f = 0; f < TOK_FORM_SPACE; f++)
        for (int i = 0; i < 1024; i++)
            meanings[f][i >> 9][i >> 8 & 1][i & 255] = meaning((enum tok_split_form)f, i >> 9, i >> 8 & 1, (uint8_t)i);
}

/* Ideographs and kana, where an expression keeps them apart. */
static inline _Bool stands_apart(const struct tok_split *k, uint32_t c)
{
    return c >= 0x2e80 && k->apart && !(c >= 0x1f000 && c < 0x20000);
}

static inline void put(struct tok_block *b, uint8_t m, uint64_t bits)
{
    b->letter |= m & M_LETTER ? bits : 0;
    b->upper |= m & M_UPPER ? bits : 0;
    b->number |= m & M_NUMBER ? bits : 0;
    b->space |= m & M_SPACE ? bits : 0;
    b->other |= m & M_OTHER ? bits : 0;
}

/* The characters over U+007F; false when one is odd.  Reads no byte beyond n. */
static _Bool add_high(struct window *w, const uint8_t *means)
{
    uint64_t into = 0;          /* bytes of this block that belong to a character of the block before */
    for (size_t i = 1; i <= w->n_blocks; i++) {
        struct tok_block *b = &w->block[i];
        uint64_t left = b->high & ~into;
        into = 0;
        while (left != 0) {
            int at = __builtin_ctzll(left), len;
            size_t pos = (i - 1) * 64 + (size_t)at;
            uint32_t c;
            if (w->s[pos] < 0xe0 && w->n - pos > 1 && w->s[pos] >= 0xc2 && (w->s[pos + 1] & 0xc0) == 0x80) {
                c = (uint32_t)(w->s[pos] & 0x1f) << 6 | (w->s[pos + 1] & 0x3f);
                len = 2;
            } else if ((len = tok_utf8_char(w->s + pos, w->n - pos, &c)) == 0) {
                return 0;
            }
            w->plain &= tok_char_plain(c);
            uint8_t m = means[tok_class_blocks[tok_class_block[c >> 8]][c & 255]];
            if (m & M_ODD || stands_apart(w->k, c))
                return 0;
            uint64_t all = ((uint64_t)1 << len) - 1, bits = all << at;
            put(b, m, bits);
            b->tail |= bits & (bits - ((uint64_t)1 << at));
            left &= ~bits;
            if (at + len > 64) {
                into = all >> (64 - at);
                put(b + 1, m, into);
                b[1].tail |= into;
            }
        }
    }
    return 1;
}

/* The masks of the window; false when it holds something odd. */
static _Bool classify(struct window *w, tok_mask_ascii *ascii)
{
    const struct tok_split *k = w->k;
    uint8_t last[64] = { 0 };
    size_t whole = w->n / 64, rest = w->n % 64;
    uint64_t high = 0, control = 0;
    w->n_blocks = whole + (rest > 0);
    memset(&w->block[0], 0, sizeof w->block[0]);
    ascii(w->s, whole, &w->block[1]);
    if (rest > 0) {
        uint64_t in = ((uint64_t)1 << rest) - 1, *m = (uint64_t *)&w->block[whole + 1];
        memcpy(last, w->s + whole * 64, rest);
        ascii(last, 1, &w->block[whole + 1]);
        for (size_t i = 0; i < sizeof w->block[0] / sizeof *m; i++)
            m[i] &= in;
    }
    memset(&w->block[w->n_blocks + 1], 0, sizeof w->block[0]);
    if (k->form == TOK_FORM_SPACE)
        return memmem(w->s, w->n, "\xe2\x96\x81", 3) == NULL;
    for (size_t i = 1; i <= w->n_blocks; i++) {
        high |= w->block[i].high;
        control |= w->block[i].control;
    }
    if (control != 0 && k->form == TOK_FORM_DEEPSEEK)   /* there they match no branch */
        return 0;
    if (high == 0)
        return 1;
    return add_high(w, meanings[k->form][k->marks][k->digits > 1]);
}

/* ---- single bits */

static inline _Bool has(const struct window *w, const uint64_t *first, size_t pos)
{
    const uint64_t *m = (const uint64_t *)((const char *)first + (pos / 64 + 1) * sizeof(struct tok_block));
    (void)w;
    return *m >> pos % 64 & 1;
}

#define HAS(w, mask, pos) has(w, &(w)->block[0].mask, pos)

static inline void begin(struct window *w, size_t pos)
{
    if (pos < w->n)
        w->start[pos / 64 + 1] |= (uint64_t)1 << pos % 64;
}

/* 's after a piece's beginning (form 0), in lower case only (1), or as the end of a
 * word (2), whose letters go on as a word of their own after it. */
static void contract(struct window *w, size_t i_block, uint64_t at, int form, size_t *done)
{
    for (; at != 0; at &= at - 1) {
        size_t pos = (i_block - 1) * 64 + (size_t)__builtin_ctzll(at);
        if (form == 2 && pos == *done)          /* after another one: it begins a word itself */
            continue;
        size_t e = tok_split_contraction(w->s, w->n, pos);
        if (e == pos)
            continue;
        if (form == 1 && (w->s[pos + 1] >= 'a' && (e == pos + 2 || w->s[pos + 2] >= 'a')) == 0)
            continue;
        if (form == 1 && w->s[pos + 1] >= 0x80)
            continue;
        *done = e;
        if (form != 0)
            for (size_t i = form == 1 ? pos + 1 : pos; i < e; i++)
                w->start[i / 64 + 1] &= ~((uint64_t)1 << i % 64);
        if (e < w->n && HAS(w, letter, e))
            begin(w, e);
    }
}

/* Runs of digits, k at a time. */
static void count_digits(struct window *w, size_t i_block, uint64_t first)
{
    for (; first != 0; first &= first - 1) {
        size_t pos = (i_block - 1) * 64 + (size_t)__builtin_ctzll(first), e = pos + 1;
        for (; e < w->n && HAS(w, number, e); e++)
            if ((e - pos) % (size_t)w->k->digits == 0)
                begin(w, e);
    }
}

/* White space behind a line feed begins a piece unless another line feed follows it. */
static void indents(struct window *w, size_t i_block, uint64_t at)
{
    for (; at != 0; at &= at - 1) {
        size_t pos = (i_block - 1) * 64 + (size_t)__builtin_ctzll(at), e = pos;
        while (e < w->n && HAS(w, space, e) && !HAS(w, brk, e))
            e++;
        if (e < w->n ? !HAS(w, brk, e) : !w->k->end_space)
            begin(w, pos);
    }
}

/* From the last byte of a character to its first. */
static void begin_chars(struct window *w, size_t i_block, uint64_t last)
{
    for (; last != 0; last &= last - 1) {
        size_t pos = (i_block - 1) * 64 + (size_t)__builtin_ctzll(last);
        while (HAS(w, tail, pos))
            pos--;
        begin(w, pos);
    }
}

/* ---- beginnings.  BEFORE(m): the byte before is in m; AFTER(m): the next one is. */

#define BEFORE(m) (b->m << 1 | b[-1].m >> 63)
#define AFTER(m) (b->m >> 1 | b[1].m << 63)

struct carry {
    uint64_t flood;             /* line feeds (and "/") that an other before them swallowed */
    uint64_t room;              /* T: white space that can stand before a word in its piece */
    uint64_t sign, others, breaks, latin;
    size_t contracted;
};

static inline void find(struct window *w, size_t i, struct carry *c, const enum tok_split_form form, const _Bool tail, const _Bool slash)
{
    const struct tok_block *b = &w->block[i];
    const uint64_t letter = b->letter, tails = b->tail, before_letter = BEFORE(letter);
    const size_t base = (i - 1) * 64, past = c->contracted > base && c->contracted != SIZE_MAX ? c->contracted - base : 0;
    uint64_t others = b->other, flood = 0, start, at;

    /* [\r\n]* behind [^\s\p{L}\p{N}]+ : the sum runs through a run of ones from its seed on. */
    if (form != TOK_FORM_GPT2) {
        uint64_t may = b->brk | (slash ? b->slash : 0), seed = (b->brk & BEFORE(other)) | (may & c->flood >> 63);
        flood = may & (~(may + seed) | seed);
        others &= ~flood;
    }
    const uint64_t space = b->space & ~flood, brk = b->brk & ~flood, room = form == TOK_FORM_GPT2 ? space : space & ~brk;
    const uint64_t visible = letter | b->other | (form == TOK_FORM_DEEPSEEK ? 0 : b->number);
    const uint64_t visible_next = (b[1].letter | b[1].other | (form == TOK_FORM_DEEPSEEK ? 0 : b[1].number)) << 63;

    /* A run of others begins a piece, unless a blank before it does. */
    const uint64_t first_other = others & ~(others << 1 | c->others >> 63), sign = first_other & ~BEFORE(blank);
    start = sign;

    /* A run of white space, and its last character when something visible follows;
     * what a line feed left behind. */
    start |= space & ~(space << 1 | ((b[-1].space & ~c->flood) >> 63));
    at = room & (visible >> 1 | visible_next);
    start |= at & ~tails;
    w->start[i] |= start;
    if (at & tails)
        begin_chars(w, i, at & tails);
    if (form != TOK_FORM_GPT2 && (at = room & (brk << 1 | c->breaks >> 63)) != 0)
        indents(w, i, at);

    /* A word, unless one character before it is part of its piece. */
    uint64_t sign_end;          /* the bytes of characters that begin a piece as a sign */
    at = tails & (sign << 1 | c->sign >> 63);
    sign_end = sign | (tails & ~(tails + at));
    if (form == TOK_FORM_GPT2) {
        start = letter & ~before_letter & ~BEFORE(blank) & ~(uint64_t)0 << past;
    } else if (form == TOK_FORM_DEEPSEEK) {
        /* A sign of ASCII takes letters of ASCII alone; behind them another word begins. */
        const uint64_t latin = letter & ~b->high, joined = latin & ((sign_end & ~b->high) << 1 | (c->sign & ~b[-1].high) >> 63);
        uint64_t sum;
        _Bool over = __builtin_add_overflow(latin, joined, &sum);
        over |= __builtin_add_overflow(sum, c->latin, &sum);
        c->latin = over;
        start = (letter & ~before_letter & ~(room << 1 | c->room >> 63) & ~joined) | (sum & ~latin & letter & ~tails);
    } else {
        start = letter & ~before_letter & ~(room << 1 | c->room >> 63) & ~(sign_end << 1 | c->sign >> 63);
    }
    if (form == TOK_FORM_CASED)
        start |= b->upper & before_letter & ~BEFORE(upper) & ~(uint64_t)0 << past;

    /* Numbers. */
    if (form == TOK_FORM_GPT2) {
        start |= b->number & ~BEFORE(number) & ~BEFORE(blank);
    } else if (w->k->digits == 1) {
        start |= b->number & ~tails;
    } else {
        at = b->number & ~BEFORE(number);
        start |= at;
        if (at != 0)
            count_digits(w, i, at);
    }
    w->start[i] |= start;

    if (form == TOK_FORM_PLAIN || form == TOK_FORM_GPT2) {
        if ((at = sign & b->apos & AFTER(letter)) != 0)
            contract(w, i, at, form == TOK_FORM_GPT2, &c->contracted);
    } else if (form == TOK_FORM_CASED && tail) {
        if ((at = b->apos & before_letter & AFTER(letter)) != 0)
            contract(w, i, at, 2, &c->contracted);
    }
    c->flood = flood;
    c->room = room;
    c->sign = sign_end;
    c->others = others;
    c->breaks = brk;
}

static void find_spaces(struct window *w)
{
    for (size_t i = 1; i <= w->n_blocks; i++) {
        const struct tok_block *b = &w->block[i];
        w->start[i] = w->k->each ? b->blank : b->blank & ~BEFORE(blank);
        if (w->k->lines)
            w->start[i] |= b->brk | BEFORE(brk);
    }
    if (w->n % 64 != 0)
        w->start[w->n_blocks] &= ((uint64_t)1 << w->n % 64) - 1;
}

/* One copy of find() for each kind of expression. */
static void find_all(struct window *w)
{
    struct carry c = { .contracted = SIZE_MAX };
    const struct tok_split *k = w->k;
    memset(w->start, 0, (w->n_blocks + 2) * sizeof *w->start);
#define ALL(form, tail, slash) for (size_t i = 1; i <= w->n_blocks; i++) find(w, i, &c, form, tail, slash)
    switch (k->form) {
    case TOK_FORM_PLAIN:
        ALL(TOK_FORM_PLAIN, 0, 0);
        break;
    case TOK_FORM_GPT2:
        ALL(TOK_FORM_GPT2, 0, 0);
        break;
    case TOK_FORM_DEEPSEEK:
        ALL(TOK_FORM_DEEPSEEK, 0, 0);
        break;
    case TOK_FORM_SPACE:
        find_spaces(w);
        break;
    case TOK_FORM_OTHER:
        break;
    case TOK_FORM_CASED:
        if (k->slash && k->tail)
            ALL(TOK_FORM_CASED, 1, 1);
        else if (k->slash)
            ALL(TOK_FORM_CASED, 0, 1);
        else
            ALL(TOK_FORM_CASED, 1, 0);
        break;
    }
#undef ALL
}

size_t tok_split_window(const struct tok_split *k, tok_mask_ascii *kernel, const uint8_t *s, size_t n, uint16_t *end, _Bool *plain)
{
    struct window w;
    size_t n_ends = 0;
    if (n == 0 || n > TOK_WINDOW_MAX || k->form == TOK_FORM_OTHER)
        return 0;
    pthread_once(&meanings_once, make_meanings);
    w.k = k;
    w.s = s;
    w.n = n;
    w.plain = 1;
    if (!classify(&w, kernel))
        return 0;
    *plain = w.plain;
    find_all(&w);
    w.start[1] &= ~(uint64_t)1;
    for (size_t i = 1; i <= w.n_blocks; i++)
        for (uint64_t m = w.start[i]; m != 0; m &= m - 1)
            end[n_ends++] = (uint16_t)((i - 1) * 64 + (size_t)__builtin_ctzll(m));
    end[n_ends++] = (uint16_t)n;
    return n_ends;
}
