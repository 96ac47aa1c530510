/* ckpt_toy.c -- see the header. */
#include "unit/ckpt_toy.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "ckpt/save.h"

/* Odd sizes, a scalar, an empty tensor, and names that sort differently from
 * the order in which they are saved. */
const struct toy_tensor toy_tensors[TOY_N] = {
    { "model.embed_tokens.weight", 0, 2, { 7, 5 } },
    { "model.layers.0.mlp.experts.0.up_proj.weight", 0, 2, { 3, 11 } },
    { "model.layers.0.mlp.gate.e_score_correction_bias", 0, 1, { 3 } },
    { "lm_head.weight", 0, 2, { 5, 7 } },
    { "model.scalar", 0, 0, { 0 } },
    { "model.none", 0, 2, { 0, 4 } },
    { "lm_head.weight.exp_avg", 1, 2, { 5, 7 } },
    { "model.layers.0.mlp.experts.0.up_proj.weight.momentum", 1, 2, { 3, 11 } },
};

float toy_value(int t, int64_t i, int64_t step)
{
    return (float)(t + 1) * 0.37f + (float)i * 0.0625f - (float)step * 1.5f;
}

int64_t toy_count(int t)
{
    int64_t n = 1;

    for (int i = 0; i < toy_tensors[t].n_dims; i++)
        n *= toy_tensors[t].shape[i];
    return n;
}

struct manifest_info toy_info(int64_t step)
{
    static const char *const argv[] = { "toy", "--save", "a \"b\"\n" };
    static struct manifest_set set = { .path = "data/train", .windows = 99 };
    struct manifest_info o = { .tool = "toy 1.0", .argv = argv, .n_argv = 3, .restart = 2, .step = step,
        .tokens = step * 4096, .replicas = 1, .efsdp = 2, .ep = 3, .threads = 4, .kernels = "ref",
        .data_next_step = step, .data_seed = 7, .sets = &set, .n_sets = 1 };

    set.hash = hash_bytes("set", 3);
    o.run_id = hash_bytes("run", 3);
    o.config = hash_bytes("config", 6);
    o.plan = hash_bytes("plan", 4);
    return o;
}

static int save(const char *run, int64_t step, int keep, float *const data[TOY_N])
{
    struct manifest_info info = toy_info(step);
    struct ckpt_save *s;
    int rc;

    TRY(ckpt_save_begin(run, &info, 200, &s));
    rc = ckpt_save_file(s, "config.json", "{\"model_type\": \"toy\"}\n", 22);
    for (int t = 0; t < TOY_N && rc == 0; t++)
        rc = ckpt_save_tensor(s, toy_tensors[t].optim ? CKPT_OPTIM : CKPT_MODEL, toy_tensors[t].name, DT_F32,
                              toy_tensors[t].n_dims, toy_tensors[t].shape, data[t]);
    if (rc == 0)
        rc = ckpt_save_write(s);
    if (rc < 0) {
        ckpt_save_abort(s);
        return rc;
    }
    return ckpt_save_commit(s, keep);
}

int toy_save(const char *run, int64_t step, int keep)
{
    static float store[TOY_N][64];
    float *data[TOY_N];

    for (int t = 0; t < TOY_N; t++) {
        data[t] = store[t];
        for (int64_t i = 0; i < toy_count(t); i++)
            store[t][i] = toy_value(t, i, step);
    }
    return save(run, step, keep, data);
}

static void must(_Bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    exit(99);
}

const char *toy_mkdir(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = malloc(512);

    must(dir != NULL, "malloc");
    snprintf(dir, 512, "%s/moe-unit.XXXXXX", base && *base ? base : "/tmp");
    must(mkdtemp(dir) != NULL, dir);
    return dir;
}

void toy_rmdir(const char *dir)
{
    must(fs_remove_tree(dir) == 0, dir);
    free((void *)(uintptr_t)dir);
}

const char *toy_path(const char *dir, const char *name)
{
    static char buf[8][1024];
    static int i;

    i = (i + 1) % 8;
    snprintf(buf[i], sizeof buf[i], "%s/%s", dir, name);
    return buf[i];
}

void toy_get(const char *path, char **data, size_t *n)
{
    struct stat sb;
    int fd = open(path, O_RDONLY);

    must(fd >= 0 && fstat(fd, &sb) == 0, path);
    *n = (size_t)sb.st_size;
    *data = malloc(*n + 1);
    must(*data && read(fd, *data, *n) == (ssize_t)*n, path);
    (*data)[*n] = '\0';
    close(fd);
}

void toy_put(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    must(fd >= 0 && write(fd, data, n) == (ssize_t)n && close(fd) == 0, path);
}
