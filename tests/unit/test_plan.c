/* test_plan.c -- plans: made, written, read back, and every row distrusted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "shard/plan.h"

static char dir[] = "/tmp/test-plan-XXXXXX";
static struct arena *arena;
static struct model_config cfg;
static struct param_table table;
static struct hash config_hash;

static int64_t state_bytes(const struct param *p) { return 4 * p->rows * p->cols * (p->optim == PARAM_ADAMW ? 2 : 1); }
static double ns_flops(const void *ctx, const struct param *p) { return p->optim == PARAM_MUON ? *(const double *)ctx : 0; }
static const double flops = 1e12;
static const struct plan_costs costs = { state_bytes, ns_flops, &flops };

static int set_up(void **state)
{
    (void)state;
    arena = arena_new();
    config_hash = hash_bytes("c", 1);
    if (!mkdtemp(dir) || model_config_read(&cfg, "tests/golden/glm4_moe/config.json", 64) < 0)
        return -1;
    return params_build(arena, &cfg, &table);
}

static int tear_down(void **state)
{
    (void)state;
    fs_remove_tree(dir);
    model_config_fini(&cfg);
    arena_free(arena);
    return 0;
}

static char *made(size_t *n)
{
    struct plan *p;
    assert_int_equal(plan_make(&table, &costs, config_hash, (struct mesh){ 1, 1, 1 }, &p), 0);
    char *text = plan_text(p, n);
    assert_non_null(text);
    plan_free(p);
    return text;
}

/* The rows (with the line of column names) under a fresh head. */
static char *with_head(const char *mesh, const char *rows)
{
    struct hash h = hash_bytes(rows, strlen(rows));
    return arena_printf(arena, "# moe-plan 1\n# config %s mesh %s plan %s\n%s", config_hash.hex, mesh, h.hex, rows);
}

static int load(const char *text, struct plan **out)
{
    const char *path = arena_printf(arena, "%s/plan.tsv", dir);
    assert_int_equal(fs_write_file(path, text, strlen(text)), 0);
    return plan_load(path, &table, config_hash, out);
}

static void a_plan_reads_back_as_it_was_written(void **state)
{
    size_t n, m;
    char *text = made(&n), *again;
    struct plan *p;
    (void)state;
    if (load(text, &p) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(plan_n_parts(p), table.n);
    assert_int_equal(plan_world(p), 1);
    again = plan_text(p, &m);
    assert_int_equal(n, m);
    assert_string_equal(text, again);
    plan_free(p);
    free(text);
    free(again);
}

static void rows_are_sorted_by_layer_then_name_and_cover_the_table(void **state)
{
    struct plan *p;
    int64_t bytes = 0;
    (void)state;
    assert_int_equal(plan_make(&table, &costs, config_hash, (struct mesh){ 1, 1, 1 }, &p), 0);
    for (int64_t i = 0; i < plan_n_parts(p); i++) {
        const struct plan_part *x = plan_part(p, i);
        const struct param *v = &table.v[x->i_param];
        bytes += x->bytes;
        assert_int_equal(x->owner, 0);
        assert_int_equal(x->n_rows, v->rows);
        if (!i)
            continue;
        const struct param *u = &table.v[plan_part(p, i - 1)->i_param];
        unsigned lu = (unsigned)u->layer, lv = (unsigned)v->layer;      /* -1 is the largest */
        assert_true(lu < lv || (lu == lv && strcmp(u->name, v->name) < 0));
    }
    assert_true(bytes == 4 * params_total(&table));
    plan_free(p);
}

static void a_plan_of_another_configuration_is_refused_with_2(void **state)
{
    size_t n;
    char *text = made(&n);
    struct plan *p;
    (void)state;
    struct hash kept = config_hash;
    config_hash = hash_bytes("d", 1);
    assert_int_equal(load(text, &p), ERR_USAGE);
    config_hash = kept;
    free(text);
}

/* Replaces the first `from` in the rows by `to`, and makes the hash fit again. */
static int load_edited(const char *mesh, const char *from, const char *to, struct plan **p)
{
    size_t n;
    char *text = made(&n), *rows = strstr(text, "#name"), *at = strstr(rows, from);
    assert_non_null(at);
    const char *edited = arena_printf(arena, "%.*s%s%s", (int)(at - rows), rows, to, at + strlen(from));
    int rc = load(with_head(mesh, edited), p);
    free(text);
    return rc;
}

#define ONE "1x1x1 world 1"
#define UP "model.layers.0.mlp.up_proj.weight\tdense\t0\t-\tmuon\t36\t28\t0\t36\t0\t4032\t4032\t1000000000000\n"

static void every_damage_is_found_and_named(void **state)
{
    static const struct { const char *mesh, *from, *to, *says; } bad[] = {
        { ONE, UP, "", "up_proj.weight: row 0 has no owner" },
        { ONE, UP, UP UP, "up_proj.weight: row 0 has two owners" },
        { ONE, "up_proj", "gate_proj", "gate_proj.weight: row 0 has two owners" },
        { ONE, "up_proj", "sideways_proj", "is no parameter of this model" },
        { ONE, "\tdense\t0", "\texpert\t0", "kind, layer, expert or optim" },
        { ONE, "muon", "adamw", "kind, layer, expert or optim" },
        { ONE, "\t36\t28\t0\t36\t0\t", "\t28\t36\t0\t36\t0\t", "rows or cols" },
        { ONE, "\t36\t28\t0\t36\t0\t", "\t36\t28\t1\t36\t0\t", "first_row and n_rows" },
        { ONE, "\t36\t28\t0\t36\t0\t", "\t36\t28\t0\t35\t0\t", "multiple of 64" },
        { ONE, "\t36\t28\t0\t36\t0\t", "\t36\t28\t0\t36\t1\t", "owner is no rank" },
        { ONE, "\t36\t28\t0\t36\t0\t", "\t36\t28\t0\t36\t-1\t", "owner is no rank" },
        { ONE, "\t4032\t", "\t4033\t", "bytes is not" },
        { ONE, "\t1000000000000\n", "\t1e12\n", "whole numbers" },
        { ONE, "\t1000000000000\n", "\t1000000000000\t\n", "13 columns" },
        { ONE, "#name\tkind", "#name\tsort", "names of the columns" },
        { "1x2x1 world 1", "kind", "kind", "expected \"# config" },
        { "1x0x1 world 0", "kind", "kind", "expected \"# config" },
        { "1x1 world 1", "kind", "kind", "expected \"# config" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct plan *p;
        int rc = load_edited(bad[i].mesh, bad[i].from, bad[i].to, &p);
        if (rc != ERR_DATA || !strstr(err_msg(), bad[i].says))
            fail_msg("case %zu (%s): status %d, \"%s\"", i, bad[i].says, rc, rc < 0 ? err_msg() : "accepted");
    }
}

static void lines_that_are_not_the_ones_hashed_are_refused(void **state)
{
    size_t n;
    struct plan *p;
    char *text = made(&n);
    (void)state;
    char *at = strstr(text, "\t4032\t4032\t");
    at[6] = '5';
    assert_int_equal(load(text, &p), ERR_DATA);
    assert_non_null(strstr(err_msg(), "hash differs"));
    free(text);
    for (size_t cut = 0; cut < n; cut += 97) {
        text = made(&n);
        text[cut] = 0;
        assert_int_equal(load(text, &p), ERR_DATA);
        free(text);
    }
}

static void a_row_split_of_several_ranks_reads_and_must_be_whole(void **state)
{
    struct plan *p;
    (void)state;
    if (load_edited("2x2x1 world 4", "\t36\t28\t0\t36\t0\t", "\t36\t28\t0\t36\t1\t", &p) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(plan_world(p), 4);
    plan_free(p);
    assert_int_equal(load_edited("2x2x1 world 4", "\t36\t28\t0\t36\t0\t", "\t36\t28\t0\t36\t2\t", &p), ERR_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_reads_back_as_it_was_written),
        cmocka_unit_test(rows_are_sorted_by_layer_then_name_and_cover_the_table),
        cmocka_unit_test(a_plan_of_another_configuration_is_refused_with_2),
        cmocka_unit_test(every_damage_is_found_and_named),
        cmocka_unit_test(lines_that_are_not_the_ones_hashed_are_refused),
        cmocka_unit_test(a_row_split_of_several_ranks_reads_and_must_be_whole),
    };
    return cmocka_run_group_tests_name("plan", tests, set_up, tear_down);
}
