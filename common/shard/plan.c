/* plan.c -- plans made from the owner map, and their text.
 *
 * Which rank owns what is decided in owners.c; here it becomes parts in the
 * order of the formats.  Refuses nothing: plan_read.c is the one that distrusts. */
#include "shard/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "shard/owners.h"
#include "shard/plan_impl.h"

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

void plan_sort(struct plan *p)
{
    sorting = p->t;
    qsort(p->parts, (size_t)p->n, sizeof *p->parts, by_layer_and_name);
}

/* ---- text */

/* A number, or "-" where there is none. */
char *plan_number(char buf[32], int v)
{
    snprintf(buf, 32, "%d", v);
    return v < 0 ? strcpy(buf, "-") : buf;
}

static int line_of(const struct plan *p, const struct plan_part *a, char *out, size_t room)
{
    const struct param *v = &p->t->v[a->i_param];
    char layer[32], expert[32];
    return snprintf(out, room, "%s\t%s\t%s\t%s\t%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%d\t%" PRId64 "\t%" PRId64
                    "\t%.0f\n", v->name, params_kind_name(v->kind), plan_number(layer, v->layer), plan_number(expert, v->expert),
                    params_optim_name(v->optim), v->rows, v->cols, a->first_row, a->n_rows, a->owner, a->bytes,
                    a->state_bytes, a->ns_flops);
}

/* The lines that the plan's hash covers: the header of the table and its rows. */
static char *lines_text(const struct plan *p, size_t *n)
{
    enum { NUMBERS = 320 };     /* more than a line without its name */
    size_t cap = sizeof PLAN_COLUMNS, len = sizeof PLAN_COLUMNS - 1;
    for (int64_t i = 0; i < p->n; i++)
        cap += strlen(p->t->v[p->parts[i].i_param].name) + NUMBERS;
    char *text = malloc(cap);
    if (!text)
        return NULL;
    memcpy(text, PLAN_COLUMNS, len + 1);
    for (int64_t i = 0; i < p->n; i++)
        len += (size_t)line_of(p, &p->parts[i], text + len, cap - len);
    *n = len;
    return text;
}

/* Made when it is asked for: a search over many meshes never does. */
struct hash plan_hash(const struct plan *p)
{
    size_t n = 0;
    char *text;
    if (p->lines.hex[0])
        return p->lines;
    text = arena_must(lines_text(p, &n));
    struct hash h = hash_bytes(text, n);
    free(text);
    return h;
}

char *plan_text(const struct plan *p, size_t *n)
{
    char head[256];
    size_t body_n = 0;
    char mesh[40], *body = lines_text(p, &body_n);
    if (!body)
        return NULL;
    int head_n = snprintf(head, sizeof head, "# moe-plan 1\n# config %s mesh %s world %d plan %s\n", p->config.hex,
                          mesh_text(mesh, p->mesh), plan_world(p), hash_bytes(body, body_n).hex);
    char *text = malloc((size_t)head_n + body_n + 1);
    if (text) {
        memcpy(text, head, (size_t)head_n);
        memcpy(text + head_n, body, body_n + 1);
        *n = (size_t)head_n + body_n;
    }
    free(body);
    return text;
}

/* ---- making */

/* Parts of parameter i: one, or those of each rank that gets rows. */
static int64_t parts_of(const struct param_table *t, const struct plan_costs *costs, struct mesh m, int i, int owner,
                        struct plan_part *out)
{
    const struct param *v = &t->v[i];
    int64_t row_bytes = v->cols * (int64_t)sizeof(float), state = costs->state_bytes(v), n_parts = 0;
    if (owner >= 0) {
        *out = (struct plan_part){ i, 0, v->rows, owner, v->rows * row_bytes, state, costs->ns_flops(costs->ctx, v) };
        return 1;
    }
    for (int r = 0; r < mesh_shard(m); r++) {
        int64_t first, n;
        owners_rows(v->rows, mesh_shard(m), r, &first, &n);
        if (n)
            out[n_parts++] = (struct plan_part){ i, first, n, r, n * row_bytes, state / v->rows * n, 0 };
    }
    return n_parts;
}

int plan_make(const struct param_table *t, const struct plan_costs *costs, struct hash config, struct mesh m, struct plan **out)
{
    struct arena *a = arena_new();
    int *owner = arena_array(a, (size_t)t->n, sizeof *owner);
    int64_t room = t->n + 2 * (int64_t)mesh_shard(m);   /* two parameters are split */
    struct plan *p = calloc(1, sizeof *p);
    int rc = 0;
    if (p)
        p->parts = calloc((size_t)room, sizeof *p->parts);
    if (!p || !p->parts) {
        rc = err_set(ERR_IO, "out of memory for a plan of %d parameters", t->n);
        goto out;
    }
    p->t = t;
    p->mesh = m;
    p->config = config;
    owners_map(a, t, costs, m, owner);
    for (int i = 0; i < t->n; i++)
        p->n += parts_of(t, costs, m, i, owner[i], p->parts + p->n);
    plan_sort(p);
    *out = p;
    p = NULL;
out:
    plan_free(p);
    arena_free(a);
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
int plan_world(const struct plan *p) { return mesh_world(p->mesh); }
struct mesh plan_mesh(const struct plan *p) { return p->mesh; }
const struct param_table *plan_table(const struct plan *p) { return p->t; }
