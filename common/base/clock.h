/* clock.h -- how long things take.
 *
 * Of CLOCK_MONOTONIC: it never goes back, is the same for all processes of a node,
 * and says nothing about the time of day. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_s(void);           /* seconds since some moment before the program */

#endif
