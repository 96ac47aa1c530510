/* run.h -- the names in a RUN directory, and room for one more checkpoint. */
#ifndef CKPT_RUN_H
#define CKPT_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "ckpt/manifest.h"

/* "step-00000200"; buf of 32 bytes; returns buf. */
char *ckpt_step_name(char *buf, int64_t step);

/* The step of such a name, -1 when it is none. */
int64_t ckpt_step_of(const char *name);

/* Steps of the checkpoints of a run that have a MANIFEST, ascending; none (also
 * no directory) is not an error.  Order is by number: clocks do not count. */
int ckpt_list_steps(struct arena *a, const char *run_dir, int64_t **steps, int *n);

/* The same with the kind of each. */
struct ckpt_step { int64_t step; enum manifest_kind kind; };
int ckpt_list_kinds(struct arena *a, const char *run_dir, struct ckpt_step **steps, int *n);

/* True for the temporary names that a save or a removal uses in RUN/ckpt. */
_Bool ckpt_is_temp(const char *name);

/* Deletes what killed saves and removals left in a run, and the temporaries of
 * its other files.  The caller holds the lock of the run, so nobody is writing
 * them. */
int ckpt_sweep(const char *run_dir);

/* Deletes a checkpoint directory: renamed to a temporary name, so that a removal
 * that is cut off is finished by the next save, then its MANIFEST, then the rest. */
int ckpt_remove(const char *dir);

/* ERR_CREATE unless the file system of dir (or of its nearest existing parent)
 * has room for n_tensors tensors of tensor_bytes together, with their headers,
 * index and manifest. */
int ckpt_room(const char *dir, uint64_t tensor_bytes, int64_t n_tensors);

#endif
