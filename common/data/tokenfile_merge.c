/* tokenfile_merge.c -- inputs checked against each other, then copied in windows.
 *
 * Token files of one width are read with pread and written as they are; the
 * rest goes through 32-bit ids.  Hashing needs every byte in memory anyway, so
 * that a copy inside the kernel would save little and verify nothing. */
#include "data/tokenfile_merge.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "data/sidecar.h"
#include "data/tokenfile.h"
#include "data/tokenfile_merge_impl.h"

enum { WINDOW = 1 << 20, WINDOW_DOCS = 1 << 14 };

struct tokenfile_merge {
    const struct tokenfile_merge_how *how;
    struct arena *arena;
    struct merge_part *part;            /* [n_inputs] */
    _Bool plain;                        /* no vocabulary: a pair without a sidecar */
    struct tokenfile_info info;
    /* of a run */
    struct tokenfile_writer *w;
    struct tokenfile_merge_done done;
    uint64_t total;
    char *raw;                          /* [WINDOW] */
    int32_t *ids;                       /* [WINDOW / 2] */
    int64_t *length;                    /* [WINDOW_DOCS] */
    int64_t text_bytes;                 /* of a part, not told to the writer yet */
    uint64_t touched;                   /* bytes of mapped files since they were let go */
    const struct tokenfile_info *before;        /* of the part before, when it is described */
};

/* ---- what there is */

/* Many large indexes are open at one time; only that of the part at hand is in memory. */
static void forget(const struct merge_part *p)
{
    if (p->file != NULL)
        tokenfile_forget(p->file);
    if (p->pair != NULL)
        megatron_forget(p->pair);
}

static int open_part(struct tokenfile_merge *m, const char *prefix, struct merge_part *p)
{
    _Bool side = fs_exists(arena_printf(m->arena, "%s.json", prefix)), bin = fs_exists(arena_printf(m->arena, "%s.bin", prefix));
    p->prefix = prefix;
    if (side || !bin) {
        TRY(tokenfile_open_index(prefix, &p->file));
        p->m = tokenfile_megatron(p->file);
        return 0;
    }
    if (!m->how->foreign)
        return err_set(ERR_DATA, "%s: no sidecar %s.json: not a finished token file; --foreign takes a pair of Megatron's as it is", prefix, prefix);
    TRY(megatron_open(prefix, &p->pair));
    p->m = megatron_of(p->pair);
    if (!megatron_holds_ids(p->m))
        return err_set(ERR_DATA, "%s: dtype %s holds no ids", p->m->idx_path, megatron_dtype(p->m->code));
    return megatron_check(p->m, NULL);
}

/* Parts with a sidecar agree on the vocabulary, or with the one that is given. */
static int same_vocab(struct tokenfile_merge *m, const struct merge_part *p, const char **first)
{
    const struct tokenfile_info *i = tokenfile_about(p->file);
    struct tokenfile_info *to = &m->info;
    if (*first == NULL) {
        *first = p->prefix;
        to->tokenizer = i->tokenizer;
        to->vocab_size = i->vocab_size;
        to->eod_id = i->eod_id;
        to->eod_token = i->eod_token;
    }
    if (!hash_eq(&i->tokenizer, &to->tokenizer) || i->vocab_size != to->vocab_size)
        return err_set(ERR_DATA, "%s: encoded with another tokenizer than %s (%s, not %s)", p->prefix, *first, i->tokenizer.hex, to->tokenizer.hex);
    if (i->eod_id != to->eod_id)
        return err_set(ERR_DATA, "%s: documents end with token %d, those of %s with %d", p->prefix, (int)i->eod_id, *first, (int)to->eod_id);
    return 0;
}

static char *same_or(char *a, char *b, char *other)
{
    return (a == NULL || b == NULL) ? (a == b ? a : other) : strcmp(a, b) == 0 ? a : other;
}

static void add_counter(struct tokenfile_merge *m, const struct tokenfile_counter *c)
{
    struct tokenfile_info *to = &m->info;
    for (int k = 0; k < to->n_more; k++)
        if (strcmp(to->more[k].name, c->name) == 0) {
            to->more[k].n += c->n;
            return;
        }
    struct tokenfile_counter *more = arena_array(m->arena, (size_t)to->n_more + 1, sizeof *more);
    if (to->n_more > 0)
        memcpy(more, to->more, (size_t)to->n_more * sizeof *more);
    more[to->n_more++] = *c;
    to->more = more;
}

/* How documents were dealt out is over when they are together again: " --shards 4"
 * and " --shard 0/4" at the end go. */
static char *without_shards(struct arena *a, const char *how)
{
    static const char *const option[] = { "--shards ", "--shard " };
    char *s = arena_strdup(a, how != NULL ? how : "");
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(s), digits = 0, m = strlen(option[k]);
        while (digits < n && strchr("0123456789/", s[n - 1 - digits]) != NULL)
            digits++;
        if (digits == 0 || n < digits + m || memcmp(s + n - digits - m, option[k], m) != 0)
            continue;
        n -= digits + m;
        s[n > 0 && s[n - 1] == ' ' ? n - 1 : n] = '\0';
    }
    return s;
}

/* Two shards of one set come from the same texts, which are to be named once. */
static _Bool same_texts(struct arena *a, const struct tokenfile_info *i, const struct tokenfile_info *before)
{
    if (before == NULL || i->n_inputs != before->n_inputs || i->how == NULL || before->how == NULL || strcmp(i->how, before->how) != 0 ||
        strstr(i->how, "--shards ") == NULL || strcmp(without_shards(a, i->how), i->how) == 0)
        return 0;
    for (int k = 0; k < i->n_inputs; k++)
        if (strcmp(i->inputs[k].path, before->inputs[k].path) != 0 || !hash_eq(&i->inputs[k].hash, &before->inputs[k].hash))
            return 0;
    return 1;
}

static void add_info(struct tokenfile_merge *m, const struct tokenfile_info *i, _Bool first)
{
    static char mixed[] = "mixed", none[] = "";
    struct tokenfile_info *to = &m->info;
    char *docs = i->docs != NULL ? i->docs : none, *how = without_shards(m->arena, i->how);
    to->docs = first ? docs : same_or(to->docs, docs, mixed);
    to->key = first ? i->key : same_or(to->key, i->key, NULL);
    to->how = first ? how : same_or(to->how, how, mixed);
    to->invalid_utf8 += i->invalid_utf8;
    for (int k = 0; k < i->n_more; k++)
        add_counter(m, &i->more[k]);
    if (i->n_inputs == 0 || same_texts(m->arena, i, m->before))
        return;
    memcpy(to->inputs + to->n_inputs, i->inputs, (size_t)i->n_inputs * sizeof *i->inputs);
    to->n_inputs += i->n_inputs;
}

/* The texts of a foreign pair are not known; the pair itself stands for them. */
static void add_foreign(struct tokenfile_merge *m, const struct merge_part *p, _Bool first)
{
    static char docs[] = "unknown", none[] = "";
    struct tokenfile_input in[2] = {
        { arena_printf(m->arena, "%s", p->m->bin_path), p->m->bytes, p->bin_hash }, { arena_printf(m->arena, "%s", p->m->idx_path), p->idx_bytes, p->idx_hash } };
    struct tokenfile_info i = { .docs = docs, .how = none, .inputs = in, .n_inputs = 2 };
    add_info(m, &i, first);
}

static int check_width(const struct tokenfile_merge *m, const struct merge_part *p)
{
    const struct megatron *a = m->part[0].m;
    if (!m->plain || a->code == p->m->code)
        return 0;
    return err_set(ERR_DATA, "%s: %s, but %s is %s; without a vocabulary (-t) neither can become the other", p->prefix, megatron_dtype(p->m->code),
                   m->part[0].prefix, megatron_dtype(a->code));
}

static int fit_together(struct tokenfile_merge *m)
{
    const struct tokenfile_merge_how *h = m->how;
    const char *first = NULL;
    int n_side = 0, n_inputs = 0;
    if (h->vocab_size > 0) {
        first = "the vocabulary";
        m->info.tokenizer = h->tokenizer;
        m->info.vocab_size = h->vocab_size;
        m->info.eod_id = h->eod_id;
        m->info.eod_token = h->eod_token;
    }
    for (int i = 0; i < h->n_inputs; i++) {
        struct merge_part *p = &m->part[i];
        TRY(open_part(m, h->inputs[i], p));
        n_side += p->file != NULL;
        n_inputs += p->file != NULL ? tokenfile_about(p->file)->n_inputs : 2;
        if (p->file != NULL)
            TRY(same_vocab(m, p, &first));
        m->total += p->m->bytes;
        forget(p);
    }
    m->plain = h->vocab_size == 0 && n_side < h->n_inputs;
    for (int i = 0; i < h->n_inputs; i++)
        TRY(check_width(m, &m->part[i]));
    m->info.inputs = arena_array(m->arena, (size_t)n_inputs + 1, sizeof *m->info.inputs);
    m->info.parts = arena_array(m->arena, (size_t)h->n_inputs, sizeof *m->info.parts);
    return 0;
}

int tokenfile_merge_begin(const struct tokenfile_merge_how *how, struct tokenfile_merge **out)
{
    struct arena *a = arena_new();
    struct tokenfile_merge *m = arena_alloc(a, sizeof *m);
    m->arena = a;
    m->how = how;
    m->part = arena_array(a, (size_t)how->n_inputs, sizeof *m->part);
    int rc = fit_together(m);
    *out = rc < 0 ? NULL : m;
    if (rc < 0)
        tokenfile_merge_end(m);
    return rc;
}

void tokenfile_merge_end(struct tokenfile_merge *m)
{
    if (m == NULL)
        return;
    for (int i = 0; i < m->how->n_inputs; i++) {
        tokenfile_close(m->part[i].file);
        megatron_close(m->part[i].pair);
    }
    free(m->raw);
    free(m->ids);
    free(m->length);
    arena_free(m->arena);
}

/* ---- is it there already? */

static int hash_part(struct merge_part *p)
{
    if (p->hashed)
        return 0;
    if (p->file != NULL) {
        p->hash = tokenfile_hash(p->file);
    } else {
        uint64_t bytes;
        char both[64];
        if (p->bin_hash.hex[0] == '\0') {
            TRY(hash_file(p->m->bin_path, &p->bin_hash, &bytes));
            if (bytes != p->m->bytes)
                return err_set(ERR_DATA, "%s changed while it was read", p->m->bin_path);
        }
        TRY(hash_file(p->m->idx_path, &p->idx_hash, &p->idx_bytes));
        memcpy(both, p->bin_hash.hex, 32);
        memcpy(both + 32, p->idx_hash.hex, 32);
        p->hash = hash_bytes(both, sizeof both);
    }
    p->hashed = 1;
    return 0;
}

int tokenfile_merge_is_made(struct tokenfile_merge *m, const char *prefix)
{
    struct tokenfile *f;
    if (m->plain || !fs_exists(arena_printf(m->arena, "%s.json", prefix)) || tokenfile_open(prefix, &f) < 0) {
        err_clear();
        return 0;
    }
    const struct tokenfile_info *i = tokenfile_about(f);
    int rc = i->n_parts == m->how->n_inputs && hash_eq(&i->tokenizer, &m->info.tokenizer);
    for (int k = 0; k < i->n_parts && rc == 1; k++) {
        rc = hash_part(&m->part[k]);
        rc = rc < 0 ? rc : hash_eq(&m->part[k].hash, &i->parts[k].hash);
    }
    tokenfile_close(f);
    return rc;
}

static int not_an_input(const struct tokenfile_merge *m, const char *prefix)
{
    struct stat out, in;
    const char *bin = arena_printf(m->arena, "%s.bin", prefix);
    for (int i = 0; i < m->how->n_inputs && stat(bin, &out) == 0; i++)
        if (stat(m->part[i].m->bin_path, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return err_set(ERR_USAGE, "%s is one of the inputs and cannot be the output", prefix);
    return 0;
}

/* ---- copying */

static uint32_t top_id(const char *raw, int64_t n, int width)
{
    uint32_t top = 0;
    if (width == 2) {
        const uint16_t *v = (const uint16_t *)(const void *)raw;
        uint16_t t = 0;
        #pragma omp simd reduction(max : t)
        for (int64_t i = 0; i < n; i++)
            t = v[i] > t ? v[i] : t;
        return t;
    }
    const uint32_t *v = (const uint32_t *)(const void *)raw;
    #pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++)
        top = v[i] > top ? v[i] : top;
    return top;
}

static int bad_id(const struct tokenfile_merge *m, const struct merge_part *p, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++) {
        int32_t id;
        megatron_ids(p->m, i, 1, &id);
        if ((uint32_t)id >= (uint32_t)m->info.vocab_size)
            return err_set(ERR_DATA, "%s: token %lld: id %d is beyond the vocabulary of %lld tokens", p->m->bin_path, (long long)i, (int)id,
                           (long long)m->info.vocab_size);
    }
    return err_set(ERR_DATA, "%s changed while it was read", p->m->bin_path);
}

/* Gives the writer packed ids that are whole documents or parts of them. */
static int put(struct tokenfile_merge *m, const void *packed, const int64_t *length, int64_t n, _Bool open)
{
    int64_t text = m->text_bytes;
    m->text_bytes = 0;
    return tokenfile_append_packed(m->w, packed, length, n, open, (uint64_t)text);
}

/* A window of ids of a part and the documents in it: as many as fit. */
struct window { int64_t doc, at; };     /* document that goes on, first id not yet taken */

static int64_t next_window(struct tokenfile_merge *m, const struct merge_part *p, struct window *w, int64_t most, int64_t *n_docs, _Bool *open)
{
    int64_t begin = w->at, n = 0;
    *open = 0;
    while (w->doc < p->m->n_docs && n < WINDOW_DOCS && w->at - begin < most) {
        int64_t end = megatron_doc_first(p->m, w->doc + 1), stop = end - begin > most ? begin + most : end;
        m->length[n++] = stop - w->at;
        w->at = stop;
        if (stop < end) {
            *open = 1;
            break;
        }
        w->doc++;
    }
    *n_docs = n;
    return w->at - begin;
}

/* The chunk hashes of a part's own sidecar, while its bytes come by. */
struct source_check { const struct sidecar *side; struct hash_stream *h; uint64_t in_chunk; int chunk; };

static int source_bytes(struct source_check *c, const struct merge_part *p, const char *data, size_t n, _Bool last)
{
    const struct sidecar *s = c->side;
    while (n > 0 || (last && c->h != NULL)) {
        size_t room = (size_t)((uint64_t)s->chunk_bytes - c->in_chunk), k = n < room ? n : room;
        if (c->h == NULL)
            c->h = hash_begin();
        hash_add(c->h, data, k);
        c->in_chunk += k;
        data += k;
        n -= k;
        if (c->in_chunk < (uint64_t)s->chunk_bytes && !(last && n == 0))
            continue;
        struct hash h = hash_end(c->h);
        uint64_t at = (uint64_t)c->chunk * (uint64_t)s->chunk_bytes;
        c->h = NULL;
        if (c->chunk >= s->n_bin || !hash_eq(&h, &s->bin[c->chunk]))
            return err_set(ERR_DATA, "%s: bytes %llu to %llu: checksum differs from %s.json", p->m->bin_path, (unsigned long long)at,
                           (unsigned long long)(at + c->in_chunk), p->prefix);
        c->chunk++;
        c->in_chunk = 0;
    }
    return 0;
}

static void tick(struct tokenfile_merge *m, const struct merge_part *p, uint64_t bytes, int64_t n_docs)
{
    m->done.bytes += bytes;
    megatron_touch(p->m, &m->touched, (int64_t)bytes / p->m->width, n_docs);
    if (m->how->progress != NULL)
        m->how->progress(m->how->ctx, m->done.bytes, m->total);
}

/* A token file of the width of the output: bytes as they are. */
static int copy_bytes(struct tokenfile_merge *m, const struct merge_part *p, int fd, struct source_check *c)
{
    struct window w = { 0, 0 };
    int width = p->m->width;
    while (w.doc < p->m->n_docs) {
        int64_t n_docs, begin = w.at;
        _Bool open;
        int64_t n = next_window(m, p, &w, WINDOW / width, &n_docs, &open);
        size_t bytes = (size_t)n * (size_t)width;
        TRY(fs_pread(fd, p->m->bin_path, m->raw, bytes, (uint64_t)begin * (uint64_t)width));
        TRY(source_bytes(c, p, m->raw, bytes, w.doc == p->m->n_docs));
        if (top_id(m->raw, n, width) >= (uint64_t)m->info.vocab_size)
            return bad_id(m, p, begin, n);
        TRY(put(m, m->raw, m->length, n_docs, open));
        tick(m, p, bytes, n_docs);
    }
    return 0;
}

static int same_width(struct tokenfile_merge *m, const struct merge_part *p)
{
    struct source_check c = { .side = tokenfile_recorded(p->file) };
    int fd = open(p->m->bin_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(ERR_NOINPUT, "%s", p->m->bin_path);
    int rc = copy_bytes(m, p, fd, &c);
    close(fd);
    if (c.h != NULL)
        hash_end(c.h);
    return rc;
}

/* The last id of each whole document is the end-of-document token, or becomes it. */
static int put_ids(struct tokenfile_merge *m, const struct merge_part *p, int64_t doc, const int32_t *ids, int64_t n_docs, _Bool open, int32_t before)
{
    const int width = m->info.dtype_bytes;
    int64_t at = 0, from = 0, d0 = 0;
    for (int64_t d = 0; d < n_docs; d++) {
        at += m->length[d];
        if (d + 1 == n_docs && open)
            break;
        /* An open document may end with a window that is empty. */
        int32_t last = m->length[d] > 0 ? ids[at - 1] : d == 0 ? before : -1;
        if (last == m->info.eod_id)
            continue;
        if (!m->how->add_eod)
            return err_set(ERR_DATA, "%s: document %lld does not end with the end-of-document token %d; --eod adds it", p->m->bin_path, (long long)(doc + d),
                           (int)m->info.eod_id);
        char eod[4];
        const int64_t one = 1;
        TRY(tokenfile_pack(m->info.vocab_size, width, &m->info.eod_id, 1, eod));
        /* It continues the document; one without any ids has begun nothing. */
        if (m->length[d] > 0 || (d == 0 && before >= 0))
            TRY(put(m, m->raw + from * width, m->length + d0, d + 1 - d0, 1));
        else if (d > d0)
            TRY(put(m, m->raw + from * width, m->length + d0, d - d0, 0));
        TRY(put(m, eod, &one, 1, 0));
        m->done.added_eod++;
        from = at;
        d0 = d + 1;
    }
    return d0 < n_docs ? put(m, m->raw + from * width, m->length + d0, n_docs - d0, open) : 0;
}

static int copy_ids(struct tokenfile_merge *m, const struct merge_part *p, struct hash_stream *h)
{
    struct window w = { 0, 0 };
    int32_t before = -1;                /* last id of the document that is open */
    while (w.doc < p->m->n_docs) {
        int64_t n_docs, begin = w.at, doc = w.doc;
        _Bool open;
        int64_t n = next_window(m, p, &w, WINDOW / 4, &n_docs, &open);
        megatron_ids(p->m, begin, n, m->ids);
        if (n > 0)
            hash_add(h, p->m->ids + begin * p->m->width, (size_t)n * (size_t)p->m->width);
        if (tokenfile_pack(m->info.vocab_size, m->info.dtype_bytes, m->ids, (size_t)n, m->raw) < 0)
            return bad_id(m, p, begin, n);
        for (int64_t i = 0; i < n && p->file == NULL; i++)
            m->text_bytes += m->how->byte_len[m->ids[i]];
        if (p->file == NULL)
            TRY(put_ids(m, p, doc, m->ids, n_docs, open, before));
        else
            TRY(put(m, m->raw, m->length, n_docs, open));
        before = !open ? -1 : n > 0 ? m->ids[n - 1] : before;
        tick(m, p, (uint64_t)n * (uint64_t)p->m->width, n_docs);
    }
    return 0;
}

/* Anything else: ids become those of the output's width. */
static int through_ids(struct tokenfile_merge *m, struct merge_part *p)
{
    struct hash_stream *h = hash_begin();
    int rc = copy_ids(m, p, h);
    p->bin_hash = hash_end(h);
    return rc;
}

/* Documents with a template and without one in one file are hardly what was meant. */
static void note_odd(struct tokenfile_merge *m, const struct merge_part *p)
{
    struct tokenfile_merge_done *d = &m->done;
    if (p->file == NULL || d->odd != NULL)
        return;
    const char *how = without_shards(m->arena, tokenfile_about(p->file)->how);
    if (d->how == NULL) {
        d->how = how;
    } else if (strcmp(d->how, how) != 0) {
        d->odd = p->prefix;
        d->odd_how = how;
    }
}

/* Hashes of a foreign pair are filled in when it was read. */
static void describe(struct tokenfile_merge *m)
{
    m->info.n_inputs = m->info.n_more = 0;
    m->before = NULL;
    m->info.invalid_utf8 = 0;
    m->info.n_parts = m->how->n_inputs;
    for (int k = 0; k < m->how->n_inputs; k++) {
        struct merge_part *p = &m->part[k];
        p->i_input = m->info.n_inputs;
        if (p->file != NULL)
            add_info(m, tokenfile_about(p->file), k == 0);
        else
            add_foreign(m, p, k == 0);
        m->before = p->file != NULL ? tokenfile_about(p->file) : NULL;
        note_odd(m, p);
        m->info.parts[k] = (struct tokenfile_part){ arena_strdup(m->arena, p->prefix), p->m->n_docs, (int64_t)(p->m->bytes / (uint64_t)p->m->width), { "" } };
    }
}

static int copy_part(struct tokenfile_merge *m, int k)
{
    struct merge_part *p = &m->part[k];
    m->text_bytes = p->file != NULL ? tokenfile_about(p->file)->text_bytes : 0;
    if (p->file != NULL && p->m->width == m->info.dtype_bytes)
        return same_width(m, p);
    if (p->file != NULL)
        TRY(tokenfile_verify(p->file));
    TRY(through_ids(m, p));
    return put(m, m->raw, m->length, 0, 0);     /* what text there is behind the last put */
}

static int run_whole(struct tokenfile_merge *m, const char *prefix)
{
    struct tokenfile_info done;
    int rc = 0;
    m->info.tool = m->how->tool;
    m->info.argv = m->how->argv;
    m->info.n_argv = m->how->n_argv;
    m->info.dtype_bytes = tokenfile_dtype_bytes(m->info.vocab_size);
    describe(m);
    TRY(tokenfile_create(prefix, &m->info, &m->w));
    for (int k = 0; k < m->how->n_inputs && rc == 0; k++) {
        struct merge_part *p = &m->part[k];
        struct tokenfile_input *in = m->info.inputs + p->i_input;
        int64_t empty = *tokenfile_empty(m->w);
        rc = copy_part(m, k);
        if (p->file != NULL)
            *tokenfile_empty(m->w) = empty + tokenfile_about(p->file)->empty;
        if (rc == 0)
            rc = hash_part(p);
        m->info.parts[k].hash = p->hash;
        if (p->file == NULL) {
            in[0].hash = p->bin_hash;
            in[1].hash = p->idx_hash;
            in[1].bytes = p->idx_bytes;
        }
        forget(p);
    }
    if (rc < 0) {
        tokenfile_abort(m->w);
        return rc;
    }
    TRY(tokenfile_commit(m->w, m->info.invalid_utf8, &done));
    m->done.sidecar = 1;
    m->done.documents = m->done.sequences = done.documents;
    m->done.tokens = done.tokens;
    return 0;
}

int tokenfile_merge_run(struct tokenfile_merge *m, const char *prefix, struct tokenfile_merge_done *done)
{
    TRY(not_an_input(m, prefix));
    m->done = (struct tokenfile_merge_done){ 0 };
    if (m->raw == NULL) {
        m->raw = malloc(WINDOW);
        m->ids = malloc((size_t)WINDOW);
        m->length = malloc((size_t)WINDOW_DOCS * sizeof *m->length);
        if (m->raw == NULL || m->ids == NULL || m->length == NULL)
            return err_sys(ERR_IO, "memory to copy with");
    }
    int rc = m->plain ? tokenfile_merge_plain(m->part, m->how->n_inputs, prefix, m->how->progress, m->how->ctx, &m->done) : run_whole(m, prefix);
    *done = m->done;
    return rc;
}
