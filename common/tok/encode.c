/* encode.c -- many texts to ids, by threads.
 *
 * Threads share a text by cutting it where pieces end in any case.  Every part
 * is encoded into its thread's own memory, and the parts are put together in
 * order afterwards: the result cannot depend on who worked when. */
#include "tok/encode.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/grow.h"
#include "tok/fast.h"
#include "tok/slow.h"
#include "tok/vocab_store.h"

enum { PART_BYTES = 64 << 10 };         /* what a thread takes at a time */

struct worker {
    struct tok_fast_mem *fast;
    struct tok_slow_mem *ref;
    struct tok_ids ids;
    uint64_t invalid;
    struct err_state err;
};

struct part { const uint8_t *s; size_t n, at, n_ids; int64_t doc; int worker; _Bool begins_doc, ends_doc; };

struct tok_encoder {
    const struct tok_vocab *v;
    struct tok_how how;
    _Bool shares;               /* ref and fast are another encoder's */
    struct tok_slow *ref;
    struct tok_fast *fast;      /* NULL: the slow way */
    struct worker *workers;
    struct part *parts; size_t n_parts; int64_t cap_parts;
    int32_t *ids; size_t cap_ids;
    int64_t *ends; size_t cap_ends;
};

int tok_encoder_new(const struct tok_vocab *v, const struct tok_how *how, struct tok_encoder **out)
{
    struct tok_encoder *e = calloc(1, sizeof *e);
    int rc;
    *out = NULL;
    if (e == NULL)
        return err_sys(ERR_IO, "memory for an encoder");
    e->v = v;
    if (how != NULL)
        e->how = *how;
    if (e->how.threads <= 0)
        e->how.threads = omp_get_max_threads();
    if ((e->workers = calloc((size_t)e->how.threads, sizeof *e->workers)) == NULL) {
        rc = err_sys(ERR_IO, "memory for %d threads", e->how.threads);
        goto out;
    }
    TRY_OUT(rc, tok_slow_new(v, &e->ref));
    if (!e->how.slow)
        TRY_OUT(rc, tok_fast_new(v, e->ref, e->how.specials, &e->fast));
    *out = e;
    return 0;
out:
    tok_encoder_free(e);
    return rc;
}

int tok_encoder_share(const struct tok_encoder *e, struct tok_encoder **out)
{
    struct tok_encoder *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s == NULL || (s->workers = calloc(1, sizeof *s->workers)) == NULL) {
        free(s);
        return err_sys(ERR_IO, "memory for an encoder");
    }
    s->v = e->v;
    s->how = e->how;
    s->how.threads = 1;
    s->shares = 1;
    s->ref = e->ref;
    s->fast = e->fast;
    *out = s;
    return 0;
}

void tok_encoder_free(struct tok_encoder *e)
{
    if (e == NULL)
        return;
    for (int i = 0; e->workers != NULL && i < e->how.threads; i++) {
        tok_fast_mem_free(e->workers[i].fast);
        tok_slow_mem_free(e->workers[i].ref);
        free(e->workers[i].ids.v);
    }
    free(e->workers);
    if (!e->shares) {
        tok_fast_free(e->fast);
        tok_slow_free(e->ref);
    }
    free(e->parts);
    free(e->ids);
    free(e->ends);
    free(e);
}

_Bool tok_encoder_is_fast(const struct tok_encoder *e)
{
    return e->fast != NULL;
}

size_t tok_encoder_cut(const struct tok_encoder *e, const uint8_t *s, size_t n, size_t from)
{
    return e->fast != NULL && !e->how.template ? tok_fast_cut(e->fast, s, n, from) : n;
}

static int encode_part(const struct tok_encoder *e, struct worker *w, struct part *p)
{
    const struct tok_vocab *v = e->v;
    p->at = w->ids.n;
    for (int i = 0; e->how.template && p->begins_doc && i < v->n_before; i++)
        tok_ids_put(&w->ids, v->before[i]);
    if (e->fast != NULL)
        TRY(tok_fast_run(e->fast, w->fast, p->s, p->n, p->begins_doc, &w->ids, &w->invalid));
    else
        TRY(tok_slow_run(e->ref, w->ref, p->s, p->n, e->how.specials, &w->ids, &w->invalid));
    for (int i = 0; e->how.template && p->ends_doc && i < v->n_after; i++)
        tok_ids_put(&w->ids, v->after[i]);
    p->n_ids = w->ids.n - p->at;
    return 0;
}

static int add_part(struct tok_encoder *e, struct part p)
{
    TRY(grow_plain(&e->parts, &e->cap_parts, (int64_t)e->n_parts + 1, sizeof *e->parts, "parts of a text"));
    e->parts[e->n_parts++] = p;
    return 0;
}

static int plan_parts(struct tok_encoder *e, _Bool goes_on, const struct tok_span *docs, int64_t n_docs)
{
    e->n_parts = 0;
    for (int64_t d = 0; d < n_docs; d++) {
        size_t pos = 0, n = docs[d].n;
        do {
            size_t end = n;
            if (e->fast != NULL && n - pos > PART_BYTES + PART_BYTES / 2)
                end = tok_fast_cut(e->fast, docs[d].s, n, pos + PART_BYTES);
            TRY(add_part(e, (struct part){ .s = docs[d].s + pos, .n = end - pos, .doc = d, .begins_doc = pos == 0 && !(d == 0 && goes_on), .ends_doc = end == n }));
            pos = end;
        } while (pos < n);
    }
    return 0;
}

/* Room for n items, rounded up; the old content is not kept. */
static void *fresh(void *old, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap && old != NULL)
        return old;
    free(old);
    *cap = n + n / 4 + 64;
    return malloc(*cap * size);
}

/* A run of parts that together are worth a thread's turn. */
static size_t run_end(const struct tok_encoder *e, size_t i)
{
    size_t n = 0;
    while (i < e->n_parts && n < PART_BYTES)
        n += e->parts[i++].n + 64;
    return i;
}

static int begin_worker(const struct tok_encoder *e, struct worker *w)
{
    w->err.code = 0;
    w->invalid = 0;
    w->ids.n = 0;
    if (e->fast != NULL && w->fast == NULL && (w->fast = tok_fast_mem_new()) == NULL)
        return err_sys(ERR_IO, "memory for a cache of pieces");
    if (e->fast == NULL && w->ref == NULL && (w->ref = tok_slow_mem_new()) == NULL)
        return err_sys(ERR_IO, "memory for a thread");
    return tok_ids_room(&w->ids, 1);    /* results of no ids have an address too */
}

/* A thread that has company of its own kind waits for no lock here. */
static int encode_alone(struct tok_encoder *e)
{
    TRY(begin_worker(e, &e->workers[0]));
    for (size_t i = 0; i < e->n_parts; i++) {
        e->parts[i].worker = 0;
        TRY(encode_part(e, &e->workers[0], &e->parts[i]));
    }
    return 0;
}

static int encode_parts(struct tok_encoder *e)
{
    if (e->how.threads == 1)
        return encode_alone(e);
    size_t next = 0;
    int failed = 0;             /* under the same lock as next */
    #pragma omp parallel num_threads(e->how.threads)
    {
        struct worker *w = &e->workers[omp_get_thread_num()];
        size_t i, end;
        if (begin_worker(e, w) < 0)
            err_take(&w->err);
        while (w->err.code == 0) {
            #pragma omp critical(tok_encode_turn)
            {
                i = next;
                next = end = failed ? i : run_end(e, i);
            }
            if (i == end)
                break;
            for (; i < end && w->err.code == 0; i++) {
                e->parts[i].worker = omp_get_thread_num();
                if (encode_part(e, w, &e->parts[i]) < 0)
                    err_take(&w->err);
            }
        }
        if (w->err.code != 0) {
            #pragma omp critical(tok_encode_turn)
            failed = 1;
        }
    }
    for (int i = 0; i < e->how.threads; i++)
        if (e->workers[i].err.code != 0)
            return err_put(&e->workers[i].err);
    return 0;
}

int tok_encode(struct tok_encoder *e, const struct tok_span *docs, int64_t n_docs,
               const int32_t **ids, const int64_t **ends, uint64_t *invalid)
{
    return tok_encode_on(e, 0, docs, n_docs, ids, ends, invalid);
}

int tok_encode_on(struct tok_encoder *e, _Bool goes_on, const struct tok_span *docs, int64_t n_docs,
                  const int32_t **ids, const int64_t **ends, uint64_t *invalid)
{
    size_t total = 0, k = 0;
    TRY(plan_parts(e, goes_on, docs, n_docs));
    TRY(encode_parts(e));
    for (size_t i = 0; i < e->n_parts; i++)
        total += e->parts[i].n_ids;
    /* One thread's parts lie in their order already. */
    const _Bool gather = e->how.threads > 1;
    if (gather)
        e->ids = fresh(e->ids, &e->cap_ids, total, sizeof *e->ids);
    e->ends = fresh(e->ends, &e->cap_ends, (size_t)n_docs, sizeof *e->ends);
    if ((gather && e->ids == NULL) || e->ends == NULL) {
        e->cap_ids = e->ids == NULL ? 0 : e->cap_ids;
        e->cap_ends = e->ends == NULL ? 0 : e->cap_ends;
        return err_sys(ERR_IO, "memory for %zu ids", total);
    }
    for (int i = 0; i < e->how.threads; i++)
        *invalid += e->workers[i].invalid;
    for (size_t i = 0; i < e->n_parts; i++) {
        const struct part *p = &e->parts[i];
        if (gather && p->n_ids > 0)
            memcpy(e->ids + k, e->workers[p->worker].ids.v + p->at, p->n_ids * sizeof *e->ids);
        k += p->n_ids;
        if (p->ends_doc)
            e->ends[p->doc] = (int64_t)k;
    }
    *ids = gather ? e->ids : e->workers[0].ids.v;
    *ends = e->ends;
    return 0;
}

static void rest_of(int32_t to[4], const int32_t *ids, int64_t from, int64_t end)
{
    for (int i = 0; i < 4; i++)
        to[i] = from + i < end ? ids[from + i] : -1;
}

_Bool tok_encode_differ(const struct tok_encoder *e, int64_t n_docs, const int32_t *ids_a, const int64_t *ends_a,
                        const int32_t *ids_b, const int64_t *ends_b, struct tok_difference *out)
{
    int64_t a = 0, b = 0;
    *out = (struct tok_difference){ 0 };
    for (; out->doc < n_docs; a = ends_a[out->doc], b = ends_b[out->doc++]) {
        int64_t end_a = ends_a[out->doc], end_b = ends_b[out->doc];
        if (end_a - a == end_b - b && (end_a == a || memcmp(ids_a + a, ids_b + b, (size_t)(end_a - a) * sizeof *ids_a) == 0))
            continue;
        while (a < end_a && b < end_b && ids_a[a] == ids_b[b]) {
            size_t n = 0;
            tok_vocab_bytes(e->v, ids_a[a++], &n);
            out->byte += n;
            out->token++;
            b++;
        }
        rest_of(out->a, ids_a, a, end_a);
        rest_of(out->b, ids_b, b, end_b);
        return 1;
    }
    return 0;
}
