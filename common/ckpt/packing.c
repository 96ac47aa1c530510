/* packing.c -- a directory to a stream: blocks in order, an index at the end.
 *
 * Tensor bytes come through ckpt_read(), so with a MANIFEST they are hashed on
 * the way in; what lies between them in a file is its header alone. */
#include "ckpt/packing.h"

#include <fcntl.h>
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/grow.h"
#include "base/json.h"
#include "ckpt/packing_impl.h"

#define BATCH 64                        /* chunks compressed side by side: one part of a tensor */

struct pack {
    struct arena *a;
    const struct ckpt *c;
    struct packing *p;
    packing_sink *sink;
    void *sink_ctx;
    uint64_t number, total;
    char *buf, *base_buf;       /* [BATCH] chunks */
    char *packed;               /* [BATCH] payloads */
    struct packing_codec **codec;       /* [n_threads] */
    int n_threads;
    char *index;
    size_t n_index;
    int64_t room_index;
};

static int send(struct pack *k, const void *data, size_t n)
{
    k->p->packed_bytes += n;
    return n ? k->sink(k->sink_ctx, data, n) : 0;
}

static int put_block(struct pack *k, const struct packing_block *b, const void *payload)
{
    unsigned char head[PACKING_HEAD];

    packing_head_put(head, b, k->number++);
    TRY(send(k, head, sizeof head));
    return send(k, payload, b->packed);
}

static int put_json(struct pack *k, char kind, struct json_out *j)
{
    size_t n;
    const char *text = json_text(j, &n);
    struct packing_block b = { .kind = (uint8_t)kind, .width = 1, .packed = (uint32_t)n, .raw = (uint32_t)n, .hash = packing_hash(text, n) };
    int rc = n < PACKING_JSON_MAX ? put_block(k, &b, text) : err_set(ERR_DATA, "a name that is too long to pack");

    json_free(j);
    return rc;
}

/* Chunks of n bytes of buf, compressed side by side, sent in order. */
static int put_chunks(struct pack *k, const char *buf, const char *base, size_t n, int width, int flags)
{
    int chunks = (int)((n + PACKING_CHUNK - 1) / PACKING_CHUNK), failed = 0;
    struct packing_block b[BATCH];

#pragma omp parallel for schedule(dynamic) num_threads(k->n_threads) if (chunks > 1)
    for (int i = 0; i < chunks; i++) {
        size_t at = (size_t)i * PACKING_CHUNK;
        uint32_t len = n - at < PACKING_CHUNK ? (uint32_t)(n - at) : PACKING_CHUNK;

        b[i] = (struct packing_block){ .width = (uint8_t)width, .flags = (uint8_t)flags };
        if (packing_chunk_encode(k->codec[omp_get_thread_num()], buf + at, base ? base + at : NULL, len,
                                 k->packed + (size_t)i * packing_chunk_max(), &b[i]) < 0) {
#pragma omp atomic write
            failed = 1;
        }
    }
    if (failed)
        return err_set(ERR_IO, "no memory for compression");
    for (int i = 0; i < chunks; i++)
        TRY(put_block(k, &b[i], k->packed + (size_t)i * packing_chunk_max()));
    k->p->raw_bytes += n;
    if (k->p->progress)
        k->p->progress(k->p->ctx, k->p->raw_bytes, k->total);
    return 0;
}

/* ---- files */

static int begin_file(struct pack *k, const char *name, uint64_t bytes)
{
    struct json_out *j = json_new();

    json_obj(j, NULL);
    json_put_str(j, "name", name);
    json_put_int(j, "bytes", (int64_t)bytes);
    json_obj_end(j);
    k->p->n_files++;
    return put_json(k, 'F', j);
}

static int put_bytes(struct pack *k, const char *name, const char *data, size_t n)
{
    TRY(begin_file(k, name, n));
    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < (size_t)BATCH * PACKING_CHUNK ? n - at : (size_t)BATCH * PACKING_CHUNK;
        TRY(put_chunks(k, data + at, NULL, m, 1, 0));
    }
    return 0;
}

static int put_small(struct pack *k, const char *name)
{
    struct fs_blob b;
    int rc = strcmp(name, MANIFEST_NAME) ? ckpt_read_file(k->c, name, &b) : fs_read(fs_join(k->a, ckpt_path(k->c), name), &b);

    if (rc < 0)
        return rc;
    rc = put_bytes(k, name, b.data, b.size);
    fs_blob_free(&b);
    return rc;
}

static int note_index(struct pack *k, const struct ckpt_tensor *t)
{
    const char *line = arena_printf(k->a, "%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", t->name, k->p->packed_bytes, k->number, t->bytes);
    size_t n = strlen(line);

    TRY(grow_plain(&k->index, &k->room_index, (int64_t)(k->n_index + n + 1), 1, "bytes of an index"));
    memcpy(k->index + k->n_index, line, n + 1);
    k->n_index += n;
    return 0;
}

/* The tensor of the base that this one is packed against, or NULL. */
static const struct ckpt_tensor *partner(const struct pack *k, const struct ckpt_tensor *t)
{
    const struct ckpt_tensor *b = k->p->base ? ckpt_find(k->p->base, t->name) : NULL;

    return b && !strcmp(b->type, t->type) && b->bytes == t->bytes ? b : NULL;
}

static int put_tensor(struct pack *k, const struct ckpt_tensor *t)
{
    const struct ckpt_tensor *base = partner(k, t);
    int bits = st_type_bits(t->type), width = bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 1;
    int flags = t->dtype == DT_F32 || t->dtype == DT_BF16 || t->dtype == DT_F16 ? PACKING_ROTATED : 0;
    struct json_out *j;

    TRY(note_index(k, t));
    j = json_new();
    json_obj(j, NULL);
    json_put_str(j, "name", t->name);
    json_put_int(j, "bytes", (int64_t)t->bytes);
    json_put_bool(j, "delta", base != NULL);
    json_obj_end(j);
    k->p->n_tensors++;
    TRY(put_json(k, 'T', j));
    for (uint64_t at = 0, n; at < t->bytes; at += n) {
        n = t->bytes - at < ST_PART_BYTES ? t->bytes - at : ST_PART_BYTES;
        TRY(ckpt_read(k->c, t, at, (size_t)n, k->buf));
        if (base)
            TRY(ckpt_read(k->p->base, base, at, (size_t)n, k->base_buf));
        TRY(put_chunks(k, k->buf, base ? k->base_buf : NULL, (size_t)n, width, flags));
    }
    return 0;
}

/* The header, then the tensors in the order of their bytes. */
static int put_tensor_file(struct pack *k, int64_t *i)
{
    const struct ckpt_tensor *first = ckpt_tensor(k->c, *i);
    const char *path = ckpt_kind(k->c) == CKPT_ONE_FILE ? ckpt_path(k->c) : fs_join(k->a, ckpt_path(k->c), first->file);
    struct st_file *f;
    size_t head;
    char *text;
    int fd, rc;

    TRY(st_open(path, &f));
    head = (size_t)st_head(f)->data_start;
    rc = begin_file(k, first->file, st_file_bytes(f));
    st_close(f);
    TRY(rc);
    text = malloc(head);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!text || fd < 0)
        rc = text ? err_sys(ERR_IO, "%s", path) : err_set(ERR_IO, "%s: no memory", path);
    if (rc == 0)
        rc = fs_pread(fd, path, text, head, 0);
    for (size_t at = 0, n; at < head && rc == 0; at += n) {
        n = head - at < (size_t)BATCH * PACKING_CHUNK ? head - at : (size_t)BATCH * PACKING_CHUNK;
        rc = put_chunks(k, text + at, NULL, n, 1, 0);
    }
    if (fd >= 0)
        close(fd);
    free(text);
    for (; rc == 0 && *i < ckpt_n_tensors(k->c) && ckpt_tensor(k->c, *i)->i_file == first->i_file; ++*i)
        rc = put_tensor(k, ckpt_tensor(k->c, *i));
    return rc;
}

/* A file of tensors that are not part of the model is a file like any other. */
static _Bool has_tensors(const struct ckpt *c, const char *name)
{
    size_t n = strlen(name);

    if (n <= 12 || strcmp(name + n - 12, ".safetensors"))
        return 0;
    for (int64_t i = 0; i < ckpt_n_tensors(c); i++)
        if (!strcmp(ckpt_tensor(c, i)->file, name))
            return 1;
    return 0;
}

/* Files without tensors: those the MANIFEST lists, or what lies in the directory. */
static int put_others(struct pack *k, const char *below)
{
    const char *dir = *below ? fs_join(k->a, ckpt_path(k->c), below) : ckpt_path(k->c);
    char **names;
    int n;

    TRY(fs_list(k->a, dir, &names, &n));
    for (int i = 0; i < n; i++) {
        const char *name = *below ? fs_join(k->a, below, names[i]) : names[i];
        struct stat sb;

        if (lstat(fs_join(k->a, dir, names[i]), &sb) < 0)
            return err_sys(ERR_IO, "%s/%s", dir, names[i]);
        if (S_ISDIR(sb.st_mode) && !*below && !strcmp(names[i], "optim"))
            TRY(put_others(k, name));
        else if (!S_ISREG(sb.st_mode) && !S_ISDIR(sb.st_mode))
            return err_set(ERR_DATA, "%s/%s: neither a file nor a directory", dir, names[i]);
        else if (S_ISREG(sb.st_mode) && !has_tensors(k->c, name))
            TRY(put_small(k, name));
    }
    return 0;
}

/* ---- the stream */

static int put_header(struct pack *k)
{
    struct json_out *j = json_new();

    TRY(send(k, PACKING_MAGIC, 8));
    json_obj(j, NULL);
    json_put_str(j, "format", "moe.pack/1");
    json_put_str(j, "tool", k->p->tool);
    json_put_str(j, "base", k->p->base ? ckpt_manifest(k->p->base)->self.hex : NULL);
    json_obj_end(j);
    return put_json(k, 'H', j);
}

static int put_index(struct pack *k)
{
    size_t room = ZSTD_compressBound(k->n_index), n;
    char *packed = malloc(room);
    uint64_t at = k->p->packed_bytes, number = k->number;
    unsigned char trailer[PACKING_TRAILER];
    struct packing_block b = { .kind = 'I', .width = 1, .raw = (uint32_t)k->n_index, .hash = packing_hash(k->index ? k->index : "", k->n_index) };
    int rc;

    n = packed ? ZSTD_compress(packed, room, k->index ? k->index : "", k->n_index, 3) : 0;
    if (!packed || ZSTD_isError(n) || k->n_index > PACKING_INDEX_MAX) {
        free(packed);
        return err_set(ERR_IO, "no memory for the index");
    }
    b.packed = (uint32_t)n;
    rc = put_block(k, &b, packed);
    free(packed);
    for (int i = 0; i < 8; i++) {
        trailer[i] = (unsigned char)(at >> 8 * i);
        trailer[8 + i] = (unsigned char)(number >> 8 * i);
    }
    memcpy(trailer + 16, PACKING_END, 8);
    return rc < 0 ? rc : send(k, trailer, sizeof trailer);
}

static int pack(struct pack *k)
{
    int64_t i = 0, n = ckpt_n_tensors(k->c);

    k->buf = malloc((size_t)BATCH * PACKING_CHUNK);
    k->base_buf = k->p->base ? malloc((size_t)BATCH * PACKING_CHUNK) : NULL;
    k->packed = malloc(BATCH * packing_chunk_max());
    if (!k->buf || !k->packed || (k->p->base && !k->base_buf))
        return err_set(ERR_IO, "no memory for a part of a tensor");
    if (k->p->base && !ckpt_manifest(k->p->base))
        return err_set(ERR_USAGE, "%s: a base needs a MANIFEST.json, by which it is known again", ckpt_path(k->p->base));
    for (int64_t t = 0; t < n; t++)
        k->total += ckpt_tensor(k->c, t)->bytes;
    TRY(put_header(k));
    if (ckpt_kind(k->c) != CKPT_ONE_FILE)
        TRY(put_others(k, ""));
    while (i < n)
        TRY(put_tensor_file(k, &i));
    return put_index(k);
}

int packing_write(const struct ckpt *c, packing_sink *sink, void *sink_ctx, struct packing *p)
{
    struct pack k = { .a = arena_new(), .c = c, .p = p, .sink = sink, .sink_ctx = sink_ctx, .n_threads = omp_get_max_threads() };
    int rc;

    k.codec = arena_array(k.a, (size_t)k.n_threads, sizeof *k.codec);
    for (int i = 0; i < k.n_threads; i++)
        k.codec[i] = packing_codec_new();
    rc = pack(&k);
    for (int i = 0; i < k.n_threads; i++)
        packing_codec_free(k.codec[i]);
    free(k.buf);
    free(k.base_buf);
    free(k.packed);
    free(k.index);
    arena_free(k.a);
    return rc;
}
