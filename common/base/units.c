/* units.c -- numbers and words as people write and mistype them.
 *
 * Reads only the grammar it states: no hexadecimal, no octal, no inf or nan,
 * no thousands separators, whatever the C library would take. */
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"

#define WORD_MAX 64

/* Multiplier of a unit that is the whole rest of the text; 0 when it is none. */
static double unit_of(const char *s)
{
    static const char letters[] = "kMGT";
    double dec = 1, bin = 1;

    if (!*s)
        return 1;
    for (const char *l = letters; *l; l++) {
        dec *= 1000;
        bin *= 1024;
        /* Ki is written with a capital letter, k with a small one. */
        if (*s == *l && !s[1])
            return dec;
        if (*s == (*l == 'k' ? 'K' : *l) && s[1] == 'i' && !s[2])
            return bin;
    }
    return 0;
}

/* Length of [+-]digits[.digits][e[+-]digits] at s; 0 when there is none. */
static size_t number_len(const char *s)
{
    const char *p = s;
    int digits = 0;

    if (*p == '+' || *p == '-')
        p++;
    for (; isdigit((unsigned char)*p); p++)
        digits++;
    if (*p == '.')
        for (p++; isdigit((unsigned char)*p); p++)
            digits++;
    if (!digits)
        return 0;
    if (*p == 'e' || *p == 'E') {
        const char *e = p + 1;
        if (*e == '+' || *e == '-')
            e++;
        if (isdigit((unsigned char)*e)) {
            while (isdigit((unsigned char)*e))
                e++;
            p = e;
        }
    }
    return (size_t)(p - s);
}

int units_int(const char *s, int64_t *out)
{
    const char *p = s;
    _Bool minus = *p == '-';
    int64_t v = 0;

    if (*p == '+' || *p == '-')
        p++;
    if (isdigit((unsigned char)*p)) {
        _Bool over = 0;
        /* Built downward, since the smallest int64 has no positive twin. */
        for (; isdigit((unsigned char)*p); p++)
            over |= __builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_sub_overflow(v, (int64_t)(*p - '0'), &v);
        double unit = unit_of(p);
        if (unit != 0) {
            over |= __builtin_mul_overflow(v, (int64_t)unit, &v);
            over |= !minus && __builtin_sub_overflow((int64_t)0, v, &v);
            if (over)
                return err_set(ERR_USAGE, "\"%s\" does not fit in 64 bits", s);
            *out = v;
            return 0;
        }
    }
    /* 1.5G is a whole number too, and so is 1e6. */
    size_t n = number_len(s);
    double unit = n ? unit_of(s + n) : 0;
    double d = n ? strtod(s, NULL) * unit : 0;
    if (unit != 0 && fabs(d) < 0x1p53 && d == floor(d)) {
        *out = (int64_t)d;
        return 0;
    }
    return err_set(ERR_USAGE, "expected a whole number (units k M G T are powers of 1000, Ki Mi Gi Ti of 1024), not \"%s\"", s);
}

int units_float(const char *s, double *out)
{
    size_t n = number_len(s);
    double unit = n ? unit_of(s + n) : 0;

    if (unit != 0) {
        double v = strtod(s, NULL) * unit;
        if (!isfinite(v))
            return err_set(ERR_USAGE, "\"%s\" is too large a number", s);
        *out = v;
        return 0;
    }
    return err_set(ERR_USAGE, "expected a number, not \"%s\"", s);
}

int units_bool(const char *s, _Bool *out)
{
    static const char *const words[] = { "false", "true", "no", "yes", "off", "on" };

    for (int i = 0; i < 6; i++) {
        if (!strcmp(s, words[i])) {
            *out = i & 1;
            return 0;
        }
    }
    return err_set(ERR_USAGE, "expected true or false, not \"%s\"", s);
}

int units_duration(const char *s, double *seconds)
{
    int d = 0, h, m, sec, used = 0;
    const char *p = s;
    double total = 0;

    /* Days-hours:minutes:seconds as batch systems print it. */
    if (strchr(s, ':') && strspn(s, "0123456789-:") == strlen(s)) {
        if ((sscanf(s, "%9d-%2d:%2d:%2d%n", &d, &h, &m, &sec, &used) == 4 && !s[used] && h < 24)
            || (d = 0, sscanf(s, "%4d:%2d:%2d%n", &h, &m, &sec, &used) == 3 && !s[used])) {
            if (h >= 0 && m >= 0 && sec >= 0 && d >= 0 && m < 60 && sec < 60) {
                *seconds = d * 86400.0 + h * 3600.0 + m * 60.0 + sec;
                return 0;
            }
        }
        goto bad;
    }
    /* 90s, 1h30m: each unit at most once, from large to small. */
    for (double last = INFINITY; *p;) {
        size_t n = number_len(p);
        const char *at = n && *p != '-' && *p != '+' ? strchr("dhms", p[n] ? p[n] : '?') : NULL;
        if (!at)
            goto bad;
        double unit = *at == 'd' ? 86400 : *at == 'h' ? 3600 : *at == 'm' ? 60 : 1;
        if (unit >= last)
            goto bad;
        last = unit;
        total += strtod(p, NULL) * unit;
        p += n + 1;
    }
    if (p == s || !isfinite(total))
        goto bad;
    *seconds = total;
    return 0;
bad:
    return err_set(ERR_USAGE, "expected a duration such as 90s, 10m, 2h or 1-12:00:00, not \"%s\"", s);
}

char *units_bytes(char *buf, double bytes)
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    int i = 0;

    if (!isfinite(bytes))
        return strcpy(buf, "?");
    /* What would print as 1024.00 moves on to the next unit. */
    while (i < 6 && fabs(bytes) >= (i ? 1023.995 : 1023.5)) {
        bytes /= 1024;
        i++;
    }
    snprintf(buf, 32, i ? "%.2f %s" : "%.0f %s", bytes, names[i]);
    return buf;
}

char *units_count(char *buf, int64_t n)
{
    char digits[24];
    uint64_t u = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)u);
    char *p = buf;

    if (n < 0)
        *p++ = '-';
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            *p++ = ',';
        *p++ = digits[i];
    }
    *p = '\0';
    return buf;
}

char *units_seconds(char *buf, double s)
{
    if (!isfinite(s) || fabs(s) > 1e12)
        return strcpy(buf, "?");
    const char *sign = s < 0 ? "-" : "";
    s = fabs(s);
    long long t = (long long)(s + 0.5);
    if (s < 9.995)
        snprintf(buf, 32, "%s%.2fs", sign, s);
    else if (s < 59.95)
        snprintf(buf, 32, "%s%.1fs", sign, s);
    else if (t < 3600)
        snprintf(buf, 32, "%s%lldm%02llds", sign, t / 60, t % 60);
    else if (t < 86400)
        snprintf(buf, 32, "%s%lldh%02lldm", sign, t / 3600, t % 3600 / 60);
    else
        snprintf(buf, 32, "%s%lldd%02lldh", sign, t / 86400, t % 86400 / 3600);
    return buf;
}

char *units_shortest(char *buf, double v)
{
    char text[40], digits[24];
    int n = 0;

    if (!isfinite(v))
        return strcpy(buf, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
    if (v == 0)
        return strcpy(buf, signbit(v) ? "-0" : "0");
    /* 15 digits hold for every normal number whose shortest text has no more;
     * subnormal ones have fewer and must be tried from the start. */
    for (int prec = fabs(v) < 0x1p-1022 ? 1 : 15; prec <= 17; prec++) {
        snprintf(text, sizeof text, "%.*e", prec - 1, v);
        if (strtod(text, NULL) == v)
            break;
    }
    const char *p = text;
    char *to = buf;
    if (*p == '-')
        *to++ = *p++;
    for (; *p != 'e'; p++)
        if (*p != '.')
            digits[n++] = *p;
    int e = (int)strtol(p + 1, NULL, 10);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';

    if (e < -4 || e > 15) {
        to += sprintf(to, "%c", digits[0]);
        if (n > 1)
            to += sprintf(to, ".%s", digits + 1);
        sprintf(to, "e%d", e);
    } else if (e < 0) {
        sprintf(to, "0.%.*s%s", -e - 1, "0000", digits);
    } else if (n <= e + 1) {
        sprintf(to, "%s%.*s", digits, e + 1 - n, "0000000000000000");
    } else {
        sprintf(to, "%.*s.%s", e + 1, digits, digits + e + 1);
    }
    return buf;
}

/* Optimal string alignment: a pair of letters is swapped at most once, which
 * is all that a slip of the fingers needs. */
static int distance(const char *a, int n, const char *b, int m)
{
    int row[3][WORD_MAX + 1];

    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *cur = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        cur[0] = i;
        for (int j = 1; j <= m; j++) {
            int d = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < d)
                d = up[j] + 1;
            if (cur[j - 1] + 1 < d)
                d = cur[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < d)
                d = up2[j - 2] + 1;
            cur[j] = d;
        }
    }
    return row[n % 3][m];
}

int units_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);

    return n > WORD_MAX || m > WORD_MAX ? WORD_MAX : distance(a, (int)n, b, (int)m);
}

/* Case and the choice between - and _ are no difference worth counting. */
static int fold(const char *s, char *to)
{
    int n = 0;

    for (; *s && n < WORD_MAX; s++)
        to[n++] = *s == '-' ? '_' : (char)tolower((unsigned char)*s);
    to[n] = '\0';
    return *s ? -1 : n;
}

/* True when every part of word, cut at _, is a part of cand: num_layers is
 * what somebody writes who means num_hidden_layers. */
static _Bool parts_within(const char *word, const char *cand)
{
    while (*word) {
        size_t n = strcspn(word, "_");
        const char *c = cand;
        while (*c && !(strcspn(c, "_") == n && !strncmp(c, word, n))) {
            c += strcspn(c, "_");
            c += *c == '_';
        }
        if (!*c)
            return 0;
        word += n;
        word += *word == '_';
    }
    return 1;
}

const char *units_nearest(const char *word, const char *const *words, int n)
{
    char w[WORD_MAX + 1], c[WORD_MAX + 1];
    const char *best = NULL, *within = NULL;
    int best_d = 0, n_within = 0;
    int len = fold(word, w);

    if (len < 0)
        return NULL;
    for (int i = 0; i < n; i++) {
        int m = fold(words[i], c);
        if (m < 0)
            continue;
        /* One slip in three to five letters, two in six to nine, then three;
         * shorter words are too close to everything. */
        int longer = len > m ? len : m, shorter = len < m ? len : m;
        int limit = shorter < 2 || longer < 3 ? 0 : longer < 6 ? 1 : longer < 10 ? 2 : 3;
        int d = distance(w, len, c, m);
        if (d <= limit && (!best || d < best_d)) {
            best = words[i];
            best_d = d;
        }
        if (len > 3 && parts_within(w, c)) {
            within = words[i];
            n_within++;
        }
    }
    return best ? best : n_within == 1 ? within : NULL;
}

int units_range(const char *text, double v, double min, double max)
{
    char lo[32], hi[32];

    if (min == max || (v >= min && v <= max))
        return 0;
    units_shortest(lo, min);
    units_shortest(hi, max);
    if (isinf(max))
        return err_set(ERR_USAGE, "%s is too small, expected at least %s", text, lo);
    if (isinf(min))
        return err_set(ERR_USAGE, "%s is too large, expected at most %s", text, hi);
    return err_set(ERR_USAGE, "%s is out of range, expected %s to %s", text, lo, hi);
}

int units_choice(const char *s, const char *words)
{
    struct arena *a = arena_new();
    char *copy = arena_strdup(a, words), *list = arena_strdup(a, "");
    const char **v = arena_array(a, strlen(words) + 1, sizeof *v);
    int n = 0, rc = -1;

    for (char *save, *w = strtok_r(copy, "|", &save); w; w = strtok_r(NULL, "|", &save))
        v[n++] = w;
    for (int i = 0; i < n; i++) {
        if (!strcmp(s, v[i]))
            rc = i;
        list = arena_printf(a, "%s%s%s", list, i == 0 ? "" : i + 1 == n ? " or " : ", ", v[i]);
    }
    if (rc < 0) {
        const char *near = units_nearest(s, v, n);
        if (near)
            rc = err_set(ERR_USAGE, "expected %s, not \"%s\" (did you mean \"%s\"?)", list, s, near);
        else
            rc = err_set(ERR_USAGE, "expected %s, not \"%s\"", list, s);
    }
    arena_free(a);
    return rc;
}
