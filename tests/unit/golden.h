/* golden.h -- reads the safetensors files of tests/golden, for tests only.
 *
 * A reader of its own, so that the tests of the model do not stand on the
 * checkpoint code.  Trusts its input; a test ends when a file is not there. */
#ifndef UNIT_GOLDEN_H
#define UNIT_GOLDEN_H

#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"

struct golden_tensor {
    const char *name;
    enum dtype dt;
    int n_dims;
    int64_t shape[4], n;
    const void *data;           /* unaligned; copy it out */
};

struct golden { struct golden_tensor *v; int n; };

/* tests/golden/CASE/FILE, borrowed until the arena goes. */
struct golden golden_open(struct arena *a, const char *name, const char *file);
const struct golden_tensor *golden_find(const struct golden *g, const char *name);     /* or NULL */

/* Copies out as the C type. */
float *golden_f32(struct arena *a, const struct golden *g, const char *name);
int32_t *golden_i32(struct arena *a, const struct golden *g, const char *name);

/* The cases, NULL-terminated. */
extern const char *const golden_cases[];

#endif
