/* comm_cases.c -- what every back end must do, bit for bit.
 *
 * Expected values come from formulas every rank can compute for all others; sums
 * of inexact numbers are expected in ascending rank order. */
#include "comm/comm_conform.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

/* Small integers: every sum is exact in every type, BF16 included. */
static int whole(int rank, int64_t k, int64_t i)
{
    return (int)((rank * 37 + k * 101 + i * 13) % 41) - 20;
}

/* Full mantissas over many binades: the order of a sum shows in its bits. */
static float rough(int rank, int64_t k, int64_t i)
{
    uint64_t x = (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u + (uint64_t)k * 0xbf58476d1ce4e5b9u + (uint64_t)i * 0x94d049bb133111ebu;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    return ldexpf((float)(int32_t)x, (int)(x >> 40 & 15) - 30);
}

static unsigned char byte_of(int rank, int64_t k, int64_t i)
{
    return (unsigned char)(rank * 89 + k * 29 + i * 7 + (i >> 8));
}

static unsigned char *bytes(struct comm_conform *t, int rank, int64_t k, int64_t n)
{
    unsigned char *p = arena_alloc(t->a, (size_t)n + 1);

    for (int64_t i = 0; i < n; i++)
        p[i] = byte_of(rank, k, i);
    return p;
}

static void *blank(struct comm_conform *t, int64_t n)
{
    void *p = arena_alloc(t->a, (size_t)n + 1);

    memset(p, 0xa5, (size_t)n + 1);
    return p;
}

/* The byte behind the end must be untouched too. */
static void same_bytes(struct comm_conform *t, const char *what, const unsigned char *p, int rank, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (p[i] != byte_of(rank, k, i)) {
            comm_failed(t, "%s: byte %lld of %lld from rank %d differs", what, (long long)i, (long long)n, rank);
            return;
        }
    CHECK(t, p[n] == 0xa5, "%s: wrote behind the end", what);
}

static const int64_t sizes[] = { 0, 1, 7, 1000, 4097, 300001 };
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void put(void *v, enum dtype dt, int64_t i, double x)
{
    switch (dt) {
    case DT_F32:
        ((float *)v)[i] = (float)x;
        break;
    case DT_F64:
        ((double *)v)[i] = x;
        break;
    case DT_I32:
        ((int32_t *)v)[i] = (int32_t)x;
        break;
    case DT_BF16:
        ((uint16_t *)v)[i] = dtype_to_bf16((float)x);
        break;
    default:
        ((int64_t *)v)[i] = (int64_t)x;
    }
}

static double got(const void *v, enum dtype dt, int64_t i)
{
    switch (dt) {
    case DT_F32:
        return (double)((const float *)v)[i];
    case DT_F64:
        return ((const double *)v)[i];
    case DT_I32:
        return ((const int32_t *)v)[i];
    default:
        return (double)((const int64_t *)v)[i];
    }
}

static double expected(struct comm_conform *t, enum comm_op op, int64_t k, int64_t i)
{
    double x = whole(0, k, i), y;

    for (int r = 1; r < t->size; r++) {
        y = whole(r, k, i);
        x = op == COMM_SUM ? x + y : op == COMM_MAX ? fmax(x, y) : fmin(x, y);
    }
    return x;
}

static void all_reduce_of_every_type_and_size(struct comm_conform *t)
{
    static const enum dtype types[] = { DT_F32, DT_F64, DT_I32, DT_I64 };

    for (int s = 0; s < N_SIZES; s++)
        for (int d = 0; d < 4; d++)
            for (int op = COMM_SUM; op <= COMM_MIN; op++) {
                int64_t n = sizes[s] / (s == N_SIZES - 1 ? 10 : 1);
                char *v = blank(t, n * (int64_t)dtype_size(types[d]));

                for (int64_t i = 0; i < n; i++)
                    put(v, types[d], i, whole(t->rank, s, i));
                OK(t, comm_all_reduce(t->c, v, n, types[d], (enum comm_op)op));
                for (int64_t i = 0; i < n; i++)
                    if (got(v, types[d], i) != expected(t, (enum comm_op)op, s, i)) {
                        comm_failed(t, "%s op %d n %lld: element %lld differs", dtype_name(types[d]), op, (long long)n, (long long)i);
                        break;
                    }
                CHECK(t, (unsigned char)v[n * (int64_t)dtype_size(types[d])] == 0xa5, "wrote behind the end");
                arena_reset(t->a);
            }
}

static void sums_run_in_ascending_rank_order(struct comm_conform *t)
{
    static const int64_t ns[] = { 5, 3000, 70001 };

    for (int s = 0; s < 3; s++) {
        int64_t n = ns[s];
        float *v = arena_array(t->a, (size_t)n, sizeof *v), *sum = arena_array(t->a, (size_t)n, sizeof *sum);
        struct comm_part part = { t->size - 1, n * 4, v, sum };

        for (int64_t i = 0; i < n; i++)
            v[i] = rough(t->rank, s, i);
        OK(t, comm_reduce(t->c, &part, 1, DT_F32));
        OK(t, comm_all_reduce(t->c, v, n, DT_F32, COMM_SUM));
        for (int64_t i = 0; i < n; i++) {
            float x = rough(0, s, i);
            for (int r = 1; r < t->size; r++)
                x += rough(r, s, i);
            if (v[i] != x || (t->rank == t->size - 1 && sum[i] != x)) {
                comm_failed(t, "n %lld: element %lld was added in another order", (long long)n, (long long)i);
                break;
            }
        }
        arena_reset(t->a);
    }
}

static void one_nan_is_seen_by_every_rank(struct comm_conform *t)
{
    float v[3][2];

    for (int op = COMM_SUM; op <= COMM_MIN; op++) {
        v[op][0] = t->rank == t->size / 2 ? NAN : (float)t->rank;
        v[op][1] = (float)t->rank;
        OK(t, comm_all_reduce(t->c, v[op], 2, DT_F32, (enum comm_op)op));
        CHECK(t, isnan(v[op][0]) && !isnan(v[op][1]), "op %d lost or spread it", op);
    }
}

static void all_gather_with_equal_and_with_own_counts(struct comm_conform *t)
{
    static const int64_t ns[] = { 0, 1, 13, 1024, 1025, 100001 };
    int64_t *counts = arena_array(t->a, (size_t)t->size, sizeof *counts);
    struct arena *keep = t->a;

    t->a = arena_new();
    for (int s = 0; s < 6; s++) {
        int64_t n = ns[s], total = 0, at = 0;
        unsigned char *all = blank(t, n * t->size);

        OK(t, comm_all_gather(t->c, bytes(t, t->rank, s, n), n, all));
        for (int r = 0; r < t->size; r++)
            for (int64_t i = 0; i < n; i++)
                if (all[r * n + i] != byte_of(r, s, i)) {
                    comm_failed(t, "n %lld: byte %lld of rank %d differs", (long long)n, (long long)i, r);
                    break;
                }
        CHECK(t, all[n * t->size] == 0xa5, "wrote behind the end");
        /* In place. */
        memset(all, 0, (size_t)(n * t->size));
        memcpy(all + t->rank * n, bytes(t, t->rank, s, n), (size_t)n);
        OK(t, comm_all_gather(t->c, all + t->rank * n, n, all));
        for (int r = 0; r < t->size; r++)
            CHECK(t, n == 0 || (all[r * n] == byte_of(r, s, 0) && all[r * n + n - 1] == byte_of(r, s, n - 1)), "in place, n %lld", (long long)n);
        /* Every other rank has nothing; with s = 0 all have nothing. */
        for (int r = 0; r < t->size; r++)
            total += counts[r] = (r + s) % 2 ? n * (r + 1) : 0;
        all = blank(t, total);
        OK(t, comm_all_gatherv(t->c, bytes(t, t->rank, s, counts[t->rank]), counts, all));
        for (int r = 0; r < t->size; at += counts[r++])
            for (int64_t i = 0; i < counts[r]; i++)
                if (all[at + i] != byte_of(r, s, i)) {
                    comm_failed(t, "counts, n %lld: byte %lld of rank %d differs", (long long)n, (long long)i, r);
                    break;
                }
        CHECK(t, all[total] == 0xa5, "wrote behind the end");
        arena_reset(t->a);
    }
    arena_free(t->a);
    t->a = keep;
}

static void broadcast_from_every_owner(struct comm_conform *t)
{
    for (int owner = 0; owner < t->size; owner++)
        for (int s = 0; s < N_SIZES; s++) {
            unsigned char *p = blank(t, sizes[s]);

            if (t->rank == owner)
                memcpy(p, bytes(t, owner, s, sizes[s]), (size_t)sizes[s]);
            OK(t, comm_broadcast(t->c, owner, p, sizes[s]));
            same_bytes(t, "broadcast", p, owner, s, sizes[s]);
            arena_reset(t->a);
        }
}

/* Owners in no order, empty parts, parts of no owner's neighbours. */
static int make_bucket(struct comm_conform *t, struct comm_part *v, int n, int64_t unit, int salt)
{
    for (int i = 0; i < n; i++) {
        v[i].rank = (i * 5 + salt) % t->size;
        v[i].bytes = i % 4 == 1 ? 0 : unit * (sizes[(i + salt) % N_SIZES] / 7 + i);
        v[i].p = v[i].bytes ? blank(t, v[i].bytes) : NULL;
        v[i].sum = NULL;
    }
    return n;
}

static void a_bucket_reaches_all_from_many_owners(struct comm_conform *t)
{
    struct comm_part v[24];

    for (int salt = 0; salt < 3; salt++) {
        int n = make_bucket(t, v, 24, 1, salt);

        for (int i = 0; i < n; i++)
            if (v[i].rank == t->rank && v[i].bytes)
                memcpy(v[i].p, bytes(t, t->rank, i, v[i].bytes), (size_t)v[i].bytes);
        OK(t, comm_gather(t->c, v, n));
        for (int i = 0; i < n; i++)
            if (v[i].bytes)
                same_bytes(t, "bucket", v[i].p, v[i].rank, i, v[i].bytes);
        arena_reset(t->a);
    }
    OK(t, comm_gather(t->c, NULL, 0));
}

static void reduce_to_owners_of_every_wire_type(struct comm_conform *t)
{
    static const enum dtype wires[] = { DT_F32, DT_BF16, DT_F64, DT_I32, DT_I64 };
    struct comm_part v[12];

    for (int d = 0; d < 5; d++)
        for (int in_place = 0; in_place < (wires[d] == DT_BF16 ? 1 : 2); in_place++) {
            int64_t size = (int64_t)dtype_size(wires[d]);
            enum dtype sums = wires[d] == DT_BF16 ? DT_F32 : wires[d];
            int n = make_bucket(t, v, 12, size, d);

            for (int i = 0; i < n; i++) {
                int64_t m = v[i].bytes / size;

                for (int64_t j = 0; j < m; j++)
                    put(v[i].p, wires[d], j, whole(t->rank, i, j));
                if (v[i].rank == t->rank)
                    v[i].sum = in_place ? v[i].p : blank(t, m * (int64_t)dtype_size(sums));
            }
            OK(t, comm_reduce(t->c, v, n, wires[d]));
            for (int i = 0; i < n; i++)
                for (int64_t j = 0; v[i].sum && j < v[i].bytes / size; j++)
                    if (got(v[i].sum, sums, j) != expected(t, COMM_SUM, i, j)) {
                        comm_failed(t, "%s part %d: element %lld differs", dtype_name(wires[d]), i, (long long)j);
                        break;
                    }
            arena_reset(t->a);
        }
    OK(t, comm_reduce(t->c, NULL, 0, DT_F32));
}

static int64_t between(int from, int to, int part, int s)
{
    return (from + 2 * to + part + s) % 3 == 0 ? 0 : sizes[(from + to + part + s) % N_SIZES] + from + part;
}

enum { PARTS = 3 };

static void fill_exchange(struct comm_conform *t, struct comm_part *send, struct comm_part *recv, int s)
{
    for (int i = 0; i < t->size * PARTS; i++) {
        int q = i / PARTS, part = i % PARTS;
        int64_t out = between(t->rank, q, part, s), in = between(q, t->rank, part, s);

        send[i] = (struct comm_part){ q, out, out ? bytes(t, t->rank, i + s, out) : NULL, NULL };
        recv[i] = (struct comm_part){ q, in, in ? blank(t, in) : NULL, NULL };
    }
}

static void check_exchange(struct comm_conform *t, const struct comm_part *recv, int s)
{
    for (int i = 0; i < t->size * PARTS; i++)
        if (recv[i].bytes)
            same_bytes(t, "all_to_all", recv[i].p, recv[i].rank, t->rank * PARTS + i % PARTS + s, recv[i].bytes);
}

static void all_to_all_with_parts_and_zero_counts(struct comm_conform *t)
{
    for (int s = 0; s < 6; s++) {
        int n = t->size * PARTS;
        struct comm_part *send = arena_array(t->a, (size_t)n, sizeof *send), *recv = arena_array(t->a, (size_t)n, sizeof *recv);

        fill_exchange(t, send, recv, s);
        OK(t, comm_all_to_all(t->c, send, n, recv, n));
        check_exchange(t, recv, s);
        arena_reset(t->a);
    }
    OK(t, comm_all_to_all(t->c, NULL, 0, NULL, 0));
}

/* Handles of two communicators, ended in another order than they were started,
 * with small collectives and late ranks in between. */
static void many_open_handles_end_in_any_order(struct comm_conform *t)
{
    struct comm_part g[2][24], r[24], *send, *recv;
    struct comm_req *q[4] = { NULL };
    struct comm *other = NULL;
    int n = t->size * PARTS, spins = 0, rc = 0;
    double one = 1;

    OK(t, comm_split(t->c, 0, t->size - t->rank, "other", &other));
    CHECK(t, comm_rank(other) == t->size - 1 - t->rank, "the key does not order");
    send = arena_array(t->a, (size_t)n, sizeof *send);
    recv = arena_array(t->a, (size_t)n, sizeof *recv);
    for (int k = 0; k < 2; k++) {
        int me = k ? comm_rank(other) : t->rank;

        make_bucket(t, g[k], 24, 1, k);
        for (int i = 0; i < 24; i++)
            if (g[k][i].rank == me && g[k][i].bytes)
                memcpy(g[k][i].p, bytes(t, me, i, g[k][i].bytes), (size_t)g[k][i].bytes);
    }
    make_bucket(t, r, 24, 4, 2);
    for (int i = 0; i < 24; i++) {
        for (int64_t j = 0; j < r[i].bytes / 4; j++)
            put(r[i].p, DT_F32, j, whole(t->rank, i, j));
        r[i].sum = r[i].p;
    }
    fill_exchange(t, send, recv, 1);
    OK(t, comm_start_gather(t->c, g[0], 24, &q[0]));
    if (t->rank % 2)
        usleep(20000);
    OK(t, comm_start_reduce(t->c, r, 24, DT_F32, &q[1]));
    OK(t, comm_start_gather(other, g[1], 24, &q[2]));
    OK(t, comm_all_reduce(t->c, &one, 1, DT_F64, COMM_SUM));
    CHECK(t, one == t->size, "a sum between handles");
    OK(t, comm_start_all_to_all(t->c, send, n, recv, n, &q[3]));
    OK(t, comm_barrier(other));
    OK(t, comm_wait(&q[3]));
    while ((rc = comm_test(&q[2])) == 0)
        spins++;
    OK(t, rc);
    for (int i = 0; i < 3; i++)
        comm_progress(t->c);
    OK(t, comm_wait(&q[1]));
    OK(t, comm_wait(&q[0]));
    CHECK(t, !q[0] && !q[1] && !q[2] && !q[3], "a handle stayed");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 24; i++)
            if (g[k][i].bytes)
                same_bytes(t, "handles", g[k][i].p, g[k][i].rank, i, g[k][i].bytes);
    check_exchange(t, recv, 1);
    for (int i = 0; i < 24; i++)
        for (int64_t j = 0; r[i].rank == t->rank && j < r[i].bytes / 4; j++)
            if (got(r[i].p, DT_F32, j) != expected(t, COMM_SUM, i, j)) {
                comm_failed(t, "reduce part %d: element %lld differs", i, (long long)j);
                break;
            }
    comm_close(other);
}

/* Neighbours wait for each other across communicators: only a waiter that
 * serves all of them gets through. */
static void whoever_waits_serves_all_communicators(struct comm_conform *t)
{
    int64_t n = 3000000;
    struct comm *odd = NULL;
    struct comm_req *q = NULL;
    struct comm_part part = { 0, n, arena_alloc(t->a, (size_t)n), NULL };

    memset(part.p, t->rank == 0 ? 7 : 0, (size_t)n);
    OK(t, comm_split(t->c, t->rank == 0 ? -1 : 0, t->rank, "odd", &odd));
    OK(t, comm_start_gather(t->c, &part, 1, &q));
    if (odd)
        OK(t, comm_barrier(odd));
    OK(t, comm_wait(&q));
    CHECK(t, ((char *)part.p)[n - 1] == 7, "the last byte did not come");
    comm_close(odd);
}

static void split_makes_rows_columns_and_nodes(struct comm_conform *t)
{
    struct comm *row = NULL, *none = NULL, *node = NULL;
    int64_t sum = t->rank, want = 0;

    OK(t, comm_split(t->c, t->rank % 2, t->rank, "row", &row));
    for (int r = t->rank % 2; r < t->size; r += 2)
        want += r;
    OK(t, comm_all_reduce(row, &sum, 1, DT_I64, COMM_SUM));
    CHECK(t, sum == want, "the sum of a row is %lld, not %lld", (long long)sum, (long long)want);
    CHECK(t, comm_rank(row) == t->rank / 2, "the rank in a row is %d", comm_rank(row));
    OK(t, comm_split(t->c, -1, 0, "none", &none));
    CHECK(t, !none, "a rank without a color joined");
    OK(t, comm_split_node(t->c, "node", &node));
    CHECK(t, comm_size(node) == comm_node_size(t->c) && comm_rank(node) == comm_node_rank(t->c), "the node has other ranks");
    CHECK(t, comm_host(t->c)[0] && comm_world_size(row) == t->size && comm_world_rank(row) == t->rank, "who am I");
    CHECK(t, comm_threads(t->c) >= 1, "no thread");
    comm_close(node);
    comm_close(row);
}

static void agreement_takes_the_worst_and_the_lowest_rank(struct comm_conform *t)
{
    int last = t->size - 1, rc;

    OK(t, comm_agree(t->c, 0));
    rc = comm_agree(t->c, t->rank == last ? err_set(ERR_STOPPED, "time is up") : 0);
    CHECK(t, rc == ERR_STOPPED, "a stop became %d", rc);
    CHECK(t, t->rank == 0 ? strstr(err_msg(), "time is up") != NULL : !err_msg()[0], "the sentence is \"%s\"", err_msg());
    if (t->size == 1)
        return;
    /* Rank 0 stops, all others fail: the lowest that fails speaks. */
    rc = comm_agree(t->c, t->rank == 0 ? err_set(ERR_STOPPED, "time is up")
                                       : err_set(t->rank == 1 ? ERR_DATA : ERR_IO, "bad file %d", t->rank));
    CHECK(t, rc == ERR_DATA, "an error became %d", rc);
    CHECK(t, t->rank != 0 || (strstr(err_msg(), "rank 1 on ") == err_msg() && strstr(err_msg(), ": bad file 1")),
          "the sentence is \"%s\"", err_msg());
    err_clear();
}

static void strings_of_any_length_reach_rank_0(struct comm_conform *t)
{
    int64_t n = t->rank % 3 == 1 ? 0 : 5000 * (t->rank + 1), *ends = arena_array(t->a, (size_t)t->size, sizeof *ends), at = 0;
    char *all;

    OK(t, comm_gather_bytes(t->a, t->c, bytes(t, t->rank, 0, n), n, &all, t->rank == 0 ? ends : NULL));
    CHECK(t, (all != NULL) == (t->rank == 0), "others got it too");
    for (int r = 0; r < t->size && all; at = ends[r++]) {
        CHECK(t, ends[r] - at == (r % 3 == 1 ? 0 : 5000 * (r + 1)), "rank %d sent %lld bytes", r, (long long)(ends[r] - at));
        for (int64_t i = at; i < ends[r]; i++)
            if ((unsigned char)all[i] != byte_of(r, 0, i - at)) {
                comm_failed(t, "byte %lld of rank %d differs", (long long)(i - at), r);
                break;
            }
    }
}

static void counts_are_the_bytes_of_the_formula(struct comm_conform *t)
{
    enum { N = 6000 };
    struct comm_part v[4];
    struct comm_counts k0, k;
    int64_t owned = 0, others = t->size - 1;

    for (int i = 0; i < 4; i++) {
        v[i] = (struct comm_part){ i % t->size, N, blank(t, N), NULL };
        memset(v[i].p, 0, N);
        v[i].sum = v[i].p;
        owned += v[i].rank == t->rank ? N : 0;
    }
    comm_counts(t->c, &k0);
    OK(t, comm_gather(t->c, v, 4));
    OK(t, comm_reduce(t->c, v, 4, DT_F32));
    comm_counts(t->c, &k);
    CHECK(t, k.calls[COMM_GATHER] - k0.calls[COMM_GATHER] == 1 && k.calls[COMM_REDUCE] - k0.calls[COMM_REDUCE] == 1 &&
              k.calls[COMM_BARRIER] == k0.calls[COMM_BARRIER], "calls");
    CHECK(t, k.sent[COMM_GATHER] - k0.sent[COMM_GATHER] == owned * others, "gather sent");
    CHECK(t, k.received[COMM_GATHER] - k0.received[COMM_GATHER] == 4 * N - owned, "gather received");
    CHECK(t, k.sent[COMM_REDUCE] - k0.sent[COMM_REDUCE] == 4 * N - owned, "reduce sent");
    CHECK(t, k.received[COMM_REDUCE] - k0.received[COMM_REDUCE] == owned * others, "reduce received");
    CHECK(t, k.wait_s > k0.wait_s, "no time passed");
}

static void closed_communicators_give_their_memory_back(struct comm_conform *t)
{
    int64_t before = comm_bytes(t->c);
    struct comm *sub;

    for (int i = 0; i < 20; i++) {
        OK(t, comm_split(t->c, 0, 0, "sub", &sub));
        CHECK(t, comm_bytes(t->c) > before, "a communicator without memory");
        OK(t, comm_barrier(sub));
        comm_close(sub);
    }
    CHECK(t, comm_bytes(t->c) == before, "%lld bytes stayed", (long long)(comm_bytes(t->c) - before));
}

const struct comm_case comm_cases[] = {
#define CASE(f) { #f, f }
    CASE(all_reduce_of_every_type_and_size),
    CASE(sums_run_in_ascending_rank_order),
    CASE(one_nan_is_seen_by_every_rank),
    CASE(all_gather_with_equal_and_with_own_counts),
    CASE(broadcast_from_every_owner),
    CASE(a_bucket_reaches_all_from_many_owners),
    CASE(reduce_to_owners_of_every_wire_type),
    CASE(all_to_all_with_parts_and_zero_counts),
    CASE(many_open_handles_end_in_any_order),
    CASE(whoever_waits_serves_all_communicators),
    CASE(split_makes_rows_columns_and_nodes),
    CASE(agreement_takes_the_worst_and_the_lowest_rank),
    CASE(strings_of_any_length_reach_rank_0),
    CASE(counts_are_the_bytes_of_the_formula),
    CASE(closed_communicators_give_their_memory_back),
    { NULL, NULL },
};
