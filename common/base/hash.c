/* hash.c -- xxh3-128 in its canonical (big-endian) form, as xxh128sum prints it. */
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/pool.h"

#define READ_BYTES ((size_t)1 << 20)

struct hash_stream { XXH3_state_t *state; };

static struct hash to_hex(XXH128_hash_t h)
{
    static const char digits[] = "0123456789abcdef";
    XXH128_canonical_t c;
    struct hash out;

    XXH128_canonicalFromHash(&c, h);
    for (int i = 0; i < 16; i++) {
        out.hex[2 * i] = digits[c.digest[i] >> 4];
        out.hex[2 * i + 1] = digits[c.digest[i] & 15];
    }
    out.hex[32] = '\0';
    return out;
}

struct hash hash_bytes(const void *data, size_t n)
{
    return to_hex(XXH3_128bits(n ? data : "", n));
}

_Bool hash_eq(const struct hash *a, const struct hash *b)
{
    return !memcmp(a->hex, b->hex, 32);
}

_Bool hash_parse(const char *hex, struct hash *out)
{
    if (strlen(hex) != 32 || strspn(hex, "0123456789abcdef") != 32)
        return 0;
    memcpy(out->hex, hex, 33);
    return 1;
}

struct hash_stream *hash_begin(void)
{
    struct hash_stream *s = arena_must(pool_alloc(sizeof *s));

    s->state = arena_must(XXH3_createState());
    XXH3_128bits_reset(s->state);
    return s;
}

void hash_add(struct hash_stream *s, const void *data, size_t n)
{
    if (n)
        XXH3_128bits_update(s->state, data, n);
}

struct hash hash_now(const struct hash_stream *s)
{
    return to_hex(XXH3_128bits_digest(s->state));
}

struct hash hash_end(struct hash_stream *s)
{
    struct hash h = hash_now(s);

    XXH3_freeState(s->state);
    pool_free(s);
    return h;
}

int hash_file(const char *path, struct hash *out, uint64_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t total = 0;
    int rc = 0;

    if (fd < 0)
        return fs_no_input(path);
    char *buf = arena_must(pool_alloc(READ_BYTES));
    struct hash_stream *s = hash_begin();
    for (;;) {
        ssize_t n = read(fd, buf, READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_sys(errno == EISDIR ? ERR_DATA : ERR_IO, "%s", path);
        if (n <= 0)
            break;
        hash_add(s, buf, (size_t)n);
        total += (uint64_t)n;
    }
    struct hash h = hash_end(s);
    pool_free(buf);
    close(fd);
    if (rc == 0) {
        *out = h;
        if (bytes)
            *bytes = total;
    }
    return rc;
}
