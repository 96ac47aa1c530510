/* ckpt_average.c -- moe-ckpt average: one model of several. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/units.h"
#include "ckpt/rewrite.h"

#include "ckpt_cmds.h"

struct average { struct opt_common common; const char *weights; double ema; int64_t shard; _Bool force, json; };

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace a directory that moe-ckpt wrote", offsetof(struct average, force), 0, 0 },
    { OPT_STR, 'w', "weights", "LIST", NULL, "one number per checkpoint, with commas; scaled to sum to 1", offsetof(struct average, weights), 0, 0 },
    { OPT_FLOAT, 0, "ema", "B", "0", "running mean: B of what was, 1 - B of the next", offsetof(struct average, ema), 0, 0.999999999 },
    { OPT_INT, 0, "shard-size", "BYTES", "5G", "tensor bytes in one file at most", offsetof(struct average, shard), 1, 9e15 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object", offsetof(struct average, json), 0, 0 },
    OPT_END
};

/* Uniform, as listed, or those of a running mean that begins with the first. */
static int make_weights(struct arena *a, const struct average *o, int n, double *w)
{
    double sum = 0, rest = 1;

    if (o->weights && o->ema > 0)
        return err_set(ERR_USAGE, "--weights and --ema exclude each other");
    if (o->weights) {
        char *list = arena_strdup(a, o->weights), *next = list;
        int k = 0;

        for (char *word = next; word; word = next) {
            next = strchr(word, ',');
            if (next)
                *next++ = '\0';
            if (k == n)
                return err_set(ERR_USAGE, "--weights %s: more numbers than the %d checkpoints", o->weights, n);
            TRY(units_float(word, &w[k]));
            sum += w[k++];
        }
        if (k < n)
            return err_set(ERR_USAGE, "--weights %s: %d number%s for %d checkpoints", o->weights, k, k == 1 ? "" : "s", n);
        if (!(fabs(sum) > 1e-12))
            return err_set(ERR_USAGE, "--weights %s: they sum to 0", o->weights);
        for (int i = 0; i < n; i++)
            w[i] /= sum;
        return 0;
    }
    for (int i = n - 1; i >= 0; i--) {
        w[i] = o->ema > 0 ? (i ? (1 - o->ema) * rest : rest) : 1.0 / n;
        rest *= o->ema;
    }
    return 0;
}

static int average(void *options, int argc, char **argv)
{
    const struct average *o = options;
    struct ckpt_cmds_bar bar = { "average", NULL };
    struct arena *a = arena_new();
    int n = argc - 1, rc;
    struct ckpt **c = arena_array(a, (size_t)n, sizeof *c);
    double *w = arena_array(a, (size_t)n, sizeof *w), start = clock_s();
    struct rewrite r = {
        .to = argv[n], .replace = o->force, .shard_bytes = (uint64_t)o->shard,
        .by = ckpt_cmds_maker(a, "average"), .progress = ckpt_cmds_progress, .ctx = &bar,
    };

    TRY_OUT(rc, make_weights(a, o, n, w));
    for (int i = 0; i < n; i++)
        TRY_OUT(rc, ckpt_cmds_open(argv[i], &c[i]));
    rc = rewrite_average(c, w, n, &r);
    ckpt_cmds_progress_end(&bar);
    if (rc == 0)
        rc = ckpt_cmds_written(&(struct ckpt_cmds_written){ r.to, "average", r.was_current, r.n_tensors, r.n_made, r.bytes,
                                                            clock_s() - start }, o->json);
out:
    for (int i = 0; i < n; i++)
        ckpt_close(c[i]);
    arena_free(a);
    return rc;
}

const struct opt_cmd ckpt_average_cmd = {
    "average", "write the mean of several models", "[-f] [-w LIST | --ema B] [--shard-size BYTES] [--json] CKPT... DIR",
    "moe-ckpt average runs/a/ckpt/step-* mean\n"
    "moe-ckpt average --weights 1,3 hf other mixed\n",
    opts, sizeof(struct average), 2, -1, average
};
