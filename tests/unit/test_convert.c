/* test_convert.c -- models through convert_run(), whose every element is known.
 *
 * A model is the parameter table of a config.json filled with numbers, or with
 * those of a golden file, written per expert or fused; a mistake can be planted
 * on the way, and then the comparison that passes without it must fail. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "ckpt/cast.h"
#include "ckpt/convert.h"
#include "ckpt/safetensors.h"
#include "ckpt/verify.h"
#include "model/params.h"
#include "unit/ckpt_toy.h"

enum plant { NOTHING = 0, SWAP_GATE_UP = 1, PERMUTE = 2, BOTH_LAYOUTS = 4, NO_DOWN = 8, TRANSPOSED = 16, EXTRA = 32 };

struct model {
    struct arena *a;
    struct model_config cfg;
    struct param_table t;
    float **v;                  /* [t.n] */
};

/* Every element of every tensor is another number, exact in F32. */
static void fill(struct model *m)
{
    int64_t k = 0;

    m->v = arena_array(m->a, (size_t)m->t.n, sizeof *m->v);
    for (int i = 0; i < m->t.n; i++) {
        int64_t n = m->t.v[i].rows * m->t.v[i].cols;

        m->v[i] = arena_array(m->a, (size_t)n, sizeof **m->v);
        for (int64_t j = 0; j < n; j++)
            m->v[i][j] = (float)(k++ % 8191 - 4000) / 64;
    }
}

static void open_model(struct model *m, const char *dir, const char *config)
{
    const char *path = toy_path(dir, "model.json");

    toy_put(path, config, strlen(config));
    m->a = arena_new();
    if (model_config_read(&m->cfg, path, 0) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(params_build(m->a, &m->cfg, &m->t), 0);
    fill(m);
}

static void close_model(struct model *m)
{
    model_config_fini(&m->cfg);
    arena_free(m->a);
}

/* ---- writing what others write */

static void add(struct st_writer *w, const char *name, int n_dims, int64_t d0, int64_t d1, int64_t d2)
{
    int64_t shape[3] = { d0, d1, d2 };

    assert_true(st_writer_add(w, name, DT_F32, n_dims, shape) >= 0);
}

static const char *fused_name(struct model *m, int layer, const char *what)
{
    return arena_printf(m->a, "model.layers.%d.mlp.experts.%s", layer, what);
}

/* The fused tensors of a layer, gate rows first: [E][2I][H] and [E][H][I]. */
static void fuse(const struct model *m, int layer, unsigned plant, float *gate_up, float *down)
{
    int64_t e_n = m->cfg.num_experts, n = m->cfg.hidden_size * m->cfg.moe_intermediate_size;
    int first = m->t.layers[layer].experts;

    for (int64_t e = 0; e < e_n; e++) {
        int64_t from = plant & PERMUTE ? (e + 1) % e_n : e;

        for (int part = 0; part < 2; part++)
            memcpy(gate_up + (2 * e + (plant & SWAP_GATE_UP ? 1 - part : part)) * n, m->v[first + 3 * from + part], (size_t)n * 4);
        memcpy(down + e * n, m->v[first + 3 * from + 2], (size_t)n * 4);
    }
}

static _Bool is_router(const struct param *p) { return p->kind == PARAM_ROUTER; }

static void write_fused(struct model *m, const char *dir, unsigned plant)
{
    struct st_writer *w = st_writer_new();
    int64_t e = m->cfg.num_experts, h = m->cfg.hidden_size, i = m->cfg.moe_intermediate_size;
    int n = 0, *of = arena_array(m->a, (size_t)m->t.n, sizeof *of);

    for (int k = 0; k < m->t.n; k++) {
        const struct param *p = &m->t.v[k];

        of[k] = -1;
        if (p->kind == PARAM_EXPERT && !(plant & BOTH_LAYOUTS && p->expert == 0))
            continue;
        add(w, is_router(p) ? arena_printf(m->a, "model.layers.%d.mlp.gate.weight", p->layer) : p->name, p->n_dims, p->rows, p->cols, 0);
        of[k] = n++;
    }
    for (int l = 0; l < m->cfg.num_hidden_layers; l++) {
        if (m->t.layers[l].router < 0)
            continue;
        add(w, fused_name(m, l, "gate_up_proj"), 3, e, plant & TRANSPOSED ? h : 2 * i, plant & TRANSPOSED ? 2 * i : h);
        if (!(plant & NO_DOWN))
            add(w, fused_name(m, l, "down_proj"), 3, e, h, i);
    }
    assert_int_equal(st_writer_begin(w, toy_path(dir, "model.safetensors")), 0);
    for (int k = 0; k < m->t.n; k++)
        if (of[k] >= 0)
            assert_int_equal(st_writer_put(w, of[k], 0, m->v[k], 4 * (size_t)(m->t.v[k].rows * m->t.v[k].cols)), 0);
    for (int l = 0; l < m->cfg.num_hidden_layers; l++) {
        float *gate_up = arena_array(m->a, (size_t)(2 * e * i * h), 4), *down = arena_array(m->a, (size_t)(e * i * h), 4);

        if (m->t.layers[l].router < 0)
            continue;
        fuse(m, l, plant, gate_up, down);
        assert_int_equal(st_writer_put(w, n++, 0, gate_up, (size_t)(8 * e * i * h)), 0);
        if (!(plant & NO_DOWN))
            assert_int_equal(st_writer_put(w, n++, 0, down, (size_t)(4 * e * i * h)), 0);
    }
    assert_int_equal(st_writer_end(w), 0);
    st_writer_free(w);
}

static void write_single(struct model *m, const char *dir, unsigned plant)
{
    struct st_writer *w = st_writer_new();

    for (int k = 0; k < m->t.n; k++)
        add(w, m->t.v[k].name, m->t.v[k].n_dims, m->t.v[k].rows, m->t.v[k].cols, 0);
    if (plant & EXTRA)
        add(w, "model.layers.0.self_attn.sinks", 1, 0, 0, 0);
    assert_int_equal(st_writer_begin(w, toy_path(dir, "model.safetensors")), 0);
    for (int k = 0; k < m->t.n; k++)
        assert_int_equal(st_writer_put(w, k, 0, m->v[k], 4 * (size_t)(m->t.v[k].rows * m->t.v[k].cols)), 0);
    assert_int_equal(st_writer_end(w), 0);
    st_writer_free(w);
}

static const char *source(struct model *m, const char *dir, const char *config, _Bool fused, unsigned plant)
{
    static int number;
    const char *in = arena_printf(m->a, "%s/in%d", dir, number++);

    assert_int_equal(fs_mkdir(in), 0);
    toy_put(toy_path(in, "config.json"), config, strlen(config));
    if (fused)
        write_fused(m, in, plant);
    else
        write_single(m, in, plant);
    return in;
}

/* ---- through the converter, and compared */

static int run(const char *in, const char *to, int family, enum dtype dtype)
{
    struct convert v = { .to = to, .family = family, .dtype = dtype, .by = { "moe-ckpt test", NULL, 0, "convert" } };
    struct ckpt_verify check = { 0 };
    struct ckpt *c;
    int rc = ckpt_open(in, 0, &c);

    if (rc < 0)
        return rc;
    rc = convert_run(c, &v);
    ckpt_close(c);
    if (rc < 0) {
        struct err_state kept;

        err_take(&kept);
        assert_false(fs_exists(to));
        return err_put(&kept);
    }
    assert_int_equal(ckpt_verify(to, &check), 0);
    assert_int_equal(check.n_problems, 0);
    return 0;
}

/* How many tensors of the directory are not those of the model, bit for bit;
 * every name must be there and no other. */
static int differing(const struct model *m, const char *dir)
{
    struct ckpt *c;
    int n = 0;

    if (ckpt_open(dir, 0, &c) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(ckpt_n_tensors(c), m->t.n);
    for (int k = 0; k < m->t.n; k++) {
        const struct param *p = &m->t.v[k];
        int64_t shape[2] = { p->rows, p->cols }, count = p->rows * p->cols;
        const struct ckpt_tensor *t;
        float *v = malloc(4 * (size_t)count);

        assert_int_equal(ckpt_need(c, p->name, p->n_dims, shape, &t), 0);
        assert_int_equal(t->dtype, DT_F32);
        assert_int_equal(ckpt_read_f32(c, t, 0, count, v), 0);
        n += memcmp(v, m->v[k], 4 * (size_t)count) != 0;
        free(v);
    }
    ckpt_close(c);
    return n;
}

/* ---- the tests */

#define QWEN3(kv) "{\"model_type\":\"qwen3_moe\",\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":6,\"num_key_value_heads\":" kv ",\
\"head_dim\":4,\"vocab_size\":10,\"num_experts\":3,\"num_experts_per_tok\":2,\"moe_intermediate_size\":4,\"tie_word_embeddings\":false}"
#define MIXTRAL "{\"model_type\":\"mixtral\",\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\
\"vocab_size\":10,\"num_local_experts\":3,\"num_experts_per_tok\":2,\"intermediate_size\":6,\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false}"
#define GLM "{\"model_type\":\"glm4_moe\",\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":4,\
\"vocab_size\":10,\"n_routed_experts\":3,\"num_experts_per_tok\":2,\"moe_intermediate_size\":5,\"n_shared_experts\":1,\"first_k_dense_replace\":1,\
\"intermediate_size\":7,\"partial_rotary_factor\":1.0,\"tie_word_embeddings\":false}"

/* 2I = H: gate_up is [3, 8, 8] and would read the same transposed. */
static void test_square(void **state)
{
    const char *dir = toy_mkdir(), *out = toy_path(dir, "out");
    struct model m;

    (void)state;
    open_model(&m, dir, QWEN3("3"));
    assert_int_equal(2 * m.cfg.moe_intermediate_size, m.cfg.hidden_size);
    if (run(source(&m, dir, QWEN3("3"), 1, NOTHING), out, MODEL_TYPE_N, DT_F32) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(differing(&m, out), 0);
    close_model(&m);
    toy_rmdir(dir);
}

static void test_planted(void **state)
{
    static const struct { unsigned plant; int tensors; } plants[] = { { SWAP_GATE_UP, 2 * 3 * 2 }, { PERMUTE, 2 * 3 * 3 } };
    const char *dir = toy_mkdir();
    struct model m;

    (void)state;
    open_model(&m, dir, QWEN3("3"));
    for (size_t i = 0; i < 2; i++) {
        const char *out = arena_printf(m.a, "%s/out%zu", dir, i);

        assert_int_equal(run(source(&m, dir, QWEN3("3"), 1, plants[i].plant), out, MODEL_TYPE_N, DT_F32), 0);
        assert_int_equal(differing(&m, out), plants[i].tensors);
    }
    close_model(&m);
    toy_rmdir(dir);
}

static void test_kv_heads(void **state)
{
    const char *dir = toy_mkdir();
    struct model m;

    (void)state;
    open_model(&m, dir, QWEN3("3"));
    /* The file has three, the configuration says two: k and v of both layers. */
    assert_int_equal(run(source(&m, dir, QWEN3("2"), 0, NOTHING), toy_path(dir, "out"), MODEL_TYPE_N, DT_F32), ERR_DATA);
    assert_non_null(strstr(err_msg(), "4 tensors do not fit qwen3_moe: model.layers.0.self_attn.k_proj.weight: 12x8, expected 8x8; "
                                      "model.layers.0.self_attn.v_proj.weight"));
    assert_non_null(strstr(err_msg(), "model.layers.1.self_attn.v_proj.weight: 12x8, expected 8x8"));
    close_model(&m);
    toy_rmdir(dir);
}

static void refuses(const char *config, _Bool fused, unsigned plant, const char *sentence)
{
    const char *dir = toy_mkdir();
    struct model m;

    open_model(&m, dir, config);
    assert_int_equal(run(source(&m, dir, config, fused, plant), toy_path(dir, "out"), MODEL_TYPE_N, DT_F32), ERR_DATA);
    if (!strstr(err_msg(), sentence))
        fail_msg("\"%s\" does not say \"%s\"", err_msg(), sentence);
    close_model(&m);
    toy_rmdir(dir);
}

static void test_account(void **state)
{
    (void)state;
    refuses(MIXTRAL, 1, BOTH_LAYOUTS, "model.layers.0.block_sparse_moe.experts.0.w1.weight: not used: a second layout of the experts");
    refuses(MIXTRAL, 1, NO_DOWN, "model.layers.0.mlp.experts.gate_up_proj: fused experts without their down_proj");
    refuses(MIXTRAL, 1, TRANSPOSED, "model.layers.1.mlp.experts.gate_up_proj: 3x8x12, expected 3x12x8 (experts, rows, columns)");
    refuses(GLM, 0, EXTRA, "model.layers.0.self_attn.sinks: not used by the family");
}

/* A file of one family under the name of another: everything is named. */
static void test_family(void **state)
{
    const char *dir = toy_mkdir();
    struct model m;

    (void)state;
    open_model(&m, dir, MIXTRAL);
    assert_int_equal(run(source(&m, dir, QWEN3("3"), 0, NOTHING), toy_path(dir, "out"), MODEL_TYPE_N, DT_F32), ERR_DATA);
    assert_non_null(strstr(err_msg(), "model.layers.0.mlp.gate.weight: missing"));
    close_model(&m);
    toy_rmdir(dir);
}

/* Fused and single, each family: what comes out is what the golden file holds,
 * and a second conversion changes no byte. */
static void test_golden(void **state)
{
    static const char *const cases[] = { "glm4_moe", "glm4_moe_groups", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "qwen3_moe_dense" };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *dir = toy_mkdir();
        struct fs_blob config;
        struct model m;
        struct ckpt *c;
        char golden[64], *bytes[2];
        size_t n[2];

        snprintf(golden, sizeof golden, "tests/golden/%s", cases[i]);
        assert_int_equal(fs_read(toy_path(golden, "config.json"), &config), 0);
        open_model(&m, dir, config.data);
        assert_int_equal(ckpt_open(golden, 0, &c), 0);
        for (int k = 0; k < m.t.n; k++)
            assert_int_equal(ckpt_read_f32(c, ckpt_find(c, m.t.v[k].name), 0, m.t.v[k].rows * m.t.v[k].cols, m.v[k]), 0);
        ckpt_close(c);
        for (int fused = 0; fused < 2; fused++) {
            const char *out = arena_printf(m.a, "%s/out%d", dir, fused);

            assert_int_equal(run(source(&m, dir, config.data, fused, NOTHING), out, MODEL_TYPE_N, DT_F32), 0);
            assert_int_equal(differing(&m, out), 0);
            toy_get(toy_path(out, "model-00001-of-00001.safetensors"), &bytes[fused], &n[fused]);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        free(bytes[0]);
        free(bytes[1]);
        close_model(&m);
        fs_blob_free(&config);
        toy_rmdir(dir);
    }
}

/* mixtral in the words of qwen2_moe: a shared expert of zeros; and back. */
static void test_other_family(void **state)
{
    const char *dir = toy_mkdir(), *there, *back;
    struct model m;
    struct ckpt *c;
    const struct ckpt_tensor *t;
    float v[48];

    (void)state;
    open_model(&m, dir, MIXTRAL);
    there = arena_printf(m.a, "%s/there", dir);
    back = arena_printf(m.a, "%s/back", dir);
    if (run(source(&m, dir, MIXTRAL, 0, NOTHING), there, MODEL_QWEN2_MOE, DT_N) < 0)
        fail_msg("%s", err_msg());
    assert_int_equal(ckpt_open(there, 0, &c), 0);
    t = ckpt_find(c, "model.layers.1.mlp.shared_expert.down_proj.weight");
    assert_non_null(t);
    assert_int_equal(t->shape[1], 6);
    assert_int_equal(ckpt_read_f32(c, t, 0, 48, v), 0);
    for (int i = 0; i < 48; i++)
        assert_true(v[i] == 0);
    ckpt_close(c);
    assert_int_equal(run(there, back, MODEL_MIXTRAL, DT_N), 0);
    assert_int_equal(differing(&m, back), 0);
    close_model(&m);

#define QWEN2 "{\"model_type\":\"qwen2_moe\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,\
\"vocab_size\":10,\"num_experts\":3,\"num_experts_per_tok\":2,\"moe_intermediate_size\":6,\"shared_expert_intermediate_size\":6,\"norm_topk_prob\":true,\
\"qkv_bias\":false,\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false,\"mlp_only_layers\":[],\"decoder_sparse_step\":1}"
    open_model(&m, dir, QWEN2);
    assert_int_equal(run(source(&m, dir, QWEN2, 0, NOTHING), toy_path(dir, "no"), MODEL_MIXTRAL, DT_N), ERR_DATA);
    assert_non_null(strstr(err_msg(), "shared_expert.down_proj.weight\" is not all zeros, and mixtral has no place for it"));
    assert_int_equal(run(source(&m, dir, QWEN2, 0, NOTHING), toy_path(dir, "no"), MODEL_GLM4_MOE, DT_N), ERR_USAGE);
    assert_non_null(strstr(err_msg(), "scoring_func: the router of glm4_moe is sigmoid"));
    close_model(&m);
    toy_rmdir(dir);
}

/* Selection biases keep their bits when everything else is rounded. */
static void test_router_bias(void **state)
{
    const char *dir = toy_mkdir(), *out = toy_path(dir, "out");
    const struct ckpt_tensor *t;
    struct model m;
    struct ckpt *c;
    int bias;
    float v[3];

    (void)state;
    open_model(&m, dir, GLM);
    bias = m.t.layers[1].router_bias;
    for (int i = 0; i < 3; i++)
        m.v[bias][i] = 6.8f + (float)i * 1e-5f;
    assert_int_equal(run(source(&m, dir, GLM, 0, NOTHING), out, MODEL_TYPE_N, DT_BF16), 0);
    assert_int_equal(ckpt_open(out, 0, &c), 0);
    t = ckpt_find(c, m.t.v[bias].name);
    assert_int_equal(t->dtype, DT_F32);
    assert_int_equal(ckpt_read_f32(c, t, 0, 3, v), 0);
    assert_memory_equal(v, m.v[bias], sizeof v);
    for (int64_t i = 0; i < ckpt_n_tensors(c); i++)
        assert_true(ckpt_tensor(c, i) == t || ckpt_tensor(c, i)->dtype == DT_BF16);
    ckpt_close(c);
    close_model(&m);
    toy_rmdir(dir);
}

static void test_overflow(void **state)
{
    const char *dir = toy_mkdir();
    struct model m;

    (void)state;
    open_model(&m, dir, GLM);
    m.v[m.t.norm][2] = 70000;
    assert_int_equal(run(source(&m, dir, GLM, 0, NOTHING), toy_path(dir, "out"), MODEL_TYPE_N, DT_F16), ERR_DATA);
    assert_non_null(strstr(err_msg(), "tensor \"model.norm.weight\": 1 value is too large for F16"));
    m.v[m.t.norm][2] = INFINITY;                /* which F16 has */
    assert_int_equal(run(source(&m, dir, GLM, 0, NOTHING), toy_path(dir, "out"), MODEL_TYPE_N, DT_F16), 0);
    close_model(&m);
    toy_rmdir(dir);
}

/* ---- rounding */

/* The nearest half of a double by search, ties to the even one. */
static uint16_t nearest_half(double v)
{
    uint16_t lo = 0, hi = 0x7c00, sign = signbit(v) ? 0x8000 : 0;
    double x = fabs(v), a, b;

    while (hi - lo > 1) {
        uint16_t mid = (uint16_t)((lo + hi) / 2);

        if ((double)dtype_from_f16(mid) <= x)
            lo = mid;
        else
            hi = mid;
    }
    a = (double)dtype_from_f16(lo);
    b = hi == 0x7c00 ? 65536 : (double)dtype_from_f16(hi);
    return (uint16_t)(sign | (x - a < b - x || (x - a == b - x && !(lo & 1)) ? lo : hi));
}

static void test_cast(void **state)
{
    uint32_t x = 1;

    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t in = (uint16_t)h, out;
        float f;

        cast_array(&f, DT_F32, &in, DT_F16, 1);
        cast_array(&out, DT_F16, &f, DT_F32, 1);
        if (!isnan(f))
            assert_int_equal(in, out);
        else
            assert_true((out & 0x7c00) == 0x7c00 && out & 0x3ff);
        cast_array(&f, DT_F32, &in, DT_BF16, 1);
        cast_array(&out, DT_BF16, &f, DT_F32, 1);
        if (!isnan(f))
            assert_int_equal(in, out);
        else
            assert_int_equal(in | 0x40, out);
    }
    for (int i = 0; i < 300000; i++) {
        uint32_t u = x = x * 1664525u + 1013904223u;
        uint16_t half, brain;
        float f;

        if (i % 3 == 0)         /* where halves are, and exact ties among them */
            u = 0x33000000u + (x >> 4) % 0x14000000u;
        if (i % 3 == 1)
            u = (0x38000000u + (x >> 4) % 0x10000000u) & ~0xfffu;
        memcpy(&f, &u, 4);
        cast_array(&half, DT_F16, &f, DT_F32, 1);
        cast_array(&brain, DT_BF16, &f, DT_F32, 1);
        assert_int_equal(brain, dtype_to_bf16(f));
        if (!isnan(f) && fabsf(f) < 1e6f)
            assert_int_equal(half, nearest_half((double)f));
    }
}

static void test_cast_lengths(void **state)
{
    float in[3000], out[3001];
    uint16_t mid[3001];

    (void)state;
    for (int i = 0; i < 3000; i++)
        in[i] = (float)(i - 1500) / 8;
    for (int n = 0; n <= 3000; n += n < 5 ? 1 : 599) {
        memset(mid, 0x55, sizeof mid);
        memset(out, 0x55, sizeof out);
        cast_array(mid, DT_F16, in, DT_F32, n);
        assert_int_equal(mid[n], 0x5555);
        cast_array(out, DT_F32, mid, DT_F16, n);
        assert_memory_equal(out, in, 4 * (size_t)n);
        assert_int_equal(((uint32_t *)(void *)out)[n], 0x55555555);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_square),
        cmocka_unit_test(test_planted),
        cmocka_unit_test(test_kv_heads),
        cmocka_unit_test(test_account),
        cmocka_unit_test(test_family),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_other_family),
        cmocka_unit_test(test_router_bias),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_cast),
        cmocka_unit_test(test_cast_lengths),
    };

    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
