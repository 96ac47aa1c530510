/* train_verify.c -- moe-train verify: is the model the same on every layout? */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/table.h"
#include "comm/comm.h"
#include "comm/comm_launch.h"
#include "train_cmds.h"
#include "train/parity.h"
#include "train/world.h"

#define MAX_LAYOUTS 64

struct verify_opts {
    struct opt_common common;
    const char *config, *device, *layouts;
    int64_t threads, ranks, steps;
    _Bool synthetic, json, tsv;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_STR, 'c', "config", "FILE", NULL, "configuration; - is standard input", offsetof(struct verify_opts, config), 0, 0 },
    { OPT_STR, 0, "layouts", "LIST", "1x1x1,1x2x1,1x1x2,1x2x2,2x1x2",
      "replicas x efsdp x ep, the first is compared with", offsetof(struct verify_opts, layouts), 0, 0 },
    { OPT_INT, 0, "steps", "N", "2", "steps under each layout", offsetof(struct verify_opts, steps), 1, 1e6 },
    { OPT_FLAG, 0, "synthetic", NULL, NULL, "made-up tokens instead of data", offsetof(struct verify_opts, synthetic), 0, 0 },
    { OPT_INT, 0, "ranks", "N", "0", "processes under mpirun; 0: as the layouts need", offsetof(struct verify_opts, ranks), 0, 65536 },
    TRAIN_DEVICE_OPTS(struct verify_opts),
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a row", offsetof(struct verify_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated", offsetof(struct verify_opts, tsv), 0, 0 },
    OPT_END
};

static int parse_layouts(const char *text, struct mesh *out, int *n)
{
    char one[64];

    for (*n = 0;; text++) {
        size_t len = strcspn(text, ",");
        if (*n == MAX_LAYOUTS)
            return err_set(ERR_USAGE, "--layouts: more than %d", MAX_LAYOUTS);
        if (len >= sizeof one)
            return err_set(ERR_USAGE, "--layouts: '%s' is not replicas x efsdp x ep", text);
        memcpy(one, text, len);
        one[len] = '\0';
        if (mesh_parse(one, &out[*n]) < 0)
            return err_add("--layouts");
        ++*n;
        text += len;
        if (!*text)
            return 0;
    }
}

/* As world_enter(), with as many ranks as the largest layout where neither the
 * user nor a launcher says how many; and a world also for one rank, since layouts
 * are cut from it. */
static int enter_world(int ranks, int need, struct comm **world)
{
    struct comm_launch l;
    int rc;

    if (ranks == 0) {
        TRY(comm_launch_look(&l));
        if (!l.by)
            ranks = need;
    }
    rc = world_enter(ranks, world);
    return rc != 0 || *world ? rc : comm_open("self", NULL, world);
}

/* Begun by its first row, so that a failure before leaves no head of a table. */
struct result { enum table_form form; struct table *t; };

static void put_row(void *ctx, const struct parity_row *r)
{
    static const struct table_col cols[] = {
        { "layout", "layout", 's', 0 }, { "what", "what", 's', 0 }, { "worst", "worst", 's', 0 }, { "step", "step", 'i', 0 },
        { "error", "error", 'f', -2 }, { "limit", "limit", 'f', -2 }, { "verdict", "verdict", 's', 0 },
    };
    struct result *out = ctx;
    char text[40];

    if (!out->t)
        out->t = table_begin(out->form, "moe.verify/1", cols, sizeof cols / sizeof cols[0]);
    table_str(out->t, mesh_text(text, r->mesh));
    table_str(out->t, parity_what_name(r->what));
    if (r->worst[0]) {
        table_str(out->t, r->worst);
        table_int(out->t, r->step);
    } else {
        table_none(out->t);
        table_none(out->t);
    }
    table_num(out->t, r->error);
    table_num(out->t, r->limit);
    table_str(out->t, r->verdict);
}

static int verify(const struct run_config *c, const struct verify_opts *o, struct comm *world, const struct mesh *layouts,
                  int n_layouts, enum table_form form)
{
    struct result out = { .form = form };
    struct parity_options po = { .world = world, .device = o->device,
                                 .threads = o->threads ? (int)o->threads : comm_threads(world), .layouts = layouts,
                                 .n_layouts = n_layouts, .steps = o->steps, .synthetic = o->synthetic, .row = put_row,
                                 .ctx = &out };
    int rc = parity_run(c, &po), end = out.t ? table_end(out.t) : 0;

    return rc < 0 ? rc : end;
}

static int run(void *p, int argc, char **argv)
{
    struct verify_opts *o = p;
    struct arena *a = arena_new();
    struct run_config c = { 0 };
    struct mesh layouts[MAX_LAYOUTS];
    struct comm *world = NULL;
    enum table_form form;
    int n_over, n_layouts, need = 1, rc;
    _Bool data;

    char **over = train_overrides(a, argc, argv, &n_over, &data);
    if (!o->config) {
        rc = err_set(ERR_USAGE, "no configuration: -c FILE");
        goto out;
    }
    if (data && o->synthetic) {
        rc = err_set(ERR_USAGE, "--synthetic takes no data");
        goto out;
    }
    TRY_OUT(rc, train_form(o->json, o->tsv, &form));
    TRY_OUT(rc, parse_layouts(o->layouts, layouts, &n_layouts));
    for (int i = 0; i < n_layouts; i++)
        need = mesh_world(layouts[i]) > need ? mesh_world(layouts[i]) : need;
    if (need > 1 && strcmp(o->config, "-") == 0) {
        rc = err_set(ERR_USAGE, "a configuration on standard input does not reach all ranks; give a file");
        goto out;
    }
    TRY_OUT(rc, run_config_load(o->config, over, n_over, &c));
    TRY_OUT(rc, run_config_check_built(&c));
    if ((rc = enter_world((int)o->ranks, need, &world)) != 0) {
        rc = rc > 0 ? 0 : rc;
        goto out;
    }
    rc = verify(&c, o, world, layouts, n_layouts, form);
out:
    comm_close(world);
    run_config_fini(&c);
    arena_free(a);
    return rc;
}

const struct opt_cmd train_verify_cmd = {
    .name = "verify", .summary = "is the model the same on every layout of ranks?",
    .synopsis = "-c CONFIG [options] [key.path=value ...] [DATA ...]",
    .examples = "moe-train verify -c my.yaml --layouts 1x1x1,1x2x1,1x1x2 data/train",
    .opts = opts, .opts_size = sizeof(struct verify_opts), .min_operands = 0, .max_operands = -1, .run = run,
};
