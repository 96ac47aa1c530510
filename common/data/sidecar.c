/* sidecar.c -- the JSON beside a token file, written in one order, read strictly. */
#include "data/sidecar.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

enum { STEP = 8 << 20 };

static void put_hashes(struct json_out *j, const char *key, const struct hash *h, int n)
{
    json_arr(j, key);
    for (int i = 0; i < n; i++)
        json_put_str(j, NULL, h[i].hex);
    json_arr_end(j);
}

static void put_parts(struct json_out *j, const struct tokenfile_info *i)
{
    json_arr(j, "parts");
    for (int k = 0; k < i->n_parts; k++) {
        json_obj(j, NULL);
        json_put_str(j, "path", i->parts[k].path);
        json_put_int(j, "documents", i->parts[k].documents);
        json_put_int(j, "tokens", i->parts[k].tokens);
        json_put_str(j, "hash", i->parts[k].hash.hex);
        json_obj_end(j);
    }
    json_arr_end(j);
}

char *sidecar_text(const struct sidecar *s, size_t *n)
{
    const struct tokenfile_info *i = &s->info;
    struct json_out *j = json_new();
    json_obj(j, NULL);
    json_put_str(j, "format", TOKENFILE_FORMAT);
    json_put_str(j, "tool", i->tool);
    json_arr(j, "argv");
    for (int k = 0; k < i->n_argv; k++)
        json_put_str(j, NULL, i->argv[k]);
    json_arr_end(j);
    json_put_str(j, "tokenizer", i->tokenizer.hex);
    json_put_int(j, "vocab_size", i->vocab_size);
    json_obj(j, "eod");
    json_put_int(j, "id", i->eod_id);
    json_put_str(j, "token", i->eod_token);
    json_obj_end(j);
    json_put_str(j, "docs", i->docs);
    json_put_str(j, "key", i->key);
    json_put_str(j, "how", i->how != NULL ? i->how : "");
    json_put_str(j, "dtype", i->dtype_bytes == 2 ? "u16" : "i32");
    json_put_int(j, "documents", i->documents);
    json_put_int(j, "tokens", i->tokens);
    json_put_int(j, "text_bytes", i->text_bytes);
    json_obj(j, "counters");
    json_put_int(j, "invalid_utf8", i->invalid_utf8);
    json_put_int(j, "empty", i->empty);
    for (int k = 0; k < i->n_more; k++)
        json_put_int(j, i->more[k].name, i->more[k].n);
    json_obj_end(j);
    json_put_int(j, "chunk_bytes", s->chunk_bytes);
    put_hashes(j, "bin", s->bin, s->n_bin);
    put_hashes(j, "idx", s->idx, s->n_idx);
    json_arr(j, "inputs");
    for (int k = 0; k < i->n_inputs; k++) {
        json_obj(j, NULL);
        json_put_str(j, "path", i->inputs[k].path);
        json_put_int(j, "bytes", (int64_t)i->inputs[k].bytes);
        json_put_str(j, "hash", i->inputs[k].hash.hex);
        json_obj_end(j);
    }
    json_arr_end(j);
    if (i->n_parts > 0)
        put_parts(j, i);
    json_obj_end(j);
    const char *text = json_text(j, n);
    char *copy = malloc(*n + 2);
    arena_must(copy);
    memcpy(copy, text, *n);
    copy[(*n)++] = '\n';
    copy[*n] = '\0';
    json_free(j);
    return copy;
}

/* ---- reading */

static int get_string(struct sidecar *s, const json_t *o, const char *path, const char *key, char **out)
{
    const char *v;
    TRY(json_get_str(o, path, key, &v));
    *out = arena_strdup(s->arena, v);
    return 0;
}

static int get_count(const json_t *o, const char *path, const char *key, int64_t max, int64_t *out)
{
    TRY(json_get_int(o, path, key, out));
    if (*out < 0 || *out > max)
        return err_set(ERR_DATA, "%s: \"%s\": %lld is out of range", path, key, (long long)*out);
    return 0;
}

static int get_hash(const json_t *v, const char *path, const char *key, struct hash *out)
{
    if (!json_is_string(v) || !hash_parse(json_string_value(v), out))
        return err_set(ERR_DATA, "%s: \"%s\": expected a hash of 32 hexadecimal digits", path, key);
    return 0;
}

static int get_hashes(struct sidecar *s, const json_t *o, const char *path, const char *key, struct hash **out, int *n)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_array(v))
        return err_set(ERR_DATA, "%s: \"%s\": expected a list of hashes", path, key);
    *n = (int)json_array_size(v);
    *out = arena_array(s->arena, (size_t)*n + 1, sizeof **out);
    for (int i = 0; i < *n; i++)
        TRY(get_hash(json_array_get(v, (size_t)i), path, key, &(*out)[i]));
    return 0;
}

static int get_lists(struct sidecar *s, const json_t *root, const char *path)
{
    struct tokenfile_info *i = &s->info;
    const json_t *argv = json_object_get(root, "argv"), *inputs = json_object_get(root, "inputs");
    if (!json_is_array(argv) || !json_is_array(inputs))
        return err_set(ERR_DATA, "%s: \"argv\" and \"inputs\": expected lists", path);
    i->n_argv = (int)json_array_size(argv);
    i->argv = arena_array(s->arena, (size_t)i->n_argv + 1, sizeof *i->argv);
    for (int k = 0; k < i->n_argv; k++) {
        const char *a = json_string_value(json_array_get(argv, (size_t)k));
        if (a == NULL)
            return err_set(ERR_DATA, "%s: \"argv\": expected strings", path);
        i->argv[k] = arena_strdup(s->arena, a);
    }
    i->n_inputs = (int)json_array_size(inputs);
    i->inputs = arena_array(s->arena, (size_t)i->n_inputs + 1, sizeof *i->inputs);
    for (int k = 0; k < i->n_inputs; k++) {
        const json_t *o = json_array_get(inputs, (size_t)k);
        int64_t bytes;
        TRY(get_string(s, o, path, "path", &i->inputs[k].path));
        TRY(get_count(o, path, "bytes", INT64_MAX, &bytes));
        TRY(get_hash(json_object_get(o, "hash"), path, "hash", &i->inputs[k].hash));
        i->inputs[k].bytes = (uint64_t)bytes;
    }
    return 0;
}

static int get_parts(struct sidecar *s, const json_t *root, const char *path)
{
    struct tokenfile_info *i = &s->info;
    const json_t *parts = json_object_get(root, "parts");
    if (parts == NULL)
        return 0;
    if (!json_is_array(parts))
        return err_set(ERR_DATA, "%s: \"parts\": expected a list", path);
    i->n_parts = (int)json_array_size(parts);
    i->parts = arena_array(s->arena, (size_t)i->n_parts + 1, sizeof *i->parts);
    for (int k = 0; k < i->n_parts; k++) {
        const json_t *o = json_array_get(parts, (size_t)k);
        struct tokenfile_part *p = &i->parts[k];
        TRY(get_string(s, o, path, "path", &p->path));
        TRY(get_count(o, path, "documents", INT64_MAX, &p->documents));
        TRY(get_count(o, path, "tokens", INT64_MAX, &p->tokens));
        TRY(get_hash(json_object_get(o, "hash"), path, "hash", &p->hash));
    }
    return 0;
}

/* The counters beside the two that are always there. */
static int get_counters(struct sidecar *s, json_t *c, const char *path)
{
    struct tokenfile_info *i = &s->info;
    const char *key;
    json_t *v;
    TRY(get_count(c, path, "invalid_utf8", INT64_MAX, &i->invalid_utf8));
    TRY(get_count(c, path, "empty", INT64_MAX, &i->empty));
    i->more = arena_array(s->arena, json_object_size(c) + 1, sizeof *i->more);
    json_object_foreach(c, key, v) {
        if (strcmp(key, "invalid_utf8") == 0 || strcmp(key, "empty") == 0)
            continue;
        struct tokenfile_counter *m = &i->more[i->n_more++];
        m->name = arena_strdup(s->arena, key);
        TRY(get_count(c, path, key, INT64_MAX, &m->n));
    }
    return 0;
}

static int get_all(struct sidecar *s, const json_t *root, const char *path)
{
    struct tokenfile_info *i = &s->info;
    const char *format, *dtype;
    int64_t eod;
    TRY(json_get_str(root, path, "format", &format));
    if (strcmp(format, TOKENFILE_FORMAT) != 0)
        return err_set(ERR_DATA, "%s: format \"%s\" is not " TOKENFILE_FORMAT, path, format);
    TRY(get_string(s, root, path, "tool", &i->tool));
    TRY(get_hash(json_object_get(root, "tokenizer"), path, "tokenizer", &i->tokenizer));
    TRY(get_count(root, path, "vocab_size", INT32_MAX, &i->vocab_size));
    const json_t *e = json_object_get(root, "eod");
    TRY(get_count(e, path, "id", i->vocab_size - 1, &eod));
    i->eod_id = (int32_t)eod;
    TRY(get_string(s, e, path, "token", &i->eod_token));
    TRY(get_string(s, root, path, "docs", &i->docs));
    const char *how = "", *key = NULL;
    TRY(json_opt_str(root, path, "how", &how));
    TRY(json_opt_str(root, path, "key", &key));
    i->how = arena_strdup(s->arena, how);
    i->key = key != NULL ? arena_strdup(s->arena, key) : NULL;
    TRY(json_get_str(root, path, "dtype", &dtype));
    i->dtype_bytes = strcmp(dtype, "u16") == 0 ? 2 : strcmp(dtype, "i32") == 0 ? 4 : 0;
    if (i->dtype_bytes == 0)
        return err_set(ERR_DATA, "%s: dtype \"%s\" is neither u16 nor i32", path, dtype);
    TRY(get_count(root, path, "documents", INT64_MAX / 64, &i->documents));
    TRY(get_count(root, path, "tokens", INT64_MAX / 64, &i->tokens));
    TRY(get_count(root, path, "text_bytes", INT64_MAX, &i->text_bytes));
    TRY(get_counters(s, json_object_get(root, "counters"), path));
    TRY(get_count(root, path, "chunk_bytes", INT64_MAX, &s->chunk_bytes));
    if (s->chunk_bytes == 0)
        return err_set(ERR_DATA, "%s: \"chunk_bytes\" is 0", path);
    TRY(get_hashes(s, root, path, "bin", &s->bin, &s->n_bin));
    TRY(get_hashes(s, root, path, "idx", &s->idx, &s->n_idx));
    TRY(get_lists(s, root, path));
    return get_parts(s, root, path);
}

int sidecar_read(const char *path, struct sidecar **out)
{
    json_t *root;
    *out = NULL;
    TRY(json_load_path(path, &root));
    struct arena *a = arena_new();
    struct sidecar *s = arena_alloc(a, sizeof *s);
    s->arena = a;
    int rc = get_all(s, root, path);
    json_decref(root);
    if (rc < 0)
        arena_free(a);
    else
        *out = s;
    return rc < 0 ? rc : 0;
}

void sidecar_free(struct sidecar *s)
{
    if (s != NULL)
        arena_free(s->arena);
}

struct hash sidecar_hash(const struct sidecar *s)
{
    struct hash_stream *h = hash_begin();
    for (int i = 0; i < s->n_bin; i++)
        hash_add(h, s->bin[i].hex, 32);
    for (int i = 0; i < s->n_idx; i++)
        hash_add(h, s->idx[i].hex, 32);
    return hash_end(h);
}

static struct hash hash_chunk(const struct fs_blob *data, size_t at, size_t n)
{
    struct hash_stream *h = hash_begin();
    for (size_t k; n > 0; at += k, n -= k) {
        k = n < STEP ? n : STEP;
        hash_add(h, data->data + at, k);
        fs_blob_forget_part(data, at, k);
    }
    return hash_end(h);
}

int sidecar_verify(const struct sidecar *s, const struct hash *want, int n_want,
                   const char *path, const char *json, const struct fs_blob *data)
{
    size_t n = data->size, chunk = (size_t)s->chunk_bytes, n_chunks = n / chunk + (n % chunk != 0);
    if ((size_t)n_want != n_chunks)
        return err_set(ERR_DATA, "%s: has %zu chunks, but %s has hashes of %d", path, n_chunks, json, n_want);
    for (size_t i = 0; i < n_chunks; i++) {
        size_t k = n - i * chunk < chunk ? n - i * chunk : chunk;
        struct hash h = hash_chunk(data, i * chunk, k);
        if (!hash_eq(&h, &want[i]))
            return err_set(ERR_DATA, "%s: bytes %zu to %zu: checksum differs from %s", path, i * chunk, i * chunk + k, json);
    }
    return 0;
}
