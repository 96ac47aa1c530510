/* megatron.c -- a view of an index and its ids, and the walk that checks it.
 *
 * Refuses to repair: an index with a gap or an overlap is damaged, even where
 * a reader that takes offsets as they come would get by. */
#include "data/megatron.h"

#include "base/arena.h"
#include "base/err.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little endian and are mapped as they are"
#endif

static const struct { const char *name; int width; } dtype[] = {
    { NULL, 0 }, { "u8", 1 }, { "i8", 1 }, { "i16", 2 }, { "i32", 4 }, { "i64", 8 }, { "f64", 8 }, { "f32", 4 }, { "u16", 2 },
};

const char *megatron_dtype(int code)
{
    return code > 0 && code <= MEGATRON_U16 ? dtype[code].name : NULL;
}

_Bool megatron_holds_ids(const struct megatron *m)
{
    return m->code != MEGATRON_F64 && m->code != MEGATRON_F32;
}

static uint64_t load64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

int megatron_view(struct megatron *m, const char *idx_path, const struct fs_blob *idx, const char *bin_path, const struct fs_blob *bin)
{
    const char *p = idx->data;
    *m = (struct megatron){ .idx_path = idx_path, .bin_path = bin_path, .ids = bin->data, .bytes = bin->size, .idx = idx, .bin = bin };
    if (idx->size < MEGATRON_HEADER)
        return err_set(ERR_DATA, "%s: truncated: %zu bytes, fewer than its header", idx_path, idx->size);
    if (memcmp(p, "MMIDIDX\0\0", 9) != 0)
        return err_set(ERR_DATA, "%s: does not begin like a Megatron index", idx_path);
    if (load64(p + 9) != 1)
        return err_set(ERR_DATA, "%s: version %llu is not 1", idx_path, (unsigned long long)load64(p + 9));
    m->code = (unsigned char)p[17];
    if (megatron_dtype(m->code) == NULL)
        return err_set(ERR_DATA, "%s: dtype code %d is not one of 1 to 8", idx_path, m->code);
    m->width = dtype[m->code].width;
    uint64_t s = load64(p + 18), d = load64(p + 26), room = idx->size - MEGATRON_HEADER;
    /* Each count alone first, so that the sum cannot overflow. */
    if (d < 1)
        return err_set(ERR_DATA, "%s: no document index, which has at least one entry", idx_path);
    if (s > room / 12 || d > room / 8 || s * 12 + d * 8 > room)
        return err_set(ERR_DATA, "%s: truncated: %zu bytes, too few for %llu sequences and %llu documents", idx_path, idx->size,
                       (unsigned long long)s, (unsigned long long)(d - 1));
    room -= s * 12 + d * 8;
    if (room != 0 && room != s)
        return err_set(ERR_DATA, "%s: too long: %llu bytes behind %llu sequences and %llu documents", idx_path, (unsigned long long)room,
                       (unsigned long long)s, (unsigned long long)(d - 1));
    m->n_seqs = (int64_t)s;
    m->n_docs = (int64_t)(d - 1);
    m->length = p + MEGATRON_HEADER;
    m->offset = m->length + 4 * s;
    m->document = m->offset + 8 * s;
    m->mode = room != 0 ? m->document + 8 * d : NULL;
    return 0;
}

struct megatron_pair {
    struct megatron m;
    struct arena *arena;
    struct fs_blob idx, bin;
};

int megatron_open(const char *prefix, struct megatron_pair **out)
{
    struct arena *a = arena_new();
    struct megatron_pair *p = arena_alloc(a, sizeof *p);
    const char *idx = arena_printf(a, "%s.idx", prefix), *bin = arena_printf(a, "%s.bin", prefix);
    int rc;
    *out = NULL;
    p->arena = a;
    TRY_OUT(rc, fs_map(idx, &p->idx));
    TRY_OUT(rc, fs_map(bin, &p->bin));
    TRY_OUT(rc, megatron_view(&p->m, idx, &p->idx, bin, &p->bin));
    *out = p;
    return 0;
out:
    megatron_close(p);
    return rc;
}

const struct megatron *megatron_of(const struct megatron_pair *p)
{
    return &p->m;
}

void megatron_let_go(const struct megatron *m)
{
    fs_blob_forget(m->idx);
    fs_blob_forget(m->bin);
}

void megatron_forget(const struct megatron_pair *p)
{
    megatron_let_go(&p->m);
}

void megatron_close(struct megatron_pair *p)
{
    if (p == NULL)
        return;
    fs_blob_free(&p->idx);
    fs_blob_free(&p->bin);
    arena_free(p->arena);
}

static int check_documents(const struct megatron *m)
{
    int64_t before = megatron_document(m, 0);
    if (before != 0)
        return err_set(ERR_DATA, "%s: the document index begins with %lld, not with 0", m->idx_path, (long long)before);
    for (int64_t d = 1; d <= m->n_docs; d++) {
        int64_t at = megatron_document(m, d);
        if (at < before)
            return err_set(ERR_DATA, "%s: document %lld begins at sequence %lld, before document %lld at %lld", m->idx_path, (long long)d,
                           (long long)at, (long long)(d - 1), (long long)before);
        before = at;
        megatron_walk(m, d);
    }
    if (before != m->n_seqs)
        return err_set(ERR_DATA, "%s: the document index ends with %lld, not with %lld, the number of sequences", m->idx_path,
                       (long long)before, (long long)m->n_seqs);
    return 0;
}

int megatron_check(const struct megatron *m, int64_t *tokens)
{
    int64_t sum = 0, width = m->width, most = INT64_MAX / 8 - INT32_MAX;
    int rc = 0;
    for (int64_t s = 0; s < m->n_seqs && rc == 0; s++) {
        int32_t n = megatron_length(m, s);
        int64_t at = megatron_offset(m, s);
        if (n < 0)
            rc = err_set(ERR_DATA, "%s: sequence %lld has length %d", m->idx_path, (long long)s, (int)n);
        else if (at != sum * width)
            rc = err_set(ERR_DATA, "%s: sequence %lld begins at byte %lld, but the one before it ends at %lld", m->idx_path, (long long)s,
                         (long long)at, (long long)(sum * width));
        else if ((sum += n) > most)
            rc = err_set(ERR_DATA, "%s: the lengths up to sequence %lld add up to more than can be", m->idx_path, (long long)s);
        megatron_walk(m, s);
    }
    if (tokens != NULL)
        *tokens = sum;
    TRY(rc);
    uint64_t want = (uint64_t)(sum * width);
    if (m->bytes != want)
        return err_set(ERR_DATA, "%s: %s: %llu bytes, where %lld tokens of %d bytes need %llu", m->bin_path, m->bytes < want ? "truncated" : "too long",
                       (unsigned long long)m->bytes, (long long)sum, m->width, (unsigned long long)want);
    return check_documents(m);
}

#define COPY(type) for (int64_t k = 0; k < n; k++) { type v; memcpy(&v, p + k * (int64_t)sizeof v, sizeof v); dst[k] = (int32_t)v; } break

void megatron_ids(const struct megatron *m, int64_t first, int64_t n, int32_t *dst)
{
    BUG_ON(first < 0 || n < 0 || (uint64_t)(first + n) > m->bytes / (uint64_t)m->width || !megatron_holds_ids(m));
    const char *p = m->ids + first * m->width;
    switch (m->code) {
    case MEGATRON_U8: COPY(uint8_t);
    case MEGATRON_I8: COPY(int8_t);
    case MEGATRON_I16: COPY(int16_t);
    case MEGATRON_U16: COPY(uint16_t);
    case MEGATRON_I64:
        for (int64_t k = 0; k < n; k++) {
            int64_t v;
            memcpy(&v, p + 8 * k, 8);
            dst[k] = v < 0 || v > INT32_MAX ? -1 : (int32_t)v;
        }
        break;
    default:
        if (n > 0)
            memcpy(dst, p, (size_t)n * 4);
    }
}
