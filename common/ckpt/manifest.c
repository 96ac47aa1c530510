/* manifest.c -- the text of MANIFEST.json, both ways.
 *
 * The self hash is compared before anything else is looked at, so whatever the
 * rest of the parser meets was once written whole; it is checked all the same,
 * since a manifest can also be made by hand. */
#include "ckpt/manifest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/pool.h"

#define MANIFEST_MAX ((uint64_t)1 << 30)        /* ten times that of the reference run */

static const char *const kind_names[] = { "full", "major", "light" };

const char *manifest_kind_name(enum manifest_kind k) { return kind_names[k]; }

/* ---- writing */

struct text { char *s; size_t n, room; int rc; };

static void add(struct text *t, const char *s, size_t n)
{
    if (t->rc < 0)
        return;
    if (t->room - t->n < n + 1) {
        size_t room = (t->n + n + 1) * 2;
        char *bigger = pool_realloc(t->s, room);

        if (!bigger) {
            t->rc = err_set(ERR_IO, "no memory for a manifest of %zu bytes", room);
            return;
        }
        t->s = bigger;
        t->room = room;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

static void add_str(struct text *t, const char *s) { add(t, s, strlen(s)); }

/* What lies between the braces of the object in j, which is emptied. */
static void add_members(struct text *t, struct json_out *j)
{
    size_t n;
    const char *s = json_text(j, &n);

    BUG_ON(n < 2 || s[0] != '{' || s[n - 1] != '}');
    add(t, s + 1, n - 2);
    json_reset(j);
}

static void put_hash(struct json_out *j, const char *key, const struct hash *h)
{
    struct hash same;

    BUG_ON(!hash_parse(h->hex, &same));
    json_put_str(j, key, h->hex);
}

static void put_info(struct json_out *j, const struct manifest_info *o)
{
    json_put_str(j, "format", MANIFEST_FORMAT);
    /* Second, so that it is found without the rest; left out where programs that
     * do not know it are right about the checkpoint. */
    if (o->kind != MANIFEST_FULL)
        json_put_str(j, "kind", kind_names[o->kind]);
    json_put_str(j, "tool", o->tool);
    json_arr(j, "argv");
    for (int i = 0; i < o->n_argv; i++)
        json_put_str(j, NULL, o->argv[i]);
    json_arr_end(j);
    put_hash(j, "run_id", &o->run_id);
    json_put_int(j, "restart", o->restart);
    json_put_int(j, "step", o->step);
    json_put_int(j, "tokens", o->tokens);
    put_hash(j, "config", &o->config);
    put_hash(j, "plan", &o->plan);
    json_obj(j, "mesh");
    json_put_int(j, "replicas", o->replicas);
    json_put_int(j, "efsdp", o->efsdp);
    json_put_int(j, "ep", o->ep);
    json_obj_end(j);
    json_put_int(j, "threads", o->threads);
    json_put_str(j, "kernels", o->kernels);
    json_obj(j, "data");
    json_put_int(j, "next_step", o->data_next_step);
    json_put_int(j, "seed", (int64_t)o->data_seed);
    json_arr(j, "sets");
    for (int i = 0; i < o->n_sets; i++) {
        json_obj(j, NULL);
        json_put_str(j, "path", o->sets[i].path);
        put_hash(j, "hash", &o->sets[i].hash);
        json_put_int(j, "windows", o->sets[i].windows);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static void put_file(struct json_out *j, const struct manifest_file *f)
{
    json_obj(j, f->name);
    json_put_int(j, "bytes", (int64_t)f->bytes);
    put_hash(j, f->is_tensors ? "header" : "hash", &f->hash);
    json_obj_end(j);
}

static void put_tensor(struct json_out *j, const struct manifest *m, const struct manifest_tensor *t)
{
    json_obj(j, t->name);
    json_put_str(j, "file", m->files[t->i_file].name);
    json_put_str(j, "dtype", t->type);
    json_arr(j, "shape");
    for (int i = 0; i < t->n_dims; i++)
        json_put_int(j, NULL, t->shape[i]);
    json_arr_end(j);
    json_arr(j, "parts");
    for (int i = 0; i < t->n_parts; i++) {
        json_arr(j, NULL);
        json_put_int(j, NULL, (int64_t)t->parts[i].begin);
        json_put_int(j, NULL, (int64_t)t->parts[i].end);
        put_hash(j, NULL, &t->parts[i].hash);
        json_arr_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

/* One line per file and tensor, so that grep and diff are of use. */
int manifest_format(const struct manifest *m, char **out, size_t *n)
{
    struct json_out *j = json_new();
    struct text t = { 0 };
    struct hash self;

    json_obj(j, NULL);
    put_info(j, &m->info);
    json_obj_end(j);
    add_str(&t, "{");
    add_members(&t, j);
    add_str(&t, ",\n\"files\":{\n");
    for (int i = 0; i < m->n_files; i++) {
        json_obj(j, NULL);
        put_file(j, &m->files[i]);
        json_obj_end(j);
        add_members(&t, j);
        add_str(&t, i + 1 < m->n_files ? ",\n" : "\n");
    }
    add_str(&t, "},\n\"tensors\":{\n");
    for (int64_t i = 0; i < m->n_tensors; i++) {
        json_obj(j, NULL);
        put_tensor(j, m, &m->tensors[i]);
        json_obj_end(j);
        add_members(&t, j);
        add_str(&t, i + 1 < m->n_tensors ? ",\n" : "\n");
    }
    add_str(&t, "},\n");
    json_free(j);
    if (t.rc == 0) {
        self = hash_bytes(t.s, t.n);
        add_str(&t, "\"self\":\"");
        add_str(&t, self.hex);
        add_str(&t, "\"}\n");
    }
    if (t.rc < 0) {
        pool_free(t.s);
        return t.rc;
    }
    *out = t.s;
    *n = t.n;
    return 0;
}

/* ---- parsing */

struct parse { const char *where; struct arena *arena; struct manifest *m; };

/* The text must end with its own hash; a truncated file never does. */
static int check_self(const char *where, const char *text, size_t n, struct hash *self)
{
    static const char key[] = "\"self\":\"";
    const size_t tail = sizeof key - 1 + 32 + 2;        /* key, hash, "} */
    char hex[33];
    struct hash is;

    while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    if (n < tail || memcmp(text + n - tail, key, sizeof key - 1) != 0 || memcmp(text + n - 2, "\"}", 2) != 0)
        return err_set(ERR_DATA, "%s: does not end with its own hash: cut short, or no manifest", where);
    memcpy(hex, text + n - 34, 32);
    hex[32] = '\0';
    if (!hash_parse(hex, self))
        return err_set(ERR_DATA, "%s: its own hash is not 32 hex digits", where);
    is = hash_bytes(text, n - tail);
    if (!hash_eq(&is, self))
        return err_set(ERR_DATA, "%s: damaged: its text does not give its own hash", where);
    return 0;
}

/* Every key of o is in the list (ended by NULL) or may, and all of the list is there. */
static int check_keys_or(const char *where, json_t *o, const char *const *keys, const char *may)
{
    const char *k;
    json_t *v;
    int n = 0;

    if (!json_is_object(o))
        return err_set(ERR_DATA, "%s: expected an object", where);
    for (; keys[n]; n++)
        if (!json_object_get(o, keys[n]))
            return err_set(ERR_DATA, "%s: \"%s\" is missing", where, keys[n]);
    json_object_foreach(o, k, v) {
        int i = 0;

        while (keys[i] && strcmp(keys[i], k))
            i++;
        if (!keys[i] && !(may && !strcmp(may, k)))
            return err_set(ERR_DATA, "%s: holds a key that this format does not have", where);
    }
    return 0;
}

static int check_keys(const char *where, json_t *o, const char *const *keys)
{
    return check_keys_or(where, o, keys, NULL);
}

static int get_count(const json_t *o, const char *where, const char *key, int64_t *out)
{
    TRY(json_get_int(o, where, key, out));
    if (*out < 0)
        return err_set(ERR_DATA, "%s: \"%s\" is negative", where, key);
    return 0;
}

static int get_hash(const json_t *o, const char *where, const char *key, struct hash *out)
{
    const char *s;

    TRY(json_get_str(o, where, key, &s));
    if (!hash_parse(s, out))
        return err_set(ERR_DATA, "%s: \"%s\" is not a hash of 32 hex digits", where, key);
    return 0;
}

static int get_copy(struct parse *p, const json_t *o, const char *where, const char *key, const char **out)
{
    const char *s;

    TRY(json_get_str(o, where, key, &s));
    *out = arena_strdup(p->arena, s);
    return 0;
}

static int read_sets(struct parse *p, json_t *data)
{
    static const char *const keys[] = { "path", "hash", "windows", NULL };
    struct manifest_info *o = &p->m->info;
    const char *where = arena_printf(p->arena, "%s: data.sets", p->where);
    json_t *sets = json_object_get(data, "sets");
    struct manifest_set *v;

    if (!json_is_array(sets))
        return err_set(ERR_DATA, "%s: expected an array", where);
    o->n_sets = (int)json_array_size(sets);
    o->sets = v = arena_array(p->arena, (size_t)o->n_sets + 1, sizeof *v);
    for (int i = 0; i < o->n_sets; i++) {
        json_t *s = json_array_get(sets, (size_t)i);

        TRY(check_keys(where, s, keys));
        TRY(get_copy(p, s, where, "path", &v[i].path));
        TRY(get_hash(s, where, "hash", &v[i].hash));
        TRY(get_count(s, where, "windows", &v[i].windows));
    }
    return 0;
}

static int read_kind(struct parse *p, json_t *top)
{
    const char *s;

    if (!json_object_get(top, "kind"))
        return 0;
    TRY(json_get_str(top, p->where, "kind", &s));
    for (int k = MANIFEST_MAJOR; k <= MANIFEST_LIGHT; k++)
        if (!strcmp(s, kind_names[k])) {
            p->m->info.kind = (enum manifest_kind)k;
            return 0;
        }
    return err_set(ERR_DATA, "%s: \"kind\" is neither major nor light", p->where);
}

static int read_info(struct parse *p, json_t *top)
{
    static const char *const keys[] = { "format", "tool", "argv", "run_id", "restart", "step", "tokens", "config",
        "plan", "mesh", "threads", "kernels", "data", "files", "tensors", "self", NULL };
    static const char *const mesh_keys[] = { "replicas", "efsdp", "ep", NULL };
    static const char *const data_keys[] = { "next_step", "seed", "sets", NULL };
    struct manifest_info *o = &p->m->info;
    json_t *mesh, *data, *args;
    const char *format, **argv;
    int64_t seed;

    TRY(json_get_str(top, p->where, "format", &format));
    if (strcmp(format, MANIFEST_FORMAT))
        return err_set(ERR_DATA, "%s: the format is not " MANIFEST_FORMAT, p->where);
    TRY(check_keys_or(p->where, top, keys, "kind"));
    TRY(read_kind(p, top));
    TRY(get_copy(p, top, p->where, "tool", &o->tool));
    TRY(get_hash(top, p->where, "run_id", &o->run_id));
    TRY(get_count(top, p->where, "restart", &o->restart));
    TRY(get_count(top, p->where, "step", &o->step));
    TRY(get_count(top, p->where, "tokens", &o->tokens));
    TRY(get_hash(top, p->where, "config", &o->config));
    TRY(get_hash(top, p->where, "plan", &o->plan));
    TRY(get_count(top, p->where, "threads", &o->threads));
    TRY(get_copy(p, top, p->where, "kernels", &o->kernels));
    args = json_object_get(top, "argv");
    if (!json_is_array(args))
        return err_set(ERR_DATA, "%s: \"argv\": expected an array", p->where);
    o->n_argv = (int)json_array_size(args);
    argv = arena_array(p->arena, (size_t)o->n_argv + 1, sizeof *argv);
    for (int i = 0; i < o->n_argv; i++) {
        const char *s = json_string_value(json_array_get(args, (size_t)i));

        if (!s)
            return err_set(ERR_DATA, "%s: \"argv\": expected strings", p->where);
        argv[i] = arena_strdup(p->arena, s);
    }
    o->argv = argv;
    mesh = json_object_get(top, "mesh");
    TRY(check_keys(arena_printf(p->arena, "%s: mesh", p->where), mesh, mesh_keys));
    TRY(get_count(mesh, p->where, "replicas", &o->replicas));
    TRY(get_count(mesh, p->where, "efsdp", &o->efsdp));
    TRY(get_count(mesh, p->where, "ep", &o->ep));
    data = json_object_get(top, "data");
    TRY(check_keys(arena_printf(p->arena, "%s: data", p->where), data, data_keys));
    TRY(get_count(data, p->where, "next_step", &o->data_next_step));
    TRY(json_get_int(data, p->where, "seed", &seed));
    o->data_seed = (uint64_t)seed;
    return read_sets(p, data);
}

/* A name that stays inside the directory and prints on one line. */
static _Bool is_inside(const char *s)
{
    const char *start = s;

    if (!*s || strlen(s) > PATH_MAX / 2)
        return 0;
    for (;; s++) {
        if (*s == '/' || !*s) {
            size_t n = (size_t)(s - start);

            if (n == 0 || n > NAME_MAX || (n == 1 && start[0] == '.') || (n == 2 && start[0] == '.' && start[1] == '.'))
                return 0;
            if (!*s)
                return 1;
            start = s + 1;
        } else if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            return 0;
        }
    }
}

static int read_files(struct parse *p, json_t *files)
{
    static const char *const whole[] = { "bytes", "hash", NULL }, *const tensors[] = { "bytes", "header", NULL };
    struct manifest *m = p->m;
    struct manifest_file *f;
    const char *name, *where;
    json_t *v;
    int64_t bytes;

    if (!json_is_object(files))
        return err_set(ERR_DATA, "%s: \"files\": expected an object", p->where);
    m->files = arena_array(p->arena, json_object_size(files) + 1, sizeof *m->files);
    json_object_foreach(files, name, v) {
        if (!is_inside(name) || !strcmp(name, MANIFEST_NAME))
            return err_set(ERR_DATA, "%s: files: a name that is not one inside the directory", p->where);
        f = &m->files[m->n_files++];
        f->name = arena_strdup(p->arena, name);
        where = arena_printf(p->arena, "%s: files: %s", p->where, name);
        f->is_tensors = json_object_get(v, "header") != NULL;
        TRY(check_keys(where, v, f->is_tensors ? tensors : whole));
        TRY(get_count(v, where, "bytes", &bytes));
        f->bytes = (uint64_t)bytes;
        TRY(get_hash(v, where, f->is_tensors ? "header" : "hash", &f->hash));
    }
    return 0;
}

static int find_file(const struct manifest *m, const char *name, int guess)
{
    if (guess < m->n_files && !strcmp(m->files[guess].name, name))
        return guess;
    for (int i = 0; i < m->n_files; i++)
        if (!strcmp(m->files[i].name, name))
            return i;
    return -1;
}

static int read_parts(struct parse *p, const char *where, json_t *parts, struct manifest_tensor *t, uint64_t bytes)
{
    struct st_part *v;
    uint64_t at = 0;

    if (!json_is_array(parts))
        return err_set(ERR_DATA, "%s: \"parts\": expected an array", where);
    t->n_parts = (int)json_array_size(parts);
    t->parts = v = arena_array(p->arena, (size_t)t->n_parts + 1, sizeof *v);
    for (int i = 0; i < t->n_parts; i++) {
        json_t *e = json_array_get(parts, (size_t)i);
        json_t *begin = json_array_get(e, 0), *end = json_array_get(e, 1);
        const char *hex = json_string_value(json_array_get(e, 2));

        if (json_array_size(e) != 3 || !json_is_integer(begin) || !json_is_integer(end) || !hex ||
            !hash_parse(hex, &v[i].hash))
            return err_set(ERR_DATA, "%s: part %d is not [begin, end, hash]", where, i);
        v[i].begin = (uint64_t)json_integer_value(begin);
        v[i].end = (uint64_t)json_integer_value(end);
        if (v[i].begin != at || v[i].end <= v[i].begin || v[i].end > bytes)
            return err_set(ERR_DATA, "%s: its parts do not tile its %" PRIu64 " bytes", where, bytes);
        at = v[i].end;
    }
    if (at != bytes)
        return err_set(ERR_DATA, "%s: its parts do not tile its %" PRIu64 " bytes", where, bytes);
    return 0;
}

static int read_tensor(struct parse *p, const char *name, json_t *v, struct manifest_tensor *t, int guess)
{
    static const char *const keys[] = { "file", "dtype", "shape", "parts", NULL };
    const char *where, *file, *type;
    json_t *shape;
    int64_t *dims;
    uint64_t n;

    for (const char *s = name; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return err_set(ERR_DATA, "%s: a control character in a tensor name", p->where);
    t->name = arena_strdup(p->arena, name);
    where = arena_printf(p->arena, "%s: tensor \"%s\"", p->where, name);
    TRY(check_keys(where, v, keys));
    TRY(json_get_str(v, where, "file", &file));
    t->i_file = find_file(p->m, file, guess);
    if (t->i_file < 0 || !p->m->files[t->i_file].is_tensors)
        return err_set(ERR_DATA, "%s: its file is not among the listed tensor files", where);
    TRY(json_get_str(v, where, "dtype", &type));
    n = (uint64_t)st_type_bits(type);
    if (!n)
        return err_set(ERR_DATA, "%s: unknown type", where);
    t->type = arena_strdup(p->arena, type);
    shape = json_object_get(v, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > ST_MAX_DIMS)
        return err_set(ERR_DATA, "%s: \"shape\": expected an array of at most %d numbers", where, ST_MAX_DIMS);
    t->n_dims = (int)json_array_size(shape);
    t->shape = dims = arena_array(p->arena, (size_t)t->n_dims + 1, sizeof *dims);
    for (int i = 0; i < t->n_dims; i++) {
        json_t *d = json_array_get(shape, (size_t)i);

        dims[i] = json_integer_value(d);
        if (!json_is_integer(d) || dims[i] < 0 || __builtin_mul_overflow(n, (uint64_t)dims[i], &n))
            return err_set(ERR_DATA, "%s: a dimension that is no number, negative or too large", where);
    }
    return read_parts(p, where, json_object_get(v, "parts"), t, n / 8);
}

int manifest_parse(const char *where, const char *text, size_t n, struct manifest **out)
{
    struct arena *a = arena_new();
    struct manifest *m = arena_alloc(a, sizeof *m);
    struct parse p = { where, a, m };
    json_t *top = NULL, *tensors, *v;
    const char *name;
    int rc, guess = 0;

    m->memory = a;
    TRY_OUT(rc, check_self(where, text, n, &m->self));
    TRY_OUT(rc, json_load_text(where, text, n, &top));
    TRY_OUT(rc, read_info(&p, top));
    TRY_OUT(rc, read_files(&p, json_object_get(top, "files")));
    tensors = json_object_get(top, "tensors");
    if (!json_is_object(tensors)) {
        rc = err_set(ERR_DATA, "%s: \"tensors\": expected an object", where);
        goto out;
    }
    m->tensors = arena_array(a, json_object_size(tensors) + 1, sizeof *m->tensors);
    json_object_foreach(tensors, name, v) {
        TRY_OUT(rc, read_tensor(&p, name, v, &m->tensors[m->n_tensors], guess));
        guess = m->tensors[m->n_tensors++].i_file;
    }
    *out = m;
    a = NULL;
    rc = 0;
out:
    json_decref(top);
    arena_free(a);
    return rc;
}

int manifest_load(const char *dir, struct manifest **out)
{
    struct arena *a = arena_new();
    char *path = fs_join(a, dir, MANIFEST_NAME);
    struct fs_blob b;
    uint64_t bytes;
    int rc = fs_file_size(path, &bytes);        /* a FIFO must not hold us up */

    if (rc == 0 && bytes > MANIFEST_MAX)
        rc = err_set(ERR_DATA, "%s: %" PRIu64 " bytes, too large for a manifest", path, bytes);
    if (rc == 0)
        rc = fs_read(path, &b);
    if (rc == 0) {
        rc = manifest_parse(path, b.data, b.size, out);
        fs_blob_free(&b);
    }
    arena_free(a);
    return rc;
}

void manifest_free(struct manifest *m)
{
    if (m)
        arena_free(m->memory);
}

int manifest_kind_of(const char *dir, enum manifest_kind *out)
{
    static const char lead[] = "{\"format\":\"" MANIFEST_FORMAT "\",\"kind\":\"";
    struct arena *a = arena_new();
    const char *path = fs_join(a, dir, MANIFEST_NAME);
    char text[sizeof lead + 16] = "";
    uint64_t bytes;
    int fd, rc = fs_file_size(path, &bytes);

    *out = MANIFEST_FULL;
    if (rc < 0 || bytes < sizeof text)
        goto out;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        rc = err_sys(ERR_IO, "%s", path);
        goto out;
    }
    rc = fs_pread(fd, path, text, sizeof text - 1, 0);
    close(fd);
    if (rc < 0 || strncmp(text, lead, sizeof lead - 1))
        goto out;
    for (int k = MANIFEST_MAJOR; k <= MANIFEST_LIGHT; k++) {
        size_t n = strlen(kind_names[k]);

        if (!strncmp(text + sizeof lead - 1, kind_names[k], n) && text[sizeof lead - 1 + n] == '"')
            *out = (enum manifest_kind)k;
    }
out:
    arena_free(a);
    return rc;
}
