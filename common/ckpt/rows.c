/* rows.c -- lines of a mapped file. */
#include "ckpt/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"

/* Rows are written with the schema first and without spaces. */
static _Bool is_asked(const char *line, size_t n, const char *const *schemas)
{
    static const char lead[] = "{\"schema\":\"";
    size_t k = sizeof lead - 1;

    if (n < k || memcmp(line, lead, k))
        return 0;
    for (; *schemas; schemas++) {
        size_t len = strlen(*schemas);

        if (n > k + len && !memcmp(line + k, *schemas, len) && line[k + len] == '"')
            return 1;
    }
    return 0;
}

int rows_each(const char *path, const char *const *schemas, int (*fn)(void *ctx, const char *where, const json_t *row), void *ctx)
{
    struct fs_blob b;
    char where[4200];
    int64_t line_no = 1;
    int rc = 0;

    TRY(fs_map(path, &b));
    for (size_t at = 0; at < b.size && rc == 0; line_no++) {
        const char *line = b.data + at, *end = memchr(line, '\n', b.size - at);
        json_t *row;

        if (!end)
            break;
        at += (size_t)(end - line) + 1;
        if (!is_asked(line, (size_t)(end - line), schemas))
            continue;
        snprintf(where, sizeof where, "%s:%" PRId64, path, line_no);
        rc = json_load_text(where, line, (size_t)(end - line), &row);
        if (rc < 0)
            break;
        rc = fn(ctx, where, row);
        json_decref(row);
    }
    fs_blob_free(&b);
    return rc < 0 ? rc : 0;
}
