/* ref_ops.h -- the entries of ref's op table; private to dev/ref.
 * Contracts: dev/dev.h. */
#ifndef DEV_REF_REF_OPS_H
#define DEV_REF_REF_OPS_H

#include "dev/dev.h"

/* ref_move.c */
void ref_zero(struct dev *d, void *p, size_t bytes);
void ref_copy(struct dev *d, void *dst, const void *src, size_t bytes);
void ref_cast(struct dev *d, struct mat dst, struct mat src);
void ref_add(struct dev *d, struct mat y, struct mat a, struct mat b);
void ref_scale(struct dev *d, struct mat y, double s);

/* ref_gemm.c */
void ref_gemm(struct dev *d, struct mat c, struct mat a, _Bool ta, struct mat b, _Bool tb, double beta);
void ref_group_fwd(struct dev *d, const struct group *g, struct mat y, struct mat x);
void ref_group_dgrad(struct dev *d, const struct group *g, struct mat dx, struct mat dy, double beta);
void ref_group_wgrad(struct dev *d, const struct group *g, struct mat dy, struct mat x, double beta);

/* ref_rows.c */
void ref_rmsnorm_fwd(struct dev *d, struct mat y, struct mat rstd, struct mat x, struct mat w, double eps);
void ref_rmsnorm_bwd(struct dev *d, struct mat dx, double beta_dx, struct mat dw, double beta_dw,
                     struct mat dy, struct mat x, struct mat w, struct mat rstd);
void ref_bias_fwd(struct dev *d, struct mat y, struct mat b);
void ref_bias_bwd(struct dev *d, struct mat db, struct mat dy, double beta);
void ref_rope(struct dev *d, struct mat x, int n_heads, int head_dim, int rot_dim,
              struct mat cos, struct mat sin, const int32_t *positions, _Bool inverse);
void ref_swiglu_fwd(struct dev *d, struct mat h, struct mat gate, struct mat up);
void ref_swiglu_bwd(struct dev *d, struct mat dgate, struct mat dup, struct mat hw, struct mat dw,
                    struct mat q, struct mat gate, struct mat up, struct mat w);
void ref_sigmoid_fwd(struct dev *d, struct mat y, struct mat x);
void ref_sigmoid_bwd(struct dev *d, struct mat dx, struct mat dy, struct mat y);

/* ref_attn.c */
void ref_attn_fwd(struct dev *d, const struct attn *a);
void ref_attn_bwd(struct dev *d, const struct attn *a);
size_t ref_attn_ws(const struct dev_limits *lim);

/* ref_router.c */
void ref_router_fwd(struct dev *d, const struct router *r);
void ref_router_bwd(struct dev *d, const struct router *r);
size_t ref_router_ws(const struct dev_limits *lim);

/* ref_route.c */
void ref_route_sort(struct dev *d, const struct route_map *m);
void ref_rows_gather(struct dev *d, struct mat xs, struct mat x, const int32_t *token_of);
void ref_rows_combine(struct dev *d, struct mat y, struct mat ys, struct mat w, const int32_t *row_of,
                      int64_t first, int top_k, double beta);
void ref_slots_to_rows(struct dev *d, struct mat wr, struct mat w, const int32_t *row_of, int64_t first);
void ref_rows_to_slots(struct dev *d, struct mat w, struct mat wr, const int32_t *row_of, int64_t first);

/* ref_ends.c */
void ref_embed_fwd(struct dev *d, struct mat y, struct mat table, const int32_t *ids);
void ref_embed_bwd(struct dev *d, struct mat dtable, struct mat dy, const int32_t *ids, double beta);
void ref_xent(struct dev *d, double *nll, struct mat logits, const int32_t *targets, double scale, _Bool want_grad);
void ref_sum(struct dev *d, double *out, const double *x, int64_t n);

/* ref_optim.c */
void ref_sumsq(struct dev *d, double *out, struct mat g);
void ref_adamw(struct dev *d, const struct adamw *a);
void ref_muon_momentum(struct dev *d, struct mat u, struct mat m, struct mat g, double g_scale, double mu,
                       _Bool nesterov);
void ref_newton_schulz(struct dev *d, const struct mat *x, int n, const struct ns_coef *coef, int n_steps, double eps);
void ref_muon_apply(struct dev *d, struct mat w, struct mat u, double lr, double ratio, double decay);
size_t ref_optim_ws(const struct dev_limits *lim);

#endif
