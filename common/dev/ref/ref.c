/* ref.c -- the reference device: what every op means, in plain loops.
 *
 * Sums run in double in ascending order, results are rounded once when they
 * are stored, statistics that a backward op could read (rstd, lse) are used as
 * stored or recomputed in double.  F32, F64 and BF16 storage anywhere; with
 * F64 the ops serve finite differences.  One thread; speed is no goal beyond
 * training tiny models in tests. */
#include "dev/backends.h"
#include "dev/dev.h"
#include "dev/ref/ref_ops.h"

static _Bool ref_takes(enum dtype dt)
{
    return dt == DT_F32 || dt == DT_F64 || dt == DT_BF16;
}

static size_t ref_ws_bytes(const struct dev *d, const struct dev_limits *lim)
{
    size_t a = ref_attn_ws(lim), r = ref_router_ws(lim), o = ref_optim_ws(lim);

    (void)d;
    return a > r ? (a > o ? a : o) : (r > o ? r : o);
}

static int ref_sync(struct dev *d)
{
    (void)d;
    return 0;
}

static void ref_close(struct dev *d)
{
    (void)d;
}

static const struct dev_ops ref_table = {
    .name = "ref",
    .takes = ref_takes,
    .ws_bytes = ref_ws_bytes,
    .sync = ref_sync,
    .close = ref_close,
    .zero = ref_zero,
    .copy = ref_copy,
    .cast = ref_cast,
    .add = ref_add,
    .scale = ref_scale,
    .gemm = ref_gemm,
    .group_fwd = ref_group_fwd,
    .group_dgrad = ref_group_dgrad,
    .group_wgrad = ref_group_wgrad,
    .rmsnorm_fwd = ref_rmsnorm_fwd,
    .rmsnorm_bwd = ref_rmsnorm_bwd,
    .bias_fwd = ref_bias_fwd,
    .bias_bwd = ref_bias_bwd,
    .rope = ref_rope,
    .attn_fwd = ref_attn_fwd,
    .attn_bwd = ref_attn_bwd,
    .swiglu_fwd = ref_swiglu_fwd,
    .swiglu_bwd = ref_swiglu_bwd,
    .sigmoid_fwd = ref_sigmoid_fwd,
    .sigmoid_bwd = ref_sigmoid_bwd,
    .router_fwd = ref_router_fwd,
    .router_bwd = ref_router_bwd,
    .route_sort = ref_route_sort,
    .rows_gather = ref_rows_gather,
    .rows_combine = ref_rows_combine,
    .slots_to_rows = ref_slots_to_rows,
    .rows_to_slots = ref_rows_to_slots,
    .embed_fwd = ref_embed_fwd,
    .embed_bwd = ref_embed_bwd,
    .xent = ref_xent,
    .sum = ref_sum,
    .sumsq = ref_sumsq,
    .adamw = ref_adamw,
    .muon_momentum = ref_muon_momentum,
    .newton_schulz = ref_newton_schulz,
    .muon_apply = ref_muon_apply,
};

int ref_open(const struct dev_options *o, struct dev *out)
{
    (void)o;                    /* one thread whatever is asked */
    *out = (struct dev){ .ops = &ref_table, .threads = 1 };
    return 0;
}
