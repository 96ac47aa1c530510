/* conform.h -- one list of cases that every device has to pass against ref.
 *
 * A case draws its inputs from (seed, case name), calls ops of conform->dev
 * and names its outputs.  The same function runs on ref, on the device with 1,
 * 2 and 3 threads, and on trace (for flops, bytes and shapes): it must not
 * look at what an op has written except through conform_same().
 *
 * What the harness checks of every case: outputs within their tolerance of
 * ref, the same bits for every thread count, inputs unchanged, nothing written
 * between the columns of a matrix and its ld or around it, scratch memory not
 * overrun.  Outputs start as NaN, so an op that reads them with beta 0 fails.
 *
 * Tolerances are derived, not tuned.  A sum of K products of size <= mag is
 * allowed K + 8 roundings of mag: partial sums grow like sqrt(k) mag and the
 * roundings add up like a random walk, which stays below K mag u.  Elementary
 * functions are allowed 16 roundings.  The rounding of storage comes on top. */
#ifndef CONFORM_CONFORM_H
#define CONFORM_CONFORM_H

#include <stddef.h>
#include <stdint.h>

#include "dev/dev.h"

struct conform;

typedef void conform_fn(struct conform *c, const void *arg);

/* ---- the list */

struct conform_list;
/* arg is borrowed for the run. */
void conform_add(struct conform_list *l, conform_fn *run, const void *arg, const char *name, ...)
    __attribute__((format(printf, 4, 5)));

void cases_move(struct conform_list *l);
void cases_gemm(struct conform_list *l);
void cases_rows(struct conform_list *l);
void cases_attn(struct conform_list *l);
void cases_router(struct conform_list *l);
void cases_route(struct conform_list *l);
void cases_ends(struct conform_list *l);
void cases_optim(struct conform_list *l);

/* ---- inside a case */

struct dev *conform_dev(struct conform *c);
#define OP(c) (conform_dev(c)->ops)

/* False, and the case is skipped, when the device does not take dt. */
_Bool conform_takes(struct conform *c, enum dtype dt);

/* Uniform in [0, 1), and an integer in [lo, hi]. */
double conform_draw(struct conform *c);
int conform_draw_int(struct conform *c, int lo, int hi);

enum fill {
    FILL_UNIT,          /* [-1, 1) */
    FILL_AWAY,          /* [-1.5, -0.5) and [0.5, 1.5) */
    FILL_INT,           /* integers -4 .. 4: sums are exact */
    FILL_WIDE,          /* [-100, 100) */
    FILL_NAN            /* for outputs */
};

/* A matrix with `pad` elements between its rows.  It lives until the outputs
 * were compared.  conform_in(): the op must not change it. */
struct mat conform_in(struct conform *c, enum dtype dt, int64_t rows, int64_t cols, int64_t pad, enum fill fill);
struct mat conform_mat(struct conform *c, enum dtype dt, int64_t rows, int64_t cols, int64_t pad, enum fill fill);
void conform_set(struct mat m, int64_t r, int64_t col, double v);

/* Zeroed memory with canaries around it. */
void *conform_alloc(struct conform *c, size_t count, size_t size);

struct tol { double terms, mag; _Bool norm; };
/* |x - ref| <= terms u max(|ref|, mag) + rounding of storage */
static inline struct tol tol(double terms, double mag) { return (struct tol){ terms, mag, 0 }; }
static inline struct tol tol_exact(void) { return (struct tol){ 0, 0, 0 }; }
static inline struct tol tol_sum(double n, double mag) { return (struct tol){ n + 8, mag, 0 }; }
/* Frobenius norm of the difference <= limit times that of ref. */
static inline struct tol tol_norm(double limit) { return (struct tol){ limit, 0, 1 }; }

/* Names outputs; call after the ops. */
void conform_out(struct conform *c, struct mat m, struct tol t, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* A double computed in double: u = 2^-53.  With single: from F32 values, u = 2^-24. */
void conform_out_double(struct conform *c, const double *v, int64_t n, _Bool single, struct tol t, const char *name);
void conform_out_bits(struct conform *c, const void *p, size_t bytes, const char *name);
/* Both must hold the same bits: an item alone and in a batch. */
void conform_same(struct conform *c, struct mat a, struct mat b, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

#endif
