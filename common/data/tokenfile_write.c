/* tokenfile_write.c -- token files that appear whole or not at all.
 *
 * Ids go to .bin as they come; the lengths wait in memory (4 bytes a document)
 * for .idx.  At commit an old sidecar goes first, then .bin and .idx take their
 * place, then the new sidecar: at no moment does a sidecar vouch for files that
 * are not its own. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "data/sidecar.h"
#include "data/tokenfile.h"

enum { BUFFER_IDS = 1 << 16 };

/* An output whose chunks are hashed on the way. */
struct hashed {
    struct fs_out *out;
    struct hash_stream *stream;
    size_t in_chunk;
    struct hash *hash;
    int n, cap;
};

struct tokenfile_writer {
    struct arena *arena;
    const char *json_path;
    struct sidecar side;
    struct hashed bin, idx;
    int32_t *length; size_t cap_length;
    int64_t doc_tokens;
    unsigned char *buf;                 /* BUFFER_IDS ids in the file's type */
};

static int end_chunk(struct hashed *h)
{
    if (h->n == h->cap) {
        int cap = 2 * h->cap + 16;
        struct hash *p = realloc(h->hash, (size_t)cap * sizeof *p);
        if (p == NULL)
            return err_sys(ERR_IO, "memory for %d hashes", cap);
        h->hash = p;
        h->cap = cap;
    }
    h->hash[h->n++] = hash_end(h->stream);
    h->stream = NULL;
    h->in_chunk = 0;
    return 0;
}

static int hashed_write(struct hashed *h, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        size_t k = TOKENFILE_CHUNK - h->in_chunk < n ? TOKENFILE_CHUNK - h->in_chunk : n;
        if (h->stream == NULL)
            h->stream = hash_begin();
        hash_add(h->stream, p, k);
        TRY(fs_out_write(h->out, p, k));
        h->in_chunk += k;
        if (h->in_chunk == TOKENFILE_CHUNK)
            TRY(end_chunk(h));
        p += k;
        n -= k;
    }
    return 0;
}

static int hashed_finish(struct hashed *h)
{
    return h->in_chunk > 0 ? end_chunk(h) : 0;
}

static void hashed_free(struct hashed *h)
{
    fs_out_abort(h->out);
    if (h->stream != NULL)
        hash_end(h->stream);
    free(h->hash);
}

static void writer_free(struct tokenfile_writer *w)
{
    hashed_free(&w->bin);
    hashed_free(&w->idx);
    free(w->length);
    free(w->buf);
    arena_free(w->arena);
    free(w);
}

int tokenfile_create(const char *prefix, const struct tokenfile_info *info, struct tokenfile_writer **out)
{
    int rc;
    *out = NULL;
    struct tokenfile_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_sys(ERR_IO, "memory for a writer");
    w->arena = arena_new();
    w->side.info = *info;
    w->side.chunk_bytes = TOKENFILE_CHUNK;
    struct tokenfile_info *i = &w->side.info;
    i->documents = i->tokens = i->text_bytes = i->empty = i->invalid_utf8 = 0;
    if (i->dtype_bytes == 0)
        i->dtype_bytes = i->vocab_size < 65500 ? 2 : 4;
    BUG_ON(i->dtype_bytes == 2 && i->vocab_size > 65536);
    w->json_path = arena_printf(w->arena, "%s.json", prefix);
    w->buf = malloc((size_t)BUFFER_IDS * 4);
    if (w->buf == NULL) {
        rc = err_sys(ERR_IO, "memory for a buffer");
        goto out;
    }
    TRY_OUT(rc, fs_mkdirs(fs_parent(w->arena, prefix)));
    TRY_OUT(rc, fs_out_open(arena_printf(w->arena, "%s.bin", prefix), &w->bin.out));
    TRY_OUT(rc, fs_out_open(arena_printf(w->arena, "%s.idx", prefix), &w->idx.out));
    *out = w;
    return 0;
out:
    writer_free(w);
    return rc;
}

int tokenfile_append(struct tokenfile_writer *w, const int32_t *ids, size_t n)
{
    const struct tokenfile_info *i = &w->side.info;
    while (n > 0) {
        size_t k = n < BUFFER_IDS ? n : BUFFER_IDS;
        for (size_t j = 0; j < k; j++) {
            if (ids[j] < 0 || ids[j] >= i->vocab_size)
                return err_set(ERR_DATA, "%s: id %d is beyond the vocabulary of %lld tokens", fs_out_path(w->bin.out),
                               (int)ids[j], (long long)i->vocab_size);
            if (i->dtype_bytes == 2) {
                uint16_t v = (uint16_t)ids[j];
                memcpy(w->buf + 2 * j, &v, 2);
            } else {
                memcpy(w->buf + 4 * j, &ids[j], 4);
            }
        }
        TRY(hashed_write(&w->bin, w->buf, k * (size_t)i->dtype_bytes));
        w->doc_tokens += (int64_t)k;
        ids += k;
        n -= k;
    }
    return 0;
}

int tokenfile_end_doc(struct tokenfile_writer *w, uint64_t text_bytes)
{
    struct tokenfile_info *i = &w->side.info;
    i->empty += w->doc_tokens == 0;
    TRY(tokenfile_append(w, &i->eod_id, 1));
    if (w->doc_tokens > INT32_MAX)
        return err_set(ERR_DATA, "%s: document %lld has %lld tokens, more than the format's %d; cut it with --docs line or blank",
                       fs_out_path(w->bin.out), (long long)i->documents, (long long)w->doc_tokens, INT32_MAX);
    if ((size_t)i->documents == w->cap_length) {
        size_t cap = 2 * w->cap_length + 1024;
        int32_t *p = realloc(w->length, cap * sizeof *p);
        if (p == NULL)
            return err_sys(ERR_IO, "memory for the lengths of %zu documents", cap);
        w->length = p;
        w->cap_length = cap;
    }
    w->length[i->documents++] = (int32_t)w->doc_tokens;
    i->tokens += w->doc_tokens;
    i->text_bytes += (int64_t)text_bytes;
    w->doc_tokens = 0;
    return 0;
}

static int write_idx(struct tokenfile_writer *w)
{
    const struct tokenfile_info *i = &w->side.info;
    uint64_t version = 1, n = (uint64_t)i->documents, n_docs = n + 1;
    uint8_t code = i->dtype_bytes == 2 ? 8 : 4;
    int64_t at = 0;
    TRY(hashed_write(&w->idx, "MMIDIDX\0\0", 9));
    TRY(hashed_write(&w->idx, &version, 8));
    TRY(hashed_write(&w->idx, &code, 1));
    TRY(hashed_write(&w->idx, &n, 8));
    TRY(hashed_write(&w->idx, &n_docs, 8));
    TRY(hashed_write(&w->idx, w->length, n * 4));
    for (uint64_t k = 0; k < n; k++) {
        TRY(hashed_write(&w->idx, &at, 8));
        at += (int64_t)w->length[k] * i->dtype_bytes;
    }
    for (int64_t k = 0; k <= i->documents; k++)
        TRY(hashed_write(&w->idx, &k, 8));
    return hashed_finish(&w->idx);
}

/* When the second or third cannot take its place the others go too: without a
 * sidecar they would only be in the way of the next try. */
static int put_in_place(struct tokenfile_writer *w, const char *json, size_t n)
{
    char *bin = arena_strdup(w->arena, fs_out_path(w->bin.out)), *idx = arena_strdup(w->arena, fs_out_path(w->idx.out));
    struct fs_out *f = w->bin.out, *g = w->idx.out;
    struct err_state err;
    int rc;
    w->bin.out = NULL;
    if ((rc = fs_out_commit(f)) < 0)
        goto out;
    w->idx.out = NULL;
    if ((rc = fs_out_commit(g)) < 0)
        goto out;
    if ((rc = fs_write_file(w->json_path, json, n)) == 0)
        return 0;
out:
    err_take(&err);
    fs_remove_tree(bin);
    fs_remove_tree(idx);
    fs_remove_tree(w->json_path);
    return err_put(&err);
}

int tokenfile_commit(struct tokenfile_writer *w, int64_t invalid_utf8, struct tokenfile_info *done)
{
    int rc;
    size_t n;
    char *text = NULL;
    w->side.info.invalid_utf8 = invalid_utf8;
    TRY_OUT(rc, hashed_finish(&w->bin));
    TRY_OUT(rc, write_idx(w));
    w->side.bin = w->bin.hash;
    w->side.n_bin = w->bin.n;
    w->side.idx = w->idx.hash;
    w->side.n_idx = w->idx.n;
    text = sidecar_text(&w->side, &n);
    if (fs_exists(w->json_path)) {
        TRY_OUT(rc, fs_remove_tree(w->json_path));
        TRY_OUT(rc, fs_sync_dir(fs_parent(w->arena, w->json_path)));
    }
    TRY_OUT(rc, put_in_place(w, text, n));
    if (done != NULL) {
        struct tokenfile_info *i = &w->side.info;
        *done = (struct tokenfile_info){ .vocab_size = i->vocab_size, .eod_id = i->eod_id, .dtype_bytes = i->dtype_bytes,
            .documents = i->documents, .tokens = i->tokens, .text_bytes = i->text_bytes,
            .invalid_utf8 = i->invalid_utf8, .empty = i->empty };
    }
    rc = 0;
out:
    free(text);
    writer_free(w);
    return rc;
}

void tokenfile_abort(struct tokenfile_writer *w)
{
    if (w != NULL)
        writer_free(w);
}
