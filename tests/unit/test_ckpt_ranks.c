/* test_ckpt_ranks.c -- one checkpoint from many ranks.
 *
 * By itself: who writes what, borders between owners, what a rank reads.  The
 * other forms are for tests/ckpt_ranks.bats, under mpirun:
 *
 * test_ckpt_ranks save RUN STEP KEEP REPLICAS [ROWS] [HOW]
 *         saves the toy from all ranks of the world; its largest tensor has ROWS
 *         rows (13) of 515 floats.  HOW: "drift", a replica holds another byte;
 *         "other", the last rank declares one tensor less; "hole", the last rank
 *         has no data; "beside", it is written by a thread and overwritten here
 *         meanwhile.  Prints "STATUS: sentence", on rank 0 only, when it fails.
 * test_ckpt_ranks load RUN STEP SHARD [ROWS]
 *         every byte of the checkpoint must be the toy; prints how many bytes
 *         beyond its own SHARD owners together have to read
 * test_ckpt_ranks product RUN STEP REPLICAS STRIDE [HOW]
 *         with the fault library before it: saves STEP + 1 again and again, and
 *         in turn each call of each kind fails on one rank, then on all; prints
 *         "STATUS: sentence" where something is not as it must be, else the cases */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/pool.h"
#include "ckpt/load.h"
#include "ckpt/run.h"
#include "ckpt/save.h"
#include "ckpt/save_impl.h"
#include "ckpt/verify.h"
#include "comm/comm.h"
#include "unit/ckpt_toy.h"

/* ---- the toy */

enum lies { SPLIT, OWNED, ON_ALL, ON_LAST_REPLICA };

struct thing { const char *name; enum ckpt_group group; enum lies lies; int n_dims; int64_t shape[2]; };

static struct thing things[] = {
    { "model.embed_tokens.weight", CKPT_MODEL, SPLIT, 2, { 13, 515 } },
    { "model.layers.0.q.weight", CKPT_MODEL, OWNED, 2, { 5, 3 } },
    { "model.layers.0.experts.0.up.weight", CKPT_MODEL, OWNED, 2, { 4, 9 } },
    { "model.layers.0.experts.1.up.weight", CKPT_MODEL, OWNED, 2, { 4, 9 } },
    { "model.layers.0.experts.2.up.weight", CKPT_MODEL, OWNED, 2, { 4, 9 } },
    { "model.layers.0.bias", CKPT_MODEL, OWNED, 1, { 7 } },
    { "model.none", CKPT_MODEL, SPLIT, 2, { 0, 4 } },
    { "model.scalar", CKPT_MODEL, OWNED, 0, { 0 } },
    { "lm_head.weight", CKPT_MODEL, SPLIT, 2, { 3, 40 } },
    { "model.embed_tokens.weight.exp_avg", CKPT_OPTIM, SPLIT, 2, { 13, 515 } },
    { "model.embed_tokens.weight.exp_avg_sq", CKPT_OPTIM, SPLIT, 2, { 13, 515 } },
    { "model.layers.0.q.weight.momentum", CKPT_OPTIM, ON_LAST_REPLICA, 2, { 5, 3 } },
    { "model.layers.0.gate.weight.expert_counts", CKPT_OPTIM, ON_ALL, 1, { 3 } },
};

#define N_THINGS ((int)(sizeof things / sizeof *things))

static void set_rows(int64_t rows)
{
    for (int i = 0; i < N_THINGS; i++)
        if (things[i].shape[0] == 13)
            things[i].shape[0] = rows;
}

static int64_t width(const struct thing *t) { return t->n_dims == 2 ? t->shape[1] : 1; }
static int64_t height(const struct thing *t) { return t->n_dims ? t->shape[0] : 1; }

static float value(int i, int64_t at, int64_t step)
{
    return (float)(at % 100003) * 0.5f - (float)i * 3.25f + (float)step * 1024;
}

/* Row where the part of an owner begins; of few rows the last owners have none. */
static int64_t border(int64_t rows, int shard, int owner)
{
    int64_t each = (rows + shard - 1) / shard;

    return owner * each < rows ? owner * each : rows;
}

static float *fill(int i, int64_t first, int64_t n, int64_t step)
{
    float *v = malloc((size_t)n * sizeof *v + 1);

    for (int64_t k = 0; v && k < n; k++)
        v[k] = value(i, first + k, step);
    return v;
}

/* ---- saving */

struct saver { int rank, size, shard, replicas; int64_t step; const char *how; float *mem[2 * N_THINGS]; int n_mem; };

static int add_thing(struct saver *v, struct ckpt_save *s, int i)
{
    const struct thing *t = &things[i];
    struct ckpt_rows rows[64];
    int n = t->lies == SPLIT ? v->shard : 1;

    for (int k = 0; k < n; k++) {
        struct ckpt_rows *r = &rows[k];

        *r = (struct ckpt_rows){ .n_rows = height(t), .holder = i % v->shard, .stride = v->shard, .n_holders = v->replicas };
        if (t->lies == SPLIT) {
            r->first_row = border(height(t), v->shard, k);
            r->n_rows = border(height(t), v->shard, k + 1) - r->first_row;
            r->holder = k;
        }
        if (t->lies == ON_LAST_REPLICA) {
            r->holder += (v->replicas - 1) * v->shard;
            r->n_holders = 1;
        }
        if (t->lies == ON_ALL)
            *r = (struct ckpt_rows){ .n_rows = height(t), .stride = 1, .n_holders = v->size };
        if (save_plan_holds(r, v->rank) && !(!strcmp(v->how, "hole") && v->rank == v->size - 1)) {
            float *mem = fill(i, r->first_row * width(t), r->n_rows * width(t), v->step);

            if (!strcmp(v->how, "drift") && i == 2 && v->rank >= v->shard)
                mem[35] = -mem[35];
            r->data = v->mem[v->n_mem++] = mem;
        }
    }
    if (t->lies == ON_ALL)
        return ckpt_save_tensor(s, t->group, t->name, DT_F32, t->n_dims, t->shape, rows[0].data);
    return ckpt_save_rows(s, t->group, t->name, DT_F32, t->n_dims, t->shape, rows, n);
}

static int add_all(struct saver *v, struct ckpt_save *s)
{
    for (int i = 0; i < N_THINGS; i++)
        if (strcmp(v->how, "other") || v->rank != v->size - 1 || i != 4)
            TRY(add_thing(v, s, i));
    return 0;
}

/* What was added is freed too: only the copy can be what is written. */
static void spoil(struct saver *v)
{
    while (v->n_mem > 0) {
        memset(v->mem[--v->n_mem], 0xee, 4);
        free(v->mem[v->n_mem]);
    }
}

static size_t stage_bytes(struct saver *v)
{
    struct ckpt_save *s = ckpt_save_rehearse(v->rank, v->size);
    size_t n = add_all(v, s) == 0 ? ckpt_save_stage_bytes(s) : 0;

    ckpt_save_abort(s);
    spoil(v);
    return n;
}

/* As conduct does it between steps. */
static int see_through(struct comm *c, struct ckpt_save *s)
{
    struct ckpt_save_facts facts = { 0 };

    for (int rc = 1; rc > 0;) {
        int64_t busy = ckpt_save_busy(s);

        TRY(comm_all_reduce(c, &busy, 1, DT_I64, COMM_MAX));
        if (busy)
            continue;
        TRY(rc = ckpt_save_next(s, &facts));
    }
    if (comm_rank(c) == 0 && (facts.bytes < 80000 || facts.write_s <= 0 || facts.commit_s <= 0))
        return err_set(ERR_NO, "%d bytes in %g and %g s?", (int)facts.bytes, facts.write_s, facts.commit_s);
    return 0;
}

static int save_all(struct saver *v, struct comm *c, const char *run, int keep)
{
    _Bool beside = !strcmp(v->how, "beside");
    struct ckpt_writer *w = NULL;
    struct manifest_info info = toy_info(v->step);
    struct ckpt_save *s;
    void *stage = NULL;
    size_t n;
    int rc;

    if (beside) {
        n = stage_bytes(v);
        stage = malloc(n + 1);
        if (!stage)
            return err_set(ERR_IO, "out of memory");
        TRY(ckpt_writer_new(stage, n, &w));
    }
    info.replicas = v->replicas;
    info.efsdp = v->shard;
    info.ep = 1;
    TRY_OUT(rc, ckpt_save_begin_ranks(c, run, &info, 20000, &s));
    if (beside)
        ckpt_save_beside(s, w);
    rc = ckpt_save_file(s, "config.json", "{}\n", 3);
    if (rc == 0)
        rc = add_all(v, s);
    if (rc == 0)
        rc = ckpt_save_check_replicas(s);
    if (rc == 0)
        rc = beside ? ckpt_save_start(s, keep) : ckpt_save_write(s);
    if (rc < 0) {
        ckpt_save_abort(s);
        goto out;
    }
    if (!beside)
        return ckpt_save_commit(s, keep);
    ckpt_save_copied(s);
    spoil(v);
    rc = see_through(c, s);
out:
    ckpt_writer_free(w);
    free(stage);
    return rc;
}

static int save_main(int argc, char **argv)
{
    struct saver v = { .step = atoll(argv[3]), .replicas = atoi(argv[5]), .how = argc > 7 ? argv[7] : "" };
    struct comm *c = NULL;
    int rc;

    set_rows(argc > 6 ? atoll(argv[6]) : 13);
    rc = comm_open("mpi", NULL, &c);
    if (rc == 0) {
        v.rank = comm_rank(c);
        v.size = comm_size(c);
        v.shard = v.size / v.replicas;
        /* More than the toy takes, so that what it asks for beyond is seen. */
        rc = pool_reserve(ckpt_save_memory_ranks(N_THINGS, N_THINGS * v.shard, v.size, (uint64_t)(things[0].shape[0] * 515 * 4)));
        if (rc == 0)
            rc = save_all(&v, c, argv[2], atoi(argv[4]));
    }
    if (rc < 0 && (!c || v.rank == 0))
        printf("%d: %s\n", err_status(rc), err_msg());
    if (rc == 0 && pool_overflow())
        printf("rank %d: %d requests did not fit\n", v.rank, (int)pool_overflow());
    fflush(stdout);     /* once another rank has ended with a status, this one may be killed */
    for (int i = 0; i < v.n_mem; i++)
        free(v.mem[i]);
    comm_close(c);
    return err_status(rc);
}

/* ---- with each call failing in turn */

struct product { struct saver v; struct comm *c; const char *run, *dir; long n_cases; void (*plan)(const char *, const char *); long (*count)(const char *); };

static int check_all(const struct ckpt *c, int64_t step, int shard, int64_t *extra);

/* On rank 0, after a save that ended with rc and a sentence; where: the ranks it
 * may have come from, -1: any. */
static int judge(struct product *p, int rc, int where, const char *cause)
{
    struct arena *a = arena_new();
    char want[64], step[32];
    int64_t extra = 0;
    struct ckpt *c;
    char **names;
    int n;

    snprintf(want, sizeof want, "rank %d on ", where);
    if (rc < 0 && ((err_status(rc) != 73 && err_status(rc) != 74) || !strstr(err_msg(), cause) || !strstr(err_msg(), p->run) ||
                   (where >= 0 && strncmp(err_msg(), want, strlen(want)))))
        rc = err_set(ERR_NO, "status %d: %s", err_status(rc), arena_strdup(a, err_msg()));
    else
        rc = ckpt_open(p->run, CKPT_NEED_MANIFEST | CKPT_NO_FALLBACK, &c);
    if (rc == 0) {
        rc = check_all(c, ckpt_manifest(c)->info.step, p->v.shard, &extra);
        ckpt_close(c);
    }
    if (rc == 0)
        rc = fs_list(a, fs_join(a, p->run, "ckpt"), &names, &n);
    for (int i = 0; rc == 0 && i < n; i++)
        if (ckpt_is_temp(names[i]))
            rc = err_set(ERR_NO, "%s is left", names[i]);
    /* As it was before. */
    if (rc == 0)
        rc = fs_remove_tree(fs_join(a, fs_join(a, p->run, "ckpt"), ckpt_step_name(step, p->v.step)));
    if (rc == 0)
        rc = fs_symlink_replace(arena_printf(a, "ckpt/%s", ckpt_step_name(step, p->v.step - 1)), fs_join(a, p->run, "latest"));
    arena_free(a);
    return rc;
}

/* Returns the most calls of the kind that a rank made, or an error. */
static int64_t one_case(struct product *p, const char *kind, long n, const char *action, const char *cause, int where)
{
    _Bool mine = where < 0 || where == p->v.rank;
    char spec[64];
    int64_t calls, codes[2];
    int rc;

    snprintf(spec, sizeof spec, "%s:%ld:%s", kind, n, action);
    p->plan(mine ? spec : NULL, p->dir);
    rc = save_all(&p->v, p->c, p->run, 0);
    calls = mine ? p->count(kind) : 0;
    p->plan(NULL, "/");
    spoil(&p->v);
    p->n_cases++;
    codes[0] = rc;
    codes[1] = -rc;
    TRY(comm_all_reduce(p->c, codes, 2, DT_I64, COMM_MAX));
    TRY(comm_all_reduce(p->c, &calls, 1, DT_I64, COMM_MAX));
    if (codes[0] != -codes[1])
        rc = err_set(ERR_NO, "the ranks end with %d and %d", (int)codes[0], (int)-codes[1]);
    else if (p->v.rank == 0)
        rc = judge(p, rc, where, cause);
    else
        rc = 0;
    if (rc < 0)
        err_add("%s on rank %d", spec, where);
    TRY(comm_agree(p->c, rc));
    return calls;
}

static int product(struct product *p, int stride)
{
    static const char *const kinds[] = { "open", "close", "pwrite", "fallocate", "fsync", "mkdir", "rename", "symlink" };
    static const struct { const char *word, *text; } actions[] = { { "EIO", "Input/output error" }, { "ENOSPC", "No space left" } };
    int turn = 0;

    for (int where = -1; where < p->v.size; where++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (int a = 0; a < 2; a++)
                for (long n = 1 + turn++ % stride;; n += stride) {
                    int64_t calls = one_case(p, kinds[k], n, actions[a].word, actions[a].text, where);

                    if (calls < 0)
                        return (int)calls;
                    if (calls < n)
                        break;
                }
    return 0;
}

static int product_main(int argc, char **argv)
{
    struct product p = { .v = { .step = atoll(argv[3]) + 1, .replicas = atoi(argv[4]), .how = argc > 6 ? argv[6] : "" }, .run = argv[2] };
    char dir[4096];
    int rc;

    *(void **)&p.plan = dlsym(RTLD_DEFAULT, "fault_plan");
    *(void **)&p.count = dlsym(RTLD_DEFAULT, "fault_count");
    if (!p.plan || !p.count || !realpath(p.run, dir))
        return 99;
    p.dir = dir;
    p.plan(NULL, "/");
    set_rows(13);
    rc = comm_open("mpi", NULL, &p.c);
    if (rc == 0) {
        p.v.rank = comm_rank(p.c);
        p.v.size = comm_size(p.c);
        p.v.shard = p.v.size / p.v.replicas;
        rc = product(&p, atoi(argv[5]));
    }
    if (p.c && p.v.rank == 0)
        printf(rc < 0 ? "%d: %s\n" : "%d cases%s\n", rc < 0 ? err_status(rc) : (int)p.n_cases, rc < 0 ? err_msg() : "");
    fflush(stdout);
    comm_close(p.c);
    return err_status(rc);
}

/* ---- loading */

/* Bytes this process has read; -1 where the system does not say. */
static int64_t bytes_read(void)
{
    char text[256] = "";
    FILE *f = fopen("/proc/self/io", "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    if (f)
        fclose(f);
    return n && !strncmp(text, "rchar: ", 7) ? atoll(text + 7) : -1;
}

/* Elements [first, first + n) are those of the toy, to the bit. */
static int check_range(const struct ckpt *c, int i, int64_t first, int64_t n, int64_t step, int64_t *took)
{
    const struct ckpt_tensor *t;
    float *want = fill(i, first, n, step), *got = malloc((size_t)n * sizeof *got + 1);
    int64_t before, cost;
    int rc;

    rc = ckpt_need(c, things[i].name, things[i].n_dims, things[i].shape, &t);
    before = bytes_read();
    cost = bytes_read() - before;
    before = bytes_read();
    if (rc == 0)
        rc = ckpt_read_f32(c, t, first, n, got);
    *took = bytes_read() - before - cost;
    if (rc == 0 && n && memcmp(got, want, (size_t)n * sizeof *got))
        rc = err_set(ERR_NO, "%s: other values in [%d, %d)", things[i].name, (int)first, (int)(first + n));
    free(want);
    free(got);
    return rc;
}

static int check_all(const struct ckpt *c, int64_t step, int shard, int64_t *extra)
{
    int64_t took;

    if (ckpt_n_tensors(c) != N_THINGS)
        return err_set(ERR_NO, "%d tensors, not %d", (int)ckpt_n_tensors(c), N_THINGS);
    for (int i = 0; i < N_THINGS; i++) {
        TRY(check_range(c, i, 0, height(&things[i]) * width(&things[i]), step, &took));
        for (int k = 0; k < shard && things[i].lies == SPLIT; k++) {
            int64_t first = border(height(&things[i]), shard, k) * width(&things[i]);
            int64_t n = border(height(&things[i]), shard, k + 1) * width(&things[i]) - first;

            TRY(check_range(c, i, first, n, step, &took));
            *extra += took - 4 * n;
        }
    }
    return 0;
}

static int load_main(int argc, char **argv)
{
    struct ckpt_verify v = { 0 };
    struct ckpt *c;
    int64_t extra = 0;
    int rc;

    set_rows(argc > 5 ? atoll(argv[5]) : 13);
    rc = ckpt_open(argv[2], CKPT_NEED_MANIFEST | CKPT_NO_FALLBACK, &c);
    if (rc == 0) {
        rc = check_all(c, atoll(argv[3]), atoi(argv[4]), &extra);
        if (rc == 0)
            rc = ckpt_verify(ckpt_path(c), &v);
        if (rc == 0 && v.n_problems)
            rc = err_set(ERR_NO, "verify finds %d problems", (int)v.n_problems);
        ckpt_close(c);
    }
    if (rc < 0)
        printf("%d: %s\n", err_status(rc), err_msg());
    else
        printf("extra %d\n", bytes_read() < 0 ? 0 : (int)extra);
    return err_status(rc);
}

/* ---- alone */

/* Every layout of up to 12 ranks: the toy's tensors, many times over. */
static void every_tensor_has_one_writer_who_holds_it(void **state)
{
    enum { COPIES = 40, N = COPIES * N_THINGS };

    (void)state;
    for (int size = 1; size <= 12; size++)
        for (int replicas = 1; replicas <= size; replicas++) {
            uint64_t load[12] = { 0 }, most = 0, largest = 0, sum = 0;
            int shard = size / replicas, last = -1;
            struct save_tensor *t;
            struct save_plan p;
            struct arena *a;

            if (size % replicas)
                continue;
            a = arena_new();
            t = arena_array(a, N, sizeof *t);
            for (int i = 0; i < N; i++) {
                const struct thing *th = &things[i % N_THINGS];

                t[i] = (struct save_tensor){ .group = th->group, .bytes = 4 * (uint64_t)(height(th) * width(th)) };
                t[i].n_rows = th->lies == SPLIT ? shard : 1;
                t[i].rows = arena_array(a, (size_t)shard, sizeof *t[i].rows);
                for (int k = 0; k < t[i].n_rows; k++)
                    t[i].rows[k] = (struct ckpt_rows){ .holder = th->lies == SPLIT ? k : i % shard, .stride = shard, .n_holders = replicas };
                largest = t[i].bytes > largest ? t[i].bytes : largest;
                sum += t[i].bytes;
            }
            save_plan(a, t, N, size, 20000, &p);
            for (int i = 0; i < N; i++) {
                _Bool holds = 0;

                for (int k = 0; k < t[i].n_rows; k++)
                    holds |= save_plan_holds(&t[i].rows[k], t[i].writer);
                assert_true(holds);
                assert_int_equal(p.files[t[i].i_file].writer, t[i].writer);
                assert_int_equal(p.files[t[i].i_file].group, t[i].group);
                assert_int_equal(p.order[p.files[t[i].i_file].first + t[i].i_in_file], i);
                load[t[i].writer] += t[i].bytes;
            }
            for (int i = 0; i < p.n_files; i++) {
                int place = (int)p.files[i].group * size + p.files[i].writer, some = 0;
                uint64_t bytes = 0;

                for (int64_t k = 0; k < p.files[i].n; k++) {
                    bytes += t[p.order[p.files[i].first + k]].bytes;
                    some += t[p.order[p.files[i].first + k]].bytes > 0;
                }
                assert_true(p.files[i].n > 0);
                assert_true(bytes <= 20000 || some == 1);
                assert_true(place >= last);
                last = place;
            }
            for (int i = 0; i < size; i++)
                most = load[i] > most ? load[i] : most;
            assert_true(most <= sum / (uint64_t)size + 2 * largest);
            arena_free(a);
        }
}

static void rows_come_from_the_nearest_holder(void **state)
{
    struct ckpt_rows one = { .holder = 5, .n_holders = 1 }, three = { .holder = 1, .stride = 4, .n_holders = 3 };

    (void)state;
    assert_int_equal(save_plan_sender(&one, 0), 5);
    assert_int_equal(save_plan_sender(&one, 11), 5);
    for (int w = 0; w < 16; w++) {
        int best = 1;

        for (int h = 1; h <= 9; h += 4)
            if (abs(h - w) < abs(best - w))
                best = h;
        assert_int_equal(save_plan_sender(&three, w), best);
        assert_int_equal(save_plan_holds(&three, w), w == 1 || w == 5 || w == 9);
    }
}

/* Also shows that one process cuts where several owners would. */
static void an_owner_reads_and_trusts_its_own_rows_only(void **state)
{
    enum { ROWS = 11, COLS = 100 };
    static const int64_t cut[] = { 0, 3, 3, 4, ROWS };
    static float v[ROWS * COLS], got[ROWS * COLS];
    struct manifest_info info = toy_info(1);
    struct ckpt_rows rows[4];
    struct ckpt_save *s;
    struct ckpt *c;
    const struct ckpt_tensor *t;
    const char *run = toy_mkdir();
    char *data;
    size_t n;

    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        v[i] = (float)i;
    for (int k = 0; k < 4; k++)
        rows[k] = (struct ckpt_rows){ .first_row = cut[k], .n_rows = cut[k + 1] - cut[k], .n_holders = 1, .data = v + cut[k] * COLS };
    assert_int_equal(ckpt_save_begin(run, &info, 0, &s), 0);
    assert_int_equal(ckpt_save_rows(s, CKPT_MODEL, "w", DT_F32, 2, (int64_t[]){ ROWS, COLS }, rows, 4), 0);
    assert_int_equal(ckpt_save_check_replicas(s), 0);
    assert_int_equal(ckpt_save_write(s), 0);
    assert_int_equal(ckpt_save_commit(s, 0), 0);
    assert_int_equal(ckpt_open(run, CKPT_NEED_MANIFEST, &c), 0);
    t = ckpt_find(c, "w");
    assert_int_equal(t->n_parts, 3);
    /* The last byte of row 3 goes bad: who reads it is told, nobody else. */
    toy_get(toy_path(run, "latest/model-00001-of-00001.safetensors"), &data, &n);
    data[t->offset + 4 * 4 * COLS - 1] ^= 1;
    toy_put(toy_path(run, "latest/model-00001-of-00001.safetensors"), data, n);
    free(data);
    for (int k = 0; k < 4; k++) {
        size_t bytes = (size_t)(cut[k + 1] - cut[k]) * COLS * 4;
        int64_t before, cost;

        before = bytes_read();
        cost = bytes_read() - before;
        before = bytes_read();
        assert_int_equal(ckpt_read(c, t, (uint64_t)cut[k] * COLS * 4, bytes, got), k == 2 ? ERR_DATA : 0);
        if (before >= 0)
            assert_int_equal(bytes_read() - before - cost, bytes);
        if (k != 2)
            assert_memory_equal(got, v + cut[k] * COLS, bytes);
    }
    ckpt_close(c);
    toy_rmdir(run);
}

static void rows_that_do_not_make_up_a_tensor_are_refused(void **state)
{
    static const float v[40];
    static const struct ckpt_rows bad[][2] = {
        { { 0, 2, 0, 1, 1, v }, { 3, 1, 0, 1, 1, v } },
        { { 0, 2, 0, 1, 1, v }, { 1, 3, 0, 1, 1, v } },
        { { 0, 2, 0, 1, 1, v }, { 2, 1, 0, 1, 1, v } },
        { { 0, 2, 0, 1, 1, v }, { 2, 2, 1, 1, 1, v } },
        { { 0, 2, 0, 1, 1, v }, { 2, 2, 0, 1, 2, v } },
        { { 0, 2, 0, 1, 1, v }, { 2, 2, 0, 1, 0, v } },
        { { 0, 2, 0, 1, 1, v }, { 2, 2, 0, 1, 1, NULL } },
    };
    struct manifest_info info = toy_info(1);
    const char *run = toy_mkdir();

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ckpt_save *s;

        assert_int_equal(ckpt_save_begin(run, &info, 0, &s), 0);
        assert_int_equal(ckpt_save_rows(s, CKPT_MODEL, "w", DT_F32, 2, (int64_t[]){ 4, 10 }, bad[i], 2), ERR_BUG);
        assert_non_null(strstr(err_msg(), "tensor \"w\""));
        ckpt_save_abort(s);
    }
    toy_rmdir(run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_has_one_writer_who_holds_it),
        cmocka_unit_test(rows_come_from_the_nearest_holder),
        cmocka_unit_test(an_owner_reads_and_trusts_its_own_rows_only),
        cmocka_unit_test(rows_that_do_not_make_up_a_tensor_are_refused),
    };

    if (argc > 5 && !strcmp(argv[1], "product"))
        return product_main(argc, argv);
    if (argc > 5 && !strcmp(argv[1], "save"))
        return save_main(argc, argv);
    if (argc > 4 && !strcmp(argv[1], "load"))
        return load_main(argc, argv);
    return cmocka_run_group_tests_name("ckpt_ranks", tests, NULL, NULL);
}
