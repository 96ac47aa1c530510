/* progress.h -- one redrawn line with rate and time left, where a person looks.
 *
 * Drawn only if stderr is a terminal of non-zero width, no launcher variable
 * is set and the log level is at least info; at most 6 times a second.
 * Otherwise one plain line a minute.  progress_end() leaves a clean line. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdint.h>

struct progress;

/* total 0: unknown.  unit: "B" is shown as MiB/s, else "12,345 tokens/s". */
struct progress *progress_begin(const char *what, uint64_t total, const char *unit);
void progress_set(struct progress *p, uint64_t done);
void progress_end(struct progress *p);

/* True where a redrawn line may be used; obeys NO_COLOR for colour. */
_Bool progress_is_live(void);
_Bool progress_colour(void);
int progress_width(void);                       /* columns of stderr, 80 if unknown */

/* Sparkline of n values in `width` cells (UTF-8 blocks, ASCII when the locale
 * is not UTF-8), into buf of at least 4*width+1 bytes; returns buf. */
char *progress_spark(char *buf, const double *v, int n, int width);

#endif
