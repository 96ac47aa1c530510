/* convert.c -- tensors through two buffers, from where they lie to where they go.
 *
 * Pieces end where the parts of the input end, so that with a MANIFEST each byte
 * is read and hashed once; without one they are small enough for the cache. */
#include "ckpt/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/pool.h"
#include "ckpt/cast.h"
#include "ckpt/convert_map.h"
#include "ckpt/derive.h"
#include "ckpt/modeldir.h"

#define PIECE_HASHED ST_PART_BYTES      /* bytes of the input */
#define PIECE_PLAIN ((uint64_t)1 << 20)

struct run {
    struct arena *a;
    const struct ckpt *c;
    struct convert *v;
    struct convert_map map;
    struct modeldir *out;
    char *in_buf, *out_buf;
    uint64_t piece;             /* bytes of in_buf */
    uint64_t done;
};

const char *convert_refusal(const char *model_type)
{
    static const struct { const char *name, *why; } known[] = {
        { "gpt_oss", "gpt_oss is not converted: attention sinks, biases of experts and clamped gates have no place in our five families; "
                     "ls, info, verify --structure, cat and diff work on its files" },
        { "deepseek_v2", "deepseek_v2 is not converted: latent attention (MLA) is not part of this trainer; "
                         "ls, info, verify --structure, cat and diff work on its files" },
        { "deepseek_v3", "deepseek_v3 is not converted: latent attention (MLA) is not part of this trainer; "
                         "ls, info, verify --structure, cat and diff work on its files" },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, model_type))
            return known[i].why;
    return NULL;
}

static void note(struct run *r, const char *sentence)
{
    if (r->v->note)
        r->v->note(r->v->ctx, sentence);
}

/* ---- how it is made: the hash of this is MANIFEST's "plan" */

static int recipe(struct run *r, struct hash *out)
{
    struct hash_stream *h = hash_begin();
    const char *text = arena_printf(r->a, "moe.convert/1 %s %d %" PRIu64 "\n", model_type_name(r->map.out.model_type), (int)r->v->dtype,
                                    r->v->shard_bytes ? r->v->shard_bytes : CKPT_SHARD_BYTES);
    int rc;

    hash_add(h, text, strlen(text));
    rc = derive_digest(r->c, h);
    *out = hash_end(h);
    return rc;
}

/* ---- files beside the tensors */

static const char *torch_name(enum dtype t) { return t == DT_BF16 ? "bfloat16" : t == DT_F16 ? "float16" : "float32"; }

static int add_config(struct run *r)
{
    char *text = model_config_json_typed(&r->map.out, -1, 0, torch_name(r->map.dtype));

    if (!text)
        return err_set(ERR_IO, "no memory for config.json");
    modeldir_file(r->out, "config.json", text, strlen(text));
    pool_free(text);
    return 0;
}

/* ---- tensors */

/* Elements from `first` on, at most to the end of a piece; converts into out_buf. */
static int read_piece(struct run *r, const struct convert_item *it, int64_t done, int64_t *n, const char **data)
{
    size_t in = dtype_size(it->from->dtype);
    uint64_t first = (uint64_t)(it->first + done) * in, end = (first / r->piece + 1) * r->piece;
    int64_t over;

    *n = (int64_t)((end - first) / in);
    if (*n > it->n - done)
        *n = it->n - done;
    TRY(ckpt_read(r->c, it->from, first, (size_t)*n * in, r->in_buf));
    *data = r->in_buf;
    if (it->dtype == it->from->dtype)
        return 0;
    over = cast_array(r->out_buf, it->dtype, r->in_buf, it->from->dtype, *n);
    if (over)
        return err_set(ERR_DATA, "%s: tensor \"%s\": %" PRId64 " value%s too large for %s", ckpt_path(r->c), it->from->name, over,
                       over == 1 ? " is" : "s are", dtype_name(it->dtype));
    *data = r->out_buf;
    return 0;
}

static int copy_tensor(struct run *r, int i, const struct convert_item *it)
{
    size_t out = dtype_size(it->dtype);
    const char *data = r->out_buf;
    int64_t n;

    if (!it->from)
        memset(r->out_buf, 0, (size_t)r->piece);
    for (int64_t done = 0; done < it->n; done += n) {
        if (it->from)
            TRY(read_piece(r, it, done, &n, &data));
        else
            n = it->n - done < (int64_t)(r->piece / out) ? it->n - done : (int64_t)(r->piece / out);
        TRY(modeldir_put(r->out, i, (uint64_t)done * out, data, (size_t)n * out));
        r->done += (uint64_t)n * out;
        if (r->v->progress)
            r->v->progress(r->v->ctx, r->done, modeldir_bytes(r->out));
    }
    return 0;
}

/* Left out only if it adds nothing: every value is 0 or -0. */
static int check_zero(struct run *r, const struct ckpt_tensor *t)
{
    size_t size = dtype_size(t->dtype);
    uint64_t n;

    for (uint64_t at = 0; at < t->bytes; at += n) {
        n = t->bytes - at < r->piece ? t->bytes - at : r->piece;
        TRY(ckpt_read(r->c, t, at, (size_t)n, r->in_buf));
        for (uint64_t i = 0; i < n; i++)
            if (r->in_buf[i] & (i % size == size - 1 ? 0x7f : 0xff))
                return err_set(ERR_DATA, "%s: tensor \"%s\" is not all zeros, and %s has no place for it", ckpt_path(r->c), t->name,
                               model_type_name(r->map.out.model_type));
    }
    return 0;
}

static int declare(struct run *r)
{
    for (int i = 0; i < r->map.table_out.n; i++) {
        const struct convert_item *it = &r->map.items[i];
        int64_t shape[2] = { it->param->rows, it->param->cols };

        TRY(modeldir_add(r->out, CKPT_MODEL, it->param->name, it->dtype, it->param->n_dims, shape));
    }
    r->v->n_tensors = r->map.table_out.n;
    r->v->bytes = modeldir_bytes(r->out);
    r->v->family_written = (enum model_type)r->map.out.model_type;
    r->v->dtype_written = r->map.dtype;
    return 0;
}

static void tell_unused(struct run *r)
{
    for (int i = 0; i < r->map.n_unused; i++)
        note(r, arena_printf(r->a, "\"%s\" is left out: %s", r->map.unused[i]->name,
                             strstr(r->map.unused[i]->name, "shared_expert") ? "what it feeds is zero"
                             : "multi-token prediction is not part of the model"));
    if (ckpt_n_tensors(r->c) && ckpt_tensor(r->c, ckpt_n_tensors(r->c) - 1)->is_optim)
        note(r, arena_printf(r->a, "the optimizer state stays in %s", ckpt_path(r->c)));
}

static int convert(struct run *r)
{
    struct manifest_info info;
    struct hash made;
    int rc;

    TRY(convert_map_make(r->a, r->c, r->v->family, r->v->dtype, &r->map));
    TRY(derive_check_place(r->c, r->v->to));
    TRY(recipe(r, &made));
    if (modeldir_is_current(r->v->to, &made)) {
        r->v->was_current = 1;
        return 0;
    }
    r->piece = ckpt_manifest(r->c) ? PIECE_HASHED : PIECE_PLAIN;
    r->in_buf = malloc((size_t)r->piece);
    r->out_buf = malloc(2 * (size_t)r->piece);
    if (!r->in_buf || !r->out_buf)
        return err_set(ERR_IO, "no memory for a piece of %" PRIu64 " bytes", r->piece);
    for (int i = 0; i < r->map.n_zero; i++)
        TRY(check_zero(r, r->map.zero[i]));
    derive_info(r->c, &r->v->by, &made, &info);
    TRY(modeldir_begin(r->v->to, r->v->replace ? MODELDIR_REPLACE : 0, &info, r->v->shard_bytes, 0, &r->out));
    TRY_OUT(rc, declare(r));
    TRY_OUT(rc, add_config(r));
    TRY_OUT(rc, derive_files(r->c, 0, r->out));
    TRY_OUT(rc, modeldir_start(r->out));
    tell_unused(r);
    for (int i = 0; i < r->map.table_out.n; i++)
        TRY_OUT(rc, copy_tensor(r, i, &r->map.items[i]));
    r->v->n_files = modeldir_n_files(r->out);
    return modeldir_commit(r->out);
out:
    modeldir_abort(r->out);
    return rc;
}

int convert_run(const struct ckpt *c, struct convert *v)
{
    struct run r = { .a = arena_new(), .c = c, .v = v };
    int rc = convert(&r);

    convert_map_fini(&r.map);
    free(r.in_buf);
    free(r.out_buf);
    arena_free(r.a);
    return rc;
}
