/* cpu_attn.c -- attention in blocks of 64 queries by 64 keys.
 *
 * A segment is a run of queries whose keys no other query sees: a document, as
 * a rule.  Blocks are counted from the start of the segment, so a document's
 * bits do not depend on what stands beside it, and blocks outside a segment
 * are never touched.  Scores are kept transposed, [key][query]: keys, values
 * and probabilities then enter every product by broadcast or as they lie, only
 * q and do are transposed, and softmax runs along lanes.
 *
 * Backward recomputes p from lse.  With enough segments one task does a whole
 * segment and kv head; a few long segments are cut into query blocks for dq
 * and key blocks for dk and dv, at the price of computing the scores twice.
 * Both orders add the same numbers in the same order, so the bits agree. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "dev/cpu/cpu_ops.h"
#include "dev/shape.h"

enum { BLOCK = 64, STATS = 5 };

struct segment {
    int32_t q0, q1;             /* queries */
    int32_t k0, k1;             /* keys that they see */
    int32_t before;             /* keys from here to k0 are seen by nobody */
    int32_t first_q, first_k;   /* query and key blocks of all earlier segments */
};

struct attention {
    const struct attn *a;
    const struct cpu_kern *k;
    struct segment *seg;
    int n_seg;
    int64_t n_q, n_k;           /* blocks of queries, of keys */
    float *scratch;
    int64_t thread_floats;
    int64_t j0;                 /* key position of query 0 */
    _Bool want_dq, want_dkv;
};

/* Scratch of one thread. */
struct block {
    float *qt, *dot;            /* [head_dim][BLOCK]: scale q^T, do^T */
    float *st, *dp;             /* [BLOCK keys][BLOCK queries] */
    float *o;                   /* [BLOCK][head_dim] */
    float *m, *l, *corr, *lse, *delta;          /* [BLOCK] */
    int32_t lo[BLOCK], hi[BLOCK];
    int nq, ldq;                /* queries, and those rounded up to 16 */
    int32_t q0, lo_max;
};

static int64_t thread_floats(int64_t head_dim)
{
    return cpu_ceil(3 * head_dim * BLOCK + 2 * BLOCK * BLOCK + STATS * BLOCK, 16) * 16;
}

static size_t segment_bytes(int64_t n)
{
    return (size_t)cpu_ceil(n * (int64_t)sizeof(struct segment), 64) * 64;
}

size_t cpu_attn_ws(const struct dev *d, const struct dev_limits *lim)
{
    return segment_bytes(lim->max_rows) + (size_t)(d->threads * thread_floats(lim->head_dim)) * sizeof(float);
}

/* Backwards, because a query starts a segment when it and all later ones see
 * no key before it. */
static void find_segments(struct attention *t)
{
    const struct attn *a = t->a;
    int64_t n = a->q.rows;
    int32_t low = INT32_MAX;
    int count = 0;

    for (int64_t i = n - 1; i >= 0; i--) {
        BUG_ON(a->doc_start[i] < 0 || a->doc_start[i] > t->j0 + i);
        if (a->doc_start[i] < low)
            low = a->doc_start[i];
        if (i == 0 || low >= t->j0 + i) {
            t->seg[count++] = (struct segment){ .q0 = (int32_t)i, .k0 = low };
            low = INT32_MAX;
        }
    }
    t->n_seg = count;
    for (int s = 0; s < count / 2; s++) {
        struct segment x = t->seg[s];
        t->seg[s] = t->seg[count - 1 - s];
        t->seg[count - 1 - s] = x;
    }
    int32_t seen = 0;
    for (int s = 0; s < count; s++) {
        struct segment *g = &t->seg[s];
        g->q1 = s + 1 < count ? t->seg[s + 1].q0 : (int32_t)n;
        g->k1 = (int32_t)t->j0 + g->q1;
        g->before = seen;
        seen = g->k1;
        g->first_q = (int32_t)t->n_q;
        g->first_k = (int32_t)t->n_k;
        t->n_q += cpu_ceil(g->q1 - g->q0, BLOCK);
        t->n_k += cpu_ceil(g->k1 - g->k0, BLOCK);
    }
}

static _Bool attention_init(struct attention *t, struct dev *d, const struct attn *a)
{
    *t = (struct attention){ .a = a, .k = cpu_kern(d), .seg = d->ws, .j0 = a->k.rows - a->q.rows,
                             .thread_floats = thread_floats(a->head_dim), .want_dq = 1, .want_dkv = 1 };
    if (!a->q.rows)
        return 0;
    size_t seg = segment_bytes(a->q.rows);
    BUG_ON(d->ws_size < seg + (size_t)(d->threads * t->thread_floats) * sizeof(float));
    t->scratch = (float *)((char *)d->ws + seg);
    find_segments(t);
    return 1;
}

/* The segment that holds the i-th query (key) block. */
static const struct segment *segment_of(const struct attention *t, int64_t i, _Bool keys)
{
    int lo = 0, hi = t->n_seg - 1;

    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if ((keys ? t->seg[mid].first_k : t->seg[mid].first_q) <= i)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &t->seg[lo];
}

static struct block block_of(const struct attention *t, int thread)
{
    int64_t hd = t->a->head_dim;
    float *at = t->scratch + thread * t->thread_floats;
    struct block b = { .qt = at, .dot = at + hd * BLOCK, .o = at + 2 * hd * BLOCK };

    at += 3 * hd * BLOCK;
    b.st = at;
    b.dp = at + BLOCK * BLOCK;
    at += 2 * BLOCK * BLOCK;
    b.m = at, b.l = at + BLOCK, b.corr = at + 2 * BLOCK, b.lse = at + 3 * BLOCK, b.delta = at + 4 * BLOCK;
    return b;
}

/* Queries [q0, q0 + nq): the keys each of them sees. */
static void set_queries(struct block *b, const struct attention *t, int32_t q0, int32_t q1)
{
    b->q0 = q0;
    b->nq = (int)cpu_min(BLOCK, q1 - q0);
    b->ldq = (b->nq + 15) / 16 * 16;
    b->lo_max = 0;
    for (int i = 0; i < b->ldq; i++) {
        b->lo[i] = i < b->nq ? t->a->doc_start[q0 + i] : 0;
        b->hi[i] = i < b->nq ? (int32_t)t->j0 + q0 + i : INT32_MAX;
        if (b->lo[i] > b->lo_max)
            b->lo_max = b->lo[i];
    }
}

/* Keys of the block at `key` that the queries may see. */
static int key_count(const struct attention *t, const struct block *b, int32_t key)
{
    return (int)cpu_min(BLOCK, t->j0 + b->q0 + b->nq - key);
}

static void scores(const struct attention *t, struct block *b, int g, int32_t key, int nk)
{
    const struct attn *a = t->a;

    t->k->mm(b->st, b->ldq, cpu_row(a->k, key) + g * a->head_dim, a->k.ld, 1, b->qt, b->ldq, nk, b->ldq, a->head_dim, 0);
    if (key < b->lo_max || key + nk - 1 > t->j0 + b->q0)
        t->k->attn_mask(b->st, nk, b->ldq, key, b->lo, b->hi);
}

/* The columns of absent queries are 0, so that their scores are finite. */
static void transpose_queries(const struct attention *t, const struct block *b, float *out, const float *x, int64_t ldx, double a)
{
    int hd = t->a->head_dim;

    t->k->transpose(out, b->ldq, x, ldx, b->nq, hd, (float)a);
    for (int c = 0; b->nq < b->ldq && c < hd; c++)
        memset(out + c * b->ldq + b->nq, 0, (size_t)(b->ldq - b->nq) * sizeof *out);
}

static void fwd_block(const struct attention *t, struct block *b, const struct segment *s, int h)
{
    const struct attn *a = t->a;
    int hd = a->head_dim, g = h / (a->n_heads / a->n_kv_heads);
    int64_t end = t->j0 + b->q0 + b->nq;

    transpose_queries(t, b, b->qt, cpu_row(a->q, b->q0) + h * hd, a->q.ld, a->scale);
    for (int i = 0; i < b->ldq; i++) {
        b->m[i] = -INFINITY;
        b->l[i] = 0;
    }
    for (int32_t key = s->k0; key < end; key += BLOCK) {
        int nk = key_count(t, b, key);
        scores(t, b, g, key, nk);
        t->k->attn_softmax(b->st, nk, b->ldq, b->m, b->l, b->corr);
        if (key > s->k0)
            for (int i = 0; i < b->nq; i++)
                t->k->scale(b->o + i * hd, b->corr[i], hd);
        t->k->mm(b->o, hd, b->st, 1, b->ldq, cpu_row(a->v, key) + g * hd, a->v.ld, b->nq, hd, nk, key > s->k0);
    }
    for (int i = 0; i < b->nq; i++) {
        t->k->scale_to(cpu_row(a->o, b->q0 + i) + h * hd, 1 / b->l[i], b->o + i * hd, hd);
        cpu_row(a->lse, b->q0 + i)[h] = b->m[i] + logf(b->l[i]);
    }
}

/* One task is a query block and a head. */
static void fwd_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct attention *t = arg;
    struct block b = block_of(t, thread);

    for (int64_t i = first; i < end; i++) {
        int64_t q = i / t->a->n_heads;
        const struct segment *s = segment_of(t, q, 0);
        set_queries(&b, t, s->q0 + (int32_t)(q - s->first_q) * BLOCK, s->q1);
        fwd_block(t, &b, s, (int)(i % t->a->n_heads));
    }
}

/* A block of keys takes about 4 flops an element and column of a head. */
static double block_ns(const struct attention *t, int products)
{
    double keys = (double)t->n_k / t->n_seg * BLOCK / 2 + BLOCK;

    return 0.01 * 2 * products * BLOCK * keys * t->a->head_dim;
}

void cpu_attn_fwd(struct dev *d, const struct attn *a)
{
    struct attention t;

    shape_attn(a, 0);
    if (attention_init(&t, d, a))
        cpu_for(d, t.n_q * a->n_heads, block_ns(&t, 2), fwd_task, &t);
}

/* What the queries of one head bring to the keys [key0, key1) of their segment. */
static void bwd_block(const struct attention *t, struct block *b, const struct segment *s, int h, int32_t key0, int32_t key1)
{
    const struct attn *a = t->a;
    const struct cpu_kern *k = t->k;
    int hd = a->head_dim, g = h / (a->n_heads / a->n_kv_heads), ldq = b->ldq, nq = b->nq;
    const float *q = cpu_row(a->q, b->q0) + h * hd, *go = cpu_row(a->do_, b->q0) + h * hd;
    int64_t end = cpu_min(key1, t->j0 + b->q0 + nq);

    transpose_queries(t, b, b->qt, q, a->q.ld, a->scale);
    transpose_queries(t, b, b->dot, go, a->do_.ld, 1);
    for (int i = 0; i < ldq; i++) {
        b->lse[i] = i < nq ? cpu_row(a->lse, b->q0 + i)[h] : 0;
        b->delta[i] = i < nq ? k->dot(go + i * a->do_.ld, cpu_row(a->o, b->q0 + i) + h * hd, hd) : 0;
    }
    for (int32_t key = key0; key < end; key += BLOCK) {
        int nk = key_count(t, b, key);
        int64_t at = (int64_t)g * hd;
        scores(t, b, g, key, nk);
        k->mm(b->dp, ldq, cpu_row(a->v, key) + at, a->v.ld, 1, b->dot, ldq, nk, ldq, hd, 0);
        k->attn_dscore(b->st, b->dp, nk, ldq, b->lse, b->delta, (float)a->scale);
        if (t->want_dkv) {
            k->mm(cpu_row(a->dv, key) + at, a->dv.ld, b->st, ldq, 1, go, a->do_.ld, nk, hd, nq, 1);
            k->mm(cpu_row(a->dk, key) + at, a->dk.ld, b->dp, ldq, 1, q, a->q.ld, nk, hd, nq, 1);
        }
        if (t->want_dq)
            k->mm(cpu_row(a->dq, b->q0) + h * hd, a->dq.ld, b->dp, 1, ldq, cpu_row(a->k, key) + at, a->k.ld, nq, hd, nk,
                  key > s->k0);
    }
}

static void clear_keys(const struct attn *a, int g, int32_t first, int32_t end)
{
    for (int32_t j = first; j < end; j++) {
        memset(cpu_row(a->dk, j) + (int64_t)g * a->head_dim, 0, (size_t)a->head_dim * sizeof(float));
        memset(cpu_row(a->dv, j) + (int64_t)g * a->head_dim, 0, (size_t)a->head_dim * sizeof(float));
    }
}

/* Adds to dk and dv of [key0, key1), and dq if wanted: queries in ascending
 * order, then the heads of the group. */
static void bwd_keys(const struct attention *t, struct block *b, const struct segment *s, int g, int32_t key0, int32_t key1)
{
    int group = t->a->n_heads / t->a->n_kv_heads;

    for (int32_t q = s->q0; q < s->q1; q += BLOCK) {
        if (t->j0 + cpu_min(s->q1, q + BLOCK) <= key0)
            continue;
        set_queries(b, t, q, s->q1);
        for (int h = g * group; h < (g + 1) * group; h++)
            bwd_block(t, b, s, h, key0, key1);
    }
}

/* One task is a segment and a kv head. */
static void bwd_segment_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct attention *t = arg;
    struct block b = block_of(t, thread);

    for (int64_t i = first; i < end; i++) {
        const struct segment *s = &t->seg[i / t->a->n_kv_heads];
        int g = (int)(i % t->a->n_kv_heads);
        clear_keys(t->a, g, s->before, s->k1);
        bwd_keys(t, &b, s, g, s->k0, s->k1);
    }
}

/* One task is a key block and a kv head. */
static void bwd_keys_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct attention *t = arg;
    struct block b = block_of(t, thread);

    for (int64_t i = first; i < end; i++) {
        int64_t kb = i / t->a->n_kv_heads;
        int g = (int)(i % t->a->n_kv_heads);
        const struct segment *s = segment_of(t, kb, 1);
        int32_t key0 = s->k0 + (int32_t)(kb - s->first_k) * BLOCK, key1 = (int32_t)cpu_min(s->k1, key0 + BLOCK);
        clear_keys(t->a, g, key0 == s->k0 ? s->before : key0, key1);
        bwd_keys(t, &b, s, g, key0, key1);
    }
}

/* One task is a query block and a head. */
static void bwd_queries_task(void *arg, int64_t first, int64_t end, int thread)
{
    const struct attention *t = arg;
    struct block b = block_of(t, thread);

    for (int64_t i = first; i < end; i++) {
        int64_t q = i / t->a->n_heads;
        const struct segment *s = segment_of(t, q, 0);
        set_queries(&b, t, s->q0 + (int32_t)(q - s->first_q) * BLOCK, s->q1);
        bwd_block(t, &b, s, (int)(i % t->a->n_heads), s->k0, s->k1);
    }
}

void cpu_attn_bwd(struct dev *d, const struct attn *a)
{
    struct attention t;

    shape_attn(a, 1);
    if (!attention_init(&t, d, a)) {
        for (int g = 0; g < a->n_kv_heads; g++)
            clear_keys(a, g, 0, (int32_t)a->k.rows);
        return;
    }
    int64_t tasks = (int64_t)t.n_seg * a->n_kv_heads;
    if (d->threads == 1 || tasks >= 4 * d->threads) {
        cpu_for(d, tasks, block_ns(&t, 5) * (double)(t.n_q * a->n_heads) / (double)tasks, bwd_segment_task, &t);
        return;
    }
    t.want_dkv = 0;
    cpu_for(d, t.n_q * a->n_heads, block_ns(&t, 3), bwd_queries_task, &t);
    t.want_dkv = 1;
    t.want_dq = 0;
    cpu_for(d, t.n_k * a->n_kv_heads, block_ns(&t, 4) * (double)(t.n_q * a->n_heads) / (double)(t.n_k * a->n_kv_heads),
            bwd_keys_task, &t);
}
