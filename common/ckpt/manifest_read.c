/* manifest_read.c -- MANIFEST.json, pulled from its text.
 *
 * The self hash is compared before anything else is looked at, so whatever the
 * rest of the parser meets was once written whole; it is checked all the same,
 * since a manifest can also be made by hand.  A tree of 86,000 tensors would
 * take ten times as long and as much memory as the table that is wanted. */
#include "ckpt/manifest.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/json_pull.h"
#include "base/pool.h"
#include "ckpt/names.h"

struct parse {
    struct json_pull j;
    struct arena *arena;
    struct manifest *m;
    const char *list, *name;    /* what is being read: an entry of a list ("files"), or of the tensors */
    int64_t room;               /* of m->tensors */
    struct json_pull tensors;   /* where they stand, when they come before the files */
};

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

static _Bool hash_slice(struct json_slice s, struct hash *out)
{
    char hex[33];

    if (s.n != 32)
        return 0;
    memcpy(hex, s.s, 32);
    hex[32] = '\0';
    return hash_parse(hex, out);
}

/* Records the sentence behind the place that is being read. */
static int bad(const struct parse *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int bad(const struct parse *p, const char *fmt, ...)
{
    char what[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (p->list)
        return err_set(ERR_DATA, "%s: %s%s%s: %s", p->j.where, p->list, p->name ? ": " : "", p->name ? p->name : "", what);
    if (p->name)
        return err_set(ERR_DATA, "%s: tensor \"%s\": %s", p->j.where, p->name, what);
    return err_set(ERR_DATA, "%s: %s", p->j.where, what);
}

static const char *keep(struct parse *p, struct json_slice s)
{
    return memcpy(arena_alloc(p->arena, s.n + 1), s.s, s.n);
}

enum type { COUNT, INTEGER, TEXT, HASH, OTHER };

/* One key of an object; OTHER is read by a function of its own. */
struct field { const char *key; enum type kind; void *to; int (*read)(struct parse *p, void *to); _Bool may_lack; };

static int read_value(struct parse *p, const struct field *f)
{
    struct json_slice s;
    int rc = 0;

    if (f->kind == OTHER)
        return f->read(p, f->to);
    if (f->kind == COUNT || f->kind == INTEGER) {
        TRY(rc = json_pull_int(&p->j, f->to));
        if (!rc)
            return bad(p, "\"%s\": expected an integer", f->key);
        return f->kind == COUNT && *(int64_t *)f->to < 0 ? bad(p, "\"%s\" is negative", f->key) : 0;
    }
    if (json_pull_peek(&p->j) != '"')
        return bad(p, "\"%s\": expected a string", f->key);
    TRY(json_pull_string(&p->j, "a string", &s));
    if (f->kind == TEXT)
        *(const char **)f->to = keep(p, s);
    else if (!hash_slice(s, f->to))
        return bad(p, "\"%s\" is not a hash of 32 hex digits", f->key);
    return 0;
}

/* An object with these keys and no others, in any order.  of: a word for the sentences
 * about keys, when the place alone does not say which object it is. */
static int read_object(struct parse *p, const char *of, const struct field *f, int n)
{
    const char *colon = of ? ": " : "";
    _Bool unknown = 0;
    unsigned seen = 0;
    struct json_slice key;
    int rc, i;

    if (!of)
        of = "";
    if (json_pull_peek(&p->j) != '{')
        return bad(p, "%s%sexpected an object", of, colon);
    p->j.p++;
    for (rc = !json_pull_empty(&p->j, '}'); rc;) {
        const char *at = json_pull_at(&p->j);

        TRY(json_pull_key(&p->j, &key));
        for (i = 0; i < n && !json_slice_is(key, f[i].key); i++)
            ;
        if (i == n) {
            json_t *value;

            unknown = 1;
            TRY(json_pull_tree(&p->j, &value));
            json_decref(value);
        } else {
            if (seen & 1u << i)
                return json_pull_fail(&p->j, at, "duplicate key \"%s\"", f[i].key);
            seen |= 1u << i;
            TRY(read_value(p, &f[i]));
        }
        TRY(rc = json_pull_more(&p->j, '}'));
    }
    for (i = 0; i < n; i++)
        if (!(seen & 1u << i) && !f[i].may_lack)
            return bad(p, "%s%s\"%s\" is missing", of, colon, f[i].key);
    return unknown ? bad(p, "%s%sholds a key that this format does not have", of, colon) : 0;
}

#define N(array) ((int)(sizeof (array) / sizeof *(array)))

static int read_argv(struct parse *p, void *to)
{
    struct manifest_info *o = to;
    const char **argv = NULL;
    struct json_slice s;
    int64_t room = 0;
    int rc;

    if (json_pull_peek(&p->j) != '[')
        return bad(p, "\"argv\": expected an array");
    p->j.p++;
    for (rc = !json_pull_empty(&p->j, ']'); rc;) {
        if (json_pull_peek(&p->j) != '"')
            return bad(p, "\"argv\": expected strings");
        TRY(json_pull_string(&p->j, "a string", &s));
        argv = grow_arena(p->arena, argv, &room, o->n_argv + 1, sizeof *argv);
        argv[o->n_argv++] = keep(p, s);
        TRY(rc = json_pull_more(&p->j, ']'));
    }
    o->argv = argv;
    return 0;
}

static int read_sets(struct parse *p, void *to)
{
    struct manifest_info *o = to;
    struct manifest_set *v = NULL;
    int64_t room = 0;
    int rc;

    p->list = "data.sets";
    if (json_pull_peek(&p->j) != '[')
        return bad(p, "expected an array");
    p->j.p++;
    for (rc = !json_pull_empty(&p->j, ']'); rc;) {
        struct manifest_set one;
        const struct field f[] = {
            { "path", TEXT, &one.path, NULL, 0 }, { "hash", HASH, &one.hash, NULL, 0 }, { "windows", COUNT, &one.windows, NULL, 0 },
        };

        TRY(read_object(p, NULL, f, N(f)));
        v = grow_arena(p->arena, v, &room, o->n_sets + 1, sizeof *v);
        v[o->n_sets++] = one;
        TRY(rc = json_pull_more(&p->j, ']'));
    }
    p->list = NULL;
    o->sets = v;
    return 0;
}

static int read_mesh(struct parse *p, void *to)
{
    struct manifest_info *o = to;
    const struct field f[] = {
        { "replicas", COUNT, &o->replicas, NULL, 0 }, { "efsdp", COUNT, &o->efsdp, NULL, 0 }, { "ep", COUNT, &o->ep, NULL, 0 },
    };

    return read_object(p, "mesh", f, N(f));
}

static int read_data(struct parse *p, void *to)
{
    struct manifest_info *o = to;
    int64_t seed;
    const struct field f[] = {
        { "next_step", COUNT, &o->data_next_step, NULL, 0 }, { "seed", INTEGER, &seed, NULL, 0 }, { "sets", OTHER, o, read_sets, 0 },
    };

    TRY(read_object(p, "data", f, N(f)));
    o->data_seed = (uint64_t)seed;
    return 0;
}

/* Comes first in what we write, so that a later format is called by its name
 * before anything in it looks wrong. */
static int read_format(struct parse *p, void *to)
{
    struct json_slice s;

    (void)to;
    if (json_pull_peek(&p->j) != '"')
        return bad(p, "\"format\": expected a string");
    TRY(json_pull_string(&p->j, "a string", &s));
    return json_slice_is(s, MANIFEST_FORMAT) ? 0 : bad(p, "the format is not " MANIFEST_FORMAT);
}

static int read_kind(struct parse *p, void *to)
{
    struct manifest_info *o = to;
    struct json_slice s;

    if (json_pull_peek(&p->j) != '"')
        return bad(p, "\"kind\": expected a string");
    TRY(json_pull_string(&p->j, "a string", &s));
    for (int k = MANIFEST_MAJOR; k <= MANIFEST_LIGHT; k++)
        if (json_slice_is(s, manifest_kind_name((enum manifest_kind)k))) {
            o->kind = (enum manifest_kind)k;
            return 0;
        }
    return bad(p, "\"kind\" is neither major nor light");
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

static int twice(struct parse *p, const char *list, const char *name)
{
    return err_set(ERR_DATA, "%s: \"%s\": duplicate key \"%s\"", p->j.where, list, name);
}

/* Both hold one of "hash" and "header", which says what kind of file it is. */
static int read_file(struct parse *p, struct manifest_file *f)
{
    static const char *const keys[] = { "bytes", "hash", "header" };
    struct json_slice key;
    struct hash hash[3];
    unsigned seen = 0;
    int64_t bytes = 0;
    int rc, i;

    if (json_pull_peek(&p->j) != '{')
        return bad(p, "expected an object");
    p->j.p++;
    for (rc = !json_pull_empty(&p->j, '}'); rc;) {
        const char *at = json_pull_at(&p->j);

        TRY(json_pull_key(&p->j, &key));
        for (i = 0; i < N(keys) && !json_slice_is(key, keys[i]); i++)
            ;
        if (i == N(keys))
            return bad(p, "holds a key that this format does not have");
        if (seen & 1u << i)
            return json_pull_fail(&p->j, at, "duplicate key \"%s\"", keys[i]);
        seen |= 1u << i;
        TRY(read_value(p, &(struct field){ keys[i], i ? HASH : COUNT, i ? (void *)&hash[i] : (void *)&bytes, NULL, 0 }));
        TRY(rc = json_pull_more(&p->j, '}'));
    }
    f->is_tensors = seen >> 2 & 1;
    if (!(seen & 1))
        return bad(p, "\"bytes\" is missing");
    if (!(seen & 6))
        return bad(p, "\"hash\" is missing");
    if (seen == 7)
        return bad(p, "holds a key that this format does not have");
    f->bytes = (uint64_t)bytes;
    f->hash = hash[f->is_tensors ? 2 : 1];
    return 0;
}

static int read_files(struct parse *p, void *to)
{
    struct manifest *m = to;
    struct ckpt_names *names;
    struct json_slice key;
    int64_t room = 0, again;
    int rc;

    if (json_pull_peek(&p->j) != '{')
        return bad(p, "\"files\": expected an object");
    p->j.p++;
    for (rc = !json_pull_empty(&p->j, '}'); rc;) {
        TRY(json_pull_key(&p->j, &key));
        m->files = grow_arena(p->arena, m->files, &room, m->n_files + 1, sizeof *m->files);
        p->name = m->files[m->n_files].name = keep(p, key);
        if (!is_inside(p->name) || !strcmp(p->name, MANIFEST_NAME)) {
            p->name = NULL;
            return bad(p, "files: a name that is not one inside the directory");
        }
        p->list = "files";
        TRY(read_file(p, &m->files[m->n_files++]));
        p->list = p->name = NULL;
        TRY(rc = json_pull_more(&p->j, '}'));
    }
    names = ckpt_names_new(m->files, m->n_files, sizeof *m->files, offsetof(struct manifest_file, name), &again);
    ckpt_names_free(names);
    return again < 0 ? 0 : twice(p, "files", m->files[again].name);
}

/* Neighbours lie in the same file, mostly. */
static int find_file(const struct manifest *m, struct json_slice name)
{
    int guess = m->n_tensors ? m->tensors[m->n_tensors - 1].i_file : 0;

    if (guess < m->n_files && json_slice_is(name, m->files[guess].name))
        return guess;
    for (int i = 0; i < m->n_files; i++)
        if (json_slice_is(name, m->files[i].name))
            return i;
    return -1;
}

static int read_in(struct parse *p, void *to)
{
    struct manifest_tensor *t = to;
    struct json_slice s;

    if (json_pull_peek(&p->j) != '"')
        return bad(p, "\"file\": expected a string");
    TRY(json_pull_string(&p->j, "a string", &s));
    t->i_file = find_file(p->m, s);
    if (t->i_file < 0 || !p->m->files[t->i_file].is_tensors)
        return bad(p, "its file is not among the listed tensor files");
    return 0;
}

static int read_type(struct parse *p, void *to)
{
    struct manifest_tensor *t = to;
    struct json_slice s;

    if (json_pull_peek(&p->j) != '"')
        return bad(p, "\"dtype\": expected a string");
    TRY(json_pull_string(&p->j, "a string", &s));
    t->type = st_type_name(s.s, s.n);
    return t->type ? 0 : bad(p, "unknown type");
}

static int read_shape(struct parse *p, void *to)
{
    struct manifest_tensor *t = to;
    int64_t dims[ST_MAX_DIMS];
    int rc, n = 0, ok;

    if (json_pull_peek(&p->j) != '[')
        return bad(p, "\"shape\": expected an array of at most %d numbers", ST_MAX_DIMS);
    p->j.p++;
    for (rc = !json_pull_empty(&p->j, ']'); rc;) {
        if (n == ST_MAX_DIMS)
            return bad(p, "\"shape\": expected an array of at most %d numbers", ST_MAX_DIMS);
        TRY(ok = json_pull_int(&p->j, &dims[n]));
        if (!ok || dims[n] < 0)
            return bad(p, "a dimension that is no number, negative or too large");
        n++;
        TRY(rc = json_pull_more(&p->j, ']'));
    }
    t->n_dims = n;
    t->shape = memcpy(arena_array(p->arena, (size_t)n, sizeof *dims), dims, (size_t)n * sizeof *dims);
    return 0;
}

/* 1: a part was read; 0: what stands there is none. */
static int read_part(struct parse *p, struct st_part *v)
{
    struct json_slice s;
    int64_t n[2];
    int rc;

    if (json_pull_peek(&p->j) != '[')
        return 0;
    p->j.p++;
    for (int i = 0; i < 2; i++) {
        TRY(rc = json_pull_int(&p->j, &n[i]));
        if (!rc || json_pull_peek(&p->j) != ',')
            return 0;
        p->j.p++;
    }
    if (json_pull_peek(&p->j) != '"')
        return 0;
    TRY(json_pull_string(&p->j, "a hash", &s));
    v->begin = (uint64_t)n[0];
    v->end = (uint64_t)n[1];
    return hash_slice(s, &v->hash) && json_pull_empty(&p->j, ']');
}

/* Nearly all tensors have one part, which needs no room to grow. */
static int read_parts(struct parse *p, void *to)
{
    struct manifest_tensor *t = to;
    struct st_part *v = NULL, one;
    int64_t room = 0;
    int rc, ok;

    if (json_pull_peek(&p->j) != '[')
        return bad(p, "\"parts\": expected an array");
    p->j.p++;
    for (rc = !json_pull_empty(&p->j, ']'); rc;) {
        TRY(ok = read_part(p, &one));
        if (!ok)
            return bad(p, "part %d is not [begin, end, hash]", t->n_parts);
        TRY(rc = json_pull_more(&p->j, ']'));
        if (!v && !rc)
            v = arena_array(p->arena, 1, sizeof *v);
        else
            v = grow_arena(p->arena, v, &room, t->n_parts + 1, sizeof *v);
        v[t->n_parts++] = one;
    }
    t->parts = v;
    return 0;
}

/* Shape and parts may come in any order, so they meet here. */
static int check_parts(const struct parse *p, const struct manifest_tensor *t)
{
    uint64_t n = (uint64_t)st_type_bits(t->type), at = 0;

    for (int i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n))
            return bad(p, "a dimension that is no number, negative or too large");
    n /= 8;
    for (int i = 0; i < t->n_parts; at = t->parts[i++].end)
        if (t->parts[i].begin != at || t->parts[i].end <= at || t->parts[i].end > n)
            return bad(p, "its parts do not tile its %" PRIu64 " bytes", n);
    return at == n ? 0 : bad(p, "its parts do not tile its %" PRIu64 " bytes", n);
}

static int read_tensor(struct parse *p, struct manifest_tensor *t)
{
    const struct field f[] = {
        { "file", OTHER, t, read_in, 0 }, { "dtype", OTHER, t, read_type, 0 }, { "shape", OTHER, t, read_shape, 0 }, { "parts", OTHER, t, read_parts, 0 },
    };

    TRY(read_object(p, NULL, f, N(f)));
    return check_parts(p, t);
}

static int read_all_tensors(struct parse *p)
{
    struct manifest *m = p->m;
    struct json_slice key;
    int64_t again;
    int rc;

    if (json_pull_peek(&p->j) != '{')
        return bad(p, "\"tensors\": expected an object");
    p->j.p++;
    for (rc = !json_pull_empty(&p->j, '}'); rc;) {
        TRY(json_pull_key(&p->j, &key));
        for (size_t i = 0; i < key.n; i++)
            if ((unsigned char)key.s[i] < 0x20 || key.s[i] == 0x7f)
                return bad(p, "a control character in a tensor name");
        /* Not in the arena: it would keep the old ones. */
        if (grow_pooled(&m->tensors, &p->room, m->n_tensors + 1, sizeof *m->tensors, "tensors") < 0)
            return err_add("%s", p->j.where);
        m->tensors[m->n_tensors] = (struct manifest_tensor){ .name = p->name = keep(p, key) };
        TRY(read_tensor(p, &m->tensors[m->n_tensors]));
        m->n_tensors++;
        p->name = NULL;
        TRY(rc = json_pull_more(&p->j, '}'));
    }
    m->names = ckpt_names_new(m->tensors, m->n_tensors, sizeof *m->tensors, offsetof(struct manifest_tensor, name), &again);
    return again < 0 ? 0 : twice(p, "tensors", m->tensors[again].name);
}

/* Tensors name files.  When those have not come yet, which no writer of ours
 * does, the tensors are passed over and read at the end. */
static int read_tensors(struct parse *p, void *to)
{
    json_t *passed;

    (void)to;
    if (p->m->files)
        return read_all_tensors(p);
    p->tensors = p->j;
    TRY(json_pull_tree(&p->j, &passed));
    json_decref(passed);
    return 0;
}

static int read_top(struct parse *p)
{
    struct manifest_info *o = &p->m->info;
    struct hash self;
    const struct field f[] = {
        { "format", OTHER, NULL, read_format, 0 }, { "kind", OTHER, o, read_kind, 1 }, { "tool", TEXT, &o->tool, NULL, 0 }, { "argv", OTHER, o, read_argv, 0 },
        { "run_id", HASH, &o->run_id, NULL, 0 }, { "restart", COUNT, &o->restart, NULL, 0 }, { "step", COUNT, &o->step, NULL, 0 },
        { "tokens", COUNT, &o->tokens, NULL, 0 }, { "config", HASH, &o->config, NULL, 0 }, { "plan", HASH, &o->plan, NULL, 0 },
        { "mesh", OTHER, o, read_mesh, 0 }, { "threads", COUNT, &o->threads, NULL, 0 }, { "kernels", TEXT, &o->kernels, NULL, 0 },
        { "data", OTHER, o, read_data, 0 }, { "files", OTHER, p->m, read_files, 0 }, { "tensors", OTHER, NULL, read_tensors, 0 },
        { "self", HASH, &self, NULL, 0 },
    };

    TRY(read_object(p, NULL, f, N(f)));
    TRY(json_pull_finish(&p->j));
    if (!p->tensors.text)
        return 0;
    p->j.p = p->tensors.p;
    return read_all_tensors(p);
}

int manifest_parse(const char *where, const char *text, size_t n, struct manifest **out)
{
    struct arena *a = arena_new();
    struct manifest *m = arena_alloc(a, sizeof *m);
    struct parse p = { .arena = a, .m = m };
    int rc;

    m->memory = a;
    json_pull_start(&p.j, where, text, n);
    TRY_OUT(rc, check_self(where, text, n, &m->self));
    TRY_OUT(rc, read_top(&p));
    *out = m;
    m = NULL;
out:
    json_pull_done(&p.j);
    manifest_free(m);
    return rc;
}
