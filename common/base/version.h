/* version.h -- what this build is: its number and the parts linked into it.
 *
 * Both strings are made by the build (VERSION, etc/probe); nothing else in
 * the tree states a version. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

extern const char moe_version[]; /* "0.1.0" */
extern const char moe_parts[];   /* "gcc=12.2.0 openmp=201511 yaml=0.2.5 ...": words, space-separated */

#endif
