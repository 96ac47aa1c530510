/* card_text.c -- text that grows, and names that Markdown leaves alone.
 *
 * Every name in a card came from a file, and a card is shown as a page: so no
 * name may become a link, a tag, a table border or a second line. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

#include "ckpt/card_impl.h"

void card_text_add(struct card_text *t, const char *fmt, ...)
{
    va_list ap;

    for (;;) {
        size_t left = t->room - t->n;
        int k;

        va_start(ap, fmt);
        k = vsnprintf(left ? t->s + t->n : NULL, left, fmt, ap);
        va_end(ap);
        if (k >= 0 && (size_t)k < left) {
            t->n += (size_t)k;
            return;
        }
        t->room = 2 * t->room + (size_t)(k > 0 ? k : 0) + 4096;
        t->s = arena_must(realloc(t->s, t->room));
    }
}

void card_text_free(struct card_text *t)
{
    free(t->s);
    *t = (struct card_text){ 0 };
}

/* Bytes of the UTF-8 character at s, 0 when it is none. */
static int utf8_length(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;

    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static const char *safe(struct arena *a, const char *text, const char *escape, _Bool lines)
{
    static const char bad[] = "\xef\xbf\xbd";
    const unsigned char *s = (const unsigned char *)text;
    char *out = arena_alloc(a, 3 * strlen(text) + 1), *p = out;

    while (*s) {
        int n = utf8_length(s);

        if (n == 0 || (n == 1 && (*s < 0x20 || *s == 0x7f) && !(lines && *s == '\n'))) {
            memcpy(p, bad, 3);
            p += 3;
            s++;
            continue;
        }
        if (n == 1 && strchr(escape, *s))
            *p++ = '\\';
        while (n-- > 0)
            *p++ = (char)*s++;
    }
    return out;
}

const char *card_text_plain(struct arena *a, const char *s) { return safe(a, s, "\\`*_{}[]<>()#|~&!$", 0); }
const char *card_text_clean(struct arena *a, const char *s) { return safe(a, s, "", 1); }

const char *card_text_fence(struct arena *a, const char *s)
{
    size_t longest = 2, run = 0;
    char *f;

    for (; *s; s++) {
        run = *s == '`' ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    f = arena_alloc(a, longest + 2);
    memset(f, '`', longest + 1);
    return f;
}

const char *card_text_count(struct arena *a, int64_t n)
{
    static const struct { double unit; const char *name; } units[] = { { 1e12, "T" }, { 1e9, "B" }, { 1e6, "M" } };
    char text[32];

    units_count(text, n);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if ((double)n >= units[i].unit)
            return arena_printf(a, "%s (%.3g %s)", text, (double)n / units[i].unit, units[i].name);
    return arena_strdup(a, text);
}
