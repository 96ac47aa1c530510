/* out.h -- standard output, buffered, checked at the end.
 *
 * Data goes to stdout through these calls only.  A write error is remembered
 * and reported by out_close() as ERR_IO ("standard output: No space left on
 * device"); EPIPE ends the program quietly with status 0, as a filter should
 * when its reader has seen enough.  Nothing is printed after out_close(). */
#ifndef BASE_OUT_H
#define BASE_OUT_H

#include <stddef.h>

/* Puts something harmless behind closed standard descriptors, so that no file
 * of ours ever becomes number 0, 1 or 2; a closed stdout stays unwritable. */
void out_init(void);

/* 0, or ERR_IO at once and on every later call when a write failed, so that
 * loops end.  That includes a reader that went away; see out_gone(). */
int out_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int out_write(const void *data, size_t n);
int out_flush(void);

/* True when the reader of a pipe went away: ERR_IO of the calls above is then
 * no failure of the program, and out_close() returns 0. */
_Bool out_gone(void);

/* ERR_USAGE when stdout is a terminal and force is false: binary data. */
int out_binary(_Bool force);

/* Flushes and closes; 0 or ERR_IO. */
int out_close(void);

#endif
