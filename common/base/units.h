/* units.h -- numbers as people write them.
 *
 * k M G T are powers of 1000, Ki Mi Gi Ti powers of 1024, everywhere. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Whole text or ERR_USAGE with what was expected (and the hint "did you mean
 * 64Ki = 65536?" for 64k and the like is the caller's to add). */
int units_int(const char *s, int64_t *out);
int units_float(const char *s, double *out);        /* finite; 1e-4, 0.1, 3k */
int units_bool(const char *s, _Bool *out);          /* true false yes no on off */
int units_duration(const char *s, double *seconds); /* 90s 10m 2h 1-12:00:00 */

/* 0 when v is within min and max (both inclusive; equal: no limits), else
 * ERR_USAGE "TEXT is out of range, expected 1 to 10". */
int units_range(const char *text, double v, double min, double max);

/* Index of s among the words of "a|b|c", else ERR_USAGE with all of them and
 * the nearest. */
int units_choice(const char *s, const char *words);

/* "1.50 GiB", "812 B"; "1,234,567"; "2m05s"; buf of at least 32 bytes; returns buf. */
char *units_bytes(char *buf, double bytes);
char *units_count(char *buf, int64_t n);
char *units_seconds(char *buf, double s);

/* Shortest decimal text that reads back as the same double; buf >= 32 bytes. */
char *units_shortest(char *buf, double v);

/* Damerau-Levenshtein distance of two short words, and the nearest of n words
 * (NULL when none is near enough to be what was meant). */
int units_distance(const char *a, const char *b);
const char *units_nearest(const char *word, const char *const *words, int n);

#endif
