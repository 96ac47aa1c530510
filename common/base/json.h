/* json.h -- JSON written by hand, with fields in the order of the calls, and
 * strict loading on top of jansson.
 *
 * Writing never fails (memory for bookkeeping); numbers are the shortest text
 * that reads back the same; NaN and infinities are written as null and their
 * key is remembered for "nonfinite".  Strings are valid UTF-8 or are escaped
 * byte-wise as U+FFFD. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct json_out;

struct json_out *json_new(void);                /* compact, on one line */
struct json_out *json_new_pretty(void);         /* two-space indent, one key a line */
void json_free(struct json_out *j);
/* The text so far, NUL-terminated, borrowed until the next call; *n may be NULL. */
const char *json_text(struct json_out *j, size_t *n);
void json_reset(struct json_out *j);

/* key is NULL inside an array and for the top value. */
void json_obj(struct json_out *j, const char *key);
void json_obj_end(struct json_out *j);
void json_arr(struct json_out *j, const char *key);
void json_arr_end(struct json_out *j);
void json_put_str(struct json_out *j, const char *key, const char *s);          /* NULL: null */
void json_put_strn(struct json_out *j, const char *key, const char *s, size_t n);
void json_put_int(struct json_out *j, const char *key, int64_t v);
void json_put_num(struct json_out *j, const char *key, double v);
/* As json_put_num(), but 1 is written 1.0, for readers that tell reals from integers. */
void json_put_real(struct json_out *j, const char *key, double v);
void json_put_bool(struct json_out *j, const char *key, _Bool v);
void json_put_null(struct json_out *j, const char *key);
/* "nonfinite":["loss",...]: the keys that became null; an empty array if none. */
void json_put_nonfinite(struct json_out *j);

/* Duplicate keys, trailing text and bad UTF-8 are errors: "path:line:col: what".
 * *out is owned (json_decref). */
int json_load_path(const char *path, json_t **out);
int json_load_text(const char *name, const char *text, size_t n, json_t **out);
/* The same, but strings may hold U+0000; see json_string_length(). */
int json_load_nul(const char *name, const char *text, size_t n, json_t **out);

/* Typed look-ups in an object: ERR_DATA "where: "key": expected an integer".
 * json_opt_*() leave *out alone and return 0 when the key is absent or null. */
int json_get_int(const json_t *o, const char *where, const char *key, int64_t *out);
int json_get_num(const json_t *o, const char *where, const char *key, double *out);
int json_get_str(const json_t *o, const char *where, const char *key, const char **out);
int json_get_bool(const json_t *o, const char *where, const char *key, _Bool *out);
int json_opt_int(const json_t *o, const char *where, const char *key, int64_t *out);
int json_opt_num(const json_t *o, const char *where, const char *key, double *out);
int json_opt_str(const json_t *o, const char *where, const char *key, const char **out);
int json_opt_bool(const json_t *o, const char *where, const char *key, _Bool *out);

#endif
