/* err.h -- one way to fail.
 *
 * A function that can fail returns 0 (or a non-negative result) or a negative
 * enum err_code, and records one sentence where the fault is found.  Callers
 * pass the code up unchanged and add words only when they know something new.
 * Library code never prints and never exits; main prints err_msg() once and
 * leaves with err_status().
 *
 * The record is per thread.  Code that works in a thread team stores the first
 * failure with err_take() inside the team and puts it back with err_put()
 * outside. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/* Each code is minus the exit status it leads to (the table is in moe(7)). */
enum err_code {
    ERR_NO = -1,            /* the answer is no: differs, damaged, not finite */
    ERR_USAGE = -2,         /* usage or configuration; nothing was done */
    ERR_DATA = -65,         /* bad data */
    ERR_NOINPUT = -66,      /* no such input */
    ERR_ABSENT = -69,       /* something needed is absent */
    ERR_BUG = -70,          /* our mistake */
    ERR_CREATE = -73,       /* cannot create an output */
    ERR_IO = -74,           /* input or output failed */
    ERR_STOPPED = -75,      /* stopped at a clean checkpoint: run again */
    ERR_LOCKED = -77,       /* a live run holds the directory */
    ERR_INTERRUPTED = -130, /* interrupted after saving */
};

#define ERR_MSG_MAX 4096      /* twenty errors of a configuration fit */

struct err_state { int code; char msg[ERR_MSG_MAX]; };

/* Records the sentence and returns code.  Control characters in it become '?'. */
int err_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* As err_set(), and appends ": " and the text of errno.  Keeps errno. */
int err_sys(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "fmt: " before the recorded sentence and returns the recorded code. */
int err_add(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The last record of this thread: "" and 0 when there is none. */
const char *err_msg(void);
int err_last(void);
void err_clear(void);

/* Moves the record out of, or into, this thread. */
void err_take(struct err_state *out);
int err_put(const struct err_state *in);        /* returns in->code */

/* The exit status that a (negative or zero) return code leads to. */
int err_status(int code);

/* Prints file, line and condition to stderr and aborts: our own invariants only. */
void err_bug(const char *file, int line, const char *what) __attribute__((noreturn));

#define BUG_ON(cond) do { if (cond) err_bug(__FILE__, __LINE__, #cond); } while (0)
#define TRY(call) do { int try_rc_ = (call); if (try_rc_ < 0) return try_rc_; } while (0)
#define TRY_OUT(rc, call) do { if (((rc) = (call)) < 0) goto out; } while (0)

#endif
