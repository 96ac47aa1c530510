/* tokenfile_check.c -- everything about a token file, computed again.
 *
 * .bin is read once, chunk by chunk in any order by a team: the hash, the
 * largest id, the end-of-document tokens and the text bytes of a block are had
 * while it is in the cache.  What the chunks found is told in their order. */
#include "data/tokenfile_check.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "data/megatron.h"
#include "data/sidecar.h"
#include "data/tokenfile.h"

/* A block fits in the cache beside its ids; a group of chunks is told at once. */
enum { BLOCK_BYTES = 1 << 16, BLOCK_IDS = BLOCK_BYTES / 2, GROUP = 64 };

struct check {
    struct tokenfile_check *c;
    struct sidecar *side;
    struct megatron m;
    const char *bin_path, *idx_path, *json_path;
    struct fs_blob bin, idx;
    _Bool viewed, sound;                /* the header can be read; the index is right */
    int64_t vocab_size;                 /* 0: unknown */
    int32_t eod;
};

/* What a chunk of .bin told. */
struct found {
    struct hash hash;
    int64_t bad_at; int32_t bad_id;     /* first id beyond the vocabulary; -1: none */
    int64_t eods, docs_eod;             /* end-of-document tokens, and those at the end of a document */
    int64_t no_eod, first_no_eod;
    int64_t text, no_text;              /* bytes of the tokens, and tokens that have none */
};

static void tell(struct check *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void tell(struct check *k, const char *fmt, ...)
{
    char text[ERR_MSG_MAX];
    va_list ap;
    k->c->n_problems++;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (k->c->problem != NULL)
        k->c->problem(k->c->ctx, text);
}

static void tell_err(struct check *k)
{
    char text[ERR_MSG_MAX];
    memcpy(text, err_msg(), sizeof text);
    err_clear();
    tell(k, "%s", text);
}

/* Document that holds an id, of an index that is sound. */
static int64_t doc_of(const struct check *k, int64_t id)
{
    int64_t lo = 0, hi = k->m.n_docs;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (megatron_doc_first(&k->m, mid) <= id)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- the ids of a chunk */

static void scan_block(const struct check *k, int64_t first, int64_t n, const int32_t *ids, struct found *f)
{
    const uint32_t most = k->vocab_size > 0 ? (uint32_t)k->vocab_size : (uint32_t)INT32_MAX + 1;
    const int32_t *byte_len = k->c->byte_len, eod = k->eod;
    uint32_t top = 0;
    int64_t eods = 0;
    #pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++)
        top = (uint32_t)ids[i] > top ? (uint32_t)ids[i] : top;
    #pragma omp simd reduction(+ : eods)
    for (int64_t i = 0; i < n; i++)
        eods += ids[i] == eod;
    f->eods += k->c->has_eod ? eods : 0;
    for (int64_t i = 0; i < n && top >= most && f->bad_at < 0; i++)
        if ((uint32_t)ids[i] >= most) {
            f->bad_at = first + i;
            f->bad_id = ids[i];
        }
    if (byte_len == NULL || k->vocab_size != k->c->vocab_size || top >= most)
        return;
    for (int64_t i = 0; i < n; i++) {
        f->text += byte_len[ids[i]];
        f->no_text += byte_len[ids[i]] == 0;
    }
}

/* Documents that end in (from, to]. */
static void scan_docs(const struct check *k, int64_t from, int64_t to, struct found *f)
{
    const struct megatron *m = &k->m;
    int64_t lo = 0, hi = m->n_docs;     /* the first whose end is beyond from */
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (megatron_doc_first(m, mid + 1) <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    /* A document without ids ends where the one before it does: it has no end-of-document token either. */
    for (; lo < m->n_docs; lo++) {
        int32_t id = -1;
        int64_t begin = megatron_doc_first(m, lo), end = megatron_doc_first(m, lo + 1);
        if (end > to)
            break;
        if ((lo & (MEGATRON_SWEEP - 1)) == 0)
            fs_blob_forget(&k->idx);
        if (end > begin)
            megatron_ids(m, end - 1, 1, &id);
        if (id == k->eod)
            f->docs_eod++;
        else if (f->no_eod++ == 0)
            f->first_no_eod = lo;
    }
}

static void scan_chunk(const struct check *k, uint64_t at, uint64_t n, struct found *f)
{
    int32_t ids[BLOCK_IDS];
    const int width = k->viewed ? k->m.width : 1;
    _Bool ids_too = k->viewed && megatron_holds_ids(&k->m);
    struct hash_stream *h = k->c->structure_only ? NULL : hash_begin();
    *f = (struct found){ .bad_at = -1, .first_no_eod = -1 };
    for (uint64_t pos = at; pos < at + n; pos += BLOCK_BYTES) {
        uint64_t m = at + n - pos < BLOCK_BYTES ? at + n - pos : BLOCK_BYTES;
        if (h != NULL)
            hash_add(h, k->bin.data + pos, m);
        for (int64_t first = (int64_t)pos / width, left = (int64_t)m / width; ids_too && left > 0;) {
            int64_t part = left < BLOCK_IDS ? left : BLOCK_IDS;
            megatron_ids(&k->m, first, part, ids);
            scan_block(k, first, part, ids, f);
            first += part;
            left -= part;
        }
    }
    if (h != NULL)
        f->hash = hash_end(h);
    if (k->sound && k->c->has_eod && ids_too)
        scan_docs(k, at == 0 ? -1 : (int64_t)at / width, (int64_t)(at + n) / width, f);
}

/* ---- what they mean */

static void judge_chunk(struct check *k, int64_t i, uint64_t at, uint64_t n, const struct found *f, struct found *sum)
{
    if (k->side != NULL && !k->c->structure_only && i < k->side->n_bin && !hash_eq(&f->hash, &k->side->bin[i])) {
        if (k->sound && n > 0)
            tell(k, "%s: bytes %llu to %llu: checksum differs from %s; they hold documents %lld to %lld", k->bin_path, (unsigned long long)at,
                 (unsigned long long)(at + n), k->json_path, (long long)doc_of(k, (int64_t)at / k->m.width),
                 (long long)doc_of(k, (int64_t)(at + n - 1) / k->m.width));
        else
            tell(k, "%s: bytes %llu to %llu: checksum differs from %s", k->bin_path, (unsigned long long)at, (unsigned long long)(at + n), k->json_path);
    }
    if (f->bad_at >= 0 && sum->bad_at < 0) {
        sum->bad_at = f->bad_at;
        if (k->sound)
            tell(k, "%s: document %lld, token %lld (byte %lld): id %d is beyond the vocabulary of %lld tokens", k->bin_path,
                 (long long)doc_of(k, f->bad_at), (long long)f->bad_at, (long long)(f->bad_at * k->m.width), (int)f->bad_id, (long long)k->vocab_size);
        else
            tell(k, "%s: token %lld (byte %lld): id %d is beyond the vocabulary of %lld tokens", k->bin_path, (long long)f->bad_at,
                 (long long)(f->bad_at * k->m.width), (int)f->bad_id, (long long)k->vocab_size);
    }
    sum->eods += f->eods;
    sum->docs_eod += f->docs_eod;
    if (f->no_eod > 0 && sum->no_eod == 0)
        sum->first_no_eod = f->first_no_eod;
    sum->no_eod += f->no_eod;
    sum->text += f->text;
    sum->no_text += f->no_text;
}

static void judge_all(struct check *k, const struct found *sum)
{
    struct tokenfile_check *c = k->c;
    c->no_eod = sum->no_eod;
    c->first_no_eod = sum->first_no_eod;
    c->eod_inside = k->sound && c->has_eod ? sum->eods - sum->docs_eod : 0;
    c->text_bytes = c->byte_len != NULL && sum->bad_at < 0 && k->viewed && k->vocab_size == c->vocab_size ? sum->text : -1;
    /* Without a sidecar nobody promised an end-of-document token; the count is told, and that is all. */
    if (sum->no_eod > 0 && k->side != NULL)
        tell(k, "%s: %lld of %lld documents do not end with the end-of-document token %d; the first is document %lld", k->bin_path,
             (long long)sum->no_eod, (long long)c->documents, (int)k->eod, (long long)sum->first_no_eod);
    /* A special token inside may be from the text or not, so only without any can the bytes be told. */
    if (k->side != NULL && c->text_bytes >= 0 && c->keeps_text && sum->no_text == sum->docs_eod && c->text_bytes != k->side->info.text_bytes)
        tell(k, "%s: %lld bytes of text, but the tokens hold %lld", k->json_path, (long long)k->side->info.text_bytes, (long long)c->text_bytes);
}

static int check_bin(struct check *k)
{
    struct tokenfile_check *c = k->c;
    uint64_t chunk = k->side != NULL ? (uint64_t)k->side->chunk_bytes : TOKENFILE_CHUNK, size = k->bin.size;
    struct found *found, sum = { .bad_at = -1, .first_no_eod = -1 };
    int threads = c->threads > 0 ? c->threads : omp_get_max_threads();
    if (chunk % 8 != 0 || chunk < BLOCK_BYTES) {
        tell(k, "%s: \"chunk_bytes\": %llu is not a multiple of 8 and at least %d", k->json_path, (unsigned long long)chunk, BLOCK_BYTES);
        chunk = TOKENFILE_CHUNK;
        k->side->n_bin = 0;
    }
    int64_t n = (int64_t)(size / chunk + (size % chunk != 0));
    if (k->side != NULL && !k->c->structure_only && n != k->side->n_bin)
        tell(k, "%s: has %lld chunks, but %s has hashes of %d", k->bin_path, (long long)n, k->json_path, k->side->n_bin);
    found = malloc(GROUP * sizeof *found);
    if (found == NULL)
        return err_sys(ERR_IO, "memory for %d chunks", GROUP);
    for (int64_t i = 0; i < n; i += GROUP) {
        int64_t m = n - i < GROUP ? n - i : GROUP;
        #pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
        for (int64_t j = 0; j < m; j++) {
            uint64_t at = (uint64_t)(i + j) * chunk;
            scan_chunk(k, at, size - at < chunk ? size - at : chunk, &found[j]);
            fs_blob_forget_part(&k->bin, at, size - at < chunk ? size - at : chunk);
        }
        for (int64_t j = 0; j < m; j++) {
            uint64_t at = (uint64_t)(i + j) * chunk;
            judge_chunk(k, i + j, at, size - at < chunk ? size - at : chunk, &found[j], &sum);
        }
        if (c->progress != NULL)
            c->progress(c->ctx, (uint64_t)(i + m) * chunk < size ? (uint64_t)(i + m) * chunk : size, size);
    }
    free(found);
    if (n == 0 && k->sound && c->has_eod && k->m.n_docs > 0) {          /* documents of nothing at all */
        struct found f = { .bad_at = -1, .first_no_eod = -1 };
        scan_docs(k, -1, 0, &f);
        judge_chunk(k, 0, 0, 0, &f, &sum);
    }
    c->bytes += size;
    c->ids_read = k->viewed;
    judge_all(k, &sum);
    return 0;
}

/* ---- the index, and what the sidecar says of it */

static void check_idx(struct check *k)
{
    const struct sidecar *s = k->side;
    k->c->bytes += k->idx.size;
    if (s != NULL && sidecar_verify(s, s->idx, s->n_idx, k->idx_path, k->json_path, &k->idx) < 0)
        tell_err(k);
}

/* One sequence a document, none of them empty: what training relies on. */
static void check_ours(struct check *k)
{
    const struct tokenfile_info *i = &k->side->info;
    const struct megatron *m = &k->m;
    int64_t tokens = (int64_t)(m->bytes / (uint64_t)m->width);
    if (m->code != (i->dtype_bytes == 2 ? MEGATRON_U16 : MEGATRON_I32))
        tell(k, "%s: dtype code %d, but %s says %s", k->idx_path, m->code, k->json_path, i->dtype_bytes == 2 ? "u16 (8)" : "i32 (4)");
    if (m->n_docs != i->documents || m->n_seqs != i->documents || m->mode != NULL)
        tell(k, "%s: %lld sequences in %lld documents, but %s says %lld documents of one sequence", k->idx_path, (long long)m->n_seqs,
             (long long)m->n_docs, k->json_path, (long long)i->documents);
    if (tokens != i->tokens)
        tell(k, "%s: %lld tokens, but %s says %lld", k->bin_path, (long long)tokens, k->json_path, (long long)i->tokens);
    for (int64_t d = 0; d < m->n_docs && m->n_docs == m->n_seqs; d++) {
        megatron_walk(m, d);
        if (megatron_document(m, d) != d || megatron_length(m, d) < 1) {
            tell(k, megatron_document(m, d) != d ? "%s: document %lld is not sequence %lld" : "%s: document %lld has length 0", k->idx_path, (long long)d, (long long)d);
            break;
        }
    }
}

static void check_index(struct check *k)
{
    struct tokenfile_check *c = k->c;
    if (megatron_view(&k->m, k->idx_path, &k->idx, k->bin_path, &k->bin) < 0) {
        tell_err(k);
        return;
    }
    k->viewed = 1;
    c->documents = k->m.n_docs;
    c->sequences = k->m.n_seqs;
    c->tokens = (int64_t)(k->bin.size / (uint64_t)k->m.width);
    k->sound = megatron_check(&k->m, NULL) == 0;
    if (!k->sound)
        tell_err(k);
    if (!megatron_holds_ids(&k->m))
        tell(k, "%s: dtype %s holds no ids", k->idx_path, megatron_dtype(k->m.code));
    if (k->side != NULL && k->sound)
        check_ours(k);
}

static void check_vocab(struct check *k)
{
    struct tokenfile_check *c = k->c;
    const struct tokenfile_info *i = k->side != NULL ? &k->side->info : NULL;
    k->vocab_size = i != NULL ? i->vocab_size : c->vocab_size;
    k->eod = i != NULL ? i->eod_id : c->vocab_size > 0 ? c->eod_id : -1;
    c->has_eod = k->eod >= 0;
    if (i == NULL || c->vocab_size == 0)
        return;
    if (!hash_eq(&i->tokenizer, &c->tokenizer))
        tell(k, "%s: encoded with another tokenizer (%s, not %s)", k->json_path, i->tokenizer.hex, c->tokenizer.hex);
    else if (i->vocab_size != c->vocab_size)
        tell(k, "%s: a vocabulary of %lld tokens, but the tokenizer has %lld", k->json_path, (long long)i->vocab_size, (long long)c->vocab_size);
    else if (c->eod_id >= 0 && i->eod_id != c->eod_id)
        tell(k, "%s: documents end with %d, but the tokenizer ends them with %d", k->json_path, (int)i->eod_id, (int)c->eod_id);
}

/* A file that is not there is a problem, unless both are not. */
static int map(struct check *k, const char *path, const char *other, struct fs_blob *out)
{
    int rc = fs_map(path, out);
    if (rc == ERR_IO || (rc < 0 && !fs_exists(other)))
        return rc;
    if (rc < 0)
        tell_err(k);
    return rc == 0;
}

static int run(struct check *k, const char *prefix)
{
    struct tokenfile_check *c = k->c;
    int idx, bin;
    if (!fs_exists(k->idx_path) && !fs_exists(k->bin_path))
        TRY(tokenfile_named(prefix));
    idx = map(k, k->idx_path, k->bin_path, &k->idx);
    TRY(idx);
    bin = map(k, k->bin_path, k->idx_path, &k->bin);
    TRY(bin);
    if (fs_exists(k->json_path)) {
        if (sidecar_read(k->json_path, &k->side) < 0)
            tell_err(k);
        c->has_sidecar = k->side != NULL;
    }
    check_vocab(k);
    if (idx && bin)
        check_index(k);
    if (idx && !c->structure_only)
        check_idx(k);
    return bin && (!c->structure_only || c->vocab_size > 0) ? check_bin(k) : 0;
}

int tokenfile_check(const char *prefix, struct tokenfile_check *c)
{
    struct arena *a = arena_new();
    struct check k = { .c = c };
    k.bin_path = arena_printf(a, "%s.bin", prefix);
    k.idx_path = arena_printf(a, "%s.idx", prefix);
    k.json_path = arena_printf(a, "%s.json", prefix);
    c->has_sidecar = c->has_eod = c->ids_read = 0;
    c->n_problems = c->sequences = c->documents = c->tokens = c->no_eod = c->eod_inside = 0;
    c->first_no_eod = c->text_bytes = -1;
    c->bytes = 0;
    int rc = run(&k, prefix);
    fs_blob_free(&k.bin);
    fs_blob_free(&k.idx);
    sidecar_free(k.side);
    arena_free(a);
    return rc;
}
