/* tokenfile.c -- reading token files, believing nothing.
 *
 * Everything is mapped; what the index says is compared with the sidecar and
 * with the sizes once, at open, so that later look-ups need no checks.  Ids are
 * compared with the vocabulary when they are read: a scan at open would read
 * terabytes. */
#include "data/tokenfile.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "data/megatron.h"
#include "data/sidecar.h"

struct tokenfile {
    struct sidecar *side;
    struct arena *arena;
    const char *prefix, *bin_path, *idx_path, *json_path;
    struct fs_blob bin, idx;
    struct megatron m;                  /* of the two */
};

static int check_header(struct tokenfile *f)
{
    const struct tokenfile_info *i = &f->side->info;
    const struct megatron *m = &f->m;
    TRY(megatron_view(&f->m, f->idx_path, &f->idx, f->bin_path, &f->bin));
    if (m->code != (i->dtype_bytes == 2 ? MEGATRON_U16 : MEGATRON_I32))
        return err_set(ERR_DATA, "%s: dtype code %d, but %s says %s", f->idx_path, m->code, f->json_path, i->dtype_bytes == 2 ? "u16 (8)" : "i32 (4)");
    if (m->n_seqs != i->documents || m->n_docs != i->documents)
        return err_set(ERR_DATA, "%s: %lld sequences in %lld documents, but %s says %lld documents of one sequence", f->idx_path,
                       (long long)m->n_seqs, (long long)m->n_docs, f->json_path, (long long)i->documents);
    if (m->mode != NULL)
        return err_set(ERR_DATA, "%s: too long: %lld bytes behind the document index", f->idx_path, (long long)m->n_seqs);
    return 0;
}

static int check_documents(const struct tokenfile *f)
{
    const struct tokenfile_info *i = &f->side->info;
    const struct megatron *m = &f->m;
    int64_t tokens = 0;
    for (int64_t d = 0; d < i->documents; d++) {
        int32_t n = megatron_length(m, d);
        if (n < 1)
            return err_set(ERR_DATA, "%s: document %lld has length %d", f->idx_path, (long long)d, (int)n);
        if (megatron_offset(m, d) != tokens * i->dtype_bytes)
            return err_set(ERR_DATA, "%s: document %lld does not begin where the one before it ends", f->idx_path, (long long)d);
        if (megatron_document(m, d) != d)
            return err_set(ERR_DATA, "%s: document %lld is not sequence %lld", f->idx_path, (long long)d, (long long)d);
        tokens += n;
        megatron_walk(m, d);
    }
    if (megatron_document(m, i->documents) != i->documents)
        return err_set(ERR_DATA, "%s: the last document is not the last sequence", f->idx_path);
    if (tokens != i->tokens)
        return err_set(ERR_DATA, "%s: the lengths add up to %lld tokens, but %s says %lld", f->idx_path, (long long)tokens, f->json_path, (long long)i->tokens);
    return 0;
}

int tokenfile_verify(const struct tokenfile *f)
{
    const struct sidecar *s = f->side;
    return sidecar_verify(s, s->bin, s->n_bin, f->bin_path, f->json_path, &f->bin);
}

static int check_all(struct tokenfile *f, uint64_t verify_max)
{
    const struct sidecar *s = f->side;
    const struct tokenfile_info *i = &s->info;
    uint64_t want = (uint64_t)i->tokens * (uint64_t)i->dtype_bytes;
    TRY(check_header(f));
    if (f->bin.size != want)
        return err_set(ERR_DATA, "%s: %s: %zu bytes, where %lld tokens of %d bytes need %llu", f->bin_path,
                       f->bin.size < want ? "truncated" : "too long", f->bin.size, (long long)i->tokens, i->dtype_bytes, (unsigned long long)want);
    TRY(check_documents(f));
    TRY(sidecar_verify(s, s->idx, s->n_idx, f->idx_path, f->json_path, &f->idx));
    return f->bin.size <= verify_max ? tokenfile_verify(f) : 0;
}

int tokenfile_named(const char *prefix)
{
    static const char *const ext[] = { ".bin", ".idx", ".json" };
    size_t n = strlen(prefix);

    for (size_t i = 0; i < sizeof ext / sizeof ext[0]; i++) {
        size_t k = strlen(ext[i]);
        if (n > k && strcmp(prefix + n - k, ext[i]) == 0 && fs_exists(prefix))
            return err_set(ERR_NOINPUT, "%s: a token file is named without %s: %.*s", prefix, ext[i], (int)(n - k), prefix);
    }
    return 0;
}

static int open_and_check(const char *prefix, uint64_t verify_max, struct tokenfile **out)
{
    int rc;
    *out = NULL;
    struct arena *a = arena_new();
    struct tokenfile *f = arena_alloc(a, sizeof *f);
    f->arena = a;
    f->prefix = arena_strdup(a, prefix);
    f->bin_path = arena_printf(a, "%s.bin", prefix);
    f->idx_path = arena_printf(a, "%s.idx", prefix);
    f->json_path = arena_printf(a, "%s.json", prefix);
    if (!fs_exists(f->json_path) && fs_exists(f->bin_path)) {
        rc = err_set(ERR_DATA, "%s: no sidecar %s: not a finished token file of moe-tokenize encode", prefix, f->json_path);
        goto out;
    }
    if (!fs_exists(f->json_path))
        TRY_OUT(rc, tokenfile_named(prefix));
    TRY_OUT(rc, sidecar_read(f->json_path, &f->side));
    TRY_OUT(rc, fs_map(f->idx_path, &f->idx));
    TRY_OUT(rc, fs_map(f->bin_path, &f->bin));
    TRY_OUT(rc, check_all(f, verify_max));
    *out = f;
    return 0;
out:
    tokenfile_close(f);
    return rc;
}

int tokenfile_open(const char *prefix, struct tokenfile **out)
{
    return open_and_check(prefix, TOKENFILE_VERIFY_MAX, out);
}

int tokenfile_open_index(const char *prefix, struct tokenfile **out)
{
    return open_and_check(prefix, 0, out);
}

void tokenfile_forget(const struct tokenfile *f)
{
    fs_blob_forget(&f->idx);
    fs_blob_forget(&f->bin);
}

void tokenfile_close(struct tokenfile *f)
{
    if (f == NULL)
        return;
    fs_blob_free(&f->bin);
    fs_blob_free(&f->idx);
    sidecar_free(f->side);
    arena_free(f->arena);
}

int tokenfile_sidecar(const char *prefix, struct tokenfile_info **out)
{
    struct arena *a = arena_new();
    struct sidecar *s = NULL;
    int rc = sidecar_read(arena_printf(a, "%s.json", prefix), &s);
    *out = s != NULL ? &s->info : NULL;
    arena_free(a);
    return rc;
}

void tokenfile_info_free(struct tokenfile_info *i)
{
    sidecar_free((struct sidecar *)i);
}

const struct tokenfile_info *tokenfile_about(const struct tokenfile *f)
{
    return &f->side->info;
}

const struct sidecar *tokenfile_recorded(const struct tokenfile *f)
{
    return f->side;
}

const struct megatron *tokenfile_megatron(const struct tokenfile *f)
{
    return &f->m;
}

const char *tokenfile_prefix(const struct tokenfile *f)
{
    return f->prefix;
}

struct hash tokenfile_hash(const struct tokenfile *f)
{
    return sidecar_hash(f->side);
}

int tokenfile_ids(const struct tokenfile *f, int64_t first, int64_t n, int32_t *dst)
{
    const struct tokenfile_info *i = &f->side->info;
    BUG_ON(first < 0 || n < 0 || first > i->tokens - n);
    if (i->dtype_bytes == 2) {
        const char *p = f->bin.data + 2 * first;
        for (int64_t k = 0; k < n; k++) {
            uint16_t v;
            memcpy(&v, p + 2 * k, 2);
            dst[k] = v;
        }
    } else if (n > 0) {
        memcpy(dst, f->bin.data + 4 * first, (size_t)n * 4);
    }
    for (int64_t k = 0; k < n; k++)
        if (dst[k] < 0 || dst[k] >= i->vocab_size)
            return err_set(ERR_DATA, "%s: token %lld: id %d is beyond the vocabulary of %lld tokens", f->bin_path,
                           (long long)(first + k), (int)dst[k], (long long)i->vocab_size);
    return 0;
}

int64_t tokenfile_doc_first(const struct tokenfile *f, int64_t d)
{
    const struct tokenfile_info *i = &f->side->info;
    return d == i->documents ? i->tokens : megatron_offset(&f->m, d) / i->dtype_bytes;
}

int64_t tokenfile_doc_of(const struct tokenfile *f, int64_t t)
{
    int64_t lo = 0, hi = f->side->info.documents;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (tokenfile_doc_first(f, mid) <= t)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}
