/* tokenfile_write.c -- token files that appear whole or not at all.
 *
 * Ids go to .bin as they come and lengths to where .idx has them; offsets
 * follow from the lengths when all are there, so nothing grows in memory but
 * a hash for each 64 MiB.  At commit an old sidecar goes first, then .bin and
 * .idx take their place, then the new sidecar: at no moment does a sidecar
 * vouch for files that are not its own.
 *
 * A part (tokenfile_part_open) is the same without the last step: its three
 * files stay under their names until tokenfile_place() moves them, and a mark
 * says how much of them is on the disk. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/grow.h"
#include "data/sidecar.h"
#include "data/tokenfile.h"

enum { BUFFER_IDS = 1 << 16, IDX_HEADER = 34, BLOCK = 1 << 18 };

/* An output whose chunks are hashed on the way. */
struct hashed {
    struct fs_out *out;
    struct hash_stream *stream;
    size_t in_chunk;
    struct hash *hash;
    int64_t cap;
    int n;
};

struct tokenfile_writer {
    struct arena *arena;
    const char *json_path;
    struct sidecar side;
    _Bool part;
    struct hashed bin, idx;             /* idx is hashed when it is whole */
    int64_t doc_tokens;
    unsigned char *buf;                 /* [BLOCK], for BUFFER_IDS ids in the file's type */
};

static int end_chunk(struct hashed *h)
{
    TRY(grow_plain(&h->hash, &h->cap, h->n + 1, sizeof *h->hash, "hashes"));
    h->hash[h->n++] = hash_end(h->stream);
    h->stream = NULL;
    h->in_chunk = 0;
    return 0;
}

static int hashed_add(struct hashed *h, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        size_t k = TOKENFILE_CHUNK - h->in_chunk < n ? TOKENFILE_CHUNK - h->in_chunk : n;
        if (h->stream == NULL)
            h->stream = hash_begin();
        hash_add(h->stream, p, k);
        h->in_chunk += k;
        if (h->in_chunk == TOKENFILE_CHUNK)
            TRY(end_chunk(h));
        p += k;
        n -= k;
    }
    return 0;
}

static int hashed_write(struct hashed *h, const void *data, size_t n)
{
    TRY(fs_out_write(h->out, data, n));
    return hashed_add(h, data, n);
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
    free(w->buf);
    arena_free(w->arena);
    free(w);
}

int tokenfile_dtype_bytes(int64_t vocab_size)
{
    return vocab_size < 65500 ? 2 : 4;
}

static struct tokenfile_writer *writer_new(const struct tokenfile_info *info)
{
    struct tokenfile_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->arena = arena_new();
    w->side.info = *info;
    w->side.chunk_bytes = TOKENFILE_CHUNK;
    struct tokenfile_info *i = &w->side.info;
    i->documents = i->tokens = i->text_bytes = i->empty = i->invalid_utf8 = 0;
    if (i->dtype_bytes == 0)
        i->dtype_bytes = tokenfile_dtype_bytes(i->vocab_size);
    if (i->empty_tokens == 0)
        i->empty_tokens = 1;
    BUG_ON(i->dtype_bytes == 2 && i->vocab_size > 65536);
    w->buf = malloc(BLOCK);
    if (w->buf == NULL) {
        writer_free(w);
        return NULL;
    }
    return w;
}

/* Room for the header, which is written when the number of documents is known. */
static int begin_idx(struct tokenfile_writer *w)
{
    static const char zero[IDX_HEADER];
    return fs_out_write(w->idx.out, zero, sizeof zero);
}

int tokenfile_create(const char *prefix, const struct tokenfile_info *info, struct tokenfile_writer **out)
{
    int rc;
    *out = NULL;
    struct tokenfile_writer *w = writer_new(info);
    if (w == NULL)
        return err_sys(ERR_IO, "memory for a writer");
    w->json_path = arena_printf(w->arena, "%s.json", prefix);
    TRY_OUT(rc, fs_mkdirs(fs_parent(w->arena, prefix)));
    TRY_OUT(rc, fs_out_open(arena_printf(w->arena, "%s.bin", prefix), &w->bin.out));
    TRY_OUT(rc, fs_out_open(arena_printf(w->arena, "%s.idx", prefix), &w->idx.out));
    TRY_OUT(rc, begin_idx(w));
    *out = w;
    return 0;
out:
    writer_free(w);
    return rc;
}

/* ---- documents */

int tokenfile_pack(int64_t vocab_size, int dtype_bytes, const int32_t *ids, size_t n, void *to)
{
    uint32_t top = 0;
    for (size_t j = 0; j < n; j++)      /* a negative id is a large one */
        top = (uint32_t)ids[j] > top ? (uint32_t)ids[j] : top;
    if (n > 0 && top >= vocab_size) {
        size_t j = 0;
        while ((uint32_t)ids[j] < vocab_size)
            j++;
        return err_set(ERR_DATA, "id %d is beyond the vocabulary of %lld tokens", (int)ids[j], (long long)vocab_size);
    }
    if (dtype_bytes == 4) {
        memcpy(to, ids, n * 4);
        return 0;
    }
    uint16_t *v = to;
    for (size_t j = 0; j < n; j++)
        v[j] = (uint16_t)ids[j];
    return 0;
}

int tokenfile_append(struct tokenfile_writer *w, const int32_t *ids, size_t n)
{
    const struct tokenfile_info *i = &w->side.info;
    while (n > 0) {
        size_t k = n < BUFFER_IDS ? n : BUFFER_IDS;
        if (tokenfile_pack(i->vocab_size, i->dtype_bytes, ids, k, w->buf) < 0)
            return err_add("%s", fs_out_path(w->bin.out));
        TRY(hashed_write(&w->bin, w->buf, k * (size_t)i->dtype_bytes));
        w->doc_tokens += (int64_t)k;
        ids += k;
        n -= k;
    }
    return 0;
}

static int end_doc(struct tokenfile_writer *w)
{
    struct tokenfile_info *i = &w->side.info;
    if (w->doc_tokens > INT32_MAX)
        return err_set(ERR_DATA, "%s: document %lld has %lld tokens, more than the format's %d; cut it with --docs line or blank",
                       fs_out_path(w->bin.out), (long long)i->documents, (long long)w->doc_tokens, INT32_MAX);
    int32_t n = (int32_t)w->doc_tokens;
    i->empty += n <= i->empty_tokens;
    i->documents++;
    i->tokens += n;
    w->doc_tokens = 0;
    return fs_out_write(w->idx.out, &n, sizeof n);
}

int tokenfile_end_doc(struct tokenfile_writer *w, uint64_t text_bytes)
{
    TRY(tokenfile_append(w, &w->side.info.eod_id, 1));
    w->side.info.text_bytes += (int64_t)text_bytes;
    return end_doc(w);
}

int tokenfile_append_packed(struct tokenfile_writer *w, const void *packed, const int64_t *length, int64_t n, _Bool open, uint64_t text_bytes)
{
    int64_t tokens = 0;
    for (int64_t d = 0; d < n; d++)
        tokens += length[d];
    TRY(hashed_write(&w->bin, packed, (size_t)tokens * (size_t)w->side.info.dtype_bytes));
    w->side.info.text_bytes += (int64_t)text_bytes;
    for (int64_t d = 0; d < n; d++) {
        w->doc_tokens += length[d];
        if (d + 1 < n || !open)
            TRY(end_doc(w));
    }
    return 0;
}

int64_t *tokenfile_empty(struct tokenfile_writer *w)
{
    return &w->side.info.empty;
}

int64_t tokenfile_written(const struct tokenfile_writer *w)
{
    return w->side.info.tokens;
}

/* ---- the end */

/* Offsets from the lengths that are in the file; then all of it is hashed. */
static int write_idx(struct tokenfile_writer *w)
{
    const struct tokenfile_info *i = &w->side.info;
    struct fs_out *f = w->idx.out;
    const uint64_t version = 1, n = (uint64_t)i->documents, n_docs = n + 1;
    enum { HALF = BLOCK / 2 };
    unsigned char head[IDX_HEADER] = "MMIDIDX\0\0";
    int64_t at = 0, k = 0;
    memcpy(head + 9, &version, 8);
    head[17] = i->dtype_bytes == 2 ? 8 : 4;
    memcpy(head + 18, &n, 8);
    memcpy(head + 26, &n_docs, 8);
    TRY(fs_out_at(f, 0, head, sizeof head));
    /* Lengths go to the second half of the buffer, offsets to the first. */
    while (k < i->documents) {
        int64_t m = i->documents - k < HALF / 8 ? i->documents - k : HALF / 8;
        TRY(fs_out_read(f, IDX_HEADER + 4 * (uint64_t)k, w->buf + HALF, 4 * (size_t)m));
        for (int64_t d = 0; d < m; d++) {
            int32_t length;
            memcpy(&length, w->buf + HALF + 4 * d, 4);
            memcpy(w->buf + 8 * d, &at, 8);
            at += (int64_t)length * i->dtype_bytes;
        }
        TRY(fs_out_write(f, w->buf, 8 * (size_t)m));
        k += m;
    }
    for (k = 0; k <= i->documents;) {
        int64_t m = i->documents + 1 - k < BLOCK / 8 ? i->documents + 1 - k : BLOCK / 8;
        for (int64_t d = 0; d < m; d++) {
            int64_t v = k + d;
            memcpy(w->buf + 8 * d, &v, 8);
        }
        TRY(fs_out_write(f, w->buf, 8 * (size_t)m));
        k += m;
    }
    for (uint64_t pos = 0, size = fs_out_size(f); pos < size;) {
        size_t m = size - pos < BLOCK ? (size_t)(size - pos) : BLOCK;
        TRY(fs_out_read(f, pos, w->buf, m));
        TRY(hashed_add(&w->idx, w->buf, m));
        pos += m;
    }
    return hashed_finish(&w->idx);
}

/* Everything but the names; text is the sidecar's. */
static int finish(struct tokenfile_writer *w, char **text, size_t *n)
{
    BUG_ON(w->doc_tokens != 0);
    TRY(hashed_finish(&w->bin));
    TRY(write_idx(w));
    w->side.bin = w->bin.hash;
    w->side.n_bin = w->bin.n;
    w->side.idx = w->idx.hash;
    w->side.n_idx = w->idx.n;
    *text = sidecar_text(&w->side, n);
    return 0;
}

static void tell(const struct tokenfile_writer *w, struct tokenfile_info *done)
{
    const struct tokenfile_info *i = &w->side.info;
    if (done != NULL)
        *done = (struct tokenfile_info){ .vocab_size = i->vocab_size, .eod_id = i->eod_id, .dtype_bytes = i->dtype_bytes,
            .documents = i->documents, .tokens = i->tokens, .text_bytes = i->text_bytes,
            .invalid_utf8 = i->invalid_utf8, .empty = i->empty };
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
    TRY_OUT(rc, finish(w, &text, &n));
    if (fs_exists(w->json_path)) {
        TRY_OUT(rc, fs_remove_tree(w->json_path));
        TRY_OUT(rc, fs_sync_dir(fs_parent(w->arena, w->json_path)));
    }
    TRY_OUT(rc, put_in_place(w, text, n));
    tell(w, done);
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

/* ---- a part */

/* Hashes of the chunks that are whole come from the mark, that of the last one
 * from its bytes, which also shows whether they are still what they were. */
static int continue_bin(struct tokenfile_writer *w, const struct tokenfile_mark *m)
{
    uint64_t size = (uint64_t)m->tokens * (uint64_t)w->side.info.dtype_bytes, pos = (uint64_t)m->n_bin * TOKENFILE_CHUNK;
    if (m->n_bin > 0) {
        w->bin.hash = malloc((size_t)m->n_bin * sizeof *w->bin.hash);
        if (w->bin.hash == NULL)
            return err_sys(ERR_IO, "memory for %d hashes", m->n_bin);
        memcpy(w->bin.hash, m->bin, (size_t)m->n_bin * sizeof *w->bin.hash);
        w->bin.n = w->bin.cap = m->n_bin;
    }
    if (size < pos || size - pos >= TOKENFILE_CHUNK)
        return err_set(ERR_DATA, "%s: %d whole chunks for %llu bytes", fs_out_path(w->bin.out), m->n_bin, (unsigned long long)size);
    while (pos < size) {
        size_t k = size - pos < BLOCK ? (size_t)(size - pos) : BLOCK;
        TRY(fs_out_read(w->bin.out, pos, w->buf, k));
        TRY(hashed_add(&w->bin, w->buf, k));
        pos += k;
    }
    struct hash tail = w->bin.stream != NULL ? hash_now(w->bin.stream) : hash_bytes("", 0);
    if (!hash_eq(&tail, &m->tail))
        return err_set(ERR_DATA, "%s: is not what was written", fs_out_path(w->bin.out));
    return 0;
}

int tokenfile_part_open(const char *part, const struct tokenfile_info *info, const struct tokenfile_mark *from, struct tokenfile_writer **out)
{
    int rc;
    *out = NULL;
    struct tokenfile_writer *w = writer_new(info);
    if (w == NULL)
        return err_sys(ERR_IO, "memory for a writer");
    struct tokenfile_info *i = &w->side.info;
    uint64_t idx = from != NULL ? IDX_HEADER + 4 * (uint64_t)from->documents : 0;
    w->part = 1;
    w->json_path = arena_printf(w->arena, "%s.json", part);
    TRY_OUT(rc, fs_out_resume(arena_printf(w->arena, "%s.bin", part), from != NULL ? (uint64_t)from->tokens * (uint64_t)i->dtype_bytes : 0, &w->bin.out));
    TRY_OUT(rc, fs_out_resume(arena_printf(w->arena, "%s.idx", part), idx, &w->idx.out));
    if (from == NULL) {
        TRY_OUT(rc, begin_idx(w));
    } else {
        i->documents = from->documents;
        i->tokens = from->tokens;
        i->text_bytes = from->text_bytes;
        i->empty = from->empty;
        TRY_OUT(rc, continue_bin(w, from));
    }
    *out = w;
    return 0;
out:
    writer_free(w);
    return rc;
}

int tokenfile_part_mark(struct tokenfile_writer *w, struct tokenfile_mark *m)
{
    const struct tokenfile_info *i = &w->side.info;
    BUG_ON(!w->part || w->doc_tokens != 0);
    TRY(fs_out_sync(w->bin.out));
    TRY(fs_out_sync(w->idx.out));
    *m = (struct tokenfile_mark){ i->documents, i->tokens, i->text_bytes, i->empty, w->bin.hash, w->bin.n,
                                  w->bin.stream != NULL ? hash_now(w->bin.stream) : hash_bytes("", 0) };
    return 0;
}

int tokenfile_part_seal(struct tokenfile_writer *w, int64_t invalid_utf8, struct tokenfile_counter *more, int n_more, struct tokenfile_info *done)
{
    int rc;
    size_t n;
    char *text = NULL;
    struct fs_out *f;
    w->side.info.invalid_utf8 = invalid_utf8;
    w->side.info.more = more;
    w->side.info.n_more = n_more;
    TRY_OUT(rc, finish(w, &text, &n));
    f = w->bin.out;
    w->bin.out = NULL;
    TRY_OUT(rc, fs_out_commit(f));
    f = w->idx.out;
    w->idx.out = NULL;
    TRY_OUT(rc, fs_out_commit(f));
    TRY_OUT(rc, fs_write_file(w->json_path, text, n));
    tell(w, done);
out:
    free(text);
    writer_free(w);
    return rc;
}

int tokenfile_place(const char *part, const char *prefix)
{
    static const char *const ext[] = { ".bin", ".idx", ".json" };
    struct arena *a = arena_new();
    char *json = arena_printf(a, "%s.json", prefix);
    int rc = 0;
    /* Our sidecar is the last to be moved: while it is here an old one is another's. */
    if (fs_exists(arena_printf(a, "%s.json", part)) && fs_exists(json)) {
        TRY_OUT(rc, fs_remove_tree(json));
        TRY_OUT(rc, fs_sync_dir(fs_parent(a, json)));
    }
    for (int i = 0; i < 3; i++) {
        char *from = arena_printf(a, "%s%s", part, ext[i]);
        if (fs_exists(from))
            TRY_OUT(rc, fs_rename(from, arena_printf(a, "%s%s", prefix, ext[i])));
    }
out:
    arena_free(a);
    return rc;
}
