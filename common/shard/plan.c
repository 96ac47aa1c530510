/* plan.c -- the owner map of one rank, and reading any plan back strictly.
 *
 * plan_make() knows one rank: every part is whole and owner 0 has them all.
 * Refuses larger meshes instead of guessing their map.  plan_load() believes
 * nothing: every row is compared with the parameter table, and together the
 * rows must cover each parameter once. */
#include "shard/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"

#define HEADER "#name\tkind\tlayer\texpert\toptim\trows\tcols\tfirst_row\tn_rows\towner\tbytes\tstate_bytes\tns_flops\n"

enum { N_FIELDS = 13, ROW_BLOCK = 64 };         /* the norm is summed in blocks of 64 rows */

struct plan {
    const struct param_table *t;
    struct plan_part *parts;
    int64_t n;
    int replicas, efsdp, ep;
    struct hash config, lines;
};

/* ---- order: by layer (those of no layer last), name, first row */

static _Thread_local const struct param_table *sorting;        /* qsort takes no context */
static int by_layer_and_name(const void *x, const void *y)
{
    const struct plan_part *a = x, *b = y;
    const struct param *pa = &sorting->v[a->i_param], *pb = &sorting->v[b->i_param];
    if (pa->layer != pb->layer) {
        if (pa->layer < 0 || pb->layer < 0)
            return pa->layer < 0 ? 1 : -1;
        return pa->layer < pb->layer ? -1 : 1;
    }
    int c = strcmp(pa->name, pb->name);
    return c ? c : a->first_row < b->first_row ? -1 : a->first_row > b->first_row;
}

static void sort_parts(struct plan *p)
{
    sorting = p->t;
    qsort(p->parts, (size_t)p->n, sizeof *p->parts, by_layer_and_name);
}

/* ---- text */

/* A number, or "-" where there is none. */
static char *number(char buf[32], int v)
{
    snprintf(buf, 32, "%d", v);
    return v < 0 ? strcpy(buf, "-") : buf;
}

static int line_of(const struct plan *p, const struct plan_part *a, char *out, size_t room)
{
    const struct param *v = &p->t->v[a->i_param];
    char layer[32], expert[32];
    return snprintf(out, room, "%s\t%s\t%s\t%s\t%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%d\t%" PRId64 "\t%" PRId64
                    "\t%.0f\n", v->name, params_kind_name(v->kind), number(layer, v->layer), number(expert, v->expert),
                    params_optim_name(v->optim), v->rows, v->cols, a->first_row, a->n_rows, a->owner, a->bytes,
                    a->state_bytes, a->ns_flops);
}

/* The lines that the plan's hash covers: the header of the table and its rows. */
static char *lines_text(const struct plan *p, size_t *n)
{
    size_t cap = sizeof HEADER, len = sizeof HEADER - 1;
    for (int64_t i = 0; i < p->n; i++)
        cap += (size_t)line_of(p, &p->parts[i], NULL, 0);
    char *text = malloc(cap);
    if (!text)
        return NULL;
    memcpy(text, HEADER, len + 1);
    for (int64_t i = 0; i < p->n; i++)
        len += (size_t)line_of(p, &p->parts[i], text + len, cap - len);
    *n = len;
    return text;
}

char *plan_text(const struct plan *p, size_t *n)
{
    char head[256];
    size_t body_n = 0;
    int head_n = snprintf(head, sizeof head, "# moe-plan 1\n# config %s mesh %dx%dx%d world %d plan %s\n", p->config.hex,
                          p->replicas, p->efsdp, p->ep, plan_world(p), p->lines.hex);
    char *body = lines_text(p, &body_n), *text = body ? malloc((size_t)head_n + body_n + 1) : NULL;
    if (text) {
        memcpy(text, head, (size_t)head_n);
        memcpy(text + head_n, body, body_n + 1);
        *n = (size_t)head_n + body_n;
    }
    free(body);
    return text;
}

/* ---- making */

int plan_make(const struct param_table *t, const struct plan_costs *costs, struct hash config,
              int replicas, int efsdp, int ep, struct plan **out)
{
    if (replicas != 1 || efsdp != 1 || ep != 1)
        return err_set(ERR_USAGE, "mesh %dx%dx%d: plans for several ranks are not built into this version", replicas, efsdp, ep);
    struct plan *p = calloc(1, sizeof *p);
    if (p)
        p->parts = calloc((size_t)t->n, sizeof *p->parts);
    if (!p || !p->parts) {
        plan_free(p);
        return err_set(ERR_IO, "out of memory for a plan of %d parts", t->n);
    }
    p->t = t;
    p->n = t->n;
    p->replicas = p->efsdp = p->ep = 1;
    p->config = config;
    for (int i = 0; i < t->n; i++) {
        const struct param *v = &t->v[i];
        p->parts[i] = (struct plan_part){
            .i_param = i, .n_rows = v->rows, .bytes = v->rows * v->cols * (int64_t)sizeof(float),
            .state_bytes = costs->state_bytes(v), .ns_flops = costs->ns_flops(costs->ctx, v),
        };
    }
    sort_parts(p);
    size_t n;
    char *text = lines_text(p, &n);
    if (!text) {
        plan_free(p);
        return err_set(ERR_IO, "out of memory for the text of a plan");
    }
    p->lines = hash_bytes(text, n);
    free(text);
    *out = p;
    return 0;
}

/* ---- reading */

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

/* "4x96x4" */
static _Bool mesh_of(char *s, struct plan *p)
{
    int *to[3] = { &p->replicas, &p->efsdp, &p->ep };
    for (int i = 0; i < 3; i++) {
        int64_t v;
        char *x = i < 2 ? strchr(s, 'x') : NULL;
        if (i < 2 && !x)
            return 0;
        if (x)
            *x = 0;
        if (!whole(s, 1 << 20, &v) || v < 1)
            return 0;
        *to[i] = (int)v;
        s = x ? x + 1 : s;
    }
    return (int64_t)p->replicas * p->efsdp <= 1 << 24 && (int64_t)p->replicas * p->efsdp * p->ep <= 1 << 24;
}

static int read_head(struct reader *r, struct hash config)
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
        strcmp(word[3], "mesh") || !mesh_of(word[4], r->p) || strcmp(word[5], "world") || !whole(word[6], INT32_MAX, &world) ||
        strcmp(word[7], "plan") || !hash_parse(word[8], &r->p->lines) || world != plan_world(r->p))
        return bad(r, "expected \"# config HASH mesh RxFxE world N plan HASH\"");
    if (!hash_eq(&r->p->config, &config))
        return err_set(ERR_USAGE, "%s: made for another configuration (%s, this one is %s); run moe-shard plan again",
                       r->path, r->p->config.hex, config.hex);
    struct hash got = hash_bytes(r->at, (size_t)(r->end - r->at));
    if (!hash_eq(&got, &r->p->lines))
        return bad(r, "the lines below are not those the plan was made with (their hash differs)");
    s = next_line(r);
    if (!s || strncmp(s, HEADER, strlen(HEADER) - 1) || s[strlen(HEADER) - 1])
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
    if (strcmp(f[1], params_kind_name(v->kind)) || strcmp(f[2], number(buf, v->layer)) || strcmp(f[3], number(buf, v->expert)) ||
        strcmp(f[4], params_optim_name(v->optim)))
        return bad(r, "kind, layer, expert or optim differ from the model's");
    if (!whole(f[5], INT64_MAX, &rows) || rows != v->rows || !whole(f[6], INT64_MAX, &cols) || cols != v->cols)
        return bad(r, "rows or cols differ from the model's");
    if (!whole(f[7], rows, &first) || !whole(f[8], rows, &n_rows) || n_rows < 1 || first + n_rows > rows)
        return bad(r, "first_row and n_rows are no part of the rows");
    if (first % ROW_BLOCK || ((first + n_rows) % ROW_BLOCK && first + n_rows != rows))
        return bad(r, "a split must fall on a multiple of 64 rows");
    if (!whole(f[9], (int64_t)r->p->efsdp * r->p->ep - 1, &owner))
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

int plan_load(const char *path, const struct param_table *t, struct hash config, struct plan **out)
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
    sort_parts(r.p);
    TRY_OUT(rc, check_cover(r.p, r.path));
    *out = r.p;
    r.p = NULL;
out:
    plan_free(r.p);
    free(text);
    fs_blob_free(&b);
    return rc;
}

void plan_free(struct plan *p)
{
    if (!p)
        return;
    free(p->parts);
    free(p);
}

int64_t plan_n_parts(const struct plan *p) { return p->n; }
const struct plan_part *plan_part(const struct plan *p, int64_t i) { return &p->parts[i]; }
int plan_world(const struct plan *p) { return p->replicas * p->efsdp * p->ep; }
struct hash plan_hash(const struct plan *p) { return p->lines; }
