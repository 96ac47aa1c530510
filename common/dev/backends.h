/* backends.h -- how dev.c opens the devices that are built in, one line each.
 *
 * Nobody else includes this: the tree opens devices by name (dev_open()).  It
 * names no header of a back end, so that no arrow leads into their folders.
 * Each returns 0, or ERR_ABSENT where this machine cannot do it. */
#ifndef DEV_BACKENDS_H
#define DEV_BACKENDS_H

struct dev;
struct dev_options;

int ref_open(const struct dev_options *o, struct dev *out);
int cpu_open(const struct dev_options *o, struct dev *out);

#endif
