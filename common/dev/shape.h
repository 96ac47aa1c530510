/* shape.h -- the shapes every device demands of an op, written once.
 *
 * ref, trace and the fast devices call these first, so that a program that
 * passes over the trace device asks for nothing another device would refuse.
 * A violation is our own bug and aborts.  Nothing here reads an operand: rows
 * named by offsets or indices are for the device to check. */
#ifndef DEV_SHAPE_H
#define DEV_SHAPE_H

#include "dev/dev.h"

void shape_mat(struct mat m);                   /* counts not negative, ld >= cols */
void shape_same(struct mat a, struct mat b);    /* equal rows and cols, any types */
void shape_gemm(struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta);
/* out: [rows][n_out] side, in: [rows][n_in] side of any of the three group ops. */
void shape_group(const struct group *g, struct mat out, struct mat in, double beta);
void shape_rmsnorm_fwd(struct mat y, struct mat rstd, struct mat x, struct mat w);
void shape_rmsnorm_bwd(struct mat dx, double beta_dx, struct mat dw, double beta_dw,
                       struct mat dy, struct mat x, struct mat w, struct mat rstd);
void shape_bias(struct mat y, struct mat b, double beta);
void shape_rope(struct mat x, int n_heads, int head_dim, int rot_dim, struct mat cos, struct mat sin);
void shape_attn(const struct attn *a, _Bool backward);
void shape_swiglu_bwd(struct mat dgate, struct mat dup, struct mat hw, struct mat dw,
                      struct mat q, struct mat gate, struct mat up, struct mat w);
void shape_router(const struct router *r, _Bool backward);
void shape_route_sort(const struct route_map *m);
void shape_gather(struct mat xs, struct mat x);
void shape_combine(struct mat y, struct mat ys, struct mat w, const int32_t *row_of, int top_k, double beta);
void shape_slots(struct mat w, struct mat wr);
void shape_embed(struct mat y, struct mat table, double beta);
void shape_adamw(const struct adamw *a);
void shape_momentum(struct mat u, struct mat m, struct mat g);
void shape_newton_schulz(const struct mat *x, int n, const struct ns_coef *coef, int n_steps);

#endif
