/* packing_read.c -- a packed stream to a directory, or to the bytes of one tensor.
 *
 * Nothing in the stream is trusted: names stay inside the directory, sizes are
 * limited before memory is had for them, and each file must get exactly the
 * bytes that were announced. */
#include "ckpt/packing.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "ckpt/modeldir.h"
#include "ckpt/packing_impl.h"

struct unpack {
    struct arena *a;
    int fd;
    _Bool seeks;                /* a regular file, read with pread from `at` */
    uint64_t at, number;
    const char *name;
    struct packing *p;
    struct packing_codec *codec;
    char *payload, *raw, *base_buf;
    size_t room;
    /* The tensor at hand. */
    const char *tensor;
    uint64_t tensor_bytes, tensor_at, base_begin, base_end;
    const struct ckpt_tensor *base;
    /* The file at hand. */
    const char *temp, *file;
    struct fs_out *out;
    uint64_t file_bytes, file_at;
};

static int bad(const struct unpack *u, const char *what)
{
    const char *where = u->tensor ? u->tensor : u->file;

    return err_set(ERR_DATA, "%s: block %" PRIu64 "%s%s%s: %s", u->name, u->number, where ? ", in \"" : "", where ? where : "",
                   where ? "\"" : "", what);
}

/* 1 when all n bytes came, 0 at a clean end. */
static int take(struct unpack *u, void *to, size_t n)
{
    size_t got = 0;

    while (got < n) {
        ssize_t k = u->seeks ? pread(u->fd, (char *)to + got, n - got, (off_t)(u->at + got)) : read(u->fd, (char *)to + got, n - got);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(ERR_IO, "%s", u->name);
        if (k == 0)
            break;
        got += (size_t)k;
    }
    u->at += got;
    return got == n ? 1 : got ? bad(u, "the stream ends in the middle of it") : 0;
}

static int need(struct unpack *u, void *to, size_t n)
{
    int rc;

    TRY(rc = take(u, to, n));
    return rc ? 0 : bad(u, "the stream ends before its index");
}

/* The next block with its payload in u->payload, checked but for its meaning. */
static int next_block(struct unpack *u, struct packing_block *b)
{
    unsigned char head[PACKING_HEAD];
    size_t most;

    TRY(need(u, head, sizeof head));
    if (!packing_head_get(head, b, u->number))
        return bad(u, "its head is damaged or not the next one");
    most = b->kind == 'I' ? PACKING_INDEX_MAX : b->kind == 'C' ? packing_chunk_max() : PACKING_JSON_MAX;
    if (b->packed > most || b->raw > (b->kind == 'I' ? PACKING_INDEX_MAX : PACKING_CHUNK) || b->width < 1 || b->width > 8 || b->raw % b->width ||
        b->flags & ~(PACKING_ROTATED | PACKING_DELTA) || (b->flags & PACKING_ROTATED && b->width != 2 && b->width != 4))
        return bad(u, "impossible sizes");
    if (u->room < b->packed + 1u) {
        char *bigger = realloc(u->payload, b->packed + 1u);

        if (!bigger)
            return err_set(ERR_IO, "%s: no memory for a block of %u bytes", u->name, b->packed);
        u->payload = bigger;
        u->room = b->packed + 1u;
    }
    TRY(need(u, u->payload, b->packed));
    if (b->kind != 'C' && b->kind != 'I' && packing_hash(u->payload, b->packed) != b->hash)
        return bad(u, "checksum differs");
    u->p->packed_bytes += sizeof head + b->packed;
    return 0;
}

static int load_json(struct unpack *u, const struct packing_block *b, json_t **out)
{
    return json_load_text(arena_printf(u->a, "%s: block %" PRIu64, u->name, u->number), u->payload, b->packed, out);
}

/* ---- the kinds of blocks */

static int read_header(struct unpack *u)
{
    const struct manifest *m = u->p->base ? ckpt_manifest(u->p->base) : NULL;
    struct packing_block b;
    const char *format, *base = NULL;
    char magic[8];
    json_t *o = NULL;
    int rc;

    TRY(rc = take(u, magic, 8));
    if (!rc || memcmp(magic, PACKING_MAGIC, 8))
        return err_set(ERR_DATA, "%s: not a packed stream", u->name);
    TRY(next_block(u, &b));
    if (b.kind != 'H')
        return bad(u, "expected the head of the stream");
    TRY(load_json(u, &b, &o));
    TRY_OUT(rc, json_get_str(o, u->name, "format", &format));
    TRY_OUT(rc, json_opt_str(o, u->name, "base", &base));
    if (strcmp(format, "moe.pack/1"))
        rc = err_set(ERR_DATA, "%s: format \"%.40s\", expected moe.pack/1", u->name, format);
    else if (base && !m)
        rc = err_set(ERR_USAGE, "%s: packed against another checkpoint, whose MANIFEST has the hash %.32s: --base CKPT", u->name, base);
    else if (base && strcmp(base, m->self.hex))
        rc = err_set(ERR_USAGE, "%s: packed against another checkpoint than %s (MANIFEST hash %.32s, not %s)", u->name,
                     ckpt_path(u->p->base), base, m->self.hex);
    u->number++;
out:
    json_decref(o);
    return rc;
}

static int end_tensor(struct unpack *u)
{
    if (u->tensor && u->tensor_at != u->tensor_bytes)
        return bad(u, "bytes of the tensor are missing before it");
    u->tensor = NULL;
    u->base = NULL;
    return 0;
}

static int end_file(struct unpack *u)
{
    struct fs_out *f = u->out;

    TRY(end_tensor(u));
    if (!f)
        return 0;
    if (u->file_at != u->file_bytes)
        return bad(u, "bytes of the file are missing before it");
    u->out = NULL;
    u->file = NULL;
    return fs_out_commit(f);
}

/* "NAME" or "optim/NAME", and nothing that a path could do besides. */
static _Bool name_is_safe(const char *s)
{
    if (!strncmp(s, "optim/", 6))
        s += 6;
    if (!*s || strlen(s) > 255 || !strcmp(s, ".") || !strcmp(s, "..") || !strcmp(s, "optim") || strchr(s, '/'))
        return 0;
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return 0;
    return 1;
}

/* What files and tensors begin with.  *o is the caller's to let go, also after an
 * error; name lives as long. */
static int load_named(struct unpack *u, const struct packing_block *b, json_t **o, const char **name, int64_t *bytes)
{
    *o = NULL;
    TRY(load_json(u, b, o));
    TRY(json_get_str(*o, u->name, "name", name));
    return json_get_int(*o, u->name, "bytes", bytes);
}

static int begin_file(struct unpack *u, const struct packing_block *b)
{
    const char *name;
    int64_t bytes;
    json_t *o;
    int rc;

    TRY(end_file(u));
    TRY_OUT(rc, load_named(u, b, &o, &name, &bytes));
    if (!name_is_safe(name) || bytes < 0) {
        rc = bad(u, "a file name that is none, or a negative size");
        goto out;
    }
    u->file = arena_strdup(u->a, name);
    u->file_bytes = (uint64_t)bytes;
    u->file_at = 0;
    u->p->n_files++;
    if (!strncmp(name, "optim/", 6))
        TRY_OUT(rc, fs_mkdir(fs_join(u->a, u->temp, "optim")));
    TRY_OUT(rc, fs_out_create(fs_join(u->a, u->temp, name), &u->out));
    rc = fs_out_reserve(u->out, u->file_bytes);
out:
    json_decref(o);
    return rc;
}

static int begin_tensor(struct unpack *u, const struct packing_block *b)
{
    const char *name;
    _Bool delta;
    int64_t bytes;
    json_t *o;
    int rc;

    TRY(end_tensor(u));
    TRY_OUT(rc, load_named(u, b, &o, &name, &bytes));
    TRY_OUT(rc, json_get_bool(o, u->name, "delta", &delta));
    u->tensor = arena_strdup(u->a, name);
    u->tensor_bytes = (uint64_t)bytes;
    u->tensor_at = u->base_begin = u->base_end = 0;
    u->p->n_tensors++;
    if (delta) {
        u->base = u->p->base ? ckpt_find(u->p->base, name) : NULL;
        if (!u->base || u->base->bytes != u->tensor_bytes)
            rc = bad(u, "the base has no such tensor");
    }
out:
    json_decref(o);
    return rc;
}

/* The bytes of the base under a chunk, by way of whole parts, which are hashed as one. */
static int base_bytes(struct unpack *u, uint32_t n, const void **out)
{
    if (!u->base || n > u->tensor_bytes - u->tensor_at)
        return bad(u, "a difference without a base");
    if (!u->base_buf && !(u->base_buf = malloc(ST_PART_BYTES)))
        return err_set(ERR_IO, "%s: no memory for a part of the base", u->name);
    if (u->tensor_at < u->base_begin || u->tensor_at + n > u->base_end) {
        u->base_begin = u->tensor_at / ST_PART_BYTES * ST_PART_BYTES;
        u->base_end = u->base_begin + ST_PART_BYTES < u->tensor_bytes ? u->base_begin + ST_PART_BYTES : u->tensor_bytes;
        if (u->tensor_at + n > u->base_end)
            return bad(u, "a chunk that lies across parts");
        TRY(ckpt_read(u->p->base, u->base, u->base_begin, (size_t)(u->base_end - u->base_begin), u->base_buf));
    }
    *out = u->base_buf + (u->tensor_at - u->base_begin);
    return 0;
}

static int read_chunk(struct unpack *u, const struct packing_block *b)
{
    const void *base = NULL;
    int rc;

    if (u->tensor && b->raw > u->tensor_bytes - u->tensor_at)
        return bad(u, "more bytes than the tensor has");
    if (b->flags & PACKING_DELTA)
        TRY(base_bytes(u, b->raw, &base));
    rc = packing_chunk_decode(u->codec, u->payload, b, base, u->raw);
    if (rc == ERR_DATA) {
        const char *what = arena_strdup(u->a, err_msg());

        return bad(u, what);
    }
    TRY(rc);
    if (u->tensor)
        u->tensor_at += b->raw;
    u->p->raw_bytes += b->raw;
    if (u->p->progress)
        u->p->progress(u->p->ctx, u->p->raw_bytes, 0);
    return 0;
}

/* ---- the index */

static uint64_t get64(const unsigned char *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* The text of the index whose block was just read; owned (free). */
static int load_index(struct unpack *u, const struct packing_block *b, char **out)
{
    char *text = malloc(b->raw + 1u);

    if (!text)
        return err_set(ERR_IO, "%s: no memory for the index", u->name);
    if (ZSTD_decompress(text, b->raw, u->payload, b->packed) != b->raw || packing_hash(text, b->raw) != b->hash) {
        free(text);
        return bad(u, "the index is damaged");
    }
    text[b->raw] = '\0';
    *out = text;
    return 0;
}

/* ---- all of it */

/* The index and the trailer that leads to it; then nothing. */
static int read_end(struct unpack *u, const struct packing_block *b, uint64_t at)
{
    unsigned char trailer[PACKING_TRAILER + 1];
    char *text;
    int rc;

    TRY(load_index(u, b, &text));
    free(text);
    TRY(need(u, trailer, PACKING_TRAILER));
    if (memcmp(trailer + 16, PACKING_END, 8) || get64(trailer) != at || get64(trailer + 8) != u->number)
        return bad(u, "the end of the stream is damaged");
    u->p->packed_bytes += 8 + PACKING_TRAILER;
    TRY(rc = take(u, trailer, 1));
    return rc ? bad(u, "bytes after the end of the stream") : 0;
}

static int read_blocks(struct unpack *u)
{
    struct packing_block b;
    uint64_t at;

    for (;; u->number++) {
        at = u->at;
        TRY(next_block(u, &b));
        if (b.kind == 'I')
            break;
        if (b.kind == 'F') {
            TRY(begin_file(u, &b));
        } else if (b.kind == 'T' && u->out) {
            TRY(begin_tensor(u, &b));
        } else if (b.kind == 'C' && u->out) {
            TRY(read_chunk(u, &b));
            if (b.raw > u->file_bytes - u->file_at)
                return bad(u, "more bytes than the file has");
            u->file_at += b.raw;
            TRY(fs_out_write(u->out, u->raw, b.raw));
        } else {
            return bad(u, "a block of no kind that could be here");
        }
    }
    TRY(end_file(u));
    return read_end(u, &b, at);
}

static int check_target(struct arena *a, const char *to)
{
    struct stat sb;
    char **names;
    int n;

    if (lstat(to, &sb) < 0)
        return errno == ENOENT ? 0 : err_sys(ERR_CREATE, "%s", to);
    if (S_ISDIR(sb.st_mode)) {
        TRY(fs_list(a, to, &names, &n));
        if (n == 0)
            return 0;
    }
    return err_set(ERR_CREATE, "%s: is there already", to);
}

static int start(struct unpack *u)
{
    u->codec = packing_codec_new();
    u->raw = malloc(PACKING_CHUNK);
    return u->raw ? 0 : err_set(ERR_IO, "%s: no memory for a chunk", u->name);
}

static void stop(struct unpack *u)
{
    packing_codec_free(u->codec);
    free(u->payload);
    free(u->raw);
    free(u->base_buf);
    arena_free(u->a);
}

int packing_read(int fd, const char *name, const char *to, struct packing *p)
{
    struct unpack u = { .a = arena_new(), .fd = fd, .name = name, .p = p };
    char *temp = NULL, *plain = arena_strdup(u.a, to);
    int lock = -1, rc;

    for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/'; n--)
        plain[n - 1] = '\0';
    TRY_OUT(rc, check_target(u.a, plain));
    TRY_OUT(rc, start(&u));
    TRY_OUT(rc, read_header(&u));
    TRY_OUT(rc, modeldir_claim(u.a, plain, &temp, &lock));
    u.temp = temp;
    TRY_OUT(rc, read_blocks(&u));
    if (fs_exists(fs_join(u.a, temp, "optim")))
        TRY_OUT(rc, fs_sync_dir(fs_join(u.a, temp, "optim")));
    TRY_OUT(rc, fs_sync_dir(temp));
    rc = fs_rename(temp, plain);
out:
    if (lock >= 0) {
        struct err_state kept;

        err_take(&kept);
        fs_out_abort(u.out);
        if (rc < 0)
            fs_remove_tree(temp);
        close(lock);
        if (kept.code)
            err_put(&kept);
    }
    stop(&u);
    return rc;
}

/* ---- one tensor */

/* The line of the tensor in the text of the index: "NAME\toffset\tnumber\tbytes". */
static int find_line(struct unpack *u, const char *text, size_t n, const char *tensor, uint64_t *offset, uint64_t *number)
{
    size_t len = strlen(tensor);

    for (const char *line = text, *end; line < text + n; line = end + 1) {
        end = memchr(line, '\n', n - (size_t)(line - text));
        if (!end)
            return bad(u, "an index without an end");
        if ((size_t)(end - line) > len && line[len] == '\t' && !memcmp(line, tensor, len)) {
            char *at;

            *offset = strtoull(line + len + 1, &at, 10);
            *number = strtoull(at, &at, 10);
            return *at == '\t' ? 0 : bad(u, "an index that makes no sense");
        }
    }
    return err_set(ERR_NO, "%s: no tensor \"%s\"", u->name, tensor);
}

static int find_tensor(struct unpack *u, uint64_t size, const char *tensor)
{
    unsigned char trailer[PACKING_TRAILER];
    struct packing_block b;
    uint64_t offset = 0, number = 0;
    char *text;
    int rc;

    if (size < PACKING_TRAILER)
        return err_set(ERR_DATA, "%s: not a packed stream", u->name);
    TRY(fs_pread(u->fd, u->name, trailer, sizeof trailer, size - PACKING_TRAILER));
    u->at = get64(trailer);
    u->number = get64(trailer + 8);
    if (memcmp(trailer + 16, PACKING_END, 8) || u->at >= size)
        return err_set(ERR_DATA, "%s: the end is missing or damaged", u->name);
    TRY(next_block(u, &b));
    if (b.kind != 'I')
        return bad(u, "expected the index");
    TRY(load_index(u, &b, &text));
    rc = find_line(u, text, b.raw, tensor, &offset, &number);
    free(text);
    u->at = offset;
    u->number = number;
    return rc;
}

static int read_tensor(struct unpack *u, uint64_t size, const char *tensor, packing_sink *sink, void *sink_ctx)
{
    struct packing_block b;

    TRY(read_header(u));
    TRY(find_tensor(u, size, tensor));
    TRY(next_block(u, &b));
    if (b.kind != 'T')
        return bad(u, "expected the tensor");
    TRY(begin_tensor(u, &b));
    if (strcmp(u->tensor, tensor))
        return bad(u, "another tensor than the index says");
    while (u->tensor_at < u->tensor_bytes) {
        u->number++;
        TRY(next_block(u, &b));
        if (b.kind != 'C' || !b.raw)
            return bad(u, "expected bytes of the tensor");
        TRY(read_chunk(u, &b));
        TRY(sink(sink_ctx, u->raw, b.raw));
    }
    return 0;
}

int packing_tensor(const char *path, const char *tensor, packing_sink *sink, void *sink_ctx, struct packing *p)
{
    struct unpack u = { .a = arena_new(), .fd = -1, .seeks = 1, .name = path, .p = p };
    uint64_t size;
    int rc;

    TRY_OUT(rc, fs_file_size(path, &size));
    u.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (u.fd < 0) {
        rc = err_sys(ERR_IO, "%s", path);
        goto out;
    }
    TRY_OUT(rc, start(&u));
    rc = read_tensor(&u, size, tensor, sink, sink_ctx);
out:
    if (u.fd >= 0)
        close(u.fd);
    stop(&u);
    return rc;
}
