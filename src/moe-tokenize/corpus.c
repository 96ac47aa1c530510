/* corpus.c -- see corpus.h.
 *
 * Each thread does all that can be done apart: it finds the documents, encodes
 * them and writes the ids as the file has them.  What is left for the one that
 * takes a slab in its turn is to append bytes. */
#include "corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/out.h"
#include "base/progress.h"
#include "data/tokenfile.h"
#include "tok/text_team.h"

/* What a thread made of the documents of one key. */
struct packed { unsigned char *ids; size_t cap, n; int64_t *length, *bytes; size_t cap_rows; int64_t invalid; _Bool differs; struct tok_difference difference; };

struct crew {
    struct corpus *c;
    struct text_source *source;
    int n_keys, dtype_bytes;
    struct tok_encoder **e, **other;    /* [threads] */
    struct tok_span **span;             /* [threads], for the documents of one key */
    size_t *cap_span;
    struct packed *slot;                /* [slots][n_keys] */
    struct progress *progress;
    uint64_t before;                    /* bytes that an earlier run has done: no part of the rate */
    int64_t rows_before;                /* of this input, in slabs that are taken */
    int64_t *counts;                    /* [n_keys + TEXT_N_KINDS], for a mark */
};

enum { KEEP_BYTES = 16 << 20 };

/* The old content is not kept. */
static int room(void *p, size_t *cap, size_t n, size_t size)
{
    void **at = p;
    if (n <= *cap && *at != NULL)
        return 0;
    free(*at);
    *cap = n + n / 4 + 64;
    if ((*at = malloc(*cap * size)) != NULL)
        return 0;
    *cap = 0;
    return err_sys(ERR_IO, "memory for %zu tokens", n);
}

static int compare(struct crew *w, int thread, struct packed *p, const struct tok_span *span, int64_t n, const int32_t *ids, const int64_t *ends)
{
    const int32_t *ids2;
    const int64_t *ends2;
    uint64_t invalid = 0;
    TRY(tok_encode(w->other[thread], span, n, &ids2, &ends2, &invalid));
    p->differs = tok_encode_differ(w->e[thread], n, ids, ends, ids2, ends2, &p->difference);
    return 0;
}

static const char *list(char buf[64], const int32_t ids[4])
{
    size_t n = 0;
    for (int i = 0; i < 4 && ids[i] >= 0; i++)
        n += (size_t)snprintf(buf + n, 64 - n, "%s%d", i > 0 ? " " : "", (int)ids[i]);
    return n > 0 ? buf : "none";
}

/* The difference that comes first in the text, when slabs are taken in their order. */
static int differs(const struct crew *w, const struct packed *p, const struct text_slab *b, int key)
{
    const struct tok_difference *d = &p->difference;
    char fast[64], slow[64], of_key[80] = "";
    if (w->n_keys > 1)
        snprintf(of_key, sizeof of_key, ", key \"%.60s\"", w->c->how.keys[key]);
    return err_set(ERR_NO, "%s: document %lld%s, about byte %zu, token %lld: the fast way gives %s, the slow way %s", w->c->paths[b->input],
                   (long long)(w->rows_before + d->doc + 1), of_key, d->byte, (long long)d->token, list(fast, d->a), list(slow, d->b));
}

static int pack(struct crew *w, struct packed *p, const struct tok_span *span, int64_t n, const int32_t *ids, const int64_t *ends, _Bool ends_doc)
{
    const struct corpus *c = w->c;
    size_t size = (size_t)w->dtype_bytes, rows = p->cap_rows;
    int64_t begin = 0;
    TRY(room(&p->ids, &p->cap, ((size_t)(n > 0 ? ends[n - 1] : 0) + (size_t)n) * size, 1));
    TRY(room(&p->length, &rows, (size_t)n, sizeof *p->length));
    TRY(room(&p->bytes, &p->cap_rows, (size_t)n, sizeof *p->bytes));
    p->n = 0;
    for (int64_t i = 0; i < n; begin = ends[i++]) {
        size_t k = (size_t)(ends[i] - begin);
        TRY(tokenfile_pack(c->vocab_size, w->dtype_bytes, ids + begin, k, p->ids + p->n));
        p->n += k * size;
        p->length[i] = (int64_t)k;
        p->bytes[i] = (int64_t)span[i].n;
        if (c->eod >= 0 && (i + 1 < n || ends_doc)) {
            TRY(tokenfile_pack(c->vocab_size, w->dtype_bytes, &c->eod, 1, p->ids + p->n));
            p->n += size;
            p->length[i]++;
        }
    }
    return 0;
}

static int work(void *arg, int thread, int slot, const struct text_slab *b)
{
    struct crew *w = arg;
    int n_keys = b->docs == TEXT_JSONL ? w->n_keys : 1;
    for (int k = 0; k < n_keys; k++) {
        struct packed *p = &w->slot[slot * w->n_keys + k];
        const struct tok_span *span = b->doc;
        const int32_t *ids;
        const int64_t *ends;
        uint64_t invalid = 0;
        if (n_keys > 1) {
            TRY(room(&w->span[thread], &w->cap_span[thread], (size_t)b->n_rows, sizeof **w->span));
            for (int64_t i = 0; i < b->n_rows; i++)
                w->span[thread][i] = b->doc[i * n_keys + k];
            span = w->span[thread];
        }
        int rc = tok_encode_on(w->e[thread], !b->begins_doc, span, b->n_rows, &ids, &ends, &invalid);
        if (rc == 0 && w->c->other != NULL)
            rc = compare(w, thread, p, span, b->n_rows, ids, ends);
        if (rc == 0)
            rc = pack(w, p, span, b->n_rows, ids, ends, b->ends_doc);
        if (rc < 0)
            return err_add("%s", w->c->paths[b->input]);
        p->invalid = (int64_t)invalid;
    }
    return 0;
}

static int put(struct crew *w, const struct packed *p, const struct text_slab *b)
{
    struct corpus *c = w->c;
    struct outputs_rows rows[64];
    if (c->other != NULL)
        return 0;
    if (c->outputs == NULL && c->against == NULL)
        return out_write(p->ids, p->n);
    for (int k = 0; k < w->n_keys; k++)
        rows[k] = (struct outputs_rows){ p[k].ids, p[k].length, p[k].bytes };
    if (c->against != NULL && against_add(c->against, rows, b->n_rows, !b->ends_doc) < 0)
        return err_add("%s", c->paths[b->input]);
    if (c->against != NULL)
        return 0;
    return outputs_add(c->outputs, rows, b->n_rows, !b->ends_doc);
}

static int take(void *arg, int slot, const struct text_slab *b)
{
    struct crew *w = arg;
    struct corpus *c = w->c;
    struct packed *p = &w->slot[slot * w->n_keys];
    int n_keys = b->docs == TEXT_JSONL ? w->n_keys : 1;
    if (b->first)
        w->rows_before = 0;
    for (int k = 0; k < n_keys; k++) {
        if (p[k].differs)
            return differs(w, &p[k], b, k);
        c->invalid[k] += p[k].invalid;
        for (int64_t i = 0; i < b->n_rows; i++)
            c->text_bytes += p[k].bytes[i];
    }
    w->rows_before += b->n_rows;
    TRY(put(w, p, b));
    progress_set(w->progress, text_source_stored(w->source) - w->before);
    for (int k = 0; k < n_keys; k++)
        if (p[k].cap > KEEP_BYTES) {
            free(p[k].ids);
            p[k].ids = NULL;
            p[k].cap = 0;
        }
    if (!b->last)
        return 0;
    c->input[b->input].bytes = b->stored;
    c->input[b->input].hash = b->hash;
    if (c->outputs == NULL)
        return 0;
    memcpy(w->counts, c->invalid, (size_t)w->n_keys * sizeof *w->counts);
    memcpy(w->counts + w->n_keys, text_source_counts(w->source), TEXT_N_KINDS * sizeof *w->counts);
    return outputs_mark(c->outputs, b->input, w->counts);
}

/* Everything for each thread; what is there is freed by crew_free(). */
static int crew_new(struct crew *w)
{
    struct corpus *c = w->c;
    size_t n = (size_t)c->threads, slots = (size_t)text_team_slots(c->threads) * (size_t)w->n_keys;
    w->e = calloc(n, sizeof *w->e);
    w->other = calloc(n, sizeof *w->other);
    w->span = calloc(n, sizeof *w->span);
    w->cap_span = calloc(n, sizeof *w->cap_span);
    w->slot = calloc(slots, sizeof *w->slot);
    w->counts = calloc((size_t)w->n_keys + TEXT_N_KINDS, sizeof *w->counts);
    if (w->e == NULL || w->other == NULL || w->span == NULL || w->cap_span == NULL || w->slot == NULL || w->counts == NULL)
        return err_sys(ERR_IO, "memory for %d threads", c->threads);
    for (size_t i = 0; i < n; i++) {
        TRY(tok_encoder_share(c->e, &w->e[i]));
        if (c->other != NULL)
            TRY(tok_encoder_share(c->other, &w->other[i]));
    }
    return text_source_open(c->paths, c->n_paths, &c->how, &w->source);
}

static void crew_free(struct crew *w)
{
    struct corpus *c = w->c;
    for (int i = 0; i < c->threads; i++) {
        if (w->e != NULL)
            tok_encoder_free(w->e[i]);
        if (w->other != NULL)
            tok_encoder_free(w->other[i]);
        if (w->span != NULL)
            free(w->span[i]);
    }
    for (int i = 0; w->slot != NULL && i < text_team_slots(c->threads) * w->n_keys; i++) {
        free(w->slot[i].ids);
        free(w->slot[i].length);
        free(w->slot[i].bytes);
    }
    free(w->e);
    free(w->other);
    free(w->span);
    free(w->cap_span);
    free(w->slot);
    free(w->counts);
    text_source_close(w->source);
}

static size_t cut(const void *e, const uint8_t *s, size_t n, size_t from)
{
    return tok_encoder_cut(e, s, n, from);
}

/* What an earlier run has done. */
static void go_on(struct crew *w)
{
    const struct corpus *c = w->c;
    const int64_t *counts = outputs_counts(c->outputs);
    if (counts == NULL)
        return;
    for (int k = 0; k < w->n_keys; k++)
        c->invalid[k] = counts[k];
    for (int i = 0; i < outputs_n_done(c->outputs); i++)
        w->before += c->input[i].bytes;
    text_source_add_counts(w->source, counts + w->n_keys);
    text_source_skip_to(w->source, outputs_n_done(c->outputs), w->before);
}

int corpus_run(struct corpus *c)
{
    static const struct text_team_ops ops = { work, take };
    struct crew w = { .c = c, .n_keys = c->how.n_keys > 0 ? c->how.n_keys : 1 };
    double begun = clock_s();
    int rc;
    w.dtype_bytes = c->outputs != NULL || c->against != NULL ? tokenfile_dtype_bytes(c->vocab_size) : 4;
    c->how.cut = c->other == NULL ? cut : NULL;         /* the slow way sees whole texts */
    c->how.cut_arg = c->e;
    TRY_OUT(rc, crew_new(&w));
    if (c->outputs != NULL)
        go_on(&w);
    w.progress = progress_begin("encode", c->stored > w.before ? c->stored - w.before : 0, "B");
    rc = text_team_run(w.source, c->threads, &ops, &w);
    progress_end(w.progress);
    memcpy(c->count, text_source_counts(w.source), sizeof c->count);
out:
    c->seconds = clock_s() - begun;
    crew_free(&w);
    return rc;
}
