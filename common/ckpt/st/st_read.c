/* st_read.c -- safetensors from a regular file (pread) and from a stream.
 *
 * A file is opened without blocking and must be regular, so that a FIFO or a
 * device under a tensor file's name is an error and not a hang. */
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"

struct st_file {
    int fd;
    char *path;
    uint64_t bytes;
    struct st_header *head;
    struct hash head_hash;
};

static uint64_t word(const unsigned char b[8])
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | b[i];
    return v;
}

/* Eight bytes of printable ASCII and white space. */
static _Bool is_text(uint64_t n)
{
    for (int i = 0; i < 8; i++, n >>= 8)
        if ((n & 0xff) > 0x7e || ((n & 0xff) < 0x20 && (n & 0xff) != '\n' && (n & 0xff) != '\t' && (n & 0xff) != '\r'))
            return 0;
    return 1;
}

static int check_length(const char *where, uint64_t n)
{
    if (n == UINT64_C(0x314b434150454f4d))      /* "MOEPACK1" */
        return err_set(ERR_DATA, "%s: a packed stream, not safetensors; moe-ckpt unpack opens it", where);
    if (n > ST_HEADER_MAX && is_text(n))
        return err_set(ERR_DATA, "%s: not safetensors, or damaged: begins like text", where);
    if (n > ST_HEADER_MAX)
        return err_set(ERR_DATA, "%s: not safetensors, or damaged: a header of %" PRIu64 " bytes, over the limit of %u",
                       where, n, ST_HEADER_MAX);
    return 0;
}

static int read_head(struct st_file *f)
{
    struct stat sb;
    unsigned char *buf = NULL;
    unsigned char len[8];
    uint64_t n;
    int rc;

    if (fstat(f->fd, &sb) < 0)
        return err_sys(ERR_IO, "%s", f->path);
    if (!S_ISREG(sb.st_mode))
        return err_set(ERR_DATA, "%s: not a regular file", f->path);
    f->bytes = (uint64_t)sb.st_size;
    if (f->bytes < 8)
        return err_set(ERR_DATA, "%s: %" PRIu64 " bytes, too short for a safetensors file", f->path, f->bytes);
    TRY(fs_pread(f->fd, f->path, len, 8, 0));
    n = word(len);
    TRY(check_length(f->path, n));
    if (n > f->bytes - 8)
        return err_set(ERR_DATA, "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64, f->path, n, f->bytes);
    buf = malloc((size_t)n + 8);
    if (!buf)
        return err_set(ERR_IO, "%s: no memory for a header of %" PRIu64 " bytes", f->path, n);
    memcpy(buf, len, 8);
    TRY_OUT(rc, fs_pread(f->fd, f->path, buf + 8, (size_t)n, 8));
    TRY_OUT(rc, st_parse(f->path, (char *)buf + 8, (size_t)n, (int64_t)(f->bytes - 8 - n), &f->head));
    f->head_hash = hash_bytes(buf, (size_t)n + 8);
out:
    free(buf);
    return rc;
}

int st_open(const char *path, struct st_file **out)
{
    struct st_file *f = calloc(1, sizeof *f);
    int rc;

    if (!f || !(f->path = strdup(path))) {
        free(f);
        return err_set(ERR_IO, "%s: no memory", path);
    }
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0)
        rc = fs_no_input(path);
    else
        rc = read_head(f);
    if (rc < 0) {
        st_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

void st_close(struct st_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    st_header_free(f->head);
    free(f->path);
    free(f);
}

const struct st_header *st_head(const struct st_file *f) { return f->head; }
struct hash st_head_hash(const struct st_file *f) { return f->head_hash; }
uint64_t st_file_bytes(const struct st_file *f) { return f->bytes; }

int st_read(const struct st_file *f, const struct st_tensor *t, uint64_t first, size_t n, void *dst)
{
    BUG_ON(first > t->end - t->begin || n > t->end - t->begin - first);
    return fs_pread(f->fd, f->path, dst, n, f->head->data_start + t->begin + first);
}

/* ---- streams */

struct st_stream {
    int fd;
    char *name;
    uint64_t at;                /* data bytes already taken */
    struct st_header *head;
};

/* Reads until n bytes are there or the stream ends; the number read. */
static int64_t read_some(struct st_stream *s, void *dst, size_t n)
{
    size_t got = 0;

    while (got < n) {
        ssize_t k = read(s->fd, (char *)dst + got, n - got);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(ERR_IO, "%s", s->name);
        if (k == 0)
            break;
        got += (size_t)k;
    }
    return (int64_t)got;
}

static int stream_head(struct st_stream *s)
{
    unsigned char len[8];
    char *text;
    int64_t got;
    uint64_t n;
    int rc;

    TRY(got = read_some(s, len, 8));
    if (got < 8)
        return err_set(ERR_DATA, "%s: %" PRId64 " bytes, too short for a safetensors stream", s->name, got);
    n = word(len);
    TRY(check_length(s->name, n));
    text = malloc((size_t)n + 1);
    if (!text)
        return err_set(ERR_IO, "%s: no memory for a header of %" PRIu64 " bytes", s->name, n);
    got = read_some(s, text, (size_t)n);
    if (got < 0)
        rc = (int)got;
    else if ((uint64_t)got < n)
        rc = err_set(ERR_DATA, "%s: ends inside the header, short by %" PRIu64 " bytes", s->name, n - (uint64_t)got);
    else
        rc = st_parse(s->name, text, (size_t)n, -1, &s->head);
    free(text);
    return rc;
}

int st_stream_open(int fd, const char *name, struct st_stream **out)
{
    struct st_stream *s = calloc(1, sizeof *s);
    int rc;

    if (!s || !(s->name = strdup(name))) {
        free(s);
        return err_set(ERR_IO, "%s: no memory", name);
    }
    s->fd = fd;
    rc = stream_head(s);
    if (rc < 0) {
        st_stream_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

const struct st_header *st_stream_head(const struct st_stream *s) { return s->head; }

int st_stream_read(struct st_stream *s, void *dst, size_t n)
{
    int64_t got;

    BUG_ON(n > s->head->data_bytes - s->at);
    TRY(got = read_some(s, dst, n));
    s->at += (uint64_t)got;
    if ((size_t)got < n)
        return err_set(ERR_DATA, "%s: ends early, short by %" PRIu64 " bytes", s->name, s->head->data_bytes - s->at);
    return 0;
}

int st_stream_end(struct st_stream *s)
{
    char more;
    int64_t got;

    BUG_ON(s->at != s->head->data_bytes);
    TRY(got = read_some(s, &more, 1));
    if (got)
        return err_set(ERR_DATA, "%s: extra bytes after the last tensor", s->name);
    return 0;
}

void st_stream_close(struct st_stream *s)
{
    if (!s)
        return;
    st_header_free(s->head);
    free(s->name);
    free(s);
}
