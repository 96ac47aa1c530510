/* plan_read.c -- a plan from a file, strictly.
 *
 * Believes nothing: the hash of the lines, every column, that the parts of each
 * parameter cover it once, and what a gather relies on.  Refuses with the place
 * of the first fault. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "shard/plan_impl.h"

enum { N_FIELDS = 13 };

struct reader {
    const char *path;
    struct plan *p;
    char *at, *end;             /* the text; a NUL follows it */
    int line;
};

/* The next line without its newline, or NULL at the end. */
static char *next_line(struct reader *r)
{
    if (r->at >= r->end)
        return NULL;
    char *s = r->at, *nl = memchr(s, '\n', (size_t)(r->end - s));
    if (nl)
        *nl = 0;
    r->at = nl ? nl + 1 : r->end;
    r->line++;
    return s;
}

static int bad(const struct reader *r, const char *what)
{
    return err_set(ERR_DATA, "%s:%d: %s", r->path, r->line, what);
}

/* A whole number without sign or leading zero, at most max. */
static _Bool whole(const char *s, int64_t max, int64_t *out)
{
    int64_t v = 0;
    if (!*s || (*s == '0' && s[1]))
        return 0;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > (max - (*s - '0')) / 10)
            return 0;
        v = v * 10 + (*s - '0');
    }
    *out = v;
    return v <= max;
}

static int read_head(struct reader *r, const struct hash *config)
{
    char *s = next_line(r), *word[9], *save = NULL;
    int n = 0;
    int64_t world;
    if (!s || strcmp(s, "# moe-plan 1"))
        return bad(r, "expected \"# moe-plan 1\"");
    s = next_line(r);
    for (char *w = s ? strtok_r(s, " ", &save) : NULL; w && n < 9; w = strtok_r(NULL, " ", &save))
        word[n++] = w;
    if (n != 9 || strcmp(word[0], "#") || strcmp(word[1], "config") || !hash_parse(word[2], &r->p->config) ||
        strcmp(word[3], "mesh") || mesh_parse(word[4], &r->p->mesh) < 0 || strcmp(word[5], "world") || !whole(word[6], INT32_MAX, &world) ||
        strcmp(word[7], "plan") || !hash_parse(word[8], &r->p->lines) || world != plan_world(r->p))
        return bad(r, "expected \"# config HASH mesh RxFxE world N plan HASH\"");
    if (config && !hash_eq(&r->p->config, config))
        return err_set(ERR_USAGE, "%s: made for another configuration (%s, this one is %s); run moe-shard plan again",
                       r->path, r->p->config.hex, config->hex);
    if (r->p->t->cfg->num_experts % r->p->mesh.ep)
        return bad(r, "the experts of this model cannot be divided among the mesh's ep");
    struct hash got = hash_bytes(r->at, (size_t)(r->end - r->at));
    if (!hash_eq(&got, &r->p->lines))
        return bad(r, "the lines below are not those the plan was made with (their hash differs)");
    s = next_line(r);
    if (!s || strncmp(s, PLAN_COLUMNS, strlen(PLAN_COLUMNS) - 1) || s[strlen(PLAN_COLUMNS) - 1])
        return bad(r, "expected the names of the columns");
    return 0;
}

static int read_row(struct reader *r, char *s, struct plan_part *out)
{
    char *f[N_FIELDS], buf[32];
    int n = 0;
    for (char *tab = s; tab; s = tab ? tab + 1 : s) {
        f[n++] = s;
        tab = n < N_FIELDS ? strchr(s, '\t') : NULL;
        if (tab)
            *tab = 0;
    }
    if (n != N_FIELDS || strchr(f[n - 1], '\t'))
        return bad(r, "expected 13 columns");
    int i = params_find(r->p->t, f[0]);
    if (i < 0)
        return err_set(ERR_DATA, "%s:%d: \"%.200s\" is no parameter of this model", r->path, r->line, f[0]);
    const struct param *v = &r->p->t->v[i];
    int64_t rows, cols, first, n_rows, owner, bytes, state, flops;
    if (strcmp(f[1], params_kind_name(v->kind)) || strcmp(f[2], plan_number(buf, v->layer)) || strcmp(f[3], plan_number(buf, v->expert)) ||
        strcmp(f[4], params_optim_name(v->optim)))
        return bad(r, "kind, layer, expert or optim differ from the model's");
    if (!whole(f[5], INT64_MAX, &rows) || rows != v->rows || !whole(f[6], INT64_MAX, &cols) || cols != v->cols)
        return bad(r, "rows or cols differ from the model's");
    if (!whole(f[7], rows, &first) || !whole(f[8], rows, &n_rows) || n_rows < 1 || first + n_rows > rows)
        return bad(r, "first_row and n_rows are no part of the rows");
    if (first % PLAN_ROW_BLOCK || ((first + n_rows) % PLAN_ROW_BLOCK && first + n_rows != rows))
        return bad(r, "a split must fall on a multiple of 64 rows");
    if (!whole(f[9], mesh_shard(r->p->mesh) - 1, &owner))
        return bad(r, "owner is no rank of the shard group");
    if (!whole(f[10], INT64_MAX, &bytes) || bytes != n_rows * cols * (int64_t)sizeof(float))
        return bad(r, "bytes is not n_rows x cols x 4");
    if (!whole(f[11], INT64_MAX, &state) || !whole(f[12], INT64_MAX, &flops))
        return bad(r, "state_bytes and ns_flops must be whole numbers");
    *out = (struct plan_part){ i, first, n_rows, (int)owner, bytes, state, (double)flops };
    return 0;
}

/* Sorted parts of each parameter must follow one another without gap or overlap. */
static int check_cover(const struct plan *p, const char *path)
{
    struct arena *a = arena_new();
    int64_t *next = arena_array(a, (size_t)p->t->n, sizeof *next);
    int rc = 0;
    for (int64_t i = 0; i < p->n && !rc; i++) {
        const struct plan_part *x = &p->parts[i];
        if (x->first_row != next[x->i_param])
            rc = err_set(ERR_DATA, "%s: %s: row %" PRId64 " %s", path, p->t->v[x->i_param].name,
                         x->first_row < next[x->i_param] ? x->first_row : next[x->i_param],
                         x->first_row < next[x->i_param] ? "has two owners" : "has no owner");
        next[x->i_param] = x->first_row + x->n_rows;
    }
    for (int i = 0; i < p->t->n && !rc; i++)
        if (next[i] != p->t->v[i].rows)
            rc = err_set(ERR_DATA, "%s: %s: row %" PRId64 " has no owner", path, p->t->v[i].name, next[i]);
    arena_free(a);
    return rc;
}

/* What a gather relies on (owners.h): a loaded plan may put matrices where it
 * likes, but not an expert outside its EP rank or in two places. */
static int check_owners(const struct plan *p, const char *path)
{
    const struct param_table *t = p->t;
    struct arena *a = arena_new();
    int *first = arena_array(a, (size_t)t->n, sizeof *first), *last = arena_array(a, (size_t)t->n, sizeof *last), rc = 0;
    for (int64_t i = 0; i < p->n && !rc; i++) {
        const struct plan_part *x = &p->parts[i];
        const struct param *v = &t->v[x->i_param];
        if (x->first_row && v->kind != PARAM_EMBED && v->kind != PARAM_HEAD)
            rc = err_set(ERR_DATA, "%s: %s: only the embedding and the head are split by rows", path, v->name);
        else if (x->first_row && x->owner <= last[x->i_param])
            rc = err_set(ERR_DATA, "%s: %s: owners do not ascend with the rows (row %" PRId64 " is rank %d's)", path, v->name,
                         x->first_row, x->owner);
        if (!x->first_row)
            first[x->i_param] = x->owner;
        last[x->i_param] = x->owner;
    }
    for (int i = 0; i < t->n && !rc; i++) {
        const struct param *v = &t->v[i];
        if (v->kind != PARAM_EXPERT)
            continue;
        int ep = mesh_ep_of_expert(p->mesh, t->cfg->num_experts, v->expert), gate = t->layers[v->layer].experts + 3 * v->expert;
        if (first[i] % p->mesh.ep != ep)
            rc = err_set(ERR_DATA, "%s: %s: expert %d lives in EP rank %d, but its owner %d is in EP rank %d", path, v->name,
                         v->expert, ep, first[i], first[i] % p->mesh.ep);
        else if (first[i] != first[gate])
            rc = err_set(ERR_DATA, "%s: %s: the matrices of expert %d have different owners", path, v->name, v->expert);
    }
    if (!rc && first[t->norm] != first[t->head])
        rc = err_set(ERR_DATA, "%s: %s: the owner must be that of the first rows of %s", path, t->v[t->norm].name,
                     t->v[t->head].name);
    arena_free(a);
    return rc;
}

int plan_check(const struct plan *p, const char *name)
{
    TRY(check_cover(p, name));
    return check_owners(p, name);
}

static int load(const char *path, const struct param_table *t, const struct hash *config, struct plan **out)
{
    struct fs_blob b = { 0 };
    struct reader r = { .path = strcmp(path, "-") ? path : "standard input" };
    int64_t room = 0;
    int rc = 0;
    char *text = NULL, *s;
    TRY(fs_read(path, &b));
    r.p = calloc(1, sizeof *r.p);
    text = malloc(b.size + 1);
    for (size_t i = 0; i < b.size; i++)
        room += b.data[i] == '\n';
    if (r.p)
        r.p->parts = calloc((size_t)room + 1, sizeof *r.p->parts);
    if (!r.p || !text || !r.p->parts) {
        rc = err_set(ERR_IO, "%s: out of memory", r.path);
        goto out;
    }
    memcpy(text, b.data, b.size);
    text[b.size] = 0;
    r.p->t = t;
    r.at = text;
    r.end = text + b.size;
    if (memchr(text, 0, b.size)) {
        rc = err_set(ERR_DATA, "%s: not a plan: it holds NUL bytes", r.path);
        goto out;
    }
    TRY_OUT(rc, read_head(&r, config));
    while ((s = next_line(&r)))
        TRY_OUT(rc, read_row(&r, s, &r.p->parts[r.p->n++]));
    plan_sort(r.p);
    TRY_OUT(rc, plan_check(r.p, r.path));
    *out = r.p;
    r.p = NULL;
out:
    plan_free(r.p);
    free(text);
    fs_blob_free(&b);
    return rc;
}

int plan_load(const char *path, const struct param_table *t, struct hash config, struct plan **out)
{
    return load(path, t, &config, out);
}

int plan_load_any(const char *path, const struct param_table *t, struct plan **out)
{
    return load(path, t, NULL, out);
}
