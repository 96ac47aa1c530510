/* test_shard_europa.c -- the published figures of the 951.9 B run follow from
 * its configuration: a whole expert a rank and layer, and bytes to the digit given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "optim/optim.h"
#include "shard/footprint.h"
#include "shard/layout.h"
#include "train/run_config.h"

#define GIB 1073741824.0
#define GB 1e9

static struct run_config cfg;
static struct arena *arena;
static struct param_table table;
static struct mesh mesh;
static struct plan *plan;
static struct footprint *ranks;
static struct footprint_base *base;
static struct footprint_opts opts;

static double ns_flops(const void *ctx, const struct param *p) { return optim_ns_flops(p, ctx); }

static int set_up(void **state)
{
    struct plan_costs costs = { optim_state_bytes, ns_flops, &cfg.optim };
    (void)state;
    arena = arena_new();
    if (run_config_load("etc/europa-952b.yaml", NULL, 0, &cfg) < 0 || params_build(arena, &cfg.model, &table) < 0 ||
        mesh_make(cfg.replicas, cfg.efsdp, cfg.ep, 1536, cfg.model.num_experts, &mesh) < 0 ||
        plan_make(&table, &costs, run_config_plan_digest(&cfg), mesh, &plan) < 0)
        return -1;
    base = footprint_open(plan, DT_BF16, DT_BF16);
    ranks = calloc((size_t)mesh_shard(mesh), sizeof *ranks);
    opts = (struct footprint_opts){ .micro_tokens = cfg.micro_tokens, .seq_len = cfg.data.seq_len, .loss_chunk = cfg.loss_chunk,
                                    .grad_slots = 2, .boundary_every = 1, .rows_cap = cfg.rows_cap,
                                    .state_on_host = cfg.state_home != 0, .boundaries_on_host = cfg.boundary_home != 0 };
    footprint_ranks(base, &opts, ranks);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(ranks);
    footprint_close(base);
    plan_free(plan);
    run_config_fini(&cfg);
    arena_free(arena);
    return 0;
}

static void near(double got, double want, double within)
{
    if (!(got > want - within && got < want + within))
        fail_msg("%.5f, expected %.5f within %.5f", got, want, within);
}

static void each_rank_owns_one_whole_expert_of_every_layer(void **state)
{
    int *matrices = calloc((size_t)mesh_shard(mesh) * 74, sizeof *matrices);
    (void)state;
    assert_int_equal(mesh.replicas, 4);
    assert_int_equal(mesh.efsdp, 96);
    assert_int_equal(mesh.ep, 4);
    for (int64_t i = 0; i < plan_n_parts(plan); i++) {
        const struct plan_part *x = plan_part(plan, i);
        const struct param *v = &table.v[x->i_param];
        if (v->kind != PARAM_EXPERT)
            continue;
        assert_int_equal(v->expert, 96 * (x->owner % 4) + x->owner / 4);
        assert_true(x->n_rows == v->rows);
        matrices[x->owner * 74 + v->layer]++;
    }
    for (int i = 0; i < mesh_shard(mesh) * 74; i++)
        assert_int_equal(matrices[i], 3);
    free(matrices);
}

static void boundaries_take_55_5_GiB(void **state)
{
    (void)state;
    near((double)ranks[0].host[FOOT_BOUNDARY] / GIB, 55.5, 1e-9);
}

static void a_gathered_layer_takes_6_16_GiB_in_bf16(void **state)
{
    (void)state;
    for (int ep = 0; ep < 4; ep++)
        near((double)layout_slot_bytes(plan, 40, ep, DT_BF16, LAYOUT_WEIGHTS) / GIB, 6.16, 0.01);
    /* Its experts are 96 of 33,030,144 parameters. */
    struct slot_layout s;
    layout_slot(arena, plan, 40, 2, DT_BF16, LAYOUT_WEIGHTS, &s);
    assert_true(s.experts_bytes == 96ll * 33030144 * 2);
    for (int i = 0; i < s.n_experts_from; i++)
        assert_true(s.experts[i].bytes == 33030144 * 2);
}

static void master_gradient_and_momentum_take_27_7_GiB_a_rank(void **state)
{
    double all = 0;
    (void)state;
    for (int r = 0; r < mesh_shard(mesh); r++) {
        const struct footprint *f = &ranks[r];
        double mine = (double)(f->host[FOOT_MASTER] + f->device[FOOT_GRAD] + f->host[FOOT_STATE]);
        near(mine / GIB, 27.73, 0.35);
        all += mine;
    }
    near(all / mesh_shard(mesh) / GIB, 27.73, 0.05);
}

static void newton_schulz_of_a_rank_is_222_matrices_and_little_else(void **state)
{
    (void)state;
    /* 222 x 4.52e11; the matrices outside the experts add a twentieth at most. */
    near(footprint_ns_flops(base), 1.004e14 * 1.045, 1.004e14 * 0.05);
}

static void three_bf16_passes_of_the_experts_are_what_crosses_the_network(void **state)
{
    struct traffic w;
    (void)state;
    footprint_traffic(base, &opts, &w);
    /* 490 GB a pass, as the notes have it, the ends on top: 1.5 GB a gather. */
    near(w.gather_bwd / GB, 491 - 4.7, 6);
    near(w.gather_fwd / GB, 491 + 1.6, 6);
    near(w.reduce / GB, 491 + 1.6, 6);
    /* 4.83 GB each way and layer; 5 movements. */
    near(w.dispatch / 74 / 5 / GB, 4.83, 0.02);
}

static void the_run_fits_94_GiB_of_device_and_111_of_host(void **state)
{
    (void)state;
    for (int r = 0; r < mesh_shard(mesh); r++) {
        assert_true((double)ranks[r].device_bytes / GIB + 3 < 94);      /* libraries: 3 */
        assert_true((double)ranks[r].host_bytes / GIB < 111);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_owns_one_whole_expert_of_every_layer),
        cmocka_unit_test(boundaries_take_55_5_GiB),
        cmocka_unit_test(a_gathered_layer_takes_6_16_GiB_in_bf16),
        cmocka_unit_test(master_gradient_and_momentum_take_27_7_GiB_a_rank),
        cmocka_unit_test(newton_schulz_of_a_rank_is_222_matrices_and_little_else),
        cmocka_unit_test(three_bf16_passes_of_the_experts_are_what_crosses_the_network),
        cmocka_unit_test(the_run_fits_94_GiB_of_device_and_111_of_host),
    };
    return cmocka_run_group_tests_name("europa", tests, set_up, tear_down);
}
