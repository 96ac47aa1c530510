/* opt_main.c -- what every main() does, once: choosing the subcommand, help,
 * version, the one error line and the exit status. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/out.h"
#include "base/units.h"
#include "base/version.h"

#define SCREEN_LINES 24
#define MAX_LEFT 30             /* columns for an option and its argument */

struct program {
    const char *name, *about;
    const struct opt_cmd *cmds;
    int n;
};

/* "moe-train eval", or the name alone where there is nothing to choose. */
static const char *title(const struct program *p, const struct opt_cmd *c, struct arena *a)
{
    return p->n == 1 ? p->name : arena_printf(a, "%s %s", p->name, c->name);
}

static int lines(const char *s)
{
    int n = 0;

    for (; s && *s; s++)
        n += *s == '\n' || !s[1];
    return n;
}

static void indented(const char *s)
{
    while (s && *s) {
        int n = (int)strcspn(s, "\n");
        out_printf("  %.*s\n", n, s);
        s += n;
        s += *s == '\n';
    }
}

static _Bool is_common(const struct opt *o)
{
    return o->offset < sizeof(struct opt_common);
}

static const char *left_side(const struct opt *o, struct arena *a)
{
    char letter[5] = "    ";

    if (o->letter) {
        letter[0] = '-';
        letter[1] = o->letter;
        letter[2] = ',';
    }
    return arena_printf(a, "%s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
}

/* One line of help for several options would hide them from a search, so the
 * common four share a line only where the screen would overflow. */
static void help_cmd(const struct program *p, const struct opt_cmd *c)
{
    struct arena *a = arena_new();
    int n = 0, n_common = 0, width = 0;

    for (const struct opt *o = c->opts; o->name; o++) {
        int len = (int)strlen(left_side(o, a));
        n++;
        n_common += is_common(o);
        if (len > width && len <= MAX_LEFT)
            width = len;
    }
    int total = 1 + lines(c->examples) + 1 + 2 + 1 + n;
    _Bool tight = total > SCREEN_LINES;

    if (c->examples && *c->examples) {
        out_printf("Examples:\n");
        indented(c->examples);
        if (!tight)
            out_printf("\n");
    }
    out_printf("Usage: %s %s\n", title(p, c, a), c->synopsis);
    out_printf("  %s\n%s", c->summary, tight ? "" : "\n");
    for (const struct opt *o = c->opts; o->name; o++) {
        if (tight && is_common(o) && n > n_common)
            continue;
        const char *left = left_side(o, a);
        out_printf("  %-*s  %s", width, left, o->help);
        if (o->def && *o->def)
            out_printf(" [%s]", o->def);
        out_printf("\n");
    }
    if (tight && n > n_common)
        out_printf("  %-*s  %s\n", width, "-h -V -q -v", "help, version, quiet, verbose");
    arena_free(a);
}

static void help_program(const struct program *p)
{
    int width = 0;

    out_printf("%s: %s\n\n", p->name, p->about);
    for (int i = 0; i < p->n; i++)
        if ((int)strlen(p->cmds[i].name) > width)
            width = (int)strlen(p->cmds[i].name);
    for (int i = 0; i < p->n; i++)
        out_printf("  %s %-*s  %s%s\n", p->name, width, p->cmds[i].name, p->cmds[i].summary,
                   i == 0 ? " (the default)" : "");
    out_printf("\n  %s %s --help  shows examples and options; the manual page is %s(1)\n",
               p->name, p->cmds[0].name, p->name);
}

static void print_options(const struct program *p)
{
    out_printf("#command\tletter\tname\targument\tdefault\thelp\n");
    for (int i = 0; i < p->n; i++) {
        const struct opt_cmd *c = &p->cmds[i];
        out_printf("%s\t\t\t%s\t\t%s\n", c->name, c->synopsis, c->summary);
        for (const struct opt *o = c->opts; o->name; o++)
            out_printf("%s\t%.*s\t%s\t%s\t%s\t%s\n", c->name, o->letter != 0, &o->letter, o->name,
                       o->arg ? o->arg : "", o->def ? o->def : "", o->help);
    }
}

static const struct opt_cmd *find(const struct program *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->cmds[i].name, name))
            return &p->cmds[i];
    return NULL;
}

/* A mistyped subcommand would otherwise become the first operand of the
 * default one and end as "no such file". */
static int mistyped(const struct program *p, const char *word)
{
    const char *names[32];

    BUG_ON(p->n > 32);
    if (word[0] == '-' || access(word, F_OK) == 0)
        return 0;
    for (int i = 0; i < p->n; i++)
        names[i] = p->cmds[i].name;
    const char *near = units_nearest(word, names, p->n);
    if (near)
        return err_set(ERR_USAGE, "unknown subcommand \"%s\" (did you mean %s?)", word, near);
    return 0;
}

static int usage(const struct program *p, const struct opt_cmd *c, int code)
{
    struct arena *a = arena_new();
    char *text = arena_strdup(a, err_msg());

    /* What was typed is repeated there; it must stay one line. */
    for (char *s = text; *s; s++)
        if (*s == '\n')
            *s = '?';
    err_set(code, "%s (try '%s --help')", text, c ? title(p, c, a) : p->name);
    arena_free(a);
    return code;
}

static int dispatch(const struct program *p, int argc, char **argv)
{
    const struct opt_cmd *c = &p->cmds[0];
    const char *first = argc > 1 ? argv[1] : "";

    if (!strcmp(first, "--print-options")) {
        print_options(p);
        return 0;
    }
    if (p->n > 1 && (!strcmp(first, "--help") || !strcmp(first, "-h"))) {
        help_program(p);
        return 0;
    }
    if (find(p, first)) {
        c = find(p, first);
        argc--;
        argv++;
    } else if (argc > 1 && mistyped(p, first) < 0) {
        return usage(p, NULL, ERR_USAGE);
    }

    void *opts = arena_must(calloc(1, c->opts_size));
    const struct opt_common *common = opts;
    int rc = opt_parse(c, opts, argc, argv);
    if (rc < 0) {
        rc = usage(p, c, rc);
    } else if (common->help) {
        help_cmd(p, c);
        rc = 0;
    } else if (common->version) {
        out_printf("%s %s\n%s\n", p->name, moe_version, moe_parts);
        rc = 0;
    } else {
        log_init(p->name, common->quiet ? LOG_WARN : common->verbose ? LOG_DEBUG : LOG_INFO);
        rc = c->run(opts, rc, argv);
    }
    opt_free(c, opts);
    free(opts);
    return rc;
}

static struct { char **v; int n; } typed;

static void keep_argv(int argc, char **argv)
{
    typed.n = argc;
    typed.v = arena_must(calloc((size_t)argc + 1, sizeof *typed.v));
    for (int i = 0; i < argc; i++)
        typed.v[i] = argv[i];
}

char **opt_argv(int *n)
{
    *n = typed.n;
    return typed.v;
}

static void print_error(int rc)
{
    if (err_last() != rc)
        return;
    for (const char *s = err_msg(); *s;) {
        int n = (int)strcspn(s, "\n");
        log_error("%.*s", n, s);
        s += n;
        s += *s == '\n';
    }
}

int opt_main(const char *prog, const char *about, const struct opt_cmd *cmds, int n_cmds,
             int argc, char **argv)
{
    struct program p = { prog, about, cmds, n_cmds };

    out_init();
    /* Both would kill the program where a write can say why it failed. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    log_init(prog, LOG_INFO);
    keep_argv(argc, argv);

    int rc = dispatch(&p, argc, argv);
    /* The reader of our pipe has seen enough: that is no failure of ours. */
    if (rc == ERR_IO && out_gone() && strstr(err_msg(), "standard output"))
        rc = 0;
    if (rc < 0)
        print_error(rc);
    int closed = out_close();
    if (closed < 0 && rc >= 0) {
        print_error(closed);
        rc = closed;
    }
    free(typed.v);
    typed.v = NULL;
    return err_status(rc);
}
