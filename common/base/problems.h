/* problems.h -- what a check that goes on after a fault tells about it.
 *
 * The first problem waits: when it stays alone, main prints it as the one line
 * of the failure.  With a second one both are printed, and then those that
 * follow, up to PROBLEMS_TOLD.  The two functions are callbacks; ctx is the struct. */
#ifndef BASE_PROBLEMS_H
#define BASE_PROBLEMS_H

#include <stdint.h>

#include "base/err.h"

enum { PROBLEMS_TOLD = 100 };

struct progress;
struct problems { struct progress *bar; int64_t n; char first[ERR_MSG_MAX]; };      /* zeroed to begin with */

void problems_add(void *ctx, const char *sentence);
void problems_progress(void *ctx, uint64_t done, uint64_t total);       /* begins a bar "verify" */
void problems_progress_end(struct problems *p);

#endif
