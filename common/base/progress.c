/* progress.c -- see progress.h.
 *
 * mpirun gives ranks a terminal of width zero, and srun may give a real one to
 * each of a thousand tasks: hence the two extra conditions. */
#include "base/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"

#define REDRAW_S (1.0 / 6)
#define PLAIN_S 60.0

struct progress {
    char *what, *unit;
    uint64_t total, done;
    double begun, said;
    _Bool live;
};

static int terminal_width(void)
{
    struct winsize w;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

int progress_width(void)
{
    int n = terminal_width();

    return n > 0 ? n : 80;
}

_Bool progress_is_live(void)
{
    static const char *const launchers[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID",
        "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "FLUX_TASK_RANK" };
    const char *term = getenv("TERM");

    if (log_get_level() < LOG_INFO || !isatty(STDERR_FILENO) || terminal_width() <= 0)
        return 0;
    if (term && !strcmp(term, "dumb"))
        return 0;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i]))
            return 0;
    return 1;
}

_Bool progress_colour(void)
{
    const char *no = getenv("NO_COLOR");

    return progress_is_live() && !(no && *no);
}

struct progress *progress_begin(const char *what, uint64_t total, const char *unit)
{
    struct progress *p = arena_must(calloc(1, sizeof *p));

    p->what = arena_must(strdup(what));
    p->unit = arena_must(strdup(unit));
    p->total = total;
    p->live = progress_is_live();
    p->begun = clock_s();
    p->said = p->live ? 0 : p->begun;
    return p;
}

static int amount(char *to, size_t n, const struct progress *p, double v)
{
    char b[32];

    if (!strcmp(p->unit, "B"))
        return snprintf(to, n, "%s", units_bytes(b, v));
    return snprintf(to, n, "%s", units_count(b, (int64_t)v));
}

static void compose(const struct progress *p, double t, char *line, size_t size)
{
    double spent = t - p->begun, rate = spent > 0 ? (double)p->done / spent : 0;
    _Bool bytes = !strcmp(p->unit, "B");
    char b[32], done[40], total[40], speed[40];

    amount(done, sizeof done, p, (double)p->done);
    amount(total, sizeof total, p, (double)p->total);
    amount(speed, sizeof speed, p, rate);
    int n = snprintf(line, size, "%s ", p->what);
    if (p->total && p->total >= p->done) {
        n += snprintf(line + n, size - (size_t)n, "%3.0f%%  %s of %s", 100.0 * (double)p->done / (double)p->total, done, total);
    } else {
        n += snprintf(line + n, size - (size_t)n, "%s", done);
    }
    n += snprintf(line + n, size - (size_t)n, "%s%s  %s%s%s/s", bytes ? "" : " ", bytes ? "" : p->unit,
                  speed, bytes ? "" : " ", bytes ? "" : p->unit);
    if (p->total > p->done && rate > 0)
        snprintf(line + n, size - (size_t)n, "  %s left", units_seconds(b, (double)(p->total - p->done) / rate));
}

static void to_terminal(const char *s, size_t n)
{
    while (n) {
        ssize_t w = write(STDERR_FILENO, s, n);
        if (w <= 0)
            return;             /* talk that cannot be heard */
        s += w;
        n -= (size_t)w;
    }
}

void progress_set(struct progress *p, uint64_t done)
{
    char line[512];
    double t = clock_s();

    p->done = done;
    if (t - p->said < (p->live ? REDRAW_S : PLAIN_S))
        return;
    p->said = t;
    /* The names are cut, so that numbers always fit. */
    struct progress shown = *p;
    char what[64], unit[32];
    snprintf(what, sizeof what, "%s", p->what);
    snprintf(unit, sizeof unit, "%s", p->unit);
    shown.what = what;
    shown.unit = unit;
    compose(&shown, t, line, sizeof line);
    if (!p->live) {
        log_info("%s", line);
        return;
    }
    char drawn[560];
    int room = terminal_width() - 1;
    int n = snprintf(drawn, sizeof drawn, "\r%.*s\033[K", room > 0 ? room : 0, line);
    to_terminal(drawn, (size_t)n);
    log_set_live(1);
}

void progress_end(struct progress *p)
{
    if (!p)
        return;
    if (p->live && p->said > 0) {
        to_terminal("\r\033[K", 4);
        log_set_live(0);
    }
    free(p->what);
    free(p->unit);
    free(p);
}

/* The environment decides, as setlocale() would change how numbers are read. */
static _Bool utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

    for (int i = 0; i < 3; i++) {
        const char *v = getenv(names[i]);
        if (v && *v)
            return strcasestr(v, "utf-8") || strcasestr(v, "utf8");
    }
    return 0;
}

char *progress_spark(char *buf, const double *v, int n, int width)
{
    static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const ascii[] = { "_", ".", "-", "~", "=", "+", "*", "#" };
    const char *const *cell = utf8() ? blocks : ascii;
    int cells = n < width ? n : width;
    double lo = INFINITY, hi = -INFINITY;
    char *p = buf;

    *p = '\0';
    /* Twice over the same means: once for the range, once to draw. */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < cells; i++) {
            int from = (int)((int64_t)i * n / cells), to = (int)((int64_t)(i + 1) * n / cells);
            double sum = 0;
            for (int j = from; j < to; j++)
                sum += v[j];
            double mean = sum / (to - from);
            if (pass == 0 && isfinite(mean)) {
                lo = mean < lo ? mean : lo;
                hi = mean > hi ? mean : hi;
            } else if (pass == 1) {
                int level = hi > lo ? (int)((mean - lo) / (hi - lo) * 7.999) : 3;
                p = stpcpy(p, isfinite(mean) ? cell[level] : "!");
            }
        }
    }
    return buf;
}
