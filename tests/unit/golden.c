/* golden.c -- the reader of golden files. */
#include "unit/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"

const char *const golden_cases[] = {
    "qwen3_moe", "qwen3_moe_dense", "glm4_moe", "glm4_moe_groups", "mixtral", "olmoe", "qwen2_moe", NULL
};

struct golden golden_open(struct arena *a, const char *name, const char *file)
{
    struct golden g = { 0 };
    struct fs_blob b;
    const char *path = arena_printf(a, "tests/golden/%s/%s", name, file);
    if (fs_read(path, &b) < 0)
        fail_msg("%s", err_msg());
    char *data = arena_alloc(a, b.size + 1);
    memcpy(data, b.data, b.size);
    uint64_t n_head;
    memcpy(&n_head, data, 8);
    json_t *top;
    if (json_load_text(path, data + 8, n_head, &top) < 0)
        fail_msg("%s", err_msg());
    g.v = arena_array(a, json_object_size(top), sizeof *g.v);
    const char *key;
    json_t *v;
    json_object_foreach(top, key, v) {
        if (!strcmp(key, "__metadata__"))
            continue;
        struct golden_tensor *t = &g.v[g.n++];
        t->name = arena_strdup(a, key);
        assert_int_equal(dtype_parse(json_string_value(json_object_get(v, "dtype")), &t->dt), 0);
        const json_t *shape = json_object_get(v, "shape");
        t->n = 1;
        for (size_t i = 0; i < json_array_size(shape); i++) {
            t->shape[i] = json_integer_value(json_array_get(shape, i));
            t->n *= t->shape[i];
        }
        t->n_dims = (int)json_array_size(shape);
        t->data = data + 8 + n_head + json_integer_value(json_array_get(json_object_get(v, "data_offsets"), 0));
    }
    json_decref(top);
    fs_blob_free(&b);
    return g;
}

const struct golden_tensor *golden_find(const struct golden *g, const char *name)
{
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->v[i].name, name))
            return &g->v[i];
    return NULL;
}

static void *copy(struct arena *a, const struct golden *g, const char *name, enum dtype dt)
{
    const struct golden_tensor *t = golden_find(g, name);
    if (!t || t->dt != dt)
        fail_msg("golden file has no %s of type %s", name, dtype_name(dt));
    void *p = arena_array(a, (size_t)t->n, dtype_size(dt));
    memcpy(p, t->data, (size_t)t->n * dtype_size(dt));
    return p;
}

float *golden_f32(struct arena *a, const struct golden *g, const char *name) { return copy(a, g, name, DT_F32); }
int32_t *golden_i32(struct arena *a, const struct golden *g, const char *name) { return copy(a, g, name, DT_I32); }
