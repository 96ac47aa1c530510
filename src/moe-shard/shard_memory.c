/* shard_memory.c -- moe-shard memory: the planned bytes of the ranks of a run.
 *
 * One rank: the step itself runs over the trace device, so the table is what
 * moe-train reserves, to the byte.  Several ranks, or a type this trainer does
 * not compute in: the formulas of shard/footprint.h, and the table says so.  No
 * data and no tokenizer are opened. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/out.h"
#include "base/units.h"
#include "train/memory_report.h"
#include "train/state.h"

#include "shard_cmds.h"

struct memory_opts {
    struct shard_input in;
    const char *device, *dtype;
    int64_t threads, ranks, rank, grad_slots;
    _Bool buffers, json, tsv, estimate;
};

static const struct opt opts[] = {
    SHARD_INPUT(struct memory_opts),
    { OPT_STR, 'd', "device", "NAME", "cpu", "the device that would compute: cpu or ref", offsetof(struct memory_opts, device), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads of the device; 0: all that are allowed", offsetof(struct memory_opts, threads), 0, 65536 },
    SHARD_RANKS(struct memory_opts),
    { OPT_INT, 0, "rank", "R", "-1", "one rank; -1: least, mean and most of all", offsetof(struct memory_opts, rank), -1, MESH_MAX_RANKS },
    SHARD_DTYPE(struct memory_opts),
    SHARD_GRAD_SLOTS(struct memory_opts),
    { OPT_FLAG, 0, "estimate", NULL, NULL, "by formula also for one rank", offsetof(struct memory_opts, estimate), 0, 0 },
    { OPT_FLAG, 0, "buffers", NULL, NULL, "every buffer of one rank instead of the classes", offsetof(struct memory_opts, buffers), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a line", offsetof(struct memory_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated values", offsetof(struct memory_opts, tsv), 0, 0 },
    OPT_END
};

/* ---- one rank, from its trace */

static int traced(struct shard_model *m, const struct memory_opts *o, enum table_form form)
{
    struct trainer *t = NULL;
    int rc;
    m->cfg.tokenizer = NULL;    /* its bytes are not part of the plan */
    struct trainer_options topts = {
        .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA | TRAINER_VALID,
        .device = o->device, .threads = (int)o->threads, .plan_only = 1, .stage_bytes = state_stage_bytes,
    };
    TRY_OUT(rc, trainer_open(&m->cfg, &topts, &t));
    rc = memory_report(t, form, o->buffers);
out:
    trainer_close(t);
    return rc;
}

/* ---- any ranks, from formulas */

enum { DEVICE, HOST, N_HOMES };
static const char *const homes[N_HOMES] = { "device", "host" };

struct spread { int64_t min, max; double sum; };

static void spread_add(struct spread *s, int64_t v, _Bool first)
{
    s->min = first || v < s->min ? v : s->min;
    s->max = first || v > s->max ? v : s->max;
    s->sum += (double)v;
}

static void row(struct table *t, const char *name, const char *home, const struct spread *s, int n, const char *lifetime)
{
    table_str(t, name);
    table_str(t, home);
    table_int(t, s->min);
    table_int(t, (int64_t)(s->sum / n));
    table_int(t, s->max);
    table_str(t, lifetime);
}

static int print(const struct footprint *f, int n, enum table_form form)
{
    static const struct table_col cols[] = {
        { "class", "class", 's', 0 }, { "home", "home", 's', 0 }, { "min", "least", 'b', 0 }, { "mean", "mean", 'b', 0 },
        { "max", "most", 'b', 0 }, { "lifetime", "lifetime", 's', 0 },
    };
    struct spread by[N_HOMES][FOOT_CLASS_N] = { { { 0, 0, 0 } } }, all[N_HOMES] = { { 0, 0, 0 } };
    for (int r = 0; r < n; r++) {
        for (int c = 0; c < FOOT_CLASS_N; c++) {
            spread_add(&by[DEVICE][c], f[r].device[c], !r);
            spread_add(&by[HOST][c], f[r].host[c], !r);
        }
        spread_add(&all[DEVICE], f[r].device_bytes, !r);
        spread_add(&all[HOST], f[r].host_bytes, !r);
    }
    struct table *t = table_begin(form, "moe.memory-ranks/1", cols, 6);
    for (int h = 0; h < N_HOMES; h++)
        for (int c = 0; c < FOOT_CLASS_N; c++)
            if (by[h][c].max)
                row(t, footprint_class_name((enum foot_class)c), homes[h], &by[h][c], n,
                    footprint_is_kept((enum foot_class)c) ? "run" : "step");
    table_rule(t);
    for (int h = 0; h < N_HOMES; h++)
        row(t, "all", homes[h], &all[h], n, "those of a step share memory");
    return table_end(t);
}

static int say(const struct shard_model *m, const struct plan *p, const struct footprint_opts *o, const char *phase)
{
    char mesh[40], n[2][32];
    TRY(out_printf("by formula, for mesh %s (%s ranks): %s in slots and activations, %s gradients between ranks,\n",
                   mesh_text(mesh, plan_mesh(p)), units_count(n[0], plan_world(p)), dtype_name(m->compute), dtype_name(m->wire)));
    TRY(out_printf("%s expert rows a round, 2 layers of weights, %d of gradients; libraries not counted\n",
                   units_count(n[1], footprint_rows(&m->cfg.model, plan_mesh(p), o)), o->grad_slots));
    return out_printf("most is needed in \"%s\"\n", phase);
}

static int estimated(const struct shard_model *m, const struct memory_opts *o, const struct footprint_opts *fo, enum table_form form)
{
    struct plan *p = NULL;
    struct footprint *f = NULL;
    struct footprint_base *base = NULL;
    int rc;
    if (o->buffers)
        return err_set(ERR_USAGE, "--buffers: only a plan of one rank in fp32 knows every buffer");
    TRY_OUT(rc, shard_plan_of(m, o->ranks, &p));
    int n = mesh_shard(plan_mesh(p));
    if (o->rank >= plan_world(p)) {
        rc = err_set(ERR_USAGE, "--rank %lld: there are %d ranks, from 0", (long long)o->rank, plan_world(p));
        goto out;
    }
    f = arena_must(calloc((size_t)n, sizeof *f));
    base = footprint_open(p, m->compute, m->wire);
    footprint_ranks(base, fo, f);
    int one = o->rank < 0 ? 0 : mesh_owner(plan_mesh(p), (int)o->rank);
    TRY_OUT(rc, print(f + one, o->rank < 0 ? n : 1, form));
    if (form == TABLE_HUMAN)
        rc = say(m, p, fo, f[one].phase);
out:
    free(f);
    footprint_close(base);
    plan_free(p);
    return rc;
}

static int run(void *options, int argc, char **argv)
{
    const struct memory_opts *o = options;
    struct shard_model m;
    struct mesh mesh;
    struct footprint_opts fo;
    enum table_form form;
    TRY(shard_form(o->json, o->tsv, &form));
    int rc = shard_open(&o->in, argc, argv, &m);
    if (rc)
        return rc < 0 ? rc : 0;
    TRY_OUT(rc, shard_mesh_of(&m, o->ranks, &mesh));
    TRY_OUT(rc, shard_footprint_opts(&m, o->dtype, o->grad_slots, &fo));
    _Bool can_trace = mesh_world(mesh) == 1 && m.compute == DT_F32 && !o->estimate && o->rank < 1 &&
                      run_config_check_built(&m.cfg) == 0;
    err_clear();
    rc = can_trace ? traced(&m, o, form) : estimated(&m, o, &fo, form);
out:
    shard_close(&m);
    return rc;
}

const struct opt_cmd shard_memory_cmd = {
    "memory", "planned bytes of the ranks by class, device and host",
    "-c FILE [--ranks N] [--rank R] [--dtype T] [--grad-slots N] [--estimate] [-d NAME] [-j N] [--buffers] [--json | --tsv] [KEY=VALUE...]",
    "moe-shard memory -c etc/small.yaml\n"
    "moe-shard memory -c etc/small.yaml memory.boundary_every=0\n"
    "moe-shard memory -c etc/europa-952b.yaml\n",
    opts, sizeof(struct memory_opts), 0, -1, run
};
