/* test_plan_ranks.c -- mistakes that a plan for several ranks can hold: each is
 * planted under a hash that fits, and found. */
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
#include "optim/optim.h"
#include "shard/plan.h"

static char dir[] = "/tmp/test-plan-ranks-XXXXXX";
static struct arena *arena;
static struct model_config cfg;
static struct param_table table;
static struct hash config_hash;
static struct optim_config optim;

static double ns_flops(const void *ctx, const struct param *p) { return optim_ns_flops(p, ctx); }
static const struct plan_costs costs = { optim_state_bytes, ns_flops, &optim };
static const struct mesh mesh = { 2, 2, 2 };

static int set_up(void **state)
{
    (void)state;
    arena = arena_new();
    config_hash = hash_bytes("c", 1);
    if (!mkdtemp(dir) || model_config_read(&cfg, "tests/golden/glm4_moe/config.json", 64) < 0)
        return -1;
    cfg.vocab_size = 500;       /* eight blocks of rows, the last one short */
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

static int load(const char *text, const struct hash *config, struct plan **out)
{
    const char *path = arena_printf(arena, "%s/plan.tsv", dir);
    assert_int_equal(fs_write_file(path, text, strlen(text)), 0);
    return config ? plan_load(path, &table, *config, out) : plan_load_any(path, &table, out);
}

/* The rows of the plan. */
static char *rows(void)
{
    struct plan *p;
    size_t n;
    assert_int_equal(plan_make(&table, &costs, config_hash, mesh, &p), 0);
    char *text = plan_text(p, &n), *copy = arena_strdup(arena, strstr(text, "#name"));
    free(text);
    plan_free(p);
    return copy;
}

/* Of the i-th line of a tensor, the column (from 0). */
static char *column(char *text, const char *name, int i, int col)
{
    char *at = strstr(text, arena_printf(arena, "\n%s\t", name));
    for (; at && i; i--)
        at = strchr(at + 1, '\n');
    assert_non_null(at);
    for (at++; col; col--)
        at = strchr(at, '\t') + 1;
    return at;
}

static const char *under_head(const char *text, const char *box)
{
    return arena_printf(arena, "# moe-plan 1\n# config %s mesh %s plan %s\n%s", config_hash.hex, box, hash_bytes(text, strlen(text)).hex, text);
}

enum { OWNER = 9 };
#define EXPERT(e, m) "model.layers.1.mlp.experts." #e "." #m "_proj.weight"

static void a_plan_as_made_is_accepted(void **state)
{
    struct plan *p;
    char *text = rows();
    (void)state;
    /* The lines these tests edit are there. */
    assert_int_equal(*column(text, "lm_head.weight", 1, OWNER), '1');
    if (load(under_head(text, "2x2x2 world 8"), &config_hash, &p) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(plan_check(p, "plan"), 0);
    plan_free(p);
}

static void every_planted_mistake_is_found_and_named(void **state)
{
    /* to: the owner instead; swap: exchanged with that of this line. */
    static const struct { const char *name; int line; int shift; const char *says; } bad[] = {
        { EXPERT(0, gate), 0, 1, "expert 0 lives in EP rank 0, but its owner" },
        { EXPERT(5, down), 0, 1, "expert 5 lives in EP rank 1, but its owner" },
        { EXPERT(0, up), 0, 2, "the matrices of expert 0 have different owners" },
        { "model.norm.weight", 0, 1, "model.norm.weight: the owner must be that of the first rows of lm_head.weight" },
        { "lm_head.weight", 1, 3, "lm_head.weight: owners do not ascend with the rows" },
        { "model.embed_tokens.weight", 3, 2, "model.embed_tokens.weight: owners do not ascend with the rows" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct plan *p;
        char *text = rows(), *at = column(text, bad[i].name, bad[i].line, OWNER);
        *at = (char)('0' + (*at - '0' + bad[i].shift) % 4);
        int rc = load(under_head(text, "2x2x2 world 8"), &config_hash, &p);
        if (rc != ERR_DATA || !strstr(err_msg(), bad[i].says))
            fail_msg("case %zu (%s): status %d, \"%s\"", i, bad[i].says, rc, rc < 0 ? err_msg() : "accepted");
    }
}

static void a_matrix_of_muon_in_two_parts_is_refused(void **state)
{
    struct plan *p;
    char *text = rows();
    const char *name = "model.layers.1.mlp.shared_experts.up_proj.weight";
    (void)state;
    /* Make a tall matrix of it, so that a split could fall on 64 rows. */
    int i = params_find(&table, name);
    int64_t was = table.v[i].rows;
    table.v[i].rows = 128;
    text = rows();
    char *line = column(text, name, 0, 0), *end = strchr(line, '\n') + 1;
    char *kept = arena_printf(arena, "%.*s", (int)(line - text), text);
    const char *f = "\tshared\t1\t-\tmuon\t128\t%d\t%d\t64\t%d\t%d\t0\t0\n";
    int cols = (int)table.v[i].cols;
    char *half = arena_printf(arena, arena_printf(arena, "%s%s", name, f), cols, 0, 0, 64 * cols * 4);
    char *rest = arena_printf(arena, arena_printf(arena, "%s%s", name, f), cols, 64, 1, 64 * cols * 4);
    int rc = load(under_head(arena_printf(arena, "%s%s%s%s", kept, half, rest, end), "2x2x2 world 8"), &config_hash, &p);
    table.v[i].rows = was;
    assert_int_equal(rc, ERR_DATA);
    if (!strstr(err_msg(), "only the embedding and the head are split by rows"))
        fail_msg("%s", err_msg());
}

static void another_mesh_over_the_same_lines_is_refused(void **state)
{
    struct plan *p;
    (void)state;
    char *text = rows();
    assert_int_equal(load(under_head(text, "2x1x4 world 8"), &config_hash, &p), ERR_DATA);
    assert_int_equal(load(under_head(text, "1x1x2 world 2"), &config_hash, &p), ERR_DATA);
    assert_int_equal(load(under_head(text, "1x4x7 world 28"), &config_hash, &p), ERR_DATA);
    assert_non_null(strstr(err_msg(), "cannot be divided"));
    assert_int_equal(load(under_head(text, "01x2x2 world 4"), &config_hash, &p), ERR_DATA);
}

static void a_plan_of_another_configuration_reads_only_where_that_is_wanted(void **state)
{
    struct plan *p;
    struct hash other = hash_bytes("d", 1);
    (void)state;
    const char *text = under_head(rows(), "2x2x2 world 8");
    assert_int_equal(load(text, &other, &p), ERR_USAGE);
    assert_int_equal(load(text, NULL, &p), 0);
    plan_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_as_made_is_accepted),
        cmocka_unit_test(every_planted_mistake_is_found_and_named),
        cmocka_unit_test(a_matrix_of_muon_in_two_parts_is_refused),
        cmocka_unit_test(another_mesh_over_the_same_lines_is_refused),
        cmocka_unit_test(a_plan_of_another_configuration_reads_only_where_that_is_wanted),
    };
    return cmocka_run_group_tests_name("plan_ranks", tests, set_up, tear_down);
}
