/* text_input.c -- see text_input.h: plain, gzip and zstd behind one read.
 *
 * The first bytes decide.  A plain file is read straight into the caller's
 * buffer; a packed one goes through a window of its own.  Windows of zstd of up
 * to 2 GiB are accepted, since "zstd --long=31" is how large sets are packed. */
#include "tok/text_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/err.h"

enum { WINDOW = 256 << 10 };

enum packing { PLAIN, GZIP, ZSTD };

struct text_input {
    char *name;
    int fd;
    struct stat st;             /* as it was opened */
    struct hash_stream *hash;
    uint64_t stored;            /* bytes read from the file */
    unsigned char *window;      /* [WINDOW], of which from..fill are not used yet */
    size_t from, fill;
    _Bool eof, inside;          /* inside: a member or frame has begun and not ended */
    _Bool padding;              /* only zero bytes may follow */
    enum packing packing;
    z_stream gz;
    ZSTD_DStream *zstd;
};

static int read_raw(struct text_input *in, void *buf, size_t n, size_t *got)
{
    ssize_t k;
    do
        k = read(in->fd, buf, n);
    while (k < 0 && errno == EINTR);
    if (k < 0)
        return err_sys(errno == EISDIR ? ERR_NOINPUT : ERR_IO, "%s", in->name);
    hash_add(in->hash, buf, (size_t)k);
    in->stored += (uint64_t)k;
    *got = (size_t)k;
    in->eof = k == 0;
    return 0;
}

/* Half a text that is written at this moment would look like a whole one. */
static int check_end(const struct text_input *in)
{
    struct stat now;
    if (!S_ISREG(in->st.st_mode) || fstat(in->fd, &now) < 0)
        return 0;
    if (now.st_size != in->st.st_size || now.st_mtim.tv_sec != in->st.st_mtim.tv_sec || now.st_mtim.tv_nsec != in->st.st_mtim.tv_nsec)
        return err_set(ERR_DATA, "%s: changed while it was read", in->name);
    return 0;
}

static int refill(struct text_input *in)
{
    size_t got = 0;
    if (in->from < in->fill || in->eof)
        return 0;
    TRY(read_raw(in, in->window, WINDOW, &got));
    in->from = 0;
    in->fill = got;
    return 0;
}

/* What is packed otherwise would be taken for a text that is no text at all. */
static int not_unpacked(const struct text_input *in)
{
    static const struct { const char *name, *by; unsigned char n; const char *begins; } other[] = {
        { "xz", "xz -dc", 6, "\xfd" "7zXZ\0" }, { "lz4", "lz4 -dc", 4, "\x04\x22\x4d\x18" }, { "zip", "unzip -p", 4, "PK\x03\x04" },
    };
    const char *name = NULL, *by = NULL;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (in->fill >= other[i].n && memcmp(in->window, other[i].begins, other[i].n) == 0) {
            name = other[i].name;
            by = other[i].by;
        }
    /* "BZh" and a digit could be text; what follows is pi, or a square root when nothing is packed. */
    if (in->fill >= 10 && memcmp(in->window, "BZh", 3) == 0 && in->window[3] >= '1' && in->window[3] <= '9' &&
        (memcmp(in->window + 4, "1AY&SY", 6) == 0 || memcmp(in->window + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0)) {
        name = "bzip2";
        by = "bzip2 -dc";
    }
    return name == NULL ? 0 : err_set(ERR_DATA, "%s: is packed with %s, which is not unpacked here; it can come through a pipe from %s", in->name, name, by);
}

/* Pipes give what they have: bytes are gathered until all are there that decide. */
static int find_packing(struct text_input *in)
{
    const unsigned char *p = in->window;
    while (in->fill < 10 && !in->eof) {
        size_t got = 0;
        TRY(read_raw(in, in->window + in->fill, WINDOW - in->fill, &got));
        in->fill += got;
    }
    if (in->fill >= 2 && p[0] == 0x1f && p[1] == 0x8b)
        in->packing = GZIP;
    else if (in->fill >= 4 && ((p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f && p[3] == 0xfd) ||
                               ((p[0] & 0xf0) == 0x50 && p[1] == 0x2a && p[2] == 0x4d && p[3] == 0x18)))
        in->packing = ZSTD;
    if (in->packing == PLAIN)
        TRY(not_unpacked(in));
    if (in->packing == GZIP && inflateInit2(&in->gz, 15 + 16) != Z_OK) {
        in->packing = PLAIN;
        return err_set(ERR_IO, "%s: memory to unpack gzip", in->name);
    }
    if (in->packing == ZSTD) {
        if ((in->zstd = ZSTD_createDStream()) == NULL)
            return err_set(ERR_IO, "%s: memory to unpack zstd", in->name);
        ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax, sizeof(void *) == 8 ? 31 : 30);
    }
    return 0;
}

int text_input_open(const char *path, struct text_input **out)
{
    int rc;
    *out = NULL;
    struct text_input *in = calloc(1, sizeof *in);
    if (in == NULL)
        return err_sys(ERR_IO, "memory to read %s", path);
    _Bool is_stdin = strcmp(path, "-") == 0;
    in->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    in->name = strdup(is_stdin ? "standard input" : path);
    in->window = malloc(WINDOW);
    in->hash = hash_begin();
    if (in->name == NULL || in->window == NULL) {
        rc = err_sys(ERR_IO, "memory to read %s", path);
        goto out;
    }
    if (in->fd < 0 || fstat(in->fd, &in->st) < 0) {
        rc = err_sys(ERR_NOINPUT, "%s", in->name);
        goto out;
    }
    if (S_ISDIR(in->st.st_mode)) {
        rc = err_set(ERR_NOINPUT, "%s: is a directory", in->name);
        goto out;
    }
    if (S_ISREG(in->st.st_mode))
        posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    TRY_OUT(rc, find_packing(in));
    *out = in;
    return 0;
out:
    text_input_close(in);
    return rc;
}

void text_input_close(struct text_input *in)
{
    if (in == NULL)
        return;
    if (in->packing == GZIP)
        inflateEnd(&in->gz);
    ZSTD_freeDStream(in->zstd);
    hash_end(in->hash);
    if (in->fd > STDIN_FILENO)
        close(in->fd);
    free(in->window);
    free(in->name);
    free(in);
}

/* The place in the file that unpacking has reached. */
static unsigned long long place(const struct text_input *in)
{
    return in->stored - (in->fill - in->from);
}

static int torn(const struct text_input *in, const char *what)
{
    return err_set(ERR_DATA, "%s: truncated: a %s is not complete at the end, byte %llu", in->name, what, place(in));
}

static int read_plain(struct text_input *in, unsigned char *buf, size_t n, size_t *got)
{
    size_t k = in->fill - in->from;
    *got = 0;
    if (k > 0) {
        k = k < n ? k : n;
        memcpy(buf, in->window + in->from, k);
        in->from += k;
        *got = k;
    }
    while (*got < n && !in->eof) {
        TRY(read_raw(in, buf + *got, n - *got, &k));
        *got += k;
    }
    return 0;
}

/* Between two members: the next one, zeros that fill a block of a tape, or the end. */
static int next_member(struct text_input *in)
{
    if (in->padding) {
        while (in->from < in->fill && in->window[in->from] == 0)
            in->from++;
        if (in->from < in->fill)
            return err_set(ERR_DATA, "%s: byte %llu: what follows the last gzip member is no member", in->name, place(in));
        return 0;
    }
    if (in->window[in->from] == 0) {
        in->padding = 1;
        return next_member(in);
    }
    inflateReset(&in->gz);
    in->inside = 1;
    return 0;
}

static int read_gzip(struct text_input *in, unsigned char *buf, size_t n, size_t *got)
{
    while (*got < n) {
        TRY(refill(in));
        if (in->from == in->fill)
            return in->inside ? torn(in, "gzip member") : 0;
        if (!in->inside)
            TRY(next_member(in));
        if (!in->inside)
            continue;
        unsigned room = n - *got < (1u << 30) ? (unsigned)(n - *got) : 1u << 30;
        in->gz.next_in = in->window + in->from;
        in->gz.avail_in = (unsigned)(in->fill - in->from);
        in->gz.next_out = buf + *got;
        in->gz.avail_out = room;
        int rc = inflate(&in->gz, Z_NO_FLUSH);
        in->from = in->fill - in->gz.avail_in;
        *got += room - in->gz.avail_out;
        if (rc == Z_STREAM_END)
            in->inside = 0;
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return err_set(rc == Z_MEM_ERROR ? ERR_IO : ERR_DATA, "%s: byte %llu: not valid gzip: %s", in->name, place(in),
                           in->gz.msg != NULL ? in->gz.msg : "damaged");
    }
    return 0;
}

static int read_zstd(struct text_input *in, unsigned char *buf, size_t n, size_t *got)
{
    while (*got < n) {
        TRY(refill(in));
        _Bool starved = in->from == in->fill;
        if (starved && !in->inside)
            return 0;
        ZSTD_inBuffer from = { in->window, in->fill, in->from };
        ZSTD_outBuffer to = { buf, n, *got };
        size_t rc = ZSTD_decompressStream(in->zstd, &to, &from);
        in->from = from.pos;
        if (ZSTD_isError(rc))
            return err_set(ERR_DATA, "%s: byte %llu: not valid zstd: %s", in->name, place(in), ZSTD_getErrorName(rc));
        in->inside = rc != 0;
        /* Without input it may still give what it holds; when it gives nothing, that was all. */
        if (starved && to.pos == *got && in->inside)
            return torn(in, "zstd frame");
        *got = to.pos;
    }
    return 0;
}

int text_input_read(struct text_input *in, void *buf, size_t n, size_t *got)
{
    *got = 0;
    switch (in->packing) {
    case PLAIN:
        TRY(read_plain(in, buf, n, got));
        break;
    case GZIP:
        TRY(read_gzip(in, buf, n, got));
        break;
    case ZSTD:
        TRY(read_zstd(in, buf, n, got));
        break;
    }
    return *got < n ? check_end(in) : 0;
}

uint64_t text_input_stored(const struct text_input *in)
{
    return in->stored;
}

struct hash text_input_hash(const struct text_input *in)
{
    return hash_now(in->hash);
}

int text_input_hash_stored(const char *path, struct hash *hash, uint64_t *bytes)
{
    struct text_input *in;
    size_t got;
    TRY(text_input_open(path, &in));
    int rc = 0;
    while (rc == 0 && !in->eof)
        rc = read_raw(in, in->window, WINDOW, &got);
    if (rc == 0) {
        *hash = text_input_hash(in);
        *bytes = in->stored;
    }
    text_input_close(in);
    return rc;
}
