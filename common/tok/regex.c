/* regex.c -- compiling and walking; the reading of patterns is regex_read.c. */
#include "tok/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "tok/chars.h"

struct tok_regex { pcre2_code *code; char *where; };

struct tok_regex_mem { pcre2_match_data *data; pcre2_match_context *context; pcre2_jit_stack *stack; };

enum { JIT_STACK = 64 << 20, HEAP_KIB = 1 << 20, MATCH_LIMIT = 20000000 };

int tok_regex_new(const char *where, const char *pattern, size_t n, enum tok_dialect d, struct tok_regex **out)
{
    char *text;
    int code;
    PCRE2_SIZE at;
    /* No possessive repetitions of its own making: PCRE2 10.42 takes \P{L}*\P{N} for one,
     * as if no character were neither letter nor number. */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_POSSESS | (d == TOK_ONIG ? PCRE2_MULTILINE : 0);
    *out = NULL;
    TRY(tok_regex_translate(where, pattern, n, d, &text));
    struct tok_regex *re = calloc(1, sizeof *re);
    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    arena_must(re);
    arena_must(c);
    pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    re->where = strdup(where);
    re->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code, &at, c);
    pcre2_compile_context_free(c);
    if (re->code == NULL) {
        PCRE2_UCHAR msg[160];
        pcre2_get_error_message(code, msg, sizeof msg);
        int rc = err_set(ERR_DATA, "%s: the expression \"%.*s\" is not supported: %s", where, n < 200 ? (int)n : 200, pattern, (char *)msg);
        free(text);
        tok_regex_free(re);
        return rc;
    }
    free(text);
    /* Where the library was built without it, matching is slower, not different. */
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
    *out = re;
    return 0;
}

void tok_regex_free(struct tok_regex *re)
{
    if (re == NULL)
        return;
    pcre2_code_free(re->code);
    free(re->where);
    free(re);
}

struct tok_regex_mem *tok_regex_mem_new(void)
{
    struct tok_regex_mem *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK, NULL);       /* NULL without JIT */
    if (m->data == NULL || m->context == NULL) {
        tok_regex_mem_free(m);
        return NULL;
    }
    pcre2_set_heap_limit(m->context, HEAP_KIB);
    if (m->stack != NULL)
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return m;
}

void tok_regex_mem_free(struct tok_regex_mem *m)
{
    if (m == NULL)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

void tok_regex_begin(struct tok_regex_walk *w, const struct tok_regex *re, const uint8_t *s, size_t n)
{
    *w = (struct tok_regex_walk){ re, s, n, 0, SIZE_MAX };
}

/* Giving back a run of n characters one by one is honest work, so the limit
 * grows with the text. */
static int match(const struct tok_regex_walk *w, struct tok_regex_mem *m)
{
    size_t limit = MATCH_LIMIT + 8 * w->n;
    pcre2_set_match_limit(m->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    int rc = pcre2_match(w->re->code, w->s, w->n, w->pos, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(w->re->code, w->s, w->n, w->pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc >= 0)                /* 0: there are groups, whose places nobody asks for */
        return 1;
    PCRE2_UCHAR msg[160];
    pcre2_get_error_message(rc, msg, sizeof msg);
    return err_set(ERR_DATA, "%s: the expression fails on the text after its byte %zu: %s", w->re->where, w->pos, (char *)msg);
}

int tok_regex_next(struct tok_regex_walk *w, struct tok_regex_mem *m, size_t *from, size_t *to)
{
    while (w->pos <= w->n) {
        int rc = match(w, m);
        if (rc <= 0)
            return rc;
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(m->data);
        if (o[0] == o[1] && o[1] == w->last) {
            uint32_t c;
            int len = w->pos < w->n ? tok_utf8_char(w->s + w->pos, w->n - w->pos, &c) : 1;
            w->pos += len > 0 ? (size_t)len : 1;
            continue;
        }
        *from = o[0];
        *to = w->pos = w->last = o[1];
        return 1;
    }
    return 0;
}

/* One walk over a text of all characters; the number of the group that matched
 * is the kind.  (The categories of another library would do but for characters
 * that only the younger of the two knows.) */
void tok_regex_kinds(uint32_t from, uint32_t to, uint8_t *kind)
{
    static const char groups[] = "([\\p{Lu}\\p{Lt}]+)|(\\p{Ll}+)|([\\p{Lm}\\p{Lo}]+)|(\\p{M}+)|(\\p{N}+)|([\\p{P}\\p{S}]+)";
    uint8_t *text = malloc(4 * (size_t)(to - from));
    size_t n = 0, pos = 0;
    int code, rc;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)groups, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    pcre2_match_data *data = pcre2_match_data_create(8, NULL);
    arena_must(text);
    arena_must(re);
    arena_must(data);
    pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
    for (uint32_t c = from; c < to; c++)
        if (c < 0xd800 || c > 0xdfff)
            n += tok_char_put(c, text + n);
    memset(kind, TOK_KIND_REST, to - from);
    while ((rc = pcre2_match(re, text, n, pos, PCRE2_NO_UTF_CHECK, data, NULL)) > 0) {
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(data);
        for (pos = o[0]; pos < o[1];) {
            uint32_t c = 0;
            pos += (size_t)tok_utf8_char(text + pos, n - pos, &c);
            kind[c - from] = (uint8_t)(rc - 1);
        }
    }
    BUG_ON(rc != PCRE2_ERROR_NOMATCH);
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    free(text);
}
