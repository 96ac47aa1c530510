/* test_train_ranks.c -- what the ranks of a step say to each other, counted.
 *
 * By itself: how replicas share the parts of an owner.  The other forms are for
 * tests/ranks.bats, under mpirun:
 *
 * test_train_ranks resave FROM TO CONFIG [KEY=VALUE...]
 *      loads the newest checkpoint of the run FROM and saves what the ranks then
 *      hold in the run TO
 *
 * test_train_ranks count CONFIG [KEY=VALUE...]
 *      makes three steps (STEPS) of one micro-batch a rank on made-up tokens and prints, of the last one,
 *        update CALLS NORM SPREAD OTHER    collectives of the update: its all-reduces
 *                          (the norm), its gathers, all others; the most of any rank
 *        buckets N         that replicas_spread() has
 *        KIND MEASURED FORMULA   bytes, of the rank that has most: gather (weights
 *                          received), reduce (gradients sent), replicas, dispatch
 *        memory PLANNED USED FORMULA   bytes of the rank that has most
 *        waited SHARE      of the step, mean of the ranks, median of the steps
 *        step SECONDS      median, of the slowest rank
 *      THREADS, 1 without it, says how many each rank has */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "comm/comm.h"
#include "optim/optim.h"
#include "shard/footprint.h"
#include "shard/sharing.h"
#include "train/state.h"
#include "train/trainer.h"

enum { N_STEPS = 3, MAX_STEPS = 64 };

static void must(int rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "%s\n", err_msg());
    exit(err_status(rc));
}

static int from_env(const char *name, int otherwise)
{
    const char *s = getenv(name);

    return s ? atoi(s) : otherwise;
}

static struct comm_counts less(const struct comm_counts *a, const struct comm_counts *b)
{
    struct comm_counts d;

    for (int k = 0; k < COMM_N_KINDS; k++) {
        d.calls[k] = a->calls[k] - b->calls[k];
        d.sent[k] = a->sent[k] - b->sent[k];
        d.received[k] = a->received[k] - b->received[k];
    }
    d.wait_s = a->wait_s - b->wait_s;
    return d;
}

static struct comm_counts counts(const struct trainer *t)
{
    struct comm_counts c;

    comm_counts(t->opts.world, &c);
    return c;
}

/* ---- what the formulas say of the rank that has most */

static void formulas(const struct trainer *t, struct traffic *w, double *bytes)
{
    const struct run_config *c = t->cfg;
    struct footprint_base *b = footprint_open(t->plan, DT_F32, c->grad_dtype ? DT_BF16 : DT_F32);
    struct footprint_opts o = { .micro_tokens = c->micro_tokens, .seq_len = c->data.seq_len, .loss_chunk = c->loss_chunk,
                                .grad_slots = 2, .boundary_every = (int)c->boundary_every, .rows_cap = c->rows_cap,
                                .split_replicas = c->split_replicas };
    struct footprint *f = calloc((size_t)mesh_shard(t->mesh), sizeof *f);

    footprint_traffic(b, &o, w);
    /* The last two layers are still in their slots when backward begins, and are
     * not gathered again.  That is of one micro-batch a step; a second one would
     * find the first layers and both ends where the first has left them. */
    double n = (double)c->model.num_hidden_layers;
    w->gather_bwd *= (n - 2) / n;
    footprint_ranks(b, &o, f);
    *bytes = 0;
    for (int r = 0; r < mesh_shard(t->mesh); r++)
        *bytes = (double)f[r].device_bytes > *bytes ? (double)f[r].device_bytes : *bytes;
    free(f);
    footprint_close(b);
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return a < b ? -1 : a > b;
}

static int count_main(int argc, char **argv)
{
    struct run_config c;
    struct comm *world;
    struct trainer *t;
    struct traffic w;
    struct step_facts f;
    struct comm_counts grads = { .wait_s = 0 }, update = grads, at;
    enum { NORM, SPREAD, OTHER, BUCKETS, GATHER, REDUCE, REPLICAS, DISPATCH, PLANNED, USED, N };
    double most[N] = { 0 }, share[MAX_STEPS], step_s[MAX_STEPS], formula;
    int n_steps = from_env("STEPS", N_STEPS);

    n_steps = n_steps > MAX_STEPS ? MAX_STEPS : n_steps;

    must(run_config_load(argv[2], argv + 3, argc - 3, &c));
    c.tokenizer = NULL;
    must(comm_open("mpi", NULL, &world));
    struct trainer_options o = { .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA | TRAINER_SYNTHETIC,
                                 .device = "cpu", .threads = from_env("THREADS", 1), .world = world };
    must(trainer_open(&c, &o, &t));
    trainer_init(t);
    for (int i = 0; i < n_steps; i++) {
        double t0 = clock_s();
        at = counts(t);
        must(trainer_gradients(t, &f));
        struct comm_counts mid = counts(t);
        grads = less(&mid, &at);
        must(trainer_update(t, &f));
        at = counts(t);
        update = less(&at, &mid);
        step_s[i] = clock_s() - t0;
        share[i] = (grads.wait_s + update.wait_s) / step_s[i];
    }
    formulas(t, &w, &formula);
    int64_t split = 0;
    for (int i = 0; c.split_replicas && i < t->own.n_parts; i++) {
        const struct param *p = &t->table.v[t->own.parts[i].i_param];
        if (p->optim != PARAM_NONE && t->stepped->of_param[t->own.parts[i].i_param] < 0)
            split += t->own.parts[i].n_rows * p->cols * 4;
    }
    most[NORM] = (double)update.calls[COMM_ALL_REDUCE];
    most[SPREAD] = (double)update.calls[COMM_GATHER];
    for (int k = 0; k < COMM_N_KINDS; k++)
        most[OTHER] += k == COMM_ALL_REDUCE || k == COMM_GATHER ? 0 : (double)update.calls[k];
    most[BUCKETS] = replicas_n_buckets(t->replicas);
    most[GATHER] = (double)grads.received[COMM_GATHER];
    /* Replicas that share the work reduce what an owner has once more. */
    most[REDUCE] = (double)(grads.sent[COMM_REDUCE] - split);
    most[REPLICAS] = (double)(grads.sent[COMM_ALL_REDUCE] + split + update.sent[COMM_GATHER]);
    most[DISPATCH] = (double)grads.sent[COMM_ALL_TO_ALL];
    most[PLANNED] = (double)mem_planned(t->mem);
    most[USED] = (double)mem_used(t->mem);
    must(comm_all_reduce(world, most, N, DT_F64, COMM_MAX));
    must(comm_all_reduce(world, share, n_steps, DT_F64, COMM_SUM));
    must(comm_all_reduce(world, step_s, n_steps, DT_F64, COMM_MAX));
    qsort(share, (size_t)n_steps, sizeof *share, by_value);
    qsort(step_s, (size_t)n_steps, sizeof *step_s, by_value);
    if (comm_rank(world) == 0)
        printf("update %.0f %.0f %.0f\nbuckets %.0f\ngather %.0f %.0f\nreduce %.0f %.0f\nreplicas %.0f %.0f\ndispatch %.0f %.0f\n"
               "memory %.0f %.0f %.0f\nwaited %.3f\nstep %.4f\n", most[NORM], most[SPREAD], most[OTHER], most[BUCKETS], most[GATHER],
               w.gather_fwd + w.gather_bwd, most[REDUCE], w.reduce, most[REPLICAS], w.replicas, most[DISPATCH], w.dispatch,
               most[PLANNED], most[USED], formula, share[n_steps / 2] / comm_size(world), step_s[n_steps / 2]);
    trainer_close(t);
    comm_close(world);
    run_config_fini(&c);
    return 0;
}

static int resave_main(int argc, char **argv)
{
    struct run_config c;
    struct comm *world;
    struct trainer *t;
    struct ckpt *k;

    must(run_config_load(argv[4], argv + 5, argc - 5, &c));
    must(comm_open("mpi", NULL, &world));
    struct trainer_options o = { .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA, .device = "cpu", .threads = 1,
                                 .world = world };
    must(trainer_open(&c, &o, &t));
    must(ckpt_open(argv[2], CKPT_NEED_MANIFEST, &k));
    must(state_load(t, k));
    struct run_identity id = { .tool = "test", .argv = argv, .argc = argc, .run_id = ckpt_manifest(k)->info.run_id,
                               .plan = plan_hash(t->plan) };
    struct state_policy all = { MANIFEST_FULL, 0, 0 };
    must(state_save(t, argv[3], &id, &all));
    ckpt_close(k);
    trainer_close(t);
    comm_close(world);
    run_config_fini(&c);
    return 0;
}

/* ---- sharing.h */

static double ns_flops(const void *ctx, const struct param *p)
{
    return optim_ns_flops(p, ctx);
}

static void every_part_is_stepped_by_one_replica_and_the_work_is_even(void **state)
{
    char *keys[] = { (char[]){ "model.model_type=qwen3_moe" }, (char[]){ "model.hidden_size=64" },
                     (char[]){ "model.num_hidden_layers=6" }, (char[]){ "model.num_attention_heads=4" },
                     (char[]){ "model.num_key_value_heads=2" }, (char[]){ "model.head_dim=16" }, (char[]){ "model.vocab_size=512" },
                     (char[]){ "model.num_experts=12" }, (char[]){ "model.num_experts_per_tok=2" },
                     (char[]){ "model.moe_intermediate_size=32" }, (char[]){ "data.seq_len=64" },
                     (char[]){ "train.micro_tokens=64" }, (char[]){ "train.tokens_per_step=64" } };
    struct run_config c;
    struct param_table table;
    struct arena *a = arena_new();
    struct plan *p;
    struct mesh m;
    double work[8][4] = { { 0 } };

    (void)state;
    if (run_config_load(NULL, keys, (int)(sizeof keys / sizeof *keys), &c) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(params_build(a, &c.model, &table), 0);
    assert_int_equal(mesh_make(4, 2, 2, 16, 12, &m), 0);
    struct plan_costs costs = { optim_state_bytes, ns_flops, &c.optim };
    assert_int_equal(plan_make(&table, &costs, run_config_plan_digest(&c), m, &p), 0);
    int64_t n = plan_n_parts(p);
    int *of = arena_array(a, (size_t)n, sizeof *of), *again = arena_array(a, (size_t)n, sizeof *of);
    sharing_replica(a, p, of);
    sharing_replica(a, p, again);
    assert_memory_equal(of, again, (size_t)n * sizeof *of);
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct plan_part *x = plan_part(p, i);
        assert_in_range(of[i], 0, 3);
        work[x->owner][of[i]] += x->ns_flops;
        largest = x->ns_flops > largest ? x->ns_flops : largest;
    }
    /* Longest first: no two replicas differ by more than one matrix. */
    for (int o = 0; o < 4; o++)
        for (int r = 0; r < 4; r++)
            for (int s = 0; s < 4; s++)
                assert_true(work[o][r] - work[o][s] <= largest);
    plan_free(p);
    run_config_fini(&c);
    arena_free(a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_stepped_by_one_replica_and_the_work_is_even),
    };

    if (argc > 2 && !strcmp(argv[1], "count"))
        return count_main(argc, argv);
    if (argc > 4 && !strcmp(argv[1], "resave"))
        return resave_main(argc, argv);
    return cmocka_run_group_tests_name("train_ranks", tests, NULL, NULL);
}
