/* langs.c -- whose language a text is in. */
#include "langs.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fs.h"
#include "tokenize.h"

static _Bool is_lang(const char *s)
{
    size_t n = strlen(s);
    return (n == 2 || n == 3 || (n > 3 && n <= 7 && (s[2] == '_' || s[2] == '-'))) && islower((unsigned char)s[0]) && islower((unsigned char)s[1]);
}

static _Bool cut_ending(char *name, const char *const *ending)
{
    size_t n = strlen(name);
    for (; *ending != NULL; ending++) {
        size_t k = strlen(*ending);
        if (n > k && strcmp(name + n - k, *ending) == 0) {
            name[n - k] = '\0';
            return 1;
        }
    }
    return 0;
}

/* de.txt, valid.de and train.de.jsonl.zst are German; what else a file is
 * called is the name of its row. */
static const char *lang_of(struct arena *a, const char *path)
{
    static const char *const packed[] = { ".gz", ".zst", NULL }, *const kind[] = { ".txt", ".text", ".jsonl", ".ndjson", NULL };
    char *name = arena_strdup(a, fs_base(path));
    cut_ending(name, packed);
    cut_ending(name, kind);
    char *dot = strrchr(name, '.');
    return dot != NULL && is_lang(dot + 1) ? dot + 1 : name;
}

/* "LANG=FILE", unless there is a file of that whole name. */
static const char *operand(struct arena *a, const char *arg, const char **path)
{
    const char *eq = strchr(arg, '=');
    *path = arg;
    if (eq == NULL || eq == arg || fs_exists(arg) || memchr(arg, '/', (size_t)(eq - arg)) != NULL)
        return lang_of(a, arg);
    *path = eq + 1;
    return arena_printf(a, "%.*s", (int)(eq - arg), arg);
}

void langs_group(struct arena *a, int argc, char *const *argv, struct langs *out)
{
    static char stdin_name[] = "-";
    static char *const only_stdin[] = { stdin_name };
    if (argc == 0) {
        argc = 1;
        argv = only_stdin;
    }
    *out = (struct langs){ arena_array(a, (size_t)argc, sizeof *out->v), 0 };
    for (int i = 0; i < argc; i++) {
        const char *path, *name = operand(a, argv[i], &path);
        int l = 0;
        while (l < out->n && strcmp(out->v[l].name, name) != 0)
            l++;
        if (l == out->n)
            out->v[out->n++] = (struct lang_texts){ name, arena_array(a, (size_t)argc, sizeof(char *)), 0 };
        out->v[l].path[out->v[l].n++] = path;
    }
}

int langs_option(struct arena *a, const struct langs *l, const char *option, const char *arg, const char **rest)
{
    const char *eq = strchr(arg, '=');
    if (eq == NULL || eq == arg || eq[1] == '\0')
        return err_set(ERR_USAGE, "%s %s: it wants LANG=...", option, arg);
    const char *name = arena_printf(a, "%.*s", (int)(eq - arg), arg);
    *rest = eq + 1;
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->v[i].name, name) == 0)
            return i;
    return err_set(ERR_USAGE, "%s %s: no text of that language; the first of %d is called %s", option, arg, l->n, l->n > 0 ? l->v[0].name : "-");
}

int langs_check_keys(int n_keys, const char *docs, const struct lang_texts *l, int n)
{
    if (n_keys == 0 || tokenize_docs(docs) == TEXT_JSONL)
        return 0;
    for (int i = 0; i < n && tokenize_docs(docs) == TEXT_AUTO; i++)
        for (int k = 0; k < l[i].n; k++)
            if (tok_text_docs_of(l[i].path[k]) == TEXT_JSONL)
                return 0;
    return err_set(ERR_USAGE, "--key is for lines of JSON; no text is named like them, and --docs is not jsonl");
}

int langs_look_at(const struct langs *l, const char *again)
{
    struct stat st;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < l->v[i].n; k++) {
            const char *path = l->v[i].path[k];
            TRY(tokenize_look_at(path, &st));
            if (again != NULL && !S_ISREG(st.st_mode))
                return err_set(ERR_USAGE, "%s can be read once, and %s", strcmp(path, "-") == 0 ? "standard input" : path, again);
        }
    return 0;
}
