/* fault.h -- the fault library from inside a program that was started with it.
 *
 * A test that forks once a case cannot set the environment of each: it looks
 * these up with dlsym(3), in the parent, and calls them in the child.  Nothing
 * here is for the product. */
#ifndef FAULT_FAULT_H
#define FAULT_FAULT_H

#include <stdint.h>

/* Forgets all faults and counts, and begins with these: the text of MOE_FAULT
 * (NULL: none) and of MOE_FAULT_DIR (NULL: everywhere). */
void fault_plan(const char *spec, const char *dir);

/* Calls of a kind that have counted since; -1: no such kind. */
long fault_count(const char *kind);

/* From now on every call that counts and changed something goes to this file,
 * as the record below, its two names and its bytes; -1: no longer. */
void fault_trace(int fd);

enum fault_op {
    FAULT_CREATE,               /* name; n = 1: and emptied */
    FAULT_WRITE,                /* name, the bytes at `at` */
    FAULT_CUT,                  /* name to the length `at` */
    FAULT_SYNC,                 /* name, of a file or a directory */
    FAULT_RENAME,               /* name to other */
    FAULT_EXCHANGE,             /* name with other */
    FAULT_MKDIR,                /* name */
    FAULT_REMOVE,               /* name, of a file, link or empty directory */
    FAULT_SYMLINK               /* name, which points to other */
};

/* Names are absolute and have their terminating zero. */
struct fault_record { uint32_t op, name, other, n; uint64_t at; };      /* lengths in bytes */

#endif
