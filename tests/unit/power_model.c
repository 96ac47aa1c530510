/* power_model.c -- see the header.
 *
 * A change of a name is kept as what it leaves: which names of its directory
 * stand for which node afterwards.  So changes can be applied without those
 * before them, as a journal that was cut does. */
#include "unit/power_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault/fault.h"
#include "unit/ckpt_toy.h"

enum type { A_FILE, A_DIR, A_LINK };

struct name { char *text; int node; };
struct names { struct name *v; int n; };

/* At most two names change at once; node -1: gone. */
struct change { struct name to[2]; int n; };

struct bytes { char *v; size_t n; };
struct patch { uint64_t at; struct bytes b; _Bool cut; };       /* cut: the file ends at `at` */

struct node {
    enum type type;
    char *target;                               /* of a link */
    struct names live, safe;                    /* of a directory */
    struct change *change;                      /* since its last sync */
    int n_change;
    struct bytes now, synced;                   /* of a file */
    struct patch *patch;                        /* since its last sync */
    int n_patch;
};

struct power { char *root; struct node *v; int n; };

static void stop(const char *what, const char *path)
{
    fprintf(stderr, "power_model: %s: %s\n", what, path);
    exit(99);
}

static void *more(void *p, int n, size_t size)
{
    /* Doubling, so that long traces stay cheap. */
    if (n && (n & (n - 1)))
        return p;
    p = realloc(p, (size_t)(n ? 2 * n : 1) * size);
    if (!p)
        stop("no memory", "");
    return p;
}

static struct bytes copy(const char *v, size_t n)
{
    struct bytes b = { malloc(n + 1), n };

    if (!b.v)
        stop("no memory", "");
    memcpy(b.v, v, n);
    return b;
}

/* ---- nodes and names */

static int new_node(struct power *p, enum type type)
{
    p->v = more(p->v, p->n, sizeof *p->v);
    p->v[p->n] = (struct node){ .type = type };
    return p->n++;
}

static int find(const struct names *s, const char *text, size_t n)
{
    for (int i = 0; i < s->n; i++)
        if (strlen(s->v[i].text) == n && !memcmp(s->v[i].text, text, n))
            return i;
    return -1;
}

static void put(struct names *s, const char *text, int node)
{
    int i = find(s, text, strlen(text));

    if (i < 0 && node >= 0) {
        s->v = more(s->v, s->n, sizeof *s->v);
        s->v[s->n++] = (struct name){ strdup(text), node };
    } else if (i >= 0 && node >= 0) {
        s->v[i].node = node;
    } else if (i >= 0) {
        free(s->v[i].text);
        s->v[i] = s->v[--s->n];
    }
}

static void forget_names(struct names *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->v[i].text);
    free(s->v);
    *s = (struct names){ 0 };
}

static void copy_names(struct names *to, const struct names *from)
{
    forget_names(to);
    for (int i = 0; i < from->n; i++)
        put(to, from->v[i].text, from->v[i].node);
}

static void forget_changes(struct node *d)
{
    for (int i = 0; i < d->n_change; i++)
        for (int k = 0; k < d->change[i].n; k++)
            free(d->change[i].to[k].text);
    d->n_change = 0;
}

static void forget_patches(struct node *f)
{
    for (int i = 0; i < f->n_patch; i++)
        free(f->patch[i].b.v);
    f->n_patch = 0;
}

/* The directory of a path below root, and the last name.  -1: not there. */
static int lookup(const struct power *p, const char *path, int *dir, const char **last)
{
    size_t n = strlen(p->root);
    int at = 0;

    if (strncmp(path, p->root, n) || (path[n] && path[n] != '/'))
        stop("a path that is not below the root", path);
    *dir = -1;
    *last = "";
    for (const char *s = path + n; *s;) {
        size_t len;
        int i;

        s += strspn(s, "/");
        len = strcspn(s, "/");
        if (!len)
            break;
        if (at < 0 || p->v[at].type != A_DIR)
            stop("a path through what is no directory", path);
        i = find(&p->v[at].live, s, len);
        *dir = at;
        *last = s;
        at = i < 0 ? -1 : p->v[at].live.v[i].node;
        s += len;
    }
    return at;
}

static int must_find(const struct power *p, const char *path, int *dir, const char **last)
{
    int at = lookup(p, path, dir, last);

    if (at < 0)
        stop("not there", path);
    return at;
}

static void change(struct power *p, int dir, int n, const char *a, int node_a, const char *b, int node_b)
{
    struct node *d = &p->v[dir];

    d->change = more(d->change, d->n_change, sizeof *d->change);
    d->change[d->n_change++] = (struct change){ { { strdup(a), node_a }, { n > 1 ? strdup(b) : NULL, node_b } }, n };
    put(&d->live, a, node_a);
    if (n > 1)
        put(&d->live, b, node_b);
}

static void make(struct power *p, const char *path, enum type type, const char *target)
{
    const char *last;
    int dir, node;

    if (lookup(p, path, &dir, &last) >= 0)
        stop("there already", path);
    node = new_node(p, type);
    p->v[node].target = target ? strdup(target) : NULL;
    change(p, dir, 1, last, node, NULL, 0);
}

/* ---- files */

static void apply(struct bytes *b, const struct patch *x)
{
    size_t end = x->cut ? x->at : x->at + x->b.n;

    if (end > b->n || x->cut) {
        b->v = realloc(b->v, end + 1);
        if (!b->v)
            stop("no memory", "");
        if (end > b->n)
            memset(b->v + b->n, 0, end - b->n);
        b->n = end;
    }
    if (!x->cut)
        memcpy(b->v + x->at, x->b.v, x->b.n);
}

static void patch(struct node *f, uint64_t at, const char *data, size_t n, _Bool cut)
{
    f->patch = more(f->patch, f->n_patch, sizeof *f->patch);
    f->patch[f->n_patch] = (struct patch){ at, copy(data ? data : "", data ? n : 0), cut };
    apply(&f->now, &f->patch[f->n_patch++]);
}

/* ---- from disk, and from the trace */

static int load(struct power *p, const char *path)
{
    char below[PATH_MAX], target[PATH_MAX];
    struct stat sb;
    int node;
    ssize_t n;
    DIR *d;

    if (lstat(path, &sb) < 0)
        stop("cannot read", path);
    node = new_node(p, S_ISDIR(sb.st_mode) ? A_DIR : S_ISLNK(sb.st_mode) ? A_LINK : A_FILE);
    if (S_ISLNK(sb.st_mode)) {
        n = readlink(path, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = '\0';
        p->v[node].target = strdup(target);
    } else if (!S_ISDIR(sb.st_mode)) {
        struct node *f = &p->v[node];

        toy_get(path, &f->now.v, &f->now.n);
        f->synced = copy(f->now.v, f->now.n);
    } else {
        d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));) {
            int child;

            if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
                continue;
            snprintf(below, sizeof below, "%s/%s", path, e->d_name);
            child = load(p, below);
            put(&p->v[node].live, e->d_name, child);
        }
        closedir(d);
        copy_names(&p->v[node].safe, &p->v[node].live);
    }
    return node;
}

struct power *power_new(const char *root)
{
    struct power *p = calloc(1, sizeof *p);

    if (!p)
        stop("no memory", root);
    p->root = strdup(root);
    load(p, root);
    return p;
}

void power_free(struct power *p)
{
    for (int i = 0; i < p->n; i++) {
        struct node *x = &p->v[i];

        forget_names(&x->live);
        forget_names(&x->safe);
        forget_changes(x);
        forget_patches(x);
        free(x->change);
        free(x->patch);
        free(x->target);
        free(x->now.v);
        free(x->synced.v);
    }
    free(p->v);
    free(p->root);
    free(p);
}

static void sync_node(struct node *x)
{
    if (x->type == A_DIR) {
        copy_names(&x->safe, &x->live);
        forget_changes(x);
    } else {
        free(x->synced.v);
        x->synced = copy(x->now.v ? x->now.v : "", x->now.n);
        forget_patches(x);
    }
}

static void rename_or_exchange(struct power *p, const char *from, const char *to, _Bool exchange)
{
    const char *from_name, *to_name;
    int from_dir, to_dir, a = must_find(p, from, &from_dir, &from_name), b = lookup(p, to, &to_dir, &to_name);

    if (from_dir != to_dir)
        stop("a rename from one directory to another", from);
    if (exchange && b < 0)
        stop("nothing to exchange with", to);
    change(p, from_dir, 2, from_name, exchange ? b : -1, to_name, a);
}

size_t power_feed(struct power *p, const char *trace, size_t n)
{
    struct fault_record r;
    const char *name, *other, *data, *last;
    int dir, node;

    if (n < sizeof r)
        return 0;
    memcpy(&r, trace, sizeof r);
    name = trace + sizeof r;
    other = name + r.name;
    data = other + r.other;
    switch (r.op) {
    case FAULT_CREATE:
        node = lookup(p, name, &dir, &last);
        if (node < 0)
            make(p, name, A_FILE, NULL);
        else if (r.n)
            patch(&p->v[node], 0, NULL, 0, 1);
        return sizeof r + r.name + r.other;
    case FAULT_WRITE:
        patch(&p->v[must_find(p, name, &dir, &last)], r.at, data, r.n, 0);
        return sizeof r + r.name + r.other + r.n;
    case FAULT_CUT: patch(&p->v[must_find(p, name, &dir, &last)], r.at, NULL, 0, 1); break;
    case FAULT_SYNC: sync_node(&p->v[must_find(p, name, &dir, &last)]); break;
    case FAULT_RENAME: rename_or_exchange(p, name, other, 0); break;
    case FAULT_EXCHANGE: rename_or_exchange(p, name, other, 1); break;
    case FAULT_MKDIR: make(p, name, A_DIR, NULL); break;
    case FAULT_SYMLINK: make(p, name, A_LINK, other); break;
    case FAULT_REMOVE:
        must_find(p, name, &dir, &last);
        change(p, dir, 1, last, -1, NULL, 0);
        break;
    default: stop("an unknown record", name);
    }
    return sizeof r + r.name + r.other;
}

/* ---- what is left */

int power_pending(const struct power *p)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        n += p->v[i].n_change;
    return n;
}

/* One of two, from the seed and the number of the change. */
static _Bool lot(const struct power_choice *c, enum power_fate fate, uint64_t i)
{
    uint64_t x = (c->seed + 1) * 0x9e3779b97f4a7c15u + (i + 1) * 0xbf58476d1ce4e5b9u;

    x = (x ^ (x >> 30)) * 0x94d049bb133111ebu;
    return fate == POWER_KEPT || (fate == POWER_LOT && (x >> 60) & 1);
}

static void write_bytes(const struct power *p, int i, const struct power_choice *c, const char *to)
{
    const struct node *f = &p->v[i];
    struct bytes b = copy(f->synced.v ? f->synced.v : "", f->synced.n);

    for (int k = 0; k < f->n_patch; k++) {
        struct patch part = f->patch[k];
        uint64_t number = (uint64_t)i << 32 | (uint32_t)k;

        if (!lot(c, c->data, number))
            continue;
        /* Half of it, now and then, as pages go one by one. */
        if (c->data == POWER_LOT && lot(c, POWER_LOT, ~number))
            part.b.n /= 2;
        apply(&b, &part);
    }
    toy_put(to, b.v, b.n);
    free(b.v);
}

static void write_node(const struct power *p, int i, const struct power_choice *c, const int *first, const char *to)
{
    const struct node *x = &p->v[i];
    struct names s = { 0 };
    char below[PATH_MAX];

    if (x->type == A_FILE) {
        write_bytes(p, i, c, to);
        return;
    }
    if (x->type == A_LINK) {
        if (symlink(x->target, to) < 0)
            stop("cannot link", to);
        return;
    }
    if (mkdir(to, 0777) < 0)
        stop("cannot create", to);
    copy_names(&s, &x->safe);
    for (int k = 0; k < x->n_change; k++)
        if (lot(c, c->names, (uint64_t)(first[i] + k)) != (first[i] + k == c->one))
            for (int m = 0; m < x->change[k].n; m++)
                put(&s, x->change[k].to[m].text, x->change[k].to[m].node);
    for (int k = 0; k < s.n; k++) {
        snprintf(below, sizeof below, "%s/%s", to, s.v[k].text);
        write_node(p, s.v[k].node, c, first, below);
    }
    forget_names(&s);
}

void power_fail(const struct power *p, const struct power_choice *c, const char *to)
{
    int *first = calloc((size_t)p->n + 1, sizeof *first);

    if (!first)
        stop("no memory", to);
    for (int i = 0; i < p->n; i++)
        first[i + 1] = first[i] + p->v[i].n_change;
    write_node(p, 0, c, first, to);
    free(first);
}
