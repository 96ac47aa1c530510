/* test_shard_mesh.c -- ranks and their groups, for every small mesh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "shard/mesh.h"

static void every_rank_has_one_place_and_one_group_of_each_kind(void **state)
{
    (void)state;
    for (int r = 1; r <= 3; r++)
        for (int f = 1; f <= 4; f++)
            for (int e = 1; e <= 4; e++) {
                struct mesh m;
                assert_int_equal(mesh_make(r, f, e, r * f * e, 12, &m), 0);
                for (int rank = 0; rank < mesh_world(m); rank++) {
                    struct mesh_at at = mesh_at(m, rank);
                    assert_int_equal(mesh_rank(m, at), rank);
                    assert_int_equal(mesh_owner(m, rank), at.efsdp * e + at.ep);
                    for (int k = 0; k < MESH_KIND_N; k++) {
                        struct mesh_group g = mesh_group(m, (enum mesh_kind)k, rank);
                        assert_int_equal(g.first + g.me * g.stride, rank);
                        assert_true(g.me >= 0 && g.me < g.size);
                        for (int i = 0; i < g.size; i++) {
                            struct mesh_group h = mesh_group(m, (enum mesh_kind)k, g.first + i * g.stride);
                            assert_int_equal(h.colour, g.colour);
                            assert_int_equal(h.first, g.first);
                            assert_int_equal(h.me, i);
                        }
                    }
                }
            }
}

static void members_of_a_group_share_what_the_group_is_for(void **state)
{
    struct mesh m = { 2, 3, 4 };
    (void)state;
    for (int a = 0; a < mesh_world(m); a++)
        for (int b = 0; b < mesh_world(m); b++) {
            struct mesh_at x = mesh_at(m, a), y = mesh_at(m, b);
            for (int k = 0; k < MESH_KIND_N; k++) {
                _Bool together = mesh_group(m, (enum mesh_kind)k, a).colour == mesh_group(m, (enum mesh_kind)k, b).colour;
                _Bool want = k == MESH_WORLD ? 1 : k == MESH_SHARD ? x.replica == y.replica
                           : k == MESH_REPLICA ? x.efsdp == y.efsdp && x.ep == y.ep
                           : k == MESH_EFSDP ? x.replica == y.replica && x.ep == y.ep
                           : x.replica == y.replica && x.efsdp == y.efsdp;
                assert_int_equal(together, want);
            }
        }
}

static void the_reference_run_is_4x96x4_with_nodes_of_four(void **state)
{
    struct mesh m;
    (void)state;
    assert_int_equal(mesh_make(4, -1, 4, 1536, 384, &m), 0);
    assert_int_equal(m.efsdp, 96);
    assert_int_equal(mesh_shard(m), 384);
    struct mesh_group ep = mesh_group(m, MESH_EP, 1535);
    assert_int_equal(ep.first, 1532);
    assert_int_equal(ep.stride, 1);
    assert_int_equal(mesh_ep_of_expert(m, 384, 95), 0);
    assert_int_equal(mesh_ep_of_expert(m, 384, 96), 1);
}

static void a_mesh_that_cannot_be_is_refused_in_one_line(void **state)
{
    static const struct { int64_t r, f, e, world, experts; const char *says; } bad[] = {
        { 1, -1, 4, 6, 16, "6 ranks are no multiple of replicas 1 x ep 4" },
        { 2, 2, 1, 6, 16, "2x2x1 needs 4 ranks, but there are 6" },
        { 1, -1, 3, 6, 16, "16 experts cannot be divided among 3" },
        { 1, -1, 32, 32, 16, "16 experts cannot be divided among 32" },
        { 0, 1, 1, 1, 16, "from 1 to" },
        { 1, 0, 1, 1, 16, "from 1 to" },
        { 1 << 13, 1 << 13, 1, 0, 16, "more than" },
        { 1 << 20, -1, 1 << 20, 0, 1 << 20, "more than" },
        { 1ll << 40, 1, 1, 0, 16, "from 1 to" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mesh m;
        int rc = mesh_make(bad[i].r, bad[i].f, bad[i].e, bad[i].world, bad[i].experts, &m);
        if (rc != ERR_USAGE || !strstr(err_msg(), bad[i].says) || strchr(err_msg(), '\n'))
            fail_msg("case %zu (%s): status %d, \"%s\"", i, bad[i].says, rc, rc < 0 ? err_msg() : "accepted");
    }
}

static void the_text_of_a_mesh_reads_back_and_nothing_else_does(void **state)
{
    static const char *const bad[] = { "", "4", "4x96", "4x96x", "x96x4", "4x96x4x", "4x96x4 ", "0x1x1", "1x01x1", "-1x1x1",
                                       "1x1x99999999999", "4096x4096x4096", "4X96X4" };
    struct mesh m;
    char text[40];
    (void)state;
    assert_int_equal(mesh_parse("4x96x4", &m), 0);
    assert_string_equal(mesh_text(text, m), "4x96x4");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (mesh_parse(bad[i], &m) != ERR_USAGE)
            fail_msg("\"%s\" was accepted", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_one_place_and_one_group_of_each_kind),
        cmocka_unit_test(members_of_a_group_share_what_the_group_is_for),
        cmocka_unit_test(the_reference_run_is_4x96x4_with_nodes_of_four),
        cmocka_unit_test(a_mesh_that_cannot_be_is_refused_in_one_line),
        cmocka_unit_test(the_text_of_a_mesh_reads_back_and_nothing_else_does),
    };
    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
