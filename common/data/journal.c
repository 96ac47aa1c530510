/* journal.c -- see journal.h.
 *
 * Whatever is wrong with a journal, the answer is "begin anew", never an error:
 * it holds nothing that cannot be made again. */
#include "data/journal.h"

#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"

static void put_head(struct json_out *j, const struct journal_head *h)
{
    json_obj(j, NULL);
    json_put_str(j, "format", JOURNAL_FORMAT);
    json_put_str(j, "tool", h->tool);
    json_put_str(j, "tokenizer", h->tokenizer.hex);
    json_put_str(j, "how", h->how);
    json_put_str(j, "inputs", h->inputs.hex);
    json_put_int(j, "n_inputs", h->n_inputs);
    json_put_int(j, "n_outputs", h->n_outputs);
    json_obj_end(j);
}

/* The text so far and a line feed. */
static char *line_of(struct arena *a, struct json_out *j, size_t *n)
{
    const char *text = json_text(j, n);
    char *line = arena_alloc(a, *n + 2);
    memcpy(line, text, *n);
    line[(*n)++] = '\n';
    return line;
}

int journal_create(const char *path, const struct journal_head *h)
{
    struct arena *a = arena_new();
    struct json_out *j = json_new();
    size_t n;
    put_head(j, h);
    char *line = line_of(a, j, &n);
    int rc = fs_write_file(path, line, n);
    json_free(j);
    arena_free(a);
    return rc;
}

int journal_add(const char *path, const struct journal_input *input, int n, const struct tokenfile_mark *mark, int *was,
                int n_outputs, const int64_t *count, int n_counts)
{
    struct arena *a = arena_new();
    struct json_out *j = json_new();
    size_t size;
    json_obj(j, NULL);
    json_arr(j, "inputs");
    for (int i = 0; i < n; i++) {
        json_arr(j, NULL);
        json_put_int(j, NULL, (int64_t)input[i].bytes);
        json_put_int(j, NULL, input[i].mtime_ns);
        json_put_str(j, NULL, input[i].hash.hex);
        json_arr_end(j);
    }
    json_arr_end(j);
    json_arr(j, "counts");
    for (int i = 0; i < n_counts; i++)
        json_put_int(j, NULL, count[i]);
    json_arr_end(j);
    json_arr(j, "marks");
    for (int i = 0; i < n_outputs; i++) {
        json_arr(j, NULL);
        json_put_int(j, NULL, mark[i].documents);
        json_put_int(j, NULL, mark[i].tokens);
        json_put_int(j, NULL, mark[i].text_bytes);
        json_put_int(j, NULL, mark[i].empty);
        json_put_str(j, NULL, mark[i].tail.hex);
        for (int k = was[i]; k < mark[i].n_bin; k++)
            json_put_str(j, NULL, mark[i].bin[k].hex);
        json_arr_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
    char *line = line_of(a, j, &size);
    int rc = fs_append_line(path, line, size, 1);
    if (rc == 0)
        for (int i = 0; i < n_outputs; i++)
            was[i] = mark[i].n_bin;
    json_free(j);
    arena_free(a);
    return rc;
}

int journal_ready(const char *path)
{
    static const char line[] = "{\"ready\":true}\n";
    return fs_append_line(path, line, sizeof line - 1, 1);
}

/* ---- reading */

static const char *differs(const json_t *root, const struct journal_head *h)
{
    const char *s = NULL;
    int64_t n_inputs = 0, n_outputs = 0;
    if (json_opt_str(root, "journal", "format", &s) < 0 || s == NULL || strcmp(s, JOURNAL_FORMAT) != 0)
        return "its journal cannot be read";
    if (json_opt_str(root, "journal", "tool", &s) < 0 || strcmp(s, h->tool) != 0)
        return "it was begun by another version";
    if (json_opt_str(root, "journal", "tokenizer", &s) < 0 || strcmp(s, h->tokenizer.hex) != 0)
        return "the vocabulary is another one";
    if (json_opt_str(root, "journal", "how", &s) < 0 || strcmp(s, h->how) != 0)
        return "the options are others";
    if (json_opt_str(root, "journal", "inputs", &s) < 0 || strcmp(s, h->inputs.hex) != 0 ||
        json_opt_int(root, "journal", "n_inputs", &n_inputs) < 0 || n_inputs != h->n_inputs)
        return "the list of inputs is another one";
    if (json_opt_int(root, "journal", "n_outputs", &n_outputs) < 0 || n_outputs != h->n_outputs)
        return "the options are others";
    return NULL;
}

static _Bool get_int(const json_t *list, size_t i, int64_t *out)
{
    const json_t *v = json_array_get(list, i);
    if (!json_is_integer(v) || (*out = json_integer_value(v)) < 0)
        return 0;
    return 1;
}

static _Bool get_hash(const json_t *list, size_t i, struct hash *out)
{
    const json_t *v = json_array_get(list, i);
    return json_is_string(v) && hash_parse(json_string_value(v), out);
}

static void *more(struct arena *a, const void *old, size_t n_old, size_t n, size_t size)
{
    char *p = arena_array(a, n + 1, size);
    if (n_old > 0)
        memcpy(p, old, n_old * size);
    return p;
}

static _Bool add_inputs(struct journal_state *s, const json_t *list, int max)
{
    size_t n = json_array_size(list);
    if (n > (size_t)(max - s->n_done))
        return 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        struct journal_input *in = &s->input[s->n_done + (int)i];
        int64_t bytes;
        if (!get_int(v, 0, &bytes) || !json_is_integer(json_array_get(v, 1)) || !get_hash(v, 2, &in->hash))
            return 0;
        in->bytes = (uint64_t)bytes;
        in->mtime_ns = json_integer_value(json_array_get(v, 1));
    }
    s->n_done += (int)n;
    return 1;
}

static _Bool add_mark(struct journal_state *s, struct tokenfile_mark *m, const json_t *v)
{
    size_t n = json_array_size(v), had = (size_t)m->n_bin;
    if (n < 5 || !get_int(v, 0, &m->documents) || !get_int(v, 1, &m->tokens) || !get_int(v, 2, &m->text_bytes) ||
        !get_int(v, 3, &m->empty) || !get_hash(v, 4, &m->tail))
        return 0;
    if (n == 5)
        return 1;
    m->bin = more(s->arena, m->bin, had, had + n - 5, sizeof *m->bin);
    for (size_t i = 5; i < n; i++)
        if (!get_hash(v, i, &m->bin[m->n_bin++]))
            return 0;
    return 1;
}

static _Bool add_line(struct journal_state *s, const json_t *root, const struct journal_head *h)
{
    const json_t *counts = json_object_get(root, "counts"), *marks = json_object_get(root, "marks");
    if (json_is_true(json_object_get(root, "ready"))) {
        s->ready = 1;
        return 1;
    }
    if (!add_inputs(s, json_object_get(root, "inputs"), h->n_inputs) || json_array_size(marks) != (size_t)h->n_outputs)
        return 0;
    for (int i = 0; i < h->n_outputs; i++)
        if (!add_mark(s, &s->mark[i], json_array_get(marks, (size_t)i)))
            return 0;
    s->n_counts = (int)json_array_size(counts);
    s->count = arena_array(s->arena, (size_t)s->n_counts + 1, sizeof *s->count);
    for (int i = 0; i < s->n_counts; i++)
        if (!get_int(counts, (size_t)i, &s->count[i]))
            return 0;
    return 1;
}

/* The first line decides whether the others matter; a torn last line was never said. */
static const char *read_lines(struct journal_state *s, const struct journal_head *h, const char *text, size_t size)
{
    const char *lf, *why;
    _Bool head = 1;
    for (const char *p = text; (lf = memchr(p, '\n', size - (size_t)(p - text))) != NULL; p = lf + 1) {
        json_t *root;
        if (json_load_text("journal", p, (size_t)(lf - p), &root) < 0)
            return "its journal cannot be read";
        why = head ? differs(root, h) : add_line(s, root, h) ? NULL : "its journal cannot be read";
        head = 0;
        json_decref(root);
        if (why != NULL)
            return why;
    }
    return head ? "its journal cannot be read" : NULL;
}

int journal_read(const char *path, const struct journal_head *h, struct journal_state **out, const char **why)
{
    struct fs_blob text;
    *out = NULL;
    *why = "";
    if (!fs_exists(path))
        return 0;
    if (fs_read(path, &text) < 0) {
        err_clear();
        *why = "its journal cannot be read";
        return 0;
    }
    struct arena *a = arena_new();
    struct journal_state *s = arena_alloc(a, sizeof *s);
    s->arena = a;
    s->input = arena_array(a, (size_t)h->n_inputs + 1, sizeof *s->input);
    s->mark = arena_array(a, (size_t)h->n_outputs + 1, sizeof *s->mark);
    *why = read_lines(s, h, text.data, text.size);
    /* Half a line would become a part of the next one. */
    const char *end = memrchr(text.data, '\n', text.size);
    if (*why == NULL && end + 1 < text.data + text.size && fs_write_file(path, text.data, (size_t)(end + 1 - text.data)) < 0)
        *why = "its journal cannot be mended";
    fs_blob_free(&text);
    err_clear();
    if (*why != NULL) {
        arena_free(a);
        return 0;
    }
    *out = s;
    return 1;
}

void journal_free(struct journal_state *s)
{
    if (s != NULL)
        arena_free(s->arena);
}
