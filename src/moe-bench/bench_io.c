/* bench_io.c -- moe-bench io: checkpoints to the disk and back, beside plain
 * files of the same bytes, and packing beside zstd.
 *
 * All tests of a round follow one another, so that what else the machine does
 * meets all of them; medians over the rounds are compared.  What is written
 * counts from the first byte to the return of the last fsync.  The values are
 * made up as trained weights are spread: normal, each row with its own scale. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "bench.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/out.h"
#include "base/rng.h"
#include "base/table.h"
#include "base/units.h"
#include "ckpt/load.h"
#include "ckpt/modeldir.h"
#include "ckpt/packing.h"
#include "ckpt/run.h"
#include "ckpt/verify.h"

#define BLOCK ((size_t)1 << 20)         /* of plain reads and writes, as `dd bs=1M` */
#define TENSOR ((size_t)16 << 20)       /* bytes of one made-up tensor */
#define PATTERN 4                       /* tensors that differ; the others repeat them */
enum { ROUNDS_MAX = 1000, ROW = 1024 };

struct io_opts {
    struct opt_common common;
    const char *dir;
    int64_t rounds, size;
    _Bool tsv, json;
};

#define AT(field) offsetof(struct io_opts, field)
static const struct opt io_table[] = {
    OPT_COMMON,
    { OPT_STR, 'C', "dir", "DIR", ".", "directory on the file system to time", AT(dir), 0, 0 },
    { OPT_INT, 'n', "rounds", "N", "5", "rounds over all tests", AT(rounds), 1, ROUNDS_MAX },
    { OPT_INT, 0, "size", "BYTES", "512Mi", "bytes to write, read and verify", AT(size), (double)TENSOR, 1e15 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "print tab-separated values", AT(tsv), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "print one JSON object a line", AT(json), 0, 0 },
    OPT_END
};

struct io {
    const struct io_opts *o;
    struct arena *arena;
    const char *dir;            /* ours: holds plain, ckpt and the two below */
    const char *plain, *ckpt, *f32, *bf16;
    float *values;              /* [PATTERN * TENSOR / 4] */
    uint16_t *half;             /* [PATTERN * TENSOR / 4] the same, rounded */
    char *buf;                  /* [TENSOR] */
    int64_t n_tensors;
    const char *given;          /* the operand, or NULL */
    uint64_t packed;            /* bytes that packing made of raw ones, the last time */
    uint64_t raw;
};

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- made-up checkpoints */

static void fill(struct io *x)
{
    const size_t n = PATTERN * TENSOR / sizeof(float);
    struct rng_key values = rng_key(1, "values"), scales = rng_key(1, "scales");

#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < n / ROW; row++)
        rng_fill_normal(x->values + row * ROW, ROW, values, row * ROW, 0.02 * exp(0.5 * rng_normal(scales, row)));
    for (size_t i = 0; i < n; i++)
        x->half[i] = dtype_to_bf16(x->values[i]);
}

/* n tensors of `data`, which repeats after PATTERN tensors' worth of it. */
static int write_ckpt(struct io *x, const char *path, enum dtype dtype, const void *data, int64_t n)
{
    const int64_t shape[2] = { (int64_t)(TENSOR / 4 / ROW), ROW };
    const size_t bytes = TENSOR / 4 * dtype_size(dtype);
    const struct hash some = hash_bytes("moe-bench io", 12);
    const struct manifest_info info = { .tool = "moe-bench io", .run_id = some, .config = some, .plan = some, .kernels = "none",
                                        .replicas = 1, .efsdp = 1, .ep = 1, .threads = 1 };
    struct modeldir *d;
    int rc = 0;

    TRY(modeldir_begin(path, 0, &info, 0, 0, &d));
    for (int64_t i = 0; i < n && rc >= 0; i++)
        rc = modeldir_add(d, CKPT_MODEL, arena_printf(x->arena, "model.layers.%05lld.weight", (long long)i), dtype, 2, shape);
    if (rc >= 0)
        rc = modeldir_start(d);
    for (int64_t i = 0; i < n && rc >= 0; i++)
        rc = modeldir_put(d, (int)i, 0, (const char *)data + (size_t)(i % PATTERN) * bytes, bytes);
    if (rc < 0) {
        modeldir_abort(d);
        return rc;
    }
    return modeldir_commit(d);
}

/* ---- what is timed */

/* As `dd bs=1M conv=fsync`: no reservation, nothing asked of the disk before the end. */
static int write_plain(struct io *x)
{
    int fd = open(x->plain, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), rc = 0;

    if (fd < 0)
        return err_sys(ERR_CREATE, "%s", x->plain);
    for (int64_t i = 0; i < x->n_tensors && rc == 0; i++)
        for (size_t at = 0; at < TENSOR && rc == 0;) {
            ssize_t n = write(fd, (const char *)x->values + (size_t)(i % PATTERN) * TENSOR + at, BLOCK - at % BLOCK);

            if (n > 0)
                at += (size_t)n;
            else if (n == 0 || errno != EINTR)
                rc = err_sys(ERR_IO, "%s", x->plain);
        }
    if (rc == 0 && fsync(fd) < 0)
        rc = err_sys(ERR_IO, "%s", x->plain);
    close(fd);
    return rc < 0 ? rc : fs_sync_dir(x->dir);
}

static int write_checkpoint(struct io *x)
{
    return write_ckpt(x, x->ckpt, DT_F32, x->values, x->n_tensors);
}

static int read_plain(struct io *x)
{
    uint64_t size = (uint64_t)x->n_tensors * TENSOR;
    int fd = open(x->plain, O_RDONLY | O_CLOEXEC), rc = 0;

    if (fd < 0)
        return err_sys(ERR_IO, "%s", x->plain);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (uint64_t at = 0; at < size && rc == 0; at += BLOCK)
        rc = fs_pread(fd, x->plain, x->buf, BLOCK, at);
    close(fd);
    return rc;
}

/* Every tensor to one place in memory, each byte against its checksum. */
static int load(struct io *x, const char *path, int (*use)(struct io *x, void *ctx, size_t n), void *ctx)
{
    struct ckpt *c;
    int rc;

    TRY(ckpt_open(path, 0, &c));
    rc = 0;
    for (int64_t i = 0; i < ckpt_n_tensors(c) && rc == 0; i++) {
        const struct ckpt_tensor *t = ckpt_tensor(c, i);

        for (uint64_t at = 0; at < t->bytes && rc == 0; at += TENSOR) {
            size_t n = t->bytes - at < TENSOR ? (size_t)(t->bytes - at) : TENSOR;

            rc = ckpt_read(c, t, at, n, x->buf);
            if (rc == 0 && use)
                rc = use(x, ctx, n);
        }
    }
    ckpt_close(c);
    return rc;
}

static int read_checkpoint(struct io *x) { return load(x, x->ckpt, NULL, NULL); }

static int verify_checkpoint(struct io *x)
{
    struct ckpt_verify v = { 0 };

    TRY(ckpt_verify(x->ckpt, &v));
    return v.n_problems ? err_set(ERR_IO, "%s: what was written is not what is read", x->ckpt) : 0;
}

static int discard(void *ctx, const void *data, size_t n)
{
    (void)ctx;
    (void)data;
    (void)n;
    return 0;
}

static int pack(struct io *x, const char *path)
{
    struct packing p = { .tool = "moe-bench" };
    struct ckpt *c;
    int rc;

    TRY(ckpt_open(path, 0, &c));
    rc = packing_write(c, discard, NULL, &p);
    x->raw = p.raw_bytes;
    x->packed = p.packed_bytes;
    ckpt_close(c);
    return rc;
}

struct zstd { ZSTD_CCtx *c; void *dst; size_t room; int level; };

static int squeeze(struct io *x, void *ctx, size_t n)
{
    struct zstd *z = ctx;
    size_t k = ZSTD_compressCCtx(z->c, z->dst, z->room, x->buf, n, z->level);

    if (ZSTD_isError(k))
        return err_set(ERR_IO, "zstd: %s", ZSTD_getErrorName(k));
    x->raw += n;
    x->packed += k;
    return 0;
}

/* Frames of up to 16 MiB, from the same reader. */
static int zstd(struct io *x, const char *path, int level)
{
    struct zstd z = { .c = ZSTD_createCCtx(), .room = ZSTD_compressBound(TENSOR), .level = level };
    int rc;

    z.dst = arena_must(malloc(z.room));
    arena_must(z.c);
    x->raw = x->packed = 0;
    rc = load(x, path, squeeze, &z);
    ZSTD_freeCCtx(z.c);
    free(z.dst);
    return rc;
}

static int pack_bf16(struct io *x) { return pack(x, x->bf16); }
static int zstd1_bf16(struct io *x) { return zstd(x, x->bf16, 1); }
static int zstd3_bf16(struct io *x) { return zstd(x, x->bf16, 3); }
static int pack_f32(struct io *x) { return pack(x, x->f32); }
static int zstd1_f32(struct io *x) { return zstd(x, x->f32, 1); }
static int zstd3_f32(struct io *x) { return zstd(x, x->f32, 3); }
static int pack_given(struct io *x) { return pack(x, x->given); }
static int zstd1_given(struct io *x) { return zstd(x, x->given, 1); }
static int zstd3_given(struct io *x) { return zstd(x, x->given, 3); }

enum cache { NONE, COLD, WARM };
enum data { F32, BF16, GIVEN };
static const char *const caches[] = { NULL, "cold", "warm" }, *const datas[] = { "f32", "bf16", "given" };

struct test {
    const char *name;
    enum data data;
    enum cache cache;
    int beside;                 /* the test whose speed its share is of; -1: none */
    _Bool packs;
    int (*run)(struct io *x);
};

/* beside counts from the first row; a plain test stands before its own. */
static const struct test tests[] = {
    { "write plain", F32, NONE, -1, 0, write_plain }, { "write", F32, NONE, 0, 0, write_checkpoint },
    { "read plain", F32, COLD, -1, 0, read_plain }, { "read", F32, COLD, 2, 0, read_checkpoint }, { "verify", F32, COLD, 2, 0, verify_checkpoint },
    { "read plain", F32, WARM, -1, 0, read_plain }, { "read", F32, WARM, 5, 0, read_checkpoint }, { "verify", F32, WARM, 5, 0, verify_checkpoint },
    { "pack", BF16, WARM, -1, 1, pack_bf16 }, { "zstd -1", BF16, WARM, -1, 1, zstd1_bf16 }, { "zstd -3", BF16, WARM, -1, 1, zstd3_bf16 },
    { "pack", F32, WARM, -1, 1, pack_f32 }, { "zstd -1", F32, WARM, -1, 1, zstd1_f32 }, { "zstd -3", F32, WARM, -1, 1, zstd3_f32 },
    { "pack", GIVEN, WARM, -1, 1, pack_given }, { "zstd -1", GIVEN, WARM, -1, 1, zstd1_given }, { "zstd -3", GIVEN, WARM, -1, 1, zstd3_given },
};

enum { N_TESTS = sizeof tests / sizeof *tests };

struct result { double *s, *cpu; uint64_t bytes; double ratio; };

/* With a checkpoint that was given, that alone is packed. */
static _Bool wanted(const struct io *x, const struct test *t)
{
    return !t->packs || (t->data == GIVEN) == (x->given != NULL);
}

/* Clean pages of a file leave the cache; those of a host below us stay. */
static int forget(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(ERR_IO, "%s", path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return 0;
}

static int forget_all(struct io *x)
{
    struct arena *a = arena_new();
    char **names;
    int n, rc = forget(x->plain);

    if (rc == 0)
        rc = fs_list(a, x->ckpt, &names, &n);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = forget(fs_join(a, x->ckpt, names[i]));
    arena_free(a);
    return rc;
}

static int one_round(struct io *x, struct result *r, int64_t round)
{
    if (fs_exists(x->plain)) {
        TRY(fs_remove_tree(x->plain));
        TRY(fs_remove_tree(x->ckpt));
        TRY(fs_sync_dir(x->dir));
    }
    for (int i = 0; i < N_TESTS; i++) {
        const struct test *t = &tests[i];

        if (!wanted(x, t))
            continue;
        if (t->cache == COLD)
            TRY(forget_all(x));
        else if (t->cache == WARM && !t->packs)
            TRY(t->run(x));             /* now it is */
        double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
        TRY(t->run(x));
        r[i].s[round] = now(CLOCK_MONOTONIC) - wall;
        r[i].cpu[round] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        r[i].bytes = t->packs ? x->raw : (uint64_t)x->n_tensors * TENSOR;
        r[i].ratio = t->packs && x->packed ? (double)x->raw / (double)x->packed : 0;
    }
    return 0;
}

/* ---- the table */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static const struct table_col columns[] = {
    { "test", "test", 's', 0 },
    { "data", "data", 's', 0 },
    { "cache", "cache", 's', 0 },
    { "bytes", "size", 'b', 0 },
    { "ms", "ms", 'f', 1 },
    { "min_ms", "min ms", 'f', 1 },
    { "gbs", "GB/s", 'f', 2 },
    { "plain_share", "% of plain", 'f', 0 },
    { "cpu_gbs", "GB/s a core", 'f', 2 },
    { "ratio", "ratio", 'f', 3 },
};

static int print(const struct io *x, struct result *r)
{
    const struct io_opts *o = x->o;
    struct table *t = table_begin(o->json ? TABLE_JSON : o->tsv ? TABLE_TSV : TABLE_HUMAN, "moe.bench-io/1", columns, sizeof columns / sizeof *columns);
    double s[N_TESTS];

    for (int i = 0; i < N_TESTS; i++) {
        const struct test *e = &tests[i];

        if (!wanted(x, e))
            continue;
        s[i] = median(r[i].s, o->rounds);
        double cpu = median(r[i].cpu, o->rounds);
        if (e->packs && !tests[i - 1].packs)
            table_rule(t);
        table_str(t, e->name);
        table_str(t, datas[e->data]);
        if (caches[e->cache])
            table_str(t, caches[e->cache]);
        else
            table_none(t);
        table_int(t, (int64_t)r[i].bytes);
        table_num(t, 1e3 * s[i]);
        table_num(t, 1e3 * r[i].s[0]);
        table_num(t, 1e-9 * (double)r[i].bytes / s[i]);
        if (e->beside >= 0)
            table_num(t, 100 * s[e->beside] / s[i]);
        else
            table_none(t);
        table_num(t, cpu > 0 ? 1e-9 * (double)r[i].bytes / cpu : 0);
        if (e->packs)
            table_num(t, r[i].ratio);
        else
            table_none(t);
    }
    return table_end(t);
}

/* ---- the whole */

static int prepare(struct io *x)
{
    char *dir = fs_join(x->arena, x->o->dir, "moe-bench-io-XXXXXX");

    if (!fs_is_dir(x->o->dir))
        return err_set(ERR_NOINPUT, "%s: no such directory", x->o->dir);
    TRY(ckpt_room(x->o->dir, (uint64_t)(2 * x->n_tensors + 2 * PATTERN) * TENSOR, 2 * x->n_tensors));
    x->values = malloc(PATTERN * TENSOR);
    x->half = malloc(PATTERN * TENSOR / 2);
    x->buf = malloc(TENSOR);
    if (!x->values || !x->half || !x->buf)
        return err_set(ERR_IO, "no memory for %d MiB of values", (int)(PATTERN * TENSOR >> 20));
    fill(x);
    if (!mkdtemp(dir))
        return err_sys(ERR_CREATE, "%s", dir);
    x->dir = dir;
    x->plain = fs_join(x->arena, dir, "plain");
    x->ckpt = fs_join(x->arena, dir, "ckpt");
    x->f32 = fs_join(x->arena, dir, "f32");
    x->bf16 = fs_join(x->arena, dir, "bf16");
    if (x->given)
        return 0;
    TRY(write_ckpt(x, x->f32, DT_F32, x->values, PATTERN));
    return write_ckpt(x, x->bf16, DT_BF16, x->half, PATTERN);
}

static int run_io(void *options, int argc, char **argv)
{
    const struct io_opts *o = options;
    struct io x = { .o = o, .arena = arena_new(), .n_tensors = (o->size + (int64_t)TENSOR - 1) / (int64_t)TENSOR };
    struct result r[N_TESTS];
    int rc = 0;

    x.given = argc ? argv[0] : NULL;
    if (o->json && o->tsv) {
        rc = err_set(ERR_USAGE, "--json and --tsv exclude each other");
        goto out;
    }
    for (int i = 0; i < N_TESTS; i++)
        r[i] = (struct result){ arena_array(x.arena, (size_t)o->rounds, sizeof(double)), arena_array(x.arena, (size_t)o->rounds, sizeof(double)), 0, 0 };
    TRY_OUT(rc, prepare(&x));
    for (int64_t i = 0; i < o->rounds && rc == 0; i++)
        rc = one_round(&x, r, i);
    if (rc == 0)
        rc = print(&x, r);
out:
    if (x.dir) {
        struct err_state kept;

        err_take(&kept);
        int gone = fs_remove_tree(x.dir);
        if (rc < 0)
            err_put(&kept);
        else
            rc = gone;
    }
    free(x.values);
    free(x.half);
    free(x.buf);
    arena_free(x.arena);
    return rc;
}

const struct opt_cmd bench_io_cmd = {
    .name = "io",
    .summary = "write, read, verify and pack checkpoints beside plain files and zstd",
    .synopsis = "[options] [CKPT]",
    .examples = "moe-bench io --size 64Mi -n 1\n"
                "moe-bench io -n 1 --size 16Mi --tsv runs/a > io.tsv",
    .opts = io_table,
    .opts_size = sizeof(struct io_opts),
    .min_operands = 0,
    .max_operands = 1,
    .run = run_io,
};
