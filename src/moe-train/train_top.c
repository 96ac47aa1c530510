/* train_top.c -- moe-train top: a run as it goes, redrawn each second.
 *
 * It reads heartbeat.json and the end of metrics.jsonl, so it works on any machine
 * that sees them, and a run never knows that it is watched.  Where standard output
 * is no terminal it prints one picture and ends. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/out.h"
#include "base/progress.h"
#include "base/units.h"
#include "train_cmds.h"
#include "train_facts.h"

enum { TAIL = 1 << 19, MAX_ROWS = 400, N_EVENTS = 6, EVENT_MAX = 160, MAX_LAYERS = 4096, STRIP = 48 };

struct top_opts { struct opt_common common; };

static const struct opt opts[] = {
    OPT_COMMON,
    OPT_END
};

/* ---- what the rows say */

struct history {
    double loss[MAX_ROWS], norm[MAX_ROWS], tok_s[MAX_ROWS];
    int n;
    int64_t step, restart;
    double comm_share;          /* of the last step */
    double load[MAX_LAYERS], rounds;
    int64_t dead;
    int n_layers;
    char events[N_EVENTS][EVENT_MAX];
    int n_events;               /* ever */
};

static void event(struct history *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void event(struct history *h, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(h->events[h->n_events++ % N_EVENTS], EVENT_MAX, fmt, ap);
    va_end(ap);
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void step_row(struct history *h, const json_t *o)
{
    const json_t *load = json_object_get(o, "load_max_mean"), *dead = json_object_get(o, "dead");
    const json_t *rounds = json_object_get(o, "rounds");
    int64_t step = (int64_t)number(o, "step"), restart = (int64_t)number(o, "restart");

    if (h->n == MAX_ROWS) {
        /* Old rows are worth half as much. */
        h->n /= 2;
        memmove(h->loss, h->loss + h->n, (size_t)h->n * sizeof *h->loss);
        memmove(h->norm, h->norm + h->n, (size_t)h->n * sizeof *h->norm);
        memmove(h->tok_s, h->tok_s + h->n, (size_t)h->n * sizeof *h->tok_s);
    }
    if (h->n && restart != h->restart)
        event(h, "step %-8" PRId64 " the run was started again (%" PRId64 ")", step, restart);
    if (number(o, "ckpt_s") > 0)
        event(h, "step %-8" PRId64 " saved in %.1f s", step - 1, number(o, "ckpt_s"));
    if (!isfinite(number(o, "loss")))
        event(h, "step %-8" PRId64 " the loss is not finite", step);
    h->loss[h->n] = number(o, "loss");
    h->norm[h->n] = number(o, "grad_norm");
    h->tok_s[h->n++] = number(o, "tok_s");
    h->step = step;
    h->restart = restart;
    h->comm_share = number(o, "comm_s") / number(o, "step_s");
    h->n_layers = 0;
    h->dead = 0;
    h->rounds = 0;
    for (size_t i = 0; i < json_array_size(load) && i < MAX_LAYERS; i++) {
        h->load[h->n_layers++] = json_number_value(json_array_get(load, i));
        h->dead += json_integer_value(json_array_get(dead, i));
        h->rounds = fmax(h->rounds, json_number_value(json_array_get(rounds, i)));
    }
}

static void take_row(struct history *h, const char *text, size_t n)
{
    const char *schema, *set;
    json_t *o = NULL;

    /* A row that is being written, or cut by where we began to read. */
    if (json_load_text("metrics.jsonl", text, n, &o) < 0) {
        err_clear();
        return;
    }
    if (json_opt_str(o, "row", "schema", &schema) == 0 && json_is_string(json_object_get(o, "schema"))) {
        if (strcmp(schema, "moe.metrics/1") == 0)
            step_row(h, o);
        else if (strcmp(schema, "moe.eval/1") == 0 && json_get_str(o, "row", "set", &set) == 0)
            event(h, "step %-8" PRId64 " held out %s: loss %.4f, %.3f bits per byte", (int64_t)number(o, "step"), set,
                  number(o, "loss"), number(o, "bits_per_byte"));
    }
    err_clear();
    json_decref(o);
}

/* The last rows; a run without any has an empty history. */
static int read_history(struct arena *a, const char *run, struct history *h)
{
    const char *path = fs_join(a, run, "metrics.jsonl");
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;

    memset(h, 0, sizeof *h);
    if (fd < 0)
        return 0;
    off_t end = lseek(fd, 0, SEEK_END), from = end > TAIL ? end - TAIL : 0;
    char *text = arena_alloc(a, (size_t)(end - from) + 1);
    rc = fs_pread(fd, path, text, (size_t)(end - from), (uint64_t)from);
    close(fd);
    TRY(rc);
    for (char *at = text, *stop = text + (end - from), *nl; (nl = memchr(at, '\n', (size_t)(stop - at))); at = nl + 1)
        if (at > text || from == 0)
            take_row(h, at, (size_t)(nl - at));
    return 0;
}

/* ---- the picture */

static char *strip(struct arena *a, char *text, const char *what, const double *v, int n, const char *last)
{
    char spark[4 * STRIP + 1];

    if (n < 1)
        return text;
    return arena_printf(a, "%s  %-9s %-12s %s\n", text, what, last, progress_spark(spark, v, n, STRIP));
}

static char *strips(struct arena *a, char *text, const struct history *h)
{
    char b[64];
    double lo = INFINITY, hi = 0;
    int last = h->n - 1;

    if (h->n < 1)
        return arena_printf(a, "%s  no step yet\n", text);
    snprintf(b, sizeof b, "%.4f", h->loss[last]);
    text = strip(a, text, "loss", h->loss, h->n, b);
    snprintf(b, sizeof b, "%.4f", h->norm[last]);
    text = strip(a, text, "norm", h->norm, h->n, b);
    text = strip(a, text, "tokens/s", h->tok_s, h->n, units_count(b, (int64_t)h->tok_s[last]));
    for (int i = 0; i < h->n_layers; i++) {
        lo = fmin(lo, h->load[i]);
        hi = fmax(hi, h->load[i]);
    }
    if (h->n_layers) {
        snprintf(b, sizeof b, "%.2f-%.2f", lo, hi);
        text = strip(a, text, "load", h->load, h->n_layers, b);
        text = arena_printf(a, "%s            fullest expert over the mean, a cell a layer; %" PRId64 " expert%s without a token", text,
                            h->dead, h->dead == 1 ? "" : "s");
        if (h->rounds > 1)
            text = arena_printf(a, "%s; %.0f rounds", text, h->rounds);
        text = arena_printf(a, "%s\n", text);
    }
    if (h->comm_share > 0)
        text = arena_printf(a, "%s  waiting   %.0f %% of a step, for other ranks\n", text, 100 * h->comm_share);
    return text;
}

static char *picture(struct arena *a, const char *run, const struct train_facts *f, const struct history *h)
{
    char b[2][32];
    double eta = train_facts_eta(f);
    char *text = arena_printf(a, "%s: %s, step %" PRId64 " of %" PRId64 " (%.0f %%), %s tokens, restarts %" PRId64 "\n", run, f->state,
                              f->h.step, f->h.steps, f->h.steps ? 100.0 * (double)f->h.step / (double)f->h.steps : 0.0,
                              units_count(b[0], f->h.tokens), f->h.restart);

    if (f->live)
        text = arena_printf(a, "%s  %s, last sign of life %.0f s ago%s%s\n", text, f->owner, fmax(0, (double)time(NULL) - f->h.time),
                            isfinite(eta) ? ", left " : "", isfinite(eta) ? units_seconds(b[1], eta) : "");
    if (f->n_steps)
        text = arena_printf(a, "%s  %d checkpoint%s, newest step %" PRId64 "\n", text, f->n_steps, f->n_steps == 1 ? "" : "s",
                            f->steps[f->n_steps - 1]);
    text = strips(a, arena_printf(a, "%s\n", text), h);
    text = arena_printf(a, "%s\n", text);
    for (int i = h->n_events > N_EVENTS ? h->n_events - N_EVENTS : 0; i < h->n_events; i++)
        text = arena_printf(a, "%s  %s\n", text, h->events[i % N_EVENTS]);
    return text;
}

static int look(struct arena *a, const char *run, char **out)
{
    struct history *h = arena_alloc(a, sizeof *h);
    struct train_facts f = { .live = 0 };

    TRY(train_facts_read(a, run, &f));
    TRY(read_history(a, run, h));
    *out = picture(a, run, &f, h);
    return 0;
}

/* ---- the terminal */

static volatile sig_atomic_t leaving;

static void on_signal(int sig)
{
    leaving = sig;
}

/* As many lines and columns as there are; a character is a column here. */
static int draw(const char *text)
{
    struct winsize w = { .ws_row = 0 };
    int rows, columns;

    ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
    rows = w.ws_row ? w.ws_row : 24;
    columns = w.ws_col ? w.ws_col : 80;
    TRY(out_printf("\033[H"));
    for (int row = 0; *text && row < rows - 1; row++) {
        size_t n = 0;
        int column = 0;
        for (; text[n] && text[n] != '\n'; n++) {
            column += ((unsigned char)text[n] & 0xC0) != 0x80;
            if (column > columns)
                break;
        }
        TRY(out_write(text, n));
        TRY(out_printf("\033[K\r\n"));
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    TRY(out_printf("\033[J  q leaves"));
    return out_flush();
}

/* True when a person wants to leave; waits a second for it. */
static _Bool wants_to_leave(_Bool keys)
{
    struct pollfd p = { .fd = keys ? STDIN_FILENO : -1, .events = POLLIN };
    char c;

    if (poll(&p, 1, 1000) <= 0 || !(p.revents & (POLLIN | POLLHUP)))
        return leaving;
    ssize_t n = read(STDIN_FILENO, &c, 1);
    return leaving || n <= 0 || c == 'q' || c == 'Q';
}

static int watch(const char *run)
{
    struct sigaction act = { .sa_handler = on_signal };
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    struct termios was, raw;
    _Bool keys = tcgetattr(STDIN_FILENO, &was) == 0;
    int rc = 0;

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &act, NULL);
    if (keys) {
        raw = was;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    /* The other screen, without a cursor: what was there comes back. */
    TRY_OUT(rc, out_printf("\033[?1049h\033[?25l"));
    do {
        struct arena *a = arena_new();
        char *text;
        rc = look(a, run, &text);
        if (rc >= 0)
            rc = draw(text);
        arena_free(a);
    } while (rc >= 0 && !wants_to_leave(keys));
out:
    if (out_printf("\033[?25h\033[?1049l") < 0 || out_flush() < 0)
        rc = rc < 0 ? rc : err_last();
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &was);
    return rc;
}

static int run_top(void *p, int argc, char **argv)
{
    const char *term = getenv("TERM");
    struct arena *a = arena_new();
    char *text;
    int rc;

    (void)p;
    (void)argc;
    /* Also with a terminal: what is no run is said before the screen changes. */
    rc = look(a, argv[0], &text);
    if (rc >= 0 && (!isatty(STDOUT_FILENO) || !term || strcmp(term, "dumb") == 0))
        rc = out_write(text, strlen(text));
    else if (rc >= 0)
        rc = watch(argv[0]);
    arena_free(a);
    return rc;
}

const struct opt_cmd train_top_cmd = {
    .name = "top", .summary = "watch a run, from its files",
    .synopsis = "[options] RUN",
    .examples = "moe-train top runs/a",
    .opts = opts, .opts_size = sizeof(struct top_opts), .min_operands = 1, .max_operands = 1, .run = run_top,
};
