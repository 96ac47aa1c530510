/* regex_read.c -- from the syntax of Oniguruma or fancy-regex to that of PCRE2.
 *
 * One pass; the output is the input but for the constructs listed in regex.h.
 * Invariant: every character of the pattern was either understood here or
 * refused here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "tok/regex.h"

#define SPACE_SET "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE_NOT "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}" \
                  "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_ONIG WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"    /* outside a class it takes Latin-1 from a table of its own */
#define WORD_RUST WORD "\\x{200c}\\x{200d}"

enum { DEPTH_MAX = 100 };

struct reader {
    const char *where, *p, *end, *begin;
    enum tok_dialect d;
    char *out; size_t n, cap;
    size_t atom;                /* where the last atom begins in out, SIZE_MAX: none to repeat */
    size_t open[DEPTH_MAX];     /* the open groups: their place in out */
    _Bool fold[DEPTH_MAX + 1];  /* (?i: */
    int depth;
    char last;                  /* the literal letter before, for folds of two letters */
    _Bool inner;                /* in a class in a class */
};

static int refuse(const struct reader *r, const char *what)
{
    return err_set(ERR_DATA, "%s: %s at character %zu of the expression is not supported", r->where, what,
                   (size_t)(r->p - r->begin) + 1);
}

static void put(struct reader *r, const char *s, size_t n)
{
    if (r->n + n + 1 > r->cap) {
        r->cap = 2 * (r->n + n) + 64;
        r->out = realloc(r->out, r->cap);
        arena_must(r->out);
    }
    memcpy(r->out + r->n, s, n);
    r->n += n;
    r->out[r->n] = '\0';
}

static void put_str(struct reader *r, const char *s)
{
    put(r, s, strlen(s));
}

static _Bool is(const struct reader *r, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(r->end - r->p) >= n && memcmp(r->p, s, n) == 0;
}

static _Bool is_category(const char *s, size_t n)
{
    static const char all[] = " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn ";
    char want[8];
    if (n > 2)
        return 0;
    snprintf(want, sizeof want, " %.*s ", (int)n, s);
    return strstr(all, want) != NULL;
}

/* \p{..} and \P{..}, at the letter p.  A name that is no category is a script;
 * whether it exists PCRE2 says. */
static int property(struct reader *r)
{
    _Bool not = *r->p == 'P';
    const char *name = r->p + 1, *stop;
    if (r->fold[r->depth])
        return refuse(r, "a property under (?i:");
    if (name < r->end && *name == '{') {
        name++;
        if ((stop = memchr(name, '}', (size_t)(r->end - name))) == NULL)
            return refuse(r, "\\p without }");
        r->p = stop + 1;
    } else if (r->d == TOK_RUST && name < r->end) {
        stop = name + 1;
        r->p = stop;
    } else {
        return refuse(r, "\\p without {");
    }
    if (name < stop && *name == '^') {
        not = !not;
        name++;
    }
    put_str(r, not ? "\\P{" : "\\p{");
    if (!is_category(name, (size_t)(stop - name))) {
        for (const char *q = name; q < stop; q++)
            if (!((*q >= 'a' && *q <= 'z') || (*q >= 'A' && *q <= 'Z') || *q == '_'))
                return refuse(r, "this property");
        if (stop - name < 3)
            return refuse(r, "this property");
        put_str(r, "sc:");
    }
    put(r, name, (size_t)(stop - name));
    put_str(r, "}");
    return 0;
}

/* \x41, \x{41} and \u0041, at the letter. */
static int number(struct reader *r)
{
    char kind = *r->p++;
    const char *from = r->p, *to;
    unsigned long v = 0;
    _Bool brace = kind == 'x' && r->p < r->end && *r->p == '{';
    if (brace)
        from++;
    for (to = from; to < r->end && to - from < (brace ? 6 : kind == 'x' ? 2 : 4); to++) {
        int c = *to | 0x20, digit = *to >= '0' && *to <= '9' ? *to - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            break;
        v = v * 16 + (unsigned)digit;
    }
    if (to == from || (!brace && to - from != (kind == 'x' ? 2 : 4)) || (brace && (to == r->end || *to != '}')))
        return refuse(r, "this escape");
    if (kind == 'x' && !brace && v >= 0x80)
        return refuse(r, "a byte");
    r->p = to + brace;
    char buf[24];
    snprintf(buf, sizeof buf, "\\x{%lx}", v);
    put_str(r, buf);
    return 0;
}

/* A place with a word character on one side, or (not) on both or none. */
static void put_border(struct reader *r, _Bool not)
{
    const char *word = r->d == TOK_RUST ? WORD_RUST : WORD_ONIG;
    static const char *const parts[2][4] = { { "(?:(?<=[", "])(?![", "])|(?<![", "])(?=[" }, { "(?:(?<=[", "])(?=[", "])|(?<![", "])(?![" } };
    for (int i = 0; i < 4; i++) {
        put_str(r, parts[not][i]);
        put_str(r, word);
    }
    put_str(r, "]))");
}

/* After a backslash, in a class or outside. */
static int escape(struct reader *r, _Bool in_class)
{
    const char *word = r->d == TOK_RUST ? WORD_RUST : in_class ? WORD : WORD_ONIG, *set = NULL;
    _Bool not = 0;
    if (r->p == r->end)
        return refuse(r, "a backslash at the end");
    char c = *r->p;
    switch (c) {
    case 'p': case 'P':
        return property(r);
    case 'x': case 'u':
        return number(r);
    case 's':
        set = SPACE_SET;
        break;
    case 'S':
        set = in_class ? SPACE_NOT : SPACE_SET;
        not = !in_class;
        break;
    case 'd':
        set = "\\p{Nd}";
        break;
    case 'D':
        set = "\\P{Nd}";
        break;
    case 'w': case 'W':
        if (c == 'W' && in_class)
            return refuse(r, "\\W in a class");
        set = word;
        not = c == 'W';
        break;
    case 'h': case 'H':
        if (r->d != TOK_ONIG || (c == 'H' && in_class))
            return refuse(r, "this escape");
        set = "0-9A-Fa-f";
        not = c == 'H';
        break;
    case 'b': case 'B':
        if (in_class)
            return refuse(r, "this escape");
        put_border(r, c == 'B');
        break;
    case 'r': case 'n': case 't': case 'f': case 'a':
        put(r, "\\", 1);
        put(r, &c, 1);
        break;
    case 'v':
        put_str(r, "\\x{b}");
        break;
    case 'A': case 'z':
        if (in_class)
            return refuse(r, "this escape");
        put(r, "\\", 1);
        put(r, &c, 1);
        break;
    default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80)
            return refuse(r, "this escape");
        put(r, "\\", 1);
        put(r, &c, 1);
    }
    r->p++;
    if (set != NULL && !in_class) {
        put_str(r, not ? "[^" : "[");
        put_str(r, set);
        put_str(r, "]");
    } else if (set != NULL) {
        put_str(r, set);
    }
    return 0;
}

static int class_items(struct reader *r);

/* [a[bc]] is the same as [abc], unless a "-" at a border would become a range. */
static int inner_class(struct reader *r)
{
    _Bool dash = r->n > 0 && r->out[r->n - 1] == '-';
    r->p++;
    if (dash || r->inner || (r->p < r->end && (*r->p == '^' || *r->p == '-')))
        return refuse(r, "such a class in a class");
    r->inner = 1;
    TRY(class_items(r));
    r->inner = 0;
    if (*r->p != ']' || r->p[-1] == '-' || (r->p + 1 < r->end && r->p[1] == '-'))
        return refuse(r, "such a class in a class");
    r->p++;
    return 0;
}

/* The inside of [...], after [ and ^, up to ] or &&. */
static int class_items(struct reader *r)
{
    _Bool any = 0;
    for (;; any = 1) {
        if (r->p == r->end)
            return refuse(r, "a class without ]");
        if (*r->p == ']' && !any)
            return refuse(r, "] at the beginning of a class");
        if (*r->p == ']' || is(r, "&&"))
            return 0;
        if (is(r, "[:"))
            return refuse(r, "a class by its name");
        if (*r->p == '[') {
            TRY(inner_class(r));
            continue;
        }
        if (r->d == TOK_RUST && (is(r, "--") || is(r, "~~")))
            return refuse(r, "a difference of classes");
        if (r->fold[r->depth] && (unsigned char)*r->p >= 0x80)
            return refuse(r, "a character beyond ASCII under (?i:");
        if (*r->p == '\\') {
            r->p++;
            TRY(escape(r, 1));
            continue;
        }
        put(r, r->p++, 1);
    }
}

static int class(struct reader *r)
{
    size_t begin = r->n;
    r->p++;
    put_str(r, "[");
    if (r->p < r->end && *r->p == '^') {
        r->p++;
        put_str(r, "^");
    }
    _Bool not = r->n == begin + 2;
    TRY(class_items(r));
    put_str(r, "]");
    if (*r->p == ']') {
        r->p++;
        return 0;
    }
    /* [A&&[^B]]: a character of A that is not of B. */
    if (not || !is(r, "&&[^"))
        return refuse(r, "this intersection");
    size_t n = r->n - begin;
    char *left = malloc(n);
    arena_must(left);
    memcpy(left, r->out + begin, n);
    r->n = begin;
    r->p += 4;
    put_str(r, "(?:(?![");
    int rc = class_items(r);
    if (rc == 0 && !is(r, "]]"))
        rc = refuse(r, "this intersection");
    if (rc == 0) {
        put_str(r, "])");
        put(r, left, n);
        put_str(r, ")");
        r->p += 2;
    }
    free(left);
    return rc;
}

/* "(?<name>", whose name nothing can refer to here: its length, 0 when it is none. */
static size_t group_name(const struct reader *r)
{
    const char *q = r->p + 3;
    if (!is(r, "(?<"))
        return 0;
    while (q < r->end && ((*q >= 'a' && *q <= 'z') || (*q >= 'A' && *q <= 'Z') || *q == '_'))
        q++;
    return q > r->p + 3 && q < r->end && *q == '>' ? (size_t)(q + 1 - r->p) : 0;
}

static int group(struct reader *r)
{
    static const char *const kinds[] = { "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
    _Bool fold = r->fold[r->depth];
    size_t k = 0, n = 1, name = group_name(r);
    if (r->depth == DEPTH_MAX)
        return refuse(r, "nesting this deep");
    if (name == 0 && is(r, "(?")) {
        while (k < sizeof kinds / sizeof *kinds && !is(r, kinds[k]))
            k++;
        if (k == sizeof kinds / sizeof *kinds)
            return refuse(r, "this kind of group");
        n = strlen(kinds[k]);
        fold = fold || k == 1;
    }
    r->open[r->depth++] = r->n;
    r->fold[r->depth] = fold;
    if (name > 0)
        put_str(r, "(?:");
    else
        put(r, r->p, n);
    r->p += name > 0 ? name : n;
    r->atom = SIZE_MAX;
    return 0;
}

/* {n}, {n,} or {n,m} at p: its length, 0 when it is none. */
static size_t braces(const struct reader *r, _Bool *fixed)
{
    const char *q = r->p + 1, *digits = q;
    while (q < r->end && *q >= '0' && *q <= '9')
        q++;
    if (q == digits || q == r->end)
        return 0;
    *fixed = *q == '}';
    if (*q == ',')
        for (q++; q < r->end && *q >= '0' && *q <= '9'; q++)
            ;
    return q < r->end && *q == '}' ? (size_t)(q + 1 - r->p) : 0;
}

static int quantifier(struct reader *r)
{
    _Bool brace = *r->p == '{', fixed = 0;
    size_t n = brace ? braces(r, &fixed) : 1;
    if (n == 0)
        return refuse(r, "this {");
    if (r->atom == SIZE_MAX)
        return refuse(r, "nothing to repeat");
    put(r, r->p, n);
    r->p += n;
    if (r->p < r->end && *r->p == '?') {
        if (fixed && r->d == TOK_ONIG)
            return refuse(r, "{n}?");
        put(r, r->p++, 1);
    } else if (r->p < r->end && *r->p == '+') {
        r->p++;
        if (brace && r->d == TOK_ONIG) {        /* a repetition of repetitions */
            size_t k = r->n - r->atom;
            put_str(r, "(?:)+");
            memmove(r->out + r->atom + 3, r->out + r->atom, k);
            memcpy(r->out + r->atom, "(?:", 3);
            memcpy(r->out + r->atom + 3 + k, ")+", 2);
        } else {
            put_str(r, "+");
        }
    }
    if (r->p < r->end && strchr("*+?{", *r->p) != NULL)
        return refuse(r, "a repetition of a repetition");
    r->atom = SIZE_MAX;
    return 0;
}

/* Oniguruma folds some pairs of letters into one character (ss and its kin). */
static int literal(struct reader *r)
{
    unsigned char c = (unsigned char)*r->p;
    if (r->fold[r->depth]) {
        char low = (char)(c | 0x20);
        if (c >= 0x80)
            return refuse(r, "a character beyond ASCII under (?i:");
        if (r->d == TOK_ONIG && ((r->last == 's' && (low == 's' || low == 't')) || (r->last == 'f' && (low == 'f' || low == 'i' || low == 'l'))))
            return refuse(r, "letters that fold into one under (?i:");
        r->last = low;
    }
    r->atom = r->n;
    do
        put(r, r->p++, 1);
    while (r->p < r->end && ((unsigned char)*r->p & 0xc0) == 0x80);
    return 0;
}

static int read_one(struct reader *r)
{
    char c = *r->p;
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
        r->last = '\0';
    switch (c) {
    case '\\':
        r->atom = r->n;
        r->p++;
        return escape(r, 0);
    case '[':
        r->atom = r->n;
        return class(r);
    case '(':
        return group(r);
    case ')':
        if (r->depth == 0)
            return refuse(r, ") without (");
        r->atom = r->open[--r->depth];
        put(r, r->p++, 1);
        return 0;
    case '|':
        r->atom = SIZE_MAX;
        put(r, r->p++, 1);
        return 0;
    case '*': case '+': case '?': case '{':
        return quantifier(r);
    case '^': case '$':
        r->atom = SIZE_MAX;
        if (r->d == TOK_ONIG)
            put(r, r->p, 1);
        else
            put_str(r, c == '^' ? "\\A" : "\\z");
        r->p++;
        return 0;
    case '\0':
        return refuse(r, "a NUL");
    default:
        return literal(r);
    }
}

int tok_regex_translate(const char *where, const char *pattern, size_t n, enum tok_dialect d, char **out)
{
    struct reader *r = calloc(1, sizeof *r);
    int rc = 0;
    arena_must(r);
    *out = NULL;
    *r = (struct reader){ .where = where, .p = pattern, .begin = pattern, .end = pattern + n, .d = d, .atom = SIZE_MAX };
    put(r, "", 0);
    while (rc == 0 && r->p < r->end)
        rc = read_one(r);
    if (rc == 0 && r->depth > 0)
        rc = refuse(r, "( without )");
    if (rc == 0)
        *out = r->out;
    else
        free(r->out);
    free(r);
    return rc;
}
