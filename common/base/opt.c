/* opt.c -- parsing by table.
 *
 * Not getopt_long: that one takes any unique beginning of a long name, so that
 * adding an option could break a script. */
#include "base/opt.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/units.h"

#define MAX_OPTS 64

static void *field(void *opts, const struct opt *o)
{
    return (char *)opts + o->offset;
}

static _Bool takes_value(const struct opt *o)
{
    return o->kind != OPT_FLAG && o->kind != OPT_COUNT;
}

static int count(const struct opt *o)
{
    int n = 0;

    while (o[n].name)
        n++;
    BUG_ON(n > MAX_OPTS);
    return n;
}

static const struct opt *by_letter(const struct opt *o, char c)
{
    for (; o->name; o++)
        if (o->letter == c)
            return o;
    return NULL;
}

static const struct opt *by_name(const struct opt *o, const char *name, size_t n)
{
    for (; o->name; o++)
        if (!strncmp(o->name, name, n) && !o->name[n])
            return o;
    return NULL;
}

/* Puts the option before the sentence of a failed check. */
static int named(const struct opt *o, int rc)
{
    return rc < 0 ? err_add("--%s", o->name) : 0;
}

static int set(const struct opt *o, void *opts, const char *text)
{
    void *to = field(opts, o);

    switch (o->kind) {
    case OPT_FLAG:
        *(_Bool *)to = 1;
        return 0;
    case OPT_COUNT:
        ++*(int *)to;
        return 0;
    case OPT_INT:
        TRY(named(o, units_int(text, to)));
        return named(o, units_range(text, (double)*(int64_t *)to, o->min, o->max));
    case OPT_FLOAT:
        TRY(named(o, units_float(text, to)));
        return named(o, units_range(text, *(double *)to, o->min, o->max));
    case OPT_STR:
        *(const char **)to = text;
        return 0;
    case OPT_LIST: {
        struct opt_list *l = to;
        l->v = arena_must(realloc(l->v, ((size_t)l->n + 1) * sizeof *l->v));
        l->v[l->n++] = text;
        return 0;
    }
    case OPT_CHOICE:
        TRY(named(o, units_choice(text, o->arg)));
        *(const char **)to = text;
        return 0;
    }
    return 0;
}

void opt_free(const struct opt_cmd *cmd, void *opts)
{
    for (const struct opt *o = cmd->opts; o->name; o++) {
        if (o->kind == OPT_LIST) {
            struct opt_list *l = field(opts, o);
            free(l->v);
            *l = (struct opt_list){ NULL, 0 };
        }
    }
}

static int unknown_name(const struct opt_cmd *cmd, const char *name, size_t n)
{
    const char *names[MAX_OPTS], *near = NULL;
    char word[64];
    int n_names = count(cmd->opts);

    for (int i = 0; i < n_names; i++)
        names[i] = cmd->opts[i].name;
    if (n < sizeof word) {
        memcpy(word, name, n);
        word[n] = '\0';
        near = units_nearest(word, names, n_names);
    }
    if (near)
        return err_set(ERR_USAGE, "unknown option --%.*s (did you mean --%s?)", (int)n, name, near);
    return err_set(ERR_USAGE, "unknown option --%.*s", (int)n, name);
}

static int unknown_letter(const struct opt_cmd *cmd, const char *arg, char c)
{
    /* -output with one dash is what a find(1) user writes. */
    if (by_name(cmd->opts, arg + 1, strcspn(arg + 1, "=")))
        return err_set(ERR_USAGE, "unknown option -%c (did you mean -%s?)", c, arg);
    const struct opt *other = by_letter(cmd->opts, (char)(islower((unsigned char)c) ? toupper((unsigned char)c) : tolower((unsigned char)c)));
    if (other && other->letter != c)
        return err_set(ERR_USAGE, "unknown option -%c (did you mean -%c, --%s?)", c, other->letter, other->name);
    return err_set(ERR_USAGE, "unknown option -%c", c);
}

/* An option standing where a value belongs is a forgotten value. */
static _Bool looks_like_option(const struct opt_cmd *cmd, const char *s)
{
    if (s[0] != '-' || !s[1])
        return 0;
    if (s[1] == '-')
        return !s[2] || by_name(cmd->opts, s + 2, strcspn(s + 2, "="));
    return !s[2] && by_letter(cmd->opts, s[1]);
}

static int give(const struct opt_cmd *cmd, const struct opt *o, void *opts, const char *value, uint64_t *seen)
{
    uint64_t bit = (uint64_t)1 << (o - cmd->opts);

    if (*seen & bit && o->kind != OPT_LIST && o->kind != OPT_COUNT)
        return err_set(ERR_USAGE, "--%s is given twice", o->name);
    /* The first given item takes the place of the default. */
    if (o->kind == OPT_LIST && !(*seen & bit))
        ((struct opt_list *)field(opts, o))->n = 0;
    *seen |= bit;
    return set(o, opts, value);
}

static int need_value(const struct opt *o)
{
    return err_set(ERR_USAGE, "--%s needs a value: %s", o->name, o->arg);
}

static int parse(const struct opt_cmd *cmd, void *opts, int argc, char **argv, uint64_t *seen)
{
    int n = 0;

    for (int i = 1; i < argc; i++) {
        char *arg = argv[i];
        if (arg[0] != '-' || !arg[1]) {
            argv[n++] = arg;
        } else if (!strcmp(arg, "--")) {
            while (++i < argc)
                argv[n++] = argv[i];
        } else if (arg[1] == '-') {
            size_t len = strcspn(arg + 2, "=");
            const struct opt *o = by_name(cmd->opts, arg + 2, len);
            const char *value = arg[2 + len] ? arg + 2 + len + 1 : NULL;
            if (!o)
                return unknown_name(cmd, arg + 2, len);
            if (!takes_value(o) && value)
                return err_set(ERR_USAGE, "--%s takes no value", o->name);
            if (takes_value(o) && !value) {
                if (i + 1 == argc || looks_like_option(cmd, argv[i + 1]))
                    return need_value(o);
                value = argv[++i];
            }
            TRY(give(cmd, o, opts, value, seen));
        } else {
            for (char *c = arg + 1; *c; c++) {
                const struct opt *o = by_letter(cmd->opts, *c);
                const char *value = NULL;
                if (!o)
                    return unknown_letter(cmd, arg, *c);
                if (takes_value(o)) {
                    if (c[1])
                        value = c + 1;
                    else if (i + 1 < argc && !looks_like_option(cmd, argv[i + 1]))
                        value = argv[++i];
                    else
                        return need_value(o);
                }
                TRY(give(cmd, o, opts, value, seen));
                if (value)
                    break;
            }
        }
    }
    return n;
}

int opt_parse(const struct opt_cmd *cmd, void *opts, int argc, char **argv)
{
    uint64_t seen = 0;

    memset(opts, 0, cmd->opts_size);
    count(cmd->opts);
    for (const struct opt *o = cmd->opts; o->name; o++)
        if (o->def)
            BUG_ON(set(o, opts, o->def) < 0);
    int n = parse(cmd, opts, argc, argv, &seen);
    if (n < 0)
        return n;

    const struct opt_common *common = opts;
    /* A person who asks for help gets it, whatever else is missing. */
    if (common->help || common->version)
        return n;
    if (common->quiet && common->verbose)
        return err_set(ERR_USAGE, "--quiet and --verbose exclude each other");
    if (n < cmd->min_operands)
        return err_set(ERR_USAGE, "missing operand, expected %s", cmd->synopsis);
    if (cmd->max_operands >= 0 && n > cmd->max_operands)
        return err_set(ERR_USAGE, "unexpected operand \"%s\"", argv[cmd->max_operands]);
    return n;
}
