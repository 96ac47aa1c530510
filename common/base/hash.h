/* hash.h -- xxh3-128 as 32 lower-case hex digits, the only hash of our files. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash { char hex[33]; };

struct hash hash_bytes(const void *data, size_t n);
int hash_file(const char *path, struct hash *out, uint64_t *bytes);     /* bytes may be NULL */
_Bool hash_eq(const struct hash *a, const struct hash *b);
_Bool hash_parse(const char *hex, struct hash *out);                    /* false when it is no hash */

struct hash_stream;
struct hash_stream *hash_begin(void);
void hash_add(struct hash_stream *s, const void *data, size_t n);
struct hash hash_now(const struct hash_stream *s);      /* of all bytes so far; may go on */
struct hash hash_end(struct hash_stream *s);            /* and frees s */

#endif
