/* test_shard_layout.c -- owner maps and layouts of random models on random
 * meshes: what must hold for every one of them (layout.h L1 to L3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "model/model.h"
#include "optim/optim.h"
#include "shard/layout.h"

enum { N_CASES = 150 };

static uint64_t random_state;
static int64_t pick(int64_t lo, int64_t hi)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return lo + (int64_t)(random_state >> 33) % (hi - lo + 1);
}

struct rig {
    struct arena *a;
    struct model_config cfg;
    struct optim_config optim;
    struct param_table t;
    struct mesh m;
    struct plan *p;
};

static double ns_flops(const void *ctx, const struct param *p) { return optim_ns_flops(p, ctx); }

static const struct hash no_config = { "0123456789abcdef0123456789abcdef" };

static struct plan *plan_of(const struct rig *r)
{
    struct plan_costs costs = { optim_state_bytes, ns_flops, &r->optim };
    struct plan *p;
    assert_int_equal(plan_make(&r->t, &costs, no_config, r->m, &p), 0);
    return p;
}

static void open_case(struct rig *r, int seed)
{
    static const int types[] = { MODEL_GLM4_MOE, MODEL_QWEN3_MOE, MODEL_MIXTRAL, MODEL_QWEN2_MOE };
    random_state = (uint64_t)seed;
    memset(r, 0, sizeof *r);
    r->a = arena_new();
    r->m = (struct mesh){ (int)pick(1, 3), (int)pick(1, 7), (int)pick(1, 4) };
    struct model_config *c = &r->cfg;
    c->model_type = types[pick(0, 3)];
    c->hidden_size = pick(1, 9);
    c->num_hidden_layers = pick(1, 5);
    c->num_attention_heads = c->num_key_value_heads = pick(1, 3);
    c->head_dim = pick(1, 5);
    c->vocab_size = pick(1, 900);
    c->num_experts = r->m.ep * pick(1, 6);
    c->num_experts_per_tok = 1;
    c->moe_intermediate_size = pick(1, 7);
    c->n_shared_experts = pick(1, 2);
    c->shared_expert_intermediate_size = pick(1, 7);
    c->first_k_dense_replace = pick(0, c->num_hidden_layers);
    c->intermediate_size = pick(1, 11);
    c->tie_word_embeddings = pick(0, 1);
    c->attention_bias = pick(0, 1);
    assert_int_equal(params_build(r->a, c, &r->t), 0);
    r->p = plan_of(r);
}

static void close_case(struct rig *r)
{
    plan_free(r->p);
    arena_free(r->a);
}

static void every_row_has_exactly_one_owner_and_experts_stay_in_their_ep_rank(void **state)
{
    (void)state;
    for (int seed = 0; seed < N_CASES; seed++) {
        struct rig r;
        open_case(&r, seed);
        int64_t *next = arena_array(r.a, (size_t)r.t.n, sizeof *next);
        int *experts = arena_array(r.a, (size_t)mesh_shard(r.m), sizeof *experts);
        for (int64_t i = 0; i < plan_n_parts(r.p); i++) {
            const struct plan_part *x = plan_part(r.p, i);
            const struct param *v = &r.t.v[x->i_param];
            assert_true(x->owner >= 0 && x->owner < mesh_shard(r.m));
            assert_true(x->n_rows > 0 && x->first_row == next[x->i_param]);
            assert_true(x->first_row % PLAN_ROW_BLOCK == 0);
            assert_true(x->bytes == x->n_rows * v->cols * 4);
            next[x->i_param] += x->n_rows;
            if (v->optim == PARAM_MUON)
                assert_true(x->n_rows == v->rows);
            if (v->kind == PARAM_EXPERT) {
                assert_int_equal(x->owner % r.m.ep, v->expert / (r.cfg.num_experts / r.m.ep));
                experts[x->owner]++;
            }
        }
        int least = experts[0], most = experts[0];
        for (int i = 0; i < r.t.n; i++)
            assert_true(next[i] == r.t.v[i].rows);
        for (int k = 0; k < mesh_shard(r.m); k++) {
            assert_int_equal(experts[k] % 3, 0);
            least = experts[k] < least ? experts[k] : least;
            most = experts[k] > most ? experts[k] : most;
        }
        assert_true(most - least <= 3);
        close_case(&r);
    }
}

static void a_plan_is_the_same_every_time_and_reads_back(void **state)
{
    char dir[] = "/tmp/test-layout-XXXXXX", path[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/plan.tsv", dir);
    for (int seed = 0; seed < N_CASES; seed++) {
        struct rig r;
        size_t n, m;
        struct plan *q;
        open_case(&r, seed);
        q = plan_of(&r);
        struct hash one = plan_hash(r.p), two = plan_hash(q);
        assert_true(hash_eq(&one, &two));
        plan_free(q);
        char *text = plan_text(r.p, &n);
        assert_int_equal(fs_write_file(path, text, n), 0);
        if (plan_load(path, &r.t, no_config, &q) < 0)
            fail_msg("case %d: %s", seed, err_msg());
        char *again = plan_text(q, &m);
        assert_int_equal(n, m);
        assert_memory_equal(text, again, n);
        free(text);
        free(again);
        plan_free(q);
        close_case(&r);
    }
    fs_remove_tree(dir);
}

static void owned_storage_holds_what_the_plan_says_without_overlap(void **state)
{
    (void)state;
    for (int seed = 0; seed < N_CASES; seed++) {
        struct rig r;
        open_case(&r, seed);
        int64_t *elems = arena_array(r.a, (size_t)mesh_shard(r.m), sizeof *elems), n_parts = 0;
        layout_owned_elems(r.p, elems);
        for (int k = 0; k < mesh_shard(r.m); k++) {
            struct owned_layout o;
            int64_t end = 0, bytes = 0, ranges = 0;
            layout_owned(r.a, r.p, k, &o);
            for (int i = 0; i < o.n_parts; i++) {
                const struct owned_part *x = &o.parts[i];
                assert_true(x->offset >= end && x->offset - end < 16 && x->offset % 16 == 0);
                assert_int_equal(o.of_param[x->i_param], i);
                assert_true(!i || x->i_param > o.parts[i - 1].i_param);
                end = x->offset + x->n_rows * r.t.v[x->i_param].cols;
                bytes += x->n_rows * r.t.v[x->i_param].cols * 4;
            }
            assert_true(o.n_elems >= end && o.n_elems - end < 16);
            assert_true(o.n_elems == elems[k]);
            for (int64_t i = 0; i < plan_n_parts(r.p); i++)
                if (plan_part(r.p, i)->owner == k)
                    bytes -= plan_part(r.p, i)->bytes;
            assert_true(bytes == 0);
            for (int l = LAYOUT_HEAD; l < o.n_layers; l++)
                ranges += layout_owned_range(&o, l, 0).n + layout_owned_range(&o, l, 1).n;
            assert_true(ranges == o.n_elems);
            n_parts += o.n_parts;
        }
        assert_true(n_parts == plan_n_parts(r.p));
        close_case(&r);
    }
}

static void one_rank_has_the_storage_of_the_parameter_table(void **state)
{
    (void)state;
    for (int seed = 0; seed < N_CASES; seed++) {
        struct rig r;
        struct owned_layout o;
        open_case(&r, seed);
        plan_free(r.p);
        r.m = (struct mesh){ 1, 1, 1 };
        r.p = plan_of(&r);
        layout_owned(r.a, r.p, 0, &o);
        assert_int_equal(o.n_parts, r.t.n);
        assert_true(o.n_elems == r.t.n_elems);
        for (int i = 0; i < r.t.n; i++)
            assert_true(o.parts[i].offset == r.t.v[i].offset);
        close_case(&r);
    }
}

/* Blocks tile, parts lie in their owner's block, and an F32 block is the owner's range. */
static void check_half(const struct rig *r, const struct slot_layout *s, const struct slot_block *blocks, int n, int first, int stride,
                       _Bool experts, enum dtype dt, int64_t *at)
{
    for (int b = 0; b < n; b++) {
        struct owned_layout o;
        int owner = first + b * stride;
        assert_true(blocks[b].offset == *at);
        layout_owned(r->a, r->p, owner, &o);
        struct owned_range range = layout_owned_range(&o, s->layer, experts);
        if (dt == DT_F32)
            assert_true(blocks[b].bytes == range.n * 4);
        assert_true((blocks[b].bytes == 0) == (range.n_parts == 0));
        int64_t end = blocks[b].offset;
        for (int i = 0; i < range.n_parts; i++) {
            const struct owned_part *own = &o.parts[range.i_part + i];
            const struct slot_part *x = NULL;
            for (int j = 0; j < s->n_parts; j++)
                if (s->parts[j].i_param == own->i_param && s->parts[j].first_row == own->first_row)
                    x = &s->parts[j];
            assert_non_null(x);
            assert_int_equal(x->owner, owner);
            assert_true(x->offset >= end && x->offset % LAYOUT_ALIGN == 0);
            assert_true(x->bytes == own->n_rows * r->t.v[own->i_param].cols * (int64_t)dtype_size(x->dt));
            if (dt == DT_F32)
                assert_true(x->offset - blocks[b].offset == (own->offset - range.first) * 4);
            end = x->offset + x->bytes;
        }
        *at += blocks[b].bytes;
        assert_true(end <= *at && *at - end < LAYOUT_ALIGN);
    }
}

static void slots_tile_and_hold_every_weight_a_rank_needs(void **state)
{
    (void)state;
    for (int seed = 0; seed < N_CASES; seed++) {
        struct rig r;
        open_case(&r, seed);
        for (int l = LAYOUT_HEAD; l < r.cfg.num_hidden_layers; l++)
            for (int ep = 0; ep < r.m.ep; ep++)
                for (int d = 0; d < 2; d++) {
                    enum dtype dt = d ? DT_BF16 : DT_F32;
                    struct slot_layout s;
                    int64_t at = 0, held = 0;
                    layout_slot(r.a, r.p, l, ep, dt, LAYOUT_WEIGHTS, &s);
                    check_half(&r, &s, s.experts, s.n_experts_from, ep, r.m.ep, 1, dt, &at);
                    assert_true(at == s.experts_bytes);
                    check_half(&r, &s, s.rest, s.n_rest_from, 0, 1, 0, dt, &at);
                    assert_true(at == s.bytes);
                    assert_true(s.bytes == layout_slot_bytes(r.p, l, ep, dt, LAYOUT_WEIGHTS));
                    for (int i = 0; i < s.n_parts; i++) {
                        const struct param *v = &r.t.v[s.parts[i].i_param];
                        held += s.parts[i].n_rows * v->cols;
                        /* Rows of a split matrix follow one another without a gap. */
                        assert_true(s.parts[i].offset == layout_slot_at(&s, s.parts[i].i_param) +
                                    s.parts[i].first_row * v->cols * (int64_t)dtype_size(s.parts[i].dt));
                        _Bool always_f32 = v->kind == PARAM_ROUTER || v->kind == PARAM_ROUTER_BIAS;
                        assert_int_equal(s.parts[i].dt, always_f32 ? DT_F32 : dt);
                    }
                    for (int i = 0; i < r.t.n; i++) {
                        const struct param *v = &r.t.v[i];
                        _Bool mine = l >= 0 ? v->layer == l && (v->kind != PARAM_EXPERT || v->expert / (r.cfg.num_experts / r.m.ep) == ep)
                                   : v->layer < 0 && (l == LAYOUT_EMBED) == (i == r.t.embed);
                        assert_int_equal(layout_slot_at(&s, i) >= 0, mine);
                        held -= mine ? v->rows * v->cols : 0;
                    }
                    assert_true(held == 0);
                    if (l >= 0)
                        assert_true(s.bytes <= layout_slot_max(r.p, ep, dt, LAYOUT_WEIGHTS));
                }
        close_case(&r);
    }
}

static void gradients_have_one_type(void **state)
{
    struct rig r;
    struct slot_layout s;
    (void)state;
    open_case(&r, 3);
    layout_slot(r.a, r.p, (int)r.cfg.num_hidden_layers - 1, 0, DT_BF16, LAYOUT_GRADS, &s);
    for (int i = 0; i < s.n_parts; i++)
        assert_int_equal(s.parts[i].dt, DT_BF16);
    close_case(&r);
    assert_int_equal(LAYOUT_EMBED, MODEL_LAYER_EMBED);
    assert_int_equal(LAYOUT_HEAD, MODEL_LAYER_HEAD);
}

static void as_many_ranks_as_experts_get_one_each_of_every_layer(void **state)
{
    struct rig r;
    (void)state;
    open_case(&r, 1);
    plan_free(r.p);
    r.m = (struct mesh){ 2, 6, 4 };
    r.cfg.num_experts = 24;
    r.cfg.num_hidden_layers = 5;
    r.cfg.first_k_dense_replace = 1;
    assert_int_equal(params_build(r.a, &r.cfg, &r.t), 0);
    r.p = plan_of(&r);
    for (int64_t i = 0; i < plan_n_parts(r.p); i++) {
        const struct plan_part *x = plan_part(r.p, i);
        const struct param *v = &r.t.v[x->i_param];
        if (v->kind == PARAM_EXPERT)
            assert_int_equal(v->expert, 6 * (x->owner % 4) + x->owner / 4);
    }
    close_case(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_exactly_one_owner_and_experts_stay_in_their_ep_rank),
        cmocka_unit_test(a_plan_is_the_same_every_time_and_reads_back),
        cmocka_unit_test(owned_storage_holds_what_the_plan_says_without_overlap),
        cmocka_unit_test(one_rank_has_the_storage_of_the_parameter_table),
        cmocka_unit_test(slots_tile_and_hold_every_weight_a_rank_needs),
        cmocka_unit_test(gradients_have_one_type),
        cmocka_unit_test(as_many_ranks_as_experts_get_one_each_of_every_layer),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
