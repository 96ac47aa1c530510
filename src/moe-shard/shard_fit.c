/* shard_fit.c -- moe-shard fit: the layouts whose ranks fit stated memories.
 *
 * Meshes: every replicas x efsdp x ep of the ranks with ep inside a node.  For
 * each and each boundary_every, what costs no time is chosen so that it fits:
 * homes (device if possible), rows_cap and loss_chunk (as large as possible).
 * Ranked by tokens a second from a bound that the page states: the slower of
 * arithmetic and network, plus what cannot hide.  It refuses to call that a
 * forecast: contention, latency and kernels that miss the stated rate are not
 * in it. */
#include <stdlib.h>

#include "base/err.h"
#include "base/out.h"
#include "base/units.h"

#include "shard_cmds.h"

struct fit_opts {
    struct shard_input in;
    const char *dtype;
    int64_t ranks, node, device_memory, host_memory, reserve, top, grad_slots;
    double flops, network, links, host_link;
    _Bool json, tsv;
};

static const struct opt opts[] = {
    SHARD_INPUT(struct fit_opts),
    SHARD_RANKS(struct fit_opts),
    { OPT_INT, 0, "node", "N", "4", "ranks of a node; ep is at most that", offsetof(struct fit_opts, node), 1, 1 << 20 },
    { OPT_INT, 0, "device-memory", "BYTES", "94Gi", "memory of the device of a rank", offsetof(struct fit_opts, device_memory), 1, 9e15 },
    { OPT_INT, 0, "host-memory", "BYTES", "111Gi", "host memory of a rank", offsetof(struct fit_opts, host_memory), 0, 9e15 },
    { OPT_INT, 0, "reserve", "BYTES", "3Gi", "device memory that libraries take", offsetof(struct fit_opts, reserve), 0, 9e15 },
    { OPT_FLOAT, 0, "flops", "RATE", "450T", "arithmetic a second that a rank reaches", offsetof(struct fit_opts, flops), 1, 1e21 },
    { OPT_FLOAT, 0, "network", "RATE", "25G", "bytes a second of a rank between nodes", offsetof(struct fit_opts, network), 1, 1e18 },
    { OPT_FLOAT, 0, "links", "RATE", "150G", "bytes a second of a rank inside a node", offsetof(struct fit_opts, links), 1, 1e18 },
    { OPT_FLOAT, 0, "host-link", "RATE", "200G", "bytes a second between device and host", offsetof(struct fit_opts, host_link), 1, 1e18 },
    SHARD_DTYPE(struct fit_opts),
    SHARD_GRAD_SLOTS(struct fit_opts),
    { OPT_INT, 0, "top", "N", "10", "rows to print; 0: all that fit", offsetof(struct fit_opts, top), 0, 1e9 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object a line", offsetof(struct fit_opts, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated values", offsetof(struct fit_opts, tsv), 0, 0 },
    OPT_END
};

struct layout {
    struct mesh m;
    struct footprint_opts o;
    int64_t device, host;       /* of the rank that needs most */
    double wire;                /* bytes between nodes for a token of a rank */
    double step_s, tok_s;       /* of a micro-batch and its share of a step; of a rank */
};

struct search {
    const struct fit_opts *o;
    struct shard_model *model;
    struct layout *v;
    int n, cap;
    int64_t least_device;       /* of what does not fit, for the message */
    struct footprint_opts base; /* what the configuration says of the rest */
    struct footprint *ranks;
};

/* ---- memory */

static _Bool fits(struct search *s, const struct footprint_base *b, struct layout *x)
{
    int n = mesh_shard(x->m);
    x->device = x->host = 0;
    footprint_ranks(b, &x->o, s->ranks);
    for (int r = 0; r < n; r++) {
        x->device = s->ranks[r].device_bytes > x->device ? s->ranks[r].device_bytes : x->device;
        x->host = s->ranks[r].host_bytes > x->host ? s->ranks[r].host_bytes : x->host;
    }
    x->device += s->o->reserve;
    if (x->host <= s->o->host_memory && (!s->least_device || x->device < s->least_device))
        s->least_device = x->device;
    return x->device <= s->o->device_memory && x->host <= s->o->host_memory;
}

/* The first that fits, from what is simplest to run to what is leanest. */
static _Bool settle(struct search *s, const struct footprint_base *b, struct layout *x)
{
    const struct run_config *c = &s->model->cfg;
    int64_t share = c->micro_tokens * c->model.num_experts_per_tok, chunks[8];
    int n_chunks = 0;
    for (int64_t v = 8192; v >= 256; v /= 2)
        if (v <= c->micro_tokens)
            chunks[n_chunks++] = v;
    if (!n_chunks)
        chunks[n_chunks++] = c->micro_tokens;
    for (int home = 0; home < 4; home++)
        for (int part = 1; part <= 8; part *= 2) {
            x->o.boundaries_on_host = home & 1;
            x->o.state_on_host = home >> 1;
            x->o.rows_cap = part == 1 ? -1 : share / part;
            x->o.loss_chunk = chunks[n_chunks - 1];
            if (!fits(s, b, x))
                continue;
            for (int i = 0; i < n_chunks; i++) {
                x->o.loss_chunk = chunks[i];
                if (fits(s, b, x))
                    return 1;
            }
        }
    return 0;
}

/* ---- time */

/* Work in units of a forward pass: 1, and 2 for backward.  With boundaries every
 * layer is computed again, without the down projection; and all but the last
 * of a segment once more. */
static double passes(int k, double again)
{
    return k ? 3 + again + (k - 1.0) / k : 3;
}

static void predict(struct search *s, const struct footprint_base *b, struct layout *x)
{
    const struct run_config *c = &s->model->cfg;
    const struct fit_opts *o = s->o;
    struct traffic w;
    double t = (double)c->micro_tokens, pairs = t * ((double)c->data.seq_len + 1) / 2;
    double matrices = params_flops(&s->model->table, c->micro_tokens, 0), attention = params_flops(&s->model->table, 0, pairs);
    double compute = (matrices / 3 * passes(x->o.boundary_every, 2.0 / 3) + attention / 3 * passes(x->o.boundary_every, 1)) / o->flops;
    footprint_traffic(b, &x->o, &w);
    /* A shard group inside one node uses its links only. */
    _Bool inside = mesh_shard(x->m) <= o->node;
    double shard = w.gather_fwd + w.gather_bwd + w.reduce, network = inside ? 0 : shard;
    double links = w.dispatch + (inside ? shard : 0);
    double n_micro = (double)c->tokens_per_step / (t * mesh_world(x->m));
    n_micro = n_micro < 1 ? 1 : n_micro;
    double work = compute + links / o->links, wire = network / o->network;
    double once = w.replicas / (mesh_world(x->m) <= o->node ? o->links : o->network) + footprint_ns_flops(b) / o->flops;
    if (x->o.state_on_host)
        once += 2 * (double)(s->ranks[0].host[FOOT_MASTER] + s->ranks[0].host[FOOT_STATE]) / o->host_link;
    x->wire = (network + (mesh_world(x->m) <= o->node ? 0 : w.replicas / n_micro)) / t;
    x->step_s = n_micro * (work > wire ? work : wire) + once;
    x->tok_s = n_micro * t / x->step_s;
}

/* ---- the search */

static void keep(struct search *s, const struct layout *x)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->v = arena_must(realloc(s->v, (size_t)s->cap * sizeof *s->v));
    }
    s->v[s->n++] = *x;
}

static int try_mesh(struct search *s, struct mesh m)
{
    static const int every[] = { 0, 1, 2, 4, 8 };
    const struct run_config *c = &s->model->cfg;
    struct plan *p;
    TRY(shard_plan_on(s->model, m, &p));
    struct footprint_base *b = footprint_open(p, s->model->compute, s->model->wire);
    s->ranks = arena_must(realloc(s->ranks, (size_t)mesh_shard(m) * sizeof *s->ranks));
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        struct layout x = { .m = m, .o = s->base };
        x.o.boundary_every = every[i];
        if (every[i] > c->model.num_hidden_layers || !settle(s, b, &x))
            continue;
        predict(s, b, &x);
        keep(s, &x);
    }
    footprint_close(b);
    plan_free(p);
    return 0;
}

/* No rank can have less than its share of master, gradient and one state. */
static _Bool hopeless(const struct search *s, struct mesh m)
{
    double share = 12.0 * (double)params_total(&s->model->table) / mesh_shard(m);
    return share > (double)s->o->device_memory + (double)s->o->host_memory;
}

static int search(struct search *s, int64_t world)
{
    for (int64_t ep = 1; ep <= s->o->node && ep <= world; ep++)
        for (int64_t replicas = 1; replicas <= world / ep; replicas++) {
            struct mesh m;
            /* Groups of ep ranks must tile a node, or some would cross its border. */
            if (world % (ep * replicas) || s->model->cfg.model.num_experts % ep || s->o->node % ep)
                continue;
            TRY(mesh_make(replicas, -1, ep, world, s->model->cfg.model.num_experts, &m));
            if (!hopeless(s, m))
                TRY(try_mesh(s, m));
        }
    return 0;
}

static int fastest_first(const void *a, const void *b)
{
    const struct layout *x = a, *y = b;
    if (x->tok_s != y->tok_s)
        return x->tok_s > y->tok_s ? -1 : 1;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->m.replicas != y->m.replicas)
        return x->m.replicas < y->m.replicas ? -1 : 1;
    return x->m.ep < y->m.ep ? -1 : x->m.ep > y->m.ep;
}

static int print(const struct search *s, enum table_form form)
{
    static const struct table_col cols[] = {
        { "mesh", "mesh", 's', 0 }, { "boundary_every", "boundary every", 'i', 0 }, { "boundary_home", "boundaries", 's', 0 },
        { "state_home", "state", 's', 0 }, { "rows_cap", "rows_cap", 'i', 0 }, { "loss_chunk", "loss_chunk", 'i', 0 },
        { "device_bytes", "device", 'b', 0 }, { "host_bytes", "host", 'b', 0 },
        { "wire_bytes_token", "wire/token", 'b', 0 }, { "step_s", "step s", 'f', 3 }, { "tok_s_rank", "tok/s/rank", 'f', 0 },
    };
    struct table *t = table_begin(form, "moe.fit/1", cols, 11);
    for (int i = 0; i < s->n && (!s->o->top || i < s->o->top); i++) {
        const struct layout *x = &s->v[i];
        char mesh[40];
        table_str(t, mesh_text(mesh, x->m));
        table_int(t, x->o.boundary_every);
        table_str(t, x->o.boundaries_on_host ? "host" : "device");
        table_str(t, x->o.state_on_host ? "host" : "device");
        table_int(t, footprint_rows(&s->model->cfg.model, x->m, &x->o));
        table_int(t, x->o.loss_chunk);
        table_int(t, x->device);
        table_int(t, x->host);
        table_int(t, (int64_t)x->wire);
        table_num(t, x->step_s);
        table_num(t, x->tok_s);
    }
    TRY(table_end(t));
    if (form != TABLE_HUMAN)
        return 0;
    return out_printf("%d layouts fit; %s in slots and activations, %s gradients between ranks, %lld tokens a pass; times are bounds\n",
                      s->n, dtype_name(s->model->compute), dtype_name(s->model->wire), (long long)s->model->cfg.micro_tokens);
}

static int run(void *options, int argc, char **argv)
{
    const struct fit_opts *o = options;
    struct shard_model m;
    struct search s = { .o = o, .model = &m };
    struct mesh mesh;
    enum table_form form;
    char text[2][32];
    TRY(shard_form(o->json, o->tsv, &form));
    int rc = shard_open(&o->in, argc, argv, &m);
    if (rc)
        return rc < 0 ? rc : 0;
    int64_t world = o->ranks;
    TRY_OUT(rc, shard_footprint_opts(&m, o->dtype, o->grad_slots, &s.base));
    if (!world) {
        TRY_OUT(rc, shard_mesh_of(&m, 0, &mesh));
        world = mesh_world(mesh);
    }
    TRY_OUT(rc, search(&s, world));
    if (!s.n) {
        rc = s.least_device ? err_set(ERR_NO, "nothing fits: the leanest layout needs %s of device memory, libraries included; %s is there",
                                      units_bytes(text[0], (double)s.least_device), units_bytes(text[1], (double)o->device_memory))
                            : err_set(ERR_NO, "nothing fits: host and device memory of %lld ranks do not hold weights, gradients and state",
                                      (long long)world);
        goto out;
    }
    qsort(s.v, (size_t)s.n, sizeof *s.v, fastest_first);
    rc = print(&s, form);
out:
    free(s.v);
    free(s.ranks);
    shard_close(&m);
    return rc;
}

const struct opt_cmd shard_fit_cmd = {
    "fit", "layouts whose ranks fit stated memories, fastest first",
    "-c FILE [--ranks N] [--node N] [--device-memory BYTES] [--host-memory BYTES] [...] [KEY=VALUE...]",
    "moe-shard fit -c etc/europa-952b.yaml\n"
    "moe-shard fit -c etc/small.yaml --ranks 4 --device-memory 1Gi --reserve 0\n",
    opts, sizeof(struct fit_opts), 0, -1, run
};
