/* refcheck.h -- finite differences for the ops of ref, in double storage.
 *
 * Everything taken here lives until refcheck_done(). */
#ifndef UNIT_REFCHECK_H
#define UNIT_REFCHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/dev.h"

/* ref with scratch memory for the small shapes of the tests (64 rows and
 * columns, heads of 16). */
struct dev *refcheck_dev(void);
void refcheck_done(void);

double refcheck_draw(void);                             /* [-1, 1) */
struct mat refcheck_mat(int64_t rows, int64_t cols);    /* F64, drawn; ld = cols + 2 */
struct mat refcheck_zero(int64_t rows, int64_t cols);
struct mat refcheck_nan(int64_t rows, int64_t cols);
void *refcheck_alloc(size_t count, size_t size);        /* zeroed */
double *refcheck_at(struct mat m, int64_t r, int64_t c);
double refcheck_dot(struct mat a, struct mat b);        /* sum of a * b */

/* dx must be the gradient of loss() with respect to x, within 1e-6 of the
 * largest of 1 and |dx|; loss reads x through ctx. */
void refcheck_grad(const char *what, struct mat x, struct mat dx, double (*loss)(void *ctx), void *ctx);

void refcheck_near(const char *what, double got, double want, double limit);

#endif
