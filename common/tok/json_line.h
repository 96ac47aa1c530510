/* json_line.h -- strings out of a line of JSON, without building anything.
 *
 * The line must be one object as RFC 8259 has it; everything in it is checked,
 * only the values of the keys asked for are kept.  Strings are unpacked where
 * they stand, which never needs more room.  Bytes that are no valid UTF-8 are
 * not looked for here.  A key that is asked for and comes twice is an error. */
#ifndef TOK_JSON_LINE_H
#define TOK_JSON_LINE_H

#include <stddef.h>
#include <stdint.h>

enum json_line_type { JSON_LINE_ABSENT, JSON_LINE_STRING, JSON_LINE_NULL, JSON_LINE_BOOL, JSON_LINE_NUMBER, JSON_LINE_ARRAY, JSON_LINE_OBJECT };

struct json_line_value {
    enum json_line_type type;
    uint8_t *s; size_t n;       /* of a string: into the line */
    int64_t lone;               /* halves of surrogate pairs that stood alone: now U+FFFD */
};

struct json_line_fault { const char *what; size_t at; };        /* byte in the line, from 0 */

/* Fills value[n_keys].  False when the line is not an object; the line's bytes
 * are spoilt in any case. */
_Bool json_line_read(uint8_t *line, size_t n, const char *const *keys, int n_keys,
                     struct json_line_value *value, struct json_line_fault *fault);

#endif
