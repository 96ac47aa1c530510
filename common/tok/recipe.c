/* recipe.c -- the steps of a vocabulary that is to be learned.
 *
 * The expressions are the spellings of tokenizer.json files, so that what is
 * learned is read everywhere and most of it is cut by compiled code. */
#include "tok/recipe.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "tok/split.h"
#include "tok/split_parts.h"
#include "tok/vocab_store.h"

enum { MAX_STEPS = 3 };

static const struct { const char *name, *step[MAX_STEPS]; } recipes[] = {
    { "o200k", { tok_split_o200k } },
    { "gpt2", { SPLIT_GPT2 } },
    { "cl100k", { SPLIT_CL100K_HF } },
    { "llama3", { SPLIT_LLAMA3 } },
    { "qwen2", { SPLIT_QWEN2 } },
    { "qwen3.5", { SPLIT_QWEN35 } },
    { "tekken", { SPLIT_TEKKEN } },
    { "kimi", { SPLIT_KIMI } },
    { "deepseek_v3", { SPLIT_DEEPSEEK_1, SPLIT_DEEPSEEK_2, SPLIT_DEEPSEEK_3 } },
};

const char tok_recipe_names[] = "o200k, gpt2, cl100k, llama3, qwen2, qwen3.5, tekken, kimi, deepseek_v3";

static int find(const struct tok_recipe *r, const char **step, int *n)
{
    if (r->expression != NULL) {
        step[0] = r->expression;
        *n = 1;
        return r->scheme == NULL ? 0 : err_set(ERR_USAGE, "a scheme and an expression of your own: give one of them");
    }
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (strcmp(recipes[i].name, r->scheme != NULL ? r->scheme : "o200k") == 0) {
            for (*n = 0; *n < MAX_STEPS && recipes[i].step[*n] != NULL; (*n)++)
                step[*n] = recipes[i].step[*n];
            return 0;
        }
    return err_set(ERR_USAGE, "no split is called \"%s\"; there are %s", r->scheme, tok_recipe_names);
}

/* The part of an expression that takes numbers, which stands alone between bars: its place and length. */
static const char *numbers(const char *e, size_t *n)
{
    static const char *const part[] = { "\\p{N}{1,3}", "\\p{N}{1,2}", "\\p{N}+", "\\p{N}" };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        *n = strlen(part[i]);
        for (const char *p = e; (p = strstr(p, part[i])) != NULL; p++)
            if ((p == e || p[-1] == '|') && (p[*n] == '|' || p[*n] == '\0'))
                return p;
    }
    return NULL;
}

static int set_digits(struct arena *a, int digits, const char **step, int n)
{
    char part[24] = "\\p{N}";
    size_t len;
    if (digits > 1)
        snprintf(part, sizeof part, "\\p{N}{1,%d}", digits);
    for (int i = 0; i < n; i++) {
        const char *at = numbers(step[i], &len);
        if (at != NULL) {
            step[i] = arena_printf(a, "%.*s%s%s", (int)(at - step[i]), step[i], part, at + len);
            return 0;
        }
    }
    return err_set(ERR_USAGE, "this split has no part for numbers alone that --digits could set");
}

int tok_vocab_recipe_steps(struct tok_vocab *v, const struct tok_recipe *r)
{
    static const struct tok_recipe usual = { 0 };
    const char *step[MAX_STEPS];
    int n = 0;
    if (r == NULL)
        r = &usual;
    TRY(find(r, step, &n));
    if (r->digits > 0)
        TRY(set_digits(v->arena, r->digits, step, n));
    v->n_pre = n + 1;
    v->pre = arena_array(v->arena, (size_t)n + 1, sizeof *v->pre);
    v->pre[n] = (struct tok_pre){ .kind = TOK_BYTELEVEL };
    v->char_keys = v->byte_level = 1;
    if (r->nfc) {
        v->n_norm = 1;
        v->norm = arena_array(v->arena, 1, sizeof *v->norm);
        v->norm[0] = (struct tok_norm){ .kind = TOK_NFC };
    }
    for (int i = 0; i < n; i++) {
        v->pre[i] = (struct tok_pre){ .kind = TOK_SPLIT, .behavior = TOK_ISOLATED, .expression = arena_strdup(v->arena, step[i]) };
        int rc = tok_regex_new("the split", step[i], strlen(step[i]), TOK_ONIG, &v->pre[i].re);
        if (rc < 0)
            return rc == ERR_DATA ? err_set(ERR_USAGE, "%s", arena_strdup(v->arena, err_msg())) : rc;
    }
    return 0;
}
