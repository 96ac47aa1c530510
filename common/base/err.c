/* err.c -- the error record of a thread. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct err_state last;

/* Sentences quote names from files and end on a terminal, which must not take
 * orders from them: control characters become '?'.  Lines stay lines. */
static void defuse(char *s)
{
    for (unsigned char *p = (unsigned char *)s; *p; p++) {
        if ((*p < 0x20 && *p != '\n') || *p == 0x7f)
            *p = '?';
        else if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
            p[0] = p[1] = '?';
    }
}

static int set(int code, const char *tail, const char *fmt, va_list ap)
{
    char buf[ERR_MSG_MAX];
    int n = vsnprintf(buf, sizeof buf, fmt, ap);

    if (n < 0)
        n = 0;
    if (tail && (size_t)n < sizeof buf)
        snprintf(buf + n, sizeof buf - (size_t)n, ": %s", tail);
    defuse(buf);
    memcpy(last.msg, buf, sizeof buf);
    last.code = code;
    return code;
}

int err_set(int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set(code, NULL, fmt, ap);
    va_end(ap);
    return code;
}

int err_sys(int code, const char *fmt, ...)
{
    va_list ap;
    int keep = errno;

    va_start(ap, fmt);
    set(code, strerror(keep), fmt, ap);
    va_end(ap);
    errno = keep;
    return code;
}

int err_add(const char *fmt, ...)
{
    char old[ERR_MSG_MAX];
    va_list ap;

    memcpy(old, last.msg, sizeof old);
    va_start(ap, fmt);
    set(last.code, old, fmt, ap);
    va_end(ap);
    return last.code;
}

const char *err_msg(void) { return last.msg; }
int err_last(void) { return last.code; }

void err_clear(void)
{
    last.code = 0;
    last.msg[0] = '\0';
}

void err_take(struct err_state *out)
{
    *out = last;
    err_clear();
}

int err_put(const struct err_state *in)
{
    last = *in;
    return last.code;
}

int err_status(int code)
{
    return code >= 0 ? 0 : -code;
}

void err_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "bug: %s:%d: %s\n", file, line, what);
    abort();
}
