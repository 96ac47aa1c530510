/* save_plan.c -- which rank writes which tensor into which file.
 *
 * A pure function of what is declared, so that every rank finds the same answer
 * without a word being exchanged.  Tensors that have one holder have no choice
 * and go first; then come those that are split by rows, of which all but a part
 * has to travel anyway; what lies whole on several ranks levels out the rest. */
#include "ckpt/save_impl.h"

/* Copies begin on a cache line. */
#define STAGE_ALIGN ((uint64_t)64)

uint64_t save_plan_stage(const struct save_plan *p, struct save_tensor *t, int64_t n, int rank)
{
    uint64_t at = 0;

    for (int64_t k = 0; k < n; k++) {
        struct save_tensor *now = &t[p->order[k]];

        if (now->writer != rank)
            continue;
        now->stage_at = at;
        at += (now->bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
    }
    return at;
}

_Bool save_plan_holds(const struct ckpt_rows *r, int rank)
{
    int d = rank - r->holder;

    if (r->n_holders == 1)
        return d == 0;
    return d >= 0 && d % r->stride == 0 && d / r->stride < r->n_holders;
}

int save_plan_sender(const struct ckpt_rows *r, int writer)
{
    int k;

    if (r->n_holders == 1 || writer <= r->holder)
        return r->holder;
    k = (writer - r->holder + (r->stride - 1) / 2) / r->stride;
    return r->holder + (k < r->n_holders ? k : r->n_holders - 1) * r->stride;
}

/* The least loaded holder, the lowest rank of several. */
static int lightest(const struct save_tensor *t, const uint64_t *load)
{
    int best = -1;

    for (int i = 0; i < t->n_rows; i++)
        for (int k = 0; k < t->rows[i].n_holders; k++) {
            int rank = t->rows[i].holder + k * t->rows[i].stride;

            if (best < 0 || load[rank] < load[best] || (load[rank] == load[best] && rank < best))
                best = rank;
        }
    return best;
}

static int turn_of(const struct save_tensor *t)
{
    return t->n_rows > 1 ? 1 : t->rows[0].n_holders > 1 ? 2 : 0;
}

static void choose_writers(struct arena *a, struct save_tensor *t, int64_t n, int n_ranks)
{
    uint64_t *load = arena_array(a, (size_t)n_ranks, sizeof *load);

    for (int turn = 0; turn < 3; turn++)
        for (int64_t i = 0; i < n; i++)
            if (turn_of(&t[i]) == turn) {
                t[i].writer = lightest(&t[i], load);
                load[t[i].writer] += t[i].bytes;
            }
}

/* By group, then by writer, otherwise as declared. */
static void sort_order(struct arena *a, const struct save_tensor *t, int64_t n, int n_ranks, int64_t *order)
{
    int64_t *at = arena_array(a, 2 * (size_t)n_ranks + 1, sizeof *at);

    for (int64_t i = 0; i < n; i++)
        at[(int)t[i].group * n_ranks + t[i].writer + 1]++;
    for (int i = 0; i < 2 * n_ranks; i++)
        at[i + 1] += at[i];
    for (int64_t i = 0; i < n; i++)
        order[at[(int)t[i].group * n_ranks + t[i].writer]++] = i;
}

/* Fills files in order; without files it only counts them. */
static int cut_files(struct save_plan *p, struct save_tensor *t, int64_t n, uint64_t limit, _Bool count)
{
    const struct save_tensor *last = NULL;
    uint64_t filled = 0;
    int n_files = 0;

    for (int64_t k = 0; k < n; k++) {
        struct save_tensor *now = &t[p->order[k]];

        if (!last || now->group != last->group || now->writer != last->writer ||
            (filled && now->bytes > limit - (filled < limit ? filled : limit))) {
            filled = 0;
            if (!count)
                p->files[n_files] = (struct save_file){ .group = now->group, .writer = now->writer, .first = k };
            n_files++;
        }
        filled += now->bytes;
        last = now;
        if (!count) {
            now->i_file = n_files - 1;
            now->i_in_file = (int)p->files[n_files - 1].n++;
        }
    }
    return n_files;
}

static void name_files(struct arena *a, struct save_plan *p)
{
    int n[2] = { 0, 0 }, i[2] = { 0, 0 };

    for (int k = 0; k < p->n_files; k++)
        n[p->files[k].group]++;
    for (int k = 0; k < p->n_files; k++) {
        enum ckpt_group g = p->files[k].group;

        p->files[k].name = arena_printf(a, g == CKPT_MODEL ? "model-%05d-of-%05d.safetensors"
                                                           : "optim/optim-%05d-of-%05d.safetensors", ++i[g], n[g]);
    }
}

void save_plan(struct arena *a, struct save_tensor *t, int64_t n, int n_ranks, uint64_t shard_bytes, struct save_plan *p)
{
    p->order = arena_array(a, (size_t)n + 1, sizeof *p->order);
    choose_writers(a, t, n, n_ranks);
    sort_order(a, t, n, n_ranks, p->order);
    p->n_files = cut_files(p, t, n, shard_bytes, 1);
    p->files = arena_array(a, (size_t)p->n_files + 1, sizeof *p->files);
    cut_files(p, t, n, shard_bytes, 0);
    name_files(a, p);
}
