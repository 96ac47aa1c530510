/* tokenfile_merge_plain.c -- pairs that nothing vouches for, as one more such pair.
 *
 * Only the numbers in the index change: byte offsets by what came before in
 * .bin, the document index by the sequences before.  Refuses modes in some
 * parts and not in others, which could not be told apart again. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "data/tokenfile_merge_impl.h"

enum { STEP = 1 << 15 };

/* Bytes that do not change, in pieces that show progress. */
static int put_bytes(struct fs_out *f, const struct megatron *m, const char *p, uint64_t n, struct tokenfile_merge_done *done, uint64_t total,
                     void (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx)
{
    while (n > 0) {
        size_t k = n < (8u << 20) ? (size_t)n : (8u << 20);
        TRY(fs_out_write(f, p, k));
        megatron_let_go(m);
        p += k;
        n -= k;
        if (done == NULL)
            continue;
        done->bytes += k;
        if (progress != NULL)
            progress(ctx, done->bytes, total);
    }
    return 0;
}

/* 64-bit numbers, each moved on by add. */
static int put_moved(struct fs_out *f, const struct megatron *m, const char *p, int64_t n, int64_t add, int64_t *buf)
{
    for (int64_t i = 0; i < n;) {
        int64_t k = n - i < STEP ? n - i : STEP;
        memcpy(buf, p + 8 * i, (size_t)k * 8);
        for (int64_t j = 0; j < k; j++)
            buf[j] += add;
        TRY(fs_out_write(f, buf, (size_t)k * 8));
        i += k;
        if (i % MEGATRON_SWEEP == 0)
            megatron_let_go(m);
    }
    return 0;
}

static int write_idx(struct fs_out *f, const struct merge_part *part, int n, const struct tokenfile_merge_done *sum, int64_t *buf)
{
    const uint64_t version = 1, s = (uint64_t)sum->sequences, d = (uint64_t)sum->documents + 1;
    unsigned char head[MEGATRON_HEADER] = "MMIDIDX\0\0";
    int64_t at = 0;
    memcpy(head + 9, &version, 8);
    head[17] = (unsigned char)part[0].m->code;
    memcpy(head + 18, &s, 8);
    memcpy(head + 26, &d, 8);
    TRY(fs_out_write(f, head, sizeof head));
    for (int i = 0; i < n; i++)
        TRY(put_bytes(f, part[i].m, part[i].m->length, 4 * (uint64_t)part[i].m->n_seqs, NULL, 0, NULL, NULL));
    for (int i = 0; i < n; at += (int64_t)part[i++].m->bytes)
        TRY(put_moved(f, part[i].m, part[i].m->offset, part[i].m->n_seqs, at, buf));
    at = 0;
    for (int i = 0; i < n; at += part[i++].m->n_seqs)
        TRY(put_moved(f, part[i].m, part[i].m->document, part[i].m->n_docs, at, buf));
    TRY(fs_out_write(f, &at, 8));
    for (int i = 0; i < n && part[0].m->mode != NULL; i++)
        TRY(put_bytes(f, part[i].m, part[i].m->mode, (uint64_t)part[i].m->n_seqs, NULL, 0, NULL, NULL));
    return 0;
}

static int add_up(const struct merge_part *part, int n, struct tokenfile_merge_done *done, uint64_t *total)
{
    *total = 0;
    for (int i = 0; i < n; i++) {
        const struct megatron *m = part[i].m;
        if ((m->mode != NULL) != (part[0].m->mode != NULL))
            return err_set(ERR_DATA, "%s has modes and %s has none", m->mode != NULL ? part[i].prefix : part[0].prefix,
                           m->mode != NULL ? part[0].prefix : part[i].prefix);
        done->documents += m->n_docs;
        done->sequences += m->n_seqs;
        done->tokens += (int64_t)(m->bytes / (uint64_t)m->width);
        *total += m->bytes;
    }
    return 0;
}

/* The index last: a .bin without one is no data set. */
static int place(struct fs_out *bin, struct fs_out *idx, const char *json)
{
    struct err_state err;
    struct arena *a = arena_new();
    const char *path = arena_strdup(a, fs_out_path(bin));
    int rc = fs_exists(json) ? fs_remove_tree(json) : 0;
    if (rc < 0)
        fs_out_abort(bin);
    else
        rc = fs_out_commit(bin);
    if (rc < 0) {
        fs_out_abort(idx);
    } else if ((rc = fs_out_commit(idx)) < 0) {
        err_take(&err);
        fs_remove_tree(path);
        rc = err_put(&err);
    }
    arena_free(a);
    return rc;
}

int tokenfile_merge_plain(struct merge_part *part, int n, const char *prefix, void (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                          struct tokenfile_merge_done *done)
{
    struct arena *a = arena_new();
    struct fs_out *bin = NULL, *idx = NULL;
    int64_t *buf = malloc((size_t)STEP * sizeof *buf);
    uint64_t total;
    int rc = buf == NULL ? err_sys(ERR_IO, "memory to copy with") : 0;
    if (rc < 0)
        goto out;
    TRY_OUT(rc, add_up(part, n, done, &total));
    TRY_OUT(rc, fs_mkdirs(fs_parent(a, prefix)));
    TRY_OUT(rc, fs_out_open(arena_printf(a, "%s.bin", prefix), &bin));
    TRY_OUT(rc, fs_out_open(arena_printf(a, "%s.idx", prefix), &idx));
    for (int i = 0; i < n; i++)
        TRY_OUT(rc, put_bytes(bin, part[i].m, part[i].m->ids, part[i].m->bytes, done, total, progress, ctx));
    TRY_OUT(rc, write_idx(idx, part, n, done, buf));
    rc = place(bin, idx, arena_printf(a, "%s.json", prefix));
    bin = idx = NULL;
out:
    fs_out_abort(bin);
    fs_out_abort(idx);
    free(buf);
    arena_free(a);
    return rc;
}
