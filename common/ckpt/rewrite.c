/* rewrite.c -- one loop over tensors, pieces and inputs, for both. */
#include "ckpt/rewrite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "ckpt/cast.h"

#define PIECE_HASHED ST_PART_BYTES
#define PIECE_PLAIN ((uint64_t)1 << 20)
#define BLOCK 4096              /* elements averaged at a time */

struct job {
    struct arena *a;
    struct ckpt *const *c;      /* [n] */
    const double *weights;      /* NULL: copy the first */
    int n;
    struct rewrite *r;
    struct modeldir *out;
    const struct ckpt_tensor **t;       /* [n] the tensor at hand in each input */
    char *buf;                  /* a piece */
    double *sum;                /* [piece / 2]: a piece of 16-bit elements widened */
    uint64_t piece, done;
};

/* ---- do they fit each other? */

static _Bool same_shape(const struct ckpt_tensor *a, const struct ckpt_tensor *b)
{
    if (a->n_dims != b->n_dims)
        return 0;
    for (int i = 0; i < a->n_dims; i++)
        if (a->shape[i] != b->shape[i])
            return 0;
    return 1;
}

static int check_tensors(const struct ckpt *a, const struct ckpt *b)
{
    int64_t n = 0;

    for (int64_t i = 0; i < ckpt_n_tensors(a); i++) {
        const struct ckpt_tensor *t = ckpt_tensor(a, i), *o = ckpt_find(b, t->name);

        if (t->is_optim)
            continue;
        if (!cast_is_float(t->dtype))
            return err_set(ERR_DATA, "%s: tensor \"%s\" is %s; F32, BF16 or F16 was expected", ckpt_path(a), t->name, t->type);
        if (!o)
            return err_set(ERR_DATA, "%s: tensor \"%s\" of %s is missing", ckpt_path(b), t->name, ckpt_path(a));
        if (!same_shape(t, o) || !cast_is_float(o->dtype))
            return err_set(ERR_DATA, "%s: tensor \"%s\" has another shape or type than in %s", ckpt_path(b), t->name, ckpt_path(a));
        n++;
    }
    for (int64_t i = 0; i < ckpt_n_tensors(b); i++)
        if (!ckpt_tensor(b, i)->is_optim && !ckpt_find(a, ckpt_tensor(b, i)->name))
            return err_set(ERR_DATA, "%s: tensor \"%s\" is not in %s", ckpt_path(b), ckpt_tensor(b, i)->name, ckpt_path(a));
    return n ? 0 : err_set(ERR_DATA, "%s: no tensors", ckpt_path(a));
}

/* *out is owned; NULL where there is none. */
static int load_config(const struct ckpt *c, json_t **out)
{
    static const char *const other[] = { "dtype", "torch_dtype", "transformers_version", "_name_or_path" };
    struct fs_blob b;
    int rc = ckpt_read_file(c, "config.json", &b);

    *out = NULL;
    if (rc == ERR_NOINPUT)
        return 0;
    TRY(rc);
    rc = json_load_text(ckpt_path(c), b.data, b.size, out);
    fs_blob_free(&b);
    for (size_t i = 0; rc == 0 && i < sizeof other / sizeof *other; i++)
        json_object_del(*out, other[i]);
    return rc;
}

static int check_config(const struct ckpt *a, const struct ckpt *b)
{
    json_t *x = NULL, *y = NULL;
    int rc = load_config(a, &x);

    if (rc == 0)
        rc = load_config(b, &y);
    if (rc == 0 && (x || y) && !json_equal(x, y))
        rc = err_set(ERR_DATA, "%s/config.json: another model than %s", ckpt_path(b), ckpt_path(a));
    json_decref(x);
    json_decref(y);
    return rc;
}

/* ---- bytes */

static int put(struct job *j, int i, uint64_t at, const void *data, size_t n)
{
    TRY(modeldir_put(j->out, i, at, data, n));
    j->done += n;
    if (j->r->progress)
        j->r->progress(j->r->ctx, j->done, modeldir_bytes(j->out));
    return 0;
}

static int copy_tensor(struct job *j, int i, const struct ckpt_tensor *t)
{
    for (uint64_t at = 0, n; at < t->bytes; at += n) {
        n = t->bytes - at < j->piece ? t->bytes - at : j->piece;
        TRY(ckpt_read(j->c[0], t, at, (size_t)n, j->buf));
        TRY(put(j, i, at, j->buf, (size_t)n));
    }
    return 0;
}

static void add_weighted(double *sum, const char *from, enum dtype type, int64_t n, double weight, _Bool first)
{
    float wide[BLOCK];

    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t k = n - at < BLOCK ? n - at : BLOCK;

        cast_array(wide, DT_F32, from + (size_t)at * dtype_size(type), type, k);
        if (first)
            for (int64_t i = 0; i < k; i++)
                sum[at + i] = weight * (double)wide[i];
        else
            for (int64_t i = 0; i < k; i++)
                sum[at + i] += weight * (double)wide[i];
    }
}

static int average_tensor(struct job *j, int i)
{
    const struct ckpt_tensor *t = j->t[0];
    size_t size = dtype_size(t->dtype);
    int64_t count = (int64_t)(t->bytes / size), n, most = (int64_t)(j->piece / 4);
    float narrow[BLOCK];

    for (int64_t at = 0; at < count; at += n) {
        n = count - at < most ? count - at : most;
        for (int k = 0; k < j->n; k++) {
            size_t s = dtype_size(j->t[k]->dtype);

            TRY(ckpt_read(j->c[k], j->t[k], (uint64_t)at * s, (size_t)n * s, j->buf));
            add_weighted(j->sum, j->buf, j->t[k]->dtype, n, j->weights[k], k == 0);
        }
        for (int64_t b = 0; b < n; b += BLOCK) {
            int64_t m = n - b < BLOCK ? n - b : BLOCK;

            for (int64_t e = 0; e < m; e++)
                narrow[e] = (float)j->sum[b + e];
            cast_array(j->buf + (size_t)b * size, t->dtype, narrow, DT_F32, m);
        }
        TRY(put(j, i, (uint64_t)at * size, j->buf, (size_t)n * size));
    }
    return 0;
}

/* ---- all */

static int each_tensor(struct job *j, int (*fn)(struct job *j, int i, const struct ckpt_tensor *t))
{
    int i = 0;

    for (int64_t k = 0; k < ckpt_n_tensors(j->c[0]); k++) {
        const struct ckpt_tensor *t = ckpt_tensor(j->c[0], k);

        if (t->is_optim && j->weights)
            continue;
        TRY(fn(j, i++, t));
    }
    return 0;
}

static int declare(struct job *j, int i, const struct ckpt_tensor *t)
{
    (void)i;
    if (t->dtype == DT_N)
        return err_set(ERR_DATA, "%s: tensor \"%s\" is %s, which is only listed and copied whole", ckpt_path(j->c[0]), t->name, t->type);
    TRY(modeldir_add(j->out, t->is_optim ? CKPT_OPTIM : CKPT_MODEL, t->name, t->dtype, t->n_dims, t->shape));
    j->r->n_tensors++;
    return 0;
}

static int move(struct job *j, int i, const struct ckpt_tensor *t)
{
    if (!j->weights)
        return copy_tensor(j, i, t);
    for (int k = 0; k < j->n; k++)
        j->t[k] = k ? ckpt_find(j->c[k], t->name) : t;
    return average_tensor(j, i);
}

static int recipe(struct job *j, struct hash *out)
{
    struct hash_stream *h = hash_begin();
    const char *text = arena_printf(j->a, "moe.%s/1 %" PRIu64 " %d\n", j->r->by.how, j->r->shard_bytes, j->r->n_files);
    int rc = 0;

    hash_add(h, text, strlen(text));
    for (int i = 0; i < j->n && rc == 0; i++) {
        if (j->weights)
            hash_add(h, &j->weights[i], sizeof *j->weights);
        rc = derive_digest(j->c[i], h);
    }
    *out = hash_end(h);
    return rc;
}

static int run(struct job *j)
{
    const struct ckpt *last = j->c[j->n - 1];
    struct manifest_info info;
    struct hash made;
    int rc;

    for (int i = 0; i < j->n; i++) {
        TRY(derive_check_place(j->c[i], j->r->to));
        if (ckpt_manifest(j->c[i]))
            j->piece = PIECE_HASHED;
    }
    TRY(recipe(j, &made));
    derive_info(last, &j->r->by, &made, &info);
    if (!j->weights && ckpt_manifest(last)) {           /* the same checkpoint, so the same state */
        info = ckpt_manifest(last)->info;
        info.tool = j->r->by.tool;
        info.argv = j->r->by.argv;
        info.n_argv = j->r->by.argc;
    } else if (modeldir_is_current(j->r->to, &made)) {
        j->r->was_current = 1;
        return 0;
    }
    j->buf = malloc((size_t)j->piece);
    j->sum = j->weights ? malloc((size_t)j->piece / 4 * sizeof *j->sum) : NULL;
    if (!j->buf || (j->weights && !j->sum))
        return err_set(ERR_IO, "no memory for a piece of %" PRIu64 " bytes", j->piece);
    TRY(modeldir_begin(j->r->to, j->r->replace ? MODELDIR_REPLACE : 0, &info, j->r->shard_bytes, j->r->n_files, &j->out));
    TRY_OUT(rc, each_tensor(j, declare));
    TRY_OUT(rc, derive_files(j->c[0], 1, j->out));
    j->r->bytes = modeldir_bytes(j->out);
    TRY_OUT(rc, modeldir_start(j->out));
    TRY_OUT(rc, each_tensor(j, move));
    j->r->n_made = modeldir_n_files(j->out);
    return modeldir_commit(j->out);
out:
    modeldir_abort(j->out);
    return rc;
}

static int start(struct ckpt *const *c, const double *weights, int n, struct rewrite *r)
{
    struct job j = { .a = arena_new(), .c = c, .weights = weights, .n = n, .r = r, .piece = PIECE_PLAIN };
    int rc;

    j.t = arena_array(j.a, (size_t)n, sizeof *j.t);
    rc = run(&j);
    free(j.buf);
    free(j.sum);
    arena_free(j.a);
    return rc;
}

int rewrite_reshard(const struct ckpt *c, struct rewrite *r)
{
    struct ckpt *one = (struct ckpt *)(uintptr_t)c;

    return start(&one, NULL, 1, r);
}

int rewrite_average(struct ckpt *const *c, const double *weights, int n, struct rewrite *r)
{
    TRY(check_tensors(c[0], c[0]));
    for (int i = 1; i < n; i++) {
        TRY(check_tensors(c[0], c[i]));
        TRY(check_config(c[0], c[i]));
    }
    return start(c, weights, n, r);
}
