/* counted.c -- what was met in texts and decided about, in words. */
#include "base/arena.h"
#include "base/err.h"
#include "base/units.h"
#include "tokenize.h"

/* ", 3 blank lines" and so on for what is not zero. */
const char *tokenize_counted(struct arena *a, const struct text_how *how, const int64_t count[TEXT_N_KINDS])
{
    static const struct { const char *one, *many; } what[TEXT_N_KINDS] = {
        [TEXT_UTF8] = { "byte that is no UTF-8", "bytes that are no UTF-8" },
        [TEXT_SURROGATE] = { "half of a surrogate pair", "halves of surrogate pairs" },
        [TEXT_NUL] = { "U+0000", "times U+0000" },
        [TEXT_JSON] = { "line that is no JSON object", "lines that are no JSON object" },
        [TEXT_KEY] = { "value that is missing", "values that are missing" },
        [TEXT_TYPE] = { "value that is no string", "values that are no string" },
        [TEXT_BLANK_LINE] = { "blank line", "blank lines" },
        [TEXT_EMPTY] = { "document without text", "documents without text" },
    };
    static const char *const done[TEXT_N_ACTIONS] = { "", " (replaced)", " (left out)", " (left out)", " (taken as empty)", "" };
    char n[32];
    const char *s = "";
    for (int k = 0; k < TEXT_N_KINDS; k++)
        if (count[k] > 0)
            s = arena_printf(a, "%s, %s %s%s", s, units_count(n, count[k]), count[k] == 1 ? what[k].one : what[k].many, done[how->on[k]]);
    return s;
}

int tokenize_on(struct text_how *how, const struct opt_list *on)
{
    for (int i = 0; i < on->n; i++)
        TRY(tok_text_how_set(how, on->v[i]));
    return 0;
}
