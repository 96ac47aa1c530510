/* model_rig.c -- see model_rig.h. */
#include "unit/model_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "dev/trace.h"

enum { MAX_TOKENS = 96 };

const char *rig_device = "ref";

static const void *weight(void *ctx, int i)
{
    const struct rig *r = ctx;
    const struct param *p = &r->t.v[i];
    if (p->kind == PARAM_ROUTER_BIAS)
        return r->wf + p->offset;
    return r->w + (size_t)p->offset * dtype_size(r->opts.dtype);
}

static void *grad(void *ctx, int i)
{
    struct rig *r = ctx;
    return r->g + (size_t)r->t.v[i].offset * dtype_size(dev_stat(r->opts.dtype));
}

double rig_get(const struct rig *r, const char *flat, int64_t i)
{
    return r->opts.dtype == DT_F64 ? ((const double *)(const void *)flat)[i] : (double)((const float *)(const void *)flat)[i];
}

void rig_set(struct rig *r, char *flat, int64_t i, double v)
{
    if (r->opts.dtype == DT_F64)
        ((double *)(void *)flat)[i] = v;
    else
        ((float *)(void *)flat)[i] = (float)v;
}

void rig_open(struct rig *r, const char *name, enum dtype dt, int n_layers)
{
    memset(r, 0, sizeof *r);
    r->a = arena_new();
    char *path = arena_printf(r->a, "tests/golden/%s/config.json", name);
    if (model_config_read(&r->cfg, path, MAX_TOKENS) < 0)
        fail_msg("%s", err_msg());
    if (n_layers)
        r->cfg.num_hidden_layers = n_layers;
    assert_int_equal(params_build(r->a, &r->cfg, &r->t), 0);
    r->opts = (struct model_opts){ .dtype = dt, .micro_tokens = 72, .seq_len = 72, .loss_chunk = 32, .boundary_every = 1,
                                   .max_positions = MAX_TOKENS };
    size_t n = (size_t)r->t.n_elems;
    r->w = arena_array(r->a, n, sizeof(double));
    r->g = arena_array(r->a, n, sizeof(double));
    r->wf = arena_array(r->a, n, sizeof(float));
    r->ids = arena_array(r->a, MAX_TOKENS, sizeof(int32_t));
    r->targets = arena_array(r->a, MAX_TOKENS, sizeof(int32_t));
    r->doc_start = arena_array(r->a, MAX_TOKENS, sizeof(int32_t));
    r->positions = arena_array(r->a, MAX_TOKENS, sizeof(int32_t));
    r->valid = arena_array(r->a, MAX_TOKENS, 1);
    r->counts = arena_array(r->a, (size_t)(r->cfg.num_hidden_layers * r->cfg.num_experts), sizeof(int64_t));
    struct dev_options o = { .threads = 2 };
    if (dev_open(rig_device, &o, &r->dev) < 0)
        fail_msg("%s", err_msg());
    r->ops = *r->dev.ops;
    r->dev.ops = &r->ops;
    struct dev_limits lim = { .max_rows = 1024, .max_cols = 256, .n_heads = 16, .head_dim = 64, .ns_rows = 64, .ns_cols = 64 };
    r->dev.ws_size = r->ops.ws_bytes(&r->dev, &lim);
    r->dev.ws = arena_alloc(r->a, r->dev.ws_size + 1);
    r->io = (struct model_io){ .ctx = r, .weight = weight, .grad = grad };
}

void rig_model(struct rig *r)
{
    mem_free(r->mem);
    r->mem = mem_new();
    mem_poison(r->mem, 1);
    if (model_new(r->a, &r->t, &r->opts, &r->dev, r->mem, &r->io, &r->m) < 0)
        fail_msg("%s", err_msg());
}

void rig_model_planned(struct rig *r)
{
    struct dev trace;
    struct model_sums sums = { 0 };
    struct model_batch b = r->b;
    b.n_tokens = r->opts.micro_tokens;
    mem_free(r->mem);
    r->mem = mem_new();
    mem_record(r->mem);
    assert_int_equal(trace_open(&r->dev, &trace), 0);
    trace.ws = r->dev.ws;
    trace.ws_size = r->dev.ws_size;
    assert_int_equal(model_new(r->a, &r->t, &r->opts, &trace, r->mem, &r->io, &r->m), 0);
    assert_int_equal(mem_begin(r->mem, "train"), 0);
    assert_int_equal(model_train(r->m, &b, 1, 1, NULL, NULL, r->counts, &sums), 0);
    assert_int_equal(mem_end(r->mem), 0);
    trace.ops->close(&trace);
    if (mem_plan(r->mem) < 0 || mem_carve(r->mem) < 0 ||
        model_new(r->a, &r->t, &r->opts, &r->dev, r->mem, &r->io, &r->m) < 0 || mem_seal(r->mem) < 0)
        fail_msg("%s", err_msg());
    memset(r->counts, 0, (size_t)(r->cfg.num_hidden_layers * r->cfg.num_experts) * sizeof(int64_t));
}

void rig_close(struct rig *r)
{
    mem_free(r->mem);
    dev_close(&r->dev);
    model_config_fini(&r->cfg);
    arena_free(r->a);
}

static void set_batch(struct rig *r, int64_t n, int64_t seq_len)
{
    int64_t n_valid = 0;
    for (int64_t i = 0; i < n; i++)
        n_valid += r->valid[i] = r->targets[i] >= 0;
    r->b = (struct model_batch){ .n_tokens = n, .seq_len = seq_len, .ids = r->ids, .targets = r->targets, .valid = r->valid,
                                 .n_valid = n_valid, .doc_start = r->doc_start, .positions = r->positions };
}

void rig_golden(struct rig *r, struct golden *model, struct golden *answers)
{
    for (int i = 0; i < r->t.n; i++) {
        const struct param *p = &r->t.v[i];
        const float *v = golden_f32(r->a, model, p->name);
        for (int64_t j = 0; j < p->rows * p->cols; j++) {
            rig_set(r, r->w, p->offset + j, (double)v[j]);
            r->wf[p->offset + j] = v[j];
        }
    }
    const struct golden_tensor *ids = golden_find(answers, "input_ids");
    size_t bytes = (size_t)ids->n * sizeof(int32_t);
    memcpy(r->ids, ids->data, bytes);
    memcpy(r->targets, golden_i32(r->a, answers, "targets"), bytes);
    memcpy(r->doc_start, golden_i32(r->a, answers, "doc_start"), bytes);
    memcpy(r->positions, golden_i32(r->a, answers, "position_ids"), bytes);
    set_batch(r, ids->n, ids->n);
}

void rig_random(struct rig *r, uint64_t seed, int64_t n_seqs, int64_t seq_len)
{
    for (int i = 0; i < r->t.n; i++) {
        const struct param *p = &r->t.v[i];
        struct rng_key key = rng_key(seed, p->name);
        double scale = p->kind == PARAM_EMBED ? 0.7 : p->kind == PARAM_ROUTER_BIAS ? 0.1 : 0.25;
        for (int64_t j = 0; j < p->rows * p->cols; j++) {
            double v = scale * rng_normal(key, (uint64_t)j) + (p->kind == PARAM_NORM);
            rig_set(r, r->w, p->offset + j, v);
            r->wf[p->offset + j] = (float)v;
        }
    }
    struct rng_key key = rng_key(seed, "ids");
    int64_t n = n_seqs * seq_len, start = 0;
    assert_true(n <= MAX_TOKENS);
    for (int64_t i = 0; i < n; i++) {
        r->ids[i] = (int32_t)(rng_uniform(key, (uint64_t)i) * (double)r->cfg.vocab_size);
        /* A document ends at about every ninth token, and at every window. */
        if (i % seq_len == 0 || i % 9 == 4)
            start = i;
        r->doc_start[i] = (int32_t)start;
        r->positions[i] = (int32_t)(i - start);
    }
    for (int64_t i = 0; i < n; i++)
        r->targets[i] = i + 1 < n && r->doc_start[i + 1] == r->doc_start[i] ? r->ids[i + 1] : -1;
    set_batch(r, n, seq_len);
}

double rig_train(struct rig *r, _Bool first, const double *frac, const uint16_t *forced)
{
    struct model_sums s = { 0 };
    double inv = r->b.n_valid ? 1 / (double)r->b.n_valid : 0;
    if (mem_begin(r->mem, "train") < 0 || model_train(r->m, &r->b, inv, first, frac, forced, r->counts, &s) < 0 ||
        mem_end(r->mem) < 0)
        fail_msg("%s", err_msg());
    return inv * (s.nll + r->opts.aux_coef * s.aux + r->opts.z_coef * s.z);
}
