/* log.c -- each line is built whole and leaves in one write, so that lines of
 * several ranks on one terminal never mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"

static const char *prog_name = "moe";
static enum log_level max_level = LOG_INFO;
static int my_rank, n_ranks = 1;
static _Bool live;

void log_init(const char *prog, enum log_level level)
{
    prog_name = prog;
    max_level = level;
}

void log_set_rank(int rank, int size)
{
    my_rank = rank;
    n_ranks = size;
}

void log_set_live(_Bool on_screen)
{
    live = on_screen;
}

enum log_level log_get_level(void) { return max_level; }
const char *log_prog(void) { return prog_name; }

static void say(enum log_level level, const char *word, const char *fmt, va_list ap)
{
    char line[ERR_MSG_MAX + 128];
    int n = 0;

    if (level > max_level || (level >= LOG_INFO && my_rank != 0))
        return;
    if (live)
        n = snprintf(line, sizeof line, "\r\033[K");
    if (n_ranks > 1)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s[%d]: %s", prog_name, my_rank, word);
    else
        n += snprintf(line + n, sizeof line - (size_t)n, "%s: %s", prog_name, word);
    int text = n;
    n += vsnprintf(line + n, sizeof line - (size_t)n, fmt, ap);
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    /* Names come from outside: they must neither break the line nor play with
     * the terminal. */
    for (int i = text; i < n; i++)
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    /* Talk that cannot be heard is not worth failing a run for. */
    for (int at = 0; at < n;) {
        ssize_t w = write(STDERR_FILENO, line + at, (size_t)(n - at));
        if (w <= 0)
            break;
        at += (int)w;
    }
}

#define SAY(level, word)                                                       \
    do {                                                                       \
        va_list ap;                                                            \
        va_start(ap, fmt);                                                     \
        say(level, word, fmt, ap);                                             \
        va_end(ap);                                                            \
    } while (0)

void log_error(const char *fmt, ...) { SAY(LOG_ERROR, ""); }
void log_warn(const char *fmt, ...) { SAY(LOG_WARN, "warn: "); }
void log_info(const char *fmt, ...) { SAY(LOG_INFO, ""); }
void log_debug(const char *fmt, ...) { SAY(LOG_DEBUG, "debug: "); }
