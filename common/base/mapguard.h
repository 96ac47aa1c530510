/* mapguard.h -- a mapped file that becomes shorter while it is read.
 *
 * Touching what is no longer there raises SIGBUS.  For the ranges named here that
 * ends the process with one line, "PROG: PATH: was cut short while it was being
 * read", and 65; any other SIGBUS is what it always was.  It refuses to go on:
 * what was read before cannot be trusted either. */
#ifndef BASE_MAPGUARD_H
#define BASE_MAPGUARD_H

#include <stddef.h>

/* Threads may call.  Beyond MAPGUARD_MAX mappings at a time there is no name for more. */
enum { MAPGUARD_MAX = 256 };
void mapguard_add(const void *p, size_t n, const char *path);
void mapguard_remove(const void *p);

#endif
