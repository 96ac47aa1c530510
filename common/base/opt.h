/* opt.h -- one option table per subcommand feeds parsing, range errors,
 * --help, completion and the test against the manual page.
 *
 * Refuses: abbreviated long options, values out of range, an option given
 * twice (unless OPT_LIST or OPT_COUNT), options after "--". */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum opt_kind {
    OPT_FLAG,           /* bool: present or not */
    OPT_COUNT,          /* int: how often it was given (-v -v) */
    OPT_INT,            /* int64_t, with the units k M G Ki Mi Gi */
    OPT_FLOAT,          /* double */
    OPT_STR,            /* const char *, borrowed from argv */
    OPT_LIST,           /* struct opt_list: may be given several times */
    OPT_CHOICE,         /* const char *: one of the words in arg, split at '|' */
};

struct opt_list { const char **v; int n; };

struct opt {
    enum opt_kind kind;
    char letter;            /* 0: none */
    const char *name;       /* long name without dashes; NULL ends the table */
    const char *arg;        /* argument word for help, e.g. "FILE"; NULL for flags */
    const char *def;        /* default as text, NULL: unset; parsed like a value */
    const char *help;       /* one line, lower case, no full stop */
    size_t offset;          /* of the field in the options struct */
    double min, max;        /* for numbers; equal: no limits */
};

/* Every table starts with these: -h -V -q -v.  Fields of struct opt_common,
 * which must be the first member of the options struct. */
struct opt_common { int verbose; _Bool quiet, help, version; };
#define OPT_COMMON                                                             \
    { OPT_FLAG, 'h', "help", NULL, NULL, "print this help", offsetof(struct opt_common, help), 0, 0 }, \
    { OPT_FLAG, 'V', "version", NULL, NULL, "print the version and the parts built in", offsetof(struct opt_common, version), 0, 0 }, \
    { OPT_FLAG, 'q', "quiet", NULL, NULL, "errors and warnings only", offsetof(struct opt_common, quiet), 0, 0 }, \
    { OPT_COUNT, 'v', "verbose", NULL, NULL, "say more", offsetof(struct opt_common, verbose), 0, 0 }
#define OPT_END { OPT_FLAG, 0, NULL, NULL, NULL, NULL, 0, 0, 0 }

/* A subcommand: opts points at its table; synopsis is what follows the name,
 * e.g. "[options] -t TOK FILE..."; examples is text printed first by --help,
 * lines of commands; run() gets the filled struct and the operands and returns
 * 0 or a negative code (see opt_main()). */
struct opt_cmd {
    const char *name;
    const char *summary;        /* one line */
    const char *synopsis;
    const char *examples;
    const struct opt *opts;
    size_t opts_size;           /* sizeof the options struct */
    int min_operands, max_operands;     /* max -1: any number */
    int (*run)(void *opts, int argc, char **argv);
};

/* The whole of main(): picks the subcommand (the first one is the default when
 * argv[1] is not a subcommand name), parses, handles -h and -V (stdout, 0),
 * sets the log level, calls run(), prints the one error line on failure
 * ("prog: sentence"), closes stdout with out_close() and returns the exit
 * status.  `prog --help` lists the subcommands; `prog CMD --help` fits one
 * screen and begins with the examples.
 * A program with one subcommand shows that one's help for `prog --help`.
 * A failure without a sentence of its own (ERR_NO after a table that says it
 * all) prints nothing.  Of several lines, as config_load() gives, each gets
 * the program's name.  SIGPIPE and SIGXFSZ become plain write errors.
 * A hidden first argument, --print-options, writes the tables as TSV (command,
 * letter, name, argument word, default, help) for completions and tests; a row
 * with an empty name is the command itself: its synopsis and its summary. */
int opt_main(const char *prog, const char *about, const struct opt_cmd *cmds, int n_cmds,
             int argc, char **argv);

/* The command line as it was typed, program name first, NULL behind; parsing
 * moves operands about in main()'s own argv.  For provenance; lives until
 * opt_main() returns.  *n counts without the NULL. */
char **opt_argv(int *n);

/* Parses argv[1..] into opts (zeroed and set to the defaults first), moving
 * operands to the front of argv; returns their number or ERR_USAGE. */
int opt_parse(const struct opt_cmd *cmd, void *opts, int argc, char **argv);

/* Frees the lists that opt_parse() made. */
void opt_free(const struct opt_cmd *cmd, void *opts);

#endif
