/* outputs.c -- see outputs.h.
 *
 * Invariants: (1) the journal never says more than is on the disk; (2) a name
 * outside STEM.part changes only after the journal said "ready", from when on
 * only moving is left, which can be done again; (3) a sidecar is moved after
 * the files it speaks of. */
#include "outputs.h"

#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "tok/text_input.h"
#include "tokenize.h"
#include "train/lock.h"

/* A mark may cost a twentieth of the time: on a disk that syncs in a
 * millisecond that is after nearly every input, elsewhere less often. */
enum { MARK_SHARE = 20 };

struct outputs {
    struct outputs_plan *plan;
    struct arena *arena;
    int n;                              /* files: [shard][key] */
    const char **prefix, **part;        /* [n]; where they go, where they grow */
    const char *dir, *journal;
    struct run_lock *lock;
    struct tokenfile_writer **writer;   /* [n] */
    struct tokenfile_mark *mark;        /* [n], scratch */
    int *was;                           /* [n] hashes that the journal has */
    struct journal_head head;
    struct journal_state *from;         /* where an earlier run came to */
    struct journal_input *pending;      /* [n_inputs]: done and not in the journal, from n_marked on */
    int n_marked, n_pending, open_shard;
    double marked_s, cost_s;
    _Bool sealed, finished, hashed;
};

int outputs_n_files(const struct outputs_plan *plan)
{
    return plan->n_keys * plan->n_shards;
}

/* "-00002-of-00008" of one of several jobs. */
static const char *job_tail(struct arena *a, const struct outputs_plan *p)
{
    return p->of > 0 ? arena_printf(a, "-%05d-of-%05d", p->shard, p->of) : "";
}

const char **outputs_prefixes(struct arena *a, const struct outputs_plan *p)
{
    const char **prefix = arena_array(a, (size_t)outputs_n_files(p), sizeof *prefix);
    for (int s = 0; s < p->n_shards; s++)
        for (int k = 0; k < p->n_keys; k++) {
            const char *tail = p->n_shards > 1 ? arena_printf(a, "-%05d-of-%05d", s, p->n_shards) : job_tail(a, p);
            const char *key = p->n_keys > 1 ? arena_printf(a, "_%s", p->keys[k]) : "";
            prefix[s * p->n_keys + k] = arena_printf(a, "%s%s%s", p->prefix, key, tail);
        }
    return prefix;
}

static void make_names(struct outputs *o)
{
    struct arena *a = o->arena;
    o->n = outputs_n_files(o->plan);
    o->prefix = outputs_prefixes(a, o->plan);
    o->part = arena_array(a, (size_t)o->n, sizeof *o->part);
    o->dir = arena_printf(a, "%s%s.part", o->plan->prefix, job_tail(a, o->plan));
    o->journal = arena_printf(a, "%s/journal.jsonl", o->dir);
    for (int i = 0; i < o->n; i++)
        o->part[i] = fs_join(a, o->dir, fs_base(o->prefix[i]));
}

/* The sidecar's name is also that of a vocabulary called PREFIX.json, or of a
 * text of that name; and who knows what else is read. */
static int spare_inputs(const struct outputs *o)
{
    static const char *const ends[] = { ".json", ".bin", ".idx" };
    const struct tokenfile_info *in = &o->plan->info;
    for (int i = 0; i < o->n; i++)
        for (int e = 0; e < 3; e++) {
            const char *path = arena_printf(o->arena, "%s%s", o->prefix[i], ends[e]);
            if (!fs_exists(path))
                continue;
            if (tokenize_same_file(path, o->plan->vocab_path))
                return err_set(ERR_CREATE, "%s is the vocabulary; the %s of %s would replace it", path, e == 0 ? "sidecar" : "token file", o->prefix[i]);
            for (int k = 0; k < in->n_inputs; k++)
                if (tokenize_same_file(path, in->inputs[k].path))
                    return err_set(ERR_CREATE, "%s is one of the texts; the %s of %s would replace it", path, e == 0 ? "sidecar" : "token file", o->prefix[i]);
        }
    return 0;
}

/* ---- is it there already? */

static int hash_inputs(struct outputs *o)
{
    struct tokenfile_info *i = &o->plan->info;
    if (o->hashed)
        return 0;
    for (int k = 0; k < i->n_inputs; k++)
        TRY(text_input_hash_stored(i->inputs[k].path, &i->inputs[k].hash, &i->inputs[k].bytes));
    o->hashed = 1;
    return 0;
}

static struct tokenfile_info info_of(const struct outputs *o, int i)
{
    struct tokenfile_info info = o->plan->info;
    info.key = o->plan->keyed ? (char *)(uintptr_t)o->plan->keys[i % o->plan->n_keys] : NULL;
    return info;
}

static _Bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* 1 when file i was made from the same inputs in the same way and is whole. */
static int is_up_to_date(struct outputs *o, int i)
{
    struct tokenfile *f;
    struct tokenfile_info want = info_of(o, i);
    if (tokenfile_open(o->prefix[i], &f) < 0) {
        err_clear();
        return 0;
    }
    const struct tokenfile_info *is = tokenfile_about(f);
    int same = hash_eq(&is->tokenizer, &want.tokenizer) && is->eod_id == want.eod_id && strcmp(is->docs, want.docs) == 0 &&
               same_text(is->key, want.key) && same_text(is->how, want.how) && is->n_inputs == want.n_inputs;
    if (same && (same = hash_inputs(o)) == 0) {
        same = 1;
        for (int k = 0; k < is->n_inputs && same; k++)
            same = is->inputs[k].bytes == want.inputs[k].bytes && hash_eq(&is->inputs[k].hash, &want.inputs[k].hash);
    }
    tokenfile_close(f);
    return same;
}

/* All files, none, or a refusal. */
static int may_create(struct outputs *o, _Bool *up_to_date)
{
    static const char *const ends[] = { ".json", ".bin", ".idx" };
    int n_same = 0;
    *up_to_date = 0;
    if (o->plan->force)
        return 0;
    for (int i = 0; i < o->n; i++)
        for (int e = 0; e < 3; e++) {
            char *path = arena_printf(o->arena, "%s%s", o->prefix[i], ends[e]);
            if (!fs_exists(path))
                continue;
            int same = e == 0 ? is_up_to_date(o, i) : 0;
            if (same < 0)
                return same;
            if (same == 0)
                return err_set(ERR_CREATE, e == 0 ? "%s exists and was not made from these inputs; -f replaces it"
                                                  : "%s exists without a sidecar; -f replaces it", path);
            n_same++;
            break;
        }
    if (n_same > 0 && n_same < o->n)
        return err_set(ERR_CREATE, "%d of the %d token files %s... exist; -f makes all of them again", n_same, o->n, o->plan->prefix);
    *up_to_date = n_same > 0;
    return 0;
}

/* ---- the folder they grow in */

static int take_dir(struct outputs *o, _Bool left)
{
    int rc;
    TRY_OUT(rc, fs_mkdirs(o->dir));
    TRY_OUT(rc, lock_take(o->dir, &o->lock));
    /* Another run may have finished and removed it between the two. */
    if (!fs_exists(arena_printf(o->arena, "%s/lock", o->dir)))
        return err_set(ERR_LOCKED, "%s: another run has just finished; run this again", o->dir);
    return 0;
out:
    if (!left && rc != ERR_LOCKED) {    /* ours, and empty but for a lock that failed */
        struct err_state err;
        err_take(&err);
        fs_remove_tree(o->dir);
        err_put(&err);
    }
    return rc;
}

static int clear_dir(struct outputs *o)
{
    char **names;
    int n;
    TRY(fs_list(o->arena, o->dir, &names, &n));
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], "lock") != 0)
            TRY(fs_remove_tree(fs_join(o->arena, o->dir, names[i])));
    return 0;
}

/* Why the inputs that are done have to be done again; NULL: they are the same. */
static const char *changed(struct outputs *o)
{
    const struct outputs_plan *p = o->plan;
    for (int i = 0; i < o->from->n_done; i++) {
        struct tokenfile_input *in = &p->info.inputs[i];
        const struct journal_input *was = &o->from->input[i];
        struct hash h;
        uint64_t bytes;
        if (p->mtime_ns[i] < 0)
            return arena_printf(o->arena, "%s cannot be read again", strcmp(in->path, "-") == 0 ? "standard input" : in->path);
        if (in->bytes != was->bytes)
            return arena_printf(o->arena, "%s has changed", in->path);
        /* The same bytes with another date are the same. */
        if (p->mtime_ns[i] != was->mtime_ns && (hash_file(in->path, &h, &bytes) < 0 || bytes != was->bytes || !hash_eq(&h, &was->hash))) {
            err_clear();
            return arena_printf(o->arena, "%s has changed", in->path);
        }
        in->hash = was->hash;
    }
    return NULL;
}

static struct journal_head head_of(const struct outputs *o)
{
    const struct tokenfile_info *i = &o->plan->info;
    struct hash_stream *h = hash_begin();
    for (int k = 0; k < i->n_inputs; k++)
        hash_add(h, i->inputs[k].path, strlen(i->inputs[k].path) + 1);
    return (struct journal_head){ .tool = i->tool, .tokenizer = i->tokenizer, .inputs = hash_end(h), .n_inputs = i->n_inputs, .n_outputs = o->n,
        .how = arena_printf(o->arena, "--docs %s %s eod %d", i->docs, i->how, (int)i->eod_id) };
}

static void close_writers(struct outputs *o)
{
    for (int i = 0; i < o->n; i++) {
        tokenfile_abort(o->writer[i]);
        o->writer[i] = NULL;
    }
}

static int open_writers(struct outputs *o)
{
    for (int i = 0; i < o->n; i++) {
        struct tokenfile_info info = info_of(o, i);
        TRY(tokenfile_part_open(o->part[i], &info, o->from != NULL ? &o->from->mark[i] : NULL, &o->writer[i]));
        o->was[i] = o->from != NULL ? o->from->mark[i].n_bin : 0;
    }
    return 0;
}

/* A sidecar is in its place or in ours; a file that is nowhere was taken away. */
static const char *incomplete(struct outputs *o)
{
    for (int i = 0; i < o->n; i++)
        if (!fs_exists(arena_printf(o->arena, "%s.json", o->part[i])) && !fs_exists(arena_printf(o->arena, "%s.json", o->prefix[i])))
            return "files of it are missing";
    return NULL;
}

/* What an earlier run left: where it came to, or why that is of no use. */
static int look_back(struct outputs *o)
{
    const char *why;
    int rc = 0;
    if (journal_read(o->journal, &o->head, &o->from, &why)) {
        if (o->from->ready) {
            if ((why = incomplete(o)) == NULL)
                return 0;
        } else if (o->from->n_done == 0 || o->from->n_counts != o->plan->n_counts) {
            why = "";
        } else if ((why = changed(o)) == NULL) {
            if ((rc = open_writers(o)) == 0)
                return 0;
            close_writers(o);
            if (rc != ERR_DATA)
                return rc;
            why = arena_strdup(o->arena, err_msg());
            err_clear();
        }
        journal_free(o->from);
        o->from = NULL;
    }
    if (why[0] != '\0')
        log_info("%s: begun anew: %s", o->dir, why);
    return clear_dir(o);
}

static int place_all(struct outputs *o)
{
    o->sealed = 1;
    for (int i = 0; i < o->n; i++)
        TRY(tokenfile_place(o->part[i], o->prefix[i]));
    o->finished = 1;
    return 0;
}

static int begin(struct outputs *o, enum outputs_begun *begun)
{
    _Bool up_to_date = 0, left = fs_exists(o->dir);
    TRY(spare_inputs(o));
    *begun = OUTPUTS_UP_TO_DATE;
    if (!left) {
        TRY(may_create(o, &up_to_date));
        if (up_to_date)
            return 0;
    }
    TRY(take_dir(o, left));
    if (left)
        TRY(look_back(o));
    *begun = OUTPUTS_DONE;
    if (o->from != NULL)
        o->n_marked = o->from->n_done;
    if (o->from != NULL && o->from->ready)
        return place_all(o);
    *begun = OUTPUTS_UP_TO_DATE;
    if (left)
        TRY(may_create(o, &up_to_date));
    if (up_to_date)
        return 0;
    *begun = o->from != NULL ? OUTPUTS_CONTINUED : OUTPUTS_NEW;
    if (o->from != NULL)
        return 0;
    TRY(journal_create(o->journal, &o->head));
    TRY(open_writers(o));
    return fs_sync_dir(o->dir);         /* names too must be there before a mark speaks of them */
}

int outputs_open(struct outputs_plan *plan, struct outputs **out, enum outputs_begun *begun)
{
    struct arena *a = arena_new();
    struct outputs *o = arena_alloc(a, sizeof *o);
    o->arena = a;
    o->plan = plan;
    o->open_shard = -1;
    make_names(o);
    o->writer = arena_array(a, (size_t)o->n, sizeof *o->writer);
    o->mark = arena_array(a, (size_t)o->n, sizeof *o->mark);
    o->was = arena_array(a, (size_t)o->n, sizeof *o->was);
    o->pending = arena_array(a, (size_t)plan->info.n_inputs + 1, sizeof *o->pending);
    o->head = head_of(o);
    *out = o;
    int rc = begin(o, begun);
    if (rc < 0) {
        outputs_close(o);
        *out = NULL;
    }
    return rc;
}

int outputs_n_done(const struct outputs *o)
{
    return o->n_marked;
}

const int64_t *outputs_counts(const struct outputs *o)
{
    return o->from != NULL ? o->from->count : NULL;
}

/* ---- documents */

/* The shard with the fewest tokens, of equals the first: a function of the rows
 * before alone, so that it is the same for any number of threads. */
static int least(const struct outputs *o)
{
    int best = 0, n_keys = o->plan->n_keys;
    int64_t fewest = INT64_MAX;
    for (int s = 0; s < o->plan->n_shards; s++) {
        int64_t n = 0;
        for (int k = 0; k < n_keys; k++)
            n += tokenfile_written(o->writer[s * n_keys + k]);
        if (n < fewest) {
            fewest = n;
            best = s;
        }
    }
    return best;
}

int outputs_add(struct outputs *o, const struct outputs_rows *rows, int64_t n_rows, _Bool open)
{
    const struct outputs_plan *p = o->plan;
    int64_t step = p->n_shards > 1 ? 1 : n_rows, n;
    const size_t size = (size_t)tokenfile_dtype_bytes(p->info.vocab_size);
    size_t at[64] = { 0 };              /* token, per key */
    BUG_ON(p->n_keys > 64);
    for (int64_t row = 0; row < n_rows; row += n) {
        n = step;
        int s = o->open_shard >= 0 ? o->open_shard : p->n_shards > 1 ? least(o) : 0;
        _Bool goes_on = open && row + n == n_rows;
        for (int k = 0; k < p->n_keys; k++) {
            uint64_t bytes = 0;
            size_t tokens = 0;
            for (int64_t i = row; i < row + n; i++) {
                bytes += (uint64_t)rows[k].bytes[i];
                tokens += (size_t)rows[k].length[i];
            }
            TRY(tokenfile_append_packed(o->writer[s * p->n_keys + k], rows[k].packed + at[k] * size, rows[k].length + row, n, goes_on, bytes));
            at[k] += tokens;
        }
        o->open_shard = goes_on ? s : -1;
    }
    return 0;
}

static int mark(struct outputs *o, const int64_t *counts)
{
    struct tokenfile_mark *m = o->mark;
    double begun = clock_s();
    for (int i = 0; i < o->n; i++)
        TRY(tokenfile_part_mark(o->writer[i], &m[i]));
    TRY(journal_add(o->journal, o->pending + o->n_marked, o->n_pending, m, o->was, o->n, counts, o->plan->n_counts));
    o->n_marked += o->n_pending;
    o->n_pending = 0;
    o->marked_s = clock_s();
    o->cost_s = o->marked_s - begun;
    return 0;
}

int outputs_mark(struct outputs *o, int i, const int64_t *counts)
{
    const struct tokenfile_input *in = &o->plan->info.inputs[i];
    BUG_ON(i != o->n_marked + o->n_pending);
    o->pending[i] = (struct journal_input){ in->bytes, o->plan->mtime_ns[i], in->hash };
    o->n_pending++;
    /* Behind the last one there is nothing that could be continued. */
    if (i + 1 == o->plan->info.n_inputs || clock_s() - o->marked_s < MARK_SHARE * o->cost_s)
        return 0;
    return mark(o, counts);
}

/* ---- the end */

int outputs_finish(struct outputs *o, const int64_t *invalid, struct tokenfile_counter *more, int n_more, struct tokenfile_info *total)
{
    int n_keys = o->plan->n_keys;
    *total = (struct tokenfile_info){ .vocab_size = o->plan->info.vocab_size };
    for (int i = 0; i < o->n; i++) {
        _Bool first = i < n_keys;
        struct tokenfile_info done;
        struct tokenfile_writer *w = o->writer[i];
        o->writer[i] = NULL;
        TRY(tokenfile_part_seal(w, first ? invalid[i] : 0, first ? more : NULL, first ? n_more : 0, &done));
        total->documents += done.documents;
        total->tokens += done.tokens;
        total->text_bytes += done.text_bytes;
        total->empty += done.empty;
    }
    TRY(fs_sync_dir(o->dir));
    TRY(journal_ready(o->journal));
    return place_all(o);
}

/* Some files were moved and then something failed: a set that was reported as a
 * failure must not look like a whole one, nor be in the way of the next try. */
static void take_back(struct outputs *o)
{
    static const char *const ext[] = { ".json", ".idx", ".bin" };
    for (int i = 0; o->sealed && i < o->n; i++)
        for (int e = 0; e < 3; e++)
            if (!fs_exists(arena_printf(o->arena, "%s%s", o->part[i], ext[e])))
                fs_remove_tree(arena_printf(o->arena, "%s%s", o->prefix[i], ext[e]));
}

void outputs_close(struct outputs *o)
{
    struct err_state err;
    if (o == NULL)
        return;
    err_take(&err);
    close_writers(o);
    if (o->lock != NULL) {
        _Bool keep = !o->finished && o->n_marked > 0;
        if (!keep && !o->finished)
            take_back(o);
        if (!keep && fs_remove_tree(o->dir) < 0)
            log_warn("%s: cannot be removed", o->dir);
        lock_drop(o->lock);
        if (keep && err.code != 0) {
            struct err_state why = err;
            err_set(why.code, "%s; %d of %d inputs are done and kept in %s for the same command", why.msg, o->n_marked, o->plan->info.n_inputs, o->dir);
            err_take(&err);
        }
    }
    journal_free(o->from);
    arena_free(o->arena);
    if (err.code != 0)
        err_put(&err);
}
