/* against.c -- the documents of a text beside those of a token file, one by one.
 *
 * Nothing is believed of how the files were made: documents are dealt out to
 * shards by the counts of what was compared, as encode does by what it wrote. */
#include "against.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "data/megatron.h"
#include "tokenize.h"

struct side {
    const char *prefix;
    struct tokenfile *file;             /* with a sidecar */
    struct megatron_pair *pair;         /* without */
    const struct megatron *m;
    int64_t doc, at, done;              /* document at hand, the next of all its ids, ids of whole documents */
    uint64_t touched;
};

struct against {
    const struct outputs_plan *plan;
    struct arena *arena;
    struct side *side; int n;           /* [shard][key] */
    int width, open_shard;
};

static int open_side(struct against *g, struct side *s, const char *prefix)
{
    s->prefix = prefix;
    if (tokenize_has_sidecar(prefix) || !fs_exists(arena_printf(g->arena, "%s.bin", prefix))) {
        TRY(tokenfile_open_index(prefix, &s->file));
        s->m = tokenfile_megatron(s->file);
        return 0;
    }
    TRY(megatron_open(prefix, &s->pair));
    s->m = megatron_of(s->pair);
    if (!megatron_holds_ids(s->m))
        return err_set(ERR_DATA, "%s: dtype %s holds no ids", s->m->idx_path, megatron_dtype(s->m->code));
    return megatron_check(s->m, NULL);
}

int against_open(const struct outputs_plan *plan, struct against **out)
{
    struct arena *a = arena_new();
    struct against *g = arena_alloc(a, sizeof *g);
    int rc = 0;
    g->arena = a;
    g->plan = plan;
    g->n = outputs_n_files(plan);
    g->side = arena_array(a, (size_t)g->n, sizeof *g->side);
    g->width = tokenfile_dtype_bytes(plan->info.vocab_size);
    g->open_shard = -1;
    const char **prefix = outputs_prefixes(a, plan);
    for (int i = 0; i < g->n && rc == 0; i++)
        rc = open_side(g, &g->side[i], prefix[i]);
    *out = rc < 0 ? NULL : g;
    if (rc < 0)
        against_close(g);
    return rc;
}

void against_close(struct against *g)
{
    if (g == NULL)
        return;
    for (int i = 0; i < g->n; i++) {
        tokenfile_close(g->side[i].file);
        megatron_close(g->side[i].pair);
    }
    arena_free(g->arena);
}

static int32_t id_of(const struct against *g, const unsigned char *packed)
{
    uint16_t v;
    int32_t w;
    if (g->width == 4) {
        memcpy(&w, packed, 4);
        return w;
    }
    memcpy(&v, packed, 2);
    return v;
}

static int differ(const struct side *s, const char *file, const char *text)
{
    return err_set(ERR_NO, "%s: document %lld, token %lld: the file has %s, the text gives %s", s->m->bin_path, (long long)s->doc,
                   (long long)(s->at - megatron_doc_first(s->m, s->doc)), file, text);
}

/* n ids of the document at hand; closes: they are its last. */
static int compare(const struct against *g, struct side *s, const unsigned char *packed, int64_t n, _Bool closes)
{
    enum { BLOCK = 4096 };
    int32_t ids[BLOCK];
    char file[32], text[32];
    if (s->doc >= s->m->n_docs)
        return err_set(ERR_NO, "%s: has %lld documents, the texts give more", s->m->bin_path, (long long)s->m->n_docs);
    int64_t end = megatron_doc_first(s->m, s->doc + 1);
    while (n > 0 && s->at < end) {
        int64_t k = n < end - s->at ? n : end - s->at;
        k = k < BLOCK ? k : BLOCK;
        megatron_ids(s->m, s->at, k, ids);
        for (int64_t i = 0; i < k; i++, s->at++) {
            int32_t id = id_of(g, packed + i * g->width);
            if (id == ids[i])
                continue;
            snprintf(file, sizeof file, "%d", (int)ids[i]);
            snprintf(text, sizeof text, "%d", (int)id);
            return differ(s, file, text);
        }
        packed += k * g->width;
        n -= k;
        megatron_touch(s->m, &s->touched, k, 0);
    }
    if (n > 0) {
        snprintf(text, sizeof text, "%d", (int)id_of(g, packed));
        return differ(s, "no more", text);
    }
    if (closes && s->at < end) {
        megatron_ids(s->m, s->at, 1, ids);
        snprintf(file, sizeof file, "%d", (int)ids[0]);
        return differ(s, file, "no more");
    }
    if (closes) {
        s->doc++;
        s->done = s->at;
        megatron_touch(s->m, &s->touched, 0, 1);
    }
    return 0;
}

/* The shard that encode would have chosen. */
static int least(const struct against *g)
{
    int best = 0, n_keys = g->plan->n_keys;
    int64_t fewest = INT64_MAX;
    for (int s = 0; s < g->plan->n_shards; s++) {
        int64_t n = 0;
        for (int k = 0; k < n_keys; k++)
            n += g->side[s * n_keys + k].done;
        if (n < fewest) {
            fewest = n;
            best = s;
        }
    }
    return best;
}

int against_add(struct against *g, const struct outputs_rows *rows, int64_t n_rows, _Bool open)
{
    size_t at[64] = { 0 };              /* token, per key */
    int n_keys = g->plan->n_keys;
    BUG_ON(n_keys > 64);
    for (int64_t row = 0; row < n_rows; row++) {
        int s = g->open_shard >= 0 ? g->open_shard : least(g);
        _Bool closes = !(open && row + 1 == n_rows);
        for (int k = 0; k < n_keys; k++) {
            TRY(compare(g, &g->side[s * n_keys + k], rows[k].packed + at[k] * (size_t)g->width, rows[k].length[row], closes));
            at[k] += (size_t)rows[k].length[row];
        }
        g->open_shard = closes ? -1 : s;
    }
    return 0;
}

int against_end(struct against *g, int64_t *documents, int64_t *tokens)
{
    *documents = *tokens = 0;
    for (int i = 0; i < g->n; i++) {
        const struct side *s = &g->side[i];
        if (s->doc < s->m->n_docs)
            return err_set(ERR_NO, "%s: has %lld documents, the texts give %lld", s->m->bin_path, (long long)s->m->n_docs, (long long)s->doc);
        *documents += s->doc;
        *tokens += s->done;
    }
    return 0;
}
