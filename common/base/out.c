/* out.c -- one buffer in front of descriptor 1.
 *
 * On a terminal every call is written at once, so that data and talk keep
 * their order where a person sees both. */
#include "base/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"

static char buf[65536];
static size_t fill;
static int failed;              /* errno of the first failed write */
static _Bool closed;

void out_init(void)
{
    /* The wrong direction is on purpose: reading from a closed stdin and
     * writing to a closed stdout must go on to fail. */
    static const int mode[3] = { O_WRONLY, O_RDONLY, O_WRONLY };

    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        int got = open("/dev/null", mode[fd]);
        if (got >= 0 && got != fd) {
            dup2(got, fd);
            close(got);
        }
    }
}

_Bool out_gone(void)
{
    return failed == EPIPE;
}

static int failure(void)
{
    errno = failed;
    return err_sys(ERR_IO, "standard output");
}

static int put(const char *from, size_t n)
{
    while (n) {
        ssize_t w = write(STDOUT_FILENO, from, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            failed = w < 0 ? errno : EIO;
            return failure();
        }
        from += w;
        n -= (size_t)w;
    }
    return 0;
}

static _Bool is_terminal(void)
{
    static int known = -1;

    if (known < 0)
        known = isatty(STDOUT_FILENO);
    return known == 1;
}

int out_flush(void)
{
    size_t n = fill;

    if (failed)
        return failure();
    fill = 0;
    return put(buf, n);
}

int out_write(const void *data, size_t n)
{
    BUG_ON(closed);
    if (failed)
        return failure();
    if (n > sizeof buf - fill)
        TRY(out_flush());
    if (n >= sizeof buf)
        return put(data, n);
    if (n)
        memcpy(buf + fill, data, n);
    fill += n;
    return is_terminal() ? out_flush() : 0;
}

int out_printf(const char *fmt, ...)
{
    char small[1024];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    BUG_ON(n < 0);
    if ((size_t)n < sizeof small)
        return out_write(small, (size_t)n);

    char *big = arena_must(malloc((size_t)n + 1));
    va_start(ap, fmt);
    vsnprintf(big, (size_t)n + 1, fmt, ap);
    va_end(ap);
    int rc = out_write(big, (size_t)n);
    free(big);
    return rc;
}

int out_binary(_Bool force)
{
    if (!force && is_terminal())
        return err_set(ERR_USAGE, "binary data is not written to a terminal (redirect it, or use -f)");
    return 0;
}

int out_close(void)
{
    if (closed)
        return 0;
    int rc = out_flush();
    closed = 1;
    /* Network file systems report late; EBADF with nothing written is a
     * program that had nothing to say to a closed stdout. */
    if (close(STDOUT_FILENO) < 0 && rc == 0 && errno != EINTR && errno != EBADF) {
        failed = errno;
        rc = failure();
    }
    return out_gone() ? 0 : rc;
}
