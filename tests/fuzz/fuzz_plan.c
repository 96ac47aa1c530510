/* fuzz_plan.c -- shard/plan: the plan of a small model, broken.
 *
 * The hash of the lines would stop nearly every mutant at the head, so it is
 * made to fit again: what is tested is the reading of rows. */
#include "fuzz/fuzz.h"
#include "shard/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char fuzz_what[] = "a plan";

static struct arena *arena;
static struct model_config cfg;
static struct param_table table;
static struct hash config_hash;

static int64_t state_bytes(const struct param *p) { return 8 * p->rows; }
static double ns_flops(const void *ctx, const struct param *p) { return ctx || !p ? 0 : 1e9; }

int fuzz_seeds(void)
{
    struct plan_costs costs = { state_bytes, ns_flops, NULL };
    struct plan *p;
    size_t n;
    int rc = model_config_read(&cfg, "tests/golden/mixtral/config.json", 64);

    if (rc < 0)
        return rc;
    arena = arena_new();
    config_hash = hash_bytes("c", 1);
    if ((rc = params_build(arena, &cfg, &table)) < 0 || (rc = plan_make(&table, &costs, config_hash, (struct mesh){ 2, 3, 1 }, &p)) < 0)
        return rc;
    char *text = plan_text(p, &n);
    fuzz_add(text, n);
    free(text);
    plan_free(p);
    return 0;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static const char mark[] = " plan ";
    char *copy = malloc(n + 1), *at;
    struct plan *p;
    int rc;

    if (!copy)
        return -1;
    memcpy(copy, data, n);
    copy[n] = 0;
    /* The second line ends with the hash of what follows it. */
    at = memmem(copy, n, mark, sizeof mark - 1);
    if (at && (size_t)(copy + n - at) > sizeof mark + 32) {
        char *rows = at + sizeof mark - 1 + 33;
        struct hash h = hash_bytes(rows, (size_t)(copy + n - rows));
        memcpy(rows - 33, h.hex, 32);
    }
    rc = plan_load(fuzz_path((const uint8_t *)copy, n), &table, config_hash, &p);
    if (rc == 0)
        plan_free(p);
    free(copy);
    return rc;
}
