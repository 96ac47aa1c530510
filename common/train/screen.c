/* screen.c -- see screen.h. */
#include "train/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/out.h"

#define STAYS_S 10.0
#define REDRAW_S (1.0 / 6)

/* Back to the first column, and the line is empty. */
#define WIPE "\r\033[K"

void screen_open(struct screen *r, _Bool human, _Bool alone)
{
    const char *term = getenv("TERM");
    struct winsize w = { 0 };

    *r = (struct screen){ 0 };
    if (human && alone && !(term && strcmp(term, "dumb") == 0) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0)
        r->columns = w.ws_col;
    r->wipes = r->columns && isatty(STDERR_FILENO);
}

static int stay(struct screen *r, const char *line)
{
    r->kept = clock_s();
    if (r->wipes)
        log_set_live(0);
    TRY(out_printf("%s%s\n", r->columns ? WIPE : "", line));
    r->held[0] = '\0';
    return 0;
}

int screen_step(struct screen *r, const char *line, _Bool last)
{
    double t = clock_s();

    if (!r->columns || last || r->kept == 0 || t - r->kept >= STAYS_S) {
        TRY(stay(r, line));
        return out_flush();
    }
    snprintf(r->held, sizeof r->held, "%s", line);
    if (t - r->drawn < REDRAW_S)
        return 0;
    r->drawn = t;
    if (r->wipes)
        log_set_live(1);
    TRY(out_printf(WIPE "%.*s", r->columns - 1, line));
    return out_flush();
}

static int put_held(struct screen *r)
{
    char line[sizeof r->held];

    if (!r->held[0])
        return 0;
    memcpy(line, r->held, sizeof line);
    return stay(r, line);
}

int screen_add(struct screen *r, const char *line)
{
    TRY(put_held(r));
    TRY(stay(r, line));
    return out_flush();
}

int screen_end(struct screen *r)
{
    TRY(put_held(r));
    if (r->wipes)
        log_set_live(0);
    return out_flush();
}
