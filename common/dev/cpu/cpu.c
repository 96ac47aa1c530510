/* cpu.c -- the fast device for processors: opening it, sharing out work, its
 * op table.
 *
 * A team of threads, kernels per instruction set, products of our own or by a
 * CBLAS.  Takes F32 only (cast also reads and writes BF16 and F64).  Promises
 * the same bits for any thread count: every sum has one order, whoever
 * computes it.  Refuses to open on a CBLAS that computes wrongly. */
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "dev/backends.h"
#include "dev/cpu/cpu_ops.h"

/* Below this an op runs in the caller: sharing costs a microsecond when the
 * team is awake and far more when it sleeps. */
#define FORK_NS 20e3
/* A piece is at least this long, so that handing it out costs nothing, and
 * there are several a thread, so that a stolen core delays one piece only. */
#define PIECE_NS 8e3
#define PIECES 16

void cpu_for(const struct dev *d, int64_t n, double ns, cpu_task fn, void *arg)
{
    if (n <= 0)
        return;
    /* A BLAS built on OpenMP asks this thread's setting; see cpu_team.c. */
    int omp = omp_get_max_threads();
    if (omp != 1)
        omp_set_num_threads(1);
    double most = (double)n * ns / PIECE_NS, pieces = (double)d->threads * PIECES;
    if (d->threads == 1 || n == 1 || (double)n * ns < FORK_NS)
        fn(arg, 0, n, 0);
    else
        cpu_team_run(((struct cpu *)d->self)->team, n, cpu_max(2, (int64_t)(most < pieces ? most : pieces)), fn, arg);
    if (omp != 1)
        omp_set_num_threads(omp);
}

static _Bool cpu_takes(enum dtype dt)
{
    return dt == DT_F32;
}

static size_t cpu_ws_bytes(const struct dev *d, const struct dev_limits *lim)
{
    size_t want[] = {
        (size_t)(CPU_PARTS * lim->max_cols) * sizeof(float),
        cpu_attn_ws(d, lim), cpu_router_ws(d, lim), cpu_ns_ws(d, lim),
    };
    size_t most = 0;

    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (want[i] > most)
            most = want[i];
    return most;
}

static int cpu_sync(struct dev *d)
{
    (void)d;
    return 0;
}

static void cpu_close(struct dev *d)
{
    struct cpu *c = d->self;

    cpu_team_close(c->team);
    free(c->pack);
    free(c);
    d->self = NULL;
}

static const struct dev_ops cpu_table = {
    .name = "cpu",
    .takes = cpu_takes,
    .ws_bytes = cpu_ws_bytes,
    .sync = cpu_sync,
    .close = cpu_close,
    .zero = cpu_zero,
    .copy = cpu_copy,
    .cast = cpu_cast,
    .add = cpu_add,
    .scale = cpu_scale,
    .gemm = cpu_gemm,
    .group_fwd = cpu_group_fwd,
    .group_dgrad = cpu_group_dgrad,
    .group_wgrad = cpu_group_wgrad,
    .rmsnorm_fwd = cpu_rmsnorm_fwd,
    .rmsnorm_bwd = cpu_rmsnorm_bwd,
    .bias_fwd = cpu_bias_fwd,
    .bias_bwd = cpu_bias_bwd,
    .rope = cpu_rope,
    .attn_fwd = cpu_attn_fwd,
    .attn_bwd = cpu_attn_bwd,
    .swiglu_fwd = cpu_swiglu_fwd,
    .swiglu_bwd = cpu_swiglu_bwd,
    .sigmoid_fwd = cpu_sigmoid_fwd,
    .sigmoid_bwd = cpu_sigmoid_bwd,
    .router_fwd = cpu_router_fwd,
    .router_bwd = cpu_router_bwd,
    .route_sort = cpu_route_sort,
    .rows_gather = cpu_rows_gather,
    .rows_combine = cpu_rows_combine,
    .slots_to_rows = cpu_slots_to_rows,
    .rows_to_slots = cpu_rows_to_slots,
    .embed_fwd = cpu_embed_fwd,
    .embed_bwd = cpu_embed_bwd,
    .xent = cpu_xent,
    .sum = cpu_sum,
    .sumsq = cpu_sumsq,
    .adamw = cpu_adamw,
    .muon_momentum = cpu_muon_momentum,
    .newton_schulz = cpu_newton_schulz,
    .muon_apply = cpu_muon_apply,
};

/* The widest set that this processor runs, or the one that MOE_KERNELS names:
 * another set gives other bits, so a run can be repeated on a newer machine. */
static int choose_kernels(const struct cpu_kern **out)
{
    const struct cpu_kern *sets[] = { cpu_kern_avx512(), cpu_kern_avx2(), cpu_kern_base() };
    const char *name = getenv("MOE_KERNELS");

    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (!sets[i] || (name && *name && strcmp(name, sets[i]->name) != 0))
            continue;
        *out = sets[i];
        return 0;
    }
    return err_set(ERR_ABSENT, "MOE_KERNELS=%s: this build or processor has no such kernels (avx512, avx2, %s)", name, sets[2]->name);
}

/* What the affinity mask allows. */
static int cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    return n > 0 ? n : 1;
}

int cpu_open(const struct dev_options *o, struct dev *out)
{
    const struct cpu_kern *kern = NULL;
    struct cpu *c;
    int rc, threads = o && o->threads > 0 ? o->threads : cores();

    const char *gemm = getenv("MOE_GEMM");
    _Bool blas = gemm && !strcmp(gemm, "cblas");

    TRY(choose_kernels(&kern));
    if (gemm && *gemm && !blas && strcmp(gemm, "own") != 0)
        return err_set(ERR_USAGE, "MOE_GEMM=%s: expected own or cblas", gemm);
    c = calloc(1, sizeof *c);
    if (!c)
        return err_set(ERR_IO, "out of memory");
    *out = (struct dev){ .ops = &cpu_table, .threads = threads, .about = c->about, .self = c };
    c->kern = kern;
    c->blas = blas;
    snprintf(c->about, sizeof c->about, "kernels %s, gemm %s%s%s", kern->name, c->blas ? "cblas" : "own",
             c->blas && *cpu_blas_core() ? " core " : "", c->blas ? cpu_blas_core() : "");
    TRY_OUT(rc, cpu_team_open(threads, &c->team));
    if (c->blas)
        TRY_OUT(rc, cpu_blas_check(out));
    else if (!(c->pack = aligned_alloc(64, (size_t)threads * CPU_GEMM_WS * sizeof *c->pack)))
        rc = err_set(ERR_IO, "out of memory");
out:
    if (rc < 0) {
        cpu_close(out);
        *out = (struct dev){ 0 };
    }
    return rc;
}
