/* manifest.c -- the text of MANIFEST.json; see manifest_read.c for reading it. */
#include "ckpt/manifest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/grow.h"
#include "base/json.h"
#include "base/pool.h"
#include "ckpt/names.h"

#define MANIFEST_MAX ((uint64_t)1 << 30)        /* ten times that of the reference run */

static const char *const kind_names[] = { "full", "major", "light" };

const char *manifest_kind_name(enum manifest_kind k) { return kind_names[k]; }

/* ---- writing */

struct text { char *s; size_t n; int64_t room; int rc; };

static void add(struct text *t, const char *s, size_t n)
{
    if (t->rc < 0)
        return;
    if ((t->rc = grow_pooled(&t->s, &t->room, (int64_t)(t->n + n + 1), 1, "bytes of a manifest")) < 0)
        return;
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

/* ---- files */

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
    if (!m)
        return;
    ckpt_names_free(m->names);
    pool_free(m->tensors);
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
